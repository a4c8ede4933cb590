#include "gguf_internal.h"
#include "little_endian.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* Takes what fits and counts everything. */
typedef struct text_sink {
    char *buffer;
    size_t capacity;
    size_t needed;
} text_sink;

static void put_bytes(text_sink *sink, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, sink->needed++)
        if (sink->needed + 1 < sink->capacity) sink->buffer[sink->needed] = text[i];
}

static void put_text(text_sink *sink, const char *text) { put_bytes(sink, text, strlen(text)); }

/* Bytes of the character at `text` if it may be shown as it is: valid UTF-8 and no control. */
static size_t shown_bytes(const unsigned char *text, uint64_t left)
{
    utf8proc_int32_t point;
    utf8proc_ssize_t bytes = utf8proc_iterate(text, left < 4 ? (utf8proc_ssize_t)left : 4, &point);
    bool control = point < 0x20 || (point >= 0x7f && point < 0xa0);
    return bytes > 0 && !control ? (size_t)bytes : 0;
}

static void put_escaped(text_sink *sink, unsigned char byte)
{
    static const char named[][2] = {
        {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}, {'"', '"'}, {'\\', '\\'},
    };
    char text[8];
    snprintf(text, sizeof text, "\\x%02x", byte);
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        if ((unsigned char)named[i][0] == byte) snprintf(text, sizeof text, "\\%c", named[i][1]);
    put_text(sink, text);
}

static void put_string(text_sink *sink, vti_gguf_string string)
{
    const unsigned char *text = (const unsigned char *)string.data;
    put_text(sink, "\"");
    for (uint64_t i = 0; i < string.bytes;) {
        size_t bytes = shown_bytes(text + i, string.bytes - i);
        if (bytes == 0 || text[i] == '"' || text[i] == '\\') {
            put_escaped(sink, text[i++]);
        } else {
            put_bytes(sink, string.data + i, bytes);
            i += bytes;
        }
    }
    put_text(sink, "\"");
}

/* The fewest digits that read back as the same number. */
static void put_float(text_sink *sink, double number, bool single)
{
    char text[40];
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        double back = strtod(text, NULL);
        if (single ? (float)back == (float)number : back == number) break;
    }
    char *comma = strchr(text, ','); /* the decimal point of some locales */
    if (comma) *comma = '.';
    put_text(sink, text);
}

static void put_number(text_sink *sink, const vti_gguf_value *value, uint64_t index)
{
    char text[24];
    bool negative;
    uint64_t magnitude;
    if (vti_gguf_integer_at(value, index, &negative, &magnitude)) {
        snprintf(text, sizeof text, "%s%" PRIu64, negative ? "-" : "", magnitude);
        put_text(sink, text);
    } else if (value->type == VTI_GGUF_BOOL) {
        put_text(sink, value->data[index] ? "true" : "false");
    } else {
        put_float(sink, vti_gguf_number_at(value, index), value->type == VTI_GGUF_F32);
    }
}

static void put_value(text_sink *sink, const vti_gguf_value *value, uint64_t max_elements)
{
    uint64_t shown = value->count < max_elements || !value->is_array ? value->count : max_elements;
    const unsigned char *cursor = value->data;
    if (value->is_array) put_text(sink, "[");
    for (uint64_t i = 0; i < shown; i++) {
        if (i > 0) put_text(sink, ", ");
        if (value->type == VTI_GGUF_STRING)
            put_string(sink, vti_gguf_next_string(&cursor));
        else
            put_number(sink, value, i);
    }
    if (shown < value->count) {
        char more[48];
        snprintf(more, sizeof more, "%s… %" PRIu64 " more", shown ? ", " : "",
                 value->count - shown);
        put_text(sink, more);
    }
    if (value->is_array) put_text(sink, "]");
}

size_t vt_gguf_entry_text(const vt_gguf *gguf, uint64_t index, uint64_t max_elements, char *buffer,
                          size_t capacity)
{
    text_sink sink = {buffer, capacity, 0};
    if (index < gguf->entry_count) put_value(&sink, &gguf->entries[index].value, max_elements);
    if (capacity > 0) buffer[sink.needed < capacity ? sink.needed : capacity - 1] = 0;
    return sink.needed;
}
