/* forward.c: the forward pass of a stage; docs/forward.md has it as formulas. */
#include "stage_internal.h"

/* Numbers that a thread should get at least: norms, gates and sums are cheap. */
enum { LEAST_FLOATS = 8192 };

void vti_stage_forward(vti_stage *s, float *h, uint32_t position, uint32_t tokens)
{
    const vti_hparams *p = s->p.hparams;
    const vti_weights *weights = s->p.weights;
    vti_kv_cache_make_room(&s->cache, s->p.pool, position, tokens);
    vti_rope_fill(&s->rope, p->rope_dims, position, tokens);
    if (p->window) vti_rope_fill(&s->local_rope, p->rope_dims, position, tokens);
    for (uint32_t layer = 0; layer < weights->count; layer++) {
        vti_block block = {
            .s = s,
            .w = weights->layers[layer].tensor,
            .layer = layer,
            .local = vti_layer_is_local(p, weights->first + layer),
            .h = h,
            .position = position,
            .tokens = tokens,
        };
        vti_attention_unit(&block);
        if (p->experts)
            vti_moe_unit(&block);
        else
            vti_dense_unit(&block);
    }
}

/* FFN(l): h += Wdown · (activation(Wgate x) ⊙ Wup x), x = RMSNorm(h) */
void vti_dense_unit(vti_block *b)
{
    vti_stage *s = b->s;
    const vti_hparams *p = s->p.hparams;
    const vti_product widen[] = {{s->gate, &b->w[VTI_FFN_GATE], &s->input},
                                 {s->up, &b->w[VTI_FFN_UP], &s->input}};
    const vti_product narrow = {s->out, &b->w[VTI_FFN_DOWN], &s->input};
    vti_norm_input(b, VTI_FFN_NORM);
    vti_linear(s->p.kernels, s->p.pool, widen, 2);
    vti_gate_rows(b, s->gate, s->up, b->tokens, p->ff);
    vti_set_input(b, s->gate, p->ff);
    vti_linear(s->p.kernels, s->p.pool, &narrow, 1);
    vti_add_output(b, VTI_FFN_POST_NORM);
}

/* --- what units share ------------------------------------------------------------------------ */

void vti_for_tokens(const vti_block *b, size_t floats, vti_work_fn *work, void *context)
{
    vti_pool_run(b->s->p.pool, b->tokens, LEAST_FLOATS / floats + 1, work, context);
}

typedef struct norm_job {
    const vti_block *block;
    float *y;
    const float *x;
    const vti_tensor *weight;
} norm_job;

static void norm_tokens(void *context, size_t begin, size_t end)
{
    const norm_job *j = context;
    const vti_stage *s = j->block->s;
    size_t d = s->p.hparams->d;
    for (size_t t = begin; t < end; t++)
        s->p.kernels->rms_norm(j->y + t * d, j->x + t * d, j->weight->data, d,
                               s->p.hparams->rms_eps);
}

void vti_set_input(const vti_block *b, const float *x, uint32_t cols)
{
    vti_stage *s = b->s;
    s->input.x = x;
    s->input.tokens = b->tokens;
    s->input.cols = cols;
    for (unsigned i = 0; i < VTI_ACT_TYPE_COUNT; i++) {
        s->input.act[i] = s->act[i];
        s->input.ready[i] = false;
    }
}

void vti_norm_input(const vti_block *b, vti_role norm)
{
    vti_stage *s = b->s;
    norm_job job = {b, s->norm, b->h, &b->w[norm]};
    vti_for_tokens(b, s->p.hparams->d, norm_tokens, &job);
    vti_set_input(b, s->norm, s->p.hparams->d);
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
} add_job;

static void add_tokens(void *context, size_t begin, size_t end)
{
    const add_job *j = context;
    const vti_stage *s = j->block->s;
    size_t d = s->p.hparams->d, at = begin * d;
    s->p.kernels->add(j->block->h + at, j->x + at, (end - begin) * d);
}

void vti_add_output(const vti_block *b, vti_role post_norm)
{
    vti_stage *s = b->s;
    size_t d = s->p.hparams->d;
    add_job add = {b, s->out};
    if (b->w[post_norm].rows) {
        norm_job norm = {b, s->norm, s->out, &b->w[post_norm]};
        vti_for_tokens(b, d, norm_tokens, &norm);
        add.x = s->norm;
    }
    vti_for_tokens(b, d, add_tokens, &add);
}
