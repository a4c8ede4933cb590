/* exp_lanes.h: the exponential of four floats. */
#ifndef VTI_KERNELS_NEON_EXP_LANES_H
#define VTI_KERNELS_NEON_EXP_LANES_H

#include <arm_neon.h>
#include <math.h>

#define EACH_EXP(i) for (size_t i = 0; i < count; i++)

/* v[i] = e^v[i] of `count` (a constant) vectors: off by less than 2 units in the last place; 0 below
 * the normal numbers, infinity above, NaN stays. e^v = 2^n e^r with |r| <= ln 2 / 2; the polynomial
 * is the minimax one of (e^r - 1 - r) / r². Step by step for all vectors: in-order cores wait for a
 * result four cycles. */
static inline __attribute__((always_inline)) void exp_vectors(float32x4_t v[], size_t count)
{
    const float32x4_t round = vdupq_n_f32(12582912.0f); /* 1.5 × 2^23: the last bit is worth 1 */
    float32x4_t shifted[4], n[4], r[4], p[4];
    EACH_EXP(i) shifted[i] = vfmaq_n_f32(round, v[i], 1.44269504f);
    EACH_EXP(i) n[i] = vsubq_f32(shifted[i], round);
    EACH_EXP(i) r[i] = vfmsq_n_f32(v[i], n[i], 0.693359375f); /* ln 2 in two parts, one exact */
    EACH_EXP(i) r[i] = vfmsq_n_f32(r[i], n[i], -2.12194440e-4f);
    EACH_EXP(i) p[i] = vfmaq_n_f32(vdupq_n_f32(8.36872403e-3f), r[i], 1.38145836e-3f);
    EACH_EXP(i) p[i] = vfmaq_f32(vdupq_n_f32(4.16683890e-2f), p[i], r[i]);
    EACH_EXP(i) p[i] = vfmaq_f32(vdupq_n_f32(1.66665211e-1f), p[i], r[i]);
    EACH_EXP(i) p[i] = vfmaq_f32(vdupq_n_f32(0.499999940f), p[i], r[i]);
    EACH_EXP(i) n[i] = vmulq_f32(r[i], r[i]);
    EACH_EXP(i) r[i] = vaddq_f32(r[i], vdupq_n_f32(1.0f));
    EACH_EXP(i) p[i] = vfmaq_f32(r[i], n[i], p[i]);
    EACH_EXP(i) {
        /* n into the exponent: the low bits of `shifted` are n. */
        int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(shifted[i]), 23);
        int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(p[i]), exponent);
        uint32x4_t vanishes = vcltq_f32(v[i], vdupq_n_f32(-87.33f));
        uint32x4_t overflows = vcgtq_f32(v[i], vdupq_n_f32(88.72f));
        uint32x4_t result = vbicq_u32(vreinterpretq_u32_s32(bits), vanishes);
        v[i] = vbslq_f32(overflows, vdupq_n_f32(INFINITY), vreinterpretq_f32_u32(result));
    }
}

static inline float32x4_t exp_f32(float32x4_t v)
{
    exp_vectors(&v, 1);
    return v;
}

#endif
