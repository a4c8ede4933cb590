/* matmul_float_kernels.h: float activations × F32, F16, BF16 weights, in terms of simd_*.h.
 *
 * A lane is a row: the 16 rows of a panel are one or two registers, an activation is broadcast to
 * them. Each accumulator adds the columns in order, in one token as in many, so that a token's
 * result does not depend on the others. */
#include "../layout.h"
#include "../scalar.h"

enum {
    VECTORS = VTI_PANEL_ROWS / LANES,
    TILE_GROUPS = REGISTERS == 32 ? 6 : 1, /* of 4 tokens: 24 or 2 × 4 accumulators */
    TILE_TOKENS = TILE_GROUPS * VTI_TOKEN_GROUP,
    COLUMNS = 512,    /* of a panel that stay in the first-level cache while tokens pass */
};

/* LANES elements → floats. */
typedef vf load_fn(const unsigned char *elements);

static inline vf load_f32(const unsigned char *elements)
{
    return vf_load((const float *)(const void *)elements);
}

static inline vf load_f16(const unsigned char *elements) { return vf_load_f16(elements); }

static inline vf load_bf16(const unsigned char *elements) { return vf_load_bf16(elements); }

/* `groups` groups of m tokens × one panel × `columns` columns, added to y unless `fresh`. Both
 * numbers are constants where this is inlined. */
static inline __attribute__((always_inline)) void
tile(float *y, size_t y_stride, size_t rows, const unsigned char *w, size_t element, load_fn *load,
     const float *x, size_t group_stride, size_t columns, bool fresh, size_t groups, size_t m)
{
    vf sums[TILE_TOKENS][VECTORS];
#pragma GCC unroll 24
    for (size_t t = 0; t < groups * m; t++)
#pragma GCC unroll 2
        for (size_t v = 0; v < VECTORS; v++)
            sums[t][v] = fresh ? vf_zero() : load_part(y + t * y_stride, rows, v);
    for (size_t c = 0; c < columns; c++, w += VTI_PANEL_ROWS * element) {
        vf column[VECTORS];
#pragma GCC unroll 2
        for (size_t v = 0; v < VECTORS; v++) column[v] = load(w + v * LANES * element);
#pragma GCC unroll 24
        for (size_t t = 0; t < groups * m; t++) {
            vf value = vf_set1(x[t / m * group_stride + c * m + t % m]);
#pragma GCC unroll 2
            for (size_t v = 0; v < VECTORS; v++) sums[t][v] = vf_fma(column[v], value, sums[t][v]);
        }
    }
#pragma GCC unroll 24
    for (size_t t = 0; t < groups * m; t++)
#pragma GCC unroll 2
        for (size_t v = 0; v < VECTORS; v++) store_part(y + t * y_stride, sums[t][v], rows, v);
}

/* All tokens × one panel × `columns` columns from `first` on. */
static inline __attribute__((always_inline)) void
panel_tokens(float *y, size_t y_stride, size_t rows, const unsigned char *w, size_t element,
             load_fn *load, const float *x, size_t cols, size_t first, size_t columns,
             size_t tokens, bool fresh)
{
    size_t stride = VTI_TOKEN_GROUP * cols;
/* Cases of more groups than TILE_GROUPS are never reached, and compiled as one of that size. */
#define TILE(groups, m)                                                                            \
    tile(y, y_stride, rows, w, element, load, x + first * (m), stride, columns, fresh,             \
         (groups) < TILE_GROUPS ? (groups) : TILE_GROUPS, m)
    while (tokens > 0) {
        size_t groups = tokens / VTI_TOKEN_GROUP, done;
        if (groups > TILE_GROUPS) groups = TILE_GROUPS;
        done = groups ? groups * VTI_TOKEN_GROUP : tokens;
        switch (groups ? groups : 10 + tokens) {
        case 1: TILE(1, 4); break;
        case 2: TILE(2, 4); break;
        case 3: TILE(3, 4); break;
        case 4: TILE(4, 4); break;
        case 5: TILE(5, 4); break;
        case 6: TILE(6, 4); break;
        case 11: TILE(1, 1); break;
        case 12: TILE(1, 2); break;
        default: TILE(1, 3); break;
        }
        y += done * y_stride;
        x += done * cols;
        tokens -= done;
    }
#undef TILE
}

/* One token × one panel. */
static inline __attribute__((always_inline)) void
single(float *y, const unsigned char *w, size_t element, load_fn *load, const float *x,
       size_t cols, size_t rows, bool accumulate)
{
    vf sums[VECTORS];
    for (size_t v = 0; v < VECTORS; v++) sums[v] = accumulate ? load_part(y, rows, v) : vf_zero();
    for (size_t c = 0; c < cols; c++, w += VTI_PANEL_ROWS * element) {
        vf value = vf_set1(x[c]);
#pragma GCC unroll 2
        for (size_t v = 0; v < VECTORS; v++)
            sums[v] = vf_fma(load(w + v * LANES * element), value, sums[v]);
    }
    for (size_t v = 0; v < VECTORS; v++) store_part(y, sums[v], rows, v);
}

static inline __attribute__((always_inline)) void
matmul(float *y, size_t y_stride, const unsigned char *w, size_t element, load_fn *load,
       const float *x, size_t cols, size_t row_begin, size_t row_end, size_t tokens,
       bool accumulate)
{
    if (tokens == 1) {
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS)
            single(y + row, w + row * cols * element, element, load, x, cols,
                   vti_panel_rows(row, row_end), accumulate);
        return;
    }
    for (size_t c = 0; c < cols; c += COLUMNS) {
        size_t columns = cols - c < COLUMNS ? cols - c : COLUMNS;
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS)
            panel_tokens(y + row, y_stride, vti_panel_rows(row, row_end),
                         w + (row * cols + c * VTI_PANEL_ROWS) * element, element, load, x, cols,
                         c, columns, tokens, c == 0 && !accumulate);
    }
}

#define MATMUL(type, element)                                                                      \
    static void matmul_##type(float *y, size_t y_stride, const void *w, const void *x,             \
                              size_t rows, size_t cols, size_t row_begin, size_t row_end,          \
                              size_t tokens, bool accumulate)                                      \
    {                                                                                              \
        (void)rows;                                                                                \
        matmul(y, y_stride, w, element, load_##type, x, cols, row_begin, row_end, tokens,          \
               accumulate);                                                                        \
    }

MATMUL(f32, 4)
MATMUL(f16, 2)
MATMUL(bf16, 2)

static inline void init_matmul_float(vti_kernels *kernels, const char *f32, const char *f16,
                                     const char *bf16)
{
    vti_matmul_set(kernels, VTI_F32, matmul_f32, f32);
    vti_matmul_set(kernels, VTI_F16, matmul_f16, f16);
    vti_matmul_set(kernels, VTI_BF16, matmul_bf16, bf16);
}
