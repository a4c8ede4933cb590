/* composition.h: what a model is computed with: of every unit the precision of its shards, and which
 * of them are left out. */
#ifndef VTI_COMPOSITION_H
#define VTI_COMPOSITION_H

#include "../planner/planner.h"
#include "shard.h"

typedef struct vti_composition {
    uint8_t *precision; /* vti_precision of every unit; EMBED's, read as it is in the file, is 0 */
    uint64_t (*pruned)[VTI_PLAN_PRUNABLE_MAX / 64]; /* of every unit a bit per shard; NULL: none */
} vti_composition;

/* Every unit at `wanted`, or for VTI_PRECISION_COUNT at the highest that the source offers of it.
 * ERR_ARGUMENT if it does not offer that; ERR_MEMORY. *out is always fit for the end. */
vt_status vti_composition_open(const vti_shard_source *source, vti_precision wanted,
                               vti_composition *out, vt_error *err);

/* As a plan's JSON says. ERR_FORMAT: it is no plan; ERR_ARGUMENT: it is none for this model, or the
 * source does not offer what it asks for. */
vt_status vti_composition_open_plan(const vti_shard_source *source, const char *json,
                                    vti_composition *out, vt_error *err);
void vti_composition_close(vti_composition *composition);

static inline vti_shard_id vti_composition_id(const vti_composition *c, uint32_t unit,
                                              uint32_t shard)
{
    return (vti_shard_id){unit, shard, (vti_precision)c->precision[unit]};
}

/* False: it is left out. What shards share never is. */
static inline bool vti_composition_has(const vti_composition *c, uint32_t unit, uint32_t shard)
{
    return !c->pruned || shard >= VTI_PLAN_PRUNABLE_MAX ||
           !(c->pruned[unit][shard / 64] >> shard % 64 & 1);
}

/* Bytes of a shard as it is loaded; 0: it is left out. */
uint64_t vti_composition_shard_bytes(const vti_composition *c, const vti_shard_source *source,
                                     uint32_t unit, uint32_t shard);

#endif
