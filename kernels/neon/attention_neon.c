/* KV rows, and attention over them.
 *
 * ROWS rows of keys are converted to floats once for all queries (a query: one head of one token),
 * then the same rows of values. Up to four queries share what is loaded. Softmax is online: a query
 * keeps its largest score and its sum, and what it has added up so far is scaled down when a larger
 * score comes. */
#include <math.h>

#include "../scalar.h"
#include "exp_lanes.h"
#include "lanes.h"
#include "neon.h"

enum {
    ROWS = 16,
    QUERIES = 32,   /* at once */
    MOST_DIM = 256, /* head_dim; the scalar version does wider ones and odd sizes */
};

/* --- rows of the cache ------------------------------------------------------------------------ */

static void store_f16(void *row, const float *x, size_t head_dim)
{
    uint16_t *halves = row;
    size_t i = 0;
    for (; i + 4 <= head_dim; i += 4)
        vst1_u16(halves + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
    for (; i < head_dim; i++) {
        float16x4_t half = vcvt_f16_f32(vdupq_n_f32(x[i]));
        vst1_lane_u16(halves + i, vreinterpret_u16_f16(half), 0);
    }
}

static inline size_t q8_blocks(size_t head_dim)
{
    return (head_dim + VTI_Q8_BLOCK - 1) / VTI_Q8_BLOCK;
}

/* 32 elements: integers for the scale that is stored, rounded to F16. */
static void store_q8_block(unsigned char *scale, unsigned char *q, const float *x)
{
    float32x4_t v[8], top = vdupq_n_f32(0);
    for (size_t i = 0; i < 8; i++) v[i] = vld1q_f32(x + 4 * i);
    for (size_t i = 0; i < 8; i++) top = vmaxq_f32(top, vabsq_f32(v[i]));
    float16x4_t half = vcvt_f16_f32(vdupq_n_f32(vmaxvq_f32(top) / 127.0f));
    float stored = vgetq_lane_f32(vcvt_f32_f16(half), 0);
    vst1_lane_u16((uint16_t *)(void *)scale, vreinterpret_u16_f16(half), 0);
    float inverse = stored > 0 ? 1.0f / stored : 0.0f;
    for (size_t i = 0; i < 2; i++) {
        int16x8_t words[2];
        for (size_t j = 0; j < 2; j++) {
            int32x4_t low = vcvtnq_s32_f32(vmulq_n_f32(v[4 * i + 2 * j], inverse));
            int32x4_t high = vcvtnq_s32_f32(vmulq_n_f32(v[4 * i + 2 * j + 1], inverse));
            words[j] = vcombine_s16(vqmovn_s32(low), vqmovn_s32(high));
        }
        int8x16_t bytes = vcombine_s8(vqmovn_s16(words[0]), vqmovn_s16(words[1]));
        /* A scale that was rounded down makes 128 of the largest. */
        vst1q_s8((int8_t *)q + 16 * i, vmaxq_s8(bytes, vdupq_n_s8(-127)));
    }
}

static void store_q8(void *row, const float *x, size_t head_dim)
{
    unsigned char *scales = row, *q = scales + 2 * q8_blocks(head_dim);
    for (size_t first = 0; first < head_dim; first += VTI_Q8_BLOCK, scales += 2) {
        float block[VTI_Q8_BLOCK] = {0};
        unsigned char bytes[VTI_Q8_BLOCK];
        size_t count = head_dim - first < VTI_Q8_BLOCK ? head_dim - first : VTI_Q8_BLOCK;
        if (count == VTI_Q8_BLOCK) {
            store_q8_block(scales, q + first, x + first);
        } else {
            memcpy(block, x + first, count * sizeof *x);
            store_q8_block(scales, bytes, block);
            memcpy(q + first, bytes, count);
        }
    }
}

/* A row of head_dim, a multiple of 4, → floats. */
typedef void load_fn(float *to, const unsigned char *row, size_t head_dim);

static inline void load_f16(float *to, const unsigned char *row, size_t head_dim)
{
    size_t i = 0;
    for (; i + 32 <= head_dim; i += 32) {
        float32x4_t v[8];
        for (size_t j = 0; j < 4; j++) {
            float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(row + 2 * i + 16 * j));
            v[2 * j] = vcvt_f32_f16(vget_low_f16(halves));
            v[2 * j + 1] = vcvt_high_f32_f16(halves);
        }
        for (size_t j = 0; j < 8; j++) vst1q_f32(to + i + 4 * j, v[j]);
    }
    for (; i < head_dim; i += 4)
        vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(row + 2 * i))));
}

