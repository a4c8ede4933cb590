/* rope.h: positions → rotation angles. */
#ifndef VTI_ROPE_H
#define VTI_ROPE_H

#include "hparams.h"

/* Of the global layers, or of the local ones. */
typedef struct vti_rope {
    double *frequency; /* dims / 2: radians per position */
    double magnitude;  /* of cos and sin */
    float *cos_sin;    /* tokens × dims */
} vti_rope;

/* Fills frequency and magnitude. `divisors`: dims / 2 numbers by which frequencies are divided
 * (Llama 3's rope_freqs), or NULL. */
void vti_rope_init(vti_rope *rope, const vti_rope_params *params, uint32_t dims,
                   const float *divisors);

/* Fills cos_sin for positions [position, position + tokens). */
void vti_rope_fill(vti_rope *rope, uint32_t dims, uint32_t position, uint32_t tokens);

#endif
