/* quantize.h: floats → the weight types of GGUF files.
 *
 * Built without contraction of a * b + c, so that the same floats give the same bytes on every
 * machine. */
#ifndef VTI_QUANTIZE_H
#define VTI_QUANTIZE_H

#include <stddef.h>

/* Writes `count` finite floats, whole blocks, as a file has them. */
typedef void vti_quantize_fn(void *out, const float *x, size_t count);

vti_quantize_fn vti_quantize_f32, vti_quantize_f16, vti_quantize_bf16, vti_quantize_q8_0,
    vti_quantize_q4_0, vti_quantize_q5_0, vti_quantize_q5_1, vti_quantize_q4_k, vti_quantize_q5_k,
    vti_quantize_q6_k;

#endif
