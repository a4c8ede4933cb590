/* layout.h: the bytes of packed weights and of converted activations. docs/kernels.md draws them.
 *
 * Weights. A packed matrix is a sequence of panels of VTI_PANEL_ROWS rows; the last one is filled
 * up with zero rows. A panel takes as many bytes as its rows take in the file, so row r (a multiple
 * of VTI_PANEL_ROWS) starts at r × row bytes. Every instruction set reads the same bytes.
 *
 * Activations. Tokens come in groups of VTI_TOKEN_GROUP; the last group has what is left, 1 to
 * VTI_TOKEN_GROUP. Group g starts at g × VTI_TOKEN_GROUP × bytes per token. */
#ifndef VTI_KERNELS_LAYOUT_H
#define VTI_KERNELS_LAYOUT_H

#include "kernels.h"

enum {
    VTI_PANEL_ROWS = 16,
    VTI_TOKEN_GROUP = 4,
    VTI_Q8_BLOCK = 32,       /* columns that share a scale */
    VTI_Q8_BLOCK_BYTES = 40, /* VTI_ACT_Q8, per token: F32 scale, I32 sum, 32 × I8 */
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

#endif
