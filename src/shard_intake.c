#include "shard_intake.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "store.h"

enum { THREADS_MAX = 64, WRONG_MAX = 2 };

/* --- a model file of one's own ----------------------------------------------------------------- */

struct vti_local_model {
    char *path;
    vt_model *model; /* NULL: it could not be opened again */
    const vti_shard_source *source;
    vti_model_identity identity;
};

static vt_status read_local(vti_local_model *l, const vt_log *log, vt_error *err)
{
    vt_model_params params = vt_model_params_default();
    params.threads = 1; /* it only gives weights */
    params.log = *log;
    VTI_TRY(vt_model_open(l->path, &params, &l->model, err));
    l->source = l->model->shards;
    vti_model_get_identity(l->model, &l->identity);
    return VT_OK;
}

vt_status vti_local_model_open(const char *path, const vt_log *log, vti_local_model **out,
                               vt_error *err)
{
    vti_local_model *l = *out = calloc(1, sizeof *l);
    if (l) l->path = strdup(path);
    vt_status status = l && l->path ? read_local(l, log, err)
                                    : vti_fail(err, VT_ERR_MEMORY, "no memory to open %s", path);
    if (status == VT_OK) return VT_OK;
    vti_local_model_close(l);
    *out = NULL;
    return status;
}

void vti_local_model_close(vti_local_model *l)
{
    if (!l) return;
    vt_model_close(l->model);
    free(l->path);
    free(l);
}

static bool is_current(const vti_local_model *l)
{
    return l->model && vti_files_are_as_opened(l->model->gguf);
}

void vti_local_model_refresh(vti_local_model *l, const vt_log *log)
{
    vt_error err;
    if (is_current(l)) return;
    vt_model_close(l->model);
    l->model = NULL;
    if (read_local(l, log, &err) == VT_OK)
        vti_log(log, VT_LOG_INFO, "%s has changed and was opened again", l->path);
    else
        vti_log(log, VT_LOG_WARNING, "%s; it is not used", err.message);
}

static bool same_geometry(const vti_geometry *a, const vti_geometry *b)
{
    return a->units == b->units && a->shard_kv_heads == b->shard_kv_heads &&
           a->ffn_width == b->ffn_width && a->vocab_rows == b->vocab_rows;
}

bool vti_local_model_is(const vti_local_model *l, const vti_geometry *geometry,
                        const vti_model_identity *identity, const vti_file_stamp *stamp)
{
    vti_file_stamp own;
    return is_current(l) && vti_file_stamp_of(l->model->gguf, &own) &&
           memcmp(&own, stamp, sizeof own) == 0 &&
           memcmp(&l->identity, identity, sizeof *identity) == 0 &&
           same_geometry(l->source->geometry, geometry);
}

/* Without that its bytes would not have the size that there is memory for. */
static bool same_form(const vti_local_model *l, const vti_manifest_entry *entry)
{
    const vti_shard_source *source = l->source;
    vti_shard_form form;
    vti_shard_layout layout;
    return source->form(source->self, entry->id, &form) && vti_shard_form_is(&form, &entry->form) &&
           vti_shard_lay_out(source->geometry, source->kernels, entry->id.unit, entry->id.shard,
                             &form, &layout) &&
           layout.bytes == entry->bytes;
}

/* Has it this shard, or, of a GGUF file, very likely? */
static bool local_has(const vti_local_model *l, const vti_manifest_entry *entry)
{
    if (!same_form(l, entry)) return false;
    if (!l->model->store) return true;
    const vti_store_entry *stored = vti_store_find(l->model->store, entry->id);
    return stored && memcmp(stored->content_hash, &entry->hash, sizeof entry->hash) == 0;
}

/* --- intake ------------------------------------------------------------------------------------ */

typedef enum place { PLACE_HERE, PLACE_LOCAL, PLACE_CACHE, PLACE_MAIN } place;

/* What a thread needs to load shards. */
typedef struct loader {
    vti_block_decoder *decoder;
    vti_cached_block block;
    uint32_t index; /* what it loads */
    bool right;
    vt_status status; /* VT_ERR_MEMORY: no use to go on */
} loader;

