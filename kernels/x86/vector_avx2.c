#include "simd_avx2.h"

#include "vector_kernels.h"

#include "x86.h"

void vti_kernels_init_vector_avx2(vti_kernels *kernels) { init_vector(kernels); }
