/* forward.c: the forward pass of a stage; docs/forward.md has it as formulas. */
#include <string.h>

#include "stage_internal.h"

/* Numbers that a thread should get at least: norms, gates and sums are cheap. */
enum { LEAST_FLOATS = 8192 };

/* Begins a unit: shards that were exchanged until now are seen in it. */
static void enter(vti_block *b, const vti_weights *weights, uint32_t unit)
{
    b->unit = *vti_weights_unit(weights, unit);
    if (b->s->reader) b->unit.shard = vti_shard_reader_enter(b->s->reader, unit);
    if (b->s->pruning) vti_prune_block(b, unit);
}

static void run_unit(vti_block *b, const vti_weights *weights, uint32_t unit)
{
    const vti_hparams *p = &b->s->p.geometry->hparams;
    b->local = vti_layer_is_local(p, vti_unit_layer(unit));
    enter(b, weights, unit);
    if (unit == vti_attn_unit(vti_unit_layer(unit)))
        vti_attention_unit(b);
    else if (p->experts)
        vti_moe_unit(b);
    else
        vti_dense_unit(b);
}

void vti_stage_forward_units(vti_stage *s, uint32_t first, uint32_t count, float *h,
                             uint32_t position, uint32_t tokens)
{
    const vti_hparams *p = &s->p.geometry->hparams;
    const vti_weights *weights = s->p.weights;
    uint32_t first_layer = vti_unit_layer(weights->first);
    if (count > 1 || first == vti_attn_unit(vti_unit_layer(first))) {
        vti_kv_cache_make_room(&s->cache, s->p.pool, position, tokens);
        vti_rope_fill(&s->rope, p->rope_dims, position, tokens);
        if (p->window) vti_rope_fill(&s->local_rope, p->rope_dims, position, tokens);
    }
    for (uint32_t unit = first; unit < first + count; unit++) {
        vti_block block = {
            .s = s, .layer = vti_unit_layer(unit) - first_layer, .h = h, .position = position,
            .tokens = tokens,
        };
        if (s->observer.unit) s->observer.unit(s->observer.user, unit, false);
        run_unit(&block, weights, unit);
        if (s->observer.unit) s->observer.unit(s->observer.user, unit, true);
    }
    if (s->reader) vti_shard_reader_leave(s->reader);
}

void vti_stage_forward(vti_stage *s, float *h, uint32_t position, uint32_t tokens)
{
    vti_stage_forward_units(s, s->p.weights->first, s->p.weights->count, h, position, tokens);
}

void vti_end_sum(const vti_block *b, float *out)
{
    const vti_batch *batch = &b->s->batch;
    size_t floats = (size_t)b->tokens * b->s->p.geometry->hparams.d;
    if (batch->products[batch->product_count - 1].link_count == 0)
        memset(out, 0, floats * sizeof *out);
}

/* --- FFN --------------------------------------------------------------------------------------- */

void vti_add_widen(const vti_block *b, uint32_t first, vti_linear_input *in)
{
    vti_stage *s = b->s;
    size_t stride = vti_padded(s->p.geometry->hparams.ff), width = s->p.geometry->ffn_width;
    for (uint32_t i = first; i < b->unit.shards; i++) {
        const vti_shard *shard = b->unit.shard[i];
        size_t at = (i - first) * width;
        if (!shard) continue;
        vti_batch_product(&s->batch, s->gate + at, stride);
        vti_batch_link(&s->batch, &shard->tensor[VTI_PIECE_GATE], in);
        vti_batch_product(&s->batch, s->up + at, stride);
        vti_batch_link(&s->batch, &shard->tensor[VTI_PIECE_UP], in);
    }
}

void vti_add_narrow(const vti_block *b, uint32_t first, float *out)
{
    vti_stage *s = b->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    uint32_t stride = vti_padded(p->ff), width = s->p.geometry->ffn_width;
    vti_batch_product(&s->batch, out, p->d);
    for (uint32_t i = first; i < b->unit.shards; i++) {
        const vti_shard *shard = b->unit.shard[i];
        if (!shard) continue;
        const vti_tensor *down = &shard->tensor[VTI_PIECE_DOWN];
        vti_linear_input *in = vti_block_input(b, p->experts ? VTI_SHARED_DOWN : VTI_FFN_DOWN, 0,
                                               s->gate, stride, b->tokens, (i - first) * width,
                                               down->cols);
        vti_batch_link(&s->batch, down, in);
    }
    vti_end_sum(b, out);
}

