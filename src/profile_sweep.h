/* profile_sweep.h: which units a profile is measured on, and how long they took. */
#ifndef VTI_PROFILE_SWEEP_H
#define VTI_PROFILE_SWEEP_H

#include "../kernels/kernels.h"
#include "pool.h"
#include "profile.h"

/* One unit's time, and what of it each coefficient is multiplied with, in the order of
 * vti_profile_term. */
typedef struct vti_profile_sample {
    vti_plan_kind kind;
    vti_plan_precision precision;
    vti_plan_phase phase;
    double feature[VTI_PROFILE_TERMS];
    double seconds;
    double bytes_per_s; /* that memory gave meanwhile; 0: the weights did not come from there */
    double spread;      /* by how much of the shortest the three shortest repeats differ */
    uint32_t point;     /* what was measured together has one number, the same in every sweep */
} vti_profile_sample;

typedef struct vti_profile_samples {
    vti_profile_sample *sample;
    size_t count, room;
} vti_profile_samples;

typedef struct vti_sweep_params {
    const vti_kernels *kernels;
    vti_pool *pool;
    uint64_t cache_bytes;
    bool held_out; /* shapes that are not fitted */
    const bool *only; /* by point, of as many as were measured before; NULL: all */
    bool tiny;     /* small shapes and one repeat of each: whether it works, not how fast it is */
    bool (*cancelled)(void *user);
    void (*progress)(void *user, double part); /* from 0 to 1 */
    void *user;    /* of both, which may be NULL */
} vti_sweep_params;

/* Appends to *out, which begins all zero and whose `sample` is to be freed, also on failure.
 * ERR_MEMORY, ERR_CANCELLED. */
vt_status vti_profile_sweep(const vti_sweep_params *params, vti_profile_samples *out,
                            vt_error *err);

#endif
