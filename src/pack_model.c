/* pack_model.c: vt_pack. */
#include "model.h"
#include "pack.h"

/* A store is packed as it is. Of a GGUF file, F32 becomes F16, the highest precision there is. */
static const vti_shard_source *source_of(const vt_model *model, vti_shard_builder *builder)
{
    if (model->store) return model->shards;
    vti_shard_builder_init(builder, model->gguf, &model->geometry, &model->kernels,
                           model->builder.own);
    builder->halves = true;
    return &builder->source;
}

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
    if (params->importance_path)
        return vti_fail(err, VT_ERR_UNSUPPORTED, "%s: importance profiles cannot be read yet",
                        params->importance_path);
    vti_model_get_identity(model, &identity);
    return vti_pack(source_of(model, &builder), model->gguf, &identity, path, params, err);
}