/* 16 INT8 × scale → floats. The bits 0x47000000 + 256 b are those of 2^15 + b: that costs two
 * permutations and a subtraction, which all pipes do, where a conversion would need one. */
static inline void scale16(float *to, uint8x16_t bytes, float32x4_t scale)
{
    const uint16x8_t exponent = vdupq_n_u16(0x4700);
    const float32x4_t offset = vdupq_n_f32(32768 + 128);
    uint8x16_t b = veorq_u8(bytes, vdupq_n_u8(128));
    uint16x8_t low = vreinterpretq_u16_u8(vzip1q_u8(vdupq_n_u8(0), b));
    uint16x8_t high = vreinterpretq_u16_u8(vzip2q_u8(vdupq_n_u8(0), b));
    float32x4_t v[4] = {vreinterpretq_f32_u16(vzip1q_u16(low, exponent)),
                        vreinterpretq_f32_u16(vzip2q_u16(low, exponent)),
                        vreinterpretq_f32_u16(vzip1q_u16(high, exponent)),
                        vreinterpretq_f32_u16(vzip2q_u16(high, exponent))};
    for (size_t j = 0; j < 4; j++) v[j] = vsubq_f32(v[j], offset);
    for (size_t j = 0; j < 4; j++) v[j] = vmulq_f32(v[j], scale);
    for (size_t j = 0; j < 4; j++) vst1q_f32(to + 4 * j, v[j]);
}

static inline void load_q8(float *to, const unsigned char *row, size_t head_dim)
{
    const unsigned char *q = row + 2 * q8_blocks(head_dim);
    for (size_t i = 0; i < head_dim; i += VTI_Q8_BLOCK, row += 2) {
        uint16x4_t half = vld1_dup_u16((const uint16_t *)(const void *)row);
        float32x4_t scale = vcvt_f32_f16(vreinterpret_f16_u16(half));
        if (i + VTI_Q8_BLOCK <= head_dim) {
            scale16(to + i, vld1q_u8(q + i), scale);
            scale16(to + i + 16, vld1q_u8(q + i + 16), scale);
        } else {
            float block[VTI_Q8_BLOCK];
            unsigned char bytes[VTI_Q8_BLOCK] = {0};
            memcpy(bytes, q + i, head_dim - i);
            scale16(block, vld1q_u8(bytes), scale);
            scale16(block + 16, vld1q_u8(bytes + 16), scale);
            memcpy(to + i, block, (head_dim - i) * sizeof *to);
        }
    }
}

/* Four elements of a row that is read as it is. */
typedef float32x4_t load4_fn(const unsigned char *row, size_t i);

static inline float32x4_t load4_f32(const unsigned char *row, size_t i)
{
    return vreinterpretq_f32_u8(vld1q_u8(row + 4 * i));
}

static inline float32x4_t load4_f16(const unsigned char *row, size_t i)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(row + 2 * i)));
}

/* --- queries ---------------------------------------------------------------------------------- */

typedef struct query {
    const float *q;
    float *out;
    float largest, total;
    float keep;        /* factor for what was added up before this block of rows */
    size_t begin, end; /* rows it sees */
} query;

static size_t init_queries(query *queries, const vti_attention_args *a, size_t first)
{
    size_t count = a->tokens * a->heads - first;
    if (count > QUERIES) count = QUERIES;
    for (size_t i = 0; i < count; i++) {
        size_t t = (first + i) / a->heads, head = (first + i) % a->heads, last = a->position + t;
        query *it = &queries[i];
        it->q = a->q + t * a->q_stride + head * a->head_dim;
        it->out = a->out + t * a->out_stride + head * a->head_dim;
        it->largest = -INFINITY;
        it->total = 0;
        it->begin = a->window && last + 1 > a->window ? last + 1 - a->window : 0;
        if (it->begin < a->kv_begin) it->begin = a->kv_begin;
        it->end = last + 1 < a->kv_end ? last + 1 : a->kv_end;
        memset(it->out, 0, a->head_dim * sizeof *it->out);
    }
    return count;
}

/* --- scores ----------------------------------------------------------------------------------- */

