/* i8mm_lanes.h: panels of nibble types → what SMMLA multiplies. Baseline instructions. */
#ifndef VTI_KERNELS_NEON_I8MM_LANES_H
#define VTI_KERNELS_NEON_I8MM_LANES_H

#include "k_lanes.h"

/* Two neighbouring groups of 4 columns → one of 8, of q - offset. */
ALWAYS_INLINE void unpack_columns8(int8_t to[VTI_PANEL_ROWS][8], const unsigned char *nibbles,
                                   const uint8x16_t high[VECTORS], size_t g, size_t width,
                                   uint8_t offset)
{
    uint8x16_t w[2][VECTORS];
    for (size_t i = 0; i < 2; i++) {
        load_nibbles(w[i], nibbles + (g + i) * 32, width ? 0 : 8);
        if (width) add_bits(w[i], high, g + i, width);
        if (offset) EACH_VECTOR(v) w[i][v] = vsubq_u8(w[i][v], vdupq_n_u8(offset));
    }
    for (size_t v = 0; v < VECTORS; v++) {
        uint32x4_t first = vreinterpretq_u32_u8(w[0][v]), second = vreinterpretq_u32_u8(w[1][v]);
        vst1q_s8(to[4 * v], vreinterpretq_s8_u32(vzip1q_u32(first, second)));
        vst1q_s8(to[4 * v + 2], vreinterpretq_s8_u32(vzip2q_u32(first, second)));
    }
}

ALWAYS_INLINE void unpack_sub_block(int8_t to[][VTI_PANEL_ROWS][8], const unsigned char *sub,
                                    size_t groups, size_t width, uint8_t offset)
{
    uint8x16_t high[VECTORS];
    if (width) load_vectors(high, sub);
    const unsigned char *nibbles = width ? sub + 64 : sub;
#pragma GCC unroll 4
    for (size_t g = 0; g < groups; g += 2)
        unpack_columns8(to[g / 2], nibbles, high, g, width, offset);
}

#endif
