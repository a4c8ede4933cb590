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
    const vti_hparams *p = s->p.hparams;
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
    const vti_hparams *p = s->p.hparams;
    const vti_moe *m = &s->moe;
    for (size_t t = begin; t < end; t++) {
        choose_experts(s, m->scores + t * p->experts, m->choice + t * p->experts_used,
                       m->weight + t * p->experts_used);
        float score = dot(s->norm + t * p->d, b->w[VTI_SHARED_ROUTER].data, p->d);
        m->shared_weight[t] = 1.0f / (1.0f + expf(-score));
    }
}

/* Orders what the tokens chose by expert. */
static void assign_slots(const vti_block *b)
{
    const vti_hparams *p = b->s->p.hparams;
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
    uint32_t used = b->s->p.hparams->experts_used;
    size_t d = b->s->p.hparams->d;
    for (size_t i = begin * used; i < end * used; i++)
        memcpy(m->in + m->slot[i] * d, b->s->norm + i / used * d, d * sizeof(float));
}

/* --- experts --------------------------------------------------------------------------------- */

/* Makes rows of x, one per slot, the inputs of the experts that have slots. */
static void set_inputs(const vti_block *b, const float *x, uint32_t cols)
{
    const vti_stage *s = b->s;
    const vti_moe *m = &s->moe;
    for (uint32_t e = 0; e < s->p.hparams->experts; e++) {
        uint32_t first = m->first_slot[e];
        vti_linear_input *in = &m->inputs[e];
        *in = (vti_linear_input){
            .x = x + (size_t)first * cols,
            .tokens = m->first_slot[e + 1] - first,
            .cols = cols,
        };
        for (unsigned i = 0; i < VTI_ACT_TYPE_COUNT; i++)
            if (m->act[i])
                in->act[i] = (unsigned char *)m->act[i] +
                             vti_moe_act_offset(&s->p.kernels->act[i], first, e, cols);
    }
}

/* Adds the products of one role's matrices for all experts that have slots; returns the new
 * count. */
static size_t add_products(const vti_block *b, vti_role role, vti_tensor *matrices, float *y,
                           size_t count)
{
    const vti_moe *m = &b->s->moe;
    for (uint32_t e = 0; e < b->s->p.hparams->experts; e++) {
        if (m->inputs[e].tokens == 0) continue;
        matrices[e] = vti_tensor_slice(&b->w[role], e);
        m->products[count++] = (vti_product){
            y + (size_t)m->first_slot[e] * matrices[e].rows,
            &matrices[e],
            &m->inputs[e],
        };
    }
    return count;
}

static void run_experts(const vti_block *b)
{
    vti_stage *s = b->s;
    const vti_hparams *p = s->p.hparams;
    vti_moe *m = &s->moe;
    size_t slots = (size_t)b->tokens * p->experts_used;
    set_inputs(b, m->in, p->d);
    size_t count = add_products(b, VTI_EXPERTS_GATE, m->matrices, m->gate, 0);
    count = add_products(b, VTI_EXPERTS_UP, m->matrices + p->experts, m->up, count);
    vti_linear(s->p.kernels, s->p.pool, m->products, count);
    vti_gate_rows(b, m->gate, m->up, slots, p->expert_ff);
    set_inputs(b, m->gate, p->expert_ff);
    count = add_products(b, VTI_EXPERTS_DOWN, m->matrices, m->out, 0);
    vti_gate_rows(b, s->gate, s->up, b->tokens, p->ff);
    vti_set_input(b, s->gate, p->ff);
    m->products[count++] = (vti_product){m->shared_out, &b->w[VTI_SHARED_DOWN], &s->input};
    vti_linear(s->p.kernels, s->p.pool, m->products, count);
}

/* A token's sum is formed in the order in which it chose: the same whoever else is in the batch. */
static void combine_tokens(void *context, size_t begin, size_t end)
{
    const vti_block *b = context;
    const vti_stage *s = b->s;
    const vti_moe *m = &s->moe;
    size_t d = s->p.hparams->d, used = s->p.hparams->experts_used;
    for (size_t t = begin; t < end; t++) {
        float *out = s->out + t * d;
        memset(out, 0, d * sizeof *out);
        for (size_t i = t * used; i < (t + 1) * used; i++)
            s->p.kernels->add_scaled(out, m->out + m->slot[i] * d, m->weight[i], d);
        s->p.kernels->add_scaled(out, m->shared_out + t * d, m->shared_weight[t], d);
    }
}

/* FFN(l): h += Σ wₑ fₑ(x) over the chosen experts + σ(wₛ · x) fₛ(x), x = RMSNorm(h),
 * f(x) = Wdown · (SiLU(Wgate x) ⊙ Wup x) */
void vti_moe_unit(vti_block *b)
{
    vti_stage *s = b->s;
    const vti_hparams *p = s->p.hparams;
    const vti_product first[] = {{s->moe.scores, &b->w[VTI_ROUTER], &s->input},
                                 {s->gate, &b->w[VTI_SHARED_GATE], &s->input},
                                 {s->up, &b->w[VTI_SHARED_UP], &s->input}};
    vti_norm_input(b, VTI_FFN_NORM);
    vti_linear(s->p.kernels, s->p.pool, first, 3);
    vti_for_tokens(b, p->d, route_tokens, b);
    assign_slots(b);
    vti_for_tokens(b, (size_t)p->d * p->experts_used, gather_tokens, b);
    run_experts(b);
    vti_for_tokens(b, (size_t)p->d * p->experts_used, combine_tokens, b);
    vti_add_output(b, VTI_FFN_POST_NORM);
}
