/* profile_bed.h: a model of random weights whose units are run one by one and timed. */
#ifndef VTI_PROFILE_BED_H
#define VTI_PROFILE_BED_H

#include "head.h"
#include "plan_model.h"
#include "profile_source.h"

/* What a model is measured as. */
typedef struct vti_bed_shape {
    vti_arch arch;
    uint32_t d, heads, kv_heads, head_dim, ff;
    uint32_t window; /* of all layers; 0: none */
    uint32_t experts, experts_used, expert_ff;
    uint32_t vocab;
} vti_bed_shape;

typedef struct vti_bed_params {
    const vti_kernels *kernels;
    vti_pool *pool;
    vti_bed_shape shape;
    vti_precision precision;
    uint32_t layers, context_tokens, batch_tokens;
} vti_bed_params;

/* Called between units with how long one took. */
typedef void vti_bed_fn(void *user, uint32_t unit, double seconds);

typedef struct vti_bed {
    vt_model *model; /* loaded whole, but of no file */
    vti_random_source source;
    vti_stage *stage;
    vti_head head;
    vti_plan_model plan; /* as the planner sees it */
    float *h;            /* batch_tokens × d */
    float *logits;
    uint32_t seed;
    vti_bed_fn *on_unit; /* while a step runs */
    void *user;
    uint64_t begin_ns;
} vti_bed;

/* Bytes of one layer's weights that are read for a token, about. */
uint64_t vti_bed_token_bytes(const vti_bed_params *params);

/* The KV cache is filled as if the whole context had been computed. On failure *bed is closed. */
vt_status vti_bed_open(vti_bed *bed, const vti_bed_params *params, vt_error *err);
void vti_bed_close(vti_bed *bed);

/* A step of `tokens` random tokens at `position` through units [first, first + count). */
void vti_bed_step(vti_bed *bed, uint32_t first, uint32_t count, uint32_t position, uint32_t tokens,
                  vti_bed_fn *on_unit, void *user);

/* Seconds of HEAD for one token. */
double vti_bed_head(vti_bed *bed);

#endif
