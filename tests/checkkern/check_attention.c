/* KV rows and attention. */
#include <math.h>
#include <string.h>

#include "checkkern.h"

static size_t random_head_dim(void)
{
    static const size_t usual[] = {64, 128, 32, 256, 80, 96, 16};
    return ck_random_below(3) ? usual[ck_random_below(7)] : 1 + ck_random_below(150);
}

/* Among the (up to) 32 elements that share a scale with element i. */
static double largest_of_block(const float *x, size_t i, size_t head_dim)
{
    double largest = 0;
    for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32 && j < head_dim; j++)
        if (fabs((double)x[j]) > largest) largest = fabs((double)x[j]);
    return largest;
}

void ck_check_kv_store(const vti_kernels *kernels, unsigned index)
{
    vti_kv_form form = (vti_kv_form)index;
    for (size_t step = 0; step < 32; step++) {
        size_t head_dim = random_head_dim();
        float *x = ck_buffer(head_dim * sizeof(float));
        float range = ldexpf(1, (int)ck_random_below(20) - 10);
        for (size_t i = 0; i < head_dim; i++) x[i] = ck_random_float(-range, range);
        if (step % 4 == 3)
            for (size_t i = 0; i < head_dim; i++) x[i] = i / 32 % 2 ? 0 : -range;
        ck_seal(x);
        unsigned char *row = ck_buffer(kernels->kv[form].row_bytes(head_dim));
        kernels->kv[form].store(row, x, head_dim);
        for (size_t i = 0; i < head_dim; i++) {
            double bound = 0, largest = largest_of_block(x, i, head_dim);
            if (form == VTI_KV_F16) bound = ldexp(fabs((double)x[i]), -11) + ldexp(1, -25);
            /* Half a step, and what the largest lose if the scale was rounded down. */
            if (form == VTI_KV_Q8) bound = largest / 127 * 0.57 + 127 * ldexp(1, -25);
            ck_close("row", i, 0, ck_kv_value(form, row, head_dim, i), (double)x[i], bound);
        }
        ck_check_margins();
        ck_free_all();
    }
}

/* --- one attention call ----------------------------------------------------------------------- */

typedef struct attention_case {
    vti_kv_form form;
    vti_attention_args args;
    size_t row_bytes, rows;
    double *k, *v; /* rows × head_dim */
} attention_case;

static double *fill_rows(const vti_kernels *kernels, const attention_case *c, const void **rows,
                         float range)
{
    size_t head_dim = c->args.head_dim;
    unsigned char *bytes = ck_buffer(c->rows * c->row_bytes);
    double *values = ck_scratch(c->rows * head_dim * sizeof(double));
    float *x = ck_scratch(head_dim * sizeof(float));
    for (size_t j = 0; j < c->rows; j++) {
        for (size_t i = 0; i < head_dim; i++) x[i] = ck_random_float(-range, range);
        kernels->kv[c->form].store(bytes + j * c->row_bytes, x, head_dim);
        for (size_t i = 0; i < head_dim; i++)
            values[j * head_dim + i] =
                ck_kv_value(c->form, bytes + j * c->row_bytes, head_dim, i);
    }
    ck_seal(bytes);
    *rows = bytes;
    return values;
}

static attention_case random_case(const vti_kernels *kernels, unsigned index, size_t step)
{
    attention_case c = {.form = (vti_kv_form)index};
    vti_attention_args *a = &c.args;
    a->heads = 1 + ck_random_below(8);
    a->head_dim = random_head_dim();
    a->tokens = step % 2 ? 1 : 1 + ck_random_below(20);
    a->position = ck_random_below(step % 4 == 1 ? 300 : 60);
    a->window = step % 3 == 2 ? 1 + ck_random_below(40) : 0;
    c.rows = a->position + a->tokens;
    a->kv_end = c.rows;
    a->scale = ck_random_float(0.02f, 0.3f);
    c.row_bytes = kernels->kv[index].row_bytes(a->head_dim);
    a->q_stride = a->heads * a->head_dim + ck_random_below(3);
    a->out_stride = a->heads * a->head_dim + ck_random_below(3);
    size_t q_floats = (a->tokens - 1) * a->q_stride + a->heads * a->head_dim;
    float *q = ck_buffer(q_floats * sizeof(float));
    /* Large scores make a sharp distribution, and the running maximum matters. */
    float range = step % 5 == 4 ? 8 : 1;
    for (size_t i = 0; i < q_floats; i++) q[i] = ck_random_float(-range, range);
    ck_seal(q);
    a->q = q;
    c.k = fill_rows(kernels, &c, &a->k, 2);
    c.v = fill_rows(kernels, &c, &a->v, 1);
    return c;
}

