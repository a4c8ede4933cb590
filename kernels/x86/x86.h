/* x86.h: what the x86 files put into the table. */
#ifndef VTI_KERNELS_X86_H
#define VTI_KERNELS_X86_H

#include "../kernels.h"

void vti_kernels_init_vector_avx2(vti_kernels *kernels);
void vti_kernels_init_attention_avx2(vti_kernels *kernels);
void vti_kernels_init_matmul_float_avx2(vti_kernels *kernels);
void vti_kernels_init_matmul_q8_avx2(vti_kernels *kernels);
void vti_kernels_init_matmul_k_avx2(vti_kernels *kernels);

void vti_kernels_init_vector_avx512(vti_kernels *kernels);
void vti_kernels_init_attention_avx512(vti_kernels *kernels);
void vti_kernels_init_matmul_float_avx512(vti_kernels *kernels);
void vti_kernels_init_matmul_q8_avx512vnni(vti_kernels *kernels);
void vti_kernels_init_matmul_k_avx512vnni(vti_kernels *kernels);

#endif
