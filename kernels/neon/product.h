/* product.h: how a product of INT8 activations is cut up. Groups of four tokens go through tiles
 * that read a panel unpacked to INT8, CHUNK columns at a time, which stay in the first-level cache
 * while all groups pass; the one to three tokens that are left, so a single one too, read the
 * panel as it is. */
#ifndef VTI_KERNELS_NEON_PRODUCT_H
#define VTI_KERNELS_NEON_PRODUCT_H

#include <string.h>

#include "../layout.h"
#include "../scalar.h"
#include "lanes.h"
#include "neon.h"

enum { CHUNK = 1024 }; /* columns; whole K blocks */

/* Columns [c, c + n) of a panel → the form the tiles read, for so many groups of tokens. */
typedef void unpack_fn(void *unpacked, const unsigned char *panel, size_t c, size_t n,
                       size_t groups);
/* An unpacked chunk of n columns × a group of four: 16 rows to y[t * y_stride + r], added to what
 * is there unless `fresh`. */
typedef void tile_fn(float *y, size_t y_stride, const void *unpacked, const unsigned char *x,
                     size_t n, bool fresh);

typedef struct product {
    size_t (*panel_bytes)(size_t cols);
    size_t (*token_bytes)(size_t cols); /* of converted activations; also up to a chunk's border */
    unpack_fn *unpack;
    tile_fn *tile;
    vti_few_fn *few;
} product;

/* `few` or `tile` writes 16 rows: through a buffer where the matrix has fewer. */
static inline void few_rows(const product *p, float *y, size_t y_stride, size_t rows,
                            const unsigned char *panel, const unsigned char *x, size_t cols,
                            size_t m, bool accumulate)
{
    float buffer[VTI_TOKEN_GROUP][VTI_PANEL_ROWS] = {{0}};
    for (size_t t = 0; t < m && accumulate; t++)
        memcpy(buffer[t], y + t * y_stride, rows * sizeof *y);
    p->few(buffer[0], VTI_PANEL_ROWS, panel, x, cols, m, accumulate);
    for (size_t t = 0; t < m; t++) memcpy(y + t * y_stride, buffer[t], rows * sizeof *y);
}

static inline void tile_rows(const product *p, float *y, size_t y_stride, size_t rows,
                             const void *unpacked, const unsigned char *x, size_t n, bool fresh)
{
    float buffer[VTI_TOKEN_GROUP][VTI_PANEL_ROWS] = {{0}};
    for (size_t t = 0; t < VTI_TOKEN_GROUP && !fresh; t++)
        memcpy(buffer[t], y + t * y_stride, rows * sizeof *y);
    p->tile(buffer[0], VTI_PANEL_ROWS, unpacked, x, n, fresh);
    for (size_t t = 0; t < VTI_TOKEN_GROUP; t++)
        memcpy(y + t * y_stride, buffer[t], rows * sizeof *y);
}

ALWAYS_INLINE void multiply_groups(const product *p, void *unpacked, float *y, size_t y_stride,
                                   size_t rows, const unsigned char *panel,
                                   const unsigned char *x, size_t cols, size_t groups,
                                   bool accumulate)
{
    size_t group_bytes = VTI_TOKEN_GROUP * p->token_bytes(cols);
    for (size_t c = 0; c < cols; c += CHUNK) {
        size_t n = cols - c < CHUNK ? cols - c : CHUNK;
        const unsigned char *group = x + VTI_TOKEN_GROUP * p->token_bytes(c);
        p->unpack(unpacked, panel, c, n, groups);
        for (size_t g = 0; g < groups; g++, group += group_bytes) {
            float *out = y + g * VTI_TOKEN_GROUP * y_stride;
            bool fresh = c == 0 && !accumulate;
            if (rows == VTI_PANEL_ROWS)
                p->tile(out, y_stride, unpacked, group, n, fresh);
            else
                tile_rows(p, out, y_stride, rows, unpacked, group, n, fresh);
        }
    }
}

/* The whole of a vti_matmul_fn; `unpacked` has room for a chunk. */
ALWAYS_INLINE void multiply(const product *p, void *unpacked, float *y, size_t y_stride,
                            const unsigned char *w, const unsigned char *x, size_t cols,
                            size_t row_begin, size_t row_end, size_t tokens, bool accumulate)
{
    size_t groups = tokens / VTI_TOKEN_GROUP, done = groups * VTI_TOKEN_GROUP, m = tokens - done;
    const unsigned char *last = x + done * p->token_bytes(cols);
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
        const unsigned char *panel = w + row / VTI_PANEL_ROWS * p->panel_bytes(cols);
        size_t rows = vti_panel_rows(row, row_end);
        float *out = y + done * y_stride + row;
        if (groups > 0)
            multiply_groups(p, unpacked, y + row, y_stride, rows, panel, x, cols, groups,
                            accumulate);
        if (m > 0 && rows == VTI_PANEL_ROWS)
            p->few(out, y_stride, panel, last, cols, m, accumulate);
        else if (m > 0)
            few_rows(p, out, y_stride, rows, panel, last, cols, m, accumulate);
    }
}

#endif
