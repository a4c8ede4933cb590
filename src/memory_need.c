/* memory_need.c: what a model will take, before anything is loaded. */
#include "session_internal.h"

void vt_model_memory(const vt_model *model, const vt_session_params *params, vt_memory_need *out)
{
    const vti_hparams *p = &model->hparams;
    vt_session_params defaults = vt_session_params_default();
    *out = (vt_memory_need){0};
    if (!params) params = &defaults;
    if (model->vocabulary_only || !vti_kv_type_known(params->kv_type)) return;
    vti_stage_params stage = {
        .geometry = &model->geometry,
        .kernels = &model->kernels,
        .context_tokens = params->context_tokens,
        .batch_tokens = params->batch_tokens,
        .kv_type = params->kv_type,
    };
    vti_session_sizes(p, &stage.context_tokens, &stage.batch_tokens);
    vti_stage_sizes sizes = vti_stage_size(&stage, 0, p->layers);
    out->context_tokens = stage.context_tokens;
    out->weight_bytes = model->layer_bytes + model->head_bytes;
    out->kv_bytes = sizes.kv_bytes;
    out->scratch_bytes = sizes.scratch_bytes + vti_head_bytes(model) +
                         vti_session_bytes(p, stage.context_tokens, stage.batch_tokens);
}
