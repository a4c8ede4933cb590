/* Float activations × F32, F16, BF16 weights.
 *
 * A lane is a row: 16 rows of a panel are one register, an activation is broadcast to it. Each
 * accumulator adds the columns in order, in one token as in many, so that a token's result does
 * not depend on the others. */
#include <immintrin.h>

#include "../layout.h"
#include "../scalar.h"
#include "x86.h"

enum {
    TILE_GROUPS = 6,  /* 24 tokens: 24 accumulators */
    COLUMNS = 512,    /* of a panel that stay in the first-level cache while tokens pass */
    PREFETCH = 2048,  /* bytes ahead of a single token's reading */
};

/* One column of a panel → floats. */
typedef __m512 load_fn(const unsigned char *column);

static inline __m512 load_f32(const unsigned char *column) { return _mm512_loadu_ps(column); }

static inline __m512 load_f16(const unsigned char *column)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)column));
}

static inline __m512 load_bf16(const unsigned char *column)
{
    __m256i halves = _mm256_loadu_si256((const void *)column);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* `groups` groups of m tokens × one panel × `columns` columns, added to y unless `fresh`. Both
 * numbers are constants where this is inlined. */
static inline __attribute__((always_inline)) void
tile(float *y, size_t y_stride, __mmask16 rows, const unsigned char *w, size_t element,
     load_fn *load, const float *x, size_t group_stride, size_t columns, bool fresh, size_t groups,
     size_t m)
{
    __m512 sums[TILE_GROUPS * VTI_TOKEN_GROUP];
#pragma GCC unroll 24
    for (size_t t = 0; t < groups * m; t++)
        sums[t] = fresh ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(rows, y + t * y_stride);
    for (size_t c = 0; c < columns; c++) {
        __m512 column = load(w + c * VTI_PANEL_ROWS * element);
#pragma GCC unroll 24
        for (size_t t = 0; t < groups * m; t++) {
            __m512 value = _mm512_set1_ps(x[t / m * group_stride + c * m + t % m]);
            sums[t] = _mm512_fmadd_ps(column, value, sums[t]);
        }
    }
#pragma GCC unroll 24
    for (size_t t = 0; t < groups * m; t++)
        _mm512_mask_storeu_ps(y + t * y_stride, rows, sums[t]);
}

/* All tokens × one panel × `columns` columns. x: column `first` of the first group. */
static inline __attribute__((always_inline)) void
panel_tokens(float *y, size_t y_stride, __mmask16 rows, const unsigned char *w, size_t element,
             load_fn *load, const float *x, size_t cols, size_t first, size_t columns,
             size_t tokens, bool fresh)
{
    size_t stride = VTI_TOKEN_GROUP * cols;
#define TILE(groups, m)                                                                            \
    tile(y, y_stride, rows, w, element, load, x + first * (m), stride, columns, fresh, groups, m)
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
single(float *y, const unsigned char *column, size_t element, load_fn *load, const float *x,
       size_t cols, __mmask16 rows, bool accumulate)
{
    __m512 sum = accumulate ? _mm512_maskz_loadu_ps(rows, y) : _mm512_setzero_ps();
    for (size_t c = 0; c < cols; c++, column += VTI_PANEL_ROWS * element) {
        _mm_prefetch((const char *)column + PREFETCH, _MM_HINT_T0);
        sum = _mm512_fmadd_ps(load(column), _mm512_set1_ps(x[c]), sum);
    }
    _mm512_mask_storeu_ps(y, rows, sum);
}

static __mmask16 row_mask(size_t row, size_t row_end)
{
    return (__mmask16)(0xffff >> (VTI_PANEL_ROWS - vti_panel_rows(row, row_end)));
}

static inline __attribute__((always_inline)) void
matmul(float *y, size_t y_stride, const unsigned char *w, size_t element, load_fn *load,
       const float *x, size_t cols, size_t row_begin, size_t row_end, size_t tokens,
       bool accumulate)
{
    if (tokens == 1) {
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS)
            single(y + row, w + row * cols * element, element, load, x, cols,
                   row_mask(row, row_end), accumulate);
        return;
    }
    for (size_t c = 0; c < cols; c += COLUMNS) {
        size_t columns = cols - c < COLUMNS ? cols - c : COLUMNS;
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS)
            panel_tokens(y + row, y_stride, row_mask(row, row_end),
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

void vti_kernels_init_matmul_float_avx512(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_F32, matmul_f32, "matmul_f32_f32_16x24_avx512");
    vti_matmul_set(kernels, VTI_F16, matmul_f16, "matmul_f16_f32_16x24_avx512");
    vti_matmul_set(kernels, VTI_BF16, matmul_bf16, "matmul_bf16_f32_16x24_avx512");
}
