#include "support.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache_support.h"

void cache_block_make(cache_block *out, uint32_t number, size_t bytes)
{
    test_random random = {number * 0x9E3779B97F4A7C15u + bytes + 1};
    unsigned char *data = malloc(bytes ? bytes : 1);
    if (!data) fail_msg("no memory");
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(test_random_u64(&random) >> 56);
    *out = (cache_block){.block = {.encoding = number % 5,
                                   .raw_bytes = 2 * bytes + number,
                                   .stored_bytes = bytes,
                                   .data = data}};
    for (size_t i = 0; i < sizeof out->hash.bytes; i++)
        out->hash.bytes[i] = (uint8_t)(test_random_u64(&random) >> 56);
}

void cache_block_free(cache_block *b) { free(b->block.data); }

void cache_block_path(const char *folder, uint32_t number, size_t bytes, char *out, size_t capacity)
{
    cache_block b;
    cache_block_make(&b, number, bytes);
    int at = snprintf(out, capacity, "%s/shards/%02x/", folder, b.hash.bytes[0]);
    for (size_t i = 0; i < sizeof b.hash.bytes; i++)
        at += snprintf(out + at, capacity - (size_t)at, "%02x", b.hash.bytes[i]);
    cache_block_free(&b);
}

bool cache_block_put(vti_shard_cache *cache, uint32_t number, size_t bytes)
{
    cache_block b;
    cache_block_make(&b, number, bytes);
    bool kept = vti_shard_cache_put(cache, &b.hash, &b.block);
    cache_block_free(&b);
    return kept;
}

bool cache_block_is_there(const char *folder, uint32_t number, size_t bytes)
{
    char path[256];
    cache_block_path(folder, number, bytes, path, sizeof path);
    return access(path, F_OK) == 0;
}

static uint64_t counted;

static int count(const char *path, const struct stat *info, int type, struct FTW *where)
{
    if (type == FTW_F && (strlen(path + where->base) == 64 || strstr(path, "/parts/")))
        counted += (uint64_t)info->st_size;
    return 0;
}

uint64_t cache_folder_bytes(const char *folder)
{
    counted = 0;
    nftw(folder, count, 16, FTW_PHYS);
    return counted;
}

static int delete_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    remove(path);
    return 0;
}

void cache_remove_folder(const char *folder) { nftw(folder, delete_one, 16, FTW_DEPTH | FTW_PHYS); }
