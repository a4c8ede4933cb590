#include "stage_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align.h"

/* One pass lays out the scratch: with memory NULL it only counts. */
typedef struct layout {
    unsigned char *memory;
    size_t bytes;
} layout;

static void *place(layout *l, size_t bytes)
{
    void *at = l->memory ? l->memory + l->bytes : NULL;
    l->bytes += (size_t)vti_align_up(bytes, VTI_ALIGNMENT);
    return at;
}

static float *place_rows(layout *l, size_t tokens, size_t cols)
{
    return place(l, tokens * cols * sizeof(float));
}

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

static void place_rope(layout *l, vti_rope *rope, const vti_hparams *p, size_t tokens)
{
    rope->cos_sin = place_rows(l, tokens, p->rope_dims);
    rope->frequency = place(l, p->rope_dims / 2 * sizeof(double));
}

static void place_moe(layout *l, vti_moe *m, const vti_stage_params *params)
{
    const vti_hparams *p = &params->geometry->hparams;
    size_t tokens = params->batch_tokens, slots = tokens * p->experts_used;
    m->scores = place_rows(l, tokens, p->experts);
    m->weight = place_rows(l, slots, 1);
    m->shared_weight = place_rows(l, tokens, 1);
    m->choice = place(l, slots * sizeof *m->choice);
    m->slot = place(l, slots * sizeof *m->slot);
    m->slot_token = place(l, slots * sizeof *m->slot_token);
    m->first_slot = place(l, (p->experts + 1) * sizeof *m->first_slot);
    m->in = place_rows(l, slots, vti_padded(p->d));
    m->gate = place_rows(l, slots, vti_padded(p->expert_ff));
    m->up = place_rows(l, slots, vti_padded(p->expert_ff));
    m->out = place_rows(l, slots, p->d);
    m->shared_out = place_rows(l, tokens, p->d);
    m->inputs = place(l, p->experts * sizeof(*m->inputs));
}

/* The largest batch that a unit makes. */
static vti_batch_limits batch_limits(const vti_stage_params *params)
{
    const vti_geometry *g = params->geometry;
    const vti_hparams *p = &g->hparams;
    size_t tokens = params->batch_tokens, slots = tokens * p->experts_used;
    uint32_t heads = vti_unit_shards(g, vti_attn_unit(0));
    uint32_t hidden = vti_unit_shards(g, vti_ffn_unit(0)) - p->experts;
    vti_batch_limits limits = {
        .products = larger(3 * heads, 2 * (hidden + p->experts) + 1),
        .links = larger(3 * heads, 2 * (hidden + p->experts) + 1),
    };
    const vti_batch_inputs norm = {1, 1, tokens, vti_padded(p->d)};
    const vti_batch_inputs mix = {2 * heads, 2 * heads, tokens, vti_mix_width(g)};
    const vti_batch_inputs gate = {hidden, hidden, tokens, vti_padded(p->ff)};
    const vti_batch_inputs chosen = {p->experts + hidden, 0, slots, vti_padded(p->d)};
    const vti_batch_inputs expert_gate = {p->experts, 0, slots, vti_padded(p->expert_ff)};
    vti_batch_limit_inputs(&limits, params->kernels, &norm);
    vti_batch_limit_inputs(&limits, params->kernels, &mix);
    vti_batch_limit_inputs(&limits, params->kernels, &gate);
    vti_batch_limit_inputs(&limits, params->kernels, &chosen);
    if (!p->experts) return limits;
    /* Those of the experts and of the shared one at the same time. */
    for (unsigned i = 0; i < VTI_ACT_TYPE_COUNT; i++) {
        size_t bytes = vti_batch_act_bytes(&params->kernels->act[i], &gate) +
                       vti_batch_act_bytes(&params->kernels->act[i], &expert_gate);
        if (bytes > limits.act_bytes[i]) limits.act_bytes[i] = bytes;
    }
    return limits;
}

static size_t lay_out(vti_stage *s, const vti_stage_params *params, void *memory)
{
    const vti_geometry *g = params->geometry;
    const vti_hparams *p = &g->hparams;
    size_t tokens = params->batch_tokens;
    size_t q_width = (size_t)p->heads * p->head_dim, kv_width = (size_t)p->kv_heads * p->head_dim;
    layout l = {memory, 0};
    s->norm = place_rows(&l, tokens, vti_padded(p->d));
    s->q = place_rows(&l, tokens, q_width);
    s->k = place_rows(&l, tokens, kv_width);
    s->v = place_rows(&l, tokens, kv_width);
    s->mix = place_rows(&l, tokens, vti_mix_width(g));
    s->gate = place_rows(&l, tokens, vti_padded(p->ff));
    s->up = place_rows(&l, tokens, vti_padded(p->ff));
    s->out = place_rows(&l, tokens, p->d);
    place_rope(&l, &s->rope, p, tokens);
    if (p->window) place_rope(&l, &s->local_rope, p, tokens);
    size_t parts = vti_attention_parts(params->context_tokens);
    s->partial = place_rows(&l, parts, q_width);
    s->part_sums = place_rows(&l, parts, 2 * (size_t)p->heads);
    if (p->experts) place_moe(&l, &s->moe, params);
    vti_batch_limits limits = batch_limits(params);
    unsigned char *batch = place(&l, vti_batch_lay_out(&s->batch, params->kernels, &limits, NULL));
    if (batch) vti_batch_lay_out(&s->batch, params->kernels, &limits, batch);
    return l.bytes;
}

