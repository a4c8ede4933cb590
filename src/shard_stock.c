#include "shard_stock.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "little_endian.h"
#include "store.h"

enum {
    ENCODING_BLOCK = VTI_STORE_BLOCK, /* in the cache: a shard's block … */
    ENCODING_LIST = 0x5453494c,       /* … and a list of hashes */
    LIST_ENTRY_BYTES = 64,
    THREADS_MAX = 64
};

/* What a shard's block is, once it was built. */
typedef struct known_block {
    vti_shard_id id;
    vti_shard_form form;
    uint64_t stored_bytes;
    vti_content_hash hash;
} known_block;

struct vti_shard_stock {
    vti_shard_stock_params params;
    vti_content_hash list_name; /* of the list in the cache */
    known_block *known;         /* in order of their ids */
    size_t known_count, known_capacity;
    bool list_changed;
};

/* --- what is known ----------------------------------------------------------------------------- */

static int by_id_and_form(const void *left, const void *right)
{
    const known_block *a = left, *b = right;
    if (a->id.unit != b->id.unit) return a->id.unit < b->id.unit ? -1 : 1;
    if (a->id.shard != b->id.shard) return a->id.shard < b->id.shard ? -1 : 1;
    if (a->id.precision != b->id.precision) return a->id.precision < b->id.precision ? -1 : 1;
    if (a->form.source_grid != b->form.source_grid) return a->form.source_grid ? 1 : -1;
    return memcmp(a->form.type, b->form.type, sizeof a->form.type);
}

/* Among the first `count`. */
static const known_block *find_known(const vti_shard_stock *s, const vti_manifest_entry *entry,
                                     size_t count)
{
    known_block key = {.id = entry->id, .form = entry->form};
    if (!count) return NULL; /* then s->known is, too */
    return bsearch(&key, s->known, count, sizeof *s->known, by_id_and_form);
}

static void sort_known(vti_shard_stock *s)
{
    if (s->known_count) qsort(s->known, s->known_count, sizeof *s->known, by_id_and_form);
}

/* At the end; sort_known puts it where find_known looks. */
static vt_status add_known(vti_shard_stock *s, const known_block *block, vt_error *err)
{
    if (s->known_count == s->known_capacity) {
        size_t capacity = s->known_capacity ? 2 * s->known_capacity : 256;
        known_block *more = realloc(s->known, capacity * sizeof *more);
        if (!more) return vti_fail(err, VT_ERR_MEMORY, "no memory for a list of shards");
        s->known = more;
        s->known_capacity = capacity;
    }
    s->known[s->known_count++] = *block;
    return VT_OK;
}

/* --- the list in the cache --------------------------------------------------------------------- */

/* Files that keep their place, size and time of change are taken for unchanged, if samples of all
 * tensors are the same, too. What blocks look like depends on zstd. */
static void name_list(vti_shard_stock *s)
{
    crypto_generichash_state state;
    vti_model_identity identity;
    vti_file_stamp stamp;
    uint64_t numbers[4] = {VTI_LAYOUT_VERSION, ZSTD_versionNumber(), LIST_ENTRY_BYTES,
                           s->params.source->geometry->shard_kv_heads};
    static const char what[] = "voltron list of shards 1";
    crypto_generichash_init(&state, (const uint8_t *)what, sizeof what, VTI_SHARD_HASH_BYTES);
    crypto_generichash_update(&state, (const uint8_t *)numbers, sizeof numbers);
    vti_model_identity_of(s->params.gguf, &identity);
    crypto_generichash_update(&state, (const uint8_t *)&identity, sizeof identity);
    vti_file_stamp_of(s->params.gguf, &stamp);
    crypto_generichash_update(&state, stamp.bytes, sizeof stamp.bytes);
    crypto_generichash_final(&state, s->list_name.bytes, sizeof s->list_name.bytes);
}

static void read_list(vti_shard_stock *s)
{
    vti_cached_block list = {0};
    if (!vti_shard_cache_get(s->params.cache, &s->list_name, &list)) return;
    size_t count = list.encoding == ENCODING_LIST ? list.stored_bytes / LIST_ENTRY_BYTES : 0;
    const uint8_t *at = list.data;
    for (size_t i = 0; i < count; i++, at += LIST_ENTRY_BYTES) {
        vti_precision precision = (vti_precision)at[8];
        known_block block = {.id = {vti_load_u32(at), vti_load_u32(at + 4), precision},
                             .form = {.precision = precision, .source_grid = at[9] == 1},
                             .stored_bytes = vti_load_u64(at + 24)};
        memcpy(block.form.type, at + 16, sizeof block.form.type);
        memcpy(&block.hash, at + 32, sizeof block.hash);
        if (add_known(s, &block, NULL) != VT_OK) break;
    }
    vti_cached_block_free(&list);
    sort_known(s);
}