/* scores[q] = q · key of four rows, for n queries (1, 2 or 4). */
ALWAYS_INLINE void dot_rows(float32x4_t scores[], const query *queries,
                            const unsigned char *const keys[4], size_t head_dim, size_t n,
                            load4_fn *load4)
{
    float32x4_t sums[4][4];
    const float *q[4];
    for (size_t i = 0; i < n; i++) {
        q[i] = queries[i].q;
        for (size_t r = 0; r < 4; r++) sums[i][r] = vdupq_n_f32(0);
    }
    const unsigned char *k0 = keys[0], *k1 = keys[1], *k2 = keys[2], *k3 = keys[3];
    for (size_t d = 0; d < head_dim; d += 4) {
        float32x4_t key[4] = {load4(k0, d), load4(k1, d), load4(k2, d), load4(k3, d)};
        for (size_t i = 0; i < n; i++) {
            float32x4_t v = vld1q_f32(q[i] + d);
            for (size_t r = 0; r < 4; r++) sums[i][r] = vfmaq_f32(sums[i][r], v, key[r]);
        }
    }
    for (size_t i = 0; i < n; i++)
        scores[i] = vpaddq_f32(vpaddq_f32(sums[i][0], sums[i][1]),
                               vpaddq_f32(sums[i][2], sums[i][3]));
}

/* Lanes of rows row … row + 3 that the query sees keep their score, the others get -infinity. */
static inline float32x4_t mask_rows(float32x4_t score, const query *it, size_t row)
{
    static const uint32_t steps[4] = {0, 1, 2, 3};
    if (it->begin <= row && row + 4 <= it->end) return score;
    uint32x4_t offset = vld1q_u32(steps);
    /* Both borders relative to `row`; distances beyond a block are all the same. */
    size_t begin = it->begin > row ? it->begin - row : 0, end = it->end > row ? it->end - row : 0;
    uint32x4_t from = vdupq_n_u32(begin < 4 ? (uint32_t)begin : 4);
    uint32x4_t to = vdupq_n_u32(end < 4 ? (uint32_t)end : 4);
    uint32x4_t seen = vandq_u32(vcgeq_u32(offset, from), vcltq_u32(offset, to));
    return vbslq_f32(seen, score, vdupq_n_f32(-INFINITY));
}

/* Scores of one query and ROWS rows → shares e^(score - largest). */
static inline void find_shares(query *it, float32x4_t shares[ROWS / 4])
{
    float32x4_t top = vmaxnmq_f32(vmaxnmq_f32(shares[0], shares[1]),
                                  vmaxnmq_f32(shares[2], shares[3]));
    float largest = vmaxnmvq_f32(top), before = it->largest;
    if (largest < before || isnan(largest)) largest = before;
    /* With nothing seen yet every share is e^-infinity. */
    float reference = largest > -INFINITY ? largest : 0;
    for (size_t r = 0; r < ROWS / 4; r++) shares[r] = vsubq_f32(shares[r], vdupq_n_f32(reference));
    exp_vectors(shares, ROWS / 4);
    float total = vaddvq_f32(vaddq_f32(vaddq_f32(shares[0], shares[1]),
                                       vaddq_f32(shares[2], shares[3])));
    it->keep = 1;
    if (largest > before)
        it->keep = vgetq_lane_f32(exp_f32(vdupq_n_f32(before - reference)), 0);
    it->largest = largest;
    it->total = it->total * it->keep + total;
}

/* Scores of n queries and `rows` rows (1 … ROWS) from `row` on. keys[r]: row r, or the
 * last one again. */
ALWAYS_INLINE void score_tile(query *queries, float32x4_t shares[][ROWS / 4],
                              const unsigned char *const keys[ROWS], size_t row, size_t rows,
                              size_t head_dim, float scale, size_t n, load4_fn *load4)
{
    for (size_t r = 0; r < rows; r += 4) {
        float32x4_t scores[4];
        dot_rows(scores, queries, keys + r, head_dim, n, load4);
        for (size_t i = 0; i < n; i++)
            shares[i][r / 4] = mask_rows(vmulq_n_f32(scores[i], scale), &queries[i], row + r);
    }
    for (size_t r = (rows + 3) / 4; r < ROWS / 4; r++)
        for (size_t i = 0; i < n; i++) shares[i][r] = vdupq_n_f32(-INFINITY);
}

/* --- values ----------------------------------------------------------------------------------- */

