/* Text is cut before every character that neither decomposes nor attaches to what stands before it
 * ("inert" below): normalisation never reaches across such a cut (Unicode Standard Annex 15). Only
 * the pieces that hold another character are normalised, so that ordinary text is merely read. */
#include "nfc.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Canonical decomposition of one character has at most four. */
#define DECOMPOSITION_MAX 4

typedef struct nfc_state {
    char *out;        /* NULL until the first piece changes */
    size_t out_bytes;
    size_t copied;    /* bytes of the source that `out` stands for */
    int32_t *points;  /* two halves: characters of a piece, room to sort them */
    size_t capacity;  /* of each half */
    char *piece;      /* capacity * 4 bytes */
} nfc_state;

static bool is_inert(uint32_t point)
{
    if (point < 0x300) return true; /* Latin-1 and its extensions: composed, no marks */
    if ((point >= 0x1161 && point <= 0x1175) || (point >= 0x11A8 && point <= 0x11C2))
        return false; /* Hangul vowels and final consonants */
    const utf8proc_property_t *property = utf8proc_get_property((int32_t)point);
    if (property->category == UTF8PROC_CATEGORY_MN || property->category == UTF8PROC_CATEGORY_MC ||
        property->category == UTF8PROC_CATEGORY_ME)
        return false;
    bool canonical = property->decomp_type == 0;
    return !(canonical && property->decomp_seqindex != UINT16_MAX);
}

static unsigned combining_class(int32_t point)
{
    return (unsigned)utf8proc_get_property(point)->combining_class;
}

/* Stable counting sort by combining class of `count` marks; linear, unlike utf8proc's own order,
 * because the marks come from users. */
static void sort_marks(int32_t *marks, size_t count, int32_t *room)
{
    size_t first[257] = {0};
    for (size_t i = 0; i < count; i++) first[(combining_class(marks[i]) & 0xFF) + 1]++;
    for (size_t i = 1; i < 257; i++) first[i] += first[i - 1];
    for (size_t i = 0; i < count; i++) room[first[combining_class(marks[i]) & 0xFF]++] = marks[i];
    memcpy(marks, room, count * sizeof *marks);
}

static void order_marks(int32_t *points, size_t count, int32_t *room)
{
    for (size_t i = 0; i < count;) {
        size_t end = i;
        unsigned previous = 0;
        bool ordered = true;
        for (unsigned class; end < count && (class = combining_class(points[end])) > 0; end++) {
            ordered = ordered && class >= previous;
            previous = class;
        }
        if (!ordered) sort_marks(points + i, end - i, room);
        i = end + 1;
    }
}

static bool reserve(nfc_state *state, size_t bytes)
{
    size_t needed = bytes * DECOMPOSITION_MAX; /* a character takes a byte or more */
    if (needed <= state->capacity) return true;
    free(state->points);
    free(state->piece);
    state->points = malloc(2 * needed * sizeof *state->points);
    state->piece = malloc(4 * needed);
    state->capacity = state->points && state->piece ? needed : 0;
    return state->capacity > 0;
}

/* Normalises one piece into state->piece; returns its length in bytes. */
static size_t normalize_piece(nfc_state *state, const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0, length; i < bytes; i += length) {
        int boundary = 0;
        uint32_t point = vti_utf8_codepoint(text + i, &length);
        utf8proc_ssize_t n = utf8proc_decompose_char(
            (int32_t)point, state->points + count, DECOMPOSITION_MAX,
            UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
        if (n > 0 && n <= DECOMPOSITION_MAX) count += (size_t)n;
    }
    order_marks(state->points, count, state->points + state->capacity);
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(
        state->points, (utf8proc_ssize_t)count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    size_t written = 0;
    for (utf8proc_ssize_t i = 0; i < composed; i++)
        written += (size_t)utf8proc_encode_char(state->points[i],
                                                (utf8proc_uint8_t *)state->piece + written);
    return written;
}

static void append(nfc_state *state, const char *data, size_t bytes)
{
    memcpy(state->out + state->out_bytes, data, bytes);
    state->out_bytes += bytes;
}

/* Normalises text[start, end) and notes it in the output if that changed it. */
static bool handle_piece(nfc_state *state, const char *text, size_t bytes, size_t start, size_t end)
{
    if (!reserve(state, end - start)) return false;
    size_t length = normalize_piece(state, text + start, end - start);
    if (length == end - start && memcmp(text + start, state->piece, length) == 0) return true;
    if (!state->out) state->out = malloc(bytes * VTI_NFC_EXPANSION);
    if (!state->out) return false;
    append(state, text + state->copied, start - state->copied);
    append(state, state->piece, length);
    state->copied = end;
    return true;
}

static bool normalize(nfc_state *state, const char *text, size_t bytes)
{
    size_t start = 0; /* of the newest inert character */
    for (size_t i = 0; i < bytes;) {
        size_t length = vti_utf8_ascii_prefix(text + i, bytes - i);
        if (length > 0) {
            i += length;
            start = i - 1;
            continue;
        }
        if (is_inert(vti_utf8_codepoint(text + i, &length))) {
            start = i;
            i += length;
            continue;
        }
        do i += length;
        while (i < bytes && !is_inert(vti_utf8_codepoint(text + i, &length)));
        if (!handle_piece(state, text, bytes, start, i)) return false;
        start = i;
    }
    if (state->out) append(state, text + state->copied, bytes - state->copied);
    return true;
}

vt_status vti_nfc(const char *text, size_t bytes, char **out, size_t *out_bytes, vt_error *err)
{
    nfc_state state = {0};
    bool done = normalize(&state, text, bytes);
    free(state.points);
    free(state.piece);
    *out = state.out;
    *out_bytes = state.out_bytes;
    if (done) return VT_OK;
    free(state.out);
    *out = NULL;
    return vti_fail(err, VT_ERR_MEMORY, "no memory to normalise %zu bytes of text", bytes);
}
