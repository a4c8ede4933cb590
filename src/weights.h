/* weights.h: the tensors of a model by layer and role, wherever they came from. */
#ifndef VTI_WEIGHTS_H
#define VTI_WEIGHTS_H

#include "../kernels/kernels.h"
#include "arena.h"
#include "pool.h"
#include "roles.h"
#include "weight_types.h"

/* A tensor as a kernel reads it: rows × cols. Vectors are one row of F32. rows 0: not there.
 * Experts are slices, each a matrix of its own, the next one slice_bytes further. */
typedef struct vti_tensor {
    vti_weight_type type;
    uint32_t rows, cols;
    uint64_t slice_bytes;
    void *data; /* packed as vti_kernels.matmul[type] wants it; 64-byte aligned, of an arena */
} vti_tensor;

/* The same tensor as a file has it, or would have it if it were of a type with a kernel. */
typedef struct vti_source {
    vti_weight_type type;
    uint32_t slices, rows, cols;
    const void *data;    /* NULL: not there */
    uint64_t size_bytes; /* as `type` */
    uint64_t file_bytes; /* as it lies in the file */
    const vti_conversion *conversion; /* not NULL: `data` is of that type and becomes `type` when it
                                         is read with vti_source_rows */
} vti_source;

typedef struct vti_layer {
    vti_tensor tensor[VTI_LAYER_ROLE_COUNT];
} vti_layer;

/* Layers [first, first + count). Immutable once complete. */
typedef struct vti_weights {
    uint32_t first, count;
    vti_layer *layers;     /* count of them */
    vti_tensor rope_freqs; /* divisors of the rotation frequencies; rows 0: none */
    uint64_t bytes;        /* of all tensors, as packed */
    vti_arena *arena;      /* where they lie */
} vti_weights;

/* Bytes of slices × rows × cols as in the file; 0 if cols is not a whole number of blocks or the
 * product overflows. */
uint64_t vti_source_bytes(vti_weight_type type, uint64_t slices, uint32_t rows, uint32_t cols);

/* Name of a tensor in the file ("blk.3.attn_q.weight"), into `buffer`. */
void vti_tensor_name(vti_role role, uint32_t layer, char *buffer, size_t capacity);

/* Looks the tensor up in the file and checks its type and shape. A role that the family may lack
 * gives out->data NULL. `layer` is ignored for roles that exist once. */
vt_status vti_source_find(const vt_gguf *gguf, const vti_hparams *hparams, vti_role role,
                          uint32_t layer, vti_source *out, vt_error *err);

/* Checks type and shape of a tensor that claims to be `role`; `name` begins the message. */
vt_status vti_source_check(const vti_hparams *hparams, vti_role role, const vti_source *source,
                           const char *name, vt_error *err);

/* Rows [first, first + count), slice after slice, as `source->type` has them in a file: in the file
 * itself, or converted into `buffer`, which has room for them. */
const void *vti_source_rows(const vti_source *source, uint64_t first, uint64_t count, void *buffer);

/* Row `row` → floats, exactly what the file says. */
void vti_source_dequantize(const vti_kernels *kernels, const vti_source *source, uint64_t row,
                           float *out);

/* Bytes the tensor will take once loaded. */
uint64_t vti_tensor_bytes(const vti_kernels *kernels, vti_role role, const vti_source *source);

/* Who loads tensors, and where to. */
typedef struct vti_loader {
    const vti_kernels *kernels;
    vti_arena *arena; /* owns the tensors' data */
    vti_pool *pool;   /* packs; NULL: the caller does */
} vti_loader;

/* Makes the kernel-ready tensor: packs a matrix, converts a vector to F32. */
vt_status vti_tensor_load(const vti_loader *loader, vti_role role, const vti_source *source,
                          vti_tensor *out, vt_error *err);

/* Matrix `slice` of a tensor; a view, not to be freed. */
static inline vti_tensor vti_tensor_slice(const vti_tensor *tensor, uint32_t slice)
{
    vti_tensor view = *tensor;
    view.data = (unsigned char *)tensor->data + slice * tensor->slice_bytes;
    return view;
}

/* Layers [first, first + count) of the file, packed by the threads of `pool`. */
vt_status vti_weights_load(const vt_gguf *gguf, const vti_hparams *hparams,
                           const vti_kernels *kernels, vti_pool *pool, uint32_t first,
                           uint32_t count, vti_weights **out, vt_error *err);

/* Empty slots, to be filled with vti_tensor_load, in the arena. */
vt_status vti_weights_new(uint32_t first, uint32_t count, vti_weights **out, vt_error *err);
void vti_weights_free(vti_weights *weights);

#endif
