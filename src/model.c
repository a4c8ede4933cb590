#include "model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/family.h"
#include "kv_cache.h"

vt_model_params vt_model_params_default(void) { return (vt_model_params){0}; }

/* Tensors of types that have no kernel. */
typedef struct converted {
    uint32_t count[VTI_CONVERSION_COUNT];
    uint64_t file_bytes, bytes; /* of all of them: as in the file, as what they become */
} converted;

static vt_status check_tensor(vt_model *model, vti_role role, uint32_t layer, converted *sum,
                              vt_error *err)
{
    vti_source source;
    VTI_TRY(vti_source_find(model->gguf, &model->hparams, role, layer, &source, err));
    if (!source.conversion) return VT_OK;
    sum->count[source.conversion - vti_conversions]++;
    sum->file_bytes += source.file_bytes;
    sum->bytes += source.size_bytes;
    return VT_OK;
}

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

/* Every tensor that a run would touch is looked up and checked now, so that a damaged file is
 * refused when it is opened and not in the middle of an answer. */
static vt_status check_tensors(vt_model *model, vt_error *err)
{
    converted sum = {0};
    for (unsigned role = VTI_LAYER_ROLE_COUNT; role < VTI_ROLE_COUNT; role++)
        VTI_TRY(check_tensor(model, (vti_role)role, 0, &sum, err));
    VTI_TRY(vti_source_find(model->gguf, &model->hparams, VTI_TOKEN_EMBD, 0, &model->embedding,
                            err));
    for (uint32_t layer = 0; layer < model->hparams.layers; layer++)
        for (unsigned role = 0; role < VTI_LAYER_ROLE_COUNT; role++)
            VTI_TRY(check_tensor(model, (vti_role)role, layer, &sum, err));
    model->loaded_weight_bytes = model->weight_bytes - sum.file_bytes + sum.bytes;
    log_converted(model, &sum);
    return VT_OK;
}

static void count_weights(vt_model *model)
{
    uint64_t count = vt_gguf_tensor_count(model->gguf);
    for (uint64_t i = 0; i < count; i++) {
        vt_gguf_tensor tensor;
        if (vt_gguf_get_tensor(model->gguf, i, &tensor) != VT_OK) continue;
        uint64_t elements = 1;
        for (int j = 0; j < 4; j++) elements *= tensor.dimensions[j];
        model->parameters += elements;
        model->weight_bytes += tensor.size_bytes;
    }
}

static vt_status read_name(vt_model *model, vt_error *err)
{
    vti_gguf_string name = {"", 0};
    VTI_TRY(vti_gguf_get_string(model->gguf, "general.name", false, &name, err));
    model->name = strndup(name.data, name.bytes < 256 ? name.bytes : 256);
    return model->name ? VT_OK : vti_fail(err, VT_ERR_MEMORY, "no memory for the model's name");
}

static vt_status check_vocabulary(const vt_model *model, vt_error *err)
{
    uint32_t tokens = vti_tokenizer_size(model->tokenizer);
    if (tokens <= model->hparams.vocab) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT,
                    "%s: the tokenizer has %" PRIu32 " tokens but token_embd.weight only %" PRIu32
                    " rows",
                    vti_gguf_name(model->gguf), tokens, model->hparams.vocab);
}

static vt_status read_model(vt_model *model, vt_error *err)
{
    VTI_TRY(read_name(model, err));
    if (!model->vocabulary_only) VTI_TRY(vti_hparams_read(model->gguf, &model->hparams, err));
    vt_error why = {0};
    vt_status status = vti_tokenizer_open(model->gguf, &model->tokenizer, &why);
    if (status != VT_OK)
        return vti_fail(err, status, "%s: %s", vti_gguf_name(model->gguf), why.message);
    if (model->vocabulary_only) return VT_OK;
    VTI_TRY(check_vocabulary(model, err));
    count_weights(model);
    return check_tensors(model, err);
}

/* Takes over `gguf`, also on failure. */
static vt_status open_gguf(vt_gguf *gguf, const vt_model_params *params, vt_model **out,
                           vt_error *err)
{
    vt_model *model = calloc(1, sizeof *model);
    if (!model || pthread_mutex_init(&model->lock, NULL) != 0) {
        free(model);
        vt_gguf_close(gguf);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a model");
    }
    model->gguf = gguf;
    if (params) {
        model->log = params->log;
        model->vocabulary_only = params->vocabulary_only;
    }
    vti_kernels_init(&model->kernels, VTI_CPU_EXACT);
    vt_status status = read_model(model, err);
    if (status == VT_OK && !model->vocabulary_only)
        status = vti_pool_open(params ? params->threads : 0, &model->pool, err);
    if (status != VT_OK) {
        vt_model_close(model);
        return status;
    }
    *out = model;
    return VT_OK;
}

vt_status vt_model_open(const char *path, const vt_model_params *params, vt_model **out,
                        vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_model_open: out is NULL");
    *out = NULL;
    if (!path) return vti_fail(err, VT_ERR_ARGUMENT, "vt_model_open: path is NULL");
    vt_gguf *gguf;
    VTI_TRY(vt_gguf_open(path, &gguf, err));
    return open_gguf(gguf, params, out, err);
}

