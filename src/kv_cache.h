/* kv_cache.h: keys and values of past tokens, by (layer, KV head).
 *
 * The rows of one (layer, KV head) are contiguous, [token][head_dim], so that attention streams
 * them and a shard's cache can move as one piece. Memory for the whole context is reserved at once
 * and touched (hence really used) only as tokens come. */
#ifndef VTI_KV_CACHE_H
#define VTI_KV_CACHE_H

#include "../kernels/kernels.h"
#include "hparams.h"

typedef struct vti_kv_cache {
    const vti_kv_kernel *kernel; /* of the cache's precision */
    uint32_t layers, kv_heads, head_dim;
    uint32_t capacity_tokens;
    size_t row_bytes;  /* head_dim elements and their scales */
    size_t size_bytes; /* of `base`: what a full context takes */
    unsigned char *base;
} vti_kv_cache;

/* False for a number that is no vt_kv_type. */
bool vti_kv_type_known(vt_kv_type type);

/* Bytes a cache of that many layers and tokens takes. */
uint64_t vti_kv_cache_bytes(const vti_kernels *kernels, const vti_hparams *hparams, uint32_t layers,
                            uint32_t tokens, vt_kv_type type);

/* `kernels` must outlive the cache. */
vt_status vti_kv_cache_open(vti_kv_cache *cache, const vti_kernels *kernels,
                            const vti_hparams *hparams, uint32_t layers, uint32_t capacity_tokens,
                            vt_kv_type type, vt_error *err);
void vti_kv_cache_close(vti_kv_cache *cache);

/* First row of the keys (or values) of `layer`, counted from the cache's first one. */
void *vti_kv_cache_keys(const vti_kv_cache *cache, uint32_t layer, uint32_t kv_head);
void *vti_kv_cache_values(const vti_kv_cache *cache, uint32_t layer, uint32_t kv_head);

/* First position whose rows a layer of the model still has when [0, end) were computed. */
uint32_t vti_kv_first(const vti_hparams *hparams, uint32_t layer, uint32_t end);

/* Row of `position` of the keys (half 0) or values (1) of a head, and how many of the rows of
 * [position, end) follow it in memory, itself included. */
void *vti_kv_cache_run(const vti_kv_cache *cache, uint32_t layer, uint32_t half, uint32_t kv_head,
                       uint32_t position, uint32_t end, uint32_t *run);

/* Writes one token's keys and values, kv_heads × head_dim floats each, at `position`. */
void vti_kv_cache_store(vti_kv_cache *cache, uint32_t layer, uint32_t position, const float *keys,
                        const float *values);

#endif
