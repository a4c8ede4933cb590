/* shard.h: shards in memory, and where they come from.
 *
 * A shard is one block of memory with all its tensors, ready for the kernels. A source fills such a
 * block: a GGUF file by packing and quantising (shard_build.c), a shard store by reading and
 * decompressing (store.h). Both give the very same bytes. */
#ifndef VTI_SHARD_H
#define VTI_SHARD_H

#include "geometry.h"
#include "shard_memory.h"
#include "tensor.h"

typedef struct vti_shard_id {
    uint32_t unit, shard; /* shard == vti_unit_shards: what they share, at any precision the same */
    vti_precision precision;
} vti_shard_id;

/* Safe to use from several threads at the same time. */
typedef struct vti_shard_source {
    const vti_geometry *geometry;
    const vti_kernels *kernels;
    const char *name; /* of the file, for messages */
    void *self;
    /* How it has the shard; false: not at that precision. */
    bool (*form)(void *self, vti_shard_id id, vti_shard_form *out);
    /* Fills `memory`, 64-byte aligned, of exactly the layout's bytes. */
    vt_status (*load)(void *self, vti_shard_id id, void *memory, vt_error *err);
} vti_shard_source;

/* Where everything in that shard lies; false: the source does not have it at that precision. */
bool vti_shard_source_lay_out(const vti_shard_source *source, vti_shard_id id,
                              vti_shard_layout *out);

/* A loaded shard. Immutable while anybody computes with it. */
typedef struct vti_shard {
    vti_shard_id id;
    vti_tensor tensor[VTI_PIECES]; /* views of `memory`; rows 0: not there */
    void *memory;
    uint64_t bytes;
} vti_shard;

/* "FFN(3) shard 5", "HEAD shared tensors" */
enum { VTI_SHARD_TEXT = 48 };
void vti_shard_describe(const vti_geometry *g, vti_shard_id id, char text[VTI_SHARD_TEXT]);

/* Points the tensors into `memory`, as the layout says. */
void vti_shard_point(vti_shard *shard, vti_shard_id id, const vti_shard_layout *layout,
                     void *memory);

/* A shard with memory for its layout's bytes, not filled yet; and its end (NULL is fine). */
vt_status vti_shard_new(vti_shard_memory *memory, vti_shard_id id, const vti_shard_layout *layout,
                        vti_shard **out, vt_error *err);
void vti_shard_free(vti_shard_memory *memory, vti_shard *shard);

#endif
