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

/* A half that is not less than x, which is finite and not negative. */
uint16_t vti_half_above(float x);

/* A block of Q4_K or Q5_K: weight = d × scale × q - dmin × min, scale and min per 32 weights. The
 * last block of a row may have fewer columns than 256. */
typedef struct vti_affine {
    uint16_t d, dmin;
    uint8_t scale[8], min[8]; /* 0 … 63 */
    uint8_t q[256];           /* 0 beyond the columns there are */
} vti_affine;

/* Scales and mins with which q from 0 to `most` reach all weights. */
void vti_affine_choose(vti_affine *a, const float *x, size_t columns, int most);

/* Bytes of a Q4_K block, and writes them. */
static inline size_t vti_affine_q4_k_bytes(size_t columns) { return 16 + (columns + 63) / 64 * 32; }
void vti_affine_put_q4_k(void *out, const vti_affine *a, size_t columns);

/* One block of Q6_K: weight = d × scale of its 16 × (q - 32), with q from 0 to 63. */
void vti_put_q6_k(void *block, uint16_t d, const int8_t *scales, const uint8_t *q);

#endif
