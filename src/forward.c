/* forward.c: the forward pass of a stage; docs/forward.md has it as formulas. */
#include <math.h>
#include <string.h>

#include "stage_internal.h"

enum {
    ATTENTION_TOKENS = 16,         /* query tokens of one piece of attention in a prefill */
    LEAST_ATTENTION_BYTES = 16384, /* keys and values that a thread should get at least */
    LEAST_FLOATS = 8192            /* the same for norms, gates and sums */
};

/* --- work over the tokens of a batch --------------------------------------------------------------- */

/* What the functions below need; the fields' meaning is theirs. */
typedef struct token_job {
    vti_stage *s;
    float *h;
    const vti_tensor *weight;
    uint32_t layer, position;
} token_job;

/* Calls work for all tokens, each of which touches `floats` numbers. */
static void for_tokens(vti_stage *s, uint32_t tokens, size_t floats, vti_work_fn *work,
                       token_job *job)
{
    job->s = s;
    vti_pool_run(s->p.pool, tokens, LEAST_FLOATS / floats + 1, work, job);
}

/* s->norm = RMSNorm(h) */
static void norm_tokens(void *context, size_t begin, size_t end)
{
    const token_job *j = context;
    size_t d = j->s->p.hparams->d;
    for (size_t t = begin; t < end; t++)
        j->s->p.kernels->rms_norm(j->s->norm + t * d, j->h + t * d, j->weight->data, d,
                                  j->s->p.hparams->rms_eps);
}

static void add_bias(const vti_stage *s, float *y, const vti_tensor *bias)
{
    if (bias->rows) s->p.kernels->add(y, bias->data, bias->cols);
}

/* Biases, rotation, and keys and values into the cache. */
static void finish_qkv_tokens(void *context, size_t begin, size_t end)
{
    const token_job *j = context;
    vti_stage *s = j->s;
    const vti_hparams *p = s->p.hparams;
    const vti_tensor *w = s->p.weights->layers[j->layer].tensor;
    vti_rope_fn *rope = p->arch == VTI_ARCH_LLAMA ? s->p.kernels->rope_interleaved
                                                  : s->p.kernels->rope_half;
    for (size_t t = begin; t < end; t++) {
        const float *cos_sin = s->cos_sin + t * p->rope_dims;
        float *q = s->q + t * p->heads * p->head_dim;
        float *k = s->k + t * p->kv_heads * p->head_dim, *v = s->v + t * p->kv_heads * p->head_dim;
        add_bias(s, q, &w[VTI_ATTN_Q_BIAS]);
        add_bias(s, k, &w[VTI_ATTN_K_BIAS]);
        add_bias(s, v, &w[VTI_ATTN_V_BIAS]);
        rope(q, cos_sin, p->heads, p->head_dim, p->rope_dims);
        rope(k, cos_sin, p->kv_heads, p->head_dim, p->rope_dims);
        vti_kv_cache_store(&s->cache, j->layer, j->position + (uint32_t)t, k, v);
    }
}

/* gate = SiLU(gate) * up */
static void gate_tokens(void *context, size_t begin, size_t end)
{
    const token_job *j = context;
    size_t ff = j->s->p.hparams->ff, at = begin * ff;
    j->s->p.kernels->silu_gate(j->s->gate + at, j->s->gate + at, j->s->up + at,
                               (end - begin) * ff);
}

/* h += out */
static void add_tokens(void *context, size_t begin, size_t end)
{
    const token_job *j = context;
    size_t d = j->s->p.hparams->d, at = begin * d;
    j->s->p.kernels->add(j->h + at, j->s->out + at, (end - begin) * d);
}

/* The angles are the same for all layers: one call per step. */
static void fill_cos_sin(vti_stage *s, uint32_t position, uint32_t tokens)
{
    uint32_t pairs = s->p.hparams->rope_dims / 2;
    float *pair = s->cos_sin;
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t i = 0; i < pairs; i++, pair += 2) {
            double angle = (double)(position + t) * s->frequency[i];
            pair[0] = (float)cos(angle);
            pair[1] = (float)sin(angle);
        }
    }
}

/* --- attention ------------------------------------------------------------------------------------- */

typedef struct attention_job {
    vti_stage *s;
    uint32_t layer, position, tokens;
} attention_job;

/* Operands for one KV head; the caller adds tokens and range. Causal: the token at position p sees
 * positions 0 … p. */
static vti_attention_args attention_args(const attention_job *j, size_t kv_head)
{
    const vti_stage *s = j->s;
    const vti_hparams *p = s->p.hparams;
    size_t group = p->heads / p->kv_heads, width = (size_t)p->heads * p->head_dim;
    size_t at = kv_head * group * p->head_dim;
    return (vti_attention_args){
        .out = s->mix + at,
        .out_stride = width,
        .q = s->q + at,
        .q_stride = width,
        .tokens = j->tokens,
        .heads = group,
        .head_dim = p->head_dim,
        .k = vti_kv_cache_keys(&s->cache, j->layer, (uint32_t)kv_head),
        .v = vti_kv_cache_values(&s->cache, j->layer, (uint32_t)kv_head),
        .position = j->position,
        .kv_end = j->position + j->tokens,
        .scale = 1.0f / sqrtf((float)p->head_dim),
    };
}

