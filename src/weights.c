#include "weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a dimension follows from the hyperparameters. */
typedef enum dim { DIM_ONE, DIM_D, DIM_Q, DIM_KV, DIM_FF, DIM_VOCAB, DIM_ROPE_HALF } dim;

typedef enum presence { REQUIRED, OPTIONAL, QWEN2_ONLY } presence;

typedef struct role_spec {
    const char *name; /* in the file; per-layer names follow "blk.N." */
    dim rows, cols;   /* rows DIM_ONE: a vector, loaded as F32 */
    presence presence;
} role_spec;

static const role_spec role_specs[VTI_ROLE_COUNT] = {
    [VTI_ATTN_NORM] = {"attn_norm.weight", DIM_ONE, DIM_D, REQUIRED},
    [VTI_ATTN_Q] = {"attn_q.weight", DIM_Q, DIM_D, REQUIRED},
    [VTI_ATTN_K] = {"attn_k.weight", DIM_KV, DIM_D, REQUIRED},
    [VTI_ATTN_V] = {"attn_v.weight", DIM_KV, DIM_D, REQUIRED},
    [VTI_ATTN_Q_BIAS] = {"attn_q.bias", DIM_ONE, DIM_Q, QWEN2_ONLY},
    [VTI_ATTN_K_BIAS] = {"attn_k.bias", DIM_ONE, DIM_KV, QWEN2_ONLY},
    [VTI_ATTN_V_BIAS] = {"attn_v.bias", DIM_ONE, DIM_KV, QWEN2_ONLY},
    [VTI_ATTN_OUT] = {"attn_output.weight", DIM_D, DIM_Q, REQUIRED},
    [VTI_FFN_NORM] = {"ffn_norm.weight", DIM_ONE, DIM_D, REQUIRED},
    [VTI_FFN_GATE] = {"ffn_gate.weight", DIM_FF, DIM_D, REQUIRED},
    [VTI_FFN_UP] = {"ffn_up.weight", DIM_FF, DIM_D, REQUIRED},
    [VTI_FFN_DOWN] = {"ffn_down.weight", DIM_D, DIM_FF, REQUIRED},
    [VTI_TOKEN_EMBD] = {"token_embd.weight", DIM_VOCAB, DIM_D, REQUIRED},
    [VTI_OUTPUT_NORM] = {"output_norm.weight", DIM_ONE, DIM_D, REQUIRED},
    [VTI_OUTPUT] = {"output.weight", DIM_VOCAB, DIM_D, OPTIONAL},
    [VTI_ROPE_FREQS] = {"rope_freqs.weight", DIM_ONE, DIM_ROPE_HALF, OPTIONAL},
};

/* The file's numbers of the types that have a kernel. */
static const uint32_t ggml_numbers[VTI_WEIGHT_TYPE_COUNT] = {
    [VTI_F32] = 0,  [VTI_F16] = 1,   [VTI_BF16] = 30, [VTI_Q8_0] = 8,
    [VTI_Q4_0] = 2, [VTI_Q5_0] = 6,  [VTI_Q4_K] = 12, [VTI_Q5_K] = 13, [VTI_Q6_K] = 14,
};

static const vti_ggml_type *facts_of(vti_weight_type type)
{
    return vti_ggml_type_find(ggml_numbers[type]);
}

const char *vti_weight_type_name(vti_weight_type type)
{
    return (unsigned)type < VTI_WEIGHT_TYPE_COUNT ? facts_of(type)->name : "unknown";
}

uint64_t vti_source_bytes(vti_weight_type type, uint32_t rows, uint32_t cols)
{
    const vti_ggml_type *facts = facts_of(type);
    if (cols % facts->block) return 0;
    return (uint64_t)rows * (cols / facts->block) * facts->block_bytes;
}

static uint32_t dim_value(const vti_hparams *p, dim which)
{
    switch (which) {
    case DIM_ONE: return 1;
    case DIM_D: return p->d;
    case DIM_Q: return p->heads * p->head_dim;
    case DIM_KV: return p->kv_heads * p->head_dim;
    case DIM_FF: return p->ff;
    case DIM_VOCAB: return p->vocab;
    case DIM_ROPE_HALF: return p->rope_dims / 2;
    }
    return 0;
}

const char *vti_role_name(vti_role role) { return role_specs[role].name; }

