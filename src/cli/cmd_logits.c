/* cmd_logits.c: logits of given tokens, for comparing implementations. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

typedef struct logits_output {
    FILE *file;
    uint32_t vocabulary;
    bool failed;
} logits_output;

static bool write_row(void *user, uint32_t position, const float *logits)
{
    logits_output *out = user;
    (void)position;
    out->failed = fwrite(logits, sizeof *logits, out->vocabulary, out->file) != out->vocabulary;
    return !out->failed;
}

/* A file appears complete or not at all: it is written beside and renamed. What is no ordinary file
 * (/dev/null, a pipe) is written in place and never removed. */
typedef struct output_path {
    const char *path;
    char part[4096]; /* "" for in place */
} output_path;

static FILE *open_output(output_path *o, const char *path)
{
    struct stat facts;
    o->path = path;
    o->part[0] = 0;
    bool ordinary = lstat(path, &facts) != 0 || S_ISREG(facts.st_mode);
    if (ordinary) snprintf(o->part, sizeof o->part, "%s.part", path);
    return fopen(ordinary ? o->part : path, "wb");
}

/* Keeps what was written, or drops it. */
static bool close_output(output_path *o, FILE *file, bool keep)
{
    bool fine = fclose(file) == 0;
    if (!o->part[0]) return fine;
    if (keep && fine) return rename(o->part, o->path) == 0;
    remove(o->part);
    return fine;
}

/* A wrong -o must not cost a model. */
static bool is_model(const char *path)
{
    char magic[4] = "";
    FILE *file = fopen(path, "rb");
    bool read = file && fread(magic, 1, sizeof magic, file) == sizeof magic;
    if (file) fclose(file);
    return read && (memcmp(magic, "GGUF", 4) == 0 || vt_store_is(path));
}

static int compute(cli_compute *c, const vt_token *ids, size_t count, const char *path)
{
    vt_model_info info;
    vt_error err;
    output_path place;
    vt_model_get_info(c->model, &info);
    logits_output out = {open_output(&place, path), info.vocabulary_tokens, false};
    if (!out.file) return cli_error(VT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    cli_cancel_on_interrupt(c->handle);
    vt_status status = vt_session_feed_logits(c->handle, ids, count, write_row, &out, &err);
    int write_errno = errno;
    if (!close_output(&place, out.file, status == VT_OK) && !out.failed) {
        out.failed = true;
        write_errno = errno;
    }
    if (out.failed) return cli_error(VT_ERR_IO, "cannot write %s: %s", path, strerror(write_errno));
    if (status != VT_OK) return cli_interrupted() ? 130 : cli_fail(&err);
    fprintf(stderr, "%zu x %" PRIu32 " logits in %s\n", count, info.vocabulary_tokens, path);
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    cli_compute c;
    const char *ids_path = NULL, *out_path = NULL;
    cli_compute_init(&c);
    const cli_option options[] = {
        {"ids", 'i', CLI_STRING, &ids_path, 0, 0, "FILE", "JSON array of token ids; - is stdin"},
        {"output", 'o', CLI_STRING, &out_path, 0, 0, "FILE",
         "float32, little-endian, positions x vocabulary"},
        CLI_COMPUTE_OPTIONS(c),
        {0},
    };
    int code = cli_parse(&cli_logits, options, argc, argv, NULL, NULL);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    if (!ids_path || !out_path) return cli_error(CLI_USAGE, "logits needs --ids and -o");
    if (is_model(out_path))
        return cli_error(CLI_USAGE, "%s is a model; it is not replaced, choose another name",
                         out_path);
    size_t bytes, count = 0;
    char *text = cli_read_file(ids_path, CLI_TEXT_MAX, &bytes);
    vt_token *ids = text ? cli_parse_ids(text, bytes, cli_path_name(ids_path), &count) : NULL;
    code = !text ? VT_ERR_IO : ids ? CLI_OK : VT_ERR_FORMAT;
    if (code == CLI_OK) code = cli_open_compute(&c);
    if (code == CLI_OK) {
        code = compute(&c, ids, count, out_path);
        cli_close_compute(&c);
    }
    free(ids);
    free(text);
    return code;
}

const cli_command cli_logits = {
    "logits",
    "Write the logits of given token ids at every position.",
    "logits [-m FILE] --ids FILE.json -o OUT.f32 [--devices …]",
    run,
    "No BOS is added. --kv f32 keeps the KV cache exact.",
    "  voltron-run logits -m model.gguf --ids ids.json -o out.f32 --kv f32\n",
};
