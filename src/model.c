#include "model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/family.h"
#include "kv_cache.h"
#include "model_shards.h"
#include "store.h"

vt_model_params vt_model_params_default(void) { return (vt_model_params){0}; }

static vt_status read_name(vt_model *model, vt_error *err)
{
    vti_gguf_string name = {"", 0};
    VTI_TRY(vti_gguf_get_string(model->gguf, "general.name", false, &name, err));
    model->name = strndup(name.data, name.bytes < 256 ? name.bytes : 256);
    if (!model->name) return vti_fail(err, VT_ERR_MEMORY, "no memory for the model's name");
    vti_make_printable(model->name);
    return VT_OK;
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

static vt_status read_model(vt_model *model, const vt_model_params *params, vt_error *err)
{
    VTI_TRY(read_name(model, err));
    if (!model->vocabulary_only) VTI_TRY(vti_hparams_read(model->gguf, &model->hparams, err));
    vt_error why = {0};
    vt_status status = vti_tokenizer_open(model->gguf, params->pre_tokenizer, &model->tokenizer,
                                          &why);
    if (status != VT_OK)
        return vti_fail(err, status, "%s: %s", vti_gguf_name(model->gguf), why.message);
    if (model->vocabulary_only) return VT_OK;
    VTI_TRY(check_vocabulary(model, err));
    VTI_TRY(vti_model_check_tensors(model, err));
    return vti_model_compose(model, params->precision, params->plan_json, err);
}

static vt_status open_resources(vt_model *model, const vt_model_params *params, vt_error *err)
{
    VTI_TRY(vti_device_memory_open(&model->device, params->memory_bytes, &model->log, err));
    model->memory = vti_shard_memory_open(&model->device.budget, VTI_BUDGET_WEIGHTS);
    if (!model->memory) return vti_fail(err, VT_ERR_MEMORY, "no memory for weights");
    VTI_TRY(vti_model_open_table(model, err));
    return vti_pool_open(params->threads, &model->pool, err);
}

/* A shard store's directory belongs to the store. */
static void close_file(vt_store *store, vt_gguf *gguf)
{
    if (store)
        vt_store_close(store);
    else
        vt_gguf_close(gguf);
}

/* Takes over the file, also on failure. `store` NULL: it is a GGUF file. */
static vt_status open_file(vt_store *store, vt_gguf *gguf, const vt_model_params *params,
                           vt_model **out, vt_error *err)
{
    const vt_model_params defaults = vt_model_params_default();
    vt_model *model = calloc(1, sizeof *model);
    if (!params) params = &defaults;
    if (!model || pthread_mutex_init(&model->lock, NULL) != 0) {
        free(model);
        close_file(store, gguf);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a model");
    }
    model->store = store;
    model->gguf = gguf;
    model->log = params->log;
    model->progress = params->progress;
    model->vocabulary_only = params->vocabulary_only;
    vti_kernels_init(&model->kernels, VTI_CPU_EXACT);
    vt_status status = read_model(model, params, err);
    if (status == VT_OK && !model->vocabulary_only)
        status = open_resources(model, params, err);
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
    vt_store *store;
    if (vt_store_is(path)) {
        VTI_TRY(vt_store_open(path, &store, err));
        return open_file(store, vti_store_gguf(store), params, out, err);
    }
    VTI_TRY(vt_gguf_open(path, &gguf, err));
    return open_file(NULL, gguf, params, out, err);
}

vt_status vt_model_open_memory(const void *data, size_t data_bytes, const vt_model_params *params,
                               vt_model **out, vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_model_open_memory: out is NULL");
    *out = NULL;
    vt_gguf *gguf;
    VTI_TRY(vti_gguf_open_memory(data, data_bytes, "model in memory", &gguf, err));
    return open_file(NULL, gguf, params, out, err);
}

void vt_model_close(vt_model *model)
{
    if (!model) return;
    vti_shard_loader_close(model->loader);
    vti_pool_close(model->pool);
    vti_weights_free(model->all_layers);
    vti_weights_free(model->head);
    vti_shard_table_close(model->table);
    vti_shard_memory_close(model->memory);
    vti_device_memory_close(&model->device);
    vti_tokenizer_close(model->tokenizer);
    vti_composition_close(&model->composition);
    close_file(model->store, model->gguf);
    free(model->name);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

static uint64_t kv_bytes_per_token(const vt_model *model)
{
    const vti_hparams *p = &model->hparams;
    vti_kv_params one = {&model->kernels, p, 0, p->layers, 1, 1, VT_KV_F16};
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

void vt_model_get_memory(const vt_model *model, vt_memory_usage *out)
{
    vti_device_memory_get(vti_model_device(model), out);
}

/* Units [first, first + count) into *weights, unless they are there. */
static vt_status load_units(vt_model *model, uint32_t first, uint32_t count, vti_weights **weights,
                            const vti_weights **out, vt_error *err)
{
    vt_status status = VT_OK;
    pthread_mutex_lock(&model->lock);
    if (!*weights) {
        status = vti_weights_load(model->shards, &model->composition, model->memory, model->pool,
                                  &model->progress, first, count, weights, err);
        vti_gguf_let_go(model->gguf);
        for (uint32_t i = 0; status == VT_OK && i < count; i++)
            vti_shard_table_attach(model->table, first + i, (*weights)->units[i].shard);
    }
    *out = *weights;
    pthread_mutex_unlock(&model->lock);
    return status;
}

vt_status vti_model_layers(vt_model *model, const vti_weights **out, vt_error *err)
{
    return load_units(model, 0, vti_head_unit(&model->geometry), &model->all_layers, out, err);
}

vt_status vti_model_head(vt_model *model, const vti_weights **out, vt_error *err)
{
    return load_units(model, vti_head_unit(&model->geometry), 1, &model->head, out, err);
}

uint64_t vti_model_unloaded_bytes(vt_model *model, bool with_layers)
{
    pthread_mutex_lock(&model->lock);
    uint64_t bytes = (model->head ? 0 : model->head_bytes) +
                     (model->all_layers || !with_layers ? 0 : model->layer_bytes);
    pthread_mutex_unlock(&model->lock);
    return bytes;
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
