#include "linear.h"

#include <string.h>

#include "../kernels/layout.h"
#include "align.h"

/* A thread should get this many weight bytes (times tokens) at least: below, handing the work over
 * costs as much as doing it. The same for activations to convert. */
enum { LEAST_BYTES = 16384 };

/* Bytes in a row that a thread should get of each link of a chain: the links lie apart, and a jump
 * costs a wait for memory (docs/decisions.md). */
enum { LEAST_RUN_BYTES = 65536 };

static size_t aligned(size_t bytes) { return (size_t)vti_align_up(bytes, VTI_ALIGNMENT); }

/* --- batches ----------------------------------------------------------------------------------- */

/* Forms have heads per block of columns, so a part of a row may have one more than the row itself;
 * and each part begins aligned. */
size_t vti_batch_act_bytes(const vti_act_kernel *act, const vti_batch_inputs *in)
{
    if (!act->bytes) return 0;
    return aligned(act->bytes(in->tokens, in->cols) + in->inputs * (size_t)VTI_ALIGNMENT +
                   in->column_parts * in->tokens * VTI_ACT_Q8K_HEAD);
}

void vti_batch_limit_inputs(vti_batch_limits *limits, const vti_kernels *kernels,
                            const vti_batch_inputs *in)
{
    if (in->inputs > limits->inputs) limits->inputs = in->inputs;
    for (unsigned i = 0; i < VTI_ACT_TYPE_COUNT; i++) {
        size_t bytes = vti_batch_act_bytes(&kernels->act[i], in);
        if (bytes > limits->act_bytes[i]) limits->act_bytes[i] = bytes;
    }
}

static void *place(unsigned char *memory, size_t *at, size_t bytes)
{
    void *here = memory ? memory + *at : NULL;
    *at += aligned(bytes);
    return here;
}

size_t vti_batch_lay_out(vti_batch *batch, const vti_kernels *kernels,
                         const vti_batch_limits *limits, void *memory)
{
    size_t at = 0;
    batch->kernels = kernels;
    batch->inputs = place(memory, &at, limits->inputs * sizeof *batch->inputs);
    batch->products = place(memory, &at, limits->products * sizeof *batch->products);
    batch->links = place(memory, &at, limits->links * sizeof *batch->links);
    for (unsigned i = 0; i < VTI_ACT_TYPE_COUNT; i++)
        batch->act[i] = limits->act_bytes[i] ? place(memory, &at, limits->act_bytes[i]) : NULL;
    return at;
}

void vti_batch_begin(vti_batch *batch)
{
    batch->input_count = batch->product_count = batch->link_count = 0;
    memset(batch->act_used, 0, sizeof batch->act_used);
}

vti_linear_input *vti_batch_input(vti_batch *batch, const float *x, size_t stride, uint32_t tokens,
                                  uint32_t cols)
{
    vti_linear_input *in = &batch->inputs[batch->input_count++];
    *in = (vti_linear_input){.x = x, .stride = stride, .tokens = tokens, .cols = cols};
    for (unsigned i = 0; i < VTI_ACT_TYPE_COUNT; i++) {
        if (!batch->act[i]) continue;
        in->act[i] = batch->act[i] + batch->act_used[i];
        batch->act_used[i] += aligned(batch->kernels->act[i].bytes(tokens, cols));
    }
    return in;
}

void vti_batch_product(vti_batch *batch, float *y, size_t stride)
{
    batch->products[batch->product_count++] = (vti_product){y, stride, batch->link_count, 0, 0};
}

void vti_batch_link(vti_batch *batch, const vti_tensor *w, vti_linear_input *x)
{
    batch->products[batch->product_count - 1].link_count++;
    batch->links[batch->link_count++] = (vti_link){.w = w, .x = x};
}

/* --- inputs ------------------------------------------------------------------------------------ */

static size_t group_count(const vti_linear_input *in)
{
    return (in->tokens + VTI_TOKEN_GROUP - 1) / VTI_TOKEN_GROUP;
}

/* Token groups [begin, end) of a link's input: they are independent of each other in every form. */
static void convert(const vti_batch *b, const vti_link *link, size_t begin, size_t end)
{
    const vti_linear_input *in = link->x;
    vti_act_type type = b->kernels->matmul[link->w->type].act;
    const vti_act_kernel *act = &b->kernels->act[type];
    size_t first = begin * VTI_TOKEN_GROUP, last = end * VTI_TOKEN_GROUP;
    if (last > in->tokens) last = in->tokens;
    act->pack((unsigned char *)in->act[type] + act->bytes(first, in->cols),
              in->x + first * in->stride, in->stride, last - first, in->cols);
}

