/* gemma3: the text part of Gemma 3. Five local layers with a sliding window, then a global one;
 * norms before and after both sublayers and on queries and keys; GELU-gated FFN. Converters have
 * added the 1 that the published norm weights lack. */
#include <math.h>

#include "family.h"

/* The 27B model divides scores by the square root of d / heads (168), the others by that of the
 * head dimension. No key tells: it is the one with 62 layers. */
enum { LAYERS_OF_27B = 62, PUBLISHED_PERIOD = 6 };

static vt_status read_keys(const vti_keys *keys, vti_hparams *p)
{
    VTI_TRY(vti_keys_u32(keys, "attention.sliding_window", true, &p->window));
    p->window_period = PUBLISHED_PERIOD;
    VTI_TRY(vti_keys_u32(keys, "attention.sliding_window_pattern", false, &p->window_period));
    p->local_rope_base = 10000.0f;
    VTI_TRY(vti_keys_f32(keys, "rope.freq_base_swa", false, &p->local_rope_base));
    VTI_TRY(vti_keys_expect(keys, "attn_logit_softcapping", 0));
    VTI_TRY(vti_keys_expect(keys, "final_logit_softcapping", 0));
    if (p->layers == LAYERS_OF_27B && p->heads)
        p->attention_scale = 1.0f / sqrtf((float)p->d / (float)p->heads);
    return VT_OK;
}

const vti_family vti_family_gemma3 = {
    .name = "gemma3",
    .required = VTI_ROLES_BASE | VTI_ROLES_QK_NORM | VTI_ROLES_POST_NORM | VTI_ROLES_DENSE_FFN,
    .optional = VTI_ROLE(VTI_OUTPUT),
    .embedding_scaled = true,
    .local_layers = true,
    .gate = VTI_GATE_GELU,
    .read = read_keys,
};
