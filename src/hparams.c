#include "hparams.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const arch_names[VTI_ARCH_COUNT] = {
    [VTI_ARCH_QWEN2] = "qwen2",
    [VTI_ARCH_LLAMA] = "llama",
};

const char *vti_arch_name(vti_arch arch)
{
    return (unsigned)arch < VTI_ARCH_COUNT ? arch_names[arch] : "unknown";
}

static vt_status read_arch(const vt_gguf *gguf, vti_arch *out, vt_error *err)
{
    vti_gguf_string name;
    VTI_TRY(vti_gguf_get_string(gguf, "general.architecture", true, &name, err));
    for (unsigned i = 0; i < VTI_ARCH_COUNT; i++) {
        if (name.bytes == strlen(arch_names[i]) &&
            memcmp(name.data, arch_names[i], name.bytes) == 0) {
            *out = (vti_arch)i;
            return VT_OK;
        }
    }
    return vti_fail(err, VT_ERR_UNSUPPORTED,
                    "%s: architecture \"%.*s\" is not supported; known are qwen2 and llama",
                    vti_gguf_name(gguf), (int)(name.bytes > 64 ? 64 : name.bytes), name.data);
}

/* Keys are "<arch>.<suffix>". */
typedef struct key_reader {
    const vt_gguf *gguf;
    const char *arch;
    vt_error *err;
} key_reader;

static const char *full_key(const key_reader *r, const char *suffix, char *buffer, size_t capacity)
{
    snprintf(buffer, capacity, "%s.%s", r->arch, suffix);
    return buffer;
}

static vt_status get_u32(const key_reader *r, const char *suffix, bool required, uint32_t *out)
{
    char key[128];
    return vti_gguf_get_u32(r->gguf, full_key(r, suffix, key, sizeof key), required, out, r->err);
}

static vt_status get_f32(const key_reader *r, const char *suffix, bool required, float *out)
{
    char key[128];
    return vti_gguf_get_f32(r->gguf, full_key(r, suffix, key, sizeof key), required, out, r->err);
}

/* Frequency scaling other than a linear one changes every rotation: refuse what we do not do. */
static vt_status read_rope_scaling(const key_reader *r, vti_hparams *out)
{
    char key[128];
    vti_gguf_string type = {"none", 4};
    VTI_TRY(vti_gguf_get_string(r->gguf, full_key(r, "rope.scaling.type", key, sizeof key), false,
                                &type, r->err));
    out->rope_scale = 1.0f;
    if (type.bytes == 4 && memcmp(type.data, "none", 4) == 0) return VT_OK;
    if (type.bytes != 6 || memcmp(type.data, "linear", 6) != 0)
        return vti_fail(r->err, VT_ERR_UNSUPPORTED,
                        "%s: %s is \"%.*s\"; supported are \"none\" and \"linear\"",
                        vti_gguf_name(r->gguf), key, (int)(type.bytes > 32 ? 32 : type.bytes),
                        type.data);
    return get_f32(r, "rope.scaling.factor", true, &out->rope_scale);
}

static vt_status read_attention(const key_reader *r, vti_hparams *out)
{
    VTI_TRY(get_u32(r, "attention.head_count", true, &out->heads));
    out->kv_heads = out->heads;
    VTI_TRY(get_u32(r, "attention.head_count_kv", false, &out->kv_heads));
    VTI_TRY(get_f32(r, "attention.layer_norm_rms_epsilon", true, &out->rms_eps));
    out->head_dim = out->heads ? out->d / out->heads : 0;
    VTI_TRY(get_u32(r, "attention.key_length", false, &out->head_dim));
    uint32_t value_length = out->head_dim;
    VTI_TRY(get_u32(r, "attention.value_length", false, &value_length));
    if (value_length != out->head_dim)
        return vti_fail(r->err, VT_ERR_UNSUPPORTED,
                        "%s: %s.attention.value_length is %" PRIu32 " but key_length is %" PRIu32
                        "; different lengths are not supported",
                        vti_gguf_name(r->gguf), r->arch, value_length, out->head_dim);
    out->rope_dims = out->head_dim;
    VTI_TRY(get_u32(r, "rope.dimension_count", false, &out->rope_dims));
    out->rope_base = 10000.0f;
    VTI_TRY(get_f32(r, "rope.freq_base", false, &out->rope_base));
    return read_rope_scaling(r, out);
}

