/* tensor.h: a matrix as a kernel reads it. */
#ifndef VTI_TENSOR_H
#define VTI_TENSOR_H

#include "../kernels/kernels.h"

/* rows × cols; vectors are one row of F32. rows 0: not there. */
typedef struct vti_tensor {
    vti_weight_type type;
    uint32_t rows, cols;
    const void *data; /* packed as vti_kernels.matmul[type] wants it; 64-byte aligned */
} vti_tensor;

#endif
