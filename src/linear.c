#include "linear.h"

#include "../kernels/layout.h"

/* A thread should get this many weight bytes (times tokens) at least: below, handing the work over
 * costs as much as doing it. The same for activations to convert. */
enum { LEAST_BYTES = 16384 };

/* Token groups are independent of each other in every activation form. */
typedef struct pack_job {
    const vti_act_kernel *kernel;
    const vti_linear_input *input;
    unsigned char *act;
} pack_job;

static void pack_groups(void *context, size_t begin, size_t end)
{
    const pack_job *j = context;
    const vti_linear_input *in = j->input;
    size_t first = begin * VTI_TOKEN_GROUP, last = end * VTI_TOKEN_GROUP;
    if (last > in->tokens) last = in->tokens;
    j->kernel->pack(j->act + j->kernel->bytes(first, in->cols), in->x + first * in->cols, in->cols,
                    last - first, in->cols);
}

static void make_ready(const vti_kernels *kernels, vti_pool *pool, vti_linear_input *in,
                       vti_act_type type)
{
    if (in->ready[type]) return;
    pack_job job = {&kernels->act[type], in, in->act[type]};
    size_t groups = (in->tokens + VTI_TOKEN_GROUP - 1) / VTI_TOKEN_GROUP;
    size_t group_bytes = VTI_TOKEN_GROUP * (size_t)in->cols * sizeof(float);
    vti_pool_run(pool, groups, LEAST_BYTES / group_bytes + 1, pack_groups, &job);
    in->ready[type] = true;
}

typedef struct linear_job {
    const vti_kernels *kernels;
    const vti_product *products;
    size_t count;
    size_t first_panel[VTI_PRODUCTS_MAX + 1]; /* of each product, and the end */
} linear_job;

/* Panels [begin, end) of one product. */
static void multiply(const vti_kernels *kernels, const vti_product *p, size_t begin, size_t end)
{
    const vti_matmul_kernel *kernel = &kernels->matmul[p->w->type];
    size_t rows = p->w->rows, last = end * kernel->row_step;
    kernel->matmul(p->y, rows, p->w->data, p->x->act[kernel->act], rows, p->w->cols,
                   begin * kernel->row_step, last < rows ? last : rows, p->x->tokens, false);
}

static void multiply_panels(void *context, size_t begin, size_t end)
{
    const linear_job *j = context;
    for (size_t i = 0; i < j->count && begin < end; i++) {
        size_t first = j->first_panel[i], stop = j->first_panel[i + 1];
        if (begin >= stop) continue;
        size_t until = end < stop ? end : stop;
        multiply(j->kernels, &j->products[i], begin - first, until - first);
        begin = until;
    }
}

void vti_linear(const vti_kernels *kernels, vti_pool *pool, const vti_product *products,
                size_t count)
{
    linear_job job;
    job.kernels = kernels;
    job.products = products;
    job.count = count;
    job.first_panel[0] = 0;
    size_t work_bytes = 1; /* weights, times the tokens they are multiplied with */
    for (size_t i = 0; i < count; i++) {
        const vti_tensor *w = products[i].w;
        const vti_matmul_kernel *kernel = &kernels->matmul[w->type];
        size_t panels = (w->rows + kernel->row_step - 1) / kernel->row_step;
        make_ready(kernels, pool, products[i].x, kernel->act);
        job.first_panel[i + 1] = job.first_panel[i] + panels;
        work_bytes += panels * kernel->packed_bytes(kernel->row_step, w->cols) *
                      products[i].x->tokens;
    }
    size_t panels = job.first_panel[count];
    vti_pool_run(pool, panels, LEAST_BYTES * panels / work_bytes + 1, multiply_panels, &job);
}
