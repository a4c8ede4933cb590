/* vector_kernels.h: kernels on rows of floats, in terms of simd_*.h. Included once by the file of
 * each instruction set. */
#include <math.h>
#include <string.h>

#include "../layout.h"
#include "exp.h"

/* Calls body(i, n) for pieces of n <= LANES elements: all whole ones, then the tail. */
#define FOR_LANES(i, count, whole, tail)                                                           \
    do {                                                                                           \
        size_t i = 0;                                                                              \
        for (; i + LANES <= (count); i += LANES) whole;                                            \
        if (i < (count)) {                                                                         \
            size_t n_left = (count)-i;                                                             \
            tail;                                                                                  \
        }                                                                                          \
    } while (0)

static void rms_norm(float *y, const float *x, const float *weight, size_t n, float eps)
{
    vf sums[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (size_t j = 0; j < 4; j++) {
            vf v = vf_load(x + i + j * LANES);
            sums[j] = vf_fma(v, v, sums[j]);
        }
    for (; i < n; i += LANES) {
        vf v = n - i < LANES ? vf_load_n(x + i, n - i) : vf_load(x + i);
        sums[0] = vf_fma(v, v, sums[0]);
    }
    float sum = vf_sum(vf_add(vf_add(sums[0], sums[1]), vf_add(sums[2], sums[3])));
    vf scale = vf_set1(1.0f / sqrtf(sum / (float)n + eps));
    FOR_LANES(
        k, n, vf_store(y + k, vf_mul(vf_mul(vf_load(x + k), scale), vf_load(weight + k))),
        vf_store_n(y + k,
                   vf_mul(vf_mul(vf_load_n(x + k, n_left), scale), vf_load_n(weight + k, n_left)),
                   n_left));
}

static void rope_interleaved(float *x, const float *cos_sin, size_t heads, size_t head_dim,
                             size_t rope_dims)
{
    for (size_t head = 0; head < heads; head++, x += head_dim) {
        for (size_t i = 0; i < rope_dims; i += LANES) {
            size_t n = rope_dims - i;
            vf v = n < LANES ? vf_load_n(x + i, n) : vf_load(x + i);
            vf angle = n < LANES ? vf_load_n(cos_sin + i, n) : vf_load(cos_sin + i);
            v = vf_fmaddsub(v, vf_even(angle), vf_mul(vf_swap_pairs(v), vf_odd(angle)));
            if (n < LANES)
                vf_store_n(x + i, v, n);
            else
                vf_store(x + i, v);
        }
    }
}

static void rope_half(float *x, const float *cos_sin, size_t heads, size_t head_dim,
                      size_t rope_dims)
{
    size_t half = rope_dims / 2;
    for (size_t head = 0; head < heads; head++, x += head_dim) {
        size_t i = 0;
        for (; i + LANES <= half; i += LANES) {
            vf cosine, sine, a = vf_load(x + i), b = vf_load(x + half + i);
            vf_load_pairs(cos_sin + 2 * i, &cosine, &sine);
            vf_store(x + i, vf_fnma(b, sine, vf_mul(a, cosine)));
            vf_store(x + half + i, vf_fma(a, sine, vf_mul(b, cosine)));
        }
        for (; i < half; i++) {
            float a = x[i], b = x[half + i];
            x[i] = a * cos_sin[2 * i] - b * cos_sin[2 * i + 1];
            x[half + i] = a * cos_sin[2 * i + 1] + b * cos_sin[2 * i];
        }
    }
}

static inline vf silu(vf g)
{
    return vf_div(g, vf_add(vf_set1(1), vf_exp(vf_sub(vf_zero(), g))));
}

/* 0.5 (1 + tanh z) = 1 / (1 + e^-2z) with z = sqrt(2 / pi) (g + 0.044715 g³) */
static inline vf gelu(vf g)
{
    vf inner = vf_fma(vf_mul(vf_set1(0.044715f), g), vf_mul(g, g), g);
    vf power = vf_exp(vf_mul(inner, vf_set1(-1.59576912f)));
    return vf_div(g, vf_add(vf_set1(1), power));
}

static void silu_gate(float *out, const float *gate, const float *up, size_t n)
{
    FOR_LANES(i, n, vf_store(out + i, vf_mul(silu(vf_load(gate + i)), vf_load(up + i))),
              vf_store_n(out + i,
                         vf_mul(silu(vf_load_n(gate + i, n_left)), vf_load_n(up + i, n_left)),
                         n_left));
}

static void gelu_gate(float *out, const float *gate, const float *up, size_t n)
{
    FOR_LANES(i, n, vf_store(out + i, vf_mul(gelu(vf_load(gate + i)), vf_load(up + i))),
              vf_store_n(out + i,
                         vf_mul(gelu(vf_load_n(gate + i, n_left)), vf_load_n(up + i, n_left)),
                         n_left));
}

static void add(float *y, const float *x, size_t n)
{
    FOR_LANES(i, n, vf_store(y + i, vf_add(vf_load(y + i), vf_load(x + i))),
              vf_store_n(y + i, vf_add(vf_load_n(y + i, n_left), vf_load_n(x + i, n_left)),
                         n_left));
}

static void add_scaled(float *y, const float *x, float factor, size_t n)
{
    vf f = vf_set1(factor);
    FOR_LANES(i, n, vf_store(y + i, vf_fma(vf_load(x + i), f, vf_load(y + i))),
              vf_store_n(y + i, vf_fma(vf_load_n(x + i, n_left), f, vf_load_n(y + i, n_left)),
                         n_left));
}

static float largest(const float *x, size_t n)
{
    vf lowest = vf_set1(-INFINITY), best = lowest;
    FOR_LANES(i, n, best = vf_max(vf_load(x + i), best),
              best = vf_max(vf_keep_n(vf_load_n(x + i, n_left), lowest, n_left), best));
    return vf_largest(best);
}

static void softmax(float *x, size_t n)
{
    vf top = vf_set1(largest(x, n)), total = vf_zero();
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf e = vf_exp(vf_sub(vf_load(x + i), top));
        vf_store(x + i, e);
        total = vf_add(total, e);
    }
    if (i < n) {
        vf e = vf_keep_n(vf_exp(vf_sub(vf_load_n(x + i, n - i), top)), vf_zero(), n - i);
        vf_store_n(x + i, e, n - i);
        total = vf_add(total, e);
    }
    vf sum = vf_set1(vf_sum(total));
    FOR_LANES(k, n, vf_store(x + k, vf_div(vf_load(x + k), sum)),
              vf_store_n(x + k, vf_div(vf_load_n(x + k, n_left), sum), n_left));
}

