/* Norms, rotations, gates and conversions of single rows. */
#include <math.h>
#include <string.h>

#include "half.h"
#include "scalar.h"

enum { LANES = 8 }; /* partial sums, added in a fixed order */

static void rms_norm(float *y, const float *x, const float *weight, size_t n, float eps)
{
    float squares[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) squares[j] += x[i + j] * x[i + j];
    for (size_t j = 0; i < n; i++, j++) squares[j] += x[i] * x[i];
    float sum = 0;
    for (size_t j = 0; j < LANES; j++) sum += squares[j];
    float scale = 1.0f / sqrtf(sum / (float)n + eps);
    for (i = 0; i < n; i++) y[i] = x[i] * scale * weight[i];
}

static void rotate_pair(float *a, float *b, const float *cos_sin)
{
    float x = *a, y = *b;
    *a = x * cos_sin[0] - y * cos_sin[1];
    *b = x * cos_sin[1] + y * cos_sin[0];
}

static void rope_interleaved(float *x, const float *cos_sin, size_t heads, size_t head_dim,
                             size_t rope_dims)
{
    for (size_t head = 0; head < heads; head++, x += head_dim)
        for (size_t i = 0; i < rope_dims; i += 2) rotate_pair(x + i, x + i + 1, cos_sin + i);
}

static void rope_half(float *x, const float *cos_sin, size_t heads, size_t head_dim,
                      size_t rope_dims)
{
    size_t half = rope_dims / 2;
    for (size_t head = 0; head < heads; head++, x += head_dim)
        for (size_t i = 0; i < half; i++) rotate_pair(x + i, x + half + i, cos_sin + 2 * i);
}

static void silu_gate(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void gelu_gate(float *out, const float *gate, const float *up, size_t n)
{
    const float sqrt_2_over_pi = 0.797884560802865f;
    for (size_t i = 0; i < n; i++) {
        float g = gate[i];
        float inner = sqrt_2_over_pi * (g + 0.044715f * g * g * g);
        out[i] = 0.5f * g * (1.0f + tanhf(inner)) * up[i];
    }
}

static void add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static void add_scaled(float *y, const float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i] * factor;
}

static void softmax(float *x, size_t n)
{
    float largest = x[0], total = 0;
    for (size_t i = 1; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    for (size_t i = 0; i < n; i++) total += x[i] = expf(x[i] - largest);
    for (size_t i = 0; i < n; i++) x[i] /= total;
}

static void convert_f16_from_f32(uint16_t *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = f16_from_f32(src[i]);
}

static void convert_f32_from_f16(float *dst, const uint16_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = f32_from_f16(src[i]);
}

static size_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    float largest = -INFINITY;
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        if (x[i] > largest || (!found && x[i] == largest)) {
            best = i;
            largest = x[i];
            found = true;
        }
    }
    return best;
}

void vti_kernels_init_scalar_vector(vti_kernels *kernels)
{
    kernels->rms_norm = rms_norm;
    kernels->rope_interleaved = rope_interleaved;
    kernels->rope_half = rope_half;
    kernels->silu_gate = silu_gate;
    kernels->gelu_gate = gelu_gate;
    kernels->add = add;
    kernels->add_scaled = add_scaled;
    kernels->softmax = softmax;
    kernels->f16_from_f32 = convert_f16_from_f32;
    kernels->f32_from_f16 = convert_f32_from_f16;
    kernels->argmax = argmax;
}
