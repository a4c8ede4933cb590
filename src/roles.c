#include "roles.h"

#include <string.h>

#include "families/family.h"

/* How a dimension follows from the hyperparameters. */
typedef enum dim {
    DIM_ONE, DIM_D, DIM_Q, DIM_KV, DIM_HEAD, DIM_FF, DIM_EXPERTS, DIM_EXPERT_FF, DIM_VOCAB,
    DIM_ROPE_HALF
} dim;

typedef struct role_spec {
    const char *name; /* in the file; per-layer names follow "blk.N." */
    dim rows, cols;   /* rows DIM_ONE: a vector */
    dim slices;
} role_spec;

static const role_spec specs[VTI_ROLE_COUNT] = {
    [VTI_ATTN_NORM] = {"attn_norm.weight", DIM_ONE, DIM_D, DIM_ONE},
    [VTI_ATTN_Q] = {"attn_q.weight", DIM_Q, DIM_D, DIM_ONE},
    [VTI_ATTN_K] = {"attn_k.weight", DIM_KV, DIM_D, DIM_ONE},
    [VTI_ATTN_V] = {"attn_v.weight", DIM_KV, DIM_D, DIM_ONE},
    [VTI_ATTN_Q_BIAS] = {"attn_q.bias", DIM_ONE, DIM_Q, DIM_ONE},
    [VTI_ATTN_K_BIAS] = {"attn_k.bias", DIM_ONE, DIM_KV, DIM_ONE},
    [VTI_ATTN_V_BIAS] = {"attn_v.bias", DIM_ONE, DIM_KV, DIM_ONE},
    [VTI_ATTN_Q_NORM] = {"attn_q_norm.weight", DIM_ONE, DIM_HEAD, DIM_ONE},
    [VTI_ATTN_K_NORM] = {"attn_k_norm.weight", DIM_ONE, DIM_HEAD, DIM_ONE},
    [VTI_ATTN_OUT] = {"attn_output.weight", DIM_D, DIM_Q, DIM_ONE},
    [VTI_ATTN_POST_NORM] = {"post_attention_norm.weight", DIM_ONE, DIM_D, DIM_ONE},
    [VTI_FFN_NORM] = {"ffn_norm.weight", DIM_ONE, DIM_D, DIM_ONE},
    [VTI_FFN_GATE] = {"ffn_gate.weight", DIM_FF, DIM_D, DIM_ONE},
    [VTI_FFN_UP] = {"ffn_up.weight", DIM_FF, DIM_D, DIM_ONE},
    [VTI_FFN_DOWN] = {"ffn_down.weight", DIM_D, DIM_FF, DIM_ONE},
    [VTI_ROUTER] = {"ffn_gate_inp.weight", DIM_EXPERTS, DIM_D, DIM_ONE},
    [VTI_EXPERTS_GATE] = {"ffn_gate_exps.weight", DIM_EXPERT_FF, DIM_D, DIM_EXPERTS},
    [VTI_EXPERTS_UP] = {"ffn_up_exps.weight", DIM_EXPERT_FF, DIM_D, DIM_EXPERTS},
    [VTI_EXPERTS_DOWN] = {"ffn_down_exps.weight", DIM_D, DIM_EXPERT_FF, DIM_EXPERTS},
    [VTI_SHARED_ROUTER] = {"ffn_gate_inp_shexp.weight", DIM_ONE, DIM_D, DIM_ONE},
    [VTI_SHARED_GATE] = {"ffn_gate_shexp.weight", DIM_FF, DIM_D, DIM_ONE},
    [VTI_SHARED_UP] = {"ffn_up_shexp.weight", DIM_FF, DIM_D, DIM_ONE},
    [VTI_SHARED_DOWN] = {"ffn_down_shexp.weight", DIM_D, DIM_FF, DIM_ONE},
    [VTI_FFN_POST_NORM] = {"post_ffw_norm.weight", DIM_ONE, DIM_D, DIM_ONE},
    [VTI_TOKEN_EMBD] = {"token_embd.weight", DIM_VOCAB, DIM_D, DIM_ONE},
    [VTI_OUTPUT_NORM] = {"output_norm.weight", DIM_ONE, DIM_D, DIM_ONE},
    [VTI_OUTPUT] = {"output.weight", DIM_VOCAB, DIM_D, DIM_ONE},
    [VTI_ROPE_FREQS] = {"rope_freqs.weight", DIM_ONE, DIM_ROPE_HALF, DIM_ONE},
};

static uint32_t dim_value(const vti_hparams *p, dim which)
{
    switch (which) {
    case DIM_ONE: return 1;
    case DIM_D: return p->d;
    case DIM_Q: return p->heads * p->head_dim;
    case DIM_KV: return p->kv_heads * p->head_dim;
    case DIM_HEAD: return p->head_dim;
    case DIM_FF: return p->ff;
    case DIM_EXPERTS: return p->experts;
    case DIM_EXPERT_FF: return p->expert_ff;
    case DIM_VOCAB: return p->vocab;
    case DIM_ROPE_HALF: return p->rope_dims / 2;
    }
    return 0;
}

vti_role_shape vti_role_shape_of(const vti_hparams *hparams, vti_role role)
{
    const role_spec *spec = &specs[role];
    return (vti_role_shape){
        .slices = dim_value(hparams, spec->slices),
        .rows = dim_value(hparams, spec->rows),
        .cols = dim_value(hparams, spec->cols),
        .is_vector = vti_role_is_vector(role),
    };
}

bool vti_role_is_vector(vti_role role) { return specs[role].rows == DIM_ONE; }

bool vti_role_is_expert(vti_role role) { return specs[role].slices == DIM_EXPERTS; }

bool vti_role_find(const char *name, bool per_layer, vti_role *out)
{
    unsigned first = per_layer ? 0 : VTI_LAYER_ROLE_COUNT;
    unsigned end = per_layer ? VTI_LAYER_ROLE_COUNT : VTI_ROLE_COUNT;
    for (unsigned role = first; role < end; role++) {
        *out = (vti_role)role;
        if (strcmp(specs[role].name, name) == 0) return true;
    }
    return false;
}

const char *vti_role_name(vti_role role) { return specs[role].name; }

bool vti_role_required(const vti_hparams *hparams, vti_role role)
{
    return vti_family_of(hparams->arch)->required & VTI_ROLE(role);
}

bool vti_role_allowed(const vti_hparams *hparams, vti_role role)
{
    const vti_family *family = vti_family_of(hparams->arch);
    return (family->required | family->optional) & VTI_ROLE(role);
}
