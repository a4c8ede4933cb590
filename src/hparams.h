/* hparams.h: the numbers that define a model's shape and arithmetic. */
#ifndef VTI_HPARAMS_H
#define VTI_HPARAMS_H

#include "gguf.h"

/* Families; src/families/ describes each. */
typedef enum vti_arch {
    VTI_ARCH_QWEN2, VTI_ARCH_LLAMA, VTI_ARCH_QWEN3, VTI_ARCH_GEMMA3, VTI_ARCH_QWEN2MOE,
    VTI_ARCH_COUNT
} vti_arch;

typedef enum vti_rope_scaling {
    VTI_ROPE_UNSCALED,
    VTI_ROPE_LINEAR, /* positions are divided by the factor */
    VTI_ROPE_YARN,   /* slow pairs are divided, fast ones kept, a ramp between (arXiv:2309.00071) */
    VTI_ROPE_SCALING_COUNT
} vti_rope_scaling;

/* How positions become rotations. */
typedef struct vti_rope_params {
    float base;
    vti_rope_scaling scaling;
    float factor;
    /* YaRN: a pair that turns more than beta_fast times in the original context is kept, one that
     * turns less than beta_slow times is divided. */
    uint32_t original_context;
    float beta_fast, beta_slow;
    float extrapolation; /* share of the ramp that is applied: 1, or 0 for plain division */
    float magnitude;     /* of cos and sin, besides YaRN's own 1 + 0.1 ln(factor) */
} vti_rope_params;

/* Everything a device needs to know to run layers, besides the weights. */
typedef struct vti_hparams {
    vti_arch arch;
    uint32_t layers;
    uint32_t d;          /* embedding length: width of the residual stream */
    uint32_t heads;      /* query heads */
    uint32_t kv_heads;   /* divides heads */
    uint32_t head_dim;   /* of queries, keys and values */
    uint32_t ff;         /* hidden channels of the dense FFN, or of the shared expert */
    uint32_t vocab;
    uint32_t context;    /* tokens the model was trained for */
    uint32_t rope_dims;  /* leading dimensions of a head that are rotated */
    uint32_t window;     /* tokens that a local layer's query sees, itself included; 0: no such
                            layers */
    uint32_t window_period; /* of that many successive layers the last is global */
    uint32_t experts;    /* 0: dense FFN */
    uint32_t experts_used;
    uint32_t expert_ff;  /* hidden channels of one expert */
    uint32_t expert_norm; /* 1: the chosen experts' weights are scaled to a sum of 1 */
    float expert_scale;  /* of the experts' sum, the shared one not included */
    float rms_eps;
    float attention_scale; /* of query · key */
    vti_rope_params rope;
    float local_rope_base; /* of local layers, whose positions are never scaled */
} vti_hparams;

/* Limits that no model of today comes near: a file beyond them is damaged or hostile. */
enum {
    VTI_MAX_LAYERS = 1024,
    VTI_MAX_WIDTH = 1 << 20,   /* d, ff, heads × head_dim */
    VTI_MAX_HEAD_DIM = 1024,
    VTI_MAX_VOCAB = 1 << 24,
    VTI_MAX_CONTEXT = 1 << 24,
    VTI_MAX_EXPERTS = 256,
};

const char *vti_arch_name(vti_arch arch);

/* True if layer `layer` of the model sees only its window. */
static inline bool vti_layer_is_local(const vti_hparams *hparams, uint32_t layer)
{
    return hparams->window && (layer + 1) % hparams->window_period != 0;
}

/* Local layers among [0, layers). */
static inline uint32_t vti_local_layers(const vti_hparams *hparams, uint32_t layers)
{
    return hparams->window ? layers - layers / hparams->window_period : 0;
}

/* Reads general.architecture and its keys. */
vt_status vti_hparams_read(const vt_gguf *gguf, vti_hparams *out, vt_error *err);

/* Checks limits and relations; used on what comes from a file and from the wire alike. `source`
 * begins the message. */
vt_status vti_hparams_check(const vti_hparams *hparams, const char *source, vt_error *err);

#endif
