/* model_precision.c: what a model's file offers, and what is computed with. */
#include <strings.h>

#include "model.h"
#include "store.h"

void vti_model_set_up_store(vt_model *model)
{
    model->shards = vti_store_source(model->store);
    model->geometry = *model->shards->geometry;
}

/* What a token reads of a unit: all its shards, of experts those it chose. */
static uint64_t unit_token_bytes(const vt_model *model, uint32_t unit)
{
    const vti_geometry *g = &model->geometry;
    uint32_t shards = vti_unit_shards(g, unit), experts = g->hparams.experts;
    if (vti_unit_kind_of(g, unit) != VTI_UNIT_FFN) experts = 0;
    uint64_t chosen = 0, all = 0;
    for (uint32_t shard = 0; shard <= shards; shard++)
        *(shard < experts ? &chosen : &all) +=
            vti_composition_shard_bytes(&model->composition, model->shards, unit, shard);
    return all + (experts ? chosen / experts * g->hparams.experts_used : 0);
}

/* Of a shard store what it has of every unit at its precision. */
static uint64_t stored_bytes(const vt_model *model)
{
    vt_store_info info;
    vt_store_get_info(model->store, &info);
    uint64_t bytes = info.shared.stored_bytes + info.embedding.stored_bytes;
    for (uint32_t unit = 0; unit < vti_embed_unit(&model->geometry); unit++) {
        vt_store_unit of;
        vt_store_get_unit(model->store, unit, &of);
        bytes += of.precision[model->composition.precision[unit]].stored_bytes;
    }
    return bytes;
}

static vt_status compose(vt_model *model, const char *precision, const char *plan_json,
                         vt_error *err)
{
    unsigned wanted = 0;
    if (plan_json && precision)
        return vti_fail(err, VT_ERR_ARGUMENT, "a precision and a plan exclude each other");
    if (plan_json)
        return vti_composition_open_plan(model->shards, plan_json, &model->composition, err);
    while (wanted < VTI_PRECISION_COUNT &&
           (!precision || strcasecmp(precision, vti_precision_name(wanted)) != 0))
        wanted++;
    if (precision && wanted == VTI_PRECISION_COUNT)
        return vti_fail(err, VT_ERR_ARGUMENT, "precision \"%s\" is not one of F16, I8, I4",
                        precision);
    return vti_composition_open(model->shards, wanted, &model->composition, err);
}

/* Every unit as it is in the file? Then what a token reads is what the file says. */
static bool is_file_as_it_is(const vt_model *model)
{
    const vti_composition *c = &model->composition;
    for (uint32_t unit = 0; unit < vti_embed_unit(&model->geometry); unit++)
        if (c->precision[unit] != model->builder.own) return false;
    return !model->store && !c->pruned;
}

vt_status vti_model_compose(vt_model *model, const char *precision, const char *plan_json,
                            vt_error *err)
{
    VTI_TRY(compose(model, precision, plan_json, err));
    uint32_t head = vti_head_unit(&model->geometry);
    model->layer_bytes = vti_weights_bytes(model->shards, &model->composition, 0, head);
    model->head_bytes = vti_weights_bytes(model->shards, &model->composition, head, 1);
    if (model->store) model->weight_bytes = stored_bytes(model);
    if (is_file_as_it_is(model)) return VT_OK;
    model->token_bytes = 0;
    for (uint32_t unit = 0; unit <= head; unit++)
        model->token_bytes += unit_token_bytes(model, unit);
    return VT_OK;
}

void vti_model_get_identity(const vt_model *model, vti_model_identity *out)
{
    if (model->store)
        *out = *vti_store_identity(model->store);
    else
        vti_model_identity_of(model->gguf, out);
}
