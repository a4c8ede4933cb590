/* store_writer.h: writes a shard store (docs/store.md). One thread at a time. */
#ifndef VTI_STORE_WRITER_H
#define VTI_STORE_WRITER_H

#include "store_format.h"

typedef struct vti_store_writer vti_store_writer;

/* What a store is written of. Stays with the caller, valid until the end. */
typedef struct vti_store_content {
    const vt_gguf *gguf;
    const vti_model_identity *identity;
    const vti_geometry *geometry;
    vti_store_entry *entries; /* in the file's order (unit, shard, precision), with everything but
                                 offset, stored bytes and hashes */
    uint64_t entry_count;
} vti_store_content;

/* A file of that name is only replaced if it is a store, by the commit. */
vt_status vti_store_writer_open(const char *path, const vti_store_content *content,
                                vti_store_writer **out, vt_error *err);

/* What entry `index` has in the file; every entry once, in order. Fills the entry. */
vt_status vti_store_writer_put(vti_store_writer *writer, uint64_t index, const void *stored,
                               uint64_t stored_bytes,
                               const uint8_t content_hash[VTI_SHARD_HASH_BYTES], vt_error *err);

/* Closes, and gives the file its name once all of it is on the disk. */
vt_status vti_store_writer_commit(vti_store_writer *writer, vt_error *err);
/* Closes and leaves nothing behind. NULL is fine. */
void vti_store_writer_discard(vti_store_writer *writer);

#endif