static size_t argmax(const float *x, size_t n)
{
    float best = largest(x, n);
    vf wanted = vf_set1(best);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        uint32_t found = vf_equal(vf_load(x + i), wanted);
        if (found) return i + (size_t)__builtin_ctz(found);
    }
    for (; i < n; i++)
        if (x[i] == best) return i;
    return 0;
}

static void convert_f16_from_f32(uint16_t *dst, const float *src, size_t n)
{
    FOR_LANES(i, n, vf_store_f16(dst + i, vf_load(src + i)),
              vf_store_f16_n(dst + i, vf_load_n(src + i, n_left), n_left));
}

static void convert_f32_from_f16(float *dst, const uint16_t *src, size_t n)
{
    FOR_LANES(i, n, vf_store(dst + i, vf_load_f16(src + i)),
              vf_store_n(dst + i, vf_load_f16_n(src + i, n_left), n_left));
}

/* --- conversion of activations ---------------------------------------------------------------- */

/* As scalar_act.c does it: the same bits. Token t of a group of m; n is a multiple of `width` (16
 * or 32). The sums of `width` integers each go to sums[n / width]; unsigned, since what a NaN or
 * infinity becomes may overflow. Returns the scale. */
static inline __attribute__((always_inline)) float
quantize(unsigned char *q, const float *x, size_t n, size_t t, size_t m, uint32_t *sums,
         size_t width)
{
    vmagnitude magnitude = vmagnitude_zero();
    for (size_t i = 0; i < n; i += LANES) magnitude = vmagnitude_max(magnitude, vf_load(x + i));
    uint32_t bits = vmagnitude_largest(magnitude);
    float top;
    memcpy(&top, &bits, sizeof top);
    vf inverse = vf_set1(top > 1e-30f ? 127.0f / top : 0.0f);
    for (size_t i = 0; i < n; i += width) {
        unsigned char bytes[32];
        vint sum = vint_zero();
#pragma GCC unroll 4
        for (size_t j = 0; j < width; j += LANES) {
            vint values = vint_nearest(vf_mul(vf_load(x + i + j), inverse));
            vint_store_i8(bytes + j, values);
            sum = vint_add(sum, values);
        }
#pragma GCC unroll 4
        for (size_t j = 0; j < width; j += 8) memcpy(q + ((i + j) / 8 * m + t) * 8, bytes + j, 8);
        sums[i / width] = (uint32_t)vint_sum(sum);
    }
    return top / 127.0f;
}

