#include "weights.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

/* Far more than any model of today has: the number may come from a peer. */
enum { MAX_SLOTS = 1 << 20 };

enum { SHARDS_PER_THREAD = 8 }; /* between two reports of progress */

static vt_status no_memory(vt_error *err, uint32_t count)
{
    return vti_fail(err, VT_ERR_MEMORY, "no memory for %" PRIu32 " units", count);
}

vt_status vti_weights_new(const vti_geometry *geometry, vti_shard_memory *memory, uint32_t first,
                          uint32_t count, vti_weights **out, vt_error *err)
{
    *out = NULL;
    size_t slots = 0;
    for (uint32_t i = 0; i < count; i++) slots += vti_unit_shards(geometry, first + i) + 1;
    if (slots > MAX_SLOTS)
        return vti_fail(err, VT_ERR_UNSUPPORTED, "a model of %zu shards; supported are %d", slots,
                        MAX_SLOTS);
    vti_weights *w = calloc(1, sizeof *w);
    if (!w) return no_memory(err, count);
    *w = (vti_weights){.geometry = geometry, .memory = memory, .first = first, .count = count};
    w->units = calloc(count + 1, sizeof *w->units);
    w->slots = calloc(slots + 1, sizeof *w->slots);
    if (!w->units || !w->slots) {
        vti_weights_free(w);
        return no_memory(err, count);
    }
    vti_shard **slot = w->slots;
    for (uint32_t i = 0; i < count; i++) {
        w->units[i] = (vti_unit){vti_unit_shards(geometry, first + i), slot};
        slot += w->units[i].shards + 1;
    }
    *out = w;
    return VT_OK;
}

void vti_weights_free(vti_weights *w)
{
    if (!w) return;
    for (uint32_t i = 0; w->units && i < w->count; i++)
        for (uint32_t shard = 0; w->units[i].shard && shard <= w->units[i].shards; shard++)
            vti_shard_free(w->memory, w->units[i].shard[shard]);
    free(w->units);
    free(w->slots);
    free(w->pruned);
    free(w);
}

vt_status vti_weights_leave_out(vti_weights *w, uint32_t unit, uint32_t shard, vt_error *err)
{
    const vti_unit *last = &w->units[w->count - 1];
    size_t slots = (size_t)(last->shard + last->shards + 1 - w->slots);
    if (!w->pruned) w->pruned = calloc(slots, sizeof *w->pruned);
    if (!w->pruned) return vti_fail(err, VT_ERR_MEMORY, "no memory to leave out shards");
    w->pruned[vti_weights_unit(w, unit)->shard + shard - w->slots] = true;
    return VT_OK;
}

void vti_weights_put(vti_weights *weights, vti_shard *shard)
{
    weights->units[shard->id.unit - weights->first].shard[shard->id.shard] = shard;
    weights->bytes += shard->bytes;
}

/* --- loading ----------------------------------------------------------------------------------- */

uint64_t vti_weights_bytes(const vti_shard_source *source, const vti_composition *composition,
                           uint32_t first, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t unit = first; unit < first + count; unit++)
        for (uint32_t shard = 0; shard <= vti_unit_shards(source->geometry, unit); shard++)
            bytes += vti_composition_shard_bytes(composition, source, unit, shard);
    return bytes;
}

/* Memory is taken by one thread in the order of the units, so that they lie in that order. */
static vt_status allocate(const vti_shard_source *source, const vti_composition *composition,
                          vti_weights *w, vt_error *err)
{
    for (uint32_t i = 0; i < w->count; i++) {
        for (uint32_t shard = 0; shard <= w->units[i].shards; shard++) {
            vti_shard_id id = vti_composition_id(composition, w->first + i, shard);
            vti_shard_layout layout;
            vti_shard *empty;
            if (!vti_composition_has(composition, id.unit, shard)) {
                VTI_TRY(vti_weights_leave_out(w, id.unit, shard, err));
                continue;
            }
            if (!vti_shard_source_lay_out(source, id, &layout))
                return vti_fail(err, VT_ERR_ARGUMENT, "%s has no weights at precision %s",
                                source->name, vti_precision_name(id.precision));
            VTI_TRY(vti_shard_new(w->memory, id, &layout, &empty, err));
            vti_weights_put(w, empty);
        }
    }
    return VT_OK;
}

typedef struct fill_job {
    const vti_shard_source *source;
    vti_shard **slots;
    pthread_mutex_t lock;
    vt_status status; /* of the first that failed */
    vt_error *err;
} fill_job;

/* Units of work: shards. */
static void fill_shards(void *context, size_t begin, size_t end)
{
    fill_job *j = context;
    for (size_t i = begin; i < end; i++) {
        vt_error why;
        if (!j->slots[i]) continue; /* left out */
        vt_status status = j->source->load(j->source->self, j->slots[i]->id, j->slots[i]->memory,
                                           &why);
        if (status == VT_OK) continue;
        pthread_mutex_lock(&j->lock);
        if (j->status == VT_OK && j->err) *j->err = why;
        if (j->status == VT_OK) j->status = status;
        pthread_mutex_unlock(&j->lock);
        return;
    }
}

static vt_status fill(const vti_shard_source *source, const vti_weights *w, vti_pool *pool,
                      const vt_progress *progress, vt_error *err)
{
    size_t shards = 0, step = (size_t)SHARDS_PER_THREAD * vti_pool_threads(pool);
    uint64_t done_bytes = 0;
    for (uint32_t i = 0; i < w->count; i++) shards += w->units[i].shards + 1;
    fill_job job = {.source = source, .slots = w->slots, .status = VT_OK, .err = err};
    if (pthread_mutex_init(&job.lock, NULL) != 0) return no_memory(err, w->count);
    for (size_t first = 0; first < shards && job.status == VT_OK; first += step) {
        size_t count = shards - first < step ? shards - first : step;
        job.slots = w->slots + first;
        vti_pool_run(pool, count, 1, fill_shards, &job);
        for (size_t i = 0; i < count; i++)
            if (job.slots[i]) done_bytes += job.slots[i]->bytes;
        if (progress && progress->report)
            progress->report(progress->user, "loading weights", done_bytes, w->bytes);
    }
    pthread_mutex_destroy(&job.lock);
    return job.status;
}

vt_status vti_weights_load(const vti_shard_source *source, const vti_composition *composition,
                           vti_shard_memory *memory, vti_pool *pool,
                           const vt_progress *progress, uint32_t first, uint32_t count,
                           vti_weights **out, vt_error *err)
{
    VTI_TRY(vti_weights_new(source->geometry, memory, first, count, out, err));
    vt_status status = allocate(source, composition, *out, err);
    if (status == VT_OK) status = fill(source, *out, pool, progress, err);
    if (status == VT_OK) return VT_OK;
    vti_weights_free(*out);
    *out = NULL;
    return status;
}
