/* Float activations × F32, F16, BF16 weights, in floats. A lane is a row; every sum adds the
 * columns in order, whatever the number of tokens. */
#include "../scalar.h"
#include "lanes.h"
#include "neon.h"

enum { COLUMNS = 256 }; /* of a panel that are converted together for all tokens: 16 KiB */

/* One column of a panel → floats. */
typedef void load_fn(float32x4_t w[VECTORS], const unsigned char *column);

static inline void load_f32(float32x4_t w[VECTORS], const unsigned char *column)
{
    for (size_t v = 0; v < VECTORS; v++)
        w[v] = vreinterpretq_f32_u8(vld1q_u8(column + 16 * v));
}

static inline void load_f16(float32x4_t w[VECTORS], const unsigned char *column)
{
    load_scales(w, column);
}

static inline void load_bf16(float32x4_t w[VECTORS], const unsigned char *column)
{
    uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(column));
    uint16x8_t high = vreinterpretq_u16_u8(vld1q_u8(column + 16));
    w[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16));
    w[1] = vreinterpretq_f32_u32(vshll_high_n_u16(low, 16));
    w[2] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(high), 16));
    w[3] = vreinterpretq_f32_u32(vshll_high_n_u16(high, 16));
}

/* `columns` columns × a group of m tokens. y[t * y_stride + r], all 16 rows. */
ALWAYS_INLINE void add_columns(float *y, size_t y_stride, const unsigned char *w, size_t element,
                               load_fn *load, const float *x, size_t columns, size_t m,
                               bool accumulate)
{
    float32x4_t sums[VTI_TOKEN_GROUP][VECTORS];
    load_sums(sums, y, y_stride, m, accumulate);
    for (size_t c = 0; c < columns; c++, w += VTI_PANEL_ROWS * element, x += m) {
        float32x4_t column[VECTORS];
        load(column, w);
        for (size_t t = 0; t < m; t++)
            for (size_t v = 0; v < VECTORS; v++)
                sums[t][v] = vfmaq_n_f32(sums[t][v], column[v], x[t]);
    }
    store_sums(sums, y, y_stride, m);
}

/* The same for one token of F32. */
static void gemv_f32(float *sums, const unsigned char *w, const float *x, size_t columns)
{
    float32x4_t total[1][VECTORS], column[VECTORS];
    load_sums(total, sums, 0, 1, true);
#define COLUMN(i)                                                                                  \
    load_f32(column, w + (i)*VTI_PANEL_ROWS * sizeof(float));                                      \
    EACH_VECTOR(v) total[0][v] = vfmaq_laneq_f32(total[0][v], column[v], four, i)
    for (size_t c = 0; c < columns; c += 4, w += 4 * VTI_PANEL_ROWS * sizeof(float)) {
        float32x4_t four = vld1q_f32(x + c);
        COLUMN(0);
        COLUMN(1);
        COLUMN(2);
        COLUMN(3);
    }
#undef COLUMN
    store_sums(total, sums, 0, 1);
}

typedef struct format {
    size_t element; /* bytes */
    load_fn *load;
    /* Adds `columns` columns, a multiple of 4, to the 16 sums of one token. */
    void (*gemv)(float *sums, const unsigned char *w, const float *x, size_t columns);
    /* Converts columns. NULL: they are floats. */
    void (*floats)(float *to, const unsigned char *w, size_t columns);
} format;

ALWAYS_INLINE void one(float *y, const unsigned char *panel, const format *f, const float *x,
                       size_t cols, bool accumulate)
{
    size_t fours = cols / 4 * 4;
    if (!accumulate) memset(y, 0, VTI_PANEL_ROWS * sizeof *y);
    if (fours > 0) f->gemv(y, panel, x, fours);
    if (fours < cols)
        add_columns(y, 0, panel + fours * VTI_PANEL_ROWS * f->element, f->element, f->load,
                    x + fours, cols - fours, 1, true);
}

/* The last 1…3 tokens read the panel as it is. */
ALWAYS_INLINE void few(float *y, size_t y_stride, const unsigned char *panel, const format *f,
                       const float *x, size_t cols, size_t m, bool accumulate)
{
    if (m == 1)
        one(y, panel, f, x, cols, accumulate);
    else if (m == 2)
        add_columns(y, y_stride, panel, f->element, f->load, x, cols, 2, accumulate);
    else
        add_columns(y, y_stride, panel, f->element, f->load, x, cols, 3, accumulate);
}

