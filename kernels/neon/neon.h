/* neon.h: what the NEON files put into the table, and the products of few tokens that several
 * instruction sets share. */
#ifndef VTI_KERNELS_NEON_H
#define VTI_KERNELS_NEON_H

#include "../kernels.h"

/* Baseline armv8-a. */
void vti_kernels_init_act_neon(vti_kernels *kernels);
void vti_kernels_init_vector_neon(vti_kernels *kernels);
void vti_kernels_init_attention_neon(vti_kernels *kernels);
void vti_kernels_init_float_neon(vti_kernels *kernels);
void vti_kernels_init_quant_neon(vti_kernels *kernels);

/* SDOT. */
void vti_kernels_init_q8_dotprod(vti_kernels *kernels);
void vti_kernels_init_k_dotprod(vti_kernels *kernels);

/* SMMLA; one token keeps to SDOT. */
void vti_kernels_init_q8_i8mm(vti_kernels *kernels);
void vti_kernels_init_k_i8mm(vti_kernels *kernels);

/* Sums in halves. */
void vti_kernels_init_float_fp16(vti_kernels *kernels);

/* One panel × the m = 1…3 tokens of a last group: y[t * y_stride + r], all 16 rows. */
typedef void vti_few_fn(float *y, size_t y_stride, const unsigned char *panel,
                        const unsigned char *x, size_t cols, size_t m, bool accumulate);
vti_few_fn vti_few_q8_0_dotprod, vti_few_q4_0_dotprod, vti_few_q5_0_dotprod;
vti_few_fn vti_few_q4_k_dotprod, vti_few_q5_k_dotprod, vti_few_q6_k_dotprod;

/* Assembly; each file says what its functions do. */
void vti_gemv_f16_neon(float *sums, const unsigned char *w, const float *x, size_t columns);
void vti_floats_f16_neon(float *to, const unsigned char *w, size_t columns);
void vti_floats_bf16_neon(float *to, const unsigned char *w, size_t columns);
void vti_gemv_bf16_neon(float *sums, const unsigned char *w, const float *x, size_t columns);
void vti_tile_f32_neon(float *y, size_t y_stride_bytes, const float *w, const float *x,
                       size_t columns);
void vti_gemv_q8_0_dotprod(float *sums, const unsigned char *panel, const unsigned char *x,
                           size_t blocks);
void vti_gemv_q4_0_dotprod(float *sums, const unsigned char *panel, const unsigned char *x,
                           size_t blocks);
void vti_tile_q8_0_dotprod(float *y, size_t y_stride_bytes, const float *scales,
                           const unsigned char *w, const unsigned char *x, size_t blocks,
                           size_t w_bytes);
void vti_tile_q4_0_dotprod(float *y, size_t y_stride_bytes, const float *scales,
                           const unsigned char *w, const unsigned char *x, size_t blocks,
                           const unsigned char *lower);

void vti_tile_q8_i8mm(float *y, size_t y_stride_bytes, const float *scales, const int8_t *w,
                      const unsigned char *x, size_t blocks);

void vti_gemv_q4_k_dotprod(float *sums, const unsigned char *panel, const unsigned char *x,
                           size_t blocks);
void vti_dots32_dotprod(int32_t *dots, const int8_t *w, const unsigned char *q,
                        const int32_t *scales, size_t count);
void vti_dots16_dotprod(int32_t *dots, const int8_t *w, const unsigned char *q,
                        const int32_t *scales, size_t count);

void vti_dots32_i8mm(int32_t *dots, const int8_t *w, const unsigned char *q, const int32_t *scales,
                     size_t count);
void vti_dots16_i8mm(int32_t *dots, const int8_t *w, const unsigned char *q, const int32_t *scales,
                     size_t count);
void vti_tile_f16_fp16(uint16_t *sums, const unsigned char *w, const unsigned char *x0,
                       const unsigned char *x1, size_t columns);
void vti_gemv_f16_fp16(float *sums, const unsigned char *w, const unsigned char *x, size_t columns);

#endif