vt_status vt_model_open_memory(const void *data, size_t data_bytes, const vt_model_params *params,
                               vt_model **out, vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_model_open_memory: out is NULL");
    *out = NULL;
    vt_gguf *gguf;
    VTI_TRY(vti_gguf_open_memory(data, data_bytes, "model in memory", &gguf, err));
    return open_gguf(gguf, params, out, err);
}

void vt_model_close(vt_model *model)
{
    if (!model) return;
    vti_pool_close(model->pool);
    vti_weights_free(model->all_layers);
    vti_arena_close(model->head_arena);
    vti_tokenizer_close(model->tokenizer);
    vt_gguf_close(model->gguf);
    free(model->name);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

static uint64_t kv_bytes_per_token(const vt_model *model)
{
    vti_kv_params one = {&model->kernels, &model->hparams, 0, model->hparams.layers, 1, 1, VT_KV_F16};
    return model->vocabulary_only ? 0 : vti_kv_cache_bytes(&one);
}

void vt_model_get_info(const vt_model *model, vt_model_info *out)
{
    const vti_hparams *p = &model->hparams;
    *out = (vt_model_info){
        .architecture = model->vocabulary_only ? "" : vti_arch_name(p->arch),
        .name = model->name,
        .layers = p->layers,
        .embedding_length = p->d,
        .heads = p->heads,
        .kv_heads = p->kv_heads,
        .head_dim = p->head_dim,
        .feed_forward_length = p->ff,
        .vocabulary_tokens = model->vocabulary_only ? vti_tokenizer_size(model->tokenizer)
                                                    : p->vocab,
        .context_tokens = p->context,
        .parameters = model->parameters,
        .weight_bytes = model->weight_bytes,
        .kv_bytes_per_token_f16 = kv_bytes_per_token(model),
    };
}

vt_status vti_model_layers(vt_model *model, const vti_weights **out, vt_error *err)
{
    pthread_mutex_lock(&model->lock);
    vt_status status = VT_OK;
    if (!model->all_layers)
        status = vti_weights_load(model->gguf, &model->hparams, &model->kernels, model->pool,
                                  0, model->hparams.layers, &model->all_layers, err);
    *out = model->all_layers;
    pthread_mutex_unlock(&model->lock);
    return status;
}

static vt_status load_head(vt_model *model, vti_arena *arena, vt_error *err)
{
    const vti_hparams *p = &model->hparams;
    vti_source norm, output;
    VTI_TRY(vti_source_find(model->gguf, p, VTI_OUTPUT_NORM, 0, &norm, err));
    VTI_TRY(vti_source_find(model->gguf, p, VTI_OUTPUT, 0, &output, err));
    if (!output.data) output = model->embedding; /* tied embeddings */
    vti_loader loader = {&model->kernels, arena, model->pool};
    VTI_TRY(vti_tensor_load(&loader, VTI_OUTPUT_NORM, &norm, &model->output_norm, err));
    return vti_tensor_load(&loader, VTI_OUTPUT, &output, &model->output, err);
}

vt_status vti_model_load_head(vt_model *model, vt_error *err)
{
    pthread_mutex_lock(&model->lock);
    vt_status status = VT_OK;
    if (!model->head_arena) {
        vti_arena *arena = vti_arena_open();
        status = arena ? load_head(model, arena, err)
                       : vti_fail(err, VT_ERR_MEMORY, "no memory for the output matrix");
        if (status == VT_OK)
            model->head_arena = arena;
        else
            vti_arena_close(arena);
    }
    pthread_mutex_unlock(&model->lock);
    return status;
}

void vti_model_embed(const vt_model *model, vt_token token, float *out)
{
    const vti_source *embedding = &model->embedding;
    vti_source_dequantize(&model->kernels, &model->embedding, (uint64_t)token, out);
    if (!vti_family_of(model->hparams.arch)->embedding_scaled) return;
    float scale = sqrtf((float)embedding->cols);
    for (uint32_t i = 0; i < embedding->cols; i++) out[i] *= scale;
}

vt_token vt_model_bos(const vt_model *model) { return vti_tokenizer_bos(model->tokenizer); }

vt_token vt_model_eos(const vt_model *model) { return vti_tokenizer_eos(model->tokenizer); }

bool vt_model_is_stop(const vt_model *model, vt_token token)
{
    return vti_tokenizer_is_stop(model->tokenizer, token);
}

size_t vt_tokenize_bound(const vt_model *model, size_t text_bytes)
{
    return vti_tokenizer_bound(model->tokenizer, text_bytes);
}

vt_status vt_tokenize(const vt_model *model, const char *text, size_t text_bytes, unsigned flags,
                      vt_token *tokens, size_t capacity, size_t *count, vt_error *err)
{
    return vti_tokenizer_encode(model->tokenizer, text, text_bytes, flags, tokens, capacity, count,
                                err);
}

const char *vt_token_bytes(const vt_model *model, vt_token token, size_t *bytes)
{
    size_t ignored;
    return vti_tokenizer_bytes(model->tokenizer, token, bytes ? bytes : &ignored);
}

bool vt_token_is_control(const vt_model *model, vt_token token)
{
    return vti_tokenizer_is_control(model->tokenizer, token);
}
