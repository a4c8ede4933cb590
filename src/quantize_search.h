/* quantize_search.h: floats → I8 (Q8_0) and I4 (Q4_K), with the scales that lose least.
 *
 * `x` is one row of `columns` finite floats, a multiple of 32. `out` is what the `pack` of
 * vti_kernels.matmul[VTI_Q8_0] or [VTI_Q4_K] takes as that row, source_bytes(columns) of it: I4 has
 * blocks of 256 columns and a narrower last one.
 *
 * `importance` says what the square of an error in each column counts: the mean square of the
 * activations that meet it, or NULL if all count the same. Where it is all zero in a block, it is
 * ignored there. The loss of a block, the sum of these squares, is never larger than with rounding
 * to the nearest step as in quantize.h. A block (I8: eight of them) with a weight that is no number,
 * which only a damaged file has, becomes NaN.
 *
 * The same floats give the same bytes on every machine. docs/numerics.md says what is searched. */
#ifndef VTI_QUANTIZE_SEARCH_H
#define VTI_QUANTIZE_SEARCH_H

#include <stddef.h>

void vti_quantize_i8(void *out, const float *x, size_t columns, const float *importance);
void vti_quantize_i4(void *out, const float *x, size_t columns, const float *importance);

#endif
