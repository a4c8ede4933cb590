/* shard_cache.h: a folder of shard blocks, named by what they hold.
 *
 * A block is a shard's bytes in the kernels' layout, encoded (compressed) by whoever puts it in;
 * the cache keeps it as it is. Its name is the content hash, of the bytes before encoding. Several
 * processes may use one folder at the same time. docs/cache.md has the format and the rules.
 *
 * Nothing here is vital: whatever goes wrong after the opening (a full disk, a damaged file, a
 * folder that somebody deleted) is a block that is not there, and a line in the log. */
#ifndef VTI_SHARD_CACHE_H
#define VTI_SHARD_CACHE_H

#include "error.h"
#include "shard_block.h"

enum { VTI_CACHE_HEADER_BYTES = 96 };

/* What vti_shard_hash gives. */
typedef struct vti_content_hash {
    uint8_t bytes[VTI_SHARD_HASH_BYTES];
} vti_content_hash;

typedef struct vti_cached_block {
    uint32_t encoding;     /* of who put it in; opaque here */
    uint64_t raw_bytes;    /* before encoding */
    uint64_t stored_bytes; /* of `data` */
    void *data;
    size_t capacity;       /* of `data`; vti_shard_cache_get makes it larger when needed */
} vti_cached_block;

/* For a block that was filled by vti_shard_cache_get; all zero is fine. */
void vti_cached_block_free(vti_cached_block *block);

typedef struct vti_shard_cache vti_shard_cache;

/* Makes the folder `path` if it is not there; the blocks are in its sub-folder "shards". At most
 * max_bytes of files, 0: 10 % of what is free on the disk, at most 20 GiB. A folder that may only
 * be read can be opened, too. ERR_IO: it cannot be made or opened; ERR_ARGUMENT: others may write to
 * it. Safe for several threads. */
vt_status vti_shard_cache_open(const char *path, uint64_t max_bytes, const vt_log *log,
                               vti_shard_cache **out, vt_error *err);
/* NULL is fine. */
void vti_shard_cache_close(vti_shard_cache *cache);

/* Is the block there, as far as its header and its size tell? `out` (may be NULL) gets what the
 * header says, not the data. A block that was asked for, got or put stays until this process calls
 * vti_shard_cache_let_go or ends; after that the ones used least lately go first. */
bool vti_shard_cache_has(vti_shard_cache *cache, const vti_content_hash *hash,
                         vti_cached_block *out);

/* Reads the block, exactly as it was put in. One that is damaged is removed. */
bool vti_shard_cache_get(vti_shard_cache *cache, const vti_content_hash *hash,
                         vti_cached_block *out);

/* Keeps the block, which holds what `hash` says: the caller made sure. False: it could not be
 * kept. */
bool vti_shard_cache_put(vti_shard_cache *cache, const vti_content_hash *hash,
                         const vti_cached_block *block);

void vti_shard_cache_remove(vti_shard_cache *cache, const vti_content_hash *hash);

/* This process needs none of its blocks any more. */
void vti_shard_cache_let_go(vti_shard_cache *cache);

/* Bytes that all blocks take, and may take. */
void vti_shard_cache_usage(vti_shard_cache *cache, uint64_t *bytes, uint64_t *max_bytes);

#endif
