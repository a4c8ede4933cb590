#include "kv_cache.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

/* A local layer has room for this many tokens more than its window, or for a batch if that is more:
 * moving a window's rows to the front then costs each token a few rows. */
enum { LOCAL_ROOM = 128 };

static const vti_kv_form forms[] = {
    [VT_KV_F16] = VTI_KV_F16,
    [VT_KV_F32] = VTI_KV_F32,
    [VT_KV_Q8] = VTI_KV_Q8,
};

enum { FORM_COUNT = sizeof forms / sizeof forms[0] };

bool vti_kv_type_known(vt_kv_type type) { return (unsigned)type < FORM_COUNT; }

static const vti_kv_kernel *kernel_of(const vti_kv_params *p)
{
    return &p->kernels->kv[forms[p->type]];
}

/* --- sizes ----------------------------------------------------------------------------------- */

/* Tokens that a local layer takes between two moves, if it starts with a full window. */
static uint32_t local_room(const vti_kv_params *p)
{
    uint32_t room = p->hparams->window < LOCAL_ROOM ? p->hparams->window : LOCAL_ROOM;
    return room > p->batch_tokens ? room : p->batch_tokens;
}

/* The newest token's window counts that token itself. */
static uint32_t local_rows(const vti_kv_params *p)
{
    uint64_t rows = (uint64_t)p->hparams->window + local_room(p) - 1;
    return rows < p->context_tokens ? (uint32_t)rows : p->context_tokens;
}

/* Rows of one KV head in the cache's layers before `layer`. */
static uint64_t rows_before(const vti_kv_params *p, uint32_t layer)
{
    if (!p->hparams->window) return (uint64_t)layer * p->context_tokens;
    uint32_t local = vti_local_layers(p->hparams, p->first + layer) -
                     vti_local_layers(p->hparams, p->first);
    return (uint64_t)local * local_rows(p) + (uint64_t)(layer - local) * p->context_tokens;
}

uint64_t vti_kv_cache_bytes(const vti_kv_params *p)
{
    uint64_t row_bytes = kernel_of(p)->row_bytes(p->hparams->head_dim);
    return 2 * row_bytes * p->hparams->kv_heads * rows_before(p, p->layers);
}

/* --- opening --------------------------------------------------------------------------------- */

vt_status vti_kv_cache_open(vti_kv_cache *cache, const vti_kv_params *params, vt_error *err)
{
    *cache = (vti_kv_cache){
        .kernel = kernel_of(params),
        .p = *params,
        .local_rows = params->hparams->window ? local_rows(params) : 0,
    };
    cache->row_bytes = cache->kernel->row_bytes(params->hparams->head_dim);
    uint64_t bytes = vti_kv_cache_bytes(params);
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
                    bytes, params->layers, params->context_tokens);
}

void vti_kv_cache_close(vti_kv_cache *cache)
{
    if (cache->base) munmap(cache->base, cache->size_bytes);
    memset(cache, 0, sizeof *cache);
}

/* --- rows ------------------------------------------------------------------------------------ */

static bool is_local(const vti_kv_cache *cache, uint32_t layer)
{
    return vti_layer_is_local(cache->p.hparams, cache->p.first + layer);
}

/* The first row of one KV head. Order in memory: layer, then keys or values, then KV head, then
 * token. */
static unsigned char *rows_of(const vti_kv_cache *cache, uint32_t layer, uint32_t half,
                              uint32_t kv_head)
{
    size_t kv_heads = cache->p.hparams->kv_heads;
    size_t rows = is_local(cache, layer) ? cache->local_rows : cache->p.context_tokens;
    size_t before = (size_t)rows_before(&cache->p, layer) * 2 * kv_heads;
    return cache->base + (before + (half * kv_heads + kv_head) * rows) * cache->row_bytes;
}

void *vti_kv_cache_rows(const vti_kv_cache *cache, uint32_t layer, uint32_t half, uint32_t kv_head,
                        uint32_t position)
{
    size_t row = position - (is_local(cache, layer) ? cache->local_base : 0);
    return rows_of(cache, layer, half, kv_head) + row * cache->row_bytes;
}

void vti_kv_cache_store(vti_kv_cache *cache, uint32_t layer, uint32_t position, const float *keys,
                        const float *values)
{
    size_t head_dim = cache->p.hparams->head_dim;
    for (uint32_t head = 0; head < cache->p.hparams->kv_heads; head++) {
        void *k = vti_kv_cache_rows(cache, layer, VTI_KV_KEYS, head, position);
        void *v = vti_kv_cache_rows(cache, layer, VTI_KV_VALUES, head, position);
        cache->kernel->store(k, keys + head * head_dim, head_dim);
        cache->kernel->store(v, values + head * head_dim, head_dim);
    }
}

/* --- windows --------------------------------------------------------------------------------- */

uint32_t vti_kv_cache_resume(const vti_kv_cache *cache, uint32_t position)
{
    /* The token at `position` sees window - 1 before it. */
    if (cache->local_base == 0 ||
        (uint64_t)position + 1 >= (uint64_t)cache->local_base + cache->p.hparams->window)
        return position;
    return 0;
}

uint32_t vti_kv_first(const vti_hparams *hparams, uint32_t layer, uint32_t end)
{
    if (!vti_layer_is_local(hparams, layer) || end + 1 <= hparams->window) return 0;
    return end + 1 - hparams->window;
}

void vti_kv_cache_restore(vti_kv_cache *cache, uint32_t end)
{
    uint32_t window = cache->p.hparams->window;
    cache->local_base = window && end + 1 > window ? end + 1 - window : 0;
}

typedef struct move_job {
    const vti_kv_cache *cache;
    uint32_t from, rows;
} move_job;

/* Unit: the keys or values of one KV head of one layer. */
static void move_rows(void *context, size_t begin, size_t end)
{
    const move_job *j = context;
    const vti_kv_cache *cache = j->cache;
    uint32_t kv_heads = cache->p.hparams->kv_heads;
    for (size_t unit = begin; unit < end; unit++) {
        uint32_t layer = (uint32_t)(unit / (2 * kv_heads));
        if (!is_local(cache, layer)) continue;
        uint32_t half = (uint32_t)(unit / kv_heads % 2), head = (uint32_t)(unit % kv_heads);
        unsigned char *rows = rows_of(cache, layer, half, head);
        memmove(rows, rows + j->from * cache->row_bytes, j->rows * cache->row_bytes);
    }
}

void vti_kv_cache_make_room(vti_kv_cache *cache, vti_pool *pool, uint32_t position,
                            uint32_t tokens)
{
    if (position == 0) cache->local_base = 0;
    uint32_t used = position - cache->local_base;
    if (!cache->p.hparams->window || used + tokens <= cache->local_rows) return;
    /* Half of the room is kept for tokens before the window: a conversation can be taken back by
     * that many. */
    uint32_t half = local_room(&cache->p) / 2, room = tokens > half ? tokens : half;
    uint32_t keep = cache->local_rows - room;
    move_job job = {cache, used - keep, keep};
    vti_pool_run(pool, (size_t)cache->p.layers * 2 * cache->p.hparams->kv_heads, 1, move_rows,
                 &job);
    cache->local_base = position - keep;
}
