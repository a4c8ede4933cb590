/* KV rows, and attention over them. */
#include <math.h>
#include <string.h>

#include "half.h"
#include "layout.h"
#include "scalar.h"

enum { LANES = 8, CHUNK = 64 }; /* CHUNK: a multiple of VTI_Q8_BLOCK */

/* --- rows ------------------------------------------------------------------------------------- */

/* Elements [first, first + count) of a row of head_dim → floats; first is a multiple of CHUNK. */
typedef void load_fn(float *dst, const unsigned char *row, size_t head_dim, size_t first,
                     size_t count);

static size_t row_bytes_f32(size_t head_dim) { return head_dim * 4; }

static void store_f32(void *row, const float *x, size_t head_dim)
{
    memcpy(row, x, head_dim * sizeof *x);
}

static void load_f32(float *dst, const unsigned char *row, size_t head_dim, size_t first,
                     size_t count)
{
    (void)head_dim;
    memcpy(dst, row + 4 * first, count * sizeof *dst);
}

static size_t row_bytes_f16(size_t head_dim) { return head_dim * 2; }

static void store_f16(void *row, const float *x, size_t head_dim)
{
    for (size_t i = 0; i < head_dim; i++) {
        uint16_t half = f16_from_f32(x[i]);
        memcpy((unsigned char *)row + 2 * i, &half, 2);
    }
}

static void load_f16(float *dst, const unsigned char *row, size_t head_dim, size_t first,
                     size_t count)
{
    (void)head_dim;
    for (size_t i = 0; i < count; i++) dst[i] = f32_from_f16(load_u16(row + 2 * (first + i)));
}

static size_t q8_blocks(size_t head_dim) { return (head_dim + VTI_Q8_BLOCK - 1) / VTI_Q8_BLOCK; }

static size_t row_bytes_q8(size_t head_dim) { return 2 * q8_blocks(head_dim) + head_dim; }

/* The integers are chosen for the scale that is stored, rounded to F16. */
static void store_q8(void *row, const float *x, size_t head_dim)
{
    unsigned char *scales = row, *q = scales + 2 * q8_blocks(head_dim);
    for (size_t first = 0; first < head_dim; first += VTI_Q8_BLOCK) {
        size_t count = head_dim - first < VTI_Q8_BLOCK ? head_dim - first : VTI_Q8_BLOCK;
        uint32_t largest = 0;
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = bits_of_float(x[first + i]) & 0x7fffffff;
            largest = bits > largest ? bits : largest;
        }
        uint16_t scale = f16_from_f32(float_from_bits(largest) / 127.0f);
        float stored = f32_from_f16(scale), inverse = stored > 0 ? 1.0f / stored : 0.0f;
        memcpy(scales + first / VTI_Q8_BLOCK * 2, &scale, 2);
        for (size_t i = 0; i < count; i++) {
            float v = x[first + i] * inverse;
            v = v < 127.0f ? v : 127.0f; /* a scale rounded down; NaN */
            v = v > -127.0f ? v : -127.0f;
            q[first + i] = (unsigned char)(bits_of_float(v + 12582912.0f) & 0xff);
        }
    }
}

static void load_q8(float *dst, const unsigned char *row, size_t head_dim, size_t first,
                    size_t count)
{
    const unsigned char *q = row + 2 * q8_blocks(head_dim) + first;
    for (size_t i = 0; i < count; i++) {
        float scale = f32_from_f16(load_u16(row + (first + i) / VTI_Q8_BLOCK * 2));
        dst[i] = scale * (int8_t)q[i];
    }
}

/* --- attention -------------------------------------------------------------------------------- */

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
static float dot_row(const float *q, const unsigned char *row, load_fn *load, size_t head_dim)
{
    float chunk[CHUNK], sum = 0;
    for (size_t i = 0; i < head_dim; i += CHUNK) {
        size_t count = head_dim - i < CHUNK ? head_dim - i : CHUNK;
        load(chunk, row, head_dim, i, count);
        sum += dot(q + i, chunk, count);
    }
    return sum;
}

