/* quantize.h: floats → the weight types of GGUF files.
 *
 * Built without contraction of a * b + c, so that the same floats give the same bytes on every
 * machine. */
#ifndef VTI_QUANTIZE_H
#define VTI_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

/* Writes `count` finite floats, whole blocks, as a file has them. */
typedef void vti_quantize_fn(void *out, const float *x, size_t count);

vti_quantize_fn vti_quantize_f32, vti_quantize_f16, vti_quantize_bf16, vti_quantize_q8_0,
    vti_quantize_q5_0, vti_quantize_q5_1, vti_quantize_q4_0, vti_quantize_q4_1, vti_quantize_q6_k,
    vti_quantize_q5_k, vti_quantize_q4_k, vti_quantize_q3_k, vti_quantize_q2_k, vti_quantize_iq4_nl,
    vti_quantize_iq4_xs;

/* One block of Q6_K: weight = d × scale of its 16 × (q - 32), with q from 0 to 63. */
void vti_put_q6_k(void *block, uint16_t d, const int8_t *scales, const uint8_t *q);

#endif
