#include "linear.h"

#include "../kernels/layout.h"

/* A thread should get this many weight bytes (times tokens) at least: below, handing the work over
 * costs as much as doing it. The same for activations to convert. */
enum { LEAST_BYTES = 16384 };

/* Token groups are independent of each other in every activation form. */
typedef struct pack_job {
    const vti_linear_input *input;
    vti_act_type type;
} pack_job;

static void pack_groups(void *context, size_t begin, size_t end)
{
    const pack_job *j = context;
    const vti_linear_input *in = j->input;
    const vti_act_kernel *act = &in->kernels->act[j->type];
    size_t first = begin * VTI_TOKEN_GROUP, last = end * VTI_TOKEN_GROUP;
    if (last > in->tokens) last = in->tokens;
    act->pack((unsigned char *)in->act[j->type] + act->bytes(first, in->cols),
              in->x + first * in->cols, in->cols, last - first, in->cols);
}

static void make_ready(vti_linear_input *in, vti_act_type type)
{
    if (in->ready[type]) return;
    pack_job job = {in, type};
    size_t groups = (in->tokens + VTI_TOKEN_GROUP - 1) / VTI_TOKEN_GROUP;
    size_t group_bytes = VTI_TOKEN_GROUP * (size_t)in->cols * sizeof(float);
    vti_pool_run(in->pool, groups, LEAST_BYTES / group_bytes + 1, pack_groups, &job);
    in->ready[type] = true;
}

typedef struct linear_job {
    const vti_linear_input *input;
    const vti_product *products;
    size_t count;
    size_t first_panel[VTI_PRODUCTS_MAX + 1]; /* of each product, and the end */
} linear_job;

/* Panels [begin, end) of one product. */
static void multiply(const vti_linear_input *in, const vti_product *p, size_t begin, size_t end)
{
    const vti_matmul_kernel *kernel = &in->kernels->matmul[p->w->type];
    size_t rows = p->w->rows, last = end * kernel->row_step;
    kernel->matmul(p->y, rows, p->w->data, in->act[kernel->act], rows, p->w->cols,
                   begin * kernel->row_step, last < rows ? last : rows, in->tokens, false);
}

static void multiply_panels(void *context, size_t begin, size_t end)
{
    const linear_job *j = context;
    for (size_t i = 0; i < j->count && begin < end; i++) {
        size_t first = j->first_panel[i], stop = j->first_panel[i + 1];
        if (begin >= stop) continue;
        size_t until = end < stop ? end : stop;
        multiply(j->input, &j->products[i], begin - first, until - first);
        begin = until;
    }
}

void vti_linear(vti_linear_input *in, const vti_product *products, size_t count)
{
    linear_job job = {in, products, count, {0}};
    size_t panel_bytes = 1;
    for (size_t i = 0; i < count; i++) {
        const vti_tensor *w = products[i].w;
        const vti_matmul_kernel *kernel = &in->kernels->matmul[w->type];
        make_ready(in, kernel->act);
        job.first_panel[i + 1] =
            job.first_panel[i] + (w->rows + kernel->row_step - 1) / kernel->row_step;
        panel_bytes = kernel->packed_bytes(kernel->row_step, w->cols);
    }
    vti_pool_run(in->pool, job.first_panel[count], LEAST_BYTES / (panel_bytes * in->tokens) + 1,
                 multiply_panels, &job);
}
