/* vnni.h: pieces of the AVX-512 VNNI products. Only for files compiled for it. */
#ifndef VTI_KERNELS_VNNI_H
#define VTI_KERNELS_VNNI_H

#include <immintrin.h>
#include <string.h>

#include "../layout.h"

static inline __m512i broadcast_i32(const unsigned char *at)
{
    int32_t value;
    memcpy(&value, at, 4);
    return _mm512_set1_epi32(value);
}

static inline __m512 broadcast_f32(const unsigned char *at)
{
    float value;
    memcpy(&value, at, 4);
    return _mm512_set1_ps(value);
}

/* 16 F16 scales → floats. */
static inline __m512 load_scales(const unsigned char *halves)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)halves));
}

/* 32 bytes of a nibble tile, a group of 4 columns → [16 rows][4] bytes 0…15. */
static inline __m512i load_nibbles(const unsigned char *at, bool is_signed)
{
    const __m512i shifts = _mm512_set_epi32(4, 4, 4, 4, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0);
    const int flip = 0x08080808; /* the upper halves are kept as q xor 8 */
    const __m512i flips = _mm512_set_epi32(flip, flip, flip, flip, flip, flip, flip, flip, 0, 0, 0,
                                           0, 0, 0, 0, 0);
    __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)at));
    __m512i nibbles = _mm512_srlv_epi32(both, shifts), mask = _mm512_set1_epi8(15);
    if (!is_signed) return _mm512_and_si512(nibbles, mask);
    return _mm512_ternarylogic_epi32(nibbles, mask, flips, 0x6a); /* (nibbles & mask) ^ flips */
}

/* Fifth bits followed by a plain nibble tile: a group of 4 columns → [16 rows][4] bytes 0…31. */
static inline __m512i load_fives(const unsigned char *at, size_t group)
{
    __m512i fifth = _mm512_loadu_si512(at);
    __m512i nibbles = load_nibbles(at + VTI_FIFTH_BYTES + group * 32, false);
    fifth = group < 4 ? _mm512_slli_epi32(fifth, 4 - (unsigned)group)
                      : _mm512_srli_epi32(fifth, (unsigned)group - 4);
    /* nibbles | (fifth & 0x10) */
    return _mm512_ternarylogic_epi32(nibbles, fifth, _mm512_set1_epi8(0x10), 0xf8);
}

/* For one token, where nothing is reused, halves of 8 rows in registers of 256 bits take fewer
 * operations than whole panels. `part` says which half a nibble tile's bytes are read for. */
static inline __m256i nibble_half(__m256i both, size_t part, bool is_signed)
{
    __m256i mask = _mm256_set1_epi8(15);
    if (part == 0) return _mm256_and_si256(both, mask);
    __m256i upper = _mm256_srli_epi32(both, 4), flip = _mm256_set1_epi8(8);
    return is_signed ? _mm256_ternarylogic_epi32(upper, mask, flip, 0x6a)
                     : _mm256_and_si256(upper, mask);
}

/* `tail`: bits to be added to the nibbles, already in their place but not masked. */
static inline __m256i nibble_half_with(__m256i both, size_t part, __m256i tail, int tail_mask)
{
    return _mm256_ternarylogic_epi32(nibble_half(both, part, false), tail,
                                     _mm256_set1_epi8((char)tail_mask), 0xf8);
}

static inline __m256i load_256(const void *at) { return _mm256_loadu_si256(at); }

static inline __m256i broadcast_i32_256(const unsigned char *at)
{
    int32_t value;
    memcpy(&value, at, 4);
    return _mm256_set1_epi32(value);
}

/* Shifts to the left, or to the right if `by` is negative. A constant where this is inlined. */
static inline __m256i shift_256(__m256i v, int by)
{
    return by >= 0 ? _mm256_slli_epi32(v, by) : _mm256_srli_epi32(v, -by);
}