static void write_list(vti_shard_stock *s)
{
    size_t bytes = s->known_count * LIST_ENTRY_BYTES;
    uint8_t *data = calloc(s->known_count + 1, LIST_ENTRY_BYTES), *at = data;
    if (!data) return;
    for (size_t i = 0; i < s->known_count; i++, at += LIST_ENTRY_BYTES) {
        const known_block *block = &s->known[i];
        vti_put_u32(at, block->id.unit);
        vti_put_u32(at + 4, block->id.shard);
        at[8] = (uint8_t)block->id.precision;
        at[9] = block->form.source_grid;
        memcpy(at + 16, block->form.type, sizeof block->form.type);
        vti_put_u64(at + 24, block->stored_bytes);
        memcpy(at + 32, &block->hash, sizeof block->hash);
    }
    vti_cached_block list = {.encoding = ENCODING_LIST, .raw_bytes = bytes, .stored_bytes = bytes,
                             .data = data};
    vti_shard_cache_put(s->params.cache, &s->list_name, &list);
    free(data);
}

vt_status vti_shard_stock_open(const vti_shard_stock_params *params, vti_shard_stock **out,
                                vt_error *err)
{
    vti_shard_stock *s = *out = calloc(1, sizeof *s);
    if (!s) return vti_fail(err, VT_ERR_MEMORY, "no memory for a list of shards");
    s->params = *params;
    /* Changed since, what is built is not what the list's name would say. */
    if (params->gguf && !vti_files_are_as_opened(params->gguf)) s->params.gguf = NULL;
    if (!params->store && params->cache && s->params.gguf) {
        name_list(s);
        read_list(s);
    }
    return VT_OK;
}

void vti_shard_stock_close(vti_shard_stock *s)
{
    if (!s) return;
    free(s->known);
    free(s);
}

/* --- building ---------------------------------------------------------------------------------- */

/* One block at a time. */
typedef struct builder {
    vti_block_encoder *encoder;
    void *memory; /* the shard */
    uint64_t capacity;
    vti_cached_block block;
    vti_content_hash hash;
} builder;

static void builder_free(builder *b)
{
    vti_block_encoder_close(b->encoder);
    free(b->memory);
    vti_cached_block_free(&b->block);
}

static vt_status builder_room(builder *b, const vti_shard_layout *layout, vt_error *err)
{
    uint64_t bound = vti_block_bound(layout);
    if (!b->encoder) b->encoder = vti_block_encoder_open();
    if (b->capacity < layout->bytes) {
        free(b->memory);
        b->memory = aligned_alloc(64, (size_t)layout->bytes); /* a multiple of 64 */
        b->capacity = b->memory ? layout->bytes : 0;
    }
    if (b->block.capacity < bound) {
        free(b->block.data);
        b->block.data = malloc((size_t)bound);
        b->block.capacity = b->block.data ? (size_t)bound : 0;
    }
    if (b->encoder && b->memory && b->block.data) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY, "no memory to prepare a shard of %" PRIu64 " bytes",
                    layout->bytes);
}

static vt_status build(const vti_shard_stock *s, const vti_manifest *m, uint32_t index, builder *b,
                       vt_error *err)
{
    const vti_shard_source *source = s->params.source;
    vti_shard_layout layout;
    if (!vti_manifest_lay_out(m, index, &layout))
        return vti_fail(err, VT_ERR_INTERNAL, "%s: a shard has no layout", source->name);
    VTI_TRY(builder_room(b, &layout, err));
    VTI_TRY(source->load(source->self, m->entries[index].id, b->memory, err));
    vti_shard_hash(b->memory, layout.bytes, b->hash.bytes);
    b->block.encoding = ENCODING_BLOCK;
    b->block.raw_bytes = layout.bytes;
    return vti_block_encode(b->encoder, &layout, b->memory, b->block.data, &b->block.stored_bytes,
                            err);
}

/* Some blocks that are built at once, by the pool's threads. */
typedef struct batch {
    const vti_shard_stock *stock;
    builder builders[THREADS_MAX];
    const vti_manifest *manifest[THREADS_MAX];
    uint32_t index[THREADS_MAX];
    vt_error error[THREADS_MAX];
    size_t count, most;
} batch;

