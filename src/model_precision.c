/* model_precision.c: what a model's file offers, and what is computed with. */
#include <string.h>

#include "model.h"
#include "store.h"

void vti_model_set_up_store(vt_model *model)
{
    model->shards = vti_store_source(model->store);
    model->geometry = *model->shards->geometry;
}

static bool is_offered(const vti_shard_source *source, vti_precision precision)
{
    vti_shard_form form;
    return source->form(source->self, (vti_shard_id){0, 0, precision}, &form);
}

static vt_status choose(vt_model *model, vt_error *err)
{
    char offered[32] = "";
    vti_precision highest = VTI_PRECISION_COUNT;
    for (unsigned p = VTI_PRECISION_COUNT; p-- > 0;) {
        if (!is_offered(model->shards, p)) continue;
        highest = p;
        if (p == model->wanted) break;
    }
    model->precision = highest;
    if (model->wanted == VTI_PRECISION_COUNT || model->wanted == highest) return VT_OK;
    for (unsigned p = 0; p < VTI_PRECISION_COUNT; p++)
        if (is_offered(model->shards, p)) strcat(strcat(offered, " "), vti_precision_name(p));
    return vti_fail(err, VT_ERR_ARGUMENT, "%s has no weights at precision %s, only at%s",
                    model->shards->name, vti_precision_name(model->wanted), offered);
}

/* What a token reads of a unit: all its shards, of experts those it chose. */
static uint64_t unit_token_bytes(const vt_model *model, uint32_t unit)
{
    const vti_geometry *g = &model->geometry;
    uint32_t shards = vti_unit_shards(g, unit), experts = g->hparams.experts;
    if (vti_unit_kind_of(g, unit) != VTI_UNIT_FFN) experts = 0;
    uint64_t chosen = 0, all = 0;
    for (uint32_t shard = 0; shard <= shards; shard++) {
        vti_shard_layout layout;
        vti_shard_id id = {unit, shard, model->precision};
        if (!vti_shard_source_lay_out(model->shards, id, &layout)) continue;
        *(shard < experts ? &chosen : &all) += layout.bytes;
    }
    return all + (experts ? chosen / experts * g->hparams.experts_used : 0);
}

/* Of a shard store what it has at this precision. */
static uint64_t stored_bytes(const vt_model *model)
{
    vt_store_info info;
    vt_store_get_info(model->store, &info);
    return info.precision[model->precision].stored_bytes + info.shared.stored_bytes +
           info.embedding.stored_bytes;
}

vt_status vti_model_choose_precision(vt_model *model, vt_error *err)
{
    VTI_TRY(choose(model, err));
    uint32_t head = vti_head_unit(&model->geometry);
    model->layer_bytes = vti_weights_bytes(model->shards, model->precision, 0, head);
    model->head_bytes = vti_weights_bytes(model->shards, model->precision, head, 1);
    if (model->store) model->weight_bytes = stored_bytes(model);
    if (!model->store && model->precision == model->builder.own) return VT_OK;
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
