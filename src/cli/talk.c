#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

int cli_error(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("voltron-run: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return code;
}

int cli_fail(const vt_error *err) { return cli_error((int)err->status, "%s", err->message); }

bool cli_colour(void)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    return isatty(STDERR_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

const char *cli_bold(void) { return cli_colour() ? "\033[1m" : ""; }
const char *cli_dim(void) { return cli_colour() ? "\033[2m" : ""; }
const char *cli_plain(void) { return cli_colour() ? "\033[0m" : ""; }

const char *cli_bytes(uint64_t bytes)
{
    static char ring[8][24];
    static unsigned next;
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    char *text = ring[next++ % 8];
    double value = (double)bytes;
    unsigned unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(text, sizeof ring[0], unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

uint64_t cli_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- progress ---------------------------------------------------------------------------------- */

void cli_progress_begin(cli_progress *progress)
{
    *progress = (cli_progress){.start_ns = cli_now_ns()};
}

void cli_progress_show(cli_progress *progress, const char *what, uint64_t done, uint64_t total)
{
    uint64_t now = cli_now_ns(), past = now - progress->start_ns;
    bool due = past > 1000000000u && now - progress->shown_ns > 100000000u;
    if (!due || !total || !done || !isatty(STDERR_FILENO)) return;
    uint64_t left_s = (uint64_t)((double)past * (double)(total - done) / (double)done / 1e9);
    fprintf(stderr, "\r\033[K%s  %3" PRIu64 " %%  ETA %" PRIu64 ":%02" PRIu64, what,
            done * 100 / total, left_s / 60, left_s % 60);
    fflush(stderr);
    progress->shown = true;
    progress->shown_ns = now;
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->shown) fputs("\r\033[K", stderr);
    progress->shown = false;
}

static void report(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes)
{
    cli_progress_show(user, what, done_bytes, total_bytes);
}

vt_progress cli_progress_callback(cli_progress *progress)
{
    return (vt_progress){report, progress};
}

/* --- log --------------------------------------------------------------------------------------- */

static void write_log(void *user, vt_log_level level, const char *message)
{
    bool verbose = user != NULL;
    if (level < VT_LOG_WARNING && !verbose) return;
    fprintf(stderr, "%s%s\n", level >= VT_LOG_WARNING ? "voltron-run: " : "", message);
}

vt_log cli_log(bool verbose)
{
    static char yes;
    return (vt_log){write_log, verbose ? &yes : NULL};
}

/* --- input ------------------------------------------------------------------------------------- */

const char *cli_path_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

char *cli_read_file(const char *path, size_t most, size_t *bytes)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    size_t capacity = 1 << 16, size = 0;
    char *data = file ? malloc(capacity) : NULL;
    while (data) {
        size_t got = fread(data + size, 1, capacity - size - 1, file);
        size += got;
        if (got == 0 || size > most) break;
        if (capacity - size < 2) {
            char *larger = realloc(data, capacity *= 2);
            if (!larger) free(data);
            data = larger;
        }
    }
    if (data && size > most) {
        cli_error(VT_ERR_IO, "%s has more than %s, which is too long", cli_path_name(path),
                  cli_bytes(most));
        free(data);
        data = NULL;
    } else if (!data || ferror(file)) {
        cli_error(VT_ERR_IO, "cannot read %s: %s", cli_path_name(path), strerror(errno));
        free(data);
        data = NULL;
    }
    if (file && !standard) fclose(file);
    if (!data) return NULL;
    data[size] = 0;
    *bytes = size;
    return data;
}

static vt_token *ids_from_json(const char *text, const char *source, size_t *count)
{
    json_error_t error;
    json_t *array = json_loads(text, 0, &error);
    if (!json_is_array(array)) {
        if (array)
            cli_error(VT_ERR_FORMAT, "%s: expected a JSON array of token ids", source);
        else
            cli_error(VT_ERR_FORMAT, "%s: line %d: %s", source, error.line, error.text);
        json_decref(array);
        return NULL;
    }
    *count = json_array_size(array);
    vt_token *ids = malloc((*count + 1) * sizeof *ids);
    for (size_t i = 0; ids && i < *count; i++) {
        const json_t *item = json_array_get(array, i);
        json_int_t value = json_integer_value(item);
        if (!json_is_integer(item) || value < 0 || value > INT32_MAX) {
            cli_error(VT_ERR_FORMAT, "%s: element %zu is not a token id", source, i);
            free(ids);
            ids = NULL;
        } else {
            ids[i] = (vt_token)value;
        }
    }
    json_decref(array);
    return ids;
}

vt_token *cli_parse_ids(const char *text, size_t bytes, const char *source, size_t *count)
{
    if (strlen(text) != bytes) {
        cli_error(VT_ERR_FORMAT, "%s: has a NUL byte, expected token ids", source);
        return NULL;
    }
    const char *at = text + strspn(text, " \t\r\n");
    if (*at == '[') return ids_from_json(text, source, count);
    vt_token *ids = malloc((strlen(text) / 2 + 2) * sizeof *ids);
    *count = 0;
    while (ids && *at) {
        char *end;
        long long value = strtoll(at, &end, 10);
        if (end == at || value < 0 || value > INT32_MAX || !strchr(" \t\r\n,", *end)) {
            cli_error(VT_ERR_FORMAT, "%s: \"%.20s\" is not a token id", source, at);
            free(ids);
            return NULL;
        }
        ids[(*count)++] = (vt_token)value;
        at = end + strspn(end, " \t\r\n,");
    }
    return ids;
}
