/* cut.h: parts of K blocks. Columns [first, first + columns) of one block of a row as in the file,
 * multiples of 32, become the file's form of a row that has only these. */
#ifndef VTI_KERNELS_CUT_H
#define VTI_KERNELS_CUT_H

#include <stddef.h>

typedef void vti_cut_fn(void *out, const void *block, size_t first, size_t columns);

vti_cut_fn vti_cut_q4_k, vti_cut_q5_k, vti_cut_q6_k;

#endif
