/* attention.c: ATTN(l) of every family: grouped heads, biases, norms of queries and keys, sliding
 * windows. */
#include <string.h>

#include "stage_internal.h"

enum {
    ATTENTION_TOKENS = 16,        /* query tokens of one piece of attention in a prefill */
    LEAST_ATTENTION_BYTES = 16384 /* keys and values that a thread should get at least */
};

/* Where a shard's first query and KV head begin among those of all. */
typedef struct shard_rows {
    size_t q, kv;
} shard_rows;

static shard_rows rows_of(const vti_block *b, uint32_t shard)
{
    const vti_geometry *g = b->s->p.geometry;
    size_t kv = (size_t)shard * g->shard_kv_heads * g->hparams.head_dim;
    return (shard_rows){kv * (g->hparams.heads / g->hparams.kv_heads), kv};
}

/* --- queries, keys and values ---------------------------------------------------------------- */

static void add_bias(const vti_block *b, float *y, const vti_tensor *bias)
{
    if (bias->rows) b->s->p.kernels->add(y, bias->data, bias->cols);
}

/* One token's, of all shards. */
static void add_biases(const vti_block *b, float *q, float *k, float *v)
{
    for (uint32_t i = 0; i < b->unit.shards; i++) {
        const vti_shard *shard = b->unit.shard[i];
        if (!shard) continue;
        shard_rows at = rows_of(b, i);
        add_bias(b, q + at.q, &shard->tensor[VTI_PIECE_Q_BIAS]);
        add_bias(b, k + at.kv, &shard->tensor[VTI_PIECE_K_BIAS]);
        add_bias(b, v + at.kv, &shard->tensor[VTI_PIECE_V_BIAS]);
    }
}

/* Every head of x by itself. */
static void norm_heads(const vti_block *b, float *x, uint32_t heads, const vti_tensor *weight)
{
    const vti_hparams *p = &b->s->p.geometry->hparams;
    float normed[VTI_MAX_HEAD_DIM];
    if (!weight->rows) return;
    for (uint32_t head = 0; head < heads; head++, x += p->head_dim) {
        b->s->p.kernels->rms_norm(normed, x, weight->data, p->head_dim, p->rms_eps);
        memcpy(x, normed, p->head_dim * sizeof *x);
    }
}

/* Biases, norms, rotation, and keys and values into the cache. */
static void finish_qkv(void *context, size_t begin, size_t end)
{
    const vti_block *b = context;
    vti_stage *s = b->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    vti_rope_fn *rotate = s->family->rope_interleaved ? s->p.kernels->rope_interleaved
                                                      : s->p.kernels->rope_half;
    const vti_rope *rope = b->local ? &s->local_rope : &s->rope;
    for (size_t t = begin; t < end; t++) {
        const float *cos_sin = rope->cos_sin + t * p->rope_dims;
        float *q = s->q + t * p->heads * p->head_dim;
        float *k = s->k + t * p->kv_heads * p->head_dim, *v = s->v + t * p->kv_heads * p->head_dim;
        add_biases(b, q, k, v);
        norm_heads(b, q, p->heads, vti_block_tensor(b, VTI_PIECE_Q_NORM));
        norm_heads(b, k, p->kv_heads, vti_block_tensor(b, VTI_PIECE_K_NORM));
        rotate(q, cos_sin, p->heads, p->head_dim, p->rope_dims);
        rotate(k, cos_sin, p->kv_heads, p->head_dim, p->rope_dims);
        vti_kv_cache_store(&s->cache, b->layer, b->position + (uint32_t)t, k, v);
    }
}

