/* pack_model.c: vt_pack. */
#include <sys/stat.h>

#include "calibration.h"
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

/* A store with fewer precisions would take the place of the one it is made from. */
static vt_status check_output(const vt_model *model, const char *path, vt_error *err)
{
    struct stat from, to;
    if (stat(vti_gguf_name(model->gguf), &from) != 0 || stat(path, &to) != 0) return VT_OK;
    if (from.st_dev != to.st_dev || from.st_ino != to.st_ino) return VT_OK;
    return vti_fail(err, VT_ERR_ARGUMENT, "%s is the model itself; choose another name", path);
}

static vt_status check_rounding(const vt_model *model, vt_error *err)
{
    if (!model->store && model->builder.own < VTI_PRECISION_I4) return VT_OK;
    return vti_fail(err, VT_ERR_ARGUMENT,
                    "%s: nothing of it is rounded, so a calibration would change nothing; it is "
                    "for GGUF files with more than about 4 bits per weight",
                    vti_gguf_name(model->gguf));
}

static vt_status pack_calibrated(const vt_model *model, const vti_model_identity *identity,
                                 const char *path, const vt_pack_params *params,
                                 vt_error *err)
{
    vti_shard_builder builder;
    vti_calibration *calibration;
    VTI_TRY(check_rounding(model, err));
    VTI_TRY(vti_calibration_load(params->calibration_path, &model->hparams, identity, &calibration,
                                 err));
    const vti_shard_source *source = source_of(model, &builder);
    builder.importance = vti_calibration_of;
    builder.importance_user = calibration;
    vt_status status = vti_pack(source, model->gguf, identity, path, params, err);
    vti_calibration_free(calibration);
    return status;
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
    VTI_TRY(check_output(model, path, err));
    vti_model_get_identity(model, &identity);
    if (!params->calibration_path)
        return vti_pack(source_of(model, &builder), model->gguf, &identity, path, params, err);
    return pack_calibrated(model, &identity, path, params, err);
}
