/* Packing, converted activations and matrix products. */
#include <math.h>
#include <string.h>

#include "checkkern.h"

/* --- one product's operands ------------------------------------------------------------------- */

typedef struct operands {
    vti_weight_type type;
    const vti_matmul_kernel *kernel;
    size_t rows, cols, tokens, source_stride;
    unsigned char *source, *packed, *act;
    float *x;
    size_t x_stride;
    double *weights, *magnitudes; /* rows × cols */
    double *inputs;               /* tokens × cols, as the converted activations stand for */
} operands;

static unsigned char *pack_range(const operands *o, size_t row_begin, size_t row_end)
{
    unsigned char *packed = ck_buffer(o->kernel->packed_bytes(o->rows, o->cols));
    o->kernel->pack(packed, o->source, o->source_stride, o->rows, o->cols, row_begin, row_end);
    return packed;
}

static void make_weights(operands *o, bool extreme)
{
    size_t row_bytes = o->kernel->source_bytes(o->cols);
    o->source_stride = row_bytes + 2 * ck_random_below(3);
    o->source = ck_buffer((o->rows - 1) * o->source_stride + row_bytes);
    o->weights = ck_scratch(o->rows * o->cols * sizeof(double));
    o->magnitudes = ck_scratch(o->rows * o->cols * sizeof(double));
    for (size_t r = 0; r < o->rows; r++) {
        unsigned char *row = o->source + r * o->source_stride;
        ck_fill_source(o->type, row, o->cols, extreme);
        for (size_t c = 0; c < o->cols; c++) {
            ck_weight w = ck_source_weight(o->type, row, o->cols, c);
            o->weights[r * o->cols + c] = w.value;
            o->magnitudes[r * o->cols + c] = w.magnitude;
        }
    }
    ck_seal(o->source);
    o->packed = pack_range(o, 0, o->rows);
    ck_seal(o->packed);
}

/* Extreme: every integer of the converted activations is 127 or -127, with the sign of a weight's
 * row, so that integer sums grow as large as they can. */
static float input(const operands *o, size_t c, bool extreme)
{
    if (extreme) return o->weights[c] < 0 ? -1.0f : 1.0f;
    float value = ck_random_float(-1, 1);
    if (ck_random_below(64) == 0) value *= 50;
    return value;
}

static void make_inputs(operands *o, const vti_kernels *kernels, bool extreme)
{
    const vti_act_kernel *act = &kernels->act[o->kernel->act];
    o->x_stride = o->cols + ck_random_below(5);
    o->x = ck_buffer(((o->tokens - 1) * o->x_stride + o->cols) * sizeof(float));
    size_t zero_token = ck_random_below(2 * o->tokens);
    for (size_t t = 0; t < o->tokens; t++)
        for (size_t c = 0; c < o->cols; c++)
            o->x[t * o->x_stride + c] = t == zero_token ? 0 : input(o, c, extreme);
    ck_seal(o->x);
    o->act = ck_buffer(act->bytes(o->tokens, o->cols));
    act->pack(o->act, o->x, o->x_stride, o->tokens, o->cols);
    ck_seal(o->act);
    o->inputs = ck_scratch(o->tokens * o->cols * sizeof(double));
    for (size_t t = 0; t < o->tokens; t++)
        for (size_t c = 0; c < o->cols; c++)
            o->inputs[t * o->cols + c] =
                ck_act_value(o->kernel->act, o->act, o->tokens, o->cols, t, c);
}

/* --- shapes ----------------------------------------------------------------------------------- */

static size_t random_cols(const vti_matmul_kernel *kernel, size_t limit)
{
    size_t step = kernel->column_step;
    size_t cols = (1 + ck_random_below(limit / step)) * step;
    /* Whole blocks half of the time. */
    if (ck_random() >> 63 && cols > kernel->block) cols -= cols % kernel->block;
    return cols;
}

static operands random_operands(const vti_kernels *kernels, unsigned index, size_t step)
{
    static const size_t tokens[] = {1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 20, 24, 27, 34};
    operands o = {.type = (vti_weight_type)index, .kernel = &kernels->matmul[index]};
    bool extreme = step % 4 == 3;
    o.rows = 1 + ck_random_below(70);
    o.cols = random_cols(o.kernel, 600);
    o.tokens = tokens[ck_random_below(sizeof tokens / sizeof *tokens)];
    if (step % 8 == 6) { /* longer than any kernel's blocking */
        o.rows = 1 + ck_random_below(20);
        o.cols = 2048 + random_cols(o.kernel, step % 16 == 6 ? 2560 : 512);
        if (step % 16 == 6) o.tokens = 1 + ck_random_below(6);
    }
    make_weights(&o, extreme);
    make_inputs(&o, kernels, extreme);
    return o;
}

/* --- packing ---------------------------------------------------------------------------------- */

