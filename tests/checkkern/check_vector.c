/* Kernels on single rows of floats. */
#include <math.h>
#include <string.h>

#include "checkkern.h"

enum { STEPS = 48, LONGEST = 300 };

static float *random_floats(size_t n, float low, float high)
{
    float *x = ck_buffer(n * sizeof(float));
    for (size_t i = 0; i < n; i++) x[i] = ck_random_float(low, high);
    return x;
}

static float *copy_of(const float *x, size_t n)
{
    float *copy = ck_scratch(n * sizeof(float));
    memcpy(copy, x, n * sizeof(float));
    return copy;
}

static void end_case(void)
{
    ck_check_margins();
    ck_free_all();
}

void ck_check_rms_norm(const vti_kernels *kernels, unsigned index)
{
    (void)index;
    for (size_t step = 0; step < STEPS; step++) {
        size_t n = 1 + ck_random_below(LONGEST);
        float range = ldexpf(1, (int)ck_random_below(24) - 12);
        float eps = ck_random_below(4) ? 1e-6f : 0.5f;
        float *x = random_floats(n, -range, range), *weight = random_floats(n, -2, 2);
        bool in_place = ck_random_below(2);
        float *in = copy_of(x, n), *y = in_place ? x : ck_buffer(n * sizeof(float));
        ck_seal(weight);
        if (!in_place) ck_seal(x);
        kernels->rms_norm(y, x, weight, n, eps);
        double squares = 0;
        for (size_t i = 0; i < n; i++) squares += (double)in[i] * (double)in[i];
        double scale = 1 / sqrt(squares / (double)n + (double)eps);
        for (size_t i = 0; i < n; i++) {
            double want = (double)in[i] * scale * (double)weight[i];
            ck_close("y", i, 0, (double)y[i], want, (8 + (double)n / 8) * CK_UNIT * fabs(want));
        }
        end_case();
    }
}

void ck_check_rope(const vti_kernels *kernels, unsigned index)
{
    vti_rope_fn *rope = index ? kernels->rope_half : kernels->rope_interleaved;
    for (size_t step = 0; step < STEPS; step++) {
        size_t heads = 1 + ck_random_below(4), pairs = 1 + ck_random_below(40);
        size_t dims = 2 * pairs, head_dim = dims + ck_random_below(2) * ck_random_below(9);
        float *x = random_floats(heads * head_dim, -3, 3), *in = copy_of(x, heads * head_dim);
        float *cos_sin = random_floats(dims, -1, 1);
        ck_seal(cos_sin);
        rope(x, cos_sin, heads, head_dim, dims);
        for (size_t h = 0; h < heads; h++) {
            for (size_t i = 0; i < head_dim; i++) {
                size_t pair = index ? i % pairs : i / 2, second = index ? i / pairs : i % 2;
                size_t other = index ? (second ? i - pairs : i + pairs) : i ^ 1;
                const float *head = in + h * head_dim;
                double want = (double)head[i], bound = 0;
                if (i < dims) {
                    double a = (double)head[i] * (double)cos_sin[2 * pair];
                    double b = (double)head[other] * (double)cos_sin[2 * pair + 1];
                    want = second ? a + b : a - b;
                    bound = 3 * CK_UNIT * (fabs(a) + fabs(b));
                }
                ck_close("x", h, i, (double)x[h * head_dim + i], want, bound);
            }
        }
        end_case();
    }
}

static double gelu_tanh(double g)
{
    /* 0.5 (1 + tanh z) = 1 / (1 + exp(-2z)), without cancellation */
    return g / (1 + exp(-2 * 0.7978845608028654 * (g + 0.044715 * g * g * g)));
}

static double silu(double g) { return g / (1 + exp(-g)); }

void ck_check_gate(const vti_kernels *kernels, unsigned index)
{
    vti_gate_fn *gate_fn = index ? kernels->gelu_gate : kernels->silu_gate;
    for (size_t step = 0; step < STEPS; step++) {
        size_t n = 1 + ck_random_below(LONGEST);
        float range = step % 3 == 0 ? 1 : step % 3 == 1 ? 12 : 200;
        float *gate = random_floats(n, -range, range), *up = random_floats(n, -3, 3);
        float *g = copy_of(gate, n), *u = copy_of(up, n);
        if (step % 8 == 5) gate[0] = g[0] = NAN;
        size_t where = ck_random_below(3);
        float *out = where == 0 ? gate : where == 1 ? up : ck_buffer(n * sizeof(float));
        if (out != gate) ck_seal(gate);
        if (out != up) ck_seal(up);
        gate_fn(out, gate, up, n);
        for (size_t i = 0; i < n; i++) {
            double exact = index ? gelu_tanh((double)g[i]) : silu((double)g[i]);
            double bound = 8 * CK_UNIT * fabs(exact * (double)u[i]) + 1e-36;
            /* The argument of the exponential has its own rounding. */
            bound += 4 * CK_UNIT * fabs((double)g[i] * exact * (double)u[i]);
            /* 1 + tanh loses what lies below one unit of 1. */
            if (index) bound += 4 * CK_UNIT * fabs((double)g[i] * (double)u[i]);
            ck_close("out", i, 0, (double)out[i], exact * (double)u[i], bound);
        }
        end_case();
    }
}