struct vti_shard_intake {
    vti_shard_intake_params params;
    const vti_local_model *local; /* NULL: not of this model */
    vti_shard **shards;           /* NULL once the weights have it */
    uint8_t *place, *wrong;       /* of every entry; how often its block was wrong */
    uint32_t next;                /* to be loaded from here; those before it are done with */
    uint32_t to_load;             /* how many, from there on */
    uint32_t *wanted;             /* entries to ask for, in order; each WRONG_MAX times at most */
    uint32_t wanted_count, asked, taken;
    uint8_t *block;               /* wanted[taken]: what has come of it */
    uint64_t block_capacity, received;
    loader loaders[THREADS_MAX];
    uint32_t threads;
    uint64_t buffer_bytes;        /* taken from the budget for blocks */
    uint64_t loaded_bytes, total_bytes;
};

static void want(vti_shard_intake *t, uint32_t index)
{
    t->place[index] = PLACE_MAIN;
    t->wanted[t->wanted_count++] = index;
}

static place find_place(const vti_shard_intake *t, uint32_t index)
{
    const vti_manifest_entry *entry = &t->params.manifest->entries[index];
    vti_cached_block info;
    if (entry->left_out) return PLACE_HERE;
    if (t->params.manifest->same_file) return PLACE_LOCAL;
    if (t->local && local_has(t->local, entry)) return PLACE_LOCAL;
    if (t->params.cache && vti_shard_cache_has(t->params.cache, &entry->hash, &info) &&
        info.encoding == VTI_STORE_BLOCK && info.raw_bytes == entry->bytes)
        return PLACE_CACHE;
    return PLACE_MAIN;
}

static void find_all(vti_shard_intake *t)
{
    const vti_manifest *m = t->params.manifest;
    const vti_local_model *l = t->params.local;
    uint32_t count[PLACE_MAIN + 1] = {0};
    if (l && !l->model) l = NULL;
    bool current = l && (m->same_file || is_current(l));
    if (current && same_geometry(l->source->geometry, m->geometry) &&
        memcmp(&l->identity, t->params.identity, sizeof l->identity) == 0)
        t->local = l;
    for (uint32_t i = 0; i < m->count; i++) {
        place where = find_place(t, i);
        t->place[i] = (uint8_t)where;
        count[where]++;
        if (where == PLACE_MAIN) want(t, i);
    }
    t->to_load = count[PLACE_LOCAL] + count[PLACE_CACHE];
    if (l && !t->local)
        vti_log(t->params.log, VT_LOG_WARNING, "%s %s", l->source->name,
                current ? "is another model than the one to be run"
                        : "has changed since it was opened and is not used");
    vti_log(t->params.log, VT_LOG_INFO,
            "%" PRIu32 " shards: %" PRIu32 " from a file here, %" PRIu32 " from the cache, %" PRIu32
            " to be sent",
            m->count - count[PLACE_HERE], count[PLACE_LOCAL], count[PLACE_CACHE], count[PLACE_MAIN]);
}

/* A block that arrives, and one for each thread that decompresses: with little memory fewer. */
static vt_status take_buffers(vti_shard_intake *t, vt_error *err)
{
    uint64_t largest = vti_manifest_largest_stored_bytes(t->params.manifest);
    for (; t->threads > 1; t->threads--)
        if (vti_budget_try(t->params.budget, VTI_BUDGET_SCRATCH, (1 + t->threads) * largest)) break;
    if (t->threads == 1)
        VTI_TRY(vti_budget_take(t->params.budget, VTI_BUDGET_SCRATCH, 2 * largest,
                                "receiving weights", err));
    t->buffer_bytes = (1 + t->threads) * largest;
    return VT_OK;
}

static vt_status take_memory(vti_shard_intake *t, vt_error *err)
{
    const vti_manifest *m = t->params.manifest;
    for (uint32_t i = 0; i < m->count; i++) {
        vti_shard_layout layout;
        if (m->entries[i].left_out) {
            VTI_TRY(vti_weights_leave_out(t->params.weights, m->entries[i].id.unit,
                                          m->entries[i].id.shard, err));
            continue;
        }
        if (!vti_manifest_lay_out(m, i, &layout))
            return vti_fail(err, VT_ERR_INTERNAL, "a shard has no layout");
        VTI_TRY(vti_shard_new(t->params.weights->memory, m->entries[i].id, &layout, &t->shards[i],
                              err));
        t->total_bytes += layout.bytes;
    }
    return take_buffers(t, err);
}

