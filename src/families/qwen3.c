/* qwen3: Qwen3, dense. Queries and keys of each head are normed before they are rotated; no
 * biases. */
#include "family.h"

const vti_family vti_family_qwen3 = {
    .name = "qwen3",
    .required = VTI_ROLES_BASE | VTI_ROLES_QK_NORM | VTI_ROLES_DENSE_FFN,
    .optional = VTI_ROLE(VTI_OUTPUT),
};
