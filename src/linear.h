/* linear.h: y = W x on the kernel table and the thread pool. */
#ifndef VTI_LINEAR_H
#define VTI_LINEAR_H

#include "pool.h"
#include "weights.h"

/* What matrices are multiplied with: x is tokens × cols floats. Forms that the kernels want are made
 * when the first matrix asks for them. */
typedef struct vti_linear_input {
    const vti_kernels *kernels;
    vti_pool *pool;
    const float *x;
    uint32_t tokens, cols;
    void *const *act; /* a buffer per vti_act_type, with room for tokens × cols */
    bool ready[VTI_ACT_TYPE_COUNT];
} vti_linear_input;

/* One product: y is tokens × w->rows floats. */
typedef struct vti_product {
    float *y;
    const vti_tensor *w;
} vti_product;

enum { VTI_PRODUCTS_MAX = 3 };

/* y[t] = W x[t] for up to VTI_PRODUCTS_MAX matrices of one input, whose rows the pool's threads share
 * as if they were one matrix: one hand-over instead of three. */
void vti_linear(vti_linear_input *input, const vti_product *products, size_t count);

#endif
