#include "simd_avx2.h"

#include "attention_kernels.h"

#include "x86.h"

void vti_kernels_init_attention_avx2(vti_kernels *kernels) { init_attention(kernels); }
