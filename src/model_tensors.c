/* model_tensors.c: which tensors a file has, and what they weigh. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

/* Tensors of types that have no kernel. */
typedef struct converted {
    uint32_t count[VTI_CONVERSION_COUNT];
    uint64_t file_bytes, bytes; /* of all of them: as in the file, as what they become */
} converted;

/* "24 x Q4_1 to Q8_0, 3 x Q2_K to Q6_K" */
static void log_converted(const vt_model *model, const converted *sum)
{
    char text[256] = "";
    size_t at = 0;
    for (unsigned i = 0; i < VTI_CONVERSION_COUNT && at < sizeof text; i++)
        if (sum->count[i])
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%" PRIu32 " x %s to %s",
                                   at ? ", " : "", sum->count[i], vti_conversions[i].name,
                                   vti_weight_type_name(vti_conversions[i].target));
    if (at)
        vti_log(&model->log, VT_LOG_WARNING,
                "tensors converted as they load: %s; %.1f MiB in the file become %.1f MiB", text,
                (double)sum->file_bytes / 1048576, (double)sum->bytes / 1048576);
}

static void count_converted(converted *sum, const vti_source *source)
{
    if (!source->conversion) return;
    sum->count[source->conversion - vti_conversions]++;
    sum->file_bytes += source->file_bytes;
    sum->bytes += source->size_bytes;
}

/* What is added up over all tensors. */
typedef struct sums {
    converted converted;
    uint64_t layer_weights, layer_bytes; /* of the layers' matrices, as they are loaded */
    bool quantised;                      /* a matrix has blocks of 32 or more */
} sums;

/* Of experts a token reads only those it chose. */
static void count_tensor(vt_model *model, vti_role role, const vti_source *source, sums *sum)
{
    const vti_hparams *p = &model->hparams;
    if (!source->data) return;
    count_converted(&sum->converted, source);
    uint64_t read = source->size_bytes;
    if (vti_role_is_expert(role)) read = read / p->experts * p->experts_used;
    model->token_bytes += read;
    if (role >= VTI_LAYER_ROLE_COUNT || vti_role_is_vector(role)) return;
    sum->quantised |= model->kernels.matmul[source->type].block > 1;
    sum->layer_weights += (uint64_t)source->slices * source->rows * source->cols;
    sum->layer_bytes += source->size_bytes;
}

/* Output and embedding may be one matrix. A token reads but a row of the embedding. */
static vt_status check_outer(vt_model *model, sums *sum, vt_error *err)
{
    const vti_hparams *p = &model->hparams;
    vti_source norm, output, freqs;
    VTI_TRY(vti_source_find(model->gguf, p, VTI_TOKEN_EMBD, 0, &model->embedding, err));
    VTI_TRY(vti_source_find(model->gguf, p, VTI_OUTPUT_NORM, 0, &norm, err));
    VTI_TRY(vti_source_find(model->gguf, p, VTI_OUTPUT, 0, &output, err));
    VTI_TRY(vti_source_find(model->gguf, p, VTI_ROPE_FREQS, 0, &freqs, err));
    if (output.data) count_converted(&sum->converted, &model->embedding);
    count_tensor(model, VTI_OUTPUT_NORM, &norm, sum);
    count_tensor(model, VTI_OUTPUT, output.data ? &output : &model->embedding, sum);
    count_tensor(model, VTI_ROPE_FREQS, &freqs, sum);
    return VT_OK;
}

/* How the model is cut into shards. */
static void set_up_shards(vt_model *model, const sums *sum)
{
    double bits = 8.0 * (double)sum->layer_bytes / (double)sum->layer_weights;
    vti_geometry_init(&model->geometry, &model->hparams, sum->quantised);
    vti_shard_builder_init(&model->builder, model->gguf, &model->geometry, &model->kernels,
                           vti_precision_of_bits(bits));
    model->shards = &model->builder.source;
}

/* A tensor that we do not know would be ignored, and with it a part of the arithmetic. Vision
 * parts, which some files carry along, are none of it. */
static vt_status check_known(const vt_model *model, const char *name, vt_error *err)
{
    unsigned layer;
    int length = 0;
    vti_role role;
    if (strncmp(name, "v.", 2) == 0 || strncmp(name, "mm.", 3) == 0) return VT_OK;
    bool per_layer = sscanf(name, "blk.%u.%n", &layer, &length) == 1 && length > 0;
    if (!per_layer) length = 0;
    if (!vti_role_find(name + length, per_layer, &role) ||
        !vti_role_allowed(&model->hparams, role))
        return vti_fail(err, VT_ERR_UNSUPPORTED, "%s: tensor %s: a %s model has no such tensor",
                        vti_gguf_name(model->gguf), name, vti_arch_name(model->hparams.arch));
    if (!per_layer || layer < model->hparams.layers) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT, "%s: tensor %s is beyond the %" PRIu32 " layers",
                    vti_gguf_name(model->gguf), name, model->hparams.layers);
}

vt_status vti_model_check_tensors(vt_model *model, vt_error *err)
{
    uint64_t count = vt_gguf_tensor_count(model->gguf);
    sums sum = {0};
    for (uint64_t i = 0; i < count; i++) {
        vt_gguf_tensor tensor;
        VTI_TRY(vt_gguf_get_tensor(model->gguf, i, &tensor));
        VTI_TRY(check_known(model, tensor.name, err));
        model->parameters += tensor.dimensions[0] * tensor.dimensions[1] * tensor.dimensions[2] *
                             tensor.dimensions[3];
        model->weight_bytes += tensor.size_bytes;
    }
    VTI_TRY(check_outer(model, &sum, err));
    for (uint32_t layer = 0; layer < model->hparams.layers; layer++)
        for (unsigned role = 0; role < VTI_LAYER_ROLE_COUNT; role++) {
            vti_source source;
            VTI_TRY(vti_source_find(model->gguf, &model->hparams, (vti_role)role, layer, &source,
                                    err));
            count_tensor(model, (vti_role)role, &source, &sum);
        }
    log_converted(model, &sum.converted);
    if (model->store)
        vti_model_set_up_store(model);
    else
        set_up_shards(model, &sum);
    return VT_OK;
}
