/* dotprod_lanes.h: sub-blocks of nibble types with SDOT. Only for files compiled for it. */
#ifndef VTI_KERNELS_NEON_DOTPROD_LANES_H
#define VTI_KERNELS_NEON_DOTPROD_LANES_H

#include "k_lanes.h"

/* Two groups of 4 columns: dots of 16 rows × m tokens. `q`: those activations, [m][8]. */
ALWAYS_INLINE void dot_columns8(int32x4_t dots[][VECTORS], const uint8x16_t w[2][VECTORS],
                                const unsigned char *q, size_t m)
{
    for (size_t t = 0; t < m; t++) {
        int8x8_t a = vreinterpret_s8_u8(vld1_u8(q + 8 * t));
        for (size_t v = 0; v < VECTORS; v++)
            dots[t][v] = vdotq_lane_s32(dots[t][v], vreinterpretq_s8_u8(w[0][v]), a, 0);
        for (size_t v = 0; v < VECTORS; v++)
            dots[t][v] = vdotq_lane_s32(dots[t][v], vreinterpretq_s8_u8(w[1][v]), a, 1);
    }
}

/* dots of one sub-block of `groups` groups. A nibble tile, signed or with `width` more bits in
 * front of it. */
ALWAYS_INLINE void dot_sub_block(int32x4_t dots[][VECTORS], const unsigned char *sub,
                                 const unsigned char *q, size_t m, size_t groups, size_t width)
{
    uint8x16_t high[VECTORS];
    if (width) load_vectors(high, sub);
    const unsigned char *nibbles = width ? sub + 64 : sub;
#pragma GCC unroll 4
    for (size_t g = 0; g < groups; g += 2, q += 8 * m) {
        uint8x16_t w[2][VECTORS];
        load_nibbles(w[0], nibbles + g * 32, width ? 0 : 8);
        load_nibbles(w[1], nibbles + g * 32 + 32, width ? 0 : 8);
        if (width) add_bits(w[0], high, g, width);
        if (width) add_bits(w[1], high, g + 1, width);
        dot_columns8(dots, w, q, m);
    }
}

ALWAYS_INLINE void set_dots(int32x4_t dots[][VECTORS], size_t m, int32_t value)
{
    for (size_t t = 0; t < m; t++)
        for (size_t v = 0; v < VECTORS; v++) dots[t][v] = vdupq_n_s32(value);
}

/* Two neighbouring groups of 4 columns, as dot_sub_block() reads them → INT8 tile of q - offset. */
ALWAYS_INLINE void unpack_columns8(int8_t *to, const unsigned char *nibbles,
                                   const uint8x16_t high[VECTORS], size_t g, size_t width,
                                   uint8_t offset)
{
    uint8x16_t w[2][VECTORS];
    for (size_t i = 0; i < 2; i++) {
        load_nibbles(w[i], nibbles + (g + i) * 32, width ? 0 : 8);
        if (width) add_bits(w[i], high, g + i, width);
        for (size_t v = 0; v < VECTORS; v++) {
            uint8x16_t q = offset ? vsubq_u8(w[i][v], vdupq_n_u8(offset)) : w[i][v];
            vst1q_s8(to + (g + i) * 64 + 16 * v, vreinterpretq_s8_u8(q));
        }
    }
}

ALWAYS_INLINE void unpack_sub_block(int8_t *to, const unsigned char *sub, size_t groups,
                                    size_t width, uint8_t offset)
{
    uint8x16_t high[VECTORS];
    if (width) load_vectors(high, sub);
    const unsigned char *nibbles = width ? sub + 64 : sub;
#pragma GCC unroll 4
    for (size_t g = 0; g < groups; g += 2)
        unpack_columns8(to, nibbles, high, g, width, offset);
}

#endif
