#include "simd_avx512.h"

#include "attention_kernels.h"

#include "x86.h"

void vti_kernels_init_attention_avx512(vti_kernels *kernels) { init_attention(kernels); }
