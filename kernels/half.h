/* half.h: F16 and BF16 ↔ F32 with integer operations that compilers vectorise. */
#ifndef VTI_KERNELS_HALF_H
#define VTI_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* `a` where the mask is all ones, `b` where it is zero. Unlike ?: it never becomes a branch, which
 * would keep a loop from being vectorised. */
static inline uint32_t choose(uint32_t mask, uint32_t a, uint32_t b)
{
    return (a & mask) | (b & ~mask);
}

static inline uint32_t mask_below(uint32_t a, uint32_t limit)
{
    return (uint32_t)((int32_t)(a - limit) >> 31); /* both below 2^31 */
}

static inline float f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = half & 0x7fff;
    uint32_t normal = (magnitude << 13) + (112u << 23); /* exponent bias 15 → 127 */
    /* infinity, NaN: exponent 255 */
    normal += ~mask_below(magnitude, 0x7c00) & (112u << 23);
    /* A subnormal half is magnitude × 2^-24, which is the step of floats in [0.5, 1). */
    uint32_t subnormal = bits_of_float(float_from_bits(0x3f000000u | magnitude) - 0.5f);
    return float_from_bits(sign | choose(mask_below(magnitude, 0x0400), subnormal, normal));
}

/* Nearest, ties to even; overflow gives infinity; a NaN stays one, quiet, with its top payload. */
static inline uint16_t f16_from_f32(float value)
{
    uint32_t bits = bits_of_float(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
    /* Adding 0.5 drops the bits below 2^-24 with the processor's own rounding. */
    uint32_t subnormal = bits_of_float(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t odd = magnitude >> 13 & 1;
    uint32_t normal = (magnitude - (112u << 23) + 0xfff + odd) >> 13;
    uint32_t half = choose(mask_below(magnitude, 113u << 23), subnormal, normal);
    half = choose(mask_below(magnitude, 143u << 23), half, 0x7c00); /* 65536 and more */
    half = choose(mask_below(0x7f800000, magnitude), nan, half);
    return (uint16_t)(sign | half);
}

static inline float f32_from_bf16(uint16_t brain)
{
    return float_from_bits((uint32_t)brain << 16);
}

static inline uint16_t load_u16(const void *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

#endif