/* All groups of four. */
ALWAYS_INLINE void groups_of_four(float *y, size_t y_stride, const unsigned char *panel,
                                  const format *f, const float *x, size_t cols, size_t groups,
                                  bool accumulate)
{
    float converted[COLUMNS][VTI_PANEL_ROWS];
    const unsigned char *w = panel;
    for (size_t c = 0; c < cols; c += COLUMNS, w += COLUMNS * VTI_PANEL_ROWS * f->element) {
        size_t n = cols - c < COLUMNS ? cols - c : COLUMNS;
        if (f->floats) f->floats(converted[0], w, n);
        const float *floats = f->floats ? converted[0] : (const void *)w;
        for (size_t g = 0; g < groups; g++) {
            float *out = y + 4 * g * y_stride;
            if (c == 0 && !accumulate) zero_rows(out, y_stride);
            vti_tile_f32_neon(out, y_stride * sizeof *y, floats, x + 4 * (g * cols + c), n);
        }
    }
}

/* One panel × all tokens, 16 rows. */
ALWAYS_INLINE void all_tokens(float *y, size_t y_stride, const unsigned char *panel,
                              const format *f, const float *x, size_t cols, size_t tokens,
                              bool accumulate)
{
    size_t groups = tokens / VTI_TOKEN_GROUP, done = groups * VTI_TOKEN_GROUP;
    if (groups > 0) groups_of_four(y, y_stride, panel, f, x, cols, groups, accumulate);
    if (tokens > done)
        few(y + done * y_stride, y_stride, panel, f, x + done * cols, cols, tokens - done,
            accumulate);
}

/* As all_tokens() for the fewer rows of a last panel, a group of tokens at a time. */
ALWAYS_INLINE void all_tokens_of(size_t rows, float *y, size_t y_stride, const unsigned char *panel,
                                 const format *f, const float *x, size_t cols, size_t tokens,
                                 bool accumulate)
{
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        float buffer[VTI_TOKEN_GROUP][VTI_PANEL_ROWS] = {{0}}, *out = y + first * y_stride;
        size_t m = vti_group_tokens(first, tokens);
        for (size_t t = 0; t < m; t++) memcpy(buffer[t], out + t * y_stride, rows * sizeof *y);
        all_tokens(buffer[0], VTI_PANEL_ROWS, panel, f, x + first * cols, cols, m, accumulate);
        for (size_t t = 0; t < m; t++) memcpy(out + t * y_stride, buffer[t], rows * sizeof *y);
    }
}

#define MATMUL(type, element, gemv, floats)                                                        \
    static void matmul_##type(float *y, size_t y_stride, const void *w, const void *x,             \
                              size_t rows, size_t cols, size_t row_begin, size_t row_end,          \
                              size_t tokens, bool accumulate)                                      \
    {                                                                                              \
        static const format f = {element, load_##type, gemv, floats};                              \
        (void)rows;                                                                                \
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {                       \
            const unsigned char *panel = (const unsigned char *)w + row * cols * (element);        \
            size_t n = vti_panel_rows(row, row_end);                                               \
            if (n == VTI_PANEL_ROWS)                                                               \
                all_tokens(y + row, y_stride, panel, &f, x, cols, tokens, accumulate);             \
            else                                                                                   \
                all_tokens_of(n, y + row, y_stride, panel, &f, x, cols, tokens, accumulate);       \
        }                                                                                          \
    }

MATMUL(f32, 4, gemv_f32, NULL)
MATMUL(f16, 2, vti_gemv_f16_neon, vti_floats_f16_neon)
MATMUL(bf16, 2, vti_gemv_bf16_neon, vti_floats_bf16_neon)

void vti_kernels_init_float_neon(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_F32, matmul_f32, "matmul_f32_f32_16x4_neon");
    vti_matmul_set(kernels, VTI_F16, matmul_f16, "matmul_f16_f32_16x4_neon");
    vti_matmul_set(kernels, VTI_BF16, matmul_bf16, "matmul_bf16_f32_16x4_neon");
}