static inline __m512i join_halves(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* start + Σ over 8 groups of a nibble tile × one token's 32 bytes. */
static inline __m512i dot_nibbles(const unsigned char *tile, const unsigned char *q, int32_t start)
{
    __m256i low = _mm256_set1_epi32(start), high = low;
#pragma GCC unroll 8
    for (size_t group = 0; group < 8; group++) {
        __m256i both = load_256(tile + group * 32), x = broadcast_i32_256(q + group * 4);
        low = _mm256_dpbusd_epi32(low, nibble_half(both, 0, true), x);
        high = _mm256_dpbusd_epi32(high, nibble_half(both, 1, true), x);
    }
    return join_halves(low, high);
}

/* The same of fifth bits and a plain nibble tile. */
static inline __m512i dot_fives(const unsigned char *tile, const unsigned char *q, int32_t start)
{
    __m256i low = _mm256_set1_epi32(start), high = low;
    __m256i low_fifth = load_256(tile), high_fifth = load_256(tile + 32);
#pragma GCC unroll 8
    for (int group = 0; group < 8; group++) {
        __m256i both = load_256(tile + VTI_FIFTH_BYTES + group * 32);
        __m256i x = broadcast_i32_256(q + group * 4);
        __m256i w = nibble_half_with(both, 0, shift_256(low_fifth, 4 - group), 0x10);
        low = _mm256_dpbusd_epi32(low, w, x);
        w = nibble_half_with(both, 1, shift_256(high_fifth, 4 - group), 0x10);
        high = _mm256_dpbusd_epi32(high, w, x);
    }
    return join_halves(low, high);
}

/* The same of 4 groups of Q6_K. */
static inline __m512i dot_sixes(const unsigned char *tile, const unsigned char *q, int32_t start)
{
    __m256i low = _mm256_set1_epi32(start), high = low;
    __m256i low_pair = load_256(tile), high_pair = load_256(tile + 32);
#pragma GCC unroll 4
    for (int group = 0; group < 4; group++) {
        __m256i both = load_256(tile + 64 + group * 32), x = broadcast_i32_256(q + group * 4);
        __m256i w = nibble_half_with(both, 0, shift_256(low_pair, 4 - 2 * group), 0x30);
        low = _mm256_dpbusd_epi32(low, w, x);
        w = nibble_half_with(both, 1, shift_256(high_pair, 4 - 2 * group), 0x30);
        high = _mm256_dpbusd_epi32(high, w, x);
    }
    return join_halves(low, high);
}

static inline int32_t load_i32(const unsigned char *at)
{
    int32_t value;
    memcpy(&value, at, 4);
    return value;
}

static inline __mmask16 row_mask(size_t row, size_t row_end)
{
    return (__mmask16)(0xffff >> (VTI_PANEL_ROWS - vti_panel_rows(row, row_end)));
}

/* Weights that will be spread out next: they are fetched in steps, one per tile of tokens, so that
 * the wait for memory hides behind the arithmetic. */
typedef struct upcoming {
    const unsigned char *at;
    size_t step; /* bytes */
} upcoming;

/* `tile_tokens`: of a whole tile. Nothing is fetched if `bytes` is 0. */
static inline upcoming fetch_later(const unsigned char *at, size_t bytes, size_t tokens,
                                   size_t tile_tokens)
{
    size_t tiles = (tokens + tile_tokens - 1) / tile_tokens;
    return (upcoming){at, (bytes / tiles + 63) / 64 * 64};
}

static inline void fetch_step(upcoming *next)
{
    for (size_t i = 0; i < next->step; i += 64) _mm_prefetch(next->at + i, _MM_HINT_T1);
    next->at += next->step;
}

/* Whole groups that the next tile takes of what is left; 0: a group of fewer than 4 tokens. */
static inline size_t tile_groups(size_t tokens, size_t most)
{
    size_t groups = tokens / VTI_TOKEN_GROUP;
    return groups < most ? groups : most;
}

#endif
