/* plan_model.h: a model as the planner sees it. */
#ifndef VTI_PLAN_MODEL_H
#define VTI_PLAN_MODEL_H

#include "../planner/planner.h"
#include "shard.h"

/* The planner's number of a unit of the geometry: EMBED is the first there, the last here. */
unsigned vti_plan_unit_of(const vti_geometry *g, uint32_t unit);
/* And back. */
uint32_t vti_unit_of_plan(const vti_geometry *g, unsigned plan_unit);

/* What decides about sizes besides the weights. */
typedef struct vti_plan_model_params {
    uint32_t context_tokens, batch_tokens; /* of the sessions that are planned for */
    vt_kv_type kv_type;
} vti_plan_model_params;

/* Fills *out from what the source offers. A precision that it lacks has the bytes of the next
 * smaller one (or, of the smallest, of the next larger), so that it only must not be asked for. A
 * unit's bytes are exact but for rounding up to whole bytes per shard: where the last shard is
 * smaller, all are taken to be of the mean size. ERR_UNSUPPORTED: more units than the planner takes,
 * or the source has no weights. */
vt_status vti_plan_model_of(const vti_shard_source *source, const vti_plan_model_params *params,
                            vti_plan_model *out, vt_error *err);

/* The largest precision that the source offers of every unit. */
vti_precision vti_source_precision(const vti_shard_source *source);

#endif
