/* Conversion of activations. Everything is exact: the integers are the nearest ones to the float
 * product x × (127 / largest), ties to even. */
#include <math.h>
#include <string.h>

#include "checkkern.h"

static float f32(const unsigned char *at)
{
    float v;
    memcpy(&v, at, 4);
    return v;
}

static int32_t i32(const unsigned char *at)
{
    int32_t v;
    memcpy(&v, at, 4);
    return v;
}

static int32_t i16(const unsigned char *at)
{
    int16_t v;
    memcpy(&v, at, 2);
    return v;
}

typedef struct expected_block {
    float scale;
    int q[256];
} expected_block;

static expected_block quantize(const float *x, size_t n)
{
    expected_block e;
    float largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
    e.scale = largest / 127.0f;
    float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
    for (size_t i = 0; i < n; i++) {
        volatile float product = x[i] * inverse; /* rounded to a float before it is to an integer */
        e.q[i] = (int)rint((double)product);
    }
    return e;
}

static int sum(const expected_block *e, size_t first, size_t n)
{
    int total = 0;
    for (size_t i = first; i < first + n; i++) total += e->q[i];
    return total;
}

static void equal(const char *what, size_t t, size_t c, int32_t got, int32_t want)
{
    if (got != want)
        ck_fail("%s of token %zu, column %zu is %d, should be %d", what, t, c, (int)got, (int)want);
}

/* `block` belongs to m tokens and n columns; this is the t-th of them. */
static void check_block(vti_act_type type, const unsigned char *block, const float *x, size_t t,
                        size_t m, size_t c, size_t n)
{
    expected_block e = quantize(x, n);
    size_t head = type == VTI_ACT_Q8 ? 8 : 84;
    if (f32(block + 4 * t) != e.scale)
        ck_fail("scale of token %zu, column %zu is %.9g, should be %.9g", t, c,
                (double)f32(block + 4 * t), (double)e.scale);
    for (size_t i = 0; i < n; i++)
        equal("integer", t, c + i, (int8_t)block[head * m + (i / 8 * m + t) * 8 + i % 8], e.q[i]);
    if (type == VTI_ACT_Q8) {
        equal("bias", t, c, i32(block + 4 * (m + t)), -128 * sum(&e, 0, 32));
        return;
    }
    for (size_t sub = 0; sub < 16; sub++) {
        bool used = sub * 16 < n;
        int32_t bias = used ? -32 * sum(&e, sub * 16, 16) : 0;
        equal("bias", t, c, i32(block + 20 * m + (sub * m + t) * 4), bias);
        int32_t total = used ? sum(&e, sub / 2 * 32, 32) : 0;
        equal("sum", t, c, i16(block + 4 * m + (t * 8 + sub / 2) * 2), total);
    }
}

/* Two halves converted by themselves give the whole. */
static void check_pieces(const vti_act_kernel *kernel, const unsigned char *whole, const float *x,
                         size_t stride, size_t tokens, size_t cols)
{
    size_t first = ck_random_below(tokens / 4 + 1) * 4, bytes = kernel->bytes(tokens, cols);
    unsigned char *pieces = ck_buffer(bytes);
    kernel->pack(pieces, x, stride, first, cols);
    kernel->pack(pieces + kernel->bytes(first, cols), x + first * stride, stride, tokens - first,
                 cols);
    if (memcmp(whole, pieces, bytes) != 0)
        ck_fail("%zu tokens converted in pieces of %zu and the rest differ", tokens, first);
}

static void check_floats(const unsigned char *act, const float *x, size_t stride, size_t tokens,
                         size_t cols)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t c = 0; c < cols; c++)
            ck_close("activation", t, c, ck_act_value(VTI_ACT_F32, act, tokens, cols, t, c),
                     (double)x[t * stride + c], 0);
}

/* The scale is the power of two above the largest of 1024 columns, within 2^-99 … 2^126. */
static float half_scale(const float *x, size_t n)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
    int exponent;
    frexpf(largest, &exponent);
    if (largest == 0 || exponent < -99) exponent = -99;
    return ldexpf(1, exponent > 126 ? 126 : exponent);
}

