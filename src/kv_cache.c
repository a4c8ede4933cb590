#include "kv_cache.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

static const vti_kv_form forms[] = {
    [VT_KV_F16] = VTI_KV_F16,
    [VT_KV_F32] = VTI_KV_F32,
    [VT_KV_Q8] = VTI_KV_Q8,
};

enum { FORM_COUNT = sizeof forms / sizeof forms[0] };

bool vti_kv_type_known(vt_kv_type type) { return (unsigned)type < FORM_COUNT; }

static const vti_kv_kernel *kernel_of(const vti_kernels *kernels, vt_kv_type type)
{
    return &kernels->kv[forms[type]];
}

uint64_t vti_kv_cache_bytes(const vti_kernels *kernels, const vti_hparams *hparams, uint32_t layers,
                            uint32_t tokens, vt_kv_type type)
{
    uint64_t row_bytes = kernel_of(kernels, type)->row_bytes(hparams->head_dim);
    return 2 * row_bytes * hparams->kv_heads * layers * tokens;
}

vt_status vti_kv_cache_open(vti_kv_cache *cache, const vti_kernels *kernels,
                            const vti_hparams *hparams, uint32_t layers, uint32_t capacity_tokens,
                            vt_kv_type type, vt_error *err)
{
    *cache = (vti_kv_cache){
        .kernel = kernel_of(kernels, type),
        .layers = layers,
        .kv_heads = hparams->kv_heads,
        .head_dim = hparams->head_dim,
        .capacity_tokens = capacity_tokens,
    };
    cache->row_bytes = cache->kernel->row_bytes(hparams->head_dim);
    uint64_t bytes = vti_kv_cache_bytes(kernels, hparams, layers, capacity_tokens, type);
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

uint32_t vti_kv_first(const vti_hparams *hparams, uint32_t layer, uint32_t end)
{
    (void)hparams;
    (void)layer;
    (void)end;
    return 0;
}

void *vti_kv_cache_run(const vti_kv_cache *cache, uint32_t layer, uint32_t half, uint32_t kv_head,
                       uint32_t position, uint32_t end, uint32_t *run)
{
    *run = end - position;
    return (unsigned char *)rows(cache, layer, half, kv_head) + (size_t)position * cache->row_bytes;
}

void vti_kv_cache_store(vti_kv_cache *cache, uint32_t layer, uint32_t position, const float *keys,
                        const float *values)
{
    size_t offset = (size_t)position * cache->row_bytes;
    for (uint32_t head = 0; head < cache->kv_heads; head++) {
        unsigned char *k = vti_kv_cache_keys(cache, layer, head);
        unsigned char *v = vti_kv_cache_values(cache, layer, head);
        cache->kernel->store(k + offset, keys + (size_t)head * cache->head_dim, cache->head_dim);
        cache->kernel->store(v + offset, values + (size_t)head * cache->head_dim, cache->head_dim);
    }
}
