/* store_format.h: the fixed parts of a shard store, byte by byte (docs/store.md). */
#ifndef VTI_STORE_FORMAT_H
#define VTI_STORE_FORMAT_H

#include "align.h"
#include "model_identity.h"
#include "shard.h"
#include "shard_block.h"

#define VTI_STORE_MAGIC "VTST"

enum {
    VTI_STORE_VERSION = 1,
    VTI_STORE_ALIGNMENT = 64, /* of directory, index and blocks */

    VTI_STORE_HEADER_BYTES = 256,
    VTI_STORE_ENTRY_BYTES = 128,

    /* Places in the header. */
    VTI_STORE_AT_MAGIC = 0,
    VTI_STORE_AT_VERSION = 4,
    VTI_STORE_AT_LAYOUT = 8,
    VTI_STORE_AT_ZERO = 12,
    VTI_STORE_AT_FILE_BYTES = 16,
    VTI_STORE_AT_DIRECTORY_BYTES = 24,
    VTI_STORE_AT_ENTRY_COUNT = 32,
    VTI_STORE_AT_CUT = 40, /* units, shard_kv_heads, ffn_width, vocab_rows */
    VTI_STORE_AT_SHAPE_ID = 56,
    VTI_STORE_AT_WEIGHTS_ID = 88,
    VTI_STORE_AT_DIRECTORY_HASH = 120,
    VTI_STORE_AT_INDEX_HASH = 152,
    VTI_STORE_AT_RESERVED = 184, /* zeros */
    VTI_STORE_AT_HASH = 224,     /* of all before */

    /* Places in an entry of the index. */
    VTI_STORE_AT_UNIT = 0,
    VTI_STORE_AT_SHARD = 4,
    VTI_STORE_AT_PRECISION = 8,
    VTI_STORE_AT_ENCODING = 9,
    VTI_STORE_AT_GRID = 10,
    VTI_STORE_AT_ENTRY_ZERO = 11,
    VTI_STORE_AT_TYPES = 16,
    VTI_STORE_AT_OFFSET = 24,
    VTI_STORE_AT_STORED_BYTES = 32,
    VTI_STORE_AT_SHARD_BYTES = 40,
    VTI_STORE_AT_CONTENT_HASH = 48,
    VTI_STORE_AT_STORED_HASH = 80,
    VTI_STORE_AT_ENTRY_RESERVED = 112, /* zeros */

    VTI_STORE_ANY_PRECISION = 0xff, /* what the shards of a unit share, and embeddings */

    VTI_STORE_RAW = 0,   /* rows of the embedding as the model's file has them */
    VTI_STORE_BLOCK = 1, /* shard_block.h */
};

_Static_assert(VTI_STORE_AT_HASH + VTI_SHARD_HASH_BYTES == VTI_STORE_HEADER_BYTES, "header");
_Static_assert(VTI_STORE_AT_ENTRY_RESERVED + 16 == VTI_STORE_ENTRY_BYTES, "entry");

/* One shard at one precision. */
typedef struct vti_store_entry {
    uint32_t unit, shard;
    uint8_t precision; /* or VTI_STORE_ANY_PRECISION */
    uint8_t encoding;
    vti_shard_form form; /* of blocks; its precision only if the shard's is given */
    uint64_t offset, stored_bytes, shard_bytes;
    uint8_t content_hash[VTI_SHARD_HASH_BYTES]; /* vti_shard_hash of the shard, or of raw rows */
    uint8_t stored_hash[VTI_SHARD_HASH_BYTES];  /* vti_stored_hash of what the file has */
} vti_store_entry;

static inline uint64_t vti_store_aligned(uint64_t bytes)
{
    return vti_align_up(bytes, VTI_STORE_ALIGNMENT);
}

static inline uint64_t vti_store_index_offset(uint64_t directory_bytes)
{
    return vti_store_aligned(VTI_STORE_HEADER_BYTES + directory_bytes);
}

/* Where the first shard begins. The embedding, being the last unit, comes last. */
static inline uint64_t vti_store_data_offset(uint64_t directory_bytes, uint64_t entries)
{
    return vti_store_aligned(vti_store_index_offset(directory_bytes) +
                             entries * VTI_STORE_ENTRY_BYTES);
}

/* The model's metadata and tensor directory: a GGUF v3 file up to its data. What belongs to a split
 * or to the data's place (split.*, general.alignment) is left out. malloc'd. */
vt_status vti_store_directory(const vt_gguf *gguf, unsigned char **out, uint64_t *bytes,
                              vt_error *err);

/* "ATTN(3)", "FFN(0)", "HEAD", "EMBED" */
void vti_unit_name(const vti_geometry *g, uint32_t unit, char *buffer, size_t capacity);

/* "ATTN(3), shard 2, at I8" for messages; `shared`: "ATTN(3), what its shards share". */
void vti_store_entry_name(const vti_geometry *g, const vti_store_entry *entry, char *buffer,
                          size_t capacity);

#endif
