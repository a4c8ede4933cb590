/* store.h: reads a shard store (docs/store.md), as strictly as a GGUF file. */
#ifndef VTI_STORE_H
#define VTI_STORE_H

#include "store_format.h"

/* The shards, for any number of threads. Belongs to the store. */
const vti_shard_source *vti_store_source(const vt_store *store);

/* The same as vt_store_gguf, for those who hand it on. */
vt_gguf *vti_store_gguf(vt_store *store);

/* Of the file that the store was made of. */
const vti_model_identity *vti_store_identity(const vt_store *store);

/* How the file has a shard; NULL: not at that precision. Of what shards share, any will do. */
const vti_store_entry *vti_store_find(const vt_store *store, vti_shard_id id);

/* A shard as stored (vti_block_decode_memory reads it): `entry->stored_bytes` into `block`. */
vt_status vti_store_read_block(const vt_store *store, const vti_store_entry *entry, void *block,
                               vt_error *err);

/* The embedding's rows, as the model's file has them, are the data of the tensor token_embd.weight
 * in vt_store_gguf(); no other tensor has data. */

#endif
