#include "kernels.h"

#include <string.h>

#include "scalar.h"

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
}
