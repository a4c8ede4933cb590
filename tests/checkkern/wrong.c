#include "wrong.h"

#include <string.h>

/* The right versions, which the wrong ones are made of. */
static vti_kernels right;

/* --- matmul ----------------------------------------------------------------------------------- */

/* Leaves out the last column if their number is odd: a forgotten tail. */
static void matmul_without_tail(float *y, size_t y_stride, const void *w, const void *x,
                                size_t rows, size_t cols, size_t row_begin, size_t row_end,
                                size_t tokens, bool accumulate)
{
    right.matmul[VTI_F32].matmul(y, y_stride, w, x, rows, cols, row_begin, row_end, tokens,
                                 accumulate);
    if (cols % 2 == 0) return;
    for (size_t t = 0; t < tokens; t++) {
        size_t first = t / 4 * 4, m = tokens - first < 4 ? tokens - first : 4;
        float last = ((const float *)x)[first * cols + (cols - 1) * m + t - first];
        for (size_t row = row_begin; row < row_end; row++) {
            const float *panel = (const float *)w + row / 16 * 16 * cols;
            y[t * y_stride + row] -= panel[(cols - 1) * 16 + row % 16] * last;
        }
    }
}

static void spoil_tail(vti_kernels *kernels)
{
    kernels->matmul[VTI_F32].matmul = matmul_without_tail;
}

/* Writes whole panels, also where the last one has fewer rows. */
static void matmul_whole_panels(float *y, size_t y_stride, const void *w, const void *x,
                                size_t rows, size_t cols, size_t row_begin, size_t row_end,
                                size_t tokens, bool accumulate)
{
    right.matmul[VTI_Q8_0].matmul(y, y_stride, w, x, rows, cols, row_begin, row_end, tokens,
                                  accumulate);
    if (row_end % 16 != 0) y[(tokens - 1) * y_stride + row_end] = 0;
}

static void spoil_panels(vti_kernels *kernels)
{
    kernels->matmul[VTI_Q8_0].matmul = matmul_whole_panels;
}

/* Reads one vector too many. */
static void matmul_reads_on(float *y, size_t y_stride, const void *w, const void *x, size_t rows,
                            size_t cols, size_t row_begin, size_t row_end, size_t tokens,
                            bool accumulate)
{
    const volatile unsigned char *end = (const unsigned char *)w;
    end += right.matmul[VTI_Q4_K].packed_bytes(rows, cols);
    for (size_t i = 0; i < 32; i++) (void)end[i];
    right.matmul[VTI_Q4_K].matmul(y, y_stride, w, x, rows, cols, row_begin, row_end, tokens,
                                  accumulate);
}

static void spoil_reads(vti_kernels *kernels)
{
    kernels->matmul[VTI_Q4_K].matmul = matmul_reads_on;
}

/* Adds up in half precision. */
static void matmul_in_halves(float *y, size_t y_stride, const void *w, const void *x, size_t rows,
                             size_t cols, size_t row_begin, size_t row_end, size_t tokens,
                             bool accumulate)
{
    right.matmul[VTI_F16].matmul(y, y_stride, w, x, rows, cols, row_begin, row_end, tokens,
                                 accumulate);
    for (size_t t = 0; t < tokens; t++) {
        for (size_t row = row_begin; row < row_end; row++) {
            uint16_t half;
            right.f16_from_f32(&half, y + t * y_stride + row, 1);
            right.f32_from_f16(y + t * y_stride + row, &half, 1);
        }
    }
}

static void spoil_precision(vti_kernels *kernels)
{
    kernels->matmul[VTI_F16].matmul = matmul_in_halves;
}

/* --- others ----------------------------------------------------------------------------------- */

/* Rounds towards zero. */
static void act_truncates(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    right.act[VTI_ACT_Q8].pack(dst, x, x_stride, tokens, cols);
    if (tokens == 0) return;
    unsigned char *q = (unsigned char *)dst + 8 * (tokens < 4 ? tokens : 4);
    for (size_t i = 0; i < 8; i++)
        if ((signed char)q[i] > 0 && (signed char)q[i] < 127) q[i]--;
}

static void spoil_rounding(vti_kernels *kernels) { kernels->act[VTI_ACT_Q8].pack = act_truncates; }

/* The last of equals. */
static size_t argmax_last(const float *x, size_t n)
{
    size_t best = right.argmax(x, n);
    for (size_t i = best + 1; i < n; i++)
        if (x[i] == x[best]) best = i;
    return best;
}

static void spoil_argmax(vti_kernels *kernels) { kernels->argmax = argmax_last; }

/* Sees one row too many: the future. */
static void attention_not_causal(const vti_attention_args *args)
{
    vti_attention_args future = *args;
    future.position++;
    right.kv[VTI_KV_F32].attention(&future);
}

static void spoil_attention(vti_kernels *kernels)
{
    kernels->kv[VTI_KV_F32].attention = attention_not_causal;
}

/* Writes to its input. */
static void add_scratches(float *y, const float *x, size_t n)
{
    right.add(y, x, n);
    if (n > 3) ((float *)x)[3] = 0;
}

static void spoil_add(vti_kernels *kernels) { kernels->add = add_scratches; }

/* Every spoiler needs the right table first. */
#define SPOIL(name)                                                                                \
    static void spoil_##name##_of_right(vti_kernels *kernels)                                      \
    {                                                                                              \
        right = *kernels;                                                                          \
        spoil_##name(kernels);                                                                     \
    }

SPOIL(tail)
SPOIL(panels)
SPOIL(reads)
SPOIL(precision)
SPOIL(rounding)
SPOIL(argmax)
SPOIL(attention)
SPOIL(add)

const ck_wrong ck_wrongs[] = {
    {"wrong:forgotten tail", ck_check_matmul, VTI_F32, spoil_tail_of_right, ""},
    /* Between two tokens a margin notices, at the end of the buffer the guard page may. */
    {"wrong:writes whole panels", ck_check_matmul, VTI_Q8_0, spoil_panels_of_right, ""},
    {"wrong:reads on", ck_check_matmul, VTI_Q4_K, spoil_reads_of_right, "crash"},
    {"wrong:half precision", ck_check_matmul, VTI_F16, spoil_precision_of_right, ""},
    {"wrong:rounds down", ck_check_act, VTI_ACT_Q8, spoil_rounding_of_right, "integer"},
    {"wrong:last of equals", ck_check_argmax, 0, spoil_argmax_of_right, "should be"},
    {"wrong:not causal", ck_check_attention, VTI_KV_F32, spoil_attention_of_right, "should be"},
    /* Between two tokens a margin notices, at the end of the buffer the guard page may. */
    {"wrong:writes to its input", ck_check_add, 0, spoil_add_of_right, "crash"},
};
const size_t ck_wrong_count = sizeof ck_wrongs / sizeof *ck_wrongs;