static void add_qkv(const vti_block *b, vti_linear_input *in)
{
    vti_stage *s = b->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    size_t q_width = (size_t)p->heads * p->head_dim, kv_width = (size_t)p->kv_heads * p->head_dim;
    for (uint32_t i = 0; i < b->unit.shards; i++) {
        const vti_shard *shard = b->unit.shard[i];
        if (!shard) continue;
        shard_rows at = rows_of(b, i);
        vti_batch_product(&s->batch, s->q + at.q, q_width);
        vti_batch_link(&s->batch, &shard->tensor[VTI_PIECE_Q], in);
        vti_batch_product(&s->batch, s->k + at.kv, kv_width);
        vti_batch_link(&s->batch, &shard->tensor[VTI_PIECE_K], in);
        vti_batch_product(&s->batch, s->v + at.kv, kv_width);
        vti_batch_link(&s->batch, &shard->tensor[VTI_PIECE_V], in);
    }
}

/* --- scores and values ----------------------------------------------------------------------- */

/* Where a KV head's group of query heads begins in `mix`: in its shard's slice. */
static size_t mix_column(const vti_block *b, uint32_t kv_head)
{
    const vti_geometry *g = b->s->p.geometry;
    const vti_hparams *p = &g->hparams;
    size_t group = (size_t)p->heads / p->kv_heads * p->head_dim;
    return (size_t)(kv_head / g->shard_kv_heads) * vti_mix_slice(g) +
           kv_head % g->shard_kv_heads * group;
}

/* First position that the token at `position` sees. */
static uint32_t first_seen(const vti_block *b, uint32_t position)
{
    uint32_t window = b->local ? b->s->p.geometry->hparams.window : 0;
    return window && position >= window ? position - window + 1 : 0;
}

/* Operands for one KV head and `tokens` tokens from `first` of the step on. Rows are counted
 * from the first that any of them sees: results do not depend on what else the cache still has.
 * Causal: the token at position p sees positions up to p. */
static vti_attention_args attention_args(const vti_block *b, uint32_t kv_head, uint32_t first,
                                         uint32_t tokens)
{
    const vti_stage *s = b->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    size_t group = p->heads / p->kv_heads, width = (size_t)p->heads * p->head_dim;
    size_t mix_width = vti_mix_width(s->p.geometry);
    uint32_t position = b->position + first, seen = first_seen(b, position);
    return (vti_attention_args){
        .out = s->mix + first * mix_width + mix_column(b, kv_head),
        .out_stride = mix_width,
        .q = s->q + first * width + kv_head * group * p->head_dim,
        .q_stride = width,
        .tokens = tokens,
        .heads = group,
        .head_dim = p->head_dim,
        .k = vti_kv_cache_rows(&s->cache, b->layer, VTI_KV_KEYS, kv_head, seen),
        .v = vti_kv_cache_rows(&s->cache, b->layer, VTI_KV_VALUES, kv_head, seen),
        .position = position - seen,
        .window = b->local ? p->window : 0,
        .kv_end = position + tokens - seen,
        .scale = p->attention_scale,
    };
}

/* False: nothing is made of what it would attend to. */
static bool is_here(const vti_block *b, size_t kv_head)
{
    return b->unit.shard[kv_head / b->s->p.geometry->shard_kv_heads] != NULL;
}

/* Unit: one KV head and up to ATTENTION_TOKENS tokens. */
static void attend_tokens(void *context, size_t begin, size_t end)
{
    const vti_block *b = context;
    uint32_t kv_heads = b->s->p.geometry->hparams.kv_heads;
    for (size_t unit = begin; unit < end; unit++) {
        uint32_t first = (uint32_t)(unit / kv_heads) * ATTENTION_TOKENS, left = b->tokens - first;
        if (!is_here(b, unit % kv_heads)) continue;
        vti_attention_args args =
            attention_args(b, (uint32_t)(unit % kv_heads), first,
                           left < ATTENTION_TOKENS ? left : ATTENTION_TOKENS);
        b->s->cache.kernel->attention(&args);
    }
}

