/* moe.c: FFN(l) as a mixture of experts. Only chosen experts are read; the tokens of a batch that
 * chose the same one share a product. */
#include <math.h>
#include <string.h>

#include "stage_internal.h"

enum { LANES = 8 }; /* partial sums, added in a fixed order */

/* --- routing --------------------------------------------------------------------------------- */

static float dot(const float *a, const float *b, size_t n)
{
    float sums[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) sums[j] += a[i + j] * b[i + j];
    for (size_t j = 0; i < n; i++, j++) sums[j] += a[i] * b[i];
    for (size_t j = 0; j < LANES; j++) sum += sums[j];
    return sum;
}

/* The largest of a token's probabilities and what they count. `scores` is used up. */
static void choose_experts(const vti_stage *s, float *scores, uint32_t *choice, float *weight)
{
    const vti_hparams *p = &s->p.geometry->hparams;
    float sum = 0;
    s->p.kernels->softmax(scores, p->experts);
    for (uint32_t i = 0; i < p->experts_used; i++) {
        size_t best = s->p.kernels->argmax(scores, p->experts);
        choice[i] = (uint32_t)best;
        sum += weight[i] = scores[best];
        scores[best] = -INFINITY;
    }
    float scale = p->expert_norm ? p->expert_scale / sum : p->expert_scale;
    for (uint32_t i = 0; i < p->experts_used; i++) weight[i] *= scale;
}

static void route_tokens(void *context, size_t begin, size_t end)
{
    const vti_block *b = context;
    const vti_stage *s = b->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    const vti_moe *m = &s->moe;
    for (size_t t = begin; t < end; t++) {
        for (uint32_t e = 0; b->pruned && e < p->experts; e++)
            if (b->pruned[e]) m->scores[t * p->experts + e] = -INFINITY;
        choose_experts(s, m->scores + t * p->experts, m->choice + t * p->experts_used,
                       m->weight + t * p->experts_used);
        float score = dot(s->norm + t * vti_padded(p->d),
                          vti_block_tensor(b, VTI_PIECE_SHARED_ROUTER)->data, p->d);
        m->shared_weight[t] = 1.0f / (1.0f + expf(-score));
    }
}

/* Orders what the tokens chose by expert. */
static void assign_slots(const vti_block *b)
{
    const vti_hparams *p = &b->s->p.geometry->hparams;
    vti_moe *m = &b->s->moe;
    uint32_t uses = b->tokens * p->experts_used;
    memset(m->first_slot, 0, (p->experts + 1) * sizeof *m->first_slot);
    for (uint32_t i = 0; i < uses; i++) m->first_slot[m->choice[i] + 1]++;
    for (uint32_t e = 0; e < p->experts; e++) m->first_slot[e + 1] += m->first_slot[e];
    /* Each begins where the one before ends: taking slots moves the begin to the end … */
    for (uint32_t i = 0; i < uses; i++) {
        m->slot[i] = m->first_slot[m->choice[i]]++;
        m->slot_token[m->slot[i]] = i / p->experts_used;
    }
    /* … and one step to the right it is the begin again. */
    memmove(m->first_slot + 1, m->first_slot, p->experts * sizeof *m->first_slot);
    m->first_slot[0] = 0;
}

static void gather_tokens(void *context, size_t begin, size_t end)
{
    const vti_block *b = context;
    const vti_moe *m = &b->s->moe;
    uint32_t used = b->s->p.geometry->hparams.experts_used;
    size_t width = vti_padded(b->s->p.geometry->hparams.d);
    for (size_t i = begin * used; i < end * used; i++)
        memcpy(m->in + m->slot[i] * width, b->s->norm + i / used * width, width * sizeof(float));
}

/* --- experts --------------------------------------------------------------------------------- */

