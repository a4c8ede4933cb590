#include "tokenizer.h"
#include "utf8.h"

#include <string.h>

static const char replacement[3] = {(char)0xEF, (char)0xBF, (char)0xBD}; /* U+FFFD */

/* Length of the sequence that begins with `lead`, 0 if none does, and the range of its second byte,
 * which is where overlong forms, surrogates and too large code points show. */
static size_t sequence_shape(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) {
        if (lead == 0xE0) *low = 0xA0;
        if (lead == 0xED) *high = 0x9F;
        return 3;
    }
    if (lead > 0xF4) return 0;
    if (lead == 0xF0) *low = 0x90;
    if (lead == 0xF4) *high = 0x8F;
    return 4;
}

size_t vti_utf8_next(const char *data, size_t bytes, vti_utf8_kind *kind)
{
    unsigned char low, high;
    size_t length = sequence_shape((unsigned char)data[0], &low, &high);
    *kind = VTI_UTF8_INVALID;
    if (length == 0) return 1;
    for (size_t i = 1; i < length; i++) {
        if (i == bytes) {
            *kind = VTI_UTF8_CUT;
            return i;
        }
        unsigned char byte = (unsigned char)data[i];
        if (byte < low || byte > high) return i;
        low = 0x80;
        high = 0xBF;
    }
    *kind = VTI_UTF8_VALID;
    return length;
}

size_t vti_utf8_ascii_prefix(const char *data, size_t bytes)
{
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        if (word & 0x8080808080808080u) break;
    }
    while (i < bytes && (unsigned char)data[i] < 0x80) i++;
    return i;
}

size_t vti_utf8_valid_prefix(const char *data, size_t bytes)
{
    size_t i = 0;
    while (i < bytes) {
        vti_utf8_kind kind;
        i += vti_utf8_ascii_prefix(data + i, bytes - i);
        if (i == bytes) break;
        size_t length = vti_utf8_next(data + i, bytes - i, &kind);
        if (kind != VTI_UTF8_VALID) break;
        i += length;
    }
    return i;
}

uint32_t vti_utf8_codepoint(const char *data, size_t *bytes)
{
    const unsigned char *s = (const unsigned char *)data;
    if (s[0] < 0x80) {
        *bytes = 1;
        return s[0];
    }
    if (s[0] < 0xE0) {
        *bytes = 2;
        return (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
    }
    if (s[0] < 0xF0) {
        *bytes = 3;
        return (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    }
    *bytes = 4;
    return (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
}

/* What is pending becomes one U+FFFD, each byte at most another. */
size_t vti_utf8_bound(size_t bytes)
{
    return bytes <= (SIZE_MAX - 3) / 3 ? 3 * bytes + 3 : SIZE_MAX;
}

/* Adds bytes to the pending sequence until it is whole or broken. Returns the bytes taken; a byte
 * that breaks it is not taken, it may begin the next sequence. */
static size_t complete_pending(vti_utf8_stream *stream, const char *data, size_t bytes, char *out,
                               size_t *written)
{
    size_t taken = 0;
    while (stream->pending_bytes > 0 && taken < bytes) {
        vti_utf8_kind kind;
        stream->pending[stream->pending_bytes] = (unsigned char)data[taken];
        size_t length = stream->pending_bytes + 1u;
        vti_utf8_next((const char *)stream->pending, length, &kind);
        if (kind == VTI_UTF8_INVALID) {
            *written += vti_utf8_flush(stream, out + *written);
            break;
        }
        taken++;
        stream->pending_bytes = (uint8_t)length;
        if (kind == VTI_UTF8_CUT) continue;
        memcpy(out + *written, stream->pending, length);
        *written += length;
        stream->pending_bytes = 0;
    }
    return taken;
}

size_t vti_utf8_push(vti_utf8_stream *stream, const char *data, size_t bytes, char *out)
{
    size_t written = 0;
    size_t i = complete_pending(stream, data, bytes, out, &written);
    while (i < bytes) {
        size_t valid = vti_utf8_valid_prefix(data + i, bytes - i);
        memcpy(out + written, data + i, valid);
        written += valid;
        i += valid;
        if (i == bytes) break;
        vti_utf8_kind kind;
        size_t length = vti_utf8_next(data + i, bytes - i, &kind);
        if (kind == VTI_UTF8_CUT) {
            memcpy(stream->pending, data + i, length);
            stream->pending_bytes = (uint8_t)length;
        } else {
            memcpy(out + written, replacement, sizeof replacement);
            written += sizeof replacement;
        }
        i += length;
    }
    return written;
}

size_t vti_utf8_flush(vti_utf8_stream *stream, char *out)
{
    if (stream->pending_bytes == 0) return 0;
    stream->pending_bytes = 0;
    memcpy(out, replacement, sizeof replacement);
    return sizeof replacement;
}
