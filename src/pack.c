#include "pack.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cores.h"
#include "store_writer.h"

enum {
    SLOTS_PER_THREAD = 2, /* blocks that may be ready before their turn to be written comes */
    MOST_THREADS = 256,
    CANCEL_CHECK_NS = 50000000
};

/* A shard on its way from a worker to the file. */
typedef struct slot {
    unsigned char *block; /* room for `block_room` */
    uint64_t block_room;
    const void *stored;   /* the block, or rows where they lie */
    uint64_t stored_bytes;
    uint8_t hash[VTI_SHARD_HASH_BYTES];
    bool ready;
    vt_error error;       /* status VT_OK: none */
} slot;

/* Workers take entries in order; the calling thread writes them in the same order. */
typedef struct job {
    const vti_shard_source *source;
    const vti_gguf_tensor *embedding;
    vti_store_entry *entries;
    uint64_t entry_count, total_bytes;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t taken, written;
    bool stop;
    slot *slots; /* entry i uses slot i % slot_count */
    uint64_t slot_count;
} job;

vt_pack_params vt_pack_params_default(void) { return (vt_pack_params){0}; }

/* --- plan -------------------------------------------------------------------------------------- */

/* Room for one more entry in the list. */
static vti_store_entry *add_entry(job *j, uint64_t *room)
{
    if (j->entry_count == *room) {
        uint64_t more = *room ? 2 * *room : 256;
        vti_store_entry *grown = realloc(j->entries, (size_t)more * sizeof *grown);
        if (!grown) return NULL;
        j->entries = grown;
        *room = more;
    }
    return memset(&j->entries[j->entry_count++], 0, sizeof *j->entries);
}

static vt_status plan_block(job *j, uint64_t *room, vti_shard_id id, const vti_shard_form *form,
                            vt_error *err)
{
    const vti_geometry *g = j->source->geometry;
    bool shared = id.shard == vti_unit_shards(g, id.unit);
    vti_shard_layout layout;
    vti_store_entry *entry = add_entry(j, room);
    if (!entry) return vti_fail(err, VT_ERR_MEMORY, "no memory for the list of shards");
    if (!vti_shard_lay_out(g, j->source->kernels, id.unit, id.shard, form, &layout))
        return vti_fail(err, VT_ERR_INTERNAL, "%s: a shard of unit %" PRIu32 " has no layout",
                        j->source->name, id.unit);
    entry->unit = id.unit;
    entry->shard = id.shard;
    entry->precision = shared ? VTI_STORE_ANY_PRECISION : (uint8_t)id.precision;
    entry->encoding = VTI_STORE_BLOCK;
    entry->form = *form;
    entry->shard_bytes = layout.bytes;
    j->total_bytes += layout.bytes;
    return VT_OK;
}

/* A shard at all precisions that are wanted and offered; of what shards share, the first. */
static vt_status plan_shard(job *j, uint64_t *room, uint32_t unit, uint32_t shard, uint32_t wanted,
                            vt_error *err)
{
    const vti_geometry *g = j->source->geometry;
    bool shared = shard == vti_unit_shards(g, unit);
    char name[32], offered[32] = "";
    uint64_t before = j->entry_count;
    vti_shard_form form;
    for (unsigned p = 0; p < VTI_PRECISION_COUNT; p++) {
        vti_shard_id id = {unit, shard, (vti_precision)p};
        if (!j->source->form(j->source->self, id, &form)) continue;
        strcat(strcat(offered, " "), vti_precision_name(p));
        if (!shared && !(wanted & 1u << p)) continue;
        VTI_TRY(plan_block(j, room, id, &form, err));
        if (shared) return VT_OK;
    }
    if (j->entry_count > before) return VT_OK;
    vti_unit_name(g, unit, name, sizeof name);
    return vti_fail(err, VT_ERR_ARGUMENT,
                    "%s: %s is not offered at any precision that was asked for, only at%s",
                    j->source->name, name, offered[0] ? offered : " none");
}

