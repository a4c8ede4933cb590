#include "kernels.h"

#include <string.h>

#include "scalar.h"

#if defined(__x86_64__)
#include "x86/x86.h"

static void overlay(vti_kernels *kernels)
{
    if (kernels->features & VTI_CPU_AVX2) {
        vti_kernels_init_vector_avx2(kernels);
        vti_kernels_init_attention_avx2(kernels);
        vti_kernels_init_matmul_float_avx2(kernels);
        vti_kernels_init_matmul_q8_avx2(kernels);
        vti_kernels_init_matmul_k_avx2(kernels);
    }
    if (kernels->features & VTI_CPU_AVX512) {
        vti_kernels_init_vector_avx512(kernels);
        vti_kernels_init_attention_avx512(kernels);
        vti_kernels_init_matmul_float_avx512(kernels);
    }
    if (kernels->features & VTI_CPU_AVX512_VNNI) {
        vti_kernels_init_matmul_q8_avx512vnni(kernels);
        vti_kernels_init_matmul_k_avx512vnni(kernels);
    }
}
#elif defined(__aarch64__)
#include "neon/neon.h"

static void overlay(vti_kernels *kernels)
{
    if (kernels->features & VTI_CPU_NEON) {
        vti_kernels_init_act_neon(kernels);
        vti_kernels_init_vector_neon(kernels);
        vti_kernels_init_attention_neon(kernels);
        vti_kernels_init_float_neon(kernels);
        vti_kernels_init_quant_neon(kernels);
    }
    if (kernels->features & VTI_CPU_NEON_DOTPROD) {
        vti_kernels_init_q8_dotprod(kernels);
        vti_kernels_init_k_dotprod(kernels);
    }
    if (kernels->features & VTI_CPU_NEON_FP16) vti_kernels_init_float_fp16(kernels);
    const uint32_t i8mm = VTI_CPU_NEON_DOTPROD | VTI_CPU_NEON_I8MM;
    if ((kernels->features & i8mm) == i8mm) {
        vti_kernels_init_q8_i8mm(kernels);
        vti_kernels_init_k_i8mm(kernels);
    }
}
#else
static void overlay(vti_kernels *kernels) { (void)kernels; }
#endif

void vti_kernels_init(vti_kernels *kernels, uint32_t mask)
{
    memset(kernels, 0, sizeof *kernels);
    kernels->features = vti_cpu_features() & mask;
    vti_kernels_init_layout(kernels);
    vti_kernels_init_scalar_act(kernels);
    vti_kernels_init_scalar_float(kernels);
    vti_kernels_init_scalar_quant(kernels);
    vti_kernels_init_scalar_vector(kernels);
    vti_kernels_init_scalar_attention(kernels);
    overlay(kernels);
}
