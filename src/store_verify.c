/* store_verify.c: checks every byte of a store. What opening checked is right already. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "pool.h"
#include "store_internal.h"

enum { ENTRIES_PER_THREAD = 4 }; /* between two reports of progress */

/* Some entries, by several threads. */
typedef struct batch {
    vt_store *store;
    uint64_t first;
    vti_budget *budget; /* a small file can have shards that are large in memory */
    vt_error *errors;   /* of each entry; status VT_OK: fine */
} batch;

static vt_status wrong(const vt_store *s, const vti_store_entry *entry, const char *what,
                       vt_error *err)
{
    char name[64];
    vti_store_entry_name(&s->geometry, entry, name, sizeof name);
    return vti_store_damaged(s, err, "%s: %s", name, what);
}

static vt_status check_padding(const vt_store *s, uint64_t index, vt_error *err)
{
    const vti_store_entry *entry = &s->entries[index];
    unsigned char bytes[VTI_STORE_ALIGNMENT];
    vti_store_entry padding = {.offset = vti_store_data_offset(s->directory_bytes, s->entry_count)};
    if (index) padding.offset = s->entries[index - 1].offset + s->entries[index - 1].stored_bytes;
    padding.stored_bytes = entry->offset - padding.offset; /* less than the alignment */
    VTI_TRY(vti_store_read_block(s, &padding, bytes, err));
    for (uint64_t i = 0; i < padding.stored_bytes; i++)
        if (bytes[i]) return wrong(s, entry, "bytes in front of it are not zero", err);
    return VT_OK;
}

static vt_status check_content(const vt_store *s, const vti_store_entry *entry, const void *content,
                               vt_error *err)
{
    uint8_t hash[VTI_SHARD_HASH_BYTES];
    vti_shard_hash(content, entry->shard_bytes, hash);
    if (memcmp(hash, entry->content_hash, sizeof hash) == 0) return VT_OK;
    return wrong(s, entry, "its content has another hash than the index says", err);
}

static vt_status decode(vt_store *s, const vti_store_entry *entry, const void *block, void *memory,
                        vt_error *err)
{
    vti_shard_layout layout;
    vt_error why = {.status = VT_OK};
    vti_block_decoder *decoder = vti_store_take_decoder(s);
    if (!decoder) return vti_fail(err, VT_ERR_MEMORY, "no memory to read %s", s->name);
    vti_store_lay_out(s, entry, &layout);
    vt_status status = vti_block_decode_memory(decoder, &layout, block, entry->stored_bytes, memory,
                                               &why);
    vti_store_give_decoder(s, decoder);
    if (status != VT_OK) return wrong(s, entry, why.message, err);
    return check_content(s, entry, memory, err);
}

static vt_status check_stored(vt_store *s, const vti_store_entry *entry, void *block, void *memory,
                              vt_error *err)
{
    uint8_t hash[VTI_SHARD_HASH_BYTES];
    VTI_TRY(vti_store_read_block(s, entry, block, err));
    /* What can be decoded is looked at first: it says more about what is wrong. */
    VTI_TRY(entry->encoding == VTI_STORE_RAW ? check_content(s, entry, block, err)
                                             : decode(s, entry, block, memory, err));
    vti_stored_hash(block, entry->stored_bytes, hash);
    if (memcmp(hash, entry->stored_hash, sizeof hash) == 0) return VT_OK;
    return wrong(s, entry, "its bytes in the file have another hash than the index says", err);
}

static vt_status check_entry(vt_store *s, uint64_t index, vti_budget *budget, vt_error *err)
{
    const vti_store_entry *entry = &s->entries[index];
    VTI_TRY(check_padding(s, index, err));
    uint64_t bytes = entry->stored_bytes + entry->shard_bytes;
    VTI_TRY(vti_budget_take(budget, VTI_BUDGET_SCRATCH, bytes, "checking a shard", err));
    void *block = malloc((size_t)entry->stored_bytes);
    void *memory = malloc((size_t)entry->shard_bytes);
    vt_status status = block && memory
                           ? check_stored(s, entry, block, memory, err)
                           : vti_fail(err, VT_ERR_MEMORY, "no memory to check %s", s->name);
    free(block);
    free(memory);
    vti_budget_give(budget, VTI_BUDGET_SCRATCH, bytes);
    return status;
}

static void check_some(void *context, size_t begin, size_t end)
{
    batch *b = context;
    for (size_t i = begin; i < end; i++)
        b->errors[i].status = check_entry(b->store, b->first + i, b->budget, &b->errors[i]);
}

/* Shards that did not fit beside those of other threads, one by one. */
static void check_again(batch *b, uint64_t count)
{
    for (size_t i = 0; i < count; i++)
        if (b->errors[i].status == VT_ERR_MEMORY) check_some(b, i, i + 1);
}

static vt_status check_all(vt_store *s, vti_pool *pool, vt_error *errors,
                           const vt_pack_params *params, vt_error *err)
{
    uint64_t step = (uint64_t)vti_pool_threads(pool) * ENTRIES_PER_THREAD;
    vti_budget budget;
    vti_budget_init(&budget, vti_memory_spare_bytes());
    for (uint64_t first = 0; first < s->entry_count; first += step) {
        uint64_t count = s->entry_count - first < step ? s->entry_count - first : step;
        batch b = {s, first, &budget, errors};
        vti_pool_run(pool, (size_t)count, 1, check_some, &b);
        check_again(&b, count);
        for (uint64_t i = 0; i < count; i++)
            if (errors[i].status != VT_OK)
                return vti_fail(err, errors[i].status, "%s", errors[i].message);
        const vti_store_entry *last = &s->entries[first + count - 1];
        if (params->progress.report)
            params->progress.report(params->progress.user, "verifying",
                                    last->offset + last->stored_bytes, s->file.bytes);
        if (params->cancelled && params->cancelled(params->user))
            return vti_fail(err, VT_ERR_CANCELLED, "cancelled");
    }
    return VT_OK;
}

vt_status vt_store_verify(const vt_store *store, const vt_pack_params *params, vt_error *err)
{
    vt_store *s = (vt_store *)store; /* its idle decoders are behind a lock */
    vt_pack_params defaults = vt_pack_params_default();
    vti_pool *pool;
    if (!params) params = &defaults;
    VTI_TRY(vti_pool_open(params->threads, &pool, err));
    vt_error *errors = calloc(vti_pool_threads(pool), ENTRIES_PER_THREAD * sizeof *errors);
    vt_status status = errors ? check_all(s, pool, errors, params, err)
                              : vti_fail(err, VT_ERR_MEMORY, "no memory to check %s", s->name);
    free(errors);
    vti_pool_close(pool);
    return status;
}
