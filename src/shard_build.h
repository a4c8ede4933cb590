/* shard_build.h: shards out of a GGUF file: packed for the kernels, and quantised where a smaller
 * precision is asked for than the file's own. */
#ifndef VTI_SHARD_BUILD_H
#define VTI_SHARD_BUILD_H

#include "gguf.h"
#include "shard.h"

/* Importance of the input channels of a matrix, `cols` numbers; NULL: all alike. */
typedef const float *vti_column_weights_fn(void *user, uint32_t layer, vti_role role,
                                           uint32_t slice);

typedef struct vti_shard_builder {
    vti_shard_source source; /* the builder is its `self` */
    const vt_gguf *gguf;
    vti_precision own;       /* what the file's own types count as; smaller ones are made of them */
    bool halves;             /* matrices of F32 become F16; without, they stay what they are */
    vti_column_weights_fn *importance; /* for quantising; may be NULL */
    void *importance_user;
} vti_shard_builder;

/* The precision that is nearest to `bits` per weight. */
vti_precision vti_precision_of_bits(double bits);

/* A source whose shards are at precision `own` what the file says. `gguf`, `geometry` (of its
 * hyperparameters) and `kernels` outlive the builder, which must not be moved. */
void vti_shard_builder_init(vti_shard_builder *builder, const vt_gguf *gguf,
                            const vti_geometry *geometry, const vti_kernels *kernels,
                            vti_precision own);

#endif
