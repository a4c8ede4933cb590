/* store_internal.h: what the files store*.c of the reader share.
 *
 *   store.c         open and close; header and directory
 *   store_index.c   the index: reading, checking, finding
 *   store_load.c    shards into memory
 *   store_verify.c  every byte
 *   store_info.c    sums and names */
#ifndef VTI_STORE_INTERNAL_H
#define VTI_STORE_INTERNAL_H

#include <pthread.h>

#include "mapped_file.h"
#include "store.h"

enum { VTI_STORE_IDLE_DECODERS = 8 };

struct vt_store {
    char *name;
    int descriptor;
    vti_mapped_file file;
    vt_gguf *gguf;
    vti_geometry geometry;
    vti_kernels kernels;
    vti_model_identity identity;
    vti_shard_source source;
    uint64_t directory_bytes, entry_count;
    vti_store_entry *entries;
    pthread_mutex_t lock; /* of the decoders that nobody uses now */
    vti_block_decoder *idle[VTI_STORE_IDLE_DECODERS];
    unsigned idle_count;
};

/* "FILE: this shard store is damaged: …" */
vt_status vti_store_damaged(const vt_store *store, vt_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fills entries from the index, which the checksum in the header fits. */
vt_status vti_store_read_index(vt_store *store, vt_error *err);

/* Of an entry that the index's check let pass. */
void vti_store_lay_out(const vt_store *store, const vti_store_entry *entry, vti_shard_layout *out);

/* Fills source.form and source.load. */
void vti_store_open_source(vt_store *store);

vti_block_decoder *vti_store_take_decoder(vt_store *store);
void vti_store_give_decoder(vt_store *store, vti_block_decoder *decoder);

#endif