/* Elements [d, d + 4 × vectors) of n queries: out = out × keep + Σ share × value. */
ALWAYS_INLINE void add_values(query *queries, float32x4_t shares[][ROWS / 4],
                              const unsigned char *const values[ROWS], size_t rows, size_t d,
                              size_t n, size_t vectors, load4_fn *load4)
{
    float32x4_t sums[4][4];
    for (size_t i = 0; i < n; i++)
        for (size_t v = 0; v < vectors; v++)
            sums[i][v] = vmulq_n_f32(vld1q_f32(queries[i].out + d + 4 * v), queries[i].keep);
    for (size_t r = 0; r < rows; r += 4) {
        float32x4_t share[4];
        for (size_t i = 0; i < n; i++) share[i] = shares[i][r / 4];
#define ROW(lane)                                                                                  \
    for (size_t v = 0; v < vectors; v++) {                                                         \
        float32x4_t value = load4(values[r + lane], d + 4 * v);                                    \
        for (size_t i = 0; i < n; i++)                                                             \
            sums[i][v] = vfmaq_laneq_f32(sums[i][v], value, share[i], lane);                       \
    }
        ROW(0)
        ROW(1)
        ROW(2)
        ROW(3)
#undef ROW
    }
    for (size_t i = 0; i < n; i++)
        for (size_t v = 0; v < vectors; v++) vst1q_f32(queries[i].out + d + 4 * v, sums[i][v]);
}

ALWAYS_INLINE void value_tile(query *queries, float32x4_t shares[][ROWS / 4],
                              const unsigned char *const values[ROWS], size_t rows,
                              size_t head_dim, size_t n, load4_fn *load4)
{
    size_t d = 0;
    for (; d + 16 <= head_dim; d += 16)
        add_values(queries, shares, values, rows, d, n, 4, load4);
    for (; d < head_dim; d += 4) add_values(queries, shares, values, rows, d, n, 1, load4);
}

/* --- all -------------------------------------------------------------------------------------- */

/* All queries in tiles of 4, 2 and 1, one function for each element type. Not inlined: what other
 * loops keep in registers would push out the sums. */
#define TILES(name, load4)                                                                         \
    static __attribute__((noinline)) void score_##name(                                            \
        query *queries, size_t count, float32x4_t shares[][ROWS / 4],                              \
        const unsigned char *const keys[ROWS], size_t row, size_t rows, size_t head_dim,           \
        float scale)                                                                               \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 4 <= count; i += 4)                                                             \
            score_tile(queries + i, shares + i, keys, row, rows, head_dim, scale, 4, load4);       \
        for (; i + 2 <= count; i += 2)                                                             \
            score_tile(queries + i, shares + i, keys, row, rows, head_dim, scale, 2, load4);       \
        if (i < count)                                                                             \
            score_tile(queries + i, shares + i, keys, row, rows, head_dim, scale, 1, load4);       \
    }                                                                                              \
    static __attribute__((noinline)) void add_##name(                                              \
        query *queries, size_t count, float32x4_t shares[][ROWS / 4],                              \
        const unsigned char *const values[ROWS], size_t rows, size_t head_dim)                     \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 4 <= count; i += 4)                                                             \
            value_tile(queries + i, shares + i, values, rows, head_dim, 4, load4);                 \
        for (; i + 2 <= count; i += 2)                                                             \
            value_tile(queries + i, shares + i, values, rows, head_dim, 2, load4);                 \
        if (i < count) value_tile(queries + i, shares + i, values, rows, head_dim, 1, load4);      \
    }

TILES(f32, load4_f32)
TILES(f16, load4_f16)

/* Where rows row … row + ROWS - 1 lie as floats, the last of `rows` again where there are fewer.
 * `load` NULL: in the cache, as they are. */
ALWAYS_INLINE void find_rows(const unsigned char *at[ROWS], float *buffer, const void *cache,
                             size_t row_bytes, size_t row, size_t rows, size_t head_dim,
                             load_fn *load)
{
    const unsigned char *from = (const unsigned char *)cache + row * row_bytes;
    for (size_t r = 0; r < rows && load; r++)
        load(buffer + r * head_dim, from + r * row_bytes, head_dim);
    if (load) from = (const void *)buffer;
    size_t stride = load ? head_dim * sizeof(float) : row_bytes;
    for (size_t r = 0; r < ROWS; r++) at[r] = from + (r < rows ? r : rows - 1) * stride;
}

