/* linear.h: y = Σ Wᵢ xᵢ on the kernel table and the thread pool.
 *
 * A batch is filled with inputs and products and run at once: the rows of all its products are
 * shared by the pool's threads as if they were one matrix, so there is one hand-over instead of
 * many. A product is a chain of links, the matrices of the shards whose outputs add up: they lie
 * apart, and each has its own slice of the input. */
#ifndef VTI_LINEAR_H
#define VTI_LINEAR_H

#include "pool.h"
#include "tensor.h"

/* What a matrix is multiplied with: row t of `tokens` at x + t × stride, `cols` floats. Forms that
 * the kernels want are made when a matrix asks for them. */
typedef struct vti_linear_input {
    const float *x;
    size_t stride;
    uint32_t tokens, cols;
    void *act[VTI_ACT_TYPE_COUNT]; /* room for tokens × cols in each form; NULL: no such form */
    bool ready[VTI_ACT_TYPE_COUNT];
} vti_linear_input;

typedef struct vti_link {
    const vti_tensor *w;
    vti_linear_input *x;
    size_t first_group; /* while the inputs are converted: its token groups among all, … */
    bool convert;       /* … if it is the link that has its input converted */
} vti_link;

/* Row t of y at y + t × stride, as many floats as the links' matrices have rows. */
typedef struct vti_product {
    float *y;
    size_t stride;
    uint32_t first_link, link_count;
    size_t first_panel; /* while the batch runs */
} vti_product;

/* Most inputs, products and links of a batch, and bytes of inputs in each form. */
typedef struct vti_batch_limits {
    uint32_t inputs, products, links;
    size_t act_bytes[VTI_ACT_TYPE_COUNT];
} vti_batch_limits;

typedef struct vti_batch {
    const vti_kernels *kernels;
    vti_linear_input *inputs;
    vti_product *products;
    vti_link *links;
    uint32_t input_count, product_count, link_count;
    unsigned char *act[VTI_ACT_TYPE_COUNT];
    size_t act_used[VTI_ACT_TYPE_COUNT];
} vti_batch;

/* Inputs that a batch has at the same time: together `tokens` × `cols`, in `inputs` parts, some of
 * them parts of the same tokens' columns. */
typedef struct vti_batch_inputs {
    uint32_t inputs, column_parts;
    size_t tokens, cols;
} vti_batch_inputs;

/* Bytes that they take in that form. */
size_t vti_batch_act_bytes(const vti_act_kernel *act, const vti_batch_inputs *inputs);

/* Makes the limits wide enough for them. */
void vti_batch_limit_inputs(vti_batch_limits *limits, const vti_kernels *kernels,
                            const vti_batch_inputs *inputs);

/* Bytes for a batch with these limits; lays it out in `memory`, 64-byte aligned, if not NULL. */
size_t vti_batch_lay_out(vti_batch *batch, const vti_kernels *kernels,
                         const vti_batch_limits *limits, void *memory);

/* Empties it. */
void vti_batch_begin(vti_batch *batch);

vti_linear_input *vti_batch_input(vti_batch *batch, const float *x, size_t stride, uint32_t tokens,
                                  uint32_t cols);

/* A product whose links follow. */
void vti_batch_product(vti_batch *batch, float *y, size_t stride);
void vti_batch_link(vti_batch *batch, const vti_tensor *w, vti_linear_input *x);

/* Computes all products and drops them; the inputs stay. A token's results depend neither on the
 * number of threads nor on the tokens beside it. */
void vti_batch_run(vti_batch *batch, vti_pool *pool);

#endif
