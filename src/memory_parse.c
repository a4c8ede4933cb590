#include "memory_parse.h"

#include <string.h>

/* --- words and numbers ----------------------------------------------------------------------- */

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t') at++;
    return at;
}

/* The decimal number at *at, which moves behind it; false if there is none or it is too large. */
static bool read_number(const char **at, uint64_t *out)
{
    const char *p = *at;
    uint64_t value = 0;
    if (*p < '0' || *p > '9') return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *at = p;
    *out = value;
    return true;
}

/* The same behind blanks. */
static bool read_next(const char **at, uint64_t *out)
{
    *at = skip_blanks(*at);
    return read_number(at, out);
}

/* Behind `word` at the beginning of a line; NULL: no line begins so. */
static const char *find_line(const char *text, const char *word)
{
    size_t bytes = strlen(word);
    while (text && strncmp(text, word, bytes) != 0) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    return text ? text + bytes : NULL;
}

/* --- /proc ----------------------------------------------------------------------------------- */

static bool kib_line(const char *text, const char *name, uint64_t *out)
{
    uint64_t kib;
    const char *at = find_line(text, name);
    if (!at || !read_next(&at, &kib) || kib > UINT64_MAX / 1024) return false;
    if (strncmp(skip_blanks(at), "kB", 2) != 0) return false;
    *out = kib * 1024;
    return true;
}

bool vti_parse_meminfo(const char *text, vti_meminfo *out)
{
    vti_meminfo m;
    if (!kib_line(text, "MemTotal:", &m.total_bytes) ||
        !kib_line(text, "MemAvailable:", &m.available_bytes))
        return false;
    *out = m;
    return true;
}

/* "avg10=12.34", two digits behind the point; not strtod, which a locale would change. */
static bool average_line(const char *text, const char *name, double *out)
{
    static const char field[] = " avg10=";
    uint64_t whole, hundredths;
    const char *at = find_line(text, name);
    if (!at || strncmp(at, field, sizeof field - 1) != 0) return false;
    at += sizeof field - 1;
    if (!read_number(&at, &whole) || *at++ != '.') return false;
    const char *digits = at;
    if (!read_number(&at, &hundredths) || at - digits != 2 || whole > 100) return false;
    *out = (double)whole + (double)hundredths / 100;
    return true;
}

bool vti_parse_pressure(const char *text, vti_pressure *out)
{
    vti_pressure p;
    if (!average_line(text, "some", &p.some) || !average_line(text, "full", &p.full)) return false;
    *out = p;
    return true;
}

bool vti_parse_statm(const char *text, uint64_t page_bytes, uint64_t *out)
{
    uint64_t size, resident, shared;
    if (!read_next(&text, &size) || !read_next(&text, &resident) || !read_next(&text, &shared))
        return false;
    uint64_t pages = resident > shared ? resident - shared : 0;
    if (page_bytes && pages > UINT64_MAX / page_bytes) return false;
    *out = pages * page_bytes;
    return true;
}

/* --- control groups -------------------------------------------------------------------------- */

/* Version 1 says "no limit" with the largest number of whole pages. */
static const uint64_t no_limit = (uint64_t)1 << 62;

bool vti_parse_cgroup_bytes(const char *text, uint64_t *out)
{
    uint64_t value = UINT64_MAX;
    const char *at = text;
    if (strncmp(text, "max", 3) == 0)
        at += 3;
    else if (!read_number(&at, &value))
        return false;
    if (*at && *at != '\n') return false;
    *out = value >= no_limit ? UINT64_MAX : value;
    return true;
}

static bool stat_line(const char *text, const char *name, uint64_t *out)
{
    const char *at = find_line(text, name);
    return at && read_number(&at, out);
}

/* The "total_" ones of version 1 include groups below, as version 2 always does. */
bool vti_parse_cgroup_file_bytes(const char *text, uint64_t *out)
{
    uint64_t inactive, active;
    bool found = (stat_line(text, "total_inactive_file ", &inactive) &&
                  stat_line(text, "total_active_file ", &active)) ||
                 (stat_line(text, "inactive_file ", &inactive) &&
                  stat_line(text, "active_file ", &active));
    if (!found || inactive > UINT64_MAX - active) return false;
    *out = inactive + active;
    return true;
}

/* One of the words in [text, text + bytes) that commas part. */
static bool list_has(const char *text, size_t bytes, const char *word)
{
    size_t length = strlen(word);
    const char *end = text + bytes;
    while (text < end) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        size_t item = (size_t)((comma ? comma : end) - text);
        if (item == length && memcmp(text, word, length) == 0) return true;
        text += item + 1;
    }
    return false;
}