static void check_rows_are_kept(const operands *o)
{
    float *dequantized = ck_buffer(o->cols * sizeof(float));
    float *unpacked = ck_buffer(o->cols * sizeof(float));
    for (size_t r = 0; r < o->rows; r++) {
        o->kernel->dequantize(dequantized, o->source + r * o->source_stride, o->cols);
        o->kernel->unpack(unpacked, o->packed, o->cols, r);
        for (size_t c = 0; c < o->cols; c++) {
            size_t i = r * o->cols + c;
            ck_close("dequantized", r, c, (double)dequantized[c], o->weights[i],
                     4 * CK_UNIT * o->magnitudes[i]);
            ck_close("unpacked", r, c, (double)unpacked[c], (double)dequantized[c], 0);
        }
    }
}

static void check_parts_make_the_whole(const operands *o)
{
    size_t step = o->kernel->row_step, bytes = o->kernel->packed_bytes(o->rows, o->cols);
    size_t middle = ck_random_below(o->rows / step + 1) * step;
    unsigned char *upper = pack_range(o, 0, middle), *lower = pack_range(o, middle, o->rows);
    size_t border = o->kernel->packed_offset(middle, o->cols);
    if (border > bytes) ck_fail("packed_offset(%zu) is beyond packed_bytes", middle);
    if (memcmp(upper, o->packed, border) != 0)
        ck_fail("rows [0, %zu) packed alone differ", middle);
    if (memcmp(lower + border, o->packed + border, bytes - border) != 0)
        ck_fail("rows [%zu, %zu) packed alone differ", middle, o->rows);
}

void ck_check_pack(const vti_kernels *kernels, unsigned index)
{
    for (size_t step = 0; step < 8; step++) {
        operands o = random_operands(kernels, index, step);
        check_rows_are_kept(&o);
        check_parts_make_the_whole(&o);
        ck_check_margins();
        ck_free_all();
    }
}

/* --- products --------------------------------------------------------------------------------- */

/* Every float that no call may touch keeps this value. */
static const float untouched = -12345.0f;

typedef struct output {
    float *y;
    size_t stride;
} output;

static output make_output(const operands *o, size_t stride)
{
    output out = {ck_buffer(((o->tokens - 1) * stride + o->rows) * sizeof(float)), stride};
    for (size_t i = 0; i < (o->tokens - 1) * stride + o->rows; i++) out.y[i] = untouched;
    return out;
}

static void multiply(const operands *o, output out, size_t row_begin, size_t row_end,
                     bool accumulate)
{
    o->kernel->matmul(out.y, out.stride, o->packed, o->act, o->rows, o->cols, row_begin, row_end,
                      o->tokens, accumulate);
}

/* Roundings that a sum's terms may meet, in any order of additions: of float weights each product
 * is one term; a block's integers are exact, and it is converted, scaled and added (twice with
 * mins). */
static double roundings(const operands *o)
{
    size_t terms = o->cols / o->kernel->block;
    return o->kernel->block == 1 ? 4.0 + (double)terms : 6.0 + 3.0 * (double)terms;
}

static double largest_of_columns(const double *x, size_t begin, size_t end)
{
    double largest = 0;
    for (size_t c = begin; c < end; c++) largest = fmax(largest, fabs(x[c]));
    return largest;
}

/* What sums in halves add to the bound: a product may be rounded with every sum it is part of, to 11
 * bits or to steps of 2^-24 of the activations' scale, which is at most twice the largest of them. */
static double half_error(const operands *o, size_t t, double magnitude)
{
    size_t chain = o->kernel->half_chain;
    if (chain == 0) return 0;
    double steps = 0;
    for (size_t c = 0; c < o->cols; c += 1024) {
        size_t end = c + 1024 < o->cols ? c + 1024 : o->cols;
        steps += 2 * largest_of_columns(o->inputs + t * o->cols, c, end) * (double)(end - c);
    }
    return ((double)chain + 4) * ldexp(magnitude, -11) + ldexp(steps, -24);
}

static void check_values(const operands *o, output out, const float *start)
{
    for (size_t t = 0; t < o->tokens; t++) {
        for (size_t r = 0; r < o->rows; r++) {
            double first = start ? (double)start[t * o->rows + r] : 0;
            double sum = first, magnitude = fabs(first);
            for (size_t c = 0; c < o->cols; c++) {
                double x = o->inputs[t * o->cols + c];
                sum += o->weights[r * o->cols + c] * x;
                magnitude += o->magnitudes[r * o->cols + c] * fabs(x);
            }
            ck_close("y", t, r, (double)out.y[t * out.stride + r], sum,
                     roundings(o) * CK_UNIT * magnitude + half_error(o, t, magnitude));
        }
        size_t gap = t + 1 < o->tokens ? out.stride : o->rows;
        for (size_t r = o->rows; r < gap; r++)
            if (out.y[t * out.stride + r] != untouched)
                ck_fail("wrote behind row %zu of token %zu", o->rows, t);
    }
}

/* Columns that share a scale of INT8 activations; 0: they are not integers. */
static size_t act_block(const operands *o)
{
    vti_act_type type = o->kernel->act;
    return type == VTI_ACT_Q8 ? 32 : type == VTI_ACT_Q8K ? 256 : 0;
}

