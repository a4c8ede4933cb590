#include "hparams.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "families/family.h"

static const vti_family *const families[VTI_ARCH_COUNT] = {
    [VTI_ARCH_QWEN2] = &vti_family_qwen2,       [VTI_ARCH_LLAMA] = &vti_family_llama,
    [VTI_ARCH_QWEN3] = &vti_family_qwen3,       [VTI_ARCH_GEMMA3] = &vti_family_gemma3,
    [VTI_ARCH_QWEN2MOE] = &vti_family_qwen2moe,
};

const vti_family *vti_family_of(vti_arch arch)
{
    return (unsigned)arch < VTI_ARCH_COUNT ? families[arch] : NULL;
}

const char *vti_arch_name(vti_arch arch)
{
    const vti_family *family = vti_family_of(arch);
    return family ? family->name : "unknown";
}

/* --- reading --------------------------------------------------------------------------------- */

static bool equals(vti_gguf_string text, const char *name)
{
    return text.bytes == strlen(name) && memcmp(text.data, name, text.bytes) == 0;
}

static vt_status read_arch(const vt_gguf *gguf, vti_arch *out, vt_error *err)
{
    vti_gguf_string name;
    char known[128] = "";
    VTI_TRY(vti_gguf_get_string(gguf, "general.architecture", true, &name, err));
    for (unsigned i = 0, at = 0; i < VTI_ARCH_COUNT; i++) {
        *out = (vti_arch)i;
        if (equals(name, families[i]->name)) return VT_OK;
        at += (unsigned)snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "",
                                 families[i]->name);
    }
    return vti_fail(err, VT_ERR_UNSUPPORTED,
                    "%s: architecture \"%.*s\" is not supported; known are %s",
                    vti_gguf_name(gguf), (int)(name.bytes > 64 ? 64 : name.bytes), name.data,
                    known);
}

static vt_status read_yarn(const vti_keys *k, vti_hparams *out)
{
    vti_rope_params *rope = &out->rope;
    rope->original_context = out->context;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    VTI_TRY(vti_keys_u32(k, "rope.scaling.original_context_length", false,
                         &rope->original_context));
    VTI_TRY(vti_keys_f32(k, "rope.scaling.yarn_ext_factor", false, &rope->extrapolation));
    VTI_TRY(vti_keys_f32(k, "rope.scaling.attn_factor", false, &rope->magnitude));
    VTI_TRY(vti_keys_f32(k, "rope.scaling.yarn_attn_factor", false, &rope->magnitude));
    VTI_TRY(vti_keys_f32(k, "rope.scaling.yarn_beta_fast", false, &rope->beta_fast));
    return vti_keys_f32(k, "rope.scaling.yarn_beta_slow", false, &rope->beta_slow);
}

/* A scaling that we do not know would change every rotation: refuse it. Files without a kind but
 * with a factor mean linear; so did a key of the first GGUF files. */
static vt_status read_rope_scaling(const vti_keys *k, vti_hparams *out)
{
    char key[VTI_KEY_MAX];
    vti_rope_params *rope = &out->rope;
    vti_gguf_string kind = {"linear", 6};
    rope->factor = rope->magnitude = rope->extrapolation = 1;
    VTI_TRY(vti_keys_string(k, "rope.scaling.type", false, &kind));
    if (equals(kind, "none")) return VT_OK;
    bool linear = equals(kind, "linear"), yarn = equals(kind, "yarn");
    if (!linear && !yarn)
        return vti_fail(k->err, VT_ERR_UNSUPPORTED,
                        "%s: %s is \"%.*s\"; supported are \"none\", \"linear\" and \"yarn\"",
                        vti_gguf_name(k->gguf), vti_key(k, "rope.scaling.type", key),
                        (int)(kind.bytes > 32 ? 32 : kind.bytes), kind.data);
    bool stated = vti_gguf_find(k->gguf, vti_key(k, "rope.scaling.type", key)) != NULL;
    VTI_TRY(vti_keys_f32(k, "rope.scale_linear", false, &rope->factor));
    VTI_TRY(vti_keys_f32(k, "rope.scaling.factor", stated, &rope->factor));
    rope->scaling = yarn ? VTI_ROPE_YARN : rope->factor != 1 ? VTI_ROPE_LINEAR : VTI_ROPE_UNSCALED;
    return yarn ? read_yarn(k, out) : VT_OK;
}