/* Units: token groups of all inputs that have to be converted, link after link. */
static void convert_groups(void *context, size_t begin, size_t end)
{
    const vti_batch *b = context;
    for (uint32_t i = 0; i < b->link_count && begin < end; i++) {
        const vti_link *link = &b->links[i];
        size_t stop = link->first_group + group_count(link->x);
        if (!link->convert || begin >= stop) continue;
        size_t until = end < stop ? end : stop;
        convert(b, link, begin - link->first_group, until - link->first_group);
        begin = until;
    }
}

static void convert_inputs(vti_batch *b, vti_pool *pool)
{
    size_t groups = 0, bytes = 1;
    for (uint32_t i = 0; i < b->link_count; i++) {
        vti_link *link = &b->links[i];
        vti_linear_input *in = link->x;
        vti_act_type type = b->kernels->matmul[link->w->type].act;
        link->convert = !in->ready[type];
        if (in->ready[type]) continue;
        in->ready[type] = true;
        link->first_group = groups;
        groups += group_count(in);
        bytes += (size_t)in->tokens * in->cols * sizeof(float);
    }
    if (groups) vti_pool_run(pool, groups, LEAST_BYTES * groups / bytes + 1, convert_groups, b);
}

/* --- products ---------------------------------------------------------------------------------- */

static size_t panel_count(const vti_batch *b, const vti_product *p)
{
    return p->link_count ? vti_panel_count(b->links[p->first_link].w->rows) : 0;
}

/* Panels [begin, end) of one product: every link adds to what those before it gave. */
static void multiply(const vti_batch *b, const vti_product *p, size_t begin, size_t end)
{
    for (uint32_t i = 0; i < p->link_count; i++) {
        const vti_link *link = &b->links[p->first_link + i];
        const vti_tensor *w = link->w;
        const vti_matmul_kernel *kernel = &b->kernels->matmul[w->type];
        size_t last = end * VTI_PANEL_ROWS;
        kernel->matmul(p->y, p->stride, w->data, link->x->act[kernel->act], w->rows, w->cols,
                       begin * VTI_PANEL_ROWS, last < w->rows ? last : w->rows, link->x->tokens,
                       i > 0);
    }
}

/* Units: panels of all products, one product after the other. */
static void multiply_panels(void *context, size_t begin, size_t end)
{
    const vti_batch *b = context;
    for (uint32_t i = 0; i < b->product_count && begin < end; i++) {
        const vti_product *p = &b->products[i];
        size_t stop = p->first_panel + panel_count(b, p);
        if (begin >= stop) continue;
        size_t until = end < stop ? end : stop;
        multiply(b, p, begin - p->first_panel, until - p->first_panel);
        begin = until;
    }
}

/* Weight bytes of a panel over all links, times the tokens they are multiplied with. */
static size_t panel_work(const vti_batch *b, const vti_product *p)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < p->link_count; i++) {
        const vti_link *link = &b->links[p->first_link + i];
        bytes += b->kernels->matmul[link->w->type].packed_bytes(VTI_PANEL_ROWS, link->w->cols) *
                 link->x->tokens;
    }
    return bytes;
}

/* Panels that a thread should take at once because of chains, if there are enough for all. */
static size_t chain_grain(const vti_batch *b, size_t panels, uint32_t threads)
{
    size_t most = 1;
    for (uint32_t i = 0; i < b->product_count; i++) {
        const vti_product *p = &b->products[i];
        if (p->link_count < 2) continue;
        const vti_tensor *w = b->links[p->first_link].w;
        size_t run = LEAST_RUN_BYTES /
                     b->kernels->matmul[w->type].packed_bytes(VTI_PANEL_ROWS, w->cols);
        if (run > most) most = run;
    }
    return most < panels / threads ? most : panels / threads;
}

void vti_batch_run(vti_batch *b, vti_pool *pool)
{
    size_t panels = 0, work = 1;
    convert_inputs(b, pool);
    for (uint32_t i = 0; i < b->product_count; i++) {
        vti_product *p = &b->products[i];
        p->first_panel = panels;
        panels += panel_count(b, p);
        work += panel_count(b, p) * panel_work(b, p);
    }
    size_t grain = LEAST_BYTES * panels / work + 1;
    size_t run = chain_grain(b, panels, vti_pool_threads(pool));
    if (panels) vti_pool_run(pool, panels, grain > run ? grain : run, multiply_panels, b);
    b->product_count = b->link_count = 0;
}
