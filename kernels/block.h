/* block.h: what packing needs to know of a quantised type. Not for kernels. */
#ifndef VTI_KERNELS_BLOCK_H
#define VTI_KERNELS_BLOCK_H

#include <string.h>

#include "layout.h"

enum {
    VTI_MOST_COLUMNS = VTI_K_BLOCK, /* of a block */
    VTI_MOST_SUBS = 16,             /* parts of a block with their own scale */
};

/* Weight = scale × (q - offset) - min, with scale and min of the column's sub-block. */
typedef struct vti_row_scales {
    float scale[VTI_MOST_SUBS], min[VTI_MOST_SUBS];
} vti_row_scales;

/* `source` is one block of a row as in the file, `block` the panel's block for 16 rows. `columns`
 * is the block's width, which may be less than the type's for the last one of K types. */
typedef struct vti_block_type {
    size_t columns;
    size_t sub_columns;
    int offset;
    bool is_signed; /* q is INT8, else unsigned */
    size_t (*source_bytes)(size_t cols); /* of a row */
    size_t (*panel_bytes)(size_t cols);
    /* The file's integers. Writes whole pairs of sub-blocks, at most VTI_MOST_COLUMNS. */
    void (*decode)(uint8_t *q, const unsigned char *source, size_t columns);
    void (*source_scales)(vti_row_scales *to, const unsigned char *source, size_t columns);
    /* Scales of row r into a block that was zeroed. */
    void (*place_scales)(unsigned char *block, size_t r, const unsigned char *source,
                         size_t columns);
    /* Integers of the rows r and r + 8, r < 8. */
    void (*place)(unsigned char *block, size_t r, const uint8_t *low, const uint8_t *high,
                  size_t columns);
    /* And back. */
    void (*take)(uint8_t *q, const unsigned char *block, size_t r, size_t columns);
    void (*panel_scales)(vti_row_scales *to, const unsigned char *block, size_t r, size_t columns);
} vti_block_type;

extern const vti_block_type vti_block_q8_0, vti_block_q4_0, vti_block_q5_0, vti_block_q4_k,
    vti_block_q5_k, vti_block_q6_k;

/* --- tiles: `groups` groups of 4 columns ------------------------------------------------------ */

static inline uint32_t vti_load_u32(const void *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static inline void vti_store_u32(void *at, uint32_t word) { memcpy(at, &word, sizeof word); }

/* Nibble tile: row r in the lower, row r + 8 in the upper halves. The upper nibbles are xored with
 * `flip`: 8 makes them q - 8 in two's complement, so that the byte as a signed number is
 * 16 × (upper - 8) + lower. */
static inline void vti_nibbles_place(unsigned char *tile, size_t r, const uint8_t *low,
                                     const uint8_t *high, size_t groups, unsigned flip)
{
    for (size_t g = 0; g < groups; g++) {
        uint32_t lower = vti_load_u32(low + 4 * g) & 0x0f0f0f0fu;
        uint32_t upper = (vti_load_u32(high + 4 * g) & 0x0f0f0f0fu) ^ flip * 0x01010101u;
        vti_store_u32(tile + (g * 8 + r) * 4, lower | upper << 4);
    }
}

static inline void vti_nibbles_take(uint8_t *q, const unsigned char *tile, size_t r, size_t groups,
                                    unsigned flip)
{
    for (size_t g = 0; g < groups; g++) {
        uint32_t word = vti_load_u32(tile + (g * 8 + r % 8) * 4);
        word = r < 8 ? word : word >> 4 ^ flip * 0x01010101u;
        vti_store_u32(q + 4 * g, word & 0x0f0f0f0fu);
    }
}

/* The bits above the nibbles, `bits` of each of `groups` groups: [16 rows][4] bytes. */
static inline void vti_tops_place(unsigned char *tops, size_t r, const uint8_t *q, size_t groups,
                                  unsigned bits)
{
    uint32_t word = 0, mask = ((1u << bits) - 1) * 0x01010101u;
    for (size_t g = 0; g < groups; g++)
        word |= (vti_load_u32(q + 4 * g) >> 4 & mask) << g * bits;
    vti_store_u32(tops + 4 * r, word);
}

static inline void vti_tops_take(uint8_t *q, const unsigned char *tops, size_t r, size_t groups,
                                 unsigned bits)
{
    uint32_t word = vti_load_u32(tops + 4 * r), mask = ((1u << bits) - 1) * 0x01010101u;
    for (size_t g = 0; g < groups; g++)
        vti_store_u32(q + 4 * g, vti_load_u32(q + 4 * g) | (word >> g * bits & mask) << 4);
}

#endif