/* What one query should give. `magnitude` of an element: Σ p |v|; `delta`: how far a score may be
 * off. */
typedef struct expected_query {
    double *scores, *out, *magnitude;
    double delta, largest, total;
    size_t rows;
} expected_query;

static expected_query new_query(const attention_case *c)
{
    expected_query e = {.scores = ck_scratch(c->rows * sizeof(double)),
                        .out = ck_scratch(c->args.head_dim * sizeof(double)),
                        .magnitude = ck_scratch(c->args.head_dim * sizeof(double))};
    return e;
}

static bool sees(const vti_attention_args *a, size_t t, size_t j)
{
    if (j < a->kv_begin || j >= a->kv_end || j > a->position + t) return false;
    return a->window == 0 || j + a->window > a->position + t;
}

static void expect_scores(const attention_case *c, size_t t, const float *q, expected_query *e)
{
    const vti_attention_args *a = &c->args;
    e->largest = -INFINITY;
    e->delta = 0;
    e->rows = 0;
    for (size_t j = 0; j < c->rows; j++) {
        if (!sees(a, t, j)) continue;
        double score = 0, magnitude = 0;
        for (size_t i = 0; i < a->head_dim; i++) {
            double product = (double)q[i] * c->k[j * a->head_dim + i];
            score += product;
            magnitude += fabs(product);
        }
        e->scores[j] = score * (double)a->scale;
        if (e->scores[j] > e->largest) e->largest = e->scores[j];
        double terms = 8 + (double)a->head_dim;
        e->delta = fmax(e->delta, terms * CK_UNIT * magnitude * (double)a->scale);
        e->rows++;
    }
}

static void expect_query(const attention_case *c, size_t t, size_t head, expected_query *e)
{
    const vti_attention_args *a = &c->args;
    expect_scores(c, t, a->q + t * a->q_stride + head * a->head_dim, e);
    e->total = 0;
    for (size_t i = 0; i < a->head_dim; i++) e->out[i] = e->magnitude[i] = 0;
    for (size_t j = 0; j < c->rows; j++) {
        if (!sees(a, t, j)) continue;
        double p = exp(e->scores[j] - e->largest);
        e->total += p;
        for (size_t i = 0; i < a->head_dim; i++) {
            e->out[i] += p * c->v[j * a->head_dim + i];
            e->magnitude[i] += p * fabs(c->v[j * a->head_dim + i]);
        }
    }
}

static void check_out(const attention_case *c, const expected_query *e, size_t t, size_t head,
                      const float *out)
{
    double relative = 2 * e->delta + (24 + 2 * (double)e->rows) * CK_UNIT;
    for (size_t i = 0; i < c->args.head_dim; i++)
        ck_close("out", t * c->args.heads + head, i, (double)out[i], e->out[i] / e->total,
                 relative * e->magnitude[i] / e->total + 1e-37);
}

static float *new_out(const vti_attention_args *a)
{
    size_t floats = (a->tokens - 1) * a->out_stride + a->heads * a->head_dim;
    float *out = ck_buffer(floats * sizeof(float));
    for (size_t i = 0; i < floats; i++) out[i] = NAN; /* what was there must not matter */
    return out;
}

