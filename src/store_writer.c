#include "store_writer.h"

#include <stdlib.h>
#include <string.h>

#include "little_endian.h"
#include "output_file.h"
#include "store.h"

struct vti_store_writer {
    vti_output_file file;
    const vti_store_content *content;
    vti_store_entry *entries;
    uint64_t entry_count, put;
    unsigned char *directory;
    uint64_t directory_bytes;
    uint64_t end;   /* bytes of the file so far */
    uint64_t most;  /* that it can have */
    unsigned char header[VTI_STORE_HEADER_BYTES];
};

static const unsigned char zeros[VTI_STORE_ALIGNMENT];

static void begin_header(vti_store_writer *w)
{
    const vti_geometry *g = w->content->geometry;
    const vti_model_identity *identity = w->content->identity;
    unsigned char *h = w->header;
    memcpy(h + VTI_STORE_AT_MAGIC, VTI_STORE_MAGIC, 4);
    vti_put_u32(h + VTI_STORE_AT_VERSION, VTI_STORE_VERSION);
    vti_put_u32(h + VTI_STORE_AT_LAYOUT, VTI_LAYOUT_VERSION);
    vti_put_u64(h + VTI_STORE_AT_DIRECTORY_BYTES, w->directory_bytes);
    vti_put_u64(h + VTI_STORE_AT_ENTRY_COUNT, w->entry_count);
    vti_put_u32(h + VTI_STORE_AT_CUT, g->units);
    vti_put_u32(h + VTI_STORE_AT_CUT + 4, g->shard_kv_heads);
    vti_put_u32(h + VTI_STORE_AT_CUT + 8, g->ffn_width);
    vti_put_u32(h + VTI_STORE_AT_CUT + 12, g->vocab_rows);
    memcpy(h + VTI_STORE_AT_SHAPE_ID, identity->shape, sizeof identity->shape);
    memcpy(h + VTI_STORE_AT_WEIGHTS_ID, identity->weights, sizeof identity->weights);
    vti_stored_hash(w->directory, w->directory_bytes, h + VTI_STORE_AT_DIRECTORY_HASH);
}

/* Frames and alignment of what cannot be compressed included. */
static uint64_t bound(uint64_t shard_bytes) { return shard_bytes + shard_bytes / 4096 + 1024; }

static vt_status begin(vti_store_writer *w, const char *path, vt_error *err)
{
    VTI_TRY(vti_output_check(path, VTI_STORE_MAGIC, "a shard store", err));
    VTI_TRY(vti_store_directory(w->content->gguf, &w->directory, &w->directory_bytes, err));
    begin_header(w);
    w->end = w->most = vti_store_data_offset(w->directory_bytes, w->entry_count);
    for (uint64_t i = 0; i < w->entry_count; i++) w->most += bound(w->entries[i].shard_bytes);
    return vti_output_open(&w->file, path, 0666, err);
}

vt_status vti_store_writer_open(const char *path, const vti_store_content *content,
                                vti_store_writer **out, vt_error *err)
{
    *out = NULL;
    vti_store_writer *w = calloc(1, sizeof *w);
    if (!w) return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    w->file = VTI_OUTPUT_NONE;
    w->content = content;
    w->entries = content->entries;
    w->entry_count = content->entry_count;
    vt_status status = begin(w, path, err);
    if (status != VT_OK) {
        vti_store_writer_discard(w);
        return status;
    }
    *out = w;
    return VT_OK;
}

static double mebibytes(uint64_t bytes) { return (double)bytes / 1048576; }

static vt_status write_at(vti_store_writer *w, uint64_t offset, const void *data, uint64_t bytes,
                          vt_error *err)
{
    vt_error why = {.status = VT_OK};
    vt_status status = vti_output_write_at(&w->file, offset, data, (size_t)bytes, &why);
    if (status == VT_OK) return VT_OK;
    return vti_fail(err, status, "%s; %.1f MiB of at most %.1f MiB were written", why.message,
                    mebibytes(w->end), mebibytes(w->most));
}

/* Rows of the embedding lie close; what follows them is aligned. */
static uint64_t next_offset(const vti_store_writer *w, const vti_store_entry *entry)
{
    bool inner = entry->encoding == VTI_STORE_RAW && entry->shard;
    return inner ? w->end : vti_store_aligned(w->end);
}

