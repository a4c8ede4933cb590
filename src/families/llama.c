/* llama: Llama 2 and 3.x and what shares their shape. RoPE pairs neighbours (2i, 2i+1):
 * converters reorder the rows of Q and K for it. Llama 3.1 and later bring a divisor per
 * rotation frequency. */
#include "family.h"

const vti_family vti_family_llama = {
    .name = "llama",
    .required = VTI_ROLES_BASE | VTI_ROLES_DENSE_FFN,
    .optional = VTI_ROLE(VTI_OUTPUT) | VTI_ROLE(VTI_ROPE_FREQS),
    .rope_interleaved = true,
};
