/* tensor_source.h: a tensor as a file has it. */
#ifndef VTI_TENSOR_SOURCE_H
#define VTI_TENSOR_SOURCE_H

#include "../kernels/kernels.h"
#include "roles.h"
#include "weight_types.h"

/* A tensor where it lies, described as it would be if it were of a type with a kernel. */
typedef struct vti_source {
    vti_weight_type type;
    uint32_t slices, rows, cols;
    const void *data;    /* NULL: not there */
    uint64_t size_bytes; /* as `type` */
    uint64_t file_bytes; /* as it lies in the file */
    const vti_conversion *conversion; /* not NULL: `data` is of that type and becomes `type` when it
                                         is loaded */
} vti_source;

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

/* Bytes of the first `columns` of a row where it lies, whole blocks. */
size_t vti_source_columns_bytes(const vti_source *source, size_t columns);

/* Row `row` of matrix `slice`, where it lies. */
const void *vti_source_row(const vti_source *source, uint32_t slice, uint64_t row);

/* Row `row` → floats, exactly what the file says. */
void vti_source_dequantize(const vti_kernels *kernels, const vti_source *source, uint64_t row,
                           float *out);

#endif
