/* family.h: what distinguishes one model family from another. The forward pass is the same for all;
 * each file in this folder describes one family to it. */
#ifndef VTI_FAMILY_H
#define VTI_FAMILY_H

#include "../keys.h"
#include "../roles.h"

/* Sets of roles, one bit each. */
#define VTI_ROLE(role) ((uint64_t)1 << (role))
#define VTI_ROLES_BASE                                                                             \
    (VTI_ROLE(VTI_TOKEN_EMBD) | VTI_ROLE(VTI_OUTPUT_NORM) | VTI_ROLE(VTI_ATTN_NORM) |              \
     VTI_ROLE(VTI_ATTN_Q) | VTI_ROLE(VTI_ATTN_K) | VTI_ROLE(VTI_ATTN_V) |                          \
     VTI_ROLE(VTI_ATTN_OUT) | VTI_ROLE(VTI_FFN_NORM))
#define VTI_ROLES_QKV_BIAS                                                                         \
    (VTI_ROLE(VTI_ATTN_Q_BIAS) | VTI_ROLE(VTI_ATTN_K_BIAS) | VTI_ROLE(VTI_ATTN_V_BIAS))
#define VTI_ROLES_QK_NORM (VTI_ROLE(VTI_ATTN_Q_NORM) | VTI_ROLE(VTI_ATTN_K_NORM))
#define VTI_ROLES_POST_NORM (VTI_ROLE(VTI_ATTN_POST_NORM) | VTI_ROLE(VTI_FFN_POST_NORM))
#define VTI_ROLES_DENSE_FFN                                                                        \
    (VTI_ROLE(VTI_FFN_GATE) | VTI_ROLE(VTI_FFN_UP) | VTI_ROLE(VTI_FFN_DOWN))
#define VTI_ROLES_EXPERTS                                                                          \
    (VTI_ROLE(VTI_ROUTER) | VTI_ROLE(VTI_EXPERTS_GATE) | VTI_ROLE(VTI_EXPERTS_UP) |                \
     VTI_ROLE(VTI_EXPERTS_DOWN))
#define VTI_ROLES_SHARED_EXPERT                                                                    \
    (VTI_ROLE(VTI_SHARED_ROUTER) | VTI_ROLE(VTI_SHARED_GATE) | VTI_ROLE(VTI_SHARED_UP) |           \
     VTI_ROLE(VTI_SHARED_DOWN))

typedef enum vti_gate { VTI_GATE_SILU, VTI_GATE_GELU } vti_gate;

typedef struct vti_family {
    const char *name;        /* general.architecture */
    uint64_t required, optional; /* roles; a file with any other is refused */
    bool rope_interleaved;   /* pairs (2i, 2i+1) instead of (i, i + rope_dims/2) */
    bool embedding_scaled;   /* embeddings are multiplied by √d */
    bool local_layers;       /* has layers with a sliding window */
    vti_gate gate;           /* of every FFN */
    /* Reads the keys that only this family has and corrects defaults; NULL: none. */
    vt_status (*read)(const vti_keys *keys, vti_hparams *hparams);
} vti_family;

/* NULL if `arch` is no family. */
const vti_family *vti_family_of(vti_arch arch);

extern const vti_family vti_family_qwen2, vti_family_llama, vti_family_qwen3, vti_family_gemma3,
    vti_family_qwen2moe;

#endif