vt_status vti_store_writer_put(vti_store_writer *w, uint64_t index, const void *stored,
                               uint64_t stored_bytes,
                               const uint8_t content_hash[VTI_SHARD_HASH_BYTES], vt_error *err)
{
    if (index != w->put || index >= w->entry_count)
        return vti_fail(err, VT_ERR_INTERNAL, "a store's shards are written in order");
    vti_store_entry *entry = &w->entries[index];
    entry->offset = next_offset(w, entry);
    entry->stored_bytes = stored_bytes;
    memcpy(entry->content_hash, content_hash, sizeof entry->content_hash);
    vti_stored_hash(stored, stored_bytes, entry->stored_hash);
    VTI_TRY(write_at(w, w->end, zeros, entry->offset - w->end, err));
    VTI_TRY(write_at(w, entry->offset, stored, stored_bytes, err));
    w->end = entry->offset + stored_bytes;
    w->put++;
    return VT_OK;
}

static void put_entry(unsigned char *to, const vti_store_entry *entry)
{
    memset(to, 0, VTI_STORE_ENTRY_BYTES);
    vti_put_u32(to + VTI_STORE_AT_UNIT, entry->unit);
    vti_put_u32(to + VTI_STORE_AT_SHARD, entry->shard);
    to[VTI_STORE_AT_PRECISION] = entry->precision;
    to[VTI_STORE_AT_ENCODING] = entry->encoding;
    to[VTI_STORE_AT_GRID] = entry->form.source_grid;
    memcpy(to + VTI_STORE_AT_TYPES, entry->form.type, VTI_PIECES);
    vti_put_u64(to + VTI_STORE_AT_OFFSET, entry->offset);
    vti_put_u64(to + VTI_STORE_AT_STORED_BYTES, entry->stored_bytes);
    vti_put_u64(to + VTI_STORE_AT_SHARD_BYTES, entry->shard_bytes);
    memcpy(to + VTI_STORE_AT_CONTENT_HASH, entry->content_hash, VTI_SHARD_HASH_BYTES);
    memcpy(to + VTI_STORE_AT_STORED_HASH, entry->stored_hash, VTI_SHARD_HASH_BYTES);
}

/* Header, directory and index, now that everything is known. */
static vt_status write_front(vti_store_writer *w, vt_error *err)
{
    uint64_t bytes = vti_store_data_offset(w->directory_bytes, w->entry_count);
    uint64_t index = vti_store_index_offset(w->directory_bytes);
    unsigned char *front = calloc(1, (size_t)bytes);
    if (!front) return vti_fail(err, VT_ERR_MEMORY, "no memory for the index of %s", w->file.path);
    for (uint64_t i = 0; i < w->entry_count; i++)
        put_entry(front + index + i * VTI_STORE_ENTRY_BYTES, &w->entries[i]);
    memcpy(front + VTI_STORE_HEADER_BYTES, w->directory, (size_t)w->directory_bytes);
    vti_put_u64(w->header + VTI_STORE_AT_FILE_BYTES, w->end);
    vti_stored_hash(front + index, w->entry_count * VTI_STORE_ENTRY_BYTES,
                    w->header + VTI_STORE_AT_INDEX_HASH);
    vti_stored_hash(w->header, VTI_STORE_AT_HASH, w->header + VTI_STORE_AT_HASH);
    memcpy(front, w->header, sizeof w->header);
    vt_status status = write_at(w, 0, front, bytes, err);
    free(front);
    return status;
}

static void free_writer(vti_store_writer *w)
{
    vti_output_discard(&w->file);
    free(w->directory);
    free(w);
}

vt_status vti_store_writer_commit(vti_store_writer *w, vt_error *err)
{
    vt_status status = w->put == w->entry_count
                           ? write_front(w, err)
                           : vti_fail(err, VT_ERR_INTERNAL, "a store's shards are missing");
    if (status == VT_OK) status = vti_output_commit(&w->file, err);
    free_writer(w);
    return status;
}

void vti_store_writer_discard(vti_store_writer *w)
{
    if (w) free_writer(w);
}
