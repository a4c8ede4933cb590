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
    TILE = 4 * LANES,        /* rows */
    TILE_VECTORS = TILE / LANES,
    MOST_DIM = 256,          /* head_dim; the scalar version does wider ones */
    MOST_QUERIES = 128,      /* at once */
    SCORE_QUERIES = REGISTERS * 3 / 4 / TILE_VECTORS, /* queries whose scores are summed together */
    VALUE_VECTORS = 4,       /* of an output row that are summed together … */
    VALUE_QUERIES = REGISTERS / 8, /* … for so many queries */
};

/* Queries of a call that are done together, and what one tile needs of them. */
typedef struct attention_state {
    const vti_attention_args *args;
    size_t count;
    const float *query[MOST_QUERIES + SCORE_QUERIES]; /* padded with copies of the last */
    float *out[MOST_QUERIES];
    size_t begin[MOST_QUERIES], end[MOST_QUERIES]; /* rows that it sees */
    float largest[MOST_QUERIES], total[MOST_QUERIES];
    float keep[MOST_QUERIES]; /* this tile's factor for what was summed before */
    _Alignas(64) float scores[MOST_QUERIES + SCORE_QUERIES][TILE];
    _Alignas(64) float keys[MOST_DIM][TILE];   /* transposed */
    _Alignas(64) float values[TILE][MOST_DIM]; /* padded with zeros to whole vectors */
} attention_state;

/* Rows that the token sees. */
static inline void see(attention_state *s, size_t i, size_t token)
{
    const vti_attention_args *a = s->args;
    size_t last = a->position + token;
    s->begin[i] = a->window && last + 1 > a->window ? last + 1 - a->window : 0;
    if (s->begin[i] < a->kv_begin) s->begin[i] = a->kv_begin;
    s->end[i] = last + 1 < a->kv_end ? last + 1 : a->kv_end;
}

