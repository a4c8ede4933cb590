/* k_lanes.h: reading the panels of nibble types, for the products with SDOT and SMMLA. */
#ifndef VTI_KERNELS_NEON_K_LANES_H
#define VTI_KERNELS_NEON_K_LANES_H

#include "lanes.h"

/* A group of 4 columns of a nibble tile → bytes 0…15 of the 16 rows; `flip`: what the upper halves
 * are xored with, 8 in signed tiles. */
ALWAYS_INLINE void load_nibbles(uint8x16_t w[VECTORS], const unsigned char *at, uint8_t flip)
{
    for (size_t v = 0; v < 2; v++) {
        uint8x16_t bytes = vld1q_u8(at + 16 * v);
        w[v] = vandq_u8(bytes, vdupq_n_u8(15));
        w[v + 2] = vshrq_n_u8(flip ? veorq_u8(bytes, vdupq_n_u8((uint8_t)(flip << 4))) : bytes, 4);
    }
}

/* Bits [bit, bit + width) of every byte to bit 4 and up; `bit` is a constant. What else the byte
 * holds comes along. */
ALWAYS_INLINE uint8x16_t move_to_bit_4(uint8x16_t v, size_t bit)
{
    switch (bit) {
    case 0: return vshlq_n_u8(v, 4);
    case 1: return vshlq_n_u8(v, 3);
    case 2: return vshlq_n_u8(v, 2);
    case 3: return vshlq_n_u8(v, 1);
    case 5: return vshrq_n_u8(v, 1);
    case 6: return vshrq_n_u8(v, 2);
    case 7: return vshrq_n_u8(v, 3);
    default: return v;
    }
}

/* Puts the bits above the nibbles of group g: one of Q5_0 and Q5_K, two of Q6_K. */
ALWAYS_INLINE void add_bits(uint8x16_t w[VECTORS], const uint8x16_t high[VECTORS], size_t g,
                            size_t width)
{
    const uint8x16_t mask = vdupq_n_u8(width == 1 ? 0x10 : 0x30);
    for (size_t v = 0; v < VECTORS; v++)
        w[v] = vbslq_u8(mask, move_to_bit_4(high[v], g * width), w[v]);
}

ALWAYS_INLINE void load_vectors(uint8x16_t to[VECTORS], const unsigned char *at)
{
    for (size_t v = 0; v < VECTORS; v++) to[v] = vld1q_u8(at + 16 * v);
}

/* Byte i of every 32-bit lane, as an integer. */
ALWAYS_INLINE int32x4_t byte_of_lanes(uint8x16_t v, size_t i)
{
    uint32x4_t lanes = vreinterpretq_u32_u8(v);
    lanes = i == 0 ? lanes : vshlq_u32(lanes, vdupq_n_s32(-8 * (int)i));
    return vreinterpretq_s32_u32(vandq_u32(lanes, vdupq_n_u32(255)));
}

/* INT8 → integers, 16 rows. */
ALWAYS_INLINE void widen_i8(int32x4_t to[VECTORS], int8x16_t bytes)
{
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    to[0] = vmovl_s16(vget_low_s16(low));
    to[1] = vmovl_high_s16(low);
    to[2] = vmovl_s16(vget_low_s16(high));
    to[3] = vmovl_high_s16(high);
}

/* Of the 4 sub-blocks of a half: scales and mins, bytes [16 rows][4]. */
ALWAYS_INLINE void load_scales_6bit(uint8x16_t scales[VECTORS], int8x16_t mins[VECTORS],
                                    const unsigned char *block, size_t half)
{
    for (size_t v = 0; v < VECTORS; v++) {
        uint8x16_t bytes = vld1q_u8(block + VTI_Q45_K_SCALES + half * 64 + 16 * v);
        uint8x16_t lows = vld1q_u8(block + VTI_Q45_K_MIN_LOWS + 16 * v);
        uint8x16_t highs = vshrq_n_u8(bytes, 2); /* also bits that the lows replace */
        scales[v] = vandq_u8(bytes, vdupq_n_u8(63));
        highs = half == 0 ? vbslq_u8(vdupq_n_u8(15), lows, highs) : vsriq_n_u8(highs, lows, 4);
        mins[v] = vreinterpretq_s8_u8(highs);
    }
}

/* A token's eight sums of 32 activations → [8 high][8 low] bytes: sum = 128 × high + low. */
ALWAYS_INLINE int8x16_t split_sums(const unsigned char *sums)
{
    int16x8_t sum = vreinterpretq_s16_u8(vld1q_u8(sums));
    int16x8_t high = vrshrq_n_s16(sum, 7), low = vsubq_s16(sum, vshlq_n_s16(high, 7));
    return vcombine_s8(vmovn_s16(high), vmovn_s16(low));
}

#endif
