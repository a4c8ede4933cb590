/* kv_cache.h: keys and values of past tokens, by (layer, KV head).
 *
 * The rows of one (layer, KV head) are contiguous, [token][head_dim], so that attention streams
 * them and a shard's cache can move as one piece. Global layers have a row for every token of the
 * context. Local layers have rows for their window and the tokens after it that make up one batch;
 * when these are full, the newest move to the front. Memory is reserved at once and touched (hence
 * really used) only as tokens come. */
#ifndef VTI_KV_CACHE_H
#define VTI_KV_CACHE_H

#include "../kernels/kernels.h"
#include "hparams.h"
#include "pool.h"

/* What decides about a cache's size. */
typedef struct vti_kv_params {
    const vti_kernels *kernels; /* outlives the cache */
    const vti_hparams *hparams; /* the same */
    uint32_t first, layers;     /* layers [first, first + layers) of the model */
    uint32_t context_tokens, batch_tokens;
    vt_kv_type type;
} vti_kv_params;

typedef struct vti_kv_cache {
    const vti_kv_kernel *kernel; /* of the cache's precision */
    vti_kv_params p;
    uint32_t local_rows; /* of every local layer */
    uint32_t local_base; /* position of their first row */
    size_t row_bytes;    /* head_dim elements and their scales */
    size_t size_bytes;   /* of `base`: what a full context takes */
    unsigned char *base;
} vti_kv_cache;

/* False for a number that is no vt_kv_type. */
bool vti_kv_type_known(vt_kv_type type);

/* Bytes such a cache takes. */
uint64_t vti_kv_cache_bytes(const vti_kv_params *params);

vt_status vti_kv_cache_open(vti_kv_cache *cache, const vti_kv_params *params, vt_error *err);
void vti_kv_cache_close(vti_kv_cache *cache);

/* The largest position up to `position` from which computing can go on: local layers may have
 * dropped rows that it needs, and then everything has to be computed again from position 0.
 * Depends only on the calls of vti_kv_cache_make_room before, not on which layers are here. */
uint32_t vti_kv_cache_resume(const vti_kv_cache *cache, uint32_t position);

/* Makes room for rows [position, position + tokens) in every layer; tokens <= batch_tokens. Rows
 * before `position` that these tokens see stay. The position is one that vti_kv_cache_resume lets
 * stand. */
void vti_kv_cache_make_room(vti_kv_cache *cache, vti_pool *pool, uint32_t position,
                            uint32_t tokens);

/* The two halves of a layer's cache. */
enum { VTI_KV_KEYS, VTI_KV_VALUES };

/* Row of the keys or values at `position`, which must be there, with those of the positions
 * after it behind it; `layer` counts from the cache's first one. */
void *vti_kv_cache_rows(const vti_kv_cache *cache, uint32_t layer, uint32_t half, uint32_t kv_head,
                        uint32_t position);

/* First position whose rows a layer of the model needs to go on after [0, end). */
uint32_t vti_kv_first(const vti_hparams *hparams, uint32_t layer, uint32_t end);

/* Makes ready for rows [vti_kv_first, end) of every layer to be written from outside. */
void vti_kv_cache_restore(vti_kv_cache *cache, uint32_t end);

/* Writes one token's keys and values, kv_heads × head_dim floats each, at `position`. */
void vti_kv_cache_store(vti_kv_cache *cache, uint32_t layer, uint32_t position, const float *keys,
                        const float *values);

#endif
