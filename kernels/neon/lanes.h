/* lanes.h: small pieces of NEON that the INT8 products share. A lane is a row of a panel. */
#ifndef VTI_KERNELS_NEON_LANES_H
#define VTI_KERNELS_NEON_LANES_H

#include <arm_neon.h>
#include <string.h>

#include "../layout.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { VECTORS = VTI_PANEL_ROWS / 4 };

#define EACH_VECTOR(v) for (size_t v = 0; v < VECTORS; v++)

/* An accumulator that starts at the bits of 1.5 × 2^23 holds, whatever integer below 2^22 is added,
 * the bits of 1.5 × 2^23 + that integer: a subtraction replaces the conversion to a float. */
enum { MAGIC = 0x4b400000 };
static const float magic = 12582912.0f;

static inline float32x4_t as_float(int32x4_t v) { return vreinterpretq_f32_s32(v); }

static inline float load_float(const unsigned char *at)
{
    float v;
    memcpy(&v, at, 4);
    return v;
}

static inline int32_t load_i32(const unsigned char *at)
{
    int32_t v;
    memcpy(&v, at, 4);
    return v;
}

static inline int8x16_t load_i8(const unsigned char *at)
{
    return vreinterpretq_s8_u8(vld1q_u8(at));
}

/* 16 F16 scales → floats. */
static inline void load_scales(float32x4_t d[VECTORS], const unsigned char *halves)
{
    float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(halves));
    float16x8_t high = vreinterpretq_f16_u8(vld1q_u8(halves + 16));
    d[0] = vcvt_f32_f16(vget_low_f16(low));
    d[1] = vcvt_high_f32_f16(low);
    d[2] = vcvt_f32_f16(vget_low_f16(high));
    d[3] = vcvt_high_f32_f16(high);
}

/* y[t * y_stride + r] of m tokens: what it holds, or zeros. */
ALWAYS_INLINE void load_sums(float32x4_t sums[][VECTORS], const float *y, size_t y_stride, size_t m,
                             bool accumulate)
{
    for (size_t t = 0; t < m; t++)
        for (size_t v = 0; v < VECTORS; v++)
            sums[t][v] = accumulate ? vld1q_f32(y + t * y_stride + 4 * v) : vdupq_n_f32(0);
}

ALWAYS_INLINE void store_sums(float32x4_t sums[][VECTORS], float *y, size_t y_stride, size_t m)
{
    for (size_t t = 0; t < m; t++)
        for (size_t v = 0; v < VECTORS; v++) vst1q_f32(y + t * y_stride + 4 * v, sums[t][v]);
}

/* 16 rows of a group of four. */
static inline void zero_rows(float *y, size_t y_stride)
{
    for (size_t t = 0; t < VTI_TOKEN_GROUP; t++)
        for (size_t v = 0; v < VECTORS; v++) vst1q_f32(y + t * y_stride + 4 * v, vdupq_n_f32(0));
}

#endif