/* FFN(l): h += Wdown · (activation(Wgate x) ⊙ Wup x), x = RMSNorm(h) */
void vti_dense_unit(vti_block *b)
{
    vti_stage *s = b->s;
    vti_add_widen(b, 0, vti_norm_input(b, VTI_FFN_GATE));
    vti_batch_run(&s->batch, s->p.pool);
    vti_gate_rows(b, s->gate, s->up, b->tokens, vti_padded(s->p.geometry->hparams.ff));
    vti_batch_begin(&s->batch);
    vti_add_narrow(b, 0, s->out);
    vti_batch_run(&s->batch, s->p.pool);
    vti_add_output(b);
}

/* --- what units share ------------------------------------------------------------------------ */

void vti_for_tokens(const vti_block *b, size_t floats, vti_work_fn *work, void *context)
{
    vti_pool_run(b->s->p.pool, b->tokens, LEAST_FLOATS / floats + 1, work, context);
}

typedef struct norm_job {
    const vti_block *block;
    float *y;
    size_t stride; /* of y */
    const float *x;
    const vti_tensor *weight;
} norm_job;

static void norm_tokens(void *context, size_t begin, size_t end)
{
    const norm_job *j = context;
    const vti_stage *s = j->block->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    for (size_t t = begin; t < end; t++)
        s->p.kernels->rms_norm(j->y + t * j->stride, j->x + t * p->d, j->weight->data, p->d,
                               p->rms_eps);
}

vti_linear_input *vti_block_input(const vti_block *b, vti_role role, uint32_t slice, float *x,
                                  size_t stride, uint32_t tokens, uint32_t col, uint32_t cols)
{
    vti_stage *s = b->s;
    if (s->channel.unit != VTI_NO_UNIT)
        vti_prune_input(b, role, slice, x, stride, tokens, col, cols);
    if (s->observer.input)
        s->observer.input(s->observer.user, vti_unit_layer(s->p.weights->first) + b->layer, role,
                          slice, x + col, stride, tokens, col, cols);
    return vti_batch_input(&s->batch, x + col, stride, tokens, cols);
}

vti_linear_input *vti_norm_input(const vti_block *b, vti_role role)
{
    vti_stage *s = b->s;
    uint32_t d = s->p.geometry->hparams.d, width = vti_padded(d);
    norm_job job = {b, s->norm, width, b->h, vti_block_tensor(b, VTI_PIECE_NORM)};
    vti_for_tokens(b, d, norm_tokens, &job);
    vti_batch_begin(&s->batch);
    return vti_block_input(b, role, 0, s->norm, width, b->tokens, 0, width);
}

typedef struct gate_job {
    vti_gate_fn *activation;
    float *gate;
    const float *up;
    size_t cols;
} gate_job;

static void gate_rows(void *context, size_t begin, size_t end)
{
    const gate_job *j = context;
    size_t at = begin * j->cols;
    j->activation(j->gate + at, j->gate + at, j->up + at, (end - begin) * j->cols);
}

void vti_gate_rows(const vti_block *b, float *gate, const float *up, size_t rows, size_t cols)
{
    const vti_stage *s = b->s;
    gate_job job = {s->family->gate == VTI_GATE_GELU ? s->p.kernels->gelu_gate
                                                     : s->p.kernels->silu_gate,
                    gate, up, cols};
    vti_pool_run(s->p.pool, rows, LEAST_FLOATS / cols + 1, gate_rows, &job);
}

typedef struct add_job {
    const vti_block *block;
    const float *x;
    size_t stride; /* of x */
} add_job;

static void add_tokens(void *context, size_t begin, size_t end)
{
    const add_job *j = context;
    const vti_stage *s = j->block->s;
    size_t d = s->p.geometry->hparams.d;
    for (size_t t = begin; t < end; t++)
        s->p.kernels->add(j->block->h + t * d, j->x + t * j->stride, d);
}

void vti_add_output(const vti_block *b)
{
    vti_stage *s = b->s;
    uint32_t d = s->p.geometry->hparams.d;
    const vti_tensor *post_norm = vti_block_tensor(b, VTI_PIECE_POST_NORM);
    add_job add = {b, s->out, d};
    if (post_norm->rows) {
        norm_job norm = {b, s->norm, vti_padded(d), s->out, post_norm};
        vti_for_tokens(b, d, norm_tokens, &norm);
        add = (add_job){b, s->norm, norm.stride};
    }
    vti_for_tokens(b, d, add_tokens, &add);
}
