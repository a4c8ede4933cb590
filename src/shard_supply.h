/* shard_supply.h: shards of a source, in memory that is accounted for. */
#ifndef VTI_SHARD_SUPPLY_H
#define VTI_SHARD_SUPPLY_H

#include "shard_loader.h"

/* Both outlive it, and every shard that it made. */
typedef struct vti_shard_supplier {
    const vti_shard_source *source;
    vti_shard_memory *memory;
} vti_shard_supplier;

/* Its messages name file and shard. */
vti_shard_supply vti_shard_supply_of(vti_shard_supplier *supplier);

#endif