/* Mixture-of-experts files of an architecture we know would load with half their weights unused. */
static vt_status refuse_experts(const key_reader *r)
{
    uint32_t experts = 0;
    VTI_TRY(get_u32(r, "expert_count", false, &experts));
    if (experts)
        return vti_fail(r->err, VT_ERR_UNSUPPORTED,
                        "%s: %s with %" PRIu32 " experts is not supported; dense models are",
                        vti_gguf_name(r->gguf), r->arch, experts);
    return VT_OK;
}

/* The vocabulary is what the embedding matrix has rows for. */
static vt_status read_vocab(const key_reader *r, vti_hparams *out)
{
    const vti_gguf_tensor *embedding = vti_gguf_find_tensor(r->gguf, "token_embd.weight");
    if (!embedding)
        return vti_fail(r->err, VT_ERR_FORMAT, "%s: tensor token_embd.weight is missing%s",
                        vti_gguf_name(r->gguf),
                        vt_gguf_tensor_count(r->gguf) ? "" : " (a vocabulary-only file)");
    if (embedding->dimensions[1] > VTI_MAX_VOCAB || embedding->dimensions[1] == 0)
        return vti_fail(r->err, VT_ERR_FORMAT,
                        "%s: token_embd.weight has %" PRIu64 " rows, expected 1 to %d",
                        vti_gguf_name(r->gguf), embedding->dimensions[1], VTI_MAX_VOCAB);
    out->vocab = (uint32_t)embedding->dimensions[1];
    return VT_OK;
}

vt_status vti_hparams_read(const vt_gguf *gguf, vti_hparams *out, vt_error *err)
{
    memset(out, 0, sizeof *out);
    VTI_TRY(read_arch(gguf, &out->arch, err));
    key_reader r = {gguf, vti_arch_name(out->arch), err};
    VTI_TRY(get_u32(&r, "block_count", true, &out->layers));
    VTI_TRY(get_u32(&r, "embedding_length", true, &out->d));
    VTI_TRY(get_u32(&r, "feed_forward_length", true, &out->ff));
    VTI_TRY(get_u32(&r, "context_length", true, &out->context));
    VTI_TRY(refuse_experts(&r));
    VTI_TRY(read_attention(&r, out));
    VTI_TRY(read_vocab(&r, out));
    return vti_hparams_check(out, vti_gguf_name(gguf), err);
}

static vt_status check_range(const char *source, const char *what, uint64_t value, uint64_t most,
                             vt_error *err)
{
    if (value >= 1 && value <= most) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT, "%s: %s is %" PRIu64 ", expected 1 to %" PRIu64, source,
                    what, value, most);
}

static vt_status check_finite(const char *source, const char *what, float value, vt_error *err)
{
    if (isfinite(value) && value > 0) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT, "%s: %s is %g, expected a positive number", source, what,
                    (double)value);
}

vt_status vti_hparams_check(const vti_hparams *p, const char *source, vt_error *err)
{
    VTI_TRY(check_range(source, "the number of layers", p->layers, VTI_MAX_LAYERS, err));
    VTI_TRY(check_range(source, "embedding_length", p->d, VTI_MAX_WIDTH, err));
    VTI_TRY(check_range(source, "feed_forward_length", p->ff, VTI_MAX_WIDTH, err));
    VTI_TRY(check_range(source, "head_count", p->heads, VTI_MAX_WIDTH, err));
    VTI_TRY(check_range(source, "head_count_kv", p->kv_heads, p->heads, err));
    VTI_TRY(check_range(source, "the head dimension", p->head_dim, VTI_MAX_HEAD_DIM, err));
    VTI_TRY(check_range(source, "heads x head dimension", (uint64_t)p->heads * p->head_dim,
                        VTI_MAX_WIDTH, err));
    VTI_TRY(check_range(source, "the vocabulary size", p->vocab, VTI_MAX_VOCAB, err));
    VTI_TRY(check_range(source, "context_length", p->context, VTI_MAX_CONTEXT, err));
    VTI_TRY(check_range(source, "rope.dimension_count", p->rope_dims, p->head_dim, err));
    if (p->heads % p->kv_heads)
        return vti_fail(err, VT_ERR_FORMAT,
                        "%s: head_count %" PRIu32 " is not a multiple of head_count_kv %" PRIu32,
                        source, p->heads, p->kv_heads);
    if (p->rope_dims % 2)
        return vti_fail(err, VT_ERR_FORMAT, "%s: rope.dimension_count %" PRIu32 " is odd", source,
                        p->rope_dims);
    VTI_TRY(check_finite(source, "rope.freq_base", p->rope_base, err));
    VTI_TRY(check_finite(source, "rope.scaling.factor", p->rope_scale, err));
    return check_finite(source, "layer_norm_rms_epsilon", p->rms_eps, err);
}