void ck_check_attention(const vti_kernels *kernels, unsigned index)
{
    for (size_t step = 0; step < 30; step++) {
        attention_case c = random_case(kernels, index, step);
        c.args.out = new_out(&c.args);
        kernels->kv[index].attention(&c.args);
        expected_query e = new_query(&c);
        for (size_t t = 0; t < c.args.tokens; t++) {
            for (size_t head = 0; head < c.args.heads; head++) {
                expect_query(&c, t, head, &e);
                check_out(&c, &e, t, head,
                          c.args.out + t * c.args.out_stride + head * c.args.head_dim);
            }
        }
        ck_check_margins();
        ck_free_all();
    }
}

/* --- in parts --------------------------------------------------------------------------------- */

enum { PARTS = 3 };

/* m and Σ exp(score - m) may differ from the exact ones by what the scores may. */
static void check_part(const attention_case *c, const float *part, expected_query *e, size_t t,
                       size_t head)
{
    expect_query(c, t, head, e);
    if (e->rows == 0) {
        ck_close("empty part's m", t, head, (double)part[0], -INFINITY, 0);
        ck_close("empty part's sum", t, head, (double)part[1], 0, 0);
        return;
    }
    double relative = 2 * e->delta + (24 + 2 * (double)e->rows) * CK_UNIT;
    ck_close("part's m", t, head, (double)part[0], e->largest, e->delta + 1e-37);
    ck_close("part's sum", t, head, (double)part[1], e->total, relative * e->total);
}

static void attend_in_parts(attention_case *c, const vti_kernels *kernels, float *outs[PARTS],
                            float *parts[PARTS])
{
    expected_query e = new_query(c);
    size_t border[PARTS + 1] = {0, ck_random_below(c->rows + 1), 0, c->rows};
    border[2] = border[1] + ck_random_below(c->rows - border[1] + 1);
    for (size_t i = 0; i < PARTS; i++) {
        c->args.kv_begin = border[i];
        c->args.kv_end = border[i + 1];
        c->args.out = outs[i] = new_out(&c->args);
        c->args.parts = parts[i] = ck_buffer(c->args.tokens * c->args.heads * 2 * sizeof(float));
        kernels->kv[c->form].attention(&c->args);
        for (size_t t = 0; t < c->args.tokens; t++)
            for (size_t head = 0; head < c->args.heads; head++)
                check_part(c, parts[i] + (t * c->args.heads + head) * 2, &e, t, head);
    }
    c->args.kv_begin = 0;
    c->args.kv_end = c->rows;
}

static void merge_query(const attention_case *c, const vti_kernels *kernels, float *outs[PARTS],
                        float *parts[PARTS], size_t t, size_t head, float *out)
{
    size_t head_dim = c->args.head_dim;
    float *partial = ck_scratch(PARTS * head_dim * sizeof(float)), pairs[PARTS * 2];
    for (size_t i = 0; i < PARTS; i++) {
        const float *from = outs[i] + t * c->args.out_stride + head * head_dim;
        memcpy(partial + i * head_dim, from, head_dim * sizeof(float));
        memcpy(pairs + 2 * i, parts[i] + (t * c->args.heads + head) * 2, 2 * sizeof(float));
    }
    kernels->attention_merge(out, partial, head_dim, pairs, 2, PARTS, head_dim);
}

void ck_check_attention_merge(const vti_kernels *kernels, unsigned index)
{
    for (size_t step = 0; step < 30; step++) {
        attention_case c = random_case(kernels, index, step);
        float *outs[PARTS], *parts[PARTS];
        attend_in_parts(&c, kernels, outs, parts);
        float *out = ck_buffer(c.args.head_dim * sizeof(float));
        expected_query e = new_query(&c);
        for (size_t i = 0; i < 4; i++) {
            size_t t = ck_random_below(c.args.tokens), head = ck_random_below(c.args.heads);
            merge_query(&c, kernels, outs, parts, t, head, out);
            expect_query(&c, t, head, &e);
            check_out(&c, &e, t, head, out);
        }
        ck_check_margins();
        ck_free_all();
    }
}