static void act_pack_q8(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    unsigned char *block = dst;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        size_t m = vti_group_tokens(first, tokens);
        for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK, block += m * VTI_ACT_Q8_BYTES) {
            for (size_t t = 0; t < m; t++) {
                uint32_t sum;
                const float *from = x + (first + t) * x_stride + c;
                float scale = quantize(block + 8 * m, from, VTI_Q8_BLOCK, t, m, &sum, 32);
                uint32_t bias = 0u - 128u * sum;
                memcpy(block + 4 * t, &scale, 4);
                memcpy(block + 4 * (m + t), &bias, 4);
            }
        }
    }
}

static void pack_block_q8k(unsigned char *block, const float *x, size_t n, size_t t, size_t m)
{
    uint32_t sums[16] = {0};
    float scale = quantize(block + m * VTI_ACT_Q8K_HEAD, x, n, t, m, sums, 16);
    memcpy(block + 4 * t, &scale, 4);
    for (size_t sub = 0; sub < 16; sub++) {
        uint32_t bias = 0u - 32u * sums[sub];
        memcpy(block + m * VTI_ACT_Q8K_BIAS + (sub * m + t) * 4, &bias, 4);
    }
    for (size_t sub = 0; sub < 8; sub++) {
        int16_t sum = (int16_t)(sums[2 * sub] + sums[2 * sub + 1]);
        memcpy(block + m * VTI_ACT_Q8K_SUMS + (t * 8 + sub) * 2, &sum, 2);
    }
}

static void act_pack_q8k(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    unsigned char *block = dst;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        size_t m = vti_group_tokens(first, tokens);
        for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
            size_t n = vti_k_columns(c, cols);
            for (size_t t = 0; t < m; t++)
                pack_block_q8k(block, x + (first + t) * x_stride + c, n, t, m);
            block += m * (VTI_ACT_Q8K_HEAD + n);
        }
    }
}

/* --- table ------------------------------------------------------------------------------------ */

static inline void init_vector(vti_kernels *kernels)
{
    kernels->rms_norm = rms_norm;
    kernels->rope_interleaved = rope_interleaved;
    kernels->rope_half = rope_half;
    kernels->silu_gate = silu_gate;
    kernels->gelu_gate = gelu_gate;
    kernels->add = add;
    kernels->add_scaled = add_scaled;
    kernels->softmax = softmax;
    kernels->argmax = argmax;
    kernels->f16_from_f32 = convert_f16_from_f32;
    kernels->f32_from_f16 = convert_f32_from_f16;
    kernels->act[VTI_ACT_Q8].pack = act_pack_q8;
    kernels->act[VTI_ACT_Q8K].pack = act_pack_q8k;
}
