/* kv_transfer.h: a KV cache piece by piece, in the order in which files and devices pass it on: by
 * layer, keys before values, KV head, position. */
#ifndef VTI_KV_TRANSFER_H
#define VTI_KV_TRANSFER_H

#include "kv_cache.h"

enum { VTI_KV_CHUNK_MAX = 1 << 20 }; /* bytes of rows in one piece, unless one row is larger */

/* The rows that layers [first, first + layers) of a model need to go on after [0, end). */
typedef struct vti_kv_shape {
    const vti_hparams *hparams;
    uint32_t first, layers, end;
    size_t row_bytes;
} vti_kv_shape;

/* Rows [position, position + rows) of one head. */
typedef struct vti_kv_chunk {
    uint32_t layer; /* of the model */
    uint32_t half, kv_head, position, rows;
} vti_kv_chunk;

/* The piece after *chunk, from one of all zeros the first; false: there is none. */
bool vti_kv_next_chunk(const vti_kv_shape *shape, vti_kv_chunk *chunk);

/* Where the cache has it; must be in range. */
void *vti_kv_chunk_rows(const vti_kv_cache *cache, const vti_kv_chunk *chunk);

/* Pieces, and bytes of all their rows. */
uint64_t vti_kv_chunk_count(const vti_kv_shape *shape);
uint64_t vti_kv_row_bytes(const vti_kv_shape *shape);

#endif
