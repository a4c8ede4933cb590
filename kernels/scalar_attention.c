/* Attention of one token's query heads over the rows of one KV head. */
#include <math.h>
#include <string.h>

#include "half.h"
#include "scalar.h"

enum { LANES = 8, CHUNK = 64 };

typedef void load_fn(float *dst, const void *rows, size_t first, size_t count);

static void load_f32(float *dst, const void *rows, size_t first, size_t count)
{
    memcpy(dst, (const float *)rows + first, count * sizeof *dst);
}

static void load_f16(float *dst, const void *rows, size_t first, size_t count)
{
    const uint16_t *half = (const uint16_t *)rows + first;
    for (size_t i = 0; i < count; i++) dst[i] = f32_from_f16(half[i]);
}

static float dot(const float *a, const float *b, size_t n)
{
    float sums[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) sums[j] += a[i + j] * b[i + j];
    for (size_t j = 0; i < n; i++, j++) sums[j] += a[i] * b[i];
    float sum = 0;
    for (size_t j = 0; j < LANES; j++) sum += sums[j];
    return sum;
}

/* A row is read in chunks, so that the stack holds any head_dim. */
static float dot_row(const float *q, const void *rows, load_fn *load, size_t first, size_t head_dim)
{
    float chunk[CHUNK], sum = 0;
    for (size_t i = 0; i < head_dim; i += CHUNK) {
        size_t count = head_dim - i < CHUNK ? head_dim - i : CHUNK;
        load(chunk, rows, first + i, count);
        sum += dot(q + i, chunk, count);
    }
    return sum;
}

/* out = out * keep + row * share */
static void blend_row(float *out, float keep, float share, const void *rows, load_fn *load,
                      size_t first, size_t head_dim)
{
    float chunk[CHUNK];
    for (size_t i = 0; i < head_dim; i += CHUNK) {
        size_t count = head_dim - i < CHUNK ? head_dim - i : CHUNK;
        load(chunk, rows, first + i, count);
        for (size_t j = 0; j < count; j++) out[i + j] = out[i + j] * keep + chunk[j] * share;
    }
}

static void attend(float *out, const float *q, size_t heads, size_t head_dim, const void *k,
                   const void *v, size_t kv_tokens, float scale, load_fn *load)
{
    for (size_t head = 0; head < heads; head++, out += head_dim, q += head_dim) {
        float largest = -INFINITY, total = 0;
        memset(out, 0, head_dim * sizeof *out);
        for (size_t j = 0; j < kv_tokens; j++) {
            float score = dot_row(q, k, load, j * head_dim, head_dim) * scale;
            float keep = 1, share = 1;
            if (score > largest) {
                keep = expf(largest - score);
                largest = score;
            } else {
                share = expf(score - largest);
            }
            total = total * keep + share;
            blend_row(out, keep, share, v, load, j * head_dim, head_dim);
        }
        for (size_t i = 0; i < head_dim; i++) out[i] /= total;
    }
}

static void attention_f16(float *out, const float *q, size_t heads, size_t head_dim, const void *k,
                          const void *v, size_t kv_tokens, float scale)
{
    attend(out, q, heads, head_dim, k, v, kv_tokens, scale, load_f16);
}

static void attention_f32(float *out, const float *q, size_t heads, size_t head_dim, const void *k,
                          const void *v, size_t kv_tokens, float scale)
{
    attend(out, q, heads, head_dim, k, v, kv_tokens, scale, load_f32);
}

void vti_kernels_init_scalar_attention(vti_kernels *kernels)
{
    kernels->attention_f16 = attention_f16;
    kernels->attention_f32 = attention_f32;
}
