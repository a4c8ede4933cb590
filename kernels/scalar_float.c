/* Float activations × F32, F16, BF16 weights. */
#include <string.h>

#include "half.h"
#include "layout.h"
#include "scalar.h"

/* Group of m tokens: [column][m] floats. */
static size_t act_bytes_f32(size_t tokens, size_t cols) { return tokens * cols * sizeof(float); }

static void act_pack_f32(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    float *to = dst;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        size_t m = vti_group_tokens(first, tokens);
        for (size_t c = 0; c < cols; c++)
            for (size_t t = 0; t < m; t++) *to++ = x[(first + t) * x_stride + c];
    }
}

/* Columns of a panel that are converted before they are used. */
enum { CHUNK = 32 };

/* Panel elements → floats. */
typedef void load_fn(float *w, const unsigned char *from, size_t count);

static inline void load_f32(float *w, const unsigned char *from, size_t count)
{
    memcpy(w, from, count * sizeof *w);
}

static inline void load_f16(float *w, const unsigned char *from, size_t count)
{
    for (size_t i = 0; i < count; i++) w[i] = f32_from_f16(load_u16(from + 2 * i));
}

static inline void load_bf16(float *w, const unsigned char *from, size_t count)
{
    for (size_t i = 0; i < count; i++) w[i] = f32_from_bf16(load_u16(from + 2 * i));
}

/* sums[r] += w[column][r] * x[column * m], column by column. */
static inline void dot_token(float *sums, const float *w, const float *x, size_t m, size_t columns)
{
    for (size_t quarter = 0; quarter < VTI_PANEL_ROWS; quarter += 4) {
        float s0 = sums[quarter], s1 = sums[quarter + 1];
        float s2 = sums[quarter + 2], s3 = sums[quarter + 3];
        for (size_t c = 0; c < columns; c++) {
            const float *at = w + c * VTI_PANEL_ROWS + quarter;
            s0 += at[0] * x[c * m];
            s1 += at[1] * x[c * m];
            s2 += at[2] * x[c * m];
            s3 += at[3] * x[c * m];
        }
        sums[quarter] = s0;
        sums[quarter + 1] = s1;
        sums[quarter + 2] = s2;
        sums[quarter + 3] = s3;
    }
}

/* sums[t][r] over all columns in order, for the m tokens of a group. */
static inline void dot_group(float sums[][VTI_PANEL_ROWS], const unsigned char *panel,
                             size_t element, load_fn *load, const float *x, size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += CHUNK) {
        float w[CHUNK * VTI_PANEL_ROWS];
        size_t columns = cols - c < CHUNK ? cols - c : CHUNK;
        load(w, panel + c * VTI_PANEL_ROWS * element, columns * VTI_PANEL_ROWS);
        for (size_t t = 0; t < m; t++) dot_token(sums[t], w, x + c * m + t, m, columns);
    }
}

static inline void matmul(float *y, size_t y_stride, const unsigned char *w, size_t element,
                          load_fn *load, const float *x, size_t cols, size_t row_begin,
                          size_t row_end, size_t tokens, bool accumulate)
{
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
        const unsigned char *panel = w + row * cols * element;
        size_t row_bytes = vti_panel_rows(row, row_end) * sizeof(float);
        for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
            float sums[VTI_TOKEN_GROUP][VTI_PANEL_ROWS] = {{0}};
            size_t m = vti_group_tokens(first, tokens);
            float *out = y + first * y_stride + row;
            for (size_t t = 0; accumulate && t < m; t++)
                memcpy(sums[t], out + t * y_stride, row_bytes);
            dot_group(sums, panel, element, load, x + first * cols, cols, m);
            for (size_t t = 0; t < m; t++) memcpy(out + t * y_stride, sums[t], row_bytes);
        }
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

void vti_kernels_init_scalar_float(vti_kernels *kernels)
{
    kernels->act[VTI_ACT_F32] = (vti_act_kernel){act_bytes_f32, act_pack_f32};
    vti_matmul_set(kernels, VTI_F32, matmul_f32, "matmul_f32_f32_16x4_scalar");
    vti_matmul_set(kernels, VTI_F16, matmul_f16, "matmul_f16_f32_16x4_scalar");
    vti_matmul_set(kernels, VTI_BF16, matmul_bf16, "matmul_bf16_f32_16x4_scalar");
}