static vt_status plan_rows(job *j, uint64_t *room, uint32_t shard, vt_error *err)
{
    const vti_geometry *g = j->source->geometry;
    vti_piece pieces[VTI_PIECES];
    vti_store_entry *entry = add_entry(j, room);
    if (!entry) return vti_fail(err, VT_ERR_MEMORY, "no memory for the list of shards");
    vti_shard_pieces(g, vti_embed_unit(g), shard, false, pieces);
    entry->unit = vti_embed_unit(g);
    entry->shard = shard;
    entry->precision = VTI_STORE_ANY_PRECISION;
    entry->encoding = VTI_STORE_RAW;
    entry->shard_bytes = pieces[VTI_PIECE_ROWS].rows *
                         (j->embedding->size_bytes / j->embedding->dimensions[1]);
    j->total_bytes += entry->shard_bytes;
    return VT_OK;
}

static vt_status plan(job *j, uint32_t wanted, vt_error *err)
{
    const vti_geometry *g = j->source->geometry;
    uint32_t embed = vti_embed_unit(g);
    uint64_t room = 0;
    if (!wanted) wanted = ~0u;
    for (uint32_t unit = 0; unit < embed; unit++)
        for (uint32_t shard = 0; shard <= vti_unit_shards(g, unit); shard++)
            VTI_TRY(plan_shard(j, &room, unit, shard, wanted, err));
    for (uint32_t shard = 0; shard < vti_unit_shards(g, embed); shard++)
        VTI_TRY(plan_rows(j, &room, shard, err));
    return VT_OK;
}

/* --- workers ----------------------------------------------------------------------------------- */

/* What a worker has for itself. */
typedef struct tools {
    vti_block_encoder *encoder;
    void *memory; /* a shard as the kernels read it */
    uint64_t memory_bytes;
} tools;

static vt_status make_room(tools *t, slot *s, uint64_t shard_bytes, uint64_t bound, vt_error *err)
{
    if (t->memory_bytes < shard_bytes) {
        free(t->memory);
        t->memory = aligned_alloc(64, (size_t)shard_bytes);
        t->memory_bytes = t->memory ? shard_bytes : 0;
    }
    if (s->block_room < bound) {
        free(s->block);
        s->block = malloc((size_t)bound);
        s->block_room = s->block ? bound : 0;
    }
    if (!t->encoder) t->encoder = vti_block_encoder_open();
    if (t->encoder && t->memory && s->block) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY, "no memory to pack a shard of %" PRIu64 " bytes",
                    shard_bytes);
}

static vt_status make_block(const job *j, tools *t, slot *s, const vti_store_entry *entry,
                            vt_error *err)
{
    const vti_shard_source *source = j->source;
    vti_shard_layout layout;
    vti_shard_id id = {entry->unit, entry->shard, entry->form.precision};
    vti_shard_lay_out(source->geometry, source->kernels, id.unit, id.shard, &entry->form, &layout);
    VTI_TRY(make_room(t, s, layout.bytes, vti_block_bound(&layout), err));
    VTI_TRY(source->load(source->self, id, t->memory, err));
    vti_shard_hash(t->memory, layout.bytes, s->hash);
    VTI_TRY(vti_block_encode(t->encoder, &layout, t->memory, s->block, &s->stored_bytes, err));
    s->stored = s->block;
    return VT_OK;
}

static void find_rows(const job *j, slot *s, const vti_store_entry *entry)
{
    uint64_t row_bytes = j->embedding->size_bytes / j->embedding->dimensions[1];
    uint64_t first = (uint64_t)entry->shard * j->source->geometry->vocab_rows;
    s->stored = (const unsigned char *)j->embedding->data + first * row_bytes;
    s->stored_bytes = entry->shard_bytes;
    vti_shard_hash(s->stored, s->stored_bytes, s->hash);
}

/* The next entry whose slot is free; false when there is nothing more to do. */
static bool take(job *j, uint64_t *index)
{
    pthread_mutex_lock(&j->lock);
    while (!j->stop && j->taken < j->entry_count && j->taken >= j->written + j->slot_count)
        pthread_cond_wait(&j->changed, &j->lock);
    bool got = !j->stop && j->taken < j->entry_count;
    if (got) *index = j->taken++;
    pthread_mutex_unlock(&j->lock);
    return got;
}

static void *work(void *context)
{
    job *j = context;
    tools t = {0};
    for (uint64_t index; take(j, &index);) {
        slot *s = &j->slots[index % j->slot_count];
        const vti_store_entry *entry = &j->entries[index];
        s->error.status = VT_OK;
        if (entry->encoding == VTI_STORE_RAW)
            find_rows(j, s, entry);
        else
            s->error.status = make_block(j, &t, s, entry, &s->error);
        pthread_mutex_lock(&j->lock);
        s->ready = true;
        pthread_cond_broadcast(&j->changed);
        pthread_mutex_unlock(&j->lock);
    }
    free(t.memory);
    vti_block_encoder_close(t.encoder);
    return NULL;
}