/* Half-precision rows of a few queries are converted where they are used. */
ALWAYS_INLINE void attend_block(query *queries, size_t count, const vti_attention_args *a,
                                size_t row_bytes, size_t row, size_t rows, float *buffer,
                                load_fn *load)
{
    float32x4_t shares[QUERIES][ROWS / 4];
    const unsigned char *at[ROWS];
    bool direct = load == load_f16 && count <= 4;
    if (direct) load = NULL;
    find_rows(at, buffer, a->k, row_bytes, row, rows, a->head_dim, load);
    (direct ? score_f16 : score_f32)(queries, count, shares, at, row, rows, a->head_dim, a->scale);
    for (size_t i = 0; i < count; i++) find_shares(&queries[i], shares[i]);
    find_rows(at, buffer, a->v, row_bytes, row, rows, a->head_dim, load);
    (direct ? add_f16 : add_f32)(queries, count, shares, at, rows, a->head_dim);
}

/* What a query has added up → its result, or its part of it. */
static void finish(const query *it, const vti_attention_args *a, size_t index)
{
    if (a->parts) {
        a->parts[2 * index] = it->largest;
        a->parts[2 * index + 1] = it->total;
        return;
    }
    for (size_t d = 0; d < a->head_dim; d += 4)
        vst1q_f32(it->out + d, vdivq_f32(vld1q_f32(it->out + d), vdupq_n_f32(it->total)));
}

ALWAYS_INLINE void attend(const vti_attention_args *a, size_t row_bytes, load_fn *load)
{
    float buffer[ROWS * MOST_DIM];
    query queries[QUERIES];
    for (size_t first = 0; first < a->tokens * a->heads; first += QUERIES) {
        size_t count = init_queries(queries, a, first), begin = queries[0].begin;
        size_t end = queries[count - 1].end; /* of the last token among them: the largest */
        for (size_t row = begin; row < end; row += ROWS)
            attend_block(queries, count, a, row_bytes, row, end - row < ROWS ? end - row : ROWS,
                         buffer, load);
        for (size_t i = 0; i < count; i++) finish(&queries[i], a, first + i);
    }
}

static bool is_usual(const vti_attention_args *a)
{
    return a->head_dim % 4 == 0 && a->head_dim <= MOST_DIM;
}

static void attention_f32(const vti_attention_args *a)
{
    if (is_usual(a))
        attend(a, a->head_dim * sizeof(float), NULL);
    else
        vti_attention_f32_scalar(a);
}

static void attention_f16(const vti_attention_args *a)
{
    if (is_usual(a))
        attend(a, a->head_dim * 2, load_f16);
    else
        vti_attention_f16_scalar(a);
}

static void attention_q8(const vti_attention_args *a)
{
    if (is_usual(a))
        attend(a, a->head_dim + 2 * q8_blocks(a->head_dim), load_q8);
    else
        vti_attention_q8_scalar(a);
}

static void attention_merge(float *out, const float *partial, size_t partial_stride,
                            const float *parts, size_t parts_stride, size_t count, size_t head_dim)
{
    float largest = -INFINITY, total = 0;
    for (size_t i = 0; i < count; i++)
        if (parts[i * parts_stride] > largest) largest = parts[i * parts_stride];
    for (size_t i = 0; i < count; i++) {
        float m = parts[i * parts_stride], share = m > -INFINITY ? expf(m - largest) : 0;
        const float *from = partial + i * partial_stride;
        size_t d = 0;
        total += parts[i * parts_stride + 1] * share;
        for (; d + 4 <= head_dim; d += 4) {
            float32x4_t before = i ? vld1q_f32(out + d) : vdupq_n_f32(0);
            vst1q_f32(out + d, vfmaq_n_f32(before, vld1q_f32(from + d), share));
        }
        for (; d < head_dim; d++) out[d] = (i ? out[d] : 0) + from[d] * share;
    }
    size_t d = 0;
    for (; d + 4 <= head_dim; d += 4)
        vst1q_f32(out + d, vdivq_f32(vld1q_f32(out + d), vdupq_n_f32(total)));
    for (; d < head_dim; d++) out[d] /= total;
}

void vti_kernels_init_attention_neon(vti_kernels *kernels)
{
    kernels->kv[VTI_KV_F16].store = store_f16;
    kernels->kv[VTI_KV_Q8].store = store_q8;
    kernels->kv[VTI_KV_F32].attention = attention_f32;
    kernels->kv[VTI_KV_F16].attention = attention_f16;
    kernels->kv[VTI_KV_Q8].attention = attention_q8;
    kernels->attention_merge = attention_merge;
}
