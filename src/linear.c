#include "linear.h"

/* A thread should get this many weight bytes (times tokens) at least: below, handing the work over
 * costs as much as doing it. */
enum { LEAST_BYTES = 16384 };

typedef struct linear_job {
    const vti_matmul_kernel *kernel;
    const vti_tensor *w;
    float *y;
    const void *act;
    uint32_t tokens;
} linear_job;

/* Unit: one panel of row_step rows. */
static void multiply_panels(void *context, size_t begin, size_t end)
{
    const linear_job *j = context;
    size_t rows = j->w->rows, first = begin * j->kernel->row_step, last = end * j->kernel->row_step;
    j->kernel->matmul(j->y, rows, j->w->data, j->act, rows, j->w->cols, first,
                      last < rows ? last : rows, j->tokens, false);
}

void vti_linear(const vti_kernels *kernels, vti_pool *pool, float *y, const vti_tensor *w,
                const void *act, uint32_t tokens)
{
    linear_job job = {&kernels->matmul[w->type], w, y, act, tokens};
    size_t step = job.kernel->row_step, panels = (w->rows + step - 1) / step;
    size_t panel_bytes = job.kernel->packed_bytes(step, w->cols);
    vti_pool_run(pool, panels, LEAST_BYTES / (panel_bytes * tokens) + 1, multiply_panels, &job);
}
