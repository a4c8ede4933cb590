#include "profile_bed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "model_shards.h"

static vti_hparams hparams_of(const vti_bed_params *params)
{
    const vti_bed_shape *s = &params->shape;
    return (vti_hparams){
        .arch = s->arch, .layers = params->layers, .d = s->d, .heads = s->heads,
        .kv_heads = s->kv_heads, .head_dim = s->head_dim, .ff = s->ff, .vocab = s->vocab,
        .context = params->context_tokens, .rope_dims = s->head_dim, .window = s->window,
        .window_period = UINT32_MAX, .experts = s->experts, .experts_used = s->experts_used,
        .expert_ff = s->expert_ff, .expert_scale = 1, .rms_eps = 1e-6f,
        .attention_scale = 1 / sqrtf((float)s->head_dim),
        .rope = {.base = 10000, .factor = 1, .magnitude = 1}, .local_rope_base = 10000,
    };
}

uint64_t vti_bed_token_bytes(const vti_bed_params *params)
{
    static const double per_weight[VTI_PRECISION_COUNT] = {2, 1.0625, 0.5625};
    vti_geometry g;
    vti_hparams p = hparams_of(params);
    double macs = 0;
    p.layers = 1;
    vti_geometry_init(&g, &p, false);
    for (uint32_t unit = 0; unit < 2; unit++)
        for (uint32_t shard = 0; shard < vti_unit_shards(&g, unit); shard++) {
            bool expert = unit == 1 && shard < p.experts;
            macs += (double)vti_shard_macs(&g, unit, shard) *
                    (expert ? (double)p.experts_used / p.experts : 1);
        }
    return (uint64_t)(macs * per_weight[params->precision]);
}

/* --- opening ---------------------------------------------------------------------------------- */

static vt_status load_weights(vti_bed *bed, vti_precision precision, vt_error *err)
{
    vt_model *m = bed->model;
    const vt_progress silent = {NULL, NULL};
    uint32_t head = vti_head_unit(&m->geometry);
    VTI_TRY(vti_random_source_open(&bed->source, &m->geometry, &m->kernels, err));
    VTI_TRY(vti_composition_open(&bed->source.source, precision, &m->composition, err));
    VTI_TRY(vti_weights_load(&bed->source.source, &m->composition, m->memory, m->pool, &silent, 0,
                             head, &m->all_layers, err));
    VTI_TRY(vti_weights_load(&bed->source.source, &m->composition, m->memory, m->pool, &silent,
                             head, 1, &m->head, err));
    VTI_TRY(vti_model_open_table(m, err));
    for (uint32_t u = 0; u < head; u++)
        vti_shard_table_attach(m->table, u, m->all_layers->units[u].shard);
    vti_shard_table_attach(m->table, head, m->head->units[0].shard);
    return VT_OK;
}

static vt_status open_model(vti_bed *bed, const vti_bed_params *params, vt_error *err)
{
    vt_model *m = bed->model = calloc(1, sizeof *bed->model);
    if (!m) return vti_fail(err, VT_ERR_MEMORY, "no memory for a model");
    pthread_mutex_init(&m->lock, NULL);
    m->hparams = hparams_of(params);
    m->kernels = *params->kernels;
    m->pool = params->pool;
    m->shards = &bed->source.source;
    vti_geometry_init(&m->geometry, &m->hparams, false);
    vti_budget_init(&m->device.budget, 0);
    m->memory = vti_shard_memory_open(&m->device.budget, VTI_BUDGET_WEIGHTS);
    if (!m->memory) return vti_fail(err, VT_ERR_MEMORY, "no memory for weights");
    return load_weights(bed, params->precision, err);
}

/* Halves that are small and not zero: untouched pages would all be the same one, in the cache. */
static void fill_cache(vti_kv_cache *cache) { memset(cache->base, 0x1c, cache->size_bytes); }

static vt_status open_parts(vti_bed *bed, const vti_bed_params *params, vt_error *err)
{
    VTI_TRY(open_model(bed, params, err));
    vt_model *m = bed->model;
    const vti_stage_params stage = {
        .kernels = &m->kernels, .pool = m->pool, .geometry = &m->geometry,
        .weights = m->all_layers, .table = m->table, .context_tokens = params->context_tokens,
        .batch_tokens = params->batch_tokens, .kv_type = VT_KV_F16,
    };
    const vti_plan_model_params plan = {params->context_tokens, params->batch_tokens, VT_KV_F16};
    VTI_TRY(vti_stage_open(&stage, &bed->stage, err));
    VTI_TRY(vti_head_open(&bed->head, m, err));
    VTI_TRY(vti_plan_model_of(&bed->source.source, &plan, &bed->plan, err));
    bed->h = malloc((size_t)params->batch_tokens * m->hparams.d * sizeof *bed->h);
    bed->logits = malloc(m->hparams.vocab * sizeof *bed->logits);
    if (!bed->h || !bed->logits) return vti_fail(err, VT_ERR_MEMORY, "no memory for a batch");
    fill_cache(vti_stage_cache(bed->stage));
    return VT_OK;
}

vt_status vti_bed_open(vti_bed *bed, const vti_bed_params *params, vt_error *err)
{
    *bed = (vti_bed){.seed = 7};
    vt_status status = open_parts(bed, params, err);
    if (status != VT_OK) vti_bed_close(bed);
    return status;
}

void vti_bed_close(vti_bed *bed)
{
    vt_model *m = bed->model;
    vti_stage_close(bed->stage);
    vti_head_close(&bed->head);
    if (m) {
        vti_weights_free(m->all_layers);
        vti_weights_free(m->head);
        vti_shard_table_close(m->table);
        vti_shard_memory_close(m->memory);
        vti_composition_close(&m->composition);
        pthread_mutex_destroy(&m->lock);
        free(m);
    }
    vti_random_source_close(&bed->source);
    free(bed->h);
    free(bed->logits);
    *bed = (vti_bed){.model = NULL};
}

/* --- running ---------------------------------------------------------------------------------- */

static void watch_unit(void *user, uint32_t unit, bool ends)
{
    vti_bed *bed = user;
    uint64_t now = vti_now_ns();
    if (ends) bed->on_unit(bed->user, unit, (double)(now - bed->begin_ns) * 1e-9);
    bed->begin_ns = vti_now_ns();
}

void vti_bed_step(vti_bed *bed, uint32_t first, uint32_t count, uint32_t position, uint32_t tokens,
                  vti_bed_fn *on_unit, void *user)
{
    const vti_observer observer = {.unit = watch_unit, .user = bed};
    bed->on_unit = on_unit;
    bed->user = user;
    vti_random_floats(&bed->seed, bed->h, (size_t)tokens * bed->model->hparams.d);
    vti_stage_observe(bed->stage, &observer);
    vti_kv_cache_restore(vti_stage_cache(bed->stage), position);
    vti_stage_forward_units(bed->stage, first, count, bed->h, position, tokens);
}

double vti_bed_head(vti_bed *bed)
{
    vti_random_floats(&bed->seed, bed->h, bed->model->hparams.d);
    uint64_t begin = vti_now_ns();
    vti_head_logits(&bed->head, bed->h, 1, bed->logits);
    return (double)(vti_now_ns() - begin) * 1e-9;
}