/* Up to MOST_QUERIES of the tokens × heads, token by token, from number `first` on. */
static void begin_queries(attention_state *s, const vti_attention_args *a, size_t first)
{
    size_t all = a->tokens * a->heads, token = first / a->heads, head = first % a->heads;
    s->args = a;
    s->count = all - first < MOST_QUERIES ? all - first : MOST_QUERIES;
    for (size_t i = 0; i < s->count; i++) {
        s->query[i] = a->q + token * a->q_stride + head * a->head_dim;
        s->out[i] = a->out + token * a->out_stride + head * a->head_dim;
        memset(s->out[i], 0, a->head_dim * sizeof(float));
        s->largest[i] = -INFINITY;
        s->total[i] = 0;
        see(s, i, token);
        if (++head == a->heads) {
            head = 0;
            token++;
        }
    }
    for (size_t i = 0; i < SCORE_QUERIES; i++) s->query[s->count + i] = s->query[s->count - 1];
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
load_tile(attention_state *s, size_t row_bytes, load_fn *load, size_t j, size_t count)
{
    size_t head_dim = s->args->head_dim;
    const unsigned char *k = (const unsigned char *)s->args->k + j * row_bytes;
    const unsigned char *v = (const unsigned char *)s->args->v + j * row_bytes;
    for (size_t i = 0; i < head_dim; i += LANES) {
        size_t n = head_dim - i < LANES ? head_dim - i : LANES;
        for (size_t first = 0; first < TILE; first += LANES) {
            vf block[LANES];
            for (size_t r = 0; r < LANES; r++)
                block[r] = first + r < count ? load(k + (first + r) * row_bytes, head_dim, i, n)
                                             : vf_zero();
            vf_transpose(block);
            for (size_t c = 0; c < n; c++) vf_store(&s->keys[i + c][first], block[c]);
        }
        for (size_t r = 0; r < count; r++)
            vf_store(&s->values[r][i], load(v + r * row_bytes, head_dim, i, n));
    }
}

/* --- scores ----------------------------------------------------------------------------------- */

/* Scores of `count` queries from query i on, a constant where this is inlined. What goes beyond the
 * last query computes it once more, to no effect. */
static inline __attribute__((always_inline)) void
score_block(attention_state *s, size_t i, size_t count)
{
    const float *const *query = s->query + i;
    size_t head_dim = s->args->head_dim;
    vf sums[SCORE_QUERIES][TILE_VECTORS];
#pragma GCC unroll 8
    for (size_t n = 0; n < count; n++)
#pragma GCC unroll 4
        for (size_t v = 0; v < TILE_VECTORS; v++) sums[n][v] = vf_zero();
    for (size_t d = 0; d < head_dim; d++) {
#pragma GCC unroll 8
        for (size_t n = 0; n < count; n++) {
            vf value = vf_set1(query[n][d]);
#pragma GCC unroll 4
            for (size_t v = 0; v < TILE_VECTORS; v++)
                sums[n][v] = vf_fma(vf_load(&s->keys[d][v * LANES]), value, sums[n][v]);
        }
    }
    vf scale = vf_set1(s->args->scale);
#pragma GCC unroll 8
    for (size_t n = 0; n < count; n++)
#pragma GCC unroll 4
        for (size_t v = 0; v < TILE_VECTORS; v++)
            vf_store(&s->scores[i + n][v * LANES], vf_mul(sums[n][v], scale));
}

/* Scores of rows that query i does not see, of the tile that begins with row j, become -INFINITY.
 * False if it sees none. */
static inline bool hide(attention_state *s, size_t i, size_t j)
{
    float *scores = s->scores[i];
    if (s->begin[i] <= j && s->end[i] >= j + TILE) return true;
    size_t from = s->begin[i] > j ? s->begin[i] - j : 0, to = s->end[i] > j ? s->end[i] - j : 0;
    if (from > TILE) from = TILE;
    if (to > TILE) to = TILE;
    for (size_t r = 0; r < from; r++) scores[r] = -INFINITY;
    for (size_t r = to; r < TILE; r++) scores[r] = -INFINITY;
    return from < to;
}

/* The scores become weights exp(score - largest), 0 for rows that the query does not see. */
static inline void weigh(attention_state *s, size_t i, size_t j)
{
    vf score[TILE_VECTORS], total = vf_zero();
    s->keep[i] = 1;
    if (!hide(s, i, j)) {
        for (size_t v = 0; v < TILE_VECTORS; v++) vf_store(&s->scores[i][v * LANES], total);
        return;
    }
    vf top = score[0] = vf_load(s->scores[i]);
#pragma GCC unroll 4
    for (size_t v = 1; v < TILE_VECTORS; v++) {
        score[v] = vf_load(&s->scores[i][v * LANES]);
        top = vf_max(score[v], top);
    }
    float largest = vf_largest(top);
    if (largest > s->largest[i]) {
        s->keep[i] = expf(s->largest[i] - largest);
        s->largest[i] = largest;
    }
    vf reference = vf_set1(s->largest[i]);
#pragma GCC unroll 4
    for (size_t v = 0; v < TILE_VECTORS; v++) {
        score[v] = vf_exp(vf_sub(score[v], reference));
        vf_store(&s->scores[i][v * LANES], score[v]);
        total = vf_add(total, score[v]);
    }
    s->total[i] = s->total[i] * s->keep[i] + vf_sum(total);
}

/* --- values ----------------------------------------------------------------------------------- */

/* out = out × keep + Σ weight × value over `rows` rows, for columns [c, c + VALUE_VECTORS × LANES)
 * (fewer at the end of the row) of `count` queries, a constant where this is inlined. */
static inline __attribute__((always_inline)) void
value_block(attention_state *s, size_t i, size_t c, size_t rows, size_t count)
{
    vf sums[VALUE_QUERIES][VALUE_VECTORS];
    size_t left = s->args->head_dim - c;
#pragma GCC unroll 8
    for (size_t n = 0; n < count; n++) {
        const float *out = s->out[i + n] + c;
        vf keep = vf_set1(s->keep[i + n]);
#pragma GCC unroll 4
        for (size_t v = 0; v < VALUE_VECTORS; v++)
            sums[n][v] = vf_mul(load_part(out, left, v), keep);
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
    for (size_t n = 0; n < count; n++)
#pragma GCC unroll 4
        for (size_t v = 0; v < VALUE_VECTORS; v++)
            store_part(s->out[i + n] + c, sums[n][v], left, v);
}

/* --- all -------------------------------------------------------------------------------------- */

static void score_tile(attention_state *s, size_t first, size_t j)
{
    size_t i = first, left = s->count - first;
    for (; left > SCORE_QUERIES / 2; i += SCORE_QUERIES) {
        score_block(s, i, SCORE_QUERIES);
        left -= left < SCORE_QUERIES ? left : SCORE_QUERIES;
    }
    if (left > 1)
        score_block(s, i, SCORE_QUERIES / 2);
    else if (left)
        score_block(s, i, 1);
    for (i = first; i < s->count; i++) weigh(s, i, j);
}

static void value_tile(attention_state *s, size_t first, size_t rows)
{
    for (size_t c = 0; c < s->args->head_dim; c += VALUE_VECTORS * LANES) {
        size_t i = first;
        for (; i + VALUE_QUERIES <= s->count; i += VALUE_QUERIES)
            value_block(s, i, c, rows, VALUE_QUERIES);
        if (i + VALUE_QUERIES / 2 <= s->count) {
            value_block(s, i, c, rows, VALUE_QUERIES / 2);
            i += VALUE_QUERIES / 2;
        }
        for (; i < s->count; i++) value_block(s, i, c, rows, 1);
    }
}

static void end_queries(const attention_state *s, size_t first)
{
    const vti_attention_args *a = s->args;
    for (size_t i = 0; i < s->count; i++) {
        if (a->parts) {
            a->parts[(first + i) * 2] = s->largest[i];
            a->parts[(first + i) * 2 + 1] = s->total[i];
            continue;
        }
        float factor = 1.0f / s->total[i];
        for (size_t d = 0; d < a->head_dim; d++) s->out[i][d] *= factor;
    }
}

/* Tiles are aligned to row 0, so that a query's sums do not depend on the other tokens'. */
static inline __attribute__((always_inline)) void
attend(const vti_attention_args *a, size_t row_bytes, load_fn *load)
{
    attention_state state, *s = &state;
    for (size_t first = 0; first < a->tokens * a->heads; first += MOST_QUERIES) {
        begin_queries(s, a, first);
        size_t end = s->end[s->count - 1], unseeing = 0;
        for (size_t j = s->begin[0] / TILE * TILE; j < end; j += TILE) {
            while (s->end[unseeing] <= j) unseeing++;
            size_t rows = end - j < TILE ? end - j : TILE;
            load_tile(s, row_bytes, load, j, rows);
            score_tile(s, unseeing, j);
            value_tile(s, unseeing, rows);
        }
        end_queries(s, first);
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

static void attention_merge(float *out, const float *partial, size_t partial_stride,
                            const float *parts, size_t parts_stride, size_t count, size_t head_dim)
{
    float largest = -INFINITY, total = 0;
    for (size_t i = 0; i < count; i++)
        if (parts[i * parts_stride] > largest) largest = parts[i * parts_stride];
    for (size_t i = 0; i < count; i++) {
        float m = parts[i * parts_stride], share = m > -INFINITY ? expf(m - largest) : 0;
        total += parts[i * parts_stride + 1] * share;
        for (size_t c = 0; c < head_dim; c += LANES) {
            vf old = i ? load_part(out + c, head_dim - c, 0) : vf_zero();
            vf part = load_part(partial + i * partial_stride + c, head_dim - c, 0);
            store_part(out + c, vf_fma(part, vf_set1(share), old), head_dim - c, 0);
        }
    }
    for (size_t c = 0; c < head_dim; c += LANES) {
        vf sum = load_part(out + c, head_dim - c, 0);
        store_part(out + c, vf_div(sum, vf_set1(total)), head_dim - c, 0);
    }
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
    kernels->attention_merge = attention_merge;
    kernels->kv[VTI_KV_F16].store = store_f16;
}