/* Unit: one KV head and one part of the positions; the results go to s->partial. */
static void attend_parts(void *context, size_t begin, size_t end)
{
    const vti_block *b = context;
    const vti_stage *s = b->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    size_t width = (size_t)p->heads * p->head_dim, seen = first_seen(b, b->position);
    for (size_t unit = begin; unit < end; unit++) {
        size_t part = unit / p->kv_heads, kv_head = unit % p->kv_heads;
        if (!is_here(b, kv_head)) continue;
        vti_attention_args args = attention_args(b, (uint32_t)kv_head, 0, 1);
        size_t first = (seen / VTI_ATTENTION_PART + part) * VTI_ATTENTION_PART;
        size_t last = first + VTI_ATTENTION_PART - seen;
        args.out = s->partial + part * width + kv_head * args.heads * args.head_dim;
        args.parts = s->part_sums + (part * p->heads + kv_head * args.heads) * 2;
        args.kv_begin = first > seen ? first - seen : 0;
        if (last < args.kv_end) args.kv_end = last;
        s->cache.kernel->attention(&args);
    }
}

static void merge_parts(const vti_block *b, size_t parts)
{
    const vti_stage *s = b->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    size_t width = (size_t)p->heads * p->head_dim;
    uint32_t group = p->heads / p->kv_heads;
    for (uint32_t head = 0; head < p->heads; head++) {
        if (!is_here(b, head / group)) continue;
        float *out = s->mix + mix_column(b, head / group) + (size_t)(head % group) * p->head_dim;
        s->p.kernels->attention_merge(out, s->partial + (size_t)head * p->head_dim, width,
                                      s->part_sums + (size_t)head * 2, (size_t)p->heads * 2, parts,
                                      p->head_dim);
    }
}

static void attend(vti_block *b)
{
    vti_stage *s = b->s;
    size_t kv_heads = s->p.geometry->hparams.kv_heads, end = b->position + b->tokens;
    size_t seen = first_seen(b, b->position);
    size_t parts = vti_attention_parts(end) - seen / VTI_ATTENTION_PART;
    if (b->tokens == 1 && parts > 1) {
        vti_pool_run(s->p.pool, kv_heads * parts, 1, attend_parts, b);
        merge_parts(b, parts);
        return;
    }
    size_t blocks = (b->tokens + ATTENTION_TOKENS - 1) / ATTENTION_TOKENS;
    size_t unit_bytes = 2 * (end - seen) * s->cache.row_bytes;
    vti_pool_run(s->p.pool, kv_heads * blocks, LEAST_ATTENTION_BYTES / unit_bytes + 1,
                 attend_tokens, b);
}

/* Adds the products of Wo's columns with the shards' slices of `mix`. */
static void add_out(const vti_block *b)
{
    vti_stage *s = b->s;
    const vti_geometry *g = s->p.geometry;
    uint32_t slice = vti_mix_slice(g), stride = vti_mix_width(g);
    vti_batch_product(&s->batch, s->out, g->hparams.d);
    for (uint32_t i = 0; i < b->unit.shards; i++) {
        const vti_shard *shard = b->unit.shard[i];
        uint32_t col = i * slice;
        for (unsigned j = VTI_PIECE_OUT; shard && j <= VTI_PIECE_OUT_REST; j++) {
            const vti_tensor *w = &shard->tensor[j];
            if (!w->rows) continue;
            vti_batch_link(&s->batch, w, vti_block_input(b, VTI_ATTN_OUT, 0, s->mix, stride,
                                                         b->tokens, col, w->cols));
            col += w->cols;
        }
    }
    vti_end_sum(b, s->out);
}

/* ATTN(l): h += Wo · attention(RoPE(norm(Wq x + bq)), RoPE(norm(Wk x + bk)), Wv x + bv),
 * x = RMSNorm(h) */
void vti_attention_unit(vti_block *b)
{
    vti_stage *s = b->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    add_qkv(b, vti_norm_input(b, VTI_ATTN_Q));
    vti_batch_run(&s->batch, s->p.pool);
    vti_for_tokens(b, (size_t)p->heads * p->head_dim, finish_qkv, b);
    attend(b);
    vti_batch_begin(&s->batch);
    add_out(b);
    vti_batch_run(&s->batch, s->p.pool);
    vti_add_output(b);
}
