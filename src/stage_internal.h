/* stage_internal.h: a stage's insides, shared by what opens it and what runs it. */
#ifndef VTI_STAGE_INTERNAL_H
#define VTI_STAGE_INTERNAL_H

#include "linear.h"
#include "stage.h"

/* Decoding cuts the positions of attention into parts of this many, so that threads can share one KV
 * head. It depends on nothing but the position: results are the same with any number of threads. */
enum { VTI_ATTENTION_PART = 512 };

static inline size_t vti_attention_parts(size_t positions)
{
    return (positions + VTI_ATTENTION_PART - 1) / VTI_ATTENTION_PART;
}

/* Scratch buffers have room for `batch_tokens` rows. */
struct vti_stage {
    vti_stage_params p;
    vti_kv_cache cache;
    float *norm;       /* tokens × d: normed input of a unit */
    float *q;          /* tokens × heads × head_dim */
    float *k, *v;      /* tokens × kv_heads × head_dim */
    float *mix;        /* tokens × heads × head_dim: attention's output */
    float *gate;       /* tokens × ff */
    float *up;         /* tokens × ff */
    float *out;        /* tokens × d: a unit's contribution to the residual */
    float *cos_sin;    /* tokens × rope_dims */
    double *frequency; /* rope_dims / 2: radians per position */
    float *partial;    /* parts × heads × head_dim: attention over a part of the positions */
    float *part_sums;  /* parts × heads × 2: its largest score and its sum */
    void *act[VTI_ACT_TYPE_COUNT]; /* the current input as kernels want it */
    void *memory;
    vti_linear_input input;
};

#endif
