#include "simd_avx512.h"

#include "matmul_float_kernels.h"

#include "x86.h"

void vti_kernels_init_matmul_float_avx512(vti_kernels *kernels)
{
    init_matmul_float(kernels, "matmul_f32_f32_16x24_avx512", "matmul_f16_f32_16x24_avx512",
                      "matmul_bf16_f32_16x24_avx512");
}