static void check_halves(const unsigned char *act, const float *x, size_t stride, size_t tokens,
                         size_t cols)
{
    for (size_t t = 0; t < tokens; t++) {
        for (size_t c = 0; c < cols; c++) {
            const float *block = x + t * stride + c / 1024 * 1024;
            size_t left = cols - c / 1024 * 1024;
            double scale = (double)half_scale(block, left < 1024 ? left : 1024);
            double half = ck_half_value(ck_half_nearest((float)((double)x[t * stride + c] / scale)));
            ck_close("activation", t, c, ck_act_value(VTI_ACT_F16, act, tokens, cols, t, c),
                     half * scale, 0);
        }
    }
}

static float random_input(size_t mode)
{
    static const float special[] = {0, -0.0f, 1e-38f, 1e-45f, 3e-31f, 1, -1, 0.5f, 127, 3e38f};
    if (mode == 0) return ck_random_float(-3, 3);
    if (mode == 1) return ldexpf(ck_random_float(-1, 1), (int)ck_random_below(60) - 30);
    if (mode == 2) return special[ck_random_below(sizeof special / sizeof *special)];
    /* Ties: halves of 127 steps. */
    return (float)((int)ck_random_below(255) - 127) * 0.5f;
}

static void fill(float *x, size_t n, size_t mode)
{
    for (size_t i = 0; i < n; i++) x[i] = random_input(mode);
    if (mode == 3)
        for (size_t i = 0; i < n; i += 32) x[i] = 127;
}

static void check_conversion(const vti_kernels *kernels, vti_act_type type, size_t mode)
{
    bool integers = type == VTI_ACT_Q8 || type == VTI_ACT_Q8K;
    size_t block = type == VTI_ACT_Q8 ? 32 : 256, step = integers ? 32 : 1;
    size_t head = type == VTI_ACT_Q8 ? 8 : 84;
    size_t most = type == VTI_ACT_F16 ? 2600 : 600;
    size_t cols = (1 + ck_random_below(most / step)) * step, tokens = 1 + ck_random_below(10);
    size_t stride = cols + ck_random_below(4);
    float *x = ck_buffer(((tokens - 1) * stride + cols) * sizeof(float));
    fill(x, (tokens - 1) * stride + cols, mode);
    ck_seal(x);
    unsigned char *act = ck_buffer(kernels->act[type].bytes(tokens, cols)), *at = act;
    kernels->act[type].pack(act, x, stride, tokens, cols);
    if (!integers) {
        (type == VTI_ACT_F16 ? check_halves : check_floats)(act, x, stride, tokens, cols);
        check_pieces(&kernels->act[type], act, x, stride, tokens, cols);
        return;
    }
    for (size_t first = 0; first < tokens; first += 4) {
        size_t m = tokens - first < 4 ? tokens - first : 4;
        for (size_t c = 0; c < cols; c += block) {
            size_t n = cols - c < block ? cols - c : block;
            for (size_t t = 0; t < m; t++)
                check_block(type, at, x + (first + t) * stride + c, t, m, c, n);
            at += m * (head + n);
        }
    }
    if (at != act + kernels->act[type].bytes(tokens, cols)) ck_fail("bytes() is not the layout's");
    check_pieces(&kernels->act[type], act, x, stride, tokens, cols);
}

/* A value that is not finite must not vanish in the integers, or halves. */
static void check_not_finite(const vti_kernels *kernels, vti_act_type type, float value)
{
    if (type == VTI_ACT_F32) return;
    float *x = ck_buffer(256 * sizeof(float));
    for (size_t i = 0; i < 256; i++) x[i] = ck_random_float(-1, 1);
    x[ck_random_below(32)] = value;
    unsigned char *act = ck_buffer(kernels->act[type].bytes(1, 256));
    kernels->act[type].pack(act, x, 256, 1, 256);
    if (isfinite(f32(act))) ck_fail("a block with %g in it has the scale %g", (double)value,
                                    (double)f32(act));
}

void ck_check_act(const vti_kernels *kernels, unsigned index)
{
    for (size_t step = 0; step < 64; step++) {
        check_conversion(kernels, (vti_act_type)index, step % 4);
        ck_check_margins();
        ck_free_all();
    }
    check_not_finite(kernels, (vti_act_type)index, INFINITY);
    check_not_finite(kernels, (vti_act_type)index, -INFINITY);
    check_not_finite(kernels, (vti_act_type)index, NAN);
    check_not_finite(kernels, (vti_act_type)index, -NAN);
}