static bool is_vector(vti_role role) { return role_specs[role].rows == DIM_ONE; }

bool vti_role_required(const vti_hparams *hparams, vti_role role)
{
    switch (role_specs[role].presence) {
    case REQUIRED: return true;
    case OPTIONAL: return false;
    case QWEN2_ONLY: return hparams->arch == VTI_ARCH_QWEN2;
    }
    return true;
}

/* Biases that a family's arithmetic does not have would be ignored: better refuse the file. */
static bool may_be_there(const vti_hparams *p, vti_role role)
{
    return role_specs[role].presence != QWEN2_ONLY || p->arch == VTI_ARCH_QWEN2;
}

static void tensor_name(vti_role role, uint32_t layer, char *buffer, size_t capacity)
{
    if (role < VTI_LAYER_ROLE_COUNT)
        snprintf(buffer, capacity, "blk.%" PRIu32 ".%s", layer, role_specs[role].name);
    else
        snprintf(buffer, capacity, "%s", role_specs[role].name);
}

static vt_status native_type(const vt_gguf *gguf, const vti_gguf_tensor *tensor,
                             vti_weight_type *out, vt_error *err)
{
    char known[128] = "";
    for (unsigned type = 0, at = 0; type < VTI_WEIGHT_TYPE_COUNT; type++) {
        *out = (vti_weight_type)type;
        if (ggml_numbers[type] == tensor->type) return VT_OK;
        at += (unsigned)snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "",
                                 vti_weight_type_name(*out));
    }
    return vti_fail(err, VT_ERR_UNSUPPORTED, "%s: tensor %s has type %s; supported are %s",
                    vti_gguf_name(gguf), tensor->name, vti_ggml_type_find(tensor->type)->name,
                    known);
}

vt_status vti_source_check(const vti_hparams *hparams, vti_role role, const vti_source *source,
                           const char *name, vt_error *err)
{
    uint32_t rows = dim_value(hparams, role_specs[role].rows);
    uint32_t cols = dim_value(hparams, role_specs[role].cols);
    if (source->rows != rows || source->cols != cols)
        return vti_fail(err, VT_ERR_FORMAT,
                        "%s is %" PRIu32 " x %" PRIu32 ", expected %" PRIu32 " x %" PRIu32, name,
                        source->rows, source->cols, rows, cols);
    if (!may_be_there(hparams, role))
        return vti_fail(err, VT_ERR_UNSUPPORTED, "%s: a %s model has no such tensor", name,
                        vti_arch_name(hparams->arch));
    if (is_vector(role) && facts_of(source->type)->block != 1)
        return vti_fail(err, VT_ERR_UNSUPPORTED, "%s is a vector of type %s; expected floats", name,
                        facts_of(source->type)->name);
    uint64_t bytes = vti_source_bytes(source->type, rows, cols);
    if (bytes == 0 || bytes != source->size_bytes)
        return vti_fail(err, VT_ERR_FORMAT, "%s has %" PRIu64 " bytes, expected %" PRIu64, name,
                        source->size_bytes, bytes);
    return VT_OK;
}

vt_status vti_source_find(const vt_gguf *gguf, const vti_hparams *hparams, vti_role role,
                          uint32_t layer, vti_source *out, vt_error *err)
{
    char name[96], label[640];
    memset(out, 0, sizeof *out);
    tensor_name(role, layer, name, sizeof name);
    const vti_gguf_tensor *tensor = vti_gguf_find_tensor(gguf, name);
    if (!tensor && !vti_role_required(hparams, role)) return VT_OK;
    if (!tensor)
        return vti_fail(err, VT_ERR_FORMAT, "%s: tensor %s is missing", vti_gguf_name(gguf), name);
    VTI_TRY(native_type(gguf, tensor, &out->type, err));
    if (tensor->dimensions[2] != 1 || tensor->dimensions[3] != 1 ||
        tensor->dimensions[0] > VTI_MAX_VOCAB || tensor->dimensions[1] > VTI_MAX_VOCAB)
        return vti_fail(err, VT_ERR_FORMAT, "%s: tensor %s is not a matrix of sensible size",
                        vti_gguf_name(gguf), name);
    out->cols = (uint32_t)tensor->dimensions[0];
    out->rows = (uint32_t)tensor->dimensions[1];
    out->data = tensor->data;
    out->size_bytes = tensor->size_bytes;
    snprintf(label, sizeof label, "%s: tensor %s", vti_gguf_name(gguf), name);
    return vti_source_check(hparams, role, out, label, err);
}

