/* attention_kernels.h: rows of the KV cache and attention over them, in terms of simd_*.h.
 *
 * A query is one head of one token. TILE rows of keys are converted to floats once and transposed,
 * so that a lane is a row: the scores of a query are then a chain of multiply-adds without sums
 * across lanes. The rows of values are converted once too. Both serve all queries of the call: the
 * heads that share the KV head, and all tokens. Softmax is online: each query keeps its largest
 * score and its sum, and what it has added up so far is scaled down when a larger score comes. */
#include <math.h>
#include <string.h>

#include "../layout.h"
#include "../scalar.h"
#include "exp.h"

enum {
    TILE = 32,               /* rows */
    TILE_VECTORS = TILE / LANES,
    MOST_DIM = 256,          /* head_dim; the scalar version does wider ones */
    MOST_QUERIES = 128,      /* at once */
    SCORE_QUERIES = REGISTERS / 4 / TILE_VECTORS * 2, /* queries whose scores are summed together */
    VALUE_VECTORS = 4,       /* of an output row that are summed together … */
    VALUE_QUERIES = REGISTERS / 8, /* … for so many queries */
};

/* What one tile needs. */
typedef struct tile_state {
    _Alignas(64) float keys[MOST_DIM][TILE];   /* transposed */
    _Alignas(64) float values[TILE][MOST_DIM]; /* padded with zeros to whole vectors */
    _Alignas(64) float scores[MOST_QUERIES + SCORE_QUERIES][TILE];
    float keep[MOST_QUERIES]; /* factor for what was summed before */
    float largest[MOST_QUERIES];
    float total[MOST_QUERIES];
} tile_state;

typedef struct queries {
    const vti_attention_args *args;
    size_t first, count; /* of tokens × heads, token by token */
} queries;

static inline const float *query_at(const queries *q, size_t i)
{
    const vti_attention_args *a = q->args;
    i += q->first;
    return a->q + i / a->heads * a->q_stride + i % a->heads * a->head_dim;
}

static inline float *out_at(const queries *q, size_t i)
{
    const vti_attention_args *a = q->args;
    i += q->first;
    return a->out + i / a->heads * a->out_stride + i % a->heads * a->head_dim;
}

/* Rows [*begin, *end) that query i sees. */
static inline void visible(const queries *q, size_t i, size_t *begin, size_t *end)
{
    const vti_attention_args *a = q->args;
    size_t last = a->position + (q->first + i) / a->heads;
    *begin = a->window && last + 1 > a->window ? last + 1 - a->window : 0;
    if (*begin < a->kv_begin) *begin = a->kv_begin;
    *end = last + 1 < a->kv_end ? last + 1 : a->kv_end;
}

/* --- rows of the cache ------------------------------------------------------------------------ */

/* Elements [i, i + n) of a row, n <= LANES, the others 0. i is a multiple of LANES. */
typedef vf load_fn(const unsigned char *row, size_t head_dim, size_t i, size_t n);

static inline vf load_f32(const unsigned char *row, size_t head_dim, size_t i, size_t n)
{
    (void)head_dim;
    const float *at = (const float *)(const void *)row + i;
    return n < LANES ? vf_load_n(at, n) : vf_load(at);
}

static inline vf load_f16(const unsigned char *row, size_t head_dim, size_t i, size_t n)
{
    (void)head_dim;
    return n < LANES ? vf_load_f16_n(row + 2 * i, n) : vf_load_f16(row + 2 * i);
}

static inline vf load_q8(const unsigned char *row, size_t head_dim, size_t i, size_t n)
{
    const unsigned char *q = row + (head_dim + VTI_Q8_BLOCK - 1) / VTI_Q8_BLOCK * 2 + i;
    vf scale = vf_broadcast_f16(row + i / VTI_Q8_BLOCK * 2);
    return vf_mul(scale, n < LANES ? vf_load_i8_n(q, n) : vf_load_i8(q));
}

/* `count` rows from row j on; the keys of rows beyond are zero, the values of columns beyond
 * head_dim too. */
static inline __attribute__((always_inline)) void
load_tile(tile_state *s, const vti_attention_args *a, size_t row_bytes, load_fn *load, size_t j,
          size_t count)
{
    const unsigned char *k = (const unsigned char *)a->k + j * row_bytes;
    const unsigned char *v = (const unsigned char *)a->v + j * row_bytes;
    for (size_t i = 0; i < a->head_dim; i += LANES) {
        size_t n = a->head_dim - i < LANES ? a->head_dim - i : LANES;
        for (size_t first = 0; first < count; first += LANES) {
            vf block[LANES];
            for (size_t r = 0; r < LANES; r++)
                block[r] = first + r < count ? load(k + (first + r) * row_bytes, a->head_dim, i, n)
                                             : vf_zero();
            vf_transpose(block);
            for (size_t c = 0; c < n; c++) vf_store(&s->keys[i + c][first], block[c]);
        }
        for (size_t r = 0; r < count; r++)
            vf_store(&s->values[r][i], load(v + r * row_bytes, a->head_dim, i, n));
    }
}

