/* layout.h: the bytes of packed weights and of converted activations. docs/kernels.md draws them.
 *
 * Weights. A packed matrix is a sequence of panels of VTI_PANEL_ROWS rows; the last one is filled
 * up with zero rows. A panel takes as many bytes as its rows take in the file (but for a narrow
 * last K block, see docs), so every instruction set reads the same bytes.
 *
 * Activations. Tokens come in groups of VTI_TOKEN_GROUP; the last group has what is left, 1 to
 * VTI_TOKEN_GROUP. Group g starts at g × VTI_TOKEN_GROUP × bytes per token. */
#ifndef VTI_KERNELS_LAYOUT_H
#define VTI_KERNELS_LAYOUT_H

#include "kernels.h"

enum {
    VTI_PANEL_ROWS = 16,
    VTI_TOKEN_GROUP = 4,
    VTI_Q8_BLOCK = 32, /* columns of a Q8_0, Q4_0, Q5_0 block, and of a sub-block of the K types */
    VTI_K_BLOCK = 256, /* columns of a K block; a row's last one may be narrower, in steps of 32 */

    /* Panel blocks, for 16 rows. First always 16 × F16: the scales d. */
    VTI_SCALES_BYTES = 32,
    VTI_TILE_BYTES = 512,  /* 32 columns of INT8: [8 groups of 4 columns][16 rows][4] */
    VTI_NIBBLE_BYTES = 256, /* 32 columns of 4 bits: [8 groups][8 rows][4], row r + 8 on top */
    VTI_FIFTH_BYTES = 64, /* fifth bits of 32 columns: [16 rows][4], bit g is group g's */
    VTI_Q8_0_BYTES = VTI_SCALES_BYTES + VTI_TILE_BYTES,
    VTI_Q4_0_BYTES = VTI_SCALES_BYTES + VTI_NIBBLE_BYTES,
    VTI_Q5_0_BYTES = VTI_SCALES_BYTES + VTI_FIFTH_BYTES + VTI_NIBBLE_BYTES,
    /* Q4_K, Q5_K: d, dmin, then 192 bytes of 6-bit scales and mins, then the sub-blocks. */
    VTI_Q45_K_MINS = 32,
    VTI_Q45_K_SCALES = 64, /* [2][16 rows][4 sub-blocks]: scale, above it the min's high 2 bits */
    VTI_Q45_K_MIN_LOWS = 192, /* [16 rows][4]: the mins' low 4 bits, the second half on top */
    VTI_Q45_K_HEAD = 256,
    VTI_Q4_K_SUB = VTI_NIBBLE_BYTES,
    VTI_Q5_K_SUB = VTI_FIFTH_BYTES + VTI_NIBBLE_BYTES,
    /* Q6_K: d, then [16 sub-blocks of 16 columns][16 rows] INT8 scales, then the sub-blocks: */
    VTI_Q6_K_SCALES = 32,
    VTI_Q6_K_HEAD = 288,
    VTI_Q6_K_SUB = 64 + 128, /* [16 rows][4]: bits 2g, 2g + 1 are bits 4, 5 of group g of 4 */

    VTI_ACT_F16_BLOCK = 1024, /* columns of F16 activations with one scale */
    VTI_ACT_Q8_BYTES = 40,  /* a token's block: F32 scale, I32 -128 × sum, 32 × I8 */
    VTI_ACT_Q8K_HEAD = 84,  /* a token's block: F32 scale, 8 × I16 sum of 32,
                             * 16 × I32 -32 × sum of 16, then the INT8 */
    VTI_ACT_Q8K_SUMS = 4,   /* offsets, to be multiplied by the tokens of the group */
    VTI_ACT_Q8K_BIAS = 20,
};

static inline size_t vti_panel_count(size_t rows)
{
    return (rows + VTI_PANEL_ROWS - 1) / VTI_PANEL_ROWS;
}

/* Tokens in the group that starts at token `first`. */
static inline size_t vti_group_tokens(size_t first, size_t tokens)
{
    return tokens - first < VTI_TOKEN_GROUP ? tokens - first : VTI_TOKEN_GROUP;
}

/* Rows of the panel that starts at `row`, cut off at `row_end`. */
static inline size_t vti_panel_rows(size_t row, size_t row_end)
{
    return row_end - row < VTI_PANEL_ROWS ? row_end - row : VTI_PANEL_ROWS;
}

/* Columns of the K block that starts at column `c`. */
static inline size_t vti_k_columns(size_t c, size_t cols)
{
    return cols - c < VTI_K_BLOCK ? cols - c : VTI_K_BLOCK;
}

static inline size_t vti_k_blocks(size_t cols) { return (cols + VTI_K_BLOCK - 1) / VTI_K_BLOCK; }

/* Bytes of one token of `cols` converted activations. */
static inline size_t vti_act_q8_bytes(size_t cols)
{
    return cols / VTI_Q8_BLOCK * VTI_ACT_Q8_BYTES;
}

static inline size_t vti_act_q8k_bytes(size_t cols)
{
    return vti_k_blocks(cols) * VTI_ACT_Q8K_HEAD + cols;
}

static inline size_t vti_act_f16_bytes(size_t cols)
{
    return (cols + VTI_ACT_F16_BLOCK - 1) / VTI_ACT_F16_BLOCK * 4 + cols * 2;
}

/* Bytes of a panel of `cols` columns. */
static inline size_t vti_panel_bytes_q8_0(size_t cols)
{
    return cols / VTI_Q8_BLOCK * VTI_Q8_0_BYTES;
}

static inline size_t vti_panel_bytes_q4_0(size_t cols)
{
    return cols / VTI_Q8_BLOCK * VTI_Q4_0_BYTES;
}

static inline size_t vti_panel_bytes_q5_0(size_t cols)
{
    return cols / VTI_Q8_BLOCK * VTI_Q5_0_BYTES;
}

static inline size_t vti_panel_bytes_q4_k(size_t cols)
{
    return vti_k_blocks(cols) * VTI_Q45_K_HEAD + cols / VTI_Q8_BLOCK * VTI_Q4_K_SUB;
}

static inline size_t vti_panel_bytes_q5_k(size_t cols)
{
    return vti_k_blocks(cols) * VTI_Q45_K_HEAD + cols / VTI_Q8_BLOCK * VTI_Q5_K_SUB;
}

static inline size_t vti_panel_bytes_q6_k(size_t cols)
{
    return vti_k_blocks(cols) * VTI_Q6_K_HEAD + cols / 16 * VTI_Q6_K_SUB;
}

#endif
