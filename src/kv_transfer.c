#include "kv_transfer.h"

static uint32_t rows_per_chunk(const vti_kv_shape *shape)
{
    size_t rows = VTI_KV_CHUNK_MAX / shape->row_bytes;
    return rows ? (uint32_t)rows : 1;
}

/* The piece that begins at chunk->position of its head, if there are rows from there on. */
static bool begin_chunk(const vti_kv_shape *shape, vti_kv_chunk *chunk)
{
    uint32_t left = shape->end - chunk->position, most = rows_per_chunk(shape);
    chunk->rows = left < most ? left : most;
    return left > 0;
}

static bool begin_head(const vti_kv_shape *shape, vti_kv_chunk *chunk)
{
    chunk->position = vti_kv_first(shape->hparams, chunk->layer, shape->end);
    return begin_chunk(shape, chunk);
}

/* On to the next head; false behind the last one. */
static bool advance_head(const vti_kv_shape *shape, vti_kv_chunk *chunk)
{
    if (++chunk->kv_head == shape->hparams->kv_heads) {
        chunk->kv_head = 0;
        chunk->half++;
    }
    if (chunk->half > VTI_KV_VALUES) {
        chunk->half = VTI_KV_KEYS;
        chunk->layer++;
    }
    return chunk->layer < shape->first + shape->layers;
}

bool vti_kv_next_chunk(const vti_kv_shape *shape, vti_kv_chunk *chunk)
{
    if (shape->layers == 0 || shape->end == 0) return false;
    if (chunk->rows == 0) {
        *chunk = (vti_kv_chunk){.layer = shape->first};
    } else {
        chunk->position += chunk->rows;
        if (begin_chunk(shape, chunk)) return true;
        if (!advance_head(shape, chunk)) return false;
    }
    while (!begin_head(shape, chunk)) /* a window of one token needs no rows */
        if (!advance_head(shape, chunk)) return false;
    return true;
}

void *vti_kv_chunk_rows(const vti_kv_cache *cache, const vti_kv_chunk *chunk)
{
    return vti_kv_cache_rows(cache, chunk->layer - cache->p.first, chunk->half, chunk->kv_head,
                             chunk->position);
}

static uint64_t rows_of_layer(const vti_kv_shape *shape, uint32_t layer)
{
    return shape->end - vti_kv_first(shape->hparams, layer, shape->end);
}

uint64_t vti_kv_chunk_count(const vti_kv_shape *shape)
{
    uint64_t count = 0, most = rows_per_chunk(shape);
    for (uint32_t layer = shape->first; layer < shape->first + shape->layers; layer++)
        count += (rows_of_layer(shape, layer) + most - 1) / most * 2 * shape->hparams->kv_heads;
    return count;
}

uint64_t vti_kv_row_bytes(const vti_kv_shape *shape)
{
    uint64_t rows = 0;
    for (uint32_t layer = shape->first; layer < shape->first + shape->layers; layer++)
        rows += rows_of_layer(shape, layer) * 2 * shape->hparams->kv_heads;
    return rows * shape->row_bytes;
}
