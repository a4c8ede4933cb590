#include "text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/utf8.h"

vt_status vti_stop_strings_check(const char *const *stop, size_t count, vt_error *err)
{
    if (count > VT_STOP_STRINGS_MAX)
        return vti_fail(err, VT_ERR_ARGUMENT, "%zu stop strings are too many; at most %d", count,
                        VT_STOP_STRINGS_MAX);
    if (count && !stop) return vti_fail(err, VT_ERR_ARGUMENT, "stop is NULL");
    for (size_t i = 0; i < count; i++) {
        size_t bytes = stop[i] ? strlen(stop[i]) : 0;
        if (bytes == 0 || bytes > VT_STOP_STRING_BYTES_MAX)
            return vti_fail(err, VT_ERR_ARGUMENT,
                            "stop string %zu has %zu bytes, expected 1 to %d", i, bytes,
                            VT_STOP_STRING_BYTES_MAX);
        if (vti_utf8_valid_prefix(stop[i], bytes) != bytes)
            return vti_fail(err, VT_ERR_ARGUMENT, "stop string %zu is not UTF-8", i);
    }
    return VT_OK;
}

static bool reserve(vti_text_stream *s, size_t more)
{
    if (s->capacity - s->held_bytes >= more) return true;
    size_t capacity = (s->held_bytes + more) * 2;
    char *larger = realloc(s->held, capacity);
    if (!larger) return false;
    s->held = larger;
    s->capacity = capacity;
    return true;
}

/* Where the stop string begins that ends first (of several that end there, the longest);
 * SIZE_MAX: none is there. So it does not matter how the text was cut into tokens. */
static size_t find_stop(const vti_text_stream *s)
{
    size_t first_end = SIZE_MAX, begin = SIZE_MAX;
    for (size_t i = 0; i < s->stop_count; i++) {
        size_t bytes = strlen(s->stop[i]);
        const char *at = memmem(s->held, s->held_bytes, s->stop[i], bytes);
        if (!at) continue;
        size_t from = (size_t)(at - s->held), end = from + bytes;
        if (end > first_end || (end == first_end && from > begin)) continue;
        first_end = end;
        begin = from;
    }
    return begin;
}

/* Is the text from `at` on the beginning of a stop string? */
static bool begins_stop(const vti_text_stream *s, size_t at)
{
    size_t left = s->held_bytes - at;
    for (size_t i = 0; i < s->stop_count; i++)
        if (strnlen(s->stop[i], left + 1) > left && memcmp(s->held + at, s->stop[i], left) == 0)
            return true;
    return false;
}

/* Bytes that surely stand before any stop string; *found: one begins right there. A stop string
 * begins with a whole character, so text is never cut inside one. */
static size_t ready_bytes(const vti_text_stream *s, bool *found)
{
    size_t at = find_stop(s);
    *found = at != SIZE_MAX;
    if (*found) return at;
    at = s->held_bytes > VT_STOP_STRING_BYTES_MAX ? s->held_bytes - VT_STOP_STRING_BYTES_MAX : 0;
    while (at < s->held_bytes && !begins_stop(s, at)) at++;
    return at;
}

static bool deliver(vti_text_stream *s, size_t bytes)
{
    if (bytes == 0) return true;
    bool more = !s->on_text || s->on_text(s->user, s->held, bytes);
    s->held_bytes -= bytes;
    memmove(s->held, s->held + bytes, s->held_bytes);
    return more;
}

static vti_text_result pass_on(vti_text_stream *s)
{
    bool found;
    size_t ready = ready_bytes(s, &found);
    bool more = deliver(s, ready);
    s->over = found || !more;
    if (found) return VTI_TEXT_STOP_STRING;
    return more ? VTI_TEXT_MORE : VTI_TEXT_STOPPED;
}

vti_text_result vti_text_push(vti_text_stream *s, const char *data, size_t bytes)
{
    if (!reserve(s, vti_utf8_bound(bytes))) return VTI_TEXT_NO_MEMORY;
    s->held_bytes += vti_utf8_push(&s->utf8, data, bytes, s->held + s->held_bytes);
    return pass_on(s);
}

vti_text_result vti_text_end(vti_text_stream *s)
{
    vti_text_result result = s->over ? VTI_TEXT_MORE : VTI_TEXT_NO_MEMORY;
    if (!s->over && reserve(s, vti_utf8_bound(0))) {
        s->held_bytes += vti_utf8_flush(&s->utf8, s->held + s->held_bytes);
        result = pass_on(s);
        if (result == VTI_TEXT_MORE && !deliver(s, s->held_bytes)) result = VTI_TEXT_STOPPED;
    }
    vti_text_free(s);
    return result;
}

void vti_text_free(vti_text_stream *s)
{
    free(s->held);
    s->held = NULL;
    s->held_bytes = s->capacity = 0;
}