uint64_t vti_tensor_bytes(const vti_kernels *kernels, vti_role role, const vti_source *source)
{
    if (source->rows == 0) return 0;
    if (is_vector(role)) return (uint64_t)source->cols * sizeof(float);
    return kernels->matmul[source->type].packed_bytes(source->rows, source->cols);
}

typedef struct pack_job {
    const vti_matmul_kernel *kernel;
    const vti_source *source;
    void *data;
} pack_job;

static void pack_panels(void *context, size_t begin, size_t end)
{
    const pack_job *j = context;
    const vti_source *from = j->source;
    size_t step = j->kernel->row_step, last = end * step;
    j->kernel->pack(j->data, from->data, (size_t)vti_source_bytes(from->type, 1, from->cols),
                    from->rows, from->cols, begin * step, last < from->rows ? last : from->rows);
}

vt_status vti_tensor_load(const vti_loader *loader, vti_role role, const vti_source *source,
                          vti_tensor *out, vt_error *err)
{
    const vti_matmul_kernel *kernel = &loader->kernels->matmul[source->type];
    uint64_t bytes = vti_tensor_bytes(loader->kernels, role, source);
    void *data = bytes <= SIZE_MAX ? vti_arena_allocate(loader->arena, (size_t)bytes) : NULL;
    memset(out, 0, sizeof *out);
    if (!data)
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a tensor of %" PRIu64 " bytes", bytes);
    if (is_vector(role)) {
        kernel->dequantize(data, source->data, source->cols);
    } else {
        pack_job job = {kernel, source, data};
        size_t panels = (source->rows + kernel->row_step - 1) / kernel->row_step;
        vti_pool_run(loader->pool, panels, 1, pack_panels, &job);
    }
    *out = (vti_tensor){is_vector(role) ? VTI_F32 : source->type, source->rows, source->cols, data};
    return VT_OK;
}

vt_status vti_weights_new(uint32_t first, uint32_t count, vti_weights **out, vt_error *err)
{
    *out = NULL;
    vti_weights *weights = calloc(1, sizeof *weights);
    if (weights) {
        weights->first = first;
        weights->count = count;
        weights->layers = calloc(count ? count : 1, sizeof *weights->layers);
        weights->arena = vti_arena_open();
    }
    if (!weights || !weights->layers || !weights->arena) {
        vti_weights_free(weights);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for %" PRIu32 " layers", count);
    }
    *out = weights;
    return VT_OK;
}

static vt_status load_one(const vt_gguf *gguf, const vti_hparams *hparams, const vti_loader *loader,
                          vti_role role, uint32_t layer, vti_tensor *tensor, uint64_t *bytes,
                          vt_error *err)
{
    vti_source source;
    VTI_TRY(vti_source_find(gguf, hparams, role, layer, &source, err));
    if (!source.data) return VT_OK;
    VTI_TRY(vti_tensor_load(loader, role, &source, tensor, err));
    *bytes += vti_tensor_bytes(loader->kernels, role, &source);
    return VT_OK;
}

vt_status vti_weights_load(const vt_gguf *gguf, const vti_hparams *hparams,
                           const vti_kernels *kernels, vti_pool *pool, uint32_t first,
                           uint32_t count, vti_weights **out, vt_error *err)
{
    VTI_TRY(vti_weights_new(first, count, out, err));
    vti_weights *w = *out;
    vti_loader loader = {kernels, w->arena, pool};
    vt_status status =
        load_one(gguf, hparams, &loader, VTI_ROPE_FREQS, 0, &w->rope_freqs, &w->bytes, err);
    for (uint32_t i = 0; i < count && status == VT_OK; i++) {
        for (unsigned role = 0; role < VTI_LAYER_ROLE_COUNT && status == VT_OK; role++)
            status = load_one(gguf, hparams, &loader, (vti_role)role, first + i,
                              &w->layers[i].tensor[role], &w->bytes, err);
    }
    if (status != VT_OK) {
        vti_weights_free(w);
        *out = NULL;
    }
    return status;
}

void vti_weights_free(vti_weights *weights)
{
    if (!weights) return;
    vti_arena_close(weights->arena);
    free(weights->layers);
    free(weights);
}