/* Unit: one KV head and up to ATTENTION_TOKENS tokens. */
static void attend_tokens(void *context, size_t begin, size_t end)
{
    const attention_job *j = context;
    size_t kv_heads = j->s->p.hparams->kv_heads;
    for (size_t unit = begin; unit < end; unit++) {
        size_t first = unit / kv_heads * ATTENTION_TOKENS, left = j->tokens - first;
        vti_attention_args args = attention_args(j, unit % kv_heads);
        args.out += first * args.out_stride;
        args.q += first * args.q_stride;
        args.position += first;
        args.tokens = left < ATTENTION_TOKENS ? left : ATTENTION_TOKENS;
        j->s->cache.kernel->attention(&args);
    }
}

/* Unit: one KV head and one part of the positions; the results go to s->partial. */
static void attend_parts(void *context, size_t begin, size_t end)
{
    const attention_job *j = context;
    const vti_stage *s = j->s;
    const vti_hparams *p = s->p.hparams;
    size_t width = (size_t)p->heads * p->head_dim;
    for (size_t unit = begin; unit < end; unit++) {
        size_t part = unit / p->kv_heads, kv_head = unit % p->kv_heads;
        vti_attention_args args = attention_args(j, kv_head);
        size_t last = (part + 1) * VTI_ATTENTION_PART;
        args.out = s->partial + part * width + kv_head * args.heads * args.head_dim;
        args.parts = s->part_sums + (part * p->heads + kv_head * args.heads) * 2;
        args.kv_begin = part * VTI_ATTENTION_PART;
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

static void attend(vti_stage *s, uint32_t layer, uint32_t position, uint32_t tokens)
{
    attention_job job = {s, layer, position, tokens};
    size_t kv_heads = s->p.hparams->kv_heads, parts = vti_attention_parts(position + tokens);
    if (tokens == 1 && parts > 1) {
        vti_pool_run(s->p.pool, kv_heads * parts, 1, attend_parts, &job);
        merge_parts(s, parts);
        return;
    }
    size_t blocks = (tokens + ATTENTION_TOKENS - 1) / ATTENTION_TOKENS;
    size_t unit_bytes = 2 * (size_t)(position + tokens) * s->cache.row_bytes;
    vti_pool_run(s->p.pool, kv_heads * blocks, LEAST_ATTENTION_BYTES / unit_bytes + 1,
                 attend_tokens, &job);
}

/* --- units ----------------------------------------------------------------------------------------- */

/* Names what the next products multiply: x is tokens × cols. */
static void set_input(vti_stage *s, const float *x, uint32_t tokens, uint32_t cols)
{
    s->input = (vti_linear_input){
        .kernels = s->p.kernels,
        .pool = s->p.pool,
        .x = x,
        .tokens = tokens,
        .cols = cols,
        .act = s->act,
    };
}

/* ATTN(l): h += Wo · attention(RoPE(Wq x + bq), RoPE(Wk x + bk), Wv x + bv), x = RMSNorm(h) */
static void attention_unit(vti_stage *s, uint32_t layer, float *h, uint32_t position,
                           uint32_t tokens)
{
    const vti_hparams *p = s->p.hparams;
    const vti_tensor *w = s->p.weights->layers[layer].tensor;
    token_job job = {.h = h, .weight = &w[VTI_ATTN_NORM], .layer = layer, .position = position};
    for_tokens(s, tokens, p->d, norm_tokens, &job);
    set_input(s, s->norm, tokens, p->d);
    vti_linear(&s->input,
               (const vti_product[]){
                   {s->q, &w[VTI_ATTN_Q]}, {s->k, &w[VTI_ATTN_K]}, {s->v, &w[VTI_ATTN_V]}},
               3);
    for_tokens(s, tokens, (size_t)p->heads * p->head_dim, finish_qkv_tokens, &job);
    attend(s, layer, position, tokens);
    set_input(s, s->mix, tokens, p->heads * p->head_dim);
    vti_linear(&s->input, &(const vti_product){s->out, &w[VTI_ATTN_OUT]}, 1);
    for_tokens(s, tokens, p->d, add_tokens, &job);
}

/* FFN(l): h += Wdown · (SiLU(Wgate x) ⊙ Wup x), x = RMSNorm(h) */
static void ffn_unit(vti_stage *s, uint32_t layer, float *h, uint32_t tokens)
{
    const vti_hparams *p = s->p.hparams;
    const vti_tensor *w = s->p.weights->layers[layer].tensor;
    token_job job = {.h = h, .weight = &w[VTI_FFN_NORM]};
    for_tokens(s, tokens, p->d, norm_tokens, &job);
    set_input(s, s->norm, tokens, p->d);
    vti_linear(&s->input,
               (const vti_product[]){{s->gate, &w[VTI_FFN_GATE]}, {s->up, &w[VTI_FFN_UP]}}, 2);
    for_tokens(s, tokens, p->ff, gate_tokens, &job);
    set_input(s, s->gate, tokens, p->ff);
    vti_linear(&s->input, &(const vti_product){s->out, &w[VTI_FFN_DOWN]}, 1);
    for_tokens(s, tokens, p->d, add_tokens, &job);
}

void vti_stage_forward(vti_stage *s, float *h, uint32_t position, uint32_t tokens)
{
    fill_cos_sin(s, position, tokens);
    for (uint32_t layer = 0; layer < s->p.weights->count; layer++) {
        attention_unit(s, layer, h, position, tokens);
        ffn_unit(s, layer, h, tokens);
    }
}