static double largest_of_block(const operands *o, size_t t, size_t c)
{
    double largest = 0;
    size_t block = act_block(o);
    for (size_t i = c / block * block; i < c / block * block + block && i < o->cols; i++) {
        double x = fabs((double)o->x[t * o->x_stride + i]);
        if (x > largest) largest = x;
    }
    return largest;
}

/* Against the activations as they were: docs/numerics.md promises half a step per activation. */
static void check_conversion_error(const operands *o, output out)
{
    if (act_block(o) == 0) return;
    for (size_t t = 0; t < o->tokens; t++) {
        double *half_step = ck_scratch(o->cols * sizeof(double));
        for (size_t c = 0; c < o->cols; c++)
            half_step[c] = c % 32 ? half_step[c - 1] : largest_of_block(o, t, c) / 254 * 1.00001;
        for (size_t r = 0; r < o->rows; r++) {
            double sum = 0, bound = 0, magnitude = 0;
            for (size_t c = 0; c < o->cols; c++) {
                double x = (double)o->x[t * o->x_stride + c], w = o->weights[r * o->cols + c];
                sum += w * x;
                bound += fabs(w) * half_step[c];
                magnitude += o->magnitudes[r * o->cols + c] * (fabs(x) + half_step[c]);
            }
            ck_close("y of unconverted x", t, r, (double)out.y[t * out.stride + r], sum,
                     bound + roundings(o) * CK_UNIT * magnitude);
        }
    }
}

static void check_same_bits(const operands *o, output a, output b, const char *what)
{
    for (size_t t = 0; t < o->tokens; t++)
        if (memcmp(a.y + t * a.stride, b.y + t * b.stride, o->rows * sizeof(float)) != 0)
            ck_fail("%s changes the result of token %zu (%zu × %zu, %zu tokens)", what, t, o->rows,
                    o->cols, o->tokens);
}

static void check_row_ranges(const operands *o, output whole)
{
    output pieces = make_output(o, o->rows);
    size_t step = o->kernel->row_step;
    for (size_t row = 0; row < o->rows;) {
        size_t end = row + (1 + ck_random_below(3)) * step;
        if (end > o->rows) end = o->rows;
        multiply(o, pieces, row, end, false);
        row = end;
    }
    check_same_bits(o, whole, pieces, "the row range");
}

static void check_accumulation(const operands *o)
{
    output out = make_output(o, o->rows + 3);
    float *start = ck_scratch(o->tokens * o->rows * sizeof(float));
    for (size_t t = 0; t < o->tokens; t++)
        for (size_t r = 0; r < o->rows; r++)
            start[t * o->rows + r] = out.y[t * out.stride + r] = ck_random_float(-4, 4);
    multiply(o, out, 0, o->rows, true);
    check_values(o, out, start);
}

/* Each token alone. */
static void check_batch(const operands *o, const vti_kernels *kernels, output whole)
{
    if (!o->kernel->batch_invariant) return;
    const vti_act_kernel *act = &kernels->act[o->kernel->act];
    output alone = make_output(o, o->rows);
    unsigned char *one = ck_buffer(act->bytes(1, o->cols));
    for (size_t t = 0; t < o->tokens; t++) {
        act->pack(one, o->x + t * o->x_stride, o->x_stride, 1, o->cols);
        o->kernel->matmul(alone.y + t * o->rows, alone.stride, o->packed, one, o->rows, o->cols, 0,
                          o->rows, 1, false);
    }
    check_same_bits(o, whole, alone, "the company of other tokens");
}

/* The product over two slices of columns, the second one added. */
static void check_column_slices(const operands *o, const vti_kernels *kernels, output whole)
{
    size_t block = o->kernel->block, middle = o->cols / 2 / block * block;
    if (!o->kernel->batch_invariant || middle == 0) return;
    output out = make_output(o, o->rows);
    for (int second = 0; second < 2; second++) {
        operands slice = *o;
        size_t begin = second ? middle : 0;
        slice.cols = second ? o->cols - middle : middle;
        slice.source += o->kernel->source_bytes(begin);
        slice.packed = pack_range(&slice, 0, o->rows);
        slice.act = ck_buffer(kernels->act[o->kernel->act].bytes(o->tokens, slice.cols));
        kernels->act[o->kernel->act].pack(slice.act, o->x + begin, o->x_stride, o->tokens,
                                          slice.cols);
        multiply(&slice, out, 0, o->rows, second);
    }
    check_same_bits(o, whole, out, "slicing the columns");
}

void ck_check_matmul(const vti_kernels *kernels, unsigned index)
{
    for (size_t step = 0; step < 32; step++) {
        operands o = random_operands(kernels, index, step);
        output out = make_output(&o, o.rows + ck_random_below(20));
        multiply(&o, out, 0, o.rows, false);
        check_values(&o, out, NULL);
        check_conversion_error(&o, out);
        check_row_ranges(&o, out);
        check_accumulation(&o);
        check_batch(&o, kernels, out);
        check_column_slices(&o, kernels, out);
        ck_check_margins();
        ck_free_all();
    }
}