static void build_some(void *context, size_t begin, size_t end)
{
    batch *b = context;
    for (size_t i = begin; i < end; i++) {
        builder *one = &b->builders[i];
        b->error[i].status = build(b->stock, b->manifest[i], b->index[i], one, &b->error[i]);
        if (b->error[i].status == VT_OK && b->stock->params.cache)
            vti_shard_cache_put(b->stock->params.cache, &one->hash, &one->block);
    }
}

static vt_status build_batch(vti_shard_stock *s, batch *b, uint64_t *done, uint64_t total,
                             vt_error *err)
{
    const vt_progress *progress = &s->params.progress;
    vti_pool_run(s->params.pool, b->count, 1, build_some, b);
    for (size_t i = 0; i < b->count; i++) {
        const vti_manifest_entry *entry = &b->manifest[i]->entries[b->index[i]];
        if (b->error[i].status != VT_OK)
            return vti_fail(err, b->error[i].status, "%s", b->error[i].message);
        known_block block = {entry->id, entry->form, b->builders[i].block.stored_bytes,
                             b->builders[i].hash};
        VTI_TRY(add_known(s, &block, err));
        *done += entry->bytes;
    }
    s->list_changed = true;
    b->count = 0;
    if (progress->report) progress->report(progress->user, "preparing weights", *done, total);
    return VT_OK;
}

static vt_status build_all(vti_shard_stock *s, batch *b, vti_manifest *const *manifests,
                           size_t count, uint64_t total, vt_error *err)
{
    size_t known = s->known_count;
    uint64_t done = 0;
    vt_status status = VT_OK;
    for (size_t i = 0; i < count; i++)
        for (uint32_t e = 0; e < manifests[i]->count && status == VT_OK; e++) {
            if (manifests[i]->entries[e].left_out ||
                find_known(s, &manifests[i]->entries[e], known))
                continue;
            b->manifest[b->count] = manifests[i];
            b->index[b->count++] = e;
            if (b->count == b->most) status = build_batch(s, b, &done, total, err);
        }
    if (status == VT_OK && b->count) status = build_batch(s, b, &done, total, err);
    sort_known(s);
    return status;
}

/* --- manifests --------------------------------------------------------------------------------- */

vt_status vti_shard_stock_choose(vti_shard_stock *s, const vti_composition *composition,
                                  vti_manifest *m, vt_error *err)
{
    const vti_shard_source *source = s->params.source;
    char name[VTI_SHARD_TEXT];
    vti_shard_layout layout;
    for (uint32_t i = 0; i < m->count; i++) {
        vti_manifest_entry *entry = &m->entries[i];
        entry->left_out = !vti_composition_has(composition, entry->id.unit, entry->id.shard);
        if (entry->left_out) continue;
        entry->id = vti_composition_id(composition, entry->id.unit, entry->id.shard);
        if (!source->form(source->self, entry->id, &entry->form) ||
            !vti_manifest_lay_out(m, i, &layout))
            return vti_fail(err, VT_ERR_ARGUMENT, "%s does not have %s at %s", source->name,
                            vti_manifest_name(m, i, name), vti_precision_name(entry->id.precision));
        entry->bytes = layout.bytes;
    }
    return VT_OK;
}

/* True if all is known now; *missing gets the bytes of the shards that are not. */
static bool fill_in(const vti_shard_stock *s, vti_manifest *const *manifests, size_t count,
                    uint64_t *missing)
{
    bool all = true;
    *missing = 0;
    for (size_t i = 0; i < count; i++)
        for (uint32_t e = 0; e < manifests[i]->count; e++) {
            vti_manifest_entry *entry = &manifests[i]->entries[e];
            if (entry->left_out) continue;
            const known_block *known = find_known(s, entry, s->known_count);
            if (known) {
                entry->stored_bytes = known->stored_bytes;
                entry->hash = known->hash;
            } else {
                all = false;
                *missing += entry->bytes;
            }
        }
    return all;
}

static vt_status know_from_store(vti_shard_stock *s, const vti_manifest *m, vt_error *err)
{
    char name[VTI_SHARD_TEXT];
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->entries[i].left_out) continue;
        const vti_store_entry *entry = vti_store_find(s->params.store, m->entries[i].id);
        if (!entry || entry->encoding != VTI_STORE_BLOCK)
            return vti_fail(err, VT_ERR_INTERNAL, "%s does not have %s", s->params.source->name,
                            vti_manifest_name(m, i, name));
        m->entries[i].stored_bytes = entry->stored_bytes;
        memcpy(&m->entries[i].hash, entry->content_hash, sizeof entry->content_hash);
    }
    return VT_OK;
}

