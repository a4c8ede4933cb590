/* cache_support.h: blocks for the tests of the shard cache. */
#ifndef VTI_TEST_CACHE_SUPPORT_H
#define VTI_TEST_CACHE_SUPPORT_H

#include "../src/shard_cache.h"

typedef struct cache_block {
    vti_content_hash hash;
    vti_cached_block block; /* data: allocated */
} cache_block;

/* Block `number`: random bytes, always the same. Its hash is made up, as the cache takes it. */
void cache_block_make(cache_block *out, uint32_t number, size_t bytes);
void cache_block_free(cache_block *b);

/* False: the cache could not keep it. */
bool cache_block_put(vti_shard_cache *cache, uint32_t number, size_t bytes);

/* Whether its file is there, without asking the cache for it, which would be a use. */
bool cache_block_is_there(const char *folder, uint32_t number, size_t bytes);

/* Where a cache in `folder` keeps it. */
void cache_block_path(const char *folder, uint32_t number, size_t bytes, char *out,
                      size_t capacity);

/* Bytes of all files that are blocks, or are about to be. */
uint64_t cache_folder_bytes(const char *folder);

/* With all that is in it. */
void cache_remove_folder(const char *folder);

#endif
