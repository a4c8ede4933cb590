/* qwen2moe: Qwen1.5-MoE and Qwen2-MoE. qwen2's attention; the FFN is the weighted sum of a few of
 * many small experts, chosen per token by a softmax over the router's scores, and of a shared
 * expert behind a sigmoid gate. */
#include "family.h"

enum { GATING_SOFTMAX = 1 };

/* Early files have neither width: the experts used are together as wide as the dense FFN would be,
 * and so is the shared one. */
static vt_status read_keys(const vti_keys *keys, vti_hparams *p)
{
    bool norm = false;
    VTI_TRY(vti_keys_u32(keys, "expert_count", true, &p->experts));
    VTI_TRY(vti_keys_u32(keys, "expert_used_count", true, &p->experts_used));
    p->expert_ff = p->experts_used ? p->ff / p->experts_used : 0;
    VTI_TRY(vti_keys_u32(keys, "expert_feed_forward_length", false, &p->expert_ff));
    VTI_TRY(vti_keys_u32(keys, "expert_shared_feed_forward_length", false, &p->ff));
    VTI_TRY(vti_keys_bool(keys, "expert_weights_norm", false, &norm));
    p->expert_norm = norm;
    p->expert_scale = 1.0f;
    VTI_TRY(vti_keys_f32(keys, "expert_weights_scale", false, &p->expert_scale));
    uint32_t gating = GATING_SOFTMAX;
    VTI_TRY(vti_keys_u32(keys, "expert_gating_func", false, &gating));
    if (gating == GATING_SOFTMAX) return VT_OK;
    return vti_fail(keys->err, VT_ERR_UNSUPPORTED,
                    "%s: qwen2moe.expert_gating_func is %u; supported is only 1 (softmax)",
                    vti_gguf_name(keys->gguf), gating);
}

const vti_family vti_family_qwen2moe = {
    .name = "qwen2moe",
    .required = VTI_ROLES_BASE | VTI_ROLES_QKV_BIAS | VTI_ROLES_EXPERTS | VTI_ROLES_SHARED_EXPERT,
    .optional = VTI_ROLE(VTI_OUTPUT),
    .read = read_keys,
};
