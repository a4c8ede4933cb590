/* Norms, rotations, gates and conversions of single rows. */
#include <math.h>

#include "../scalar.h"
#include "exp_lanes.h"
#include "lanes.h"
#include "neon.h"

enum { LANES = 4 };

/* The last 1…3 elements of a row; the others are `fill`. */
static inline float32x4_t load_tail(const float *x, size_t n, float fill)
{
    float32x4_t v = vld1q_lane_f32(x, vdupq_n_f32(fill), 0);
    if (n > 1) v = vld1q_lane_f32(x + 1, v, 1);
    return n > 2 ? vld1q_lane_f32(x + 2, v, 2) : v;
}

static inline void store_tail(float *y, float32x4_t v, size_t n)
{
    vst1q_lane_f32(y, v, 0);
    if (n > 1) vst1q_lane_f32(y + 1, v, 1);
    if (n > 2) vst1q_lane_f32(y + 2, v, 2);
}

/* y[i] = f(a[i], b[i]) of n elements; y may be a or b. */
typedef float32x4_t binary_fn(float32x4_t a, float32x4_t b);

ALWAYS_INLINE void map(float *y, const float *a, const float *b, size_t n, binary_fn *f)
{
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        float32x4_t r[4];
        for (size_t j = 0; j < 4; j++) r[j] = vld1q_f32(a + i + LANES * j);
        for (size_t j = 0; j < 4; j++) r[j] = f(r[j], vld1q_f32(b + i + LANES * j));
        for (size_t j = 0; j < 4; j++) vst1q_f32(y + i + LANES * j, r[j]);
    }
    for (; i + LANES <= n; i += LANES)
        vst1q_f32(y + i, f(vld1q_f32(a + i), vld1q_f32(b + i)));
    if (i < n) store_tail(y + i, f(load_tail(a + i, n - i, 0), load_tail(b + i, n - i, 0)), n - i);
}

/* --- norm, rotations -------------------------------------------------------------------------- */

static float sum_of_squares(const float *x, size_t n)
{
    float32x4_t sums[4];
    for (size_t j = 0; j < 4; j++) sums[j] = vdupq_n_f32(0);
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        for (size_t j = 0; j < 4; j++) {
            float32x4_t v = vld1q_f32(x + i + LANES * j);
            sums[j] = vfmaq_f32(sums[j], v, v);
        }
    }
    for (; i < n; i += LANES) {
        float32x4_t v = n - i < LANES ? load_tail(x + i, n - i, 0) : vld1q_f32(x + i);
        sums[0] = vfmaq_f32(sums[0], v, v);
    }
    return vaddvq_f32(vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3])));
}

/* y = x × factor */
static void scale(float *y, const float *x, float factor, size_t n)
{
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        float32x4_t v[4];
        for (size_t j = 0; j < 4; j++) v[j] = vld1q_f32(x + i + LANES * j);
        for (size_t j = 0; j < 4; j++) vst1q_f32(y + i + LANES * j, vmulq_n_f32(v[j], factor));
    }
    for (; i < n; i++) y[i] = x[i] * factor;
}

static void rms_norm(float *y, const float *x, const float *weight, size_t n, float eps)
{
    float factor = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        float32x4_t v[4];
        for (size_t j = 0; j < 4; j++) v[j] = vmulq_n_f32(vld1q_f32(x + i + LANES * j), factor);
        for (size_t j = 0; j < 4; j++)
            vst1q_f32(y + i + LANES * j, vmulq_f32(v[j], vld1q_f32(weight + i + LANES * j)));
    }
    for (; i < n; i++) y[i] = x[i] * factor * weight[i];
}

static inline void rotate_pair(float *a, float *b, const float *cos_sin)
{
    float x = *a, y = *b;
    *a = x * cos_sin[0] - y * cos_sin[1];
    *b = x * cos_sin[1] + y * cos_sin[0];
}

/* Four pairs (a, b), with their cosines and sines. */
static inline float32x4x2_t rotate(float32x4_t a, float32x4_t b, float32x4x2_t angle)
{
    float32x4x2_t out;
    out.val[0] = vfmsq_f32(vmulq_f32(a, angle.val[0]), b, angle.val[1]);
    out.val[1] = vfmaq_f32(vmulq_f32(b, angle.val[0]), a, angle.val[1]);
    return out;
}

static void rope_interleaved(float *x, const float *cos_sin, size_t heads, size_t head_dim,
                             size_t rope_dims)
{
    for (size_t head = 0; head < heads; head++, x += head_dim) {
        size_t i = 0;
        for (; i + 2 * LANES <= rope_dims; i += 2 * LANES) {
            float32x4x2_t pairs = vld2q_f32(x + i);
            vst2q_f32(x + i, rotate(pairs.val[0], pairs.val[1], vld2q_f32(cos_sin + i)));
        }
        for (; i < rope_dims; i += 2) rotate_pair(x + i, x + i + 1, cos_sin + i);
    }
}

static void rope_half(float *x, const float *cos_sin, size_t heads, size_t head_dim,
                      size_t rope_dims)
{
    size_t half = rope_dims / 2;
    for (size_t head = 0; head < heads; head++, x += head_dim) {
        size_t i = 0;
        for (; i + LANES <= half; i += LANES) {
            float32x4x2_t out = rotate(vld1q_f32(x + i), vld1q_f32(x + half + i),
                                       vld2q_f32(cos_sin + 2 * i));
            vst1q_f32(x + i, out.val[0]);
            vst1q_f32(x + half + i, out.val[1]);
        }
        for (; i < half; i++) rotate_pair(x + i, x + half + i, cos_sin + 2 * i);
    }
}