/* --- scores ----------------------------------------------------------------------------------- */

/* Scores of `count` queries from query i on, a constant where this is inlined. What goes beyond the
 * last query computes some other's once more, to no effect. */
static inline __attribute__((always_inline)) void
score_block(tile_state *s, const queries *q, size_t i, size_t count)
{
    size_t head_dim = q->args->head_dim;
    const float *query[SCORE_QUERIES];
    vf sums[SCORE_QUERIES][TILE_VECTORS];
#pragma GCC unroll 8
    for (size_t n = 0; n < count; n++) {
        query[n] = query_at(q, i + n < q->count ? i + n : i);
#pragma GCC unroll 4
        for (size_t v = 0; v < TILE_VECTORS; v++) sums[n][v] = vf_zero();
    }
    for (size_t d = 0; d < head_dim; d++) {
#pragma GCC unroll 8
        for (size_t n = 0; n < count; n++) {
            vf value = vf_set1(query[n][d]);
#pragma GCC unroll 4
            for (size_t v = 0; v < TILE_VECTORS; v++)
                sums[n][v] = vf_fma(vf_load(&s->keys[d][v * LANES]), value, sums[n][v]);
        }
    }
    vf scale = vf_set1(q->args->scale);
#pragma GCC unroll 8
    for (size_t n = 0; n < count; n++)
#pragma GCC unroll 4
        for (size_t v = 0; v < TILE_VECTORS; v++)
            vf_store(&s->scores[i + n][v * LANES], vf_mul(sums[n][v], scale));
}

/* The scores become weights exp(score - largest); 0 for rows that the query does not see. */
static inline void weigh(tile_state *s, const queries *q, size_t i, size_t j)
{
    size_t begin, end;
    visible(q, i, &begin, &end);
    size_t from = begin > j ? begin - j : 0, to = end > j ? end - j : 0;
    if (from > TILE) from = TILE;
    if (to > TILE) to = TILE;
    float *scores = s->scores[i];
    for (size_t r = 0; r < from; r++) scores[r] = -INFINITY;
    for (size_t r = to; r < TILE; r++) scores[r] = -INFINITY;
    s->keep[i] = 1;
    if (from >= to) {
        for (size_t r = 0; r < TILE; r++) scores[r] = 0;
        return;
    }
    vf top = vf_load(scores);
    for (size_t v = 1; v < TILE_VECTORS; v++) top = vf_max(vf_load(scores + v * LANES), top);
    float largest = vf_largest(top);
    if (largest > s->largest[i]) {
        s->keep[i] = expf(s->largest[i] - largest);
        s->largest[i] = largest;
    }
    vf reference = vf_set1(s->largest[i]), total = vf_zero();
    for (size_t v = 0; v < TILE_VECTORS; v++) {
        vf weight = vf_exp(vf_sub(vf_load(scores + v * LANES), reference));
        vf_store(scores + v * LANES, weight);
        total = vf_add(total, weight);
    }
    s->total[i] = s->total[i] * s->keep[i] + vf_sum(total);
}

/* --- values ----------------------------------------------------------------------------------- */

/* out = out × keep + Σ weight × value over `rows` rows, for columns [c, c + VALUE_VECTORS × LANES)
 * (fewer at the end of the row) of `count` queries, a constant where this is inlined. */
static inline __attribute__((always_inline)) void
value_block(tile_state *s, const queries *q, size_t i, size_t c, size_t rows, size_t count)
{
    vf sums[VALUE_QUERIES][VALUE_VECTORS];
    size_t head_dim = q->args->head_dim;
#pragma GCC unroll 8
    for (size_t n = 0; n < count; n++) {
        const float *out = out_at(q, i + n) + c;
        vf keep = vf_set1(s->keep[i + n]);
#pragma GCC unroll 4
        for (size_t v = 0; v < VALUE_VECTORS; v++) {
            size_t at = c + v * LANES, left = at < head_dim ? head_dim - at : 0;
            vf old = left >= LANES ? vf_load(out + v * LANES)
                                   : left ? vf_load_n(out + v * LANES, left) : vf_zero();
            sums[n][v] = vf_mul(old, keep);
        }
    }
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (size_t n = 0; n < count; n++) {
            vf weight = vf_set1(s->scores[i + n][r]);
#pragma GCC unroll 4
            for (size_t v = 0; v < VALUE_VECTORS; v++)
                sums[n][v] = vf_fma(vf_load(&s->values[r][c + v * LANES]), weight, sums[n][v]);
        }
    }
#pragma GCC unroll 8
    for (size_t n = 0; n < count; n++) {
        float *out = out_at(q, i + n) + c;
#pragma GCC unroll 4
        for (size_t v = 0; v < VALUE_VECTORS; v++) {
            size_t at = c + v * LANES, left = at < head_dim ? head_dim - at : 0;
            if (left >= LANES)
                vf_store(out + v * LANES, sums[n][v]);
            else if (left)
                vf_store_n(out + v * LANES, sums[n][v], left);
        }
    }
}

