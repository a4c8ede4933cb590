/* profile.h: what one device's computing costs, by kind of unit, precision and phase.
 *
 * Measured with the forward pass itself (profile_measure.h) or worked out from published figures
 * (device_class.h). docs/profile.md explains both. */
#ifndef VTI_PROFILE_H
#define VTI_PROFILE_H

#include "../planner/planner.h"
#include "error.h"

enum {
    VTI_PROFILE_NAME_MAX = 48, /* with the NUL, like the next */
    VTI_PROFILE_VERSION_MAX = 16,
    VTI_PROFILE_TERMS = 9, /* coefficients of a cost */
};

/* Seconds, as in vti_plan_coefficients. Weights that stay in the cache from one token to the next,
 * and keys and values beside them, are read at another price. */
typedef struct vti_profile_cost {
    float fixed, per_mac, per_weight_byte, per_cached_byte, per_kv_byte, per_cached_kv_byte,
        per_kv_mac, per_shard, per_value;
    float accuracy; /* 1 - the mean relative error on shapes it was not fitted to; 0: not checked */
} vti_profile_cost;

/* Plain data, of any device. Embedding costs nothing: a row is read per token. */
typedef struct vti_profile {
    char name[VTI_PROFILE_NAME_MAX];       /* of the processor, or the class of devices */
    char version[VTI_PROFILE_VERSION_MAX]; /* of Voltron; "": worked out, not measured */
    uint32_t features;    /* vti_cpu_feature bits of the kernels */
    uint32_t threads;
    uint64_t cache_bytes; /* of the last level */
    float bytes_per_s;    /* reading memory */
    vti_profile_cost cost[VTI_PLAN_KINDS][VTI_PLAN_PRECISIONS][VTI_PHASES];
} vti_profile;

/* The public one. */
struct vt_profile {
    vti_profile facts;
    double disturbance; /* while it was measured, see profile_fit.h; 0 of one that was loaded */
};

vt_status vti_profile_new(const vti_profile *facts, vt_profile **out, vt_error *err);

/* Their order. */
typedef enum vti_profile_term {
    VTI_TERM_FIXED, VTI_TERM_MAC, VTI_TERM_WEIGHT_BYTE, VTI_TERM_CACHED_BYTE, VTI_TERM_KV_BYTE,
    VTI_TERM_CACHED_KV_BYTE, VTI_TERM_KV_MAC, VTI_TERM_SHARD, VTI_TERM_VALUE
} vti_profile_term;

/* The fields of a cost in their order, the accuracy last; and back. */
void vti_profile_terms(const vti_profile_cost *cost, float terms[VTI_PROFILE_TERMS + 1]);
vti_profile_cost vti_profile_cost_of(const float terms[VTI_PROFILE_TERMS + 1]);

/* NULL if every number is finite and not negative and the texts end, else what is wrong. */
const char *vti_profile_check(const vti_profile *profile);

/* out->cost: what it is for this model, whose weights stay in the cache, or do not, or in part. */
void vti_profile_fill(const vti_profile *profile, const vti_plan_model *model,
                      vti_plan_device *out);

/* The mean of the accuracies that are known; 0: none is. */
double vti_profile_accuracy(const vti_profile *profile);

/* --- the wire --------------------------------------------------------------------------------- */

enum {
    /* EMBED is left out: it costs nothing. */
    VTI_PROFILE_COSTS = (VTI_PLAN_KINDS - 1) * VTI_PLAN_PRECISIONS * VTI_PHASES,
    VTI_PROFILE_WIRE_BYTES = VTI_PROFILE_NAME_MAX + VTI_PROFILE_VERSION_MAX + 4 + 4 + 8 + 4 +
                             VTI_PROFILE_COSTS * (VTI_PROFILE_TERMS + 1) * 4,
};

void vti_profile_encode(const vti_profile *profile, uint8_t out[VTI_PROFILE_WIRE_BYTES]);

/* The same profile, its texts made printable. False if it is not one; *out is then undefined. */
bool vti_profile_decode(const uint8_t data[VTI_PROFILE_WIRE_BYTES], vti_profile *out);

/* --- text ------------------------------------------------------------------------------------- */

/* JSON, ending in a newline; to be freed. NULL without memory. */
char *vti_profile_write_json(const vti_profile *profile);

/* Unknown and missing fields are errors. *out is only written on success. */
vt_status vti_profile_read_json(const char *text, size_t bytes, vti_profile *out, vt_error *err);

#endif