static vt_status read_attention(const vti_keys *k, vti_hparams *out)
{
    VTI_TRY(vti_keys_u32(k, "attention.head_count", true, &out->heads));
    out->kv_heads = out->heads;
    VTI_TRY(vti_keys_u32(k, "attention.head_count_kv", false, &out->kv_heads));
    VTI_TRY(vti_keys_f32(k, "attention.layer_norm_rms_epsilon", true, &out->rms_eps));
    out->head_dim = out->heads ? out->d / out->heads : 0;
    VTI_TRY(vti_keys_u32(k, "attention.key_length", false, &out->head_dim));
    uint32_t value_length = out->head_dim;
    VTI_TRY(vti_keys_u32(k, "attention.value_length", false, &value_length));
    if (value_length != out->head_dim)
        return vti_fail(k->err, VT_ERR_UNSUPPORTED,
                        "%s: %s.attention.value_length is %" PRIu32 " but key_length is %" PRIu32
                        "; different lengths are not supported",
                        vti_gguf_name(k->gguf), k->arch, value_length, out->head_dim);
    if (out->head_dim) out->attention_scale = 1.0f / sqrtf((float)out->head_dim);
    out->rope_dims = out->head_dim;
    VTI_TRY(vti_keys_u32(k, "rope.dimension_count", false, &out->rope_dims));
    out->rope.base = 10000.0f;
    VTI_TRY(vti_keys_f32(k, "rope.freq_base", false, &out->rope.base));
    return read_rope_scaling(k, out);
}

/* Mixture-of-experts files of a dense family would load with half their weights unused. */
static vt_status refuse_experts(const vti_keys *k)
{
    uint32_t experts = 0;
    VTI_TRY(vti_keys_u32(k, "expert_count", false, &experts));
    if (experts)
        return vti_fail(k->err, VT_ERR_UNSUPPORTED,
                        "%s: %s with %" PRIu32 " experts is not supported; dense models are",
                        vti_gguf_name(k->gguf), k->arch, experts);
    return VT_OK;
}

/* The vocabulary is what the embedding matrix has rows for. */
static vt_status read_vocab(const vti_keys *k, vti_hparams *out)
{
    const vti_gguf_tensor *embedding = vti_gguf_find_tensor(k->gguf, "token_embd.weight");
    if (!embedding)
        return vti_fail(k->err, VT_ERR_FORMAT, "%s: tensor token_embd.weight is missing%s",
                        vti_gguf_name(k->gguf),
                        vt_gguf_tensor_count(k->gguf) ? "" : " (a vocabulary-only file)");
    if (embedding->dimensions[1] > VTI_MAX_VOCAB || embedding->dimensions[1] == 0)
        return vti_fail(k->err, VT_ERR_FORMAT,
                        "%s: token_embd.weight has %" PRIu64 " rows, expected 1 to %d",
                        vti_gguf_name(k->gguf), embedding->dimensions[1], VTI_MAX_VOCAB);
    out->vocab = (uint32_t)embedding->dimensions[1];
    return VT_OK;
}

static bool has_experts(const vti_family *family)
{
    return family->required & VTI_ROLE(VTI_ROUTER);
}

vt_status vti_hparams_read(const vt_gguf *gguf, vti_hparams *out, vt_error *err)
{
    memset(out, 0, sizeof *out);
    VTI_TRY(read_arch(gguf, &out->arch, err));
    const vti_family *family = families[out->arch];
    vti_keys k = {gguf, family->name, err};
    VTI_TRY(vti_keys_u32(&k, "block_count", true, &out->layers));
    VTI_TRY(vti_keys_u32(&k, "embedding_length", true, &out->d));
    VTI_TRY(vti_keys_u32(&k, "feed_forward_length", true, &out->ff));
    VTI_TRY(vti_keys_u32(&k, "context_length", true, &out->context));
    if (!has_experts(family)) VTI_TRY(refuse_experts(&k));
    VTI_TRY(read_attention(&k, out));
    if (family->read) VTI_TRY(family->read(&k, out));
    VTI_TRY(read_vocab(&k, out));
    return vti_hparams_check(out, vti_gguf_name(gguf), err);
}

/* --- checking -------------------------------------------------------------------------------- */

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

