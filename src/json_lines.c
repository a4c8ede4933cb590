#include "json_lines.h"

#include <stdlib.h>
#include <string.h>

static void fail(vti_json_lines *lines)
{
    free(lines->bytes);
    *lines = (vti_json_lines){.failed = 1};
}

void vti_json_append(vti_json_lines *lines, const char *text, size_t length)
{
    if (lines->failed) return;
    if (lines->length + length >= lines->room) {
        size_t room = 2 * (lines->length + length + 1);
        char *grown = realloc(lines->bytes, room);
        if (!grown) {
            fail(lines);
            return;
        }
        lines->bytes = grown;
        lines->room = room;
    }
    memcpy(lines->bytes + lines->length, text, length);
    lines->length += length;
    lines->bytes[lines->length] = 0;
}

void vti_json_append_value(vti_json_lines *lines, json_t *value, int digits, size_t flags,
                           size_t cut)
{
    char *text = value ? json_dumps(value, flags | JSON_REAL_PRECISION(digits)) : NULL;
    json_decref(value);
    if (text)
        vti_json_append(lines, text, strlen(text) - cut);
    else
        fail(lines);
    free(text);
}
