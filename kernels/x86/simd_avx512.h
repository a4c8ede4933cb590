/* simd_avx512.h: vectors of 16 floats under the names that the *_kernels.h files use. */
#ifndef VTI_KERNELS_SIMD_H
#define VTI_KERNELS_SIMD_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16, REGISTERS = 32 };

typedef __m512 vf;

static inline __mmask16 first_lanes(size_t n) { return (__mmask16)((1u << n) - 1); }

static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_set1(float v) { return _mm512_set1_ps(v); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
/* n < LANES floats; the other lanes are 0. */
static inline vf vf_load_n(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
static inline void vf_store_n(float *p, vf v, size_t n)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), v);
}
/* The lanes from n on become `other`. */
static inline vf vf_keep_n(vf v, vf other, size_t n)
{
    return _mm512_mask_blend_ps(first_lanes(n), other, v);
}
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }   /* a b + c */
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a b */
/* b if a is NaN */
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline float vf_sum(vf v) { return _mm512_reduce_add_ps(v); }
static inline float vf_largest(vf v) { return _mm512_reduce_max_ps(v); }
/* Bit i: lanes i are equal. */
static inline uint32_t vf_equal(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }

/* Adds and swaps pairs: (a0 a1 …) → (a1 a0 …). */
static inline vf vf_swap_pairs(vf v) { return _mm512_permute_ps(v, 0xb1); }
static inline vf vf_even(vf v) { return _mm512_moveldup_ps(v); } /* (a0 a0 a2 a2 …) */
static inline vf vf_odd(vf v) { return _mm512_movehdup_ps(v); }  /* (a1 a1 a3 a3 …) */
/* a b - c in even lanes, a b + c in odd ones */
static inline vf vf_fmaddsub(vf a, vf b, vf c) { return _mm512_fmaddsub_ps(a, b, c); }
/* From 2 × LANES floats (a0 b0 a1 b1 …): all a, all b. */
static inline void vf_load_pairs(const float *p, vf *a, vf *b)
{
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2,
                                          0);
    vf low = vf_load(p), high = vf_load(p + 16);
    *a = _mm512_permutex2var_ps(low, even, high);
    *b = _mm512_permutex2var_ps(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high);
}

/* 2^n × v for n of any size, rounded once. */
static inline vf vf_scale2(vf v, vf n) { return _mm512_scalef_ps(v, n); }
static inline vf vf_round(vf v) { return _mm512_roundscale_ps(v, 0); }

static inline vf vf_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
static inline vf vf_load_f16_n(const void *p, size_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
static inline vf vf_load_bf16(const void *p)
{
    __m512i halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(halves, 16));
}
static inline vf vf_broadcast_f16(const void *p)
{
    uint16_t half;
    memcpy(&half, p, 2);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)half));
}
static inline void vf_store_f16(void *p, vf v)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(v, 0));
}
static inline void vf_store_f16_n(void *p, vf v, size_t n)
{
    _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(v, 0));
}
static inline vf vf_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}
static inline vf vf_load_i8_n(const void *p, size_t n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p)));
}

/* Largest |v| of the lanes as bits; NaN counts as larger than infinity. */
typedef __m512i vmagnitude;
static inline vmagnitude vmagnitude_zero(void) { return _mm512_setzero_si512(); }
static inline vmagnitude vmagnitude_max(vmagnitude m, vf v)
{
    __m512i bits = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
    return _mm512_max_epi32(m, bits);
}
static inline uint32_t vmagnitude_largest(vmagnitude m)
{
    return (uint32_t)_mm512_reduce_max_epi32(m);
}

/* The lanes' nearest integers, ties to even. */
typedef __m512i vint;
static inline vint vint_nearest(vf v) { return _mm512_cvtps_epi32(v); }
static inline vint vint_zero(void) { return _mm512_setzero_si512(); }
static inline vint vint_add(vint a, vint b) { return _mm512_add_epi32(a, b); }
static inline int32_t vint_sum(vint v) { return _mm512_reduce_add_epi32(v); }
static inline void vint_store_i8(void *p, vint v) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8(v)); }

/* rows[i] lane j ↔ rows[j] lane i. */
static inline void vf_transpose(vf r[16])
{
    __m512 a[16], b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) { /* pairs of lanes */
        a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) { /* fours: b[i + j] has column j of each 128 bits */
        b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) { /* 128-bit quarters */
        __m512 low = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88);
        __m512 high = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88);
        r[j] = _mm512_shuffle_f32x4(low, high, 0x88);
        r[8 + j] = _mm512_shuffle_f32x4(low, high, 0xdd);
        low = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xdd);
        high = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xdd);
        r[4 + j] = _mm512_shuffle_f32x4(low, high, 0x88);
        r[12 + j] = _mm512_shuffle_f32x4(low, high, 0xdd);
    }
}

#include "part.h"

#endif