vt_status vti_shard_intake_open(const vti_shard_intake_params *params, vti_shard_intake **out,
                                vt_error *err)
{
    uint32_t count = params->manifest->count;
    vti_shard_intake *t = *out = calloc(1, sizeof *t);
    if (!t) return vti_fail(err, VT_ERR_MEMORY, "no memory for a list of shards");
    t->params = *params;
    t->shards = calloc(count, sizeof *t->shards);
    t->place = calloc(count, 1);
    t->wrong = calloc(count, 1);
    t->wanted = calloc(count, WRONG_MAX * sizeof *t->wanted);
    t->threads = vti_pool_threads(params->pool);
    if (t->threads > THREADS_MAX) t->threads = THREADS_MAX;
    vt_status status = VT_OK;
    if (!t->shards || !t->place || !t->wrong || !t->wanted)
        status = vti_fail(err, VT_ERR_MEMORY, "no memory for a list of shards");
    if (status == VT_OK) status = take_memory(t, err);
    if (status == VT_OK) {
        find_all(t);
        return VT_OK;
    }
    vti_shard_intake_close(t);
    *out = NULL;
    return status;
}

void vti_shard_intake_close(vti_shard_intake *t)
{
    if (!t) return;
    for (uint32_t i = 0; t->shards && i < t->params.manifest->count; i++)
        vti_shard_free(t->params.weights->memory, t->shards[i]);
    for (uint32_t i = 0; i < t->threads; i++) {
        vti_block_decoder_close(t->loaders[i].decoder);
        vti_cached_block_free(&t->loaders[i].block);
    }
    free(t->shards);
    free(t->place);
    free(t->wrong);
    free(t->wanted);
    free(t->block);
    vti_budget_give(t->params.budget, VTI_BUDGET_SCRATCH, t->buffer_bytes);
    free(t);
}

uint32_t vti_shard_intake_want(vti_shard_intake *t)
{
    return t->asked < t->wanted_count ? t->wanted[t->asked++] : UINT32_MAX;
}

uint64_t vti_shard_intake_loaded_bytes(const vti_shard_intake *t) { return t->loaded_bytes; }

uint64_t vti_shard_intake_total_bytes(const vti_shard_intake *t) { return t->total_bytes; }

static void is_here(vti_shard_intake *t, uint32_t index)
{
    t->place[index] = PLACE_HERE;
    t->loaded_bytes += t->shards[index]->bytes;
    vti_weights_put(t->params.weights, t->shards[index]);
    t->shards[index] = NULL;
}

/* --- from here --------------------------------------------------------------------------------- */

static bool hash_is_right(const vti_shard_intake *t, uint32_t index)
{
    vti_content_hash hash;
    const vti_shard *shard = t->shards[index];
    vti_shard_hash(shard->memory, shard->bytes, hash.bytes);
    return memcmp(&hash, &t->params.manifest->entries[index].hash, sizeof hash) == 0;
}

/* A store's blocks have checksums of their own, and its index has what they are. */
static bool load_local(const vti_shard_intake *t, uint32_t index)
{
    const vti_local_model *l = t->local;
    const vti_shard *shard = t->shards[index];
    vt_error err;
    if (!same_form(l, &t->params.manifest->entries[index])) return false;
    if (l->source->load(l->source->self, shard->id, shard->memory, &err) != VT_OK) {
        vti_log(t->params.log, VT_LOG_WARNING, "%s", err.message);
        return false;
    }
    return l->model->store || t->params.manifest->same_file || hash_is_right(t, index);
}

static vt_status decode(const vti_shard_intake *t, loader *l, const void *block, uint64_t bytes,
                        uint32_t index, vt_error *err)
{
    vti_shard_layout layout;
    if (!l->decoder) l->decoder = vti_block_decoder_open();
    if (!l->decoder) return vti_fail(err, VT_ERR_MEMORY, "no memory to decompress weights");
    vti_manifest_lay_out(t->params.manifest, index, &layout);
    return vti_block_decode_memory(l->decoder, &layout, block, bytes, t->shards[index]->memory,
                                   err);
}

/* What the cache gives is what a process put in that had seen its hash. */
static bool load_cached(const vti_shard_intake *t, loader *l)
{
    const vti_manifest_entry *entry = &t->params.manifest->entries[l->index];
    vt_error err;
    if (!vti_shard_cache_get(t->params.cache, &entry->hash, &l->block) ||
        l->block.encoding != VTI_STORE_BLOCK || l->block.raw_bytes != entry->bytes)
        return false;
    l->status = decode(t, l, l->block.data, l->block.stored_bytes, l->index, &err);
    if (l->status == VT_OK) return true;
    if (l->status != VT_ERR_MEMORY) vti_shard_cache_remove(t->params.cache, &entry->hash);
    return false;
}

