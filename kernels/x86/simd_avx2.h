/* simd_avx2.h: vectors of 8 floats under the names that the *_kernels.h files use; with FMA and
 * F16C. simd_avx512.h says what each does. */
#ifndef VTI_KERNELS_SIMD_H
#define VTI_KERNELS_SIMD_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8, REGISTERS = 16 };

typedef __m256 vf;

static inline __m256i first_lanes(size_t n)
{
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

static inline vf vf_zero(void) { return _mm256_setzero_ps(); }
static inline vf vf_set1(float v) { return _mm256_set1_ps(v); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
static inline vf vf_load_n(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}
static inline void vf_store_n(float *p, vf v, size_t n)
{
    _mm256_maskstore_ps(p, first_lanes(n), v);
}
static inline vf vf_keep_n(vf v, vf other, size_t n)
{
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(first_lanes(n)));
}
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline float vf_sum(vf v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float vf_largest(vf v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
static inline uint32_t vf_equal(vf a, vf b)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}

static inline vf vf_swap_pairs(vf v) { return _mm256_permute_ps(v, 0xb1); }
static inline vf vf_even(vf v) { return _mm256_moveldup_ps(v); }
static inline vf vf_odd(vf v) { return _mm256_movehdup_ps(v); }
static inline vf vf_fmaddsub(vf a, vf b, vf c) { return _mm256_fmaddsub_ps(a, b, c); }
static inline void vf_load_pairs(const float *p, vf *a, vf *b)
{
    vf low = vf_load(p), high = vf_load(p + 8);
    __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
    __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
    *a = _mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8));
    *b = _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8));
}

/* n is cut off where the result is 0 or infinite anyway; two steps reach the subnormals. */
static inline vf vf_scale2(vf v, vf n)
{
    n = _mm256_min_ps(_mm256_max_ps(n, _mm256_set1_ps(-250)), _mm256_set1_ps(250));
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    __m256i rest = _mm256_sub_epi32(whole, half), bias = _mm256_set1_epi32(127);
    v = vf_mul(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return vf_mul(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}
static inline vf vf_round(vf v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT); }

static inline vf vf_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
static inline vf vf_load_f16_n(const void *p, size_t n)
{
    uint16_t halves[8] = {0};
    memcpy(halves, p, 2 * n);
    return vf_load_f16(halves);
}
static inline vf vf_load_bf16(const void *p)
{
    __m256i halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(halves, 16));
}
static inline vf vf_broadcast_f16(const void *p)
{
    uint16_t half;
    memcpy(&half, p, 2);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}
static inline void vf_store_f16(void *p, vf v) { _mm_storeu_si128(p, _mm256_cvtps_ph(v, 0)); }
static inline void vf_store_f16_n(void *p, vf v, size_t n)
{
    uint16_t halves[8];
    vf_store_f16(halves, v);
    memcpy(p, halves, 2 * n);
}
static inline vf vf_load_i8(const void *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}
static inline vf vf_load_i8_n(const void *p, size_t n)
{
    int8_t bytes[8] = {0};
    memcpy(bytes, p, n);
    return vf_load_i8(bytes);
}

typedef __m256i vmagnitude;
static inline vmagnitude vmagnitude_zero(void) { return _mm256_setzero_si256(); }
static inline vmagnitude vmagnitude_max(vmagnitude m, vf v)
{
    __m256i bits = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
    return _mm256_max_epi32(m, bits);
}
static inline uint32_t vmagnitude_largest(vmagnitude m)
{
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(a);
}

typedef __m256i vint;
static inline vint vint_nearest(vf v) { return _mm256_cvtps_epi32(v); }
static inline vint vint_zero(void) { return _mm256_setzero_si256(); }
static inline vint vint_add(vint a, vint b) { return _mm256_add_epi32(a, b); }
static inline int32_t vint_sum(vint v)
{
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum);
}
static inline void vint_store_i8(void *p, vint v)
{
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64(p, _mm_packs_epi16(words, words));
}

static inline void vf_transpose(vf r[8])
{
    __m256 a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        r[j] = _mm256_permute2f128_ps(b[j], b[4 + j], 0x20);
        r[4 + j] = _mm256_permute2f128_ps(b[j], b[4 + j], 0x31);
    }
}

#include "part.h"

#endif
