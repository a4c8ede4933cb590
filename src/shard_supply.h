/* shard_supply.h: shards of a source, in memory that is accounted for. */
#ifndef VTI_SHARD_SUPPLY_H
#define VTI_SHARD_SUPPLY_H

#include "shard_loader.h"
#include "shard_memory.h"

/* Both outlive it, and every shard that it made. */
typedef struct vti_shard_supplier {
    const vti_shard_source *source;
    vti_shard_memory *memory;
} vti_shard_supplier;

/* Messages name the shard and the file. */
vti_shard_supply vti_shard_supply_from(vti_shard_supplier *supplier);

/* "FFN 3, shard 5 at I8" */
void vti_shard_describe(const vti_geometry *geometry, vti_shard_id id, char *out, size_t capacity);

#endif