static void load_some(void *context, size_t begin, size_t end)
{
    vti_shard_intake *t = context;
    for (size_t i = begin; i < end; i++) {
        loader *l = &t->loaders[i];
        l->status = VT_OK;
        l->right = t->place[l->index] == PLACE_LOCAL ? load_local(t, l->index) : load_cached(t, l);
    }
}

static bool is_to_be_loaded(const vti_shard_intake *t, uint32_t index)
{
    return t->place[index] == PLACE_LOCAL || t->place[index] == PLACE_CACHE;
}

bool vti_shard_intake_has_work(const vti_shard_intake *t)
{
    return t->to_load > 0;
}

/* What was loaded from a file that was changed meanwhile may be anything. */
static void forget_changed(vti_shard_intake *t, uint32_t count)
{
    if (!t->local || is_current(t->local)) return;
    for (uint32_t i = 0; i < count; i++)
        if (t->place[t->loaders[i].index] == PLACE_LOCAL) t->loaders[i].right = false;
}

vt_status vti_shard_intake_work(vti_shard_intake *t, vt_error *err)
{
    uint32_t count = 0;
    char name[VTI_SHARD_TEXT];
    for (; t->next < t->params.manifest->count && count < t->threads; t->next++)
        if (is_to_be_loaded(t, t->next)) t->loaders[count++].index = t->next;
    t->to_load -= count;
    vti_pool_run(t->params.pool, count, 1, load_some, t);
    forget_changed(t, count);
    for (uint32_t i = 0; i < count; i++) {
        const loader *l = &t->loaders[i];
        if (l->status == VT_ERR_MEMORY)
            return vti_fail(err, VT_ERR_MEMORY, "no memory to decompress weights");
        if (!l->right && t->params.manifest->same_file)
            return vti_fail(err, VT_ERR_IO, "%s cannot be loaded from %s",
                            vti_manifest_name(t->params.manifest, l->index, name),
                            t->local->source->name);
        if (l->right)
            is_here(t, l->index);
        else
            want(t, l->index);
    }
    return VT_OK;
}

/* --- from the main device ---------------------------------------------------------------------- */

static vt_status begin_block(vti_shard_intake *t, uint64_t bytes, vt_error *err)
{
    if (t->block_capacity >= bytes) return VT_OK;
    free(t->block);
    t->block = malloc((size_t)bytes);
    t->block_capacity = t->block ? bytes : 0;
    if (t->block) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY, "no memory for a block of %" PRIu64 " bytes", bytes);
}

/* The block is complete. */
static vt_status finish_block(vti_shard_intake *t, uint32_t index, vt_error *err)
{
    const vti_manifest_entry *entry = &t->params.manifest->entries[index];
    char name[VTI_SHARD_TEXT];
    vt_error why = {.message = "its hash is not the one announced"};
    t->received = 0;
    t->taken++;
    vt_status status = decode(t, &t->loaders[0], t->block, entry->stored_bytes, index, &why);
    if (status == VT_ERR_MEMORY) return vti_fail(err, status, "%s", why.message);
    if (status == VT_OK && hash_is_right(t, index)) {
        vti_cached_block block = {.encoding = VTI_STORE_BLOCK, .raw_bytes = entry->bytes,
                                  .stored_bytes = entry->stored_bytes, .data = t->block};
        if (t->params.cache) vti_shard_cache_put(t->params.cache, &entry->hash, &block);
        is_here(t, index);
        return VT_OK;
    }
    vti_manifest_name(t->params.manifest, index, name);
    if (++t->wrong[index] == WRONG_MAX)
        return vti_fail(err, VT_ERR_FORMAT, "%s arrived damaged: %s", name, why.message);
    vti_log(t->params.log, VT_LOG_WARNING, "%s arrived damaged and is asked for again: %s", name,
            why.message);
    want(t, index);
    return VT_OK;
}

vt_status vti_shard_intake_take(vti_shard_intake *t, uint32_t index, uint64_t offset,
                                const void *data, size_t bytes, vt_error *err)
{
    if (t->taken == t->asked || t->wanted[t->taken] != index || offset != t->received ||
        bytes > t->params.manifest->entries[index].stored_bytes - t->received)
        return vti_fail(err, VT_ERR_PROTOCOL, "a part of a block came that was not next");
    uint64_t stored_bytes = t->params.manifest->entries[index].stored_bytes;
    VTI_TRY(begin_block(t, stored_bytes, err));
    memcpy(t->block + t->received, data, bytes);
    t->received += bytes;
    return t->received == stored_bytes ? finish_block(t, index, err) : VT_OK;
}