/* A shard and its block for every thread; with little memory fewer threads. */
static vt_status take_memory(vti_shard_stock *s, batch *b, vti_manifest *const *manifests,
                             size_t count, uint64_t *taken, vt_error *err)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < count; i++)
        for (uint32_t e = 0; e < manifests[i]->count; e++)
            if (manifests[i]->entries[e].bytes > largest) largest = manifests[i]->entries[e].bytes;
    b->most = vti_pool_threads(s->params.pool);
    if (b->most > THREADS_MAX) b->most = THREADS_MAX;
    for (; b->most > 1; b->most--)
        if (vti_budget_try(s->params.budget, VTI_BUDGET_SCRATCH, 2 * largest * b->most)) break;
    *taken = b->most > 1 ? 2 * largest * b->most : 0;
    if (b->most > 1) return VT_OK;
    VTI_TRY(vti_budget_take(s->params.budget, VTI_BUDGET_SCRATCH, 2 * largest,
                            "preparing weights for other devices", err));
    *taken = 2 * largest;
    return VT_OK;
}

vt_status vti_shard_stock_complete(vti_shard_stock *s, vti_manifest *const *manifests,
                                    size_t count, vt_error *err)
{
    uint64_t missing;
    if (s->params.store) {
        for (size_t i = 0; i < count; i++) VTI_TRY(know_from_store(s, manifests[i], err));
        return VT_OK;
    }
    if (fill_in(s, manifests, count, &missing)) return VT_OK;
    uint64_t taken;
    batch *b = calloc(1, sizeof *b);
    if (!b) return vti_fail(err, VT_ERR_MEMORY, "no memory to prepare weights");
    b->stock = s;
    vt_status status = take_memory(s, b, manifests, count, &taken, err);
    if (status == VT_OK) status = build_all(s, b, manifests, count, missing, err);
    for (size_t i = 0; i < b->most; i++) builder_free(&b->builders[i]);
    free(b);
    vti_budget_give(s->params.budget, VTI_BUDGET_SCRATCH, taken);
    /* Also of what was done before a failure. */
    if (s->list_changed && s->params.cache && s->params.gguf &&
        vti_files_are_as_opened(s->params.gguf))
        write_list(s);
    s->list_changed = false;
    VTI_TRY(status);
    fill_in(s, manifests, count, &missing);
    return VT_OK;
}

/* --- blocks ------------------------------------------------------------------------------------ */

static vt_status read_stored(const vti_shard_stock *s, const vti_manifest_entry *entry,
                             vti_cached_block *out, vt_error *err)
{
    if (out->capacity < entry->stored_bytes) {
        free(out->data);
        out->data = malloc((size_t)entry->stored_bytes);
        out->capacity = out->data ? (size_t)entry->stored_bytes : 0;
    }
    if (!out->data) return vti_fail(err, VT_ERR_MEMORY, "no memory for a block of weights");
    out->encoding = ENCODING_BLOCK;
    out->raw_bytes = entry->bytes;
    out->stored_bytes = entry->stored_bytes;
    return vti_store_read_block(s->params.store, vti_store_find(s->params.store, entry->id),
                                out->data, err);
}

static bool is_block_of(const vti_cached_block *block, const vti_manifest_entry *entry)
{
    return block->encoding == ENCODING_BLOCK && block->raw_bytes == entry->bytes &&
           block->stored_bytes == entry->stored_bytes;
}

vt_status vti_shard_stock_get(vti_shard_stock *s, const vti_manifest *m, uint32_t index,
                               vti_cached_block *out, vt_error *err)
{
    const vti_manifest_entry *entry = &m->entries[index];
    char name[VTI_SHARD_TEXT];
    if (s->params.store) return read_stored(s, entry, out, err);
    if (s->params.cache && vti_shard_cache_get(s->params.cache, &entry->hash, out) &&
        is_block_of(out, entry))
        return VT_OK;
    builder b = {0};
    vt_status status = build(s, m, index, &b, err);
    if (status == VT_OK && (memcmp(&b.hash, &entry->hash, sizeof b.hash) != 0 ||
                            !is_block_of(&b.block, entry))) {
        /* The list that was kept does not fit: the next start makes a new one. */
        if (s->params.cache) vti_shard_cache_remove(s->params.cache, &s->list_name);
        status = vti_fail(err, VT_ERR_FORMAT, "%s: %s is not what it was: has the file changed?",
                          s->params.source->name, vti_manifest_name(m, index, name));
    }
    if (status == VT_OK) {
        if (s->params.cache) vti_shard_cache_put(s->params.cache, &b.hash, &b.block);
        vti_cached_block before = *out;
        *out = b.block;
        b.block = before;
    }
    builder_free(&b);
    return status;
}
