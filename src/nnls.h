/* nnls.h: least squares with coefficients that are not negative. */
#ifndef VTI_NNLS_H
#define VTI_NNLS_H

#include <stdbool.h>
#include <stddef.h>

/* Columns at most: regressions here have a few coefficients. */
enum { VTI_NNLS_COLUMNS = 16 };

/* Doubles of scratch memory. */
size_t vti_nnls_scratch(size_t rows, size_t columns);

/* x >= 0 that minimises |A x - b|. A: rows × columns, one column after the other. Columns may be of
 * very different sizes, zero, or depend on each other: of those that do, some get 0. 1 ≤ columns ≤
 * VTI_NNLS_COLUMNS. False if a number is not finite, or x does not settle. */
bool vti_nnls(size_t rows, size_t columns, const double *a, const double *b, double *x,
              double *scratch);

#endif
