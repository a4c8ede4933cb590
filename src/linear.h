/* linear.h: y = W x on the kernel table and the thread pool. */
#ifndef VTI_LINEAR_H
#define VTI_LINEAR_H

#include "pool.h"
#include "weights.h"

/* What matrices are multiplied with: x is tokens × cols floats. Forms that the kernels want are
 * made when the first matrix asks for them. */
typedef struct vti_linear_input {
    const float *x;
    uint32_t tokens, cols;
    void *act[VTI_ACT_TYPE_COUNT]; /* buffers with room for tokens × cols in each form */
    bool ready[VTI_ACT_TYPE_COUNT];
} vti_linear_input;

/* One product: y is tokens × w->rows floats. */
typedef struct vti_product {
    float *y;
    const vti_tensor *w;
    vti_linear_input *x;
} vti_product;

/* Gate and up of every expert. */
enum { VTI_PRODUCTS_MAX = 2 * VTI_MAX_EXPERTS };

/* y[t] = W x[t] for up to VTI_PRODUCTS_MAX matrices, whose rows the pool's threads share as if they
 * were one matrix: one hand-over instead of many. */
void vti_linear(const vti_kernels *kernels, vti_pool *pool, const vti_product *products,
                size_t count);

#endif
