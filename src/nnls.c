/* nnls.c: Lawson and Hanson's active set method ("Solving Least Squares Problems", chapter 23). The
 * inner least squares go to LAPACK: QR, Qᵀ b, then R. These are the steps of dgels; it is not
 * called itself because in a static program it wants Fortran's run-time library
 * (docs/decisions.md). */
#include "nnls.h"

#include <math.h>
#include <string.h>

void dgeqr2_(const int *rows, const int *columns, double *a, const int *a_stride, double *tau,
             double *work, int *info);
void dorm2r_(const char *side, const char *trans, const int *rows, const int *columns,
             const int *reflectors, const double *a, const int *a_stride, const double *tau,
             double *c, const int *c_stride, double *work, int *info, size_t, size_t);
void dtrtrs_(const char *upper, const char *trans, const char *diagonal, const int *rows,
             const int *columns, const double *a, const int *a_stride, double *b,
             const int *b_stride, int *info, size_t, size_t, size_t);

enum { MOST_STEPS = 20 * VTI_NNLS_COLUMNS };

/* A column whose part beyond the others is smaller than this, of its length 1, depends on them. */
#define DEPENDENT 1e-9

/* Gradients smaller than this, of columns of length 1 and |b| = 1, are rounding. */
#define FLAT 1e-12

typedef struct problem {
    size_t rows, columns;
    double *a, *b; /* columns of length 1 or 0, and b of length 1 */
    double *work;  /* the columns in use */
    double *right; /* b, then the solution; then the residual */
    bool in_use[VTI_NNLS_COLUMNS], refused[VTI_NNLS_COLUMNS];
    double x[VTI_NNLS_COLUMNS];
} problem;

size_t vti_nnls_scratch(size_t rows, size_t columns) { return rows * (2 * columns + 2); }

static double length(const double *v, size_t n)
{
    double largest = 0, sum = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(v[i]));
    if (largest == 0 || !isfinite(largest)) return largest;
    for (size_t i = 0; i < n; i++) sum += v[i] / largest * (v[i] / largest);
    return largest * sqrt(sum);
}

/* out = v of length 1; returns what it was. */
static double normalise(const double *v, size_t n, double *out)
{
    double was = length(v, n);
    for (size_t i = 0; i < n; i++) out[i] = was > 0 ? v[i] / was : 0;
    return was;
}

/* Least squares over the columns in use; z gets their coefficients, in their order. False if the
 * columns depend on each other. */
static bool solve(problem *p, double *z)
{
    double tau[VTI_NNLS_COLUMNS], work[VTI_NNLS_COLUMNS + 1];
    int rows = (int)p->rows, columns = 0, one = 1, info;
    for (size_t c = 0; c < p->columns; c++) {
        if (!p->in_use[c]) continue;
        memcpy(p->work + (size_t)columns++ * p->rows, p->a + c * p->rows, p->rows * sizeof *p->a);
    }
    if (columns > rows) return false;
    memcpy(p->right, p->b, p->rows * sizeof *p->b);
    dgeqr2_(&rows, &columns, p->work, &rows, tau, work, &info);
    for (int c = 0; c < columns; c++)
        if (!(fabs(p->work[c * rows + c]) > DEPENDENT)) return false;
    dorm2r_("L", "T", &rows, &one, &columns, p->work, &rows, tau, p->right, &rows, work, &info, 1,
            1);
    dtrtrs_("U", "N", "N", &columns, &one, p->work, &rows, p->right, &rows, &info, 1, 1, 1);
    memcpy(z, p->right, (size_t)columns * sizeof *z);
    return info == 0;
}

/* The column not in use that would lower the residual fastest; p->columns: none would. */
static size_t steepest(problem *p)
{
    double best = FLAT;
    size_t found = p->columns;
    memcpy(p->right, p->b, p->rows * sizeof *p->b);
    for (size_t c = 0; c < p->columns; c++)
        for (size_t i = 0; p->in_use[c] && i < p->rows; i++)
            p->right[i] -= p->x[c] * p->a[c * p->rows + i];
    for (size_t c = 0; c < p->columns; c++) {
        double slope = 0;
        if (p->in_use[c] || p->refused[c]) continue;
        for (size_t i = 0; i < p->rows; i++) slope += p->a[c * p->rows + i] * p->right[i];
        if (slope > best) best = slope, found = c;
    }
    return found;
}

/* Goes from x towards z until the first coefficient is 0, and takes those at 0 out of use. False if
 * z could be reached. */
static bool step_back(problem *p, const double *z)
{
    double part = 1;
    size_t i = 0, first = p->columns;
    for (size_t c = 0; c < p->columns; c++) {
        if (!p->in_use[c]) continue;
        double to = z[i++];
        if (to > 0) continue;
        double reach = p->x[c] / (p->x[c] - to);
        if (first == p->columns || reach < part) part = reach, first = c;
    }
    i = 0;
    for (size_t c = 0; c < p->columns; c++)
        if (p->in_use[c]) p->x[c] += part * (z[i++] - p->x[c]);
    if (first == p->columns) return false;
    for (size_t c = 0; c < p->columns; c++)
        if (p->in_use[c] && (c == first || p->x[c] <= 0)) p->in_use[c] = false, p->x[c] = 0;
    return true;
}

/* Where a column that was just taken comes in among those in use. */
static size_t place_of(const problem *p, size_t column)
{
    size_t place = 0;
    for (size_t c = 0; c < column; c++) place += p->in_use[c];
    return place;
}

static bool settle(problem *p)
{
    double z[VTI_NNLS_COLUMNS];
    for (unsigned step = 0; step < MOST_STEPS; step++) {
        size_t next = steepest(p);
        if (next == p->columns) return true;
        p->in_use[next] = true;
        /* It must help by itself, or rounding would take it in and out for ever. */
        if (!solve(p, z) || z[place_of(p, next)] <= 0) {
            p->in_use[next] = false;
            p->refused[next] = true;
            continue;
        }
        while (step_back(p, z))
            if (!solve(p, z)) return false;
        memset(p->refused, 0, sizeof p->refused);
    }
    return false;
}

bool vti_nnls(size_t rows, size_t columns, const double *a, const double *b, double *x,
              double *scratch)
{
    double scale[VTI_NNLS_COLUMNS];
    problem p = {.rows = rows, .columns = columns, .a = scratch};
    p.work = p.a + rows * columns;
    p.b = p.work + rows * columns;
    p.right = p.b + rows;
    double b_scale = normalise(b, rows, p.b);
    bool finite = isfinite(b_scale);
    for (size_t c = 0; c < columns; c++) {
        scale[c] = normalise(a + c * rows, rows, p.a + c * rows);
        finite &= isfinite(scale[c]);
    }
    if (!finite || !settle(&p)) return false;
    for (size_t c = 0; c < columns; c++) x[c] = p.x[c] > 0 ? p.x[c] * b_scale / scale[c] : 0;
    return true;
}
