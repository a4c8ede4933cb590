/* qwen2: Qwen1.5, Qwen2 and Qwen2.5, dense. Like llama but for biases on Q, K and V and for RoPE,
 * which pairs a head's halves. */
#include "family.h"

const vti_family vti_family_qwen2 = {
    .name = "qwen2",
    .required = VTI_ROLES_BASE | VTI_ROLES_QKV_BIAS | VTI_ROLES_DENSE_FFN,
    .optional = VTI_ROLE(VTI_OUTPUT),
};