/* --- writing ----------------------------------------------------------------------------------- */

static bool is_cancelled(const vt_pack_params *p)
{
    return p->cancelled && p->cancelled(p->user);
}

/* False if it was cancelled before. */
static bool wait_until_ready(job *j, slot *s, const vt_pack_params *params)
{
    bool ready = false, go_on = true;
    while (!ready && go_on) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += CANCEL_CHECK_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_mutex_lock(&j->lock);
        if (!s->ready) pthread_cond_timedwait(&j->changed, &j->lock, &until);
        ready = s->ready;
        pthread_mutex_unlock(&j->lock);
        go_on = !is_cancelled(params);
    }
    return go_on;
}

static vt_status write_all(job *j, vti_store_writer *writer, const vt_pack_params *params,
                           vt_error *err)
{
    uint64_t done_bytes = 0;
    for (uint64_t i = 0; i < j->entry_count; i++) {
        slot *s = &j->slots[i % j->slot_count];
        if (!wait_until_ready(j, s, params)) return vti_fail(err, VT_ERR_CANCELLED, "cancelled");
        if (s->error.status != VT_OK) return vti_fail(err, s->error.status, "%s", s->error.message);
        VTI_TRY(vti_store_writer_put(writer, i, s->stored, s->stored_bytes, s->hash, err));
        pthread_mutex_lock(&j->lock);
        s->ready = false;
        j->written++;
        pthread_cond_broadcast(&j->changed);
        pthread_mutex_unlock(&j->lock);
        done_bytes += j->entries[i].shard_bytes;
        if (params->progress.report)
            params->progress.report(params->progress.user, "packing", done_bytes, j->total_bytes);
    }
    return VT_OK;
}

static vt_status run(job *j, uint32_t threads, vti_store_writer *writer,
                     const vt_pack_params *params, vt_error *err)
{
    pthread_t handles[MOST_THREADS];
    uint32_t started = 0;
    if (threads == 0) threads = vti_cores_count();
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    j->slot_count = (uint64_t)threads * SLOTS_PER_THREAD;
    j->slots = calloc((size_t)j->slot_count, sizeof *j->slots);
    if (!j->slots) return vti_fail(err, VT_ERR_MEMORY, "no memory to pack");
    while (started < threads && pthread_create(&handles[started], NULL, work, j) == 0)
        vti_cores_pin(handles[started++]);
    vt_status status = started ? write_all(j, writer, params, err)
                               : vti_fail(err, VT_ERR_MEMORY, "no thread could be started");
    pthread_mutex_lock(&j->lock);
    j->stop = true;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
    for (uint32_t i = 0; i < started; i++) pthread_join(handles[i], NULL);
    return status;
}

static vt_status pack(job *j, const vti_store_content *content, const char *path,
                      const vt_pack_params *params, vt_error *err)
{
    vti_store_writer *writer;
    VTI_TRY(vti_store_writer_open(path, content, &writer, err));
    vt_status status = run(j, params->threads, writer, params, err);
    if (status == VT_OK) return vti_store_writer_commit(writer, err);
    vti_store_writer_discard(writer);
    return status;
}

vt_status vti_pack(const vti_shard_source *source, const vt_gguf *gguf,
                   const vti_model_identity *identity, const char *path,
                   const vt_pack_params *params, vt_error *err)
{
    job j = {
        .source = source,
        .embedding = vti_gguf_find_tensor(gguf, vti_role_name(VTI_TOKEN_EMBD)),
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
    };
    if (!j.embedding || !j.embedding->data)
        return vti_fail(err, VT_ERR_ARGUMENT, "%s has no weights to pack", source->name);
    vt_status status = plan(&j, params->precisions, err);
    vti_store_content content = {gguf, identity, source->geometry, j.entries, j.entry_count};
    if (status == VT_OK) status = pack(&j, &content, path, params, err);
    for (uint64_t i = 0; i < j.slot_count; i++) free(j.slots[i].block);
    free(j.slots);
    free(j.entries);
    return status;
}