/* --- gates, sums ------------------------------------------------------------------------------ */

static inline float32x4_t silu(float32x4_t g)
{
    return vdivq_f32(g, vaddq_f32(vdupq_n_f32(1), exp_f32(vnegq_f32(g))));
}

/* 0.5 (1 + tanh z) = 1 / (1 + e^-2z) with z = sqrt(2 / pi) (g + 0.044715 g³) */
static inline float32x4_t gelu(float32x4_t g)
{
    float32x4_t inner = vfmaq_f32(g, vmulq_n_f32(g, 0.044715f), vmulq_f32(g, g));
    float32x4_t power = exp_f32(vmulq_n_f32(inner, -1.59576912f));
    return vdivq_f32(g, vaddq_f32(vdupq_n_f32(1), power));
}

static inline float32x4_t silu_times(float32x4_t g, float32x4_t up)
{
    return vmulq_f32(silu(g), up);
}

static inline float32x4_t gelu_times(float32x4_t g, float32x4_t up)
{
    return vmulq_f32(gelu(g), up);
}

static void silu_gate(float *out, const float *gate, const float *up, size_t n)
{
    map(out, gate, up, n, silu_times);
}

static void gelu_gate(float *out, const float *gate, const float *up, size_t n)
{
    map(out, gate, up, n, gelu_times);
}

static inline float32x4_t sum(float32x4_t a, float32x4_t b) { return vaddq_f32(a, b); }

static void add(float *y, const float *x, size_t n) { map(y, y, x, n, sum); }

static void add_scaled(float *y, const float *x, float factor, size_t n)
{
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        float32x4_t v[4];
        for (size_t j = 0; j < 4; j++)
            v[j] = vfmaq_n_f32(vld1q_f32(y + i + LANES * j), vld1q_f32(x + i + LANES * j), factor);
        for (size_t j = 0; j < 4; j++) vst1q_f32(y + i + LANES * j, v[j]);
    }
    for (; i + LANES <= n; i += LANES)
        vst1q_f32(y + i, vfmaq_n_f32(vld1q_f32(y + i), vld1q_f32(x + i), factor));
    for (; i < n; i++) y[i] += x[i] * factor;
}

/* --- softmax, argmax -------------------------------------------------------------------------- */

/* NaN is passed over. */
static float largest(const float *x, size_t n)
{
    float32x4_t best[4];
    for (size_t j = 0; j < 4; j++) best[j] = vdupq_n_f32(-INFINITY);
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (size_t j = 0; j < 4; j++)
            best[j] = vmaxnmq_f32(best[j], vld1q_f32(x + i + LANES * j));
    for (; i < n; i += LANES)
        best[0] = vmaxnmq_f32(best[0], n - i < LANES ? load_tail(x + i, n - i, -INFINITY)
                                                     : vld1q_f32(x + i));
    return vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(best[0], best[1]), vmaxnmq_f32(best[2], best[3])));
}

static void softmax(float *x, size_t n)
{
    float32x4_t top = vdupq_n_f32(largest(x, n)), total = vdupq_n_f32(0);
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        float32x4_t e[4];
        for (size_t j = 0; j < 4; j++) e[j] = vsubq_f32(vld1q_f32(x + i + LANES * j), top);
        exp_vectors(e, 4);
        for (size_t j = 0; j < 4; j++) vst1q_f32(x + i + LANES * j, e[j]);
        total = vaddq_f32(total, vaddq_f32(vaddq_f32(e[0], e[1]), vaddq_f32(e[2], e[3])));
    }
    for (; i + LANES <= n; i += LANES) {
        float32x4_t e = exp_f32(vsubq_f32(vld1q_f32(x + i), top));
        vst1q_f32(x + i, e);
        total = vaddq_f32(total, e);
    }
    if (i < n) {
        float32x4_t e = exp_f32(vsubq_f32(load_tail(x + i, n - i, -INFINITY), top));
        store_tail(x + i, e, n - i);
        total = vaddq_f32(total, e);
    }
    scale(x, x, 1.0f / vaddvq_f32(total), n);
}

static size_t argmax(const float *x, size_t n)
{
    float best = largest(x, n);
    float32x4_t wanted = vdupq_n_f32(best);
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        uint32x4_t found = vceqq_f32(vld1q_f32(x + i), wanted);
        for (size_t j = 1; j < 4; j++)
            found = vorrq_u32(found, vceqq_f32(vld1q_f32(x + i + LANES * j), wanted));
        if (vmaxvq_u32(found)) break;
    }
    for (; i < n; i++)
        if (x[i] == best) return i;
    return 0;
}

/* --- halves ----------------------------------------------------------------------------------- */

static void convert_f16_from_f32(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vst1_u16(dst + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
    if (i < n) {
        uint16_t lanes[LANES];
        float16x4_t half = vcvt_f16_f32(load_tail(src + i, n - i, 0));
        vst1_u16(lanes, vreinterpret_u16_f16(half));
        memcpy(dst + i, lanes, (n - i) * sizeof *dst);
    }
}

static void convert_f32_from_f16(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vst1q_f32(dst + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(src + i))));
    if (i < n) {
        uint16_t lanes[LANES] = {0};
        memcpy(lanes, src + i, (n - i) * sizeof *src);
        store_tail(dst + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(lanes))), n - i);
    }
}

void vti_kernels_init_vector_neon(vti_kernels *kernels)
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
}
