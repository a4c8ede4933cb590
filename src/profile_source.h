/* profile_source.h: shards of random weights, of any shape: their values do not matter, only how
 * long the kernels take. */
#ifndef VTI_PROFILE_SOURCE_H
#define VTI_PROFILE_SOURCE_H

#include "shard.h"

typedef struct vti_random_source {
    vti_shard_source source; /* it is its `self`; must not be moved */
    uint32_t panel_cols;
    unsigned char *panel[VTI_PRECISION_COUNT]; /* packed rows that all matrices are made of */
    float *ones;
} vti_random_source;

/* The geometry and the kernels outlive it. On failure it is fit for the end, too. */
vt_status vti_random_source_open(vti_random_source *out, const vti_geometry *geometry,
                                 const vti_kernels *kernels, vt_error *err);
void vti_random_source_close(vti_random_source *source);

/* Numbers between -1 and 1, the same every time for the same state. */
void vti_random_floats(uint32_t *state, float *out, size_t count);

#endif