static vt_status check_attention(const vti_hparams *p, const char *source, vt_error *err)
{
    VTI_TRY(check_range(source, "head_count", p->heads, VTI_MAX_WIDTH, err));
    VTI_TRY(check_range(source, "head_count_kv", p->kv_heads, p->heads, err));
    VTI_TRY(check_range(source, "the head dimension", p->head_dim, VTI_MAX_HEAD_DIM, err));
    VTI_TRY(check_range(source, "heads x head dimension", (uint64_t)p->heads * p->head_dim,
                        VTI_MAX_WIDTH, err));
    VTI_TRY(check_finite(source, "the attention scale", p->attention_scale, err));
    if (p->heads % p->kv_heads)
        return vti_fail(err, VT_ERR_FORMAT,
                        "%s: head_count %" PRIu32 " is not a multiple of head_count_kv %" PRIu32,
                        source, p->heads, p->kv_heads);
    if (!vti_family_of(p->arch)->local_layers)
        return p->window == 0 ? VT_OK
                              : vti_fail(err, VT_ERR_FORMAT, "%s: a %s model has no sliding window",
                                         source, vti_arch_name(p->arch));
    VTI_TRY(check_range(source, "attention.sliding_window", p->window, VTI_MAX_CONTEXT, err));
    VTI_TRY(check_range(source, "attention.sliding_window_pattern", p->window_period,
                        VTI_MAX_LAYERS, err));
    return check_finite(source, "rope.freq_base_swa", p->local_rope_base, err);
}

static vt_status check_rope(const vti_hparams *p, const char *source, vt_error *err)
{
    const vti_rope_params *rope = &p->rope;
    VTI_TRY(check_range(source, "rope.dimension_count", p->rope_dims, p->head_dim, err));
    if (p->rope_dims % 2)
        return vti_fail(err, VT_ERR_FORMAT, "%s: rope.dimension_count %" PRIu32 " is odd", source,
                        p->rope_dims);
    VTI_TRY(check_finite(source, "rope.freq_base", rope->base, err));
    VTI_TRY(check_finite(source, "rope.scaling.factor", rope->factor, err));
    VTI_TRY(check_finite(source, "rope.scaling.attn_factor", rope->magnitude, err));
    if (rope->scaling != VTI_ROPE_YARN) return VT_OK;
    VTI_TRY(check_range(source, "rope.scaling.original_context_length", rope->original_context,
                        VTI_MAX_CONTEXT, err));
    VTI_TRY(check_finite(source, "rope.scaling.yarn_beta_fast", rope->beta_fast, err));
    VTI_TRY(check_finite(source, "rope.scaling.yarn_beta_slow", rope->beta_slow, err));
    if (!(rope->extrapolation >= 0 && rope->extrapolation <= 1))
        return vti_fail(err, VT_ERR_FORMAT,
                        "%s: rope.scaling.yarn_ext_factor is %g, expected 0 to 1", source,
                        (double)rope->extrapolation);
    if (rope->base > 1) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT, "%s: rope.freq_base is %g, expected more than 1", source,
                    (double)rope->base);
}

static vt_status check_experts(const vti_hparams *p, const char *source, vt_error *err)
{
    if (!has_experts(vti_family_of(p->arch)))
        return p->experts == 0 ? VT_OK
                               : vti_fail(err, VT_ERR_FORMAT, "%s: a %s model has no experts",
                                          source, vti_arch_name(p->arch));
    VTI_TRY(check_range(source, "expert_count", p->experts, VTI_MAX_EXPERTS, err));
    VTI_TRY(check_range(source, "expert_used_count", p->experts_used, p->experts, err));
    VTI_TRY(check_range(source, "expert_feed_forward_length", p->expert_ff, VTI_MAX_WIDTH, err));
    return check_finite(source, "expert_weights_scale", p->expert_scale, err);
}

vt_status vti_hparams_check(const vti_hparams *p, const char *source, vt_error *err)
{
    VTI_TRY(check_range(source, "the number of layers", p->layers, VTI_MAX_LAYERS, err));
    VTI_TRY(check_range(source, "embedding_length", p->d, VTI_MAX_WIDTH, err));
    VTI_TRY(check_range(source, "feed_forward_length", p->ff, VTI_MAX_WIDTH, err));
    VTI_TRY(check_range(source, "the vocabulary size", p->vocab, VTI_MAX_VOCAB, err));
    VTI_TRY(check_range(source, "context_length", p->context, VTI_MAX_CONTEXT, err));
    VTI_TRY(check_attention(p, source, err));
    VTI_TRY(check_rope(p, source, err));
    VTI_TRY(check_experts(p, source, err));
    return check_finite(source, "layer_norm_rms_epsilon", p->rms_eps, err);
}
