#include "kv_cache.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

uint32_t vti_kv_element_bytes(vt_kv_type type) { return type == VT_KV_F32 ? 4 : 2; }

uint64_t vti_kv_cache_bytes(const vti_hparams *hparams, uint32_t layers, uint32_t tokens,
                            vt_kv_type type)
{
    return vti_hparams_kv_bytes(hparams, vti_kv_element_bytes(type)) * layers * tokens;
}

vt_status vti_kv_cache_open(vti_kv_cache *cache, const vti_hparams *hparams, uint32_t layers,
                            uint32_t capacity_tokens, vt_kv_type type, vt_error *err)
{
    *cache = (vti_kv_cache){
        .type = type,
        .layers = layers,
        .kv_heads = hparams->kv_heads,
        .head_dim = hparams->head_dim,
        .capacity_tokens = capacity_tokens,
        .row_bytes = (size_t)hparams->head_dim * vti_kv_element_bytes(type),
    };
    uint64_t bytes = vti_kv_cache_bytes(hparams, layers, capacity_tokens, type);
    if (bytes == 0) return VT_OK;
    if (bytes <= SIZE_MAX / 2) {
        void *base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base != MAP_FAILED) {
            cache->base = base;
            cache->size_bytes = (size_t)bytes;
            return VT_OK;
        }
    }
    return vti_fail(err, VT_ERR_MEMORY,
                    "no memory for a KV cache of %" PRIu64 " bytes (%" PRIu32 " layers, %" PRIu32
                    " tokens); a smaller context needs less",
                    bytes, layers, capacity_tokens);
}

void vti_kv_cache_close(vti_kv_cache *cache)
{
    if (cache->base) munmap(cache->base, cache->size_bytes);
    memset(cache, 0, sizeof *cache);
}

/* Order in memory: layer, then keys or values, then KV head, then token. */
static void *rows(const vti_kv_cache *cache, uint32_t layer, uint32_t which, uint32_t kv_head)
{
    size_t index = ((size_t)layer * 2 + which) * cache->kv_heads + kv_head;
    return cache->base + index * cache->capacity_tokens * cache->row_bytes;
}

void *vti_kv_cache_keys(const vti_kv_cache *cache, uint32_t layer, uint32_t kv_head)
{
    return rows(cache, layer, 0, kv_head);
}

void *vti_kv_cache_values(const vti_kv_cache *cache, uint32_t layer, uint32_t kv_head)
{
    return rows(cache, layer, 1, kv_head);
}

static void store_row(const vti_kv_cache *cache, const vti_kernels *kernels, void *head_rows,
                      uint32_t position, const float *source)
{
    unsigned char *row = (unsigned char *)head_rows + (size_t)position * cache->row_bytes;
    if (cache->type == VT_KV_F32)
        memcpy(row, source, cache->row_bytes);
    else
        kernels->f16_from_f32((uint16_t *)row, source, cache->head_dim);
}

void vti_kv_cache_store(vti_kv_cache *cache, const vti_kernels *kernels, uint32_t layer,
                        uint32_t position, const float *keys, const float *values)
{
    for (uint32_t head = 0; head < cache->kv_heads; head++) {
        size_t offset = (size_t)head * cache->head_dim;
        store_row(cache, kernels, vti_kv_cache_keys(cache, layer, head), position, keys + offset);
        store_row(cache, kernels, vti_kv_cache_values(cache, layer, head), position,
                  values + offset);
    }
}
