/* block.h: what packing needs to know of a quantised type. Not for kernels. */
#ifndef VTI_KERNELS_BLOCK_H
#define VTI_KERNELS_BLOCK_H

#include "layout.h"

/* `source` is one block of a row as in the file, `block` the panel's block for 16 rows; `columns`
 * is the block's width. place() finds `block` zeroed where row `r` has nothing yet. */
typedef struct vti_block_type {
    size_t columns;
    size_t (*source_bytes)(size_t cols); /* of a row */
    size_t (*panel_bytes)(size_t cols);
    void (*place)(unsigned char *block, size_t r, const unsigned char *source, size_t columns);
    void (*take)(float *dst, const unsigned char *block, size_t r, size_t columns);
    void (*dequantize)(float *dst, const unsigned char *source, size_t columns);
} vti_block_type;

extern const vti_block_type vti_block_q8_0, vti_block_q4_0, vti_block_q5_0, vti_block_q4_k,
    vti_block_q5_k, vti_block_q6_k;

/* Byte of row r and column c (inside the block of 32) in an INT8 tile, and in a nibble tile. */
static inline size_t vti_tile_byte(size_t r, size_t c)
{
    return (c / 4 * VTI_PANEL_ROWS + r) * 4 + c % 4;
}

static inline size_t vti_nibble_byte(size_t r, size_t c)
{
    return (c / 4 * 8 + r % 8) * 4 + c % 4;
}

static inline void vti_nibble_place(unsigned char *tile, size_t r, size_t c, unsigned value)
{
    tile[vti_nibble_byte(r, c)] |= (unsigned char)(r < 8 ? value : value << 4);
}

static inline unsigned vti_nibble_take(const unsigned char *tile, size_t r, size_t c)
{
    unsigned byte = tile[vti_nibble_byte(r, c)];
    return r < 8 ? byte & 15 : byte >> 4;
}

/* The fifth bit of row r and column c (inside the block of 32). */
static inline void vti_fifth_place(unsigned char *fifths, size_t r, size_t c, unsigned bit)
{
    fifths[r * 4 + c % 4] |= (unsigned char)(bit << c / 4);
}

static inline unsigned vti_fifth_take(const unsigned char *fifths, size_t r, size_t c)
{
    return fifths[r * 4 + c % 4] >> c / 4 & 1;
}

/* The upper half of a signed nibble tile holds value - 8 in two's complement, so that the byte as
 * a signed number is 16 × (upper - 8) + lower. */
static inline unsigned vti_nibble_flip(size_t r) { return r < 8 ? 0 : 8; }

#endif
