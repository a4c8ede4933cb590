/* scalar.h: the scalar versions. They say what each kernel means, and they fill the table first. */
#ifndef VTI_KERNELS_SCALAR_H
#define VTI_KERNELS_SCALAR_H

#include "kernels.h"

/* Everything about weights that is the same on every processor: sizes, packing. */
void vti_kernels_init_layout(vti_kernels *kernels);

void vti_kernels_init_scalar_act(vti_kernels *kernels);
void vti_kernels_init_scalar_float(vti_kernels *kernels);
void vti_kernels_init_scalar_quant(vti_kernels *kernels);
void vti_kernels_init_scalar_vector(vti_kernels *kernels);
void vti_kernels_init_scalar_attention(vti_kernels *kernels);

/* For kernels that leave unusual head sizes to them. */
void vti_attention_f32_scalar(const vti_attention_args *args);
void vti_attention_f16_scalar(const vti_attention_args *args);
void vti_attention_q8_scalar(const vti_attention_args *args);

static inline void vti_matmul_set(vti_kernels *kernels, vti_weight_type type,
                                  vti_matmul_fn *matmul, const char *name)
{
    kernels->matmul[type].matmul = matmul;
    kernels->matmul[type].name = name;
    kernels->matmul[type].batch_invariant = true;
}

#endif
