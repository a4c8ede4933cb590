/* exp_lanes.h: the exponential of four floats. */
#ifndef VTI_KERNELS_NEON_EXP_LANES_H
#define VTI_KERNELS_NEON_EXP_LANES_H

#include <arm_neon.h>
#include <math.h>

/* e^v, off by less than 2 units in the last place; 0 below the normal numbers, infinity above, NaN
 * stays. e^v = 2^n e^r with |r| <= ln 2 / 2; the polynomial is the minimax one of
 * (e^r - 1 - r) / r². */
static inline float32x4_t exp_f32(float32x4_t v)
{
    const float round = 12582912.0f; /* 1.5 × 2^23: the sum's last bit is worth 1 */
    uint32x4_t vanishes = vcltq_f32(v, vdupq_n_f32(-87.33f));
    uint32x4_t overflows = vcgtq_f32(v, vdupq_n_f32(88.72f));
    float32x4_t shifted = vfmaq_n_f32(vdupq_n_f32(round), v, 1.44269504f);
    float32x4_t n = vsubq_f32(shifted, vdupq_n_f32(round));
    float32x4_t r = vfmsq_n_f32(v, n, 0.693359375f); /* ln 2 in two parts, the first exact */
    r = vfmsq_n_f32(r, n, -2.12194440e-4f);
    float32x4_t p = vfmaq_n_f32(vdupq_n_f32(8.36872403e-3f), r, 1.38145836e-3f);
    p = vfmaq_f32(vdupq_n_f32(4.16683890e-2f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.66665211e-1f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.499999940f), p, r);
    p = vfmaq_f32(vaddq_f32(r, vdupq_n_f32(1.0f)), vmulq_f32(r, r), p);
    /* n into the exponent: the low bits of `shifted` are n. */
    int32x4_t exponent = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
    int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(p), exponent);
    uint32x4_t result = vbicq_u32(vreinterpretq_u32_s32(bits), vanishes);
    return vbslq_f32(overflows, vdupq_n_f32(INFINITY), vreinterpretq_f32_u32(result));
}

#endif
