#include "json_fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const double SIZE_MAX_BYTES = 0x1p44; /* what the planner takes */

vt_status vti_json_bad(const vti_json_at *at, const char *field, const char *wanted)
{
    return vti_fail(at->err, VT_ERR_FORMAT, "%s, %s: \"%s\" must be %s", at->file, at->object,
                    field, wanted);
}

vt_status vti_json_check_fields(const vti_json_at *at, json_t *object, const char *const *fields)
{
    const char *key;
    json_t *value;
    char known[256] = "";
    size_t length = 0;
    if (!json_is_object(object))
        return vti_fail(at->err, VT_ERR_FORMAT, "%s: %s must be an object {…}", at->file,
                        at->object);
    for (unsigned i = 0; fields[i] && length < sizeof known; i++)
        length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "",
                                   fields[i]);
    json_object_foreach(object, key, value) {
        unsigned i = 0;
        while (fields[i] && strcmp(fields[i], key) != 0) i++;
        if (!fields[i])
            return vti_fail(at->err, VT_ERR_FORMAT,
                            "%s, %s: there is no field \"%.40s\", only %s", at->file, at->object,
                            key, known);
    }
    return VT_OK;
}

vt_status vti_json_text(const vti_json_at *at, const json_t *object, const char *field,
                        size_t capacity, char *out)
{
    char wanted[64];
    const json_t *value = json_object_get(object, field);
    if (!value) return VT_OK;
    snprintf(wanted, sizeof wanted, "a text of 1 to %zu bytes", capacity - 1);
    size_t length = json_string_length(value);
    if (!json_is_string(value) || length == 0 || length >= capacity)
        return vti_json_bad(at, field, wanted);
    memcpy(out, json_string_value(value), length + 1);
    vti_make_printable(out);
    return VT_OK;
}

vt_status vti_json_number(const vti_json_at *at, const json_t *object, const char *field,
                          double low, double high, double *out)
{
    char wanted[64];
    const json_t *value = json_object_get(object, field);
    if (!value) return VT_OK;
    snprintf(wanted, sizeof wanted, "a number from %g to %g", low, high);
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= low && number <= high))
        return vti_json_bad(at, field, wanted);
    *out = number;
    return VT_OK;
}

/* 0 if it is no size. Binary units: K, M, G, T, with or without "B" or "iB". */
static double size_of(const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    if (!(*text >= '0' && *text <= '9')) return 0;
    double value = strtod(text, &end);
    char letter = (char)(*end >= 'a' && *end <= 'z' ? *end - 32 : *end);
    const char *unit = letter ? strchr(units, letter) : NULL;
    if (unit) {
        for (const char *u = units; u <= unit; u++) value *= 1024;
        end++;
        if (*end == 'i') end++;
    }
    if (*end == 'B' || *end == 'b') end++;
    return *end ? 0 : value;
}

vt_status vti_json_size(const vti_json_at *at, const json_t *object, const char *field,
                        uint64_t *out)
{
    const json_t *value = json_object_get(object, field);
    if (!value) return VT_OK;
    double bytes = json_is_string(value) ? size_of(json_string_value(value))
                                         : json_number_value(value);
    if (!(bytes >= 1 && bytes < SIZE_MAX_BYTES))
        return vti_json_bad(at, field, "a size such as \"800M\" or \"1.5G\", below 16T");
    *out = (uint64_t)bytes;
    return VT_OK;
}

vt_status vti_read_text(const char *path, size_t bytes_max, char **out, size_t *bytes,
                        vt_error *err)
{
    FILE *file = fopen(path, "rb");
    if (!file) return vti_fail(err, VT_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    char *text = malloc(bytes_max + 1);
    vt_status status = VT_OK;
    *bytes = text ? fread(text, 1, bytes_max + 1, file) : 0;
    if (!text)
        status = vti_fail(err, VT_ERR_MEMORY, "no memory for %s", path);
    else if (ferror(file))
        status = vti_fail(err, VT_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    else if (*bytes > bytes_max)
        status = vti_fail(err, VT_ERR_FORMAT, "%s is larger than %zu bytes", path, bytes_max);
    fclose(file);
    if (status == VT_OK) {
        text[*bytes] = 0;
        *out = text;
    } else {
        free(text);
    }
    return status;
}

json_t *vti_json_load(const char *file, const char *text, size_t bytes, vt_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        vti_fail(err, VT_ERR_FORMAT, "%s is no JSON: line %d, column %d: %s", file, where.line,
                 where.column, where.text);
    return root;
}
