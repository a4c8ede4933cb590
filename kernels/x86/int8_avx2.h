/* int8_avx2.h: pieces of the AVX2 products with INT8 activations. Only for files compiled for it.
 *
 * A lane is a row: 8 rows are a register, a panel has two halves. VPMADDUBSW multiplies unsigned
 * weights by signed activations and adds pairs to INT16; as many groups of 4 columns as cannot
 * overflow are added up there ("a span") before VPMADDWD widens them, with the integer scale of K
 * types as its other factor. */
#ifndef VTI_KERNELS_INT8_AVX2_H
#define VTI_KERNELS_INT8_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "../layout.h"

enum { HALF_ROWS = 8 };

static inline __m256i broadcast_i32(const unsigned char *at)
{
    int32_t value;
    memcpy(&value, at, 4);
    return _mm256_set1_epi32(value);
}

static inline __m256 broadcast_f32(const unsigned char *at)
{
    float value;
    memcpy(&value, at, 4);
    return _mm256_set1_ps(value);
}

/* a + b as INT16, one after the other: left alone, the compiler rearranges long sums into trees
 * that need more registers than there are. */
static inline __m256i add_i16(__m256i a, __m256i b)
{
    __m256i sum = _mm256_add_epi16(a, b);
    __asm__("" : "+x"(sum));
    return sum;
}

static inline __m256i load_256(const void *at) { return _mm256_loadu_si256(at); }

/* F16 scales of a half → floats. */
static inline __m256 load_scales(const unsigned char *halves, size_t half)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)(halves + half * 16)));
}

/* 32 bytes of a nibble tile, a group of 4 columns: the half's [8 rows][4] bytes 0…15. */
static inline __m256i load_nibbles(const unsigned char *at, size_t half, bool is_signed)
{
    __m256i both = load_256(at), mask = _mm256_set1_epi8(15);
    if (half == 0) return _mm256_and_si256(both, mask);
    __m256i upper = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    return is_signed ? _mm256_xor_si256(upper, _mm256_set1_epi8(8)) : upper;
}

/* Fifth bits followed by a plain nibble tile: the half's [8 rows][4] bytes 0…31. */
static inline __m256i load_fives(const unsigned char *at, size_t group, size_t half)
{
    __m256i fifth = load_256(at + half * 32);
    fifth = group < 4 ? _mm256_slli_epi32(fifth, 4 - (int)group)
                      : _mm256_srli_epi32(fifth, (int)group - 4);
    return _mm256_or_si256(load_nibbles(at + VTI_FIFTH_BYTES + group * 32, half, false),
                           _mm256_and_si256(fifth, _mm256_set1_epi8(0x10)));
}

/* Of a half's 8 rows, those below `rows` of the panel. */
static inline __m256i half_mask(size_t rows, size_t half)
{
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)rows - (int)half * HALF_ROWS), lane);
}

#endif
