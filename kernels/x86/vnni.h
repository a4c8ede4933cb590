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

static inline __mmask16 row_mask(size_t row, size_t row_end)
{
    return (__mmask16)(0xffff >> (VTI_PANEL_ROWS - vti_panel_rows(row, row_end)));
}

/* Whole groups that the next tile takes of what is left; 0: a group of fewer than 4 tokens. */
static inline size_t tile_groups(size_t tokens, size_t most)
{
    size_t groups = tokens / VTI_TOKEN_GROUP;
    return groups < most ? groups : most;
}

#endif
