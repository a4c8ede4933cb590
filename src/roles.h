/* roles.h: what tensors a model consists of.
 *
 * One table says of every role its name in the file and its shape; the family says whether a model
 * has it. Reading a file, checking what comes over the wire and counting bytes all use it. */
#ifndef VTI_ROLES_H
#define VTI_ROLES_H

#include "hparams.h"

typedef enum vti_role {
    /* per layer */
    VTI_ATTN_NORM, VTI_ATTN_Q, VTI_ATTN_K, VTI_ATTN_V,
    VTI_ATTN_Q_BIAS, VTI_ATTN_K_BIAS, VTI_ATTN_V_BIAS,
    VTI_ATTN_Q_NORM, VTI_ATTN_K_NORM, /* of every head */
    VTI_ATTN_OUT, VTI_ATTN_POST_NORM,
    VTI_FFN_NORM, VTI_FFN_GATE, VTI_FFN_UP, VTI_FFN_DOWN,
    VTI_ROUTER, VTI_EXPERTS_GATE, VTI_EXPERTS_UP, VTI_EXPERTS_DOWN,
    VTI_SHARED_ROUTER, VTI_SHARED_GATE, VTI_SHARED_UP, VTI_SHARED_DOWN,
    VTI_FFN_POST_NORM,
    VTI_LAYER_ROLE_COUNT,
    /* once per model */
    VTI_TOKEN_EMBD = VTI_LAYER_ROLE_COUNT, VTI_OUTPUT_NORM, VTI_OUTPUT, VTI_ROPE_FREQS,
    VTI_ROLE_COUNT
} vti_role;

/* What a tensor of some role must look like: `slices` matrices of rows × cols, one behind the
 * other. A vector is one row. */
typedef struct vti_role_shape {
    uint32_t slices, rows, cols;
    bool is_vector; /* loaded as F32, not packed */
} vti_role_shape;

vti_role_shape vti_role_shape_of(const vti_hparams *hparams, vti_role role);

bool vti_role_is_vector(vti_role role);

/* True for the matrices of all experts, of which a token uses some. */
bool vti_role_is_expert(vti_role role);

/* Name in the file, without "blk.N.". */
const char *vti_role_name(vti_role role);

/* The role of that name, among those of layers or among the others; false if there is none. */
bool vti_role_find(const char *name, bool per_layer, vti_role *out);

/* False for a role that a model of this family may lack. */
bool vti_role_required(const vti_hparams *hparams, vti_role role);

/* False for a role that this family's arithmetic does not have. */
bool vti_role_allowed(const vti_hparams *hparams, vti_role role);

#endif
