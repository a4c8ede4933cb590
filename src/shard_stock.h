/* shard_stock.h: a model's shards as blocks, for other devices.
 *
 * A shard store has them. From a GGUF file each is built, hashed and compressed when it is first
 * needed; with a cache the block stays there, and so does, under a name of its own, the list of
 * hashes: then the next start neither builds nor, as workers have caches too, sends anything. */
#ifndef VTI_SHARD_STOCK_H
#define VTI_SHARD_STOCK_H

#include "composition.h"
#include "manifest.h"
#include "pool.h"

typedef struct vti_shard_stock vti_shard_stock;

/* What a stock works with; stays with the caller. */
typedef struct vti_shard_stock_params {
    const vti_shard_source *source;
    const vt_store *store;  /* what the source is of, or NULL */
    const vt_gguf *gguf;    /* if it is no store: the file that the source's shards follow from, and
                               nothing else; NULL: the hashes are not kept */
    vti_shard_cache *cache; /* or NULL */
    vti_pool *pool;         /* builds; or NULL */
    vti_budget *budget;     /* of the device; or NULL */
    vt_log log;
    vt_progress progress;
} vti_shard_stock_params;

vt_status vti_shard_stock_open(const vti_shard_stock_params *params, vti_shard_stock **out,
                                vt_error *err);
/* NULL is fine. */
void vti_shard_stock_close(vti_shard_stock *stock);

/* Fills a new manifest: every shard at its precision, and how many bytes it is, or that it is left
 * out. Nothing is built for it. */
vt_status vti_shard_stock_choose(vti_shard_stock *stock, const vti_composition *composition,
                                  vti_manifest *manifest, vt_error *err);

/* The rest of it: stored bytes and hashes. Builds what is not known yet, with progress. */
vt_status vti_shard_stock_complete(vti_shard_stock *stock, vti_manifest *const *manifests,
                                    size_t count, vt_error *err);

/* The block of an entry that was completed; `out` as for vti_shard_cache_get. */
vt_status vti_shard_stock_get(vti_shard_stock *stock, const vti_manifest *manifest,
                               uint32_t index, vti_cached_block *out, vt_error *err);

#endif