void ck_check_add(const vti_kernels *kernels, unsigned index)
{
    (void)index;
    for (size_t step = 0; step < STEPS; step++) {
        size_t n = ck_random_below(LONGEST);
        float *y = random_floats(n, -3, 3), *x = random_floats(n, -3, 3), *before = copy_of(y, n);
        ck_seal(x);
        kernels->add(y, x, n);
        for (size_t i = 0; i < n; i++) {
            float want = before[i] + x[i];
            ck_close("y", i, 0, (double)y[i], (double)want, 0);
        }
        end_case();
    }
}

void ck_check_add_scaled(const vti_kernels *kernels, unsigned index)
{
    (void)index;
    for (size_t step = 0; step < STEPS; step++) {
        size_t n = ck_random_below(LONGEST);
        float *y = random_floats(n, -3, 3), *x = random_floats(n, -3, 3), *before = copy_of(y, n);
        float factor = ck_random_float(-2, 2);
        ck_seal(x);
        kernels->add_scaled(y, x, factor, n);
        for (size_t i = 0; i < n; i++) {
            double product = (double)x[i] * (double)factor;
            ck_close("y", i, 0, (double)y[i], (double)before[i] + product,
                     2 * CK_UNIT * (fabs((double)before[i]) + fabs(product)));
        }
        end_case();
    }
}

void ck_check_softmax(const vti_kernels *kernels, unsigned index)
{
    (void)index;
    for (size_t step = 0; step < STEPS; step++) {
        size_t n = 1 + ck_random_below(LONGEST);
        float range = step % 2 ? 100 : 3;
        float *x = random_floats(n, -range, range);
        if (step % 5 == 4 && n > 1) x[0] = -INFINITY;
        float *in = copy_of(x, n);
        double largest = -INFINITY, total = 0;
        for (size_t i = 0; i < n; i++)
            if ((double)in[i] > largest) largest = (double)in[i];
        for (size_t i = 0; i < n; i++) total += exp((double)in[i] - largest);
        kernels->softmax(x, n);
        for (size_t i = 0; i < n; i++) {
            double distance = largest - (double)in[i], want = exp(-distance) / total;
            double relative = 8 + (double)n / 4 + (distance < 1e9 ? distance : 0);
            ck_close("x", i, 0, (double)x[i], want, relative * CK_UNIT * want + 1e-37);
        }
        end_case();
    }
}

static float random_bits(void)
{
    uint32_t bits = (uint32_t)(ck_random() >> 32);
    /* Half of them near what a half can hold. */
    if (bits & 1) bits = (bits & 0x80ffffff) | (uint32_t)(101 + ck_random_below(44)) << 23;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

void ck_check_f16_from_f32(const vti_kernels *kernels, unsigned index)
{
    (void)index;
    for (size_t step = 0; step < STEPS; step++) {
        size_t n = 1 + ck_random_below(LONGEST);
        float *x = ck_buffer(n * sizeof(float));
        uint16_t *half = ck_buffer(n * sizeof(uint16_t));
        for (size_t i = 0; i < n; i++) x[i] = random_bits();
        /* Exactly between two halves. */
        for (size_t i = 0; i < n; i += 3)
            x[i] = (float)((ck_half_value((uint16_t)(i * 97 % 0x7bff)) +
                            ck_half_value((uint16_t)(i * 97 % 0x7bff + 1))) / 2);
        ck_seal(x);
        kernels->f16_from_f32(half, x, n);
        for (size_t i = 0; i < n; i++)
            if (half[i] != ck_half_nearest(x[i]))
                ck_fail("half of %.9g is %04x, should be %04x", (double)x[i], half[i],
                        ck_half_nearest(x[i]));
        end_case();
    }
}

void ck_check_f32_from_f16(const vti_kernels *kernels, unsigned index)
{
    (void)index;
    for (size_t first = 0; first < 65536;) {
        size_t n = 1 + ck_random_below(8192);
        if (n > 65536 - first) n = 65536 - first;
        uint16_t *half = ck_buffer(n * sizeof(uint16_t));
        float *x = ck_buffer(n * sizeof(float));
        for (size_t i = 0; i < n; i++) half[i] = (uint16_t)(first + i);
        ck_seal(half);
        kernels->f32_from_f16(x, half, n);
        for (size_t i = 0; i < n; i++) {
            double want = ck_half_value(half[i]);
            ck_close("float of half", half[i], 0, (double)x[i], want, 0);
            if (!isnan(want) && !signbit(x[i]) != !(half[i] >> 15))
                ck_fail("float of half %04x has the wrong sign", half[i]);
        }
        first += n;
        end_case();
    }
}

static size_t first_largest(const float *x, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (!isnan(x[i]) && (best == n || x[i] > x[best])) best = i;
    return best == n ? 0 : best;
}

void ck_check_argmax(const vti_kernels *kernels, unsigned index)
{
    (void)index;
    for (size_t step = 0; step < 4 * STEPS; step++) {
        size_t n = 1 + ck_random_below(LONGEST);
        float *x = ck_buffer(n * sizeof(float));
        for (size_t i = 0; i < n; i++) {
            /* Few different values, so that equals are common. */
            x[i] = step % 2 ? ck_random_float(-5, 5) : (float)ck_random_below(4) - 9;
            if (step % 3 == 1 && ck_random_below(4) == 0) x[i] = NAN;
            if (step % 16 == 7) x[i] = -INFINITY;
            if (step % 16 == 9) x[i] = NAN;
        }
        ck_seal(x);
        size_t got = kernels->argmax(x, n), want = first_largest(x, n);
        if (got != want) ck_fail("argmax of %zu is %zu, should be %zu", n, got, want);
        end_case();
    }
}
