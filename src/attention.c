/* attention.c: ATTN(l) of every family: grouped heads, biases, norms of queries and keys, sliding
 * windows. */
#include <string.h>

#include "stage_internal.h"

enum {
    ATTENTION_TOKENS = 16,        /* query tokens of one piece of attention in a prefill */
    LEAST_ATTENTION_BYTES = 16384 /* keys and values that a thread should get at least */
};

/* --- queries, keys and values ---------------------------------------------------------------- */

static void add_bias(const vti_block *b, float *y, const vti_tensor *bias)
{
    if (bias->rows) b->s->p.kernels->add(y, bias->data, bias->cols);
}

/* Every head of x by itself. */
static void norm_heads(const vti_block *b, float *x, uint32_t heads, const vti_tensor *weight)
{
    const vti_hparams *p = b->s->p.hparams;
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
    const vti_hparams *p = s->p.hparams;
    vti_rope_fn *rotate = s->family->rope_interleaved ? s->p.kernels->rope_interleaved
                                                      : s->p.kernels->rope_half;
    const vti_rope *rope = b->local ? &s->local_rope : &s->rope;
    for (size_t t = begin; t < end; t++) {
        const float *cos_sin = rope->cos_sin + t * p->rope_dims;
        float *q = s->q + t * p->heads * p->head_dim;
        float *k = s->k + t * p->kv_heads * p->head_dim, *v = s->v + t * p->kv_heads * p->head_dim;
        add_bias(b, q, &b->w[VTI_ATTN_Q_BIAS]);
        add_bias(b, k, &b->w[VTI_ATTN_K_BIAS]);
        add_bias(b, v, &b->w[VTI_ATTN_V_BIAS]);
        norm_heads(b, q, p->heads, &b->w[VTI_ATTN_Q_NORM]);
        norm_heads(b, k, p->kv_heads, &b->w[VTI_ATTN_K_NORM]);
        rotate(q, cos_sin, p->heads, p->head_dim, p->rope_dims);
        rotate(k, cos_sin, p->kv_heads, p->head_dim, p->rope_dims);
        vti_kv_cache_store(&s->cache, b->layer, b->position + (uint32_t)t, k, v);
    }
}

/* --- scores and values ----------------------------------------------------------------------- */

/* First position that the token at `position` sees. */
static uint32_t first_seen(const vti_block *b, uint32_t position)
{
    uint32_t window = b->local ? b->s->p.hparams->window : 0;
    return window && position >= window ? position - window + 1 : 0;
}

/* Operands for one KV head and `tokens` tokens from `first` of the step on. Rows are counted
 * from the first that any of them sees: results do not depend on what else the cache still has.
 * Causal: the token at position p sees positions up to p. */
static vti_attention_args attention_args(const vti_block *b, uint32_t kv_head, uint32_t first,
                                         uint32_t tokens)
{
    const vti_stage *s = b->s;
    const vti_hparams *p = s->p.hparams;
    size_t group = p->heads / p->kv_heads, width = (size_t)p->heads * p->head_dim;
    size_t at = first * width + kv_head * group * p->head_dim;
    uint32_t position = b->position + first, seen = first_seen(b, position);
    return (vti_attention_args){
        .out = s->mix + at,
        .out_stride = width,
        .q = s->q + at,
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

/* Unit: one KV head and up to ATTENTION_TOKENS tokens. */
static void attend_tokens(void *context, size_t begin, size_t end)
{
    const vti_block *b = context;
    uint32_t kv_heads = b->s->p.hparams->kv_heads;
    for (size_t unit = begin; unit < end; unit++) {
        uint32_t first = (uint32_t)(unit / kv_heads) * ATTENTION_TOKENS, left = b->tokens - first;
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
    const vti_hparams *p = s->p.hparams;
    size_t width = (size_t)p->heads * p->head_dim, seen = first_seen(b, b->position);
    for (size_t unit = begin; unit < end; unit++) {
        size_t part = unit / p->kv_heads, kv_head = unit % p->kv_heads;
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

static void merge_parts(vti_stage *s, size_t parts)
{
    const vti_hparams *p = s->p.hparams;
    size_t width = (size_t)p->heads * p->head_dim;
    for (size_t head = 0; head < p->heads; head++)
        s->p.kernels->attention_merge(s->mix + head * p->head_dim, s->partial + head * p->head_dim,
                                      width, s->part_sums + head * 2, (size_t)p->heads * 2, parts,
                                      p->head_dim);
}

static void attend(vti_block *b)
{
    vti_stage *s = b->s;
    size_t kv_heads = s->p.hparams->kv_heads, end = b->position + b->tokens;
    size_t seen = first_seen(b, b->position);
    size_t parts = vti_attention_parts(end) - seen / VTI_ATTENTION_PART;
    if (b->tokens == 1 && parts > 1) {
        vti_pool_run(s->p.pool, kv_heads * parts, 1, attend_parts, b);
        merge_parts(s, parts);
        return;
    }
    size_t blocks = (b->tokens + ATTENTION_TOKENS - 1) / ATTENTION_TOKENS;
    size_t unit_bytes = 2 * (end - seen) * s->cache.row_bytes;
    vti_pool_run(s->p.pool, kv_heads * blocks, LEAST_ATTENTION_BYTES / unit_bytes + 1,
                 attend_tokens, b);
}

/* ATTN(l): h += Wo · attention(RoPE(norm(Wq x + bq)), RoPE(norm(Wk x + bk)), Wv x + bv),
 * x = RMSNorm(h) */
void vti_attention_unit(vti_block *b)
{
    vti_stage *s = b->s;
    uint32_t width = s->p.hparams->heads * s->p.hparams->head_dim;
    const vti_product qkv[] = {{s->q, &b->w[VTI_ATTN_Q], &s->input},
                               {s->k, &b->w[VTI_ATTN_K], &s->input},
                               {s->v, &b->w[VTI_ATTN_V], &s->input}};
    const vti_product out = {s->out, &b->w[VTI_ATTN_OUT], &s->input};
    vti_norm_input(b, VTI_ATTN_NORM);
    vti_linear(s->p.kernels, s->p.pool, qkv, 3);
    vti_for_tokens(b, width, finish_qkv, b);
    attend(b);
    vti_set_input(b, s->mix, width);
    vti_linear(s->p.kernels, s->p.pool, &out, 1);
    vti_add_output(b, VTI_ATTN_POST_NORM);
}
