/* linear.h: y = W x on the kernel table and the thread pool. */
#ifndef VTI_LINEAR_H
#define VTI_LINEAR_H

#include "pool.h"
#include "weights.h"

/* y[t] = W x[t]: y is tokens × W.rows floats; `act` is the input, prepared by the act kernel that
 * W's kernel asks for. The rows are shared among the pool's threads. */
void vti_linear(const vti_kernels *kernels, vti_pool *pool, float *y, const vti_tensor *w,
                const void *act, uint32_t tokens);

#endif