/* Rows of x, one per slot and padded, become the inputs of the experts that have slots. */
static void add_inputs(const vti_block *b, vti_role role, float *x, uint32_t cols)
{
    const vti_moe *m = &b->s->moe;
    uint32_t width = vti_padded(cols);
    for (uint32_t e = 0; e < b->s->p.geometry->hparams.experts; e++) {
        uint32_t first = m->first_slot[e], tokens = m->first_slot[e + 1] - first;
        m->inputs[e] = NULL;
        if (!tokens || !b->unit.shard[e]) continue;
        m->inputs[e] = vti_block_input(b, role, e, x + (size_t)first * width, width, tokens, 0,
                                       width);
    }
}

/* The products of one matrix of all experts that have inputs. */
static void add_products(const vti_block *b, unsigned piece, float *y, size_t stride)
{
    const vti_moe *m = &b->s->moe;
    for (uint32_t e = 0; e < b->s->p.geometry->hparams.experts; e++) {
        if (!m->inputs[e]) continue;
        vti_batch_product(&b->s->batch, y + m->first_slot[e] * stride, stride);
        vti_batch_link(&b->s->batch, &b->unit.shard[e]->tensor[piece], m->inputs[e]);
    }
}

static void run_experts(const vti_block *b)
{
    vti_stage *s = b->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    vti_moe *m = &s->moe;
    size_t slots = (size_t)b->tokens * p->experts_used, width = vti_padded(p->expert_ff);
    vti_batch_begin(&s->batch);
    add_inputs(b, VTI_EXPERTS_GATE, m->in, p->d);
    add_products(b, VTI_PIECE_GATE, m->gate, width);
    add_products(b, VTI_PIECE_UP, m->up, width);
    vti_batch_run(&s->batch, s->p.pool);
    vti_gate_rows(b, m->gate, m->up, slots, width);
    vti_gate_rows(b, s->gate, s->up, b->tokens, vti_padded(p->ff));
    vti_batch_begin(&s->batch);
    add_inputs(b, VTI_EXPERTS_DOWN, m->gate, p->expert_ff);
    add_products(b, VTI_PIECE_DOWN, m->out, p->d);
    vti_add_narrow(b, p->experts, m->shared_out);
    vti_batch_run(&s->batch, s->p.pool);
}

/* A token's sum is formed in the order in which it chose: the same whoever else is in the batch. */
static void combine_tokens(void *context, size_t begin, size_t end)
{
    const vti_block *b = context;
    const vti_stage *s = b->s;
    const vti_moe *m = &s->moe;
    size_t d = s->p.geometry->hparams.d, used = s->p.geometry->hparams.experts_used;
    for (size_t t = begin; t < end; t++) {
        float *out = s->out + t * d;
        memset(out, 0, d * sizeof *out);
        for (size_t i = t * used; i < (t + 1) * used; i++) {
            if (!m->inputs[m->choice[i]]) continue; /* that expert is not here */
            s->p.kernels->add_scaled(out, m->out + m->slot[i] * d, m->weight[i], d);
        }
        s->p.kernels->add_scaled(out, m->shared_out + t * d, m->shared_weight[t], d);
    }
}

/* FFN(l): h += Σ wₑ fₑ(x) over the chosen experts + σ(wₛ · x) fₛ(x), x = RMSNorm(h),
 * f(x) = Wdown · (SiLU(Wgate x) ⊙ Wup x) */
void vti_moe_unit(vti_block *b)
{
    vti_stage *s = b->s;
    const vti_hparams *p = &s->p.geometry->hparams;
    vti_linear_input *in = vti_norm_input(b, VTI_SHARED_GATE);
    vti_batch_product(&s->batch, s->moe.scores, p->experts);
    vti_batch_link(&s->batch, vti_block_tensor(b, VTI_PIECE_ROUTER), in);
    vti_add_widen(b, p->experts, in);
    vti_batch_run(&s->batch, s->p.pool);
    vti_for_tokens(b, p->d, route_tokens, b);
    assign_slots(b);
    vti_for_tokens(b, (size_t)p->d * p->experts_used, gather_tokens, b);
    run_experts(b);
    vti_for_tokens(b, (size_t)p->d * p->experts_used, combine_tokens, b);
    vti_add_output(b);
}
