/* shard_block.h: a shard as it is stored and sent: compressed and checksummed.
 *
 * A block has the shard's pieces one behind the other, each cut into zstd frames of at most
 * VTI_FRAME_BYTES. Pieces of 16-bit weights give two frames per stretch of 2 × VTI_FRAME_BYTES: all
 * low bytes, then all high bytes. docs/store.md has the details. */
#ifndef VTI_SHARD_BLOCK_H
#define VTI_SHARD_BLOCK_H

#include "geometry.h"

enum {
    VTI_LAYOUT_VERSION = 1, /* of the bytes that kernels read; part of every content hash */
    VTI_SHARD_HASH_BYTES = 32,
    VTI_FRAME_BYTES = 1 << 17 /* of content: what zstd has in one of its blocks */
};

/* Names a shard by what it consists of: BLAKE2b-256 of its bytes as the kernels read them. */
void vti_shard_hash(const void *data, uint64_t bytes, uint8_t hash[VTI_SHARD_HASH_BYTES]);

/* The same of bytes as they are stored; never equal to a shard's name. */
void vti_stored_hash(const void *data, uint64_t bytes, uint8_t hash[VTI_SHARD_HASH_BYTES]);

/* The most bytes that a block of this layout can have, and the fewest. */
uint64_t vti_block_bound(const vti_shard_layout *layout);
uint64_t vti_block_least(const vti_shard_layout *layout);

/* Both belong to one thread at a time. */
typedef struct vti_block_encoder vti_block_encoder;
typedef struct vti_block_decoder vti_block_decoder;

/* NULL if there is no memory. */
vti_block_encoder *vti_block_encoder_open(void);
void vti_block_encoder_close(vti_block_encoder *encoder);
vti_block_decoder *vti_block_decoder_open(void);
void vti_block_decoder_close(vti_block_decoder *decoder);

/* Same bytes, same block. `block` has room for the bound. */
vt_status vti_block_encode(vti_block_encoder *encoder, const vti_shard_layout *layout,
                           const void *memory, void *block, uint64_t *block_bytes, vt_error *err);

/* Gives the next `bytes` of a block. */
typedef vt_status vti_block_read_fn(void *context, void *to, size_t bytes, vt_error *err);

/* Fills `memory`, of layout->bytes, from the `block_bytes` that `read` gives in order. ERR_FORMAT
 * says what is wrong, without a name in front. */
vt_status vti_block_decode(vti_block_decoder *decoder, const vti_shard_layout *layout,
                           vti_block_read_fn *read, void *context, uint64_t block_bytes,
                           void *memory, vt_error *err);

/* The same of a block in memory. */
vt_status vti_block_decode_memory(vti_block_decoder *decoder, const vti_shard_layout *layout,
                                  const void *block, uint64_t block_bytes, void *memory,
                                  vt_error *err);

#endif
