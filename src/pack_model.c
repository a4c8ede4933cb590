/* pack_model.c: vt_pack. */
#include "model.h"
#include "pack.h"

vt_status vt_pack(const vt_model *model, const char *path, const vt_pack_params *params,
                  vt_error *err)
{
    vt_pack_params defaults = vt_pack_params_default();
    vti_model_identity identity;
    vti_shard_builder builder;
    if (!params) params = &defaults;
    if (!model || !path)
        return vti_fail(err, VT_ERR_ARGUMENT, "vt_pack: %s is NULL", model ? "path" : "model");
    if (model->vocabulary_only)
        return vti_fail(err, VT_ERR_ARGUMENT, "%s was opened without its weights",
                        vti_gguf_name(model->gguf));
    vti_shard_builder_init(&builder, model->gguf, &model->geometry, &model->kernels,
                           model->builder.own);
    builder.halves = true;
    vti_model_identity_of(model->gguf, &identity);
    return vti_pack(&builder.source, model->gguf, &identity, path, params, err);
}