/* /proc/self/cgroup has lines "4:cpu,memory:/path"; version 2's is "0::/path". */
static bool find_group(const char *text, int version, char *path, size_t capacity)
{
    while (text && *text) {
        const char *end = text + strcspn(text, "\n");
        const char *list = memchr(text, ':', (size_t)(end - text));
        const char *colon = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (!colon) return false;
        list++;
        size_t bytes = (size_t)(end - colon - 1);
        size_t listed = (size_t)(colon - list);
        bool found = version == 2 ? listed == 0 : list_has(list, listed, "memory");
        if (found && bytes < capacity && colon[1] == '/') {
            memcpy(path, colon + 1, bytes);
            path[bytes] = 0;
            return true;
        }
        text = *end ? end + 1 : NULL;
    }
    return false;
}

/* A word of a line; `text` NULL: there is none. */
typedef struct word {
    const char *text;
    size_t bytes;
} word;

/* The next word before the end of the line. */
static word next_word(const char **at)
{
    *at = skip_blanks(*at);
    word w = {*at, strcspn(*at, " \t\n")};
    *at += w.bytes;
    return w.bytes ? w : (word){NULL, 0};
}

static bool word_is(word w, const char *text)
{
    return w.text && strlen(text) == w.bytes && memcmp(w.text, text, w.bytes) == 0;
}

/* A blank and the like stand in mountinfo's paths as a backslash and three octal digits. */
static bool is_escape(const char *at, size_t bytes)
{
    if (bytes < 4 || at[0] != '\\') return false;
    for (size_t i = 1; i < 4; i++)
        if (at[i] < '0' || at[i] > '7') return false;
    return true;
}

static bool copy_path(word from, char *to, size_t capacity)
{
    size_t written = 0;
    if (!from.text || from.text[0] != '/') return false;
    for (size_t i = 0; i < from.bytes; i++) {
        const char *c = from.text + i;
        if (written + 1 >= capacity) return false;
        if (is_escape(c, from.bytes - i)) {
            to[written++] = (char)((c[1] - '0') * 64 + (c[2] - '0') * 8 + c[3] - '0');
            i += 3;
        } else {
            to[written++] = *c;
        }
    }
    to[written] = 0;
    return true;
}

/* A line is "36 31 0:35 ROOT POINT OPTIONS [TAG …] - TYPE SOURCE OPTIONS": the group ROOT of the
 * hierarchy is seen at POINT. */
static bool mount_line(const char *line, int version, char *root, char *point, size_t capacity)
{
    word words[5];
    for (size_t i = 0; i < 5; i++) words[i] = next_word(&line);
    word w = next_word(&line);
    while (w.text && !word_is(w, "-")) w = next_word(&line);
    word type = next_word(&line), source = next_word(&line), options = next_word(&line);
    if (!source.text || !word_is(type, version == 2 ? "cgroup2" : "cgroup")) return false;
    if (version == 1 && (!options.text || !list_has(options.text, options.bytes, "memory")))
        return false;
    return copy_path(words[3], root, capacity) && copy_path(words[4], point, capacity);
}

static bool find_mount(const char *text, int version, char *root, char *point, size_t capacity)
{
    while (text && *text) {
        if (mount_line(text, version, root, point, capacity)) return true;
        text = strchr(text, '\n');
        if (text) text++;
    }
    return false;
}

/* What of `path` lies below `root`: "" or "/…"; "" too if it lies elsewhere: then only the mount
 * point can be seen. */
static const char *below(const char *path, const char *root)
{
    size_t bytes = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(path, root, bytes) != 0 || strstr(path, "/..")) return "";
    path += bytes;
    return *path == '/' && path[1] ? path : "";
}

static bool find_folder(const char *cgroup, const char *mountinfo, int version, vti_cgroup *out)
{
    char path[VTI_CGROUP_PATH_MAX], root[VTI_CGROUP_PATH_MAX], point[VTI_CGROUP_PATH_MAX];
    if (!find_group(cgroup, version, path, sizeof path) ||
        !find_mount(mountinfo, version, root, point, sizeof point))
        return false;
    const char *rest = below(path, root);
    size_t top = strlen(point), bytes = strlen(rest);
    if (top + bytes >= sizeof out->folder) return false;
    memcpy(out->folder, point, top);
    memcpy(out->folder + top, rest, bytes + 1);
    out->top_bytes = top;
    out->version = version;
    return true;
}

/* Where version 1 is mounted with "memory", version 2 has no say about it. */
bool vti_parse_cgroup(const char *cgroup, const char *mountinfo, vti_cgroup *out)
{
    return find_folder(cgroup, mountinfo, 1, out) || find_folder(cgroup, mountinfo, 2, out);
}
