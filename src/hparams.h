/* hparams.h: the numbers that define a model's shape and arithmetic. */
#ifndef VTI_HPARAMS_H
#define VTI_HPARAMS_H

#include "gguf.h"

typedef enum vti_arch { VTI_ARCH_QWEN2, VTI_ARCH_LLAMA, VTI_ARCH_COUNT } vti_arch;

/* Everything a device needs to know to run layers, besides the weights. */
typedef struct vti_hparams {
    vti_arch arch;
    uint32_t layers;
    uint32_t d;          /* embedding length: width of the residual stream */
    uint32_t heads;      /* query heads */
    uint32_t kv_heads;   /* divides heads */
    uint32_t head_dim;   /* of queries, keys and values */
    uint32_t ff;         /* hidden channels of the FFN */
    uint32_t vocab;
    uint32_t context;    /* tokens the model was trained for */
    uint32_t rope_dims;  /* leading dimensions of a head that are rotated */
    float rope_base;
    float rope_scale;    /* positions are divided by it (linear scaling); 1: none */
    float rms_eps;
} vti_hparams;

/* Limits that no model of today comes near: a file beyond them is damaged or hostile. */
enum {
    VTI_MAX_LAYERS = 1024,
    VTI_MAX_WIDTH = 1 << 20,   /* d, ff, heads × head_dim */
    VTI_MAX_HEAD_DIM = 1024,
    VTI_MAX_VOCAB = 1 << 24,
    VTI_MAX_CONTEXT = 1 << 24,
};

const char *vti_arch_name(vti_arch arch);

/* Reads general.architecture and its keys. */
vt_status vti_hparams_read(const vt_gguf *gguf, vti_hparams *out, vt_error *err);

/* Checks limits and relations; used on what comes from a file and from the wire alike. `source`
 * begins the message. */
vt_status vti_hparams_check(const vti_hparams *hparams, const char *source, vt_error *err);

#endif