/* out = out * keep + row * share */
static void blend_row(float *out, float keep, float share, const unsigned char *row, load_fn *load,
                      size_t head_dim)
{
    float chunk[CHUNK];
    for (size_t i = 0; i < head_dim; i += CHUNK) {
        size_t count = head_dim - i < CHUNK ? head_dim - i : CHUNK;
        load(chunk, row, head_dim, i, count);
        for (size_t j = 0; j < count; j++) out[i + j] = out[i + j] * keep + chunk[j] * share;
    }
}

/* Rows [*begin, *end) that query token t sees. */
static void visible_rows(const vti_attention_args *a, size_t t, size_t *begin, size_t *end)
{
    size_t last = a->position + t;
    *begin = a->window && last + 1 > a->window ? last + 1 - a->window : 0;
    if (*begin < a->kv_begin) *begin = a->kv_begin;
    *end = last + 1 < a->kv_end ? last + 1 : a->kv_end;
}

static void attend_query(const vti_attention_args *a, size_t t, size_t head, size_t row_bytes,
                         load_fn *load)
{
    float *out = a->out + t * a->out_stride + head * a->head_dim;
    const float *q = a->q + t * a->q_stride + head * a->head_dim;
    float largest = -INFINITY, total = 0;
    size_t begin, end;
    visible_rows(a, t, &begin, &end);
    memset(out, 0, a->head_dim * sizeof *out);
    for (size_t j = begin; j < end; j++) {
        const unsigned char *k = (const unsigned char *)a->k + j * row_bytes;
        const unsigned char *v = (const unsigned char *)a->v + j * row_bytes;
        float score = dot_row(q, k, load, a->head_dim) * a->scale;
        float keep = 1, share = 1;
        if (score > largest) {
            keep = expf(largest - score);
            largest = score;
        } else {
            share = expf(score - largest);
        }
        total = total * keep + share;
        blend_row(out, keep, share, v, load, a->head_dim);
    }
    if (a->parts) {
        a->parts[(t * a->heads + head) * 2] = largest;
        a->parts[(t * a->heads + head) * 2 + 1] = total;
        return;
    }
    for (size_t i = 0; i < a->head_dim; i++) out[i] /= total;
}

static void attend(const vti_attention_args *a, size_t row_bytes, load_fn *load)
{
    for (size_t t = 0; t < a->tokens; t++)
        for (size_t head = 0; head < a->heads; head++) attend_query(a, t, head, row_bytes, load);
}

void vti_attention_f32_scalar(const vti_attention_args *a)
{
    attend(a, row_bytes_f32(a->head_dim), load_f32);
}

void vti_attention_f16_scalar(const vti_attention_args *a)
{
    attend(a, row_bytes_f16(a->head_dim), load_f16);
}

void vti_attention_q8_scalar(const vti_attention_args *a)
{
    attend(a, row_bytes_q8(a->head_dim), load_q8);
}

static void attention_merge(float *out, const float *partial, size_t partial_stride,
                            const float *parts, size_t parts_stride, size_t count, size_t head_dim)
{
    float largest = -INFINITY, total = 0;
    for (size_t i = 0; i < count; i++)
        if (parts[i * parts_stride] > largest) largest = parts[i * parts_stride];
    for (size_t i = 0; i < count; i++) {
        float m = parts[i * parts_stride], share = m > -INFINITY ? expf(m - largest) : 0;
        total += parts[i * parts_stride + 1] * share;
        for (size_t j = 0; j < head_dim; j++) {
            float v = partial[i * partial_stride + j] * share;
            out[j] = i ? out[j] + v : v;
        }
    }
    for (size_t j = 0; j < head_dim; j++) out[j] /= total;
}

void vti_kernels_init_scalar_attention(vti_kernels *kernels)
{
    kernels->kv[VTI_KV_F32] = (vti_kv_kernel){row_bytes_f32, store_f32, vti_attention_f32_scalar};
    kernels->kv[VTI_KV_F16] = (vti_kv_kernel){row_bytes_f16, store_f16, vti_attention_f16_scalar};
    kernels->kv[VTI_KV_Q8] = (vti_kv_kernel){row_bytes_q8, store_q8, vti_attention_q8_scalar};
    kernels->attention_merge = attention_merge;
}