/* --- all -------------------------------------------------------------------------------------- */

static void score_tile(tile_state *s, const queries *q, size_t first, size_t j)
{
    size_t i = first, left = q->count - first;
    for (; left > SCORE_QUERIES / 2; i += SCORE_QUERIES) {
        score_block(s, q, i, SCORE_QUERIES);
        left -= left < SCORE_QUERIES ? left : SCORE_QUERIES;
    }
    if (left > 1)
        score_block(s, q, i, SCORE_QUERIES / 2);
    else if (left)
        score_block(s, q, i, 1);
    for (i = first; i < q->count; i++) weigh(s, q, i, j);
}

static void value_tile(tile_state *s, const queries *q, size_t first, size_t rows)
{
    for (size_t c = 0; c < q->args->head_dim; c += VALUE_VECTORS * LANES) {
        size_t i = first;
        for (; i + VALUE_QUERIES <= q->count; i += VALUE_QUERIES)
            value_block(s, q, i, c, rows, VALUE_QUERIES);
        if (i + VALUE_QUERIES / 2 <= q->count) {
            value_block(s, q, i, c, rows, VALUE_QUERIES / 2);
            i += VALUE_QUERIES / 2;
        }
        for (; i < q->count; i++) value_block(s, q, i, c, rows, 1);
    }
}

static void begin_queries(tile_state *s, const queries *q)
{
    for (size_t i = 0; i < q->count; i++) {
        memset(out_at(q, i), 0, q->args->head_dim * sizeof(float));
        s->largest[i] = -INFINITY;
        s->total[i] = 0;
    }
}

static void end_queries(const tile_state *s, const queries *q)
{
    const vti_attention_args *a = q->args;
    for (size_t i = 0; i < q->count; i++) {
        if (a->parts) {
            a->parts[(q->first + i) * 2] = s->largest[i];
            a->parts[(q->first + i) * 2 + 1] = s->total[i];
            continue;
        }
        float *out = out_at(q, i), factor = 1.0f / s->total[i];
        for (size_t d = 0; d < a->head_dim; d++) out[d] *= factor;
    }
}

/* Tiles are aligned to row 0, so that a query's sums do not depend on the other tokens'. */
static inline __attribute__((always_inline)) void
attend_queries(tile_state *s, const queries *q, size_t row_bytes, load_fn *load)
{
    const vti_attention_args *a = q->args;
    size_t begin, end, unused;
    visible(q, 0, &begin, &unused);
    visible(q, q->count - 1, &unused, &end);
    begin_queries(s, q);
    for (size_t j = begin / TILE * TILE; j < end; j += TILE) {
        size_t rows = end - j < TILE ? end - j : TILE, first = 0;
        /* Queries of tokens before row j see nothing of it. */
        if (j > a->position) {
            size_t hidden = (j - a->position) * a->heads;
            first = hidden > q->first ? hidden - q->first : 0;
        }
        load_tile(s, a, row_bytes, load, j, rows);
        score_tile(s, q, first, j);
        value_tile(s, q, first, rows);
    }
    end_queries(s, q);
}

static inline __attribute__((always_inline)) void
attend(const vti_attention_args *a, size_t row_bytes, load_fn *load)
{
    tile_state state;
    size_t count = a->tokens * a->heads;
    for (size_t first = 0; first < count; first += MOST_QUERIES) {
        queries q = {a, first, count - first < MOST_QUERIES ? count - first : MOST_QUERIES};
        attend_queries(&state, &q, row_bytes, load);
    }
}

static void attention_f32(const vti_attention_args *a)
{
    if (a->head_dim > MOST_DIM)
        vti_attention_f32_scalar(a);
    else
        attend(a, a->head_dim * 4, load_f32);
}

static void attention_f16(const vti_attention_args *a)
{
    if (a->head_dim > MOST_DIM)
        vti_attention_f16_scalar(a);
    else
        attend(a, a->head_dim * 2, load_f16);
}

static void attention_q8(const vti_attention_args *a)
{
    size_t blocks = (a->head_dim + VTI_Q8_BLOCK - 1) / VTI_Q8_BLOCK;
    if (a->head_dim > MOST_DIM)
        vti_attention_q8_scalar(a);
    else
        attend(a, blocks * 2 + a->head_dim, load_q8);
}

/* --- storing rows ----------------------------------------------------------------------------- */

static void store_f16(void *row, const float *x, size_t head_dim)
{
    unsigned char *to = row;
    size_t i = 0;
    for (; i + LANES <= head_dim; i += LANES) vf_store_f16(to + 2 * i, vf_load(x + i));
    if (i < head_dim)
        vf_store_f16_n(to + 2 * i, vf_load_n(x + i, head_dim - i), head_dim - i);
}

static inline void init_attention(vti_kernels *kernels)
{
    kernels->kv[VTI_KV_F32].attention = attention_f32;
    kernels->kv[VTI_KV_F16].attention = attention_f16;
    kernels->kv[VTI_KV_Q8].attention = attention_q8;
    kernels->kv[VTI_KV_F16].store = store_f16;
}