static vti_kv_params kv_params(const vti_stage_params *params, uint32_t first, uint32_t count)
{
    return (vti_kv_params){
        .kernels = params->kernels,
        .hparams = &params->geometry->hparams,
        .first = first,
        .layers = count,
        .context_tokens = params->context_tokens,
        .batch_tokens = params->batch_tokens,
        .type = params->kv_type,
    };
}

vti_stage_sizes vti_stage_size(const vti_stage_params *params, uint32_t first, uint32_t count)
{
    vti_stage counted = {0};
    vti_kv_params kv = kv_params(params, first, count);
    return (vti_stage_sizes){vti_kv_cache_bytes(&kv), lay_out(&counted, params, NULL)};
}

uint64_t vti_stage_bytes(const vti_stage_params *params, uint32_t first, uint32_t count)
{
    vti_stage_sizes sizes = vti_stage_size(params, first, count);
    return sizes.kv_bytes + sizes.scratch_bytes;
}

static void init_rope(vti_stage *s)
{
    const vti_hparams *p = &s->p.geometry->hparams;
    const vti_tensor none = {0};
    /* Every layer has the same. */
    const vti_tensor *divisors =
        s->p.weights->count ? vti_unit_tensor(&s->p.weights->units[0], VTI_PIECE_ROPE_FREQS) : &none;
    const vti_rope_params local = {.base = p->local_rope_base, .factor = 1, .magnitude = 1};
    vti_rope_init(&s->rope, &p->rope, p->rope_dims, divisors->rows ? divisors->data : NULL);
    if (p->window) vti_rope_init(&s->local_rope, &local, p->rope_dims, NULL);
}

static vt_status open_scratch(vti_stage *s, const vti_stage_params *params, vt_error *err)
{
    size_t bytes = lay_out(s, params, NULL);
    VTI_TRY(vti_budget_take(params->budget, VTI_BUDGET_SCRATCH, bytes, "computing a batch", err));
    s->scratch_bytes = bytes;
    s->memory = aligned_alloc(64, bytes);
    if (!s->memory)
        return vti_fail(err, VT_ERR_MEMORY,
                        "no memory for %zu bytes of scratch; a smaller batch needs less", bytes);
    memset(s->memory, 0, bytes); /* what is padded stays so */
    lay_out(s, params, s->memory);
    return VT_OK;
}

static vt_status open_cache(vti_stage *s, const vti_stage_params *params, vt_error *err)
{
    const vti_weights *w = params->weights;
    vti_kv_params kv = kv_params(params, vti_unit_layer(w->first), w->count / 2);
    uint64_t bytes = vti_kv_cache_bytes(&kv);
    char what[48];
    snprintf(what, sizeof what, "a context of %" PRIu32 " tokens", params->context_tokens);
    VTI_TRY(vti_budget_take(params->budget, VTI_BUDGET_KV, bytes, what, err));
    s->kv_bytes = bytes;
    return vti_kv_cache_open(&s->cache, &kv, err);
}

vt_status vti_stage_open(const vti_stage_params *params, vti_stage **out, vt_error *err)
{
    *out = NULL;
    vti_stage *s = calloc(1, sizeof *s);
    if (!s) return vti_fail(err, VT_ERR_MEMORY, "no memory for a stage");
    s->p = *params;
    s->channel.unit = VTI_NO_UNIT;
    s->family = vti_family_of(params->geometry->hparams.arch);
    vt_status status = open_scratch(s, params, err);
    if (status == VT_OK) status = open_cache(s, params, err);
    if (status == VT_OK && params->table)
        status = vti_shard_reader_open(params->table, &s->reader, err);
    if (status == VT_OK) status = vti_prune_missing(s, err);
    if (status != VT_OK) {
        vti_stage_close(s);
        return status;
    }
    init_rope(s);
    *out = s;
    return VT_OK;
}

void vti_stage_close(vti_stage *stage)
{
    if (!stage) return;
    vti_shard_reader_close(stage->reader);
    vti_kv_cache_close(&stage->cache);
    free(stage->memory);
    free(stage->pruning);
    vti_budget_give(stage->p.budget, VTI_BUDGET_KV, stage->kv_bytes);
    vti_budget_give(stage->p.budget, VTI_BUDGET_SCRATCH, stage->scratch_bytes);
    free(stage);
}

void vti_stage_observe(vti_stage *stage, const vti_observer *observer)
{
    stage->observer = *observer;
}

uint64_t vti_stage_kv_bytes(const vti_stage *stage) { return stage->cache.size_bytes; }

vti_kv_cache *vti_stage_cache(vti_stage *stage) { return &stage->cache; }

uint32_t vti_stage_resume(const vti_stage *stage, uint32_t position)
{
    return vti_kv_cache_resume(&stage->cache, position);
}
