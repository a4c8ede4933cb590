/* weights.h: the shards of a run of units that a device holds. */
#ifndef VTI_WEIGHTS_H
#define VTI_WEIGHTS_H

#include "composition.h"
#include "pool.h"
#include "shard.h"

/* What a unit is computed with. shard[shards] is what its shards share; a shard that this device
 * does not have, or that is left out, is NULL. */
typedef struct vti_unit {
    uint32_t shards;
    vti_shard **shard;
} vti_unit;

/* Units [first, first + count). */
typedef struct vti_weights {
    const vti_geometry *geometry;
    vti_shard_memory *memory; /* where the shards lie */
    uint32_t first, count;
    vti_unit *units;
    vti_shard **slots; /* of all units, one behind the other */
    bool *pruned;      /* slots that the model is computed without; NULL: none */
    uint64_t bytes;    /* of all shards */
} vti_weights;

static inline const vti_unit *vti_weights_unit(const vti_weights *weights, uint32_t unit)
{
    return &weights->units[unit - weights->first];
}

/* A tensor that the unit's shards share; rows 0: not there. */
static inline const vti_tensor *vti_unit_tensor(const vti_unit *unit, unsigned piece)
{
    return &unit->shard[unit->shards]->tensor[piece];
}

/* Bytes of units [first, first + count), composed of what the source offers. */
uint64_t vti_weights_bytes(const vti_shard_source *source, const vti_composition *composition,
                           uint32_t first, uint32_t count);

/* Empty slots. `memory` and `geometry` outlive the weights. */
vt_status vti_weights_new(const vti_geometry *geometry, vti_shard_memory *memory, uint32_t first,
                          uint32_t count, vti_weights **out, vt_error *err);

/* The model is computed without that shard, whose slot stays empty. */
vt_status vti_weights_leave_out(vti_weights *weights, uint32_t unit, uint32_t shard, vt_error *err);

/* Puts a filled shard into its slot, which is empty. */
void vti_weights_put(vti_weights *weights, vti_shard *shard);

/* The shards of units [first, first + count) that are not left out, filled by the threads of `pool`.
 * `progress` may be NULL. */
vt_status vti_weights_load(const vti_shard_source *source, const vti_composition *composition,
                           vti_shard_memory *memory, vti_pool *pool,
                           const vt_progress *progress, uint32_t first, uint32_t count,
                           vti_weights **out, vt_error *err);
void vti_weights_free(vti_weights *weights);

#endif
