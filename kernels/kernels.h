/* kernels.h: arithmetic on raw buffers, through one table of function pointers.
 *
 * vti_kernels_init() fills the table with the scalar versions and overlays, feature by feature from
 * low to high, what the instruction sets offer. Call sites know only the table. The scalar versions
 * (kernels/scalar*.c) define the meaning; the others are tested against them.
 *
 * No kernel allocates, locks or keeps state. Buffers of one call do not overlap unless stated.
 * Vectors of floats need only float alignment. */
#ifndef VTI_KERNELS_H
#define VTI_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Weight types with a native kernel. Numbers are ours, not the file's. */
typedef enum vti_weight_type {
    VTI_F32,
    VTI_F16,
    VTI_BF16,
    VTI_Q8_0,
    VTI_WEIGHT_TYPE_COUNT
} vti_weight_type;

/* Forms in which a matrix kernel wants its activations. */
typedef enum vti_act_type {
    VTI_ACT_F32, /* floats as they are */
    VTI_ACT_Q8,  /* INT8 with one scale per 32 columns */
    VTI_ACT_TYPE_COUNT
} vti_act_type;

/* Bytes of `tokens` rows of `cols` activations in that form. */
typedef size_t vti_act_bytes_fn(size_t tokens, size_t cols);
/* Converts `tokens` rows of x (row t at x + t * x_stride floats) into dst. */
typedef void vti_act_pack_fn(void *dst, const float *x, size_t x_stride, size_t tokens,
                             size_t cols);
/* y[t * y_stride + r] = sum over c of W[r][c] * x[t][c], for rows [row_begin, row_end) and all
 * tokens; row_begin is a multiple of row_step, row_end too or it is `rows`. Accumulates in F32.
 * `w` is the whole packed matrix of rows × cols, `x` came from the act kernel for the same
 * `tokens` and `cols`. A result does not depend on the row range it was computed in. */
typedef void vti_matmul_fn(float *y, size_t y_stride, const void *w, const void *x, size_t rows,
                           size_t cols, size_t row_begin, size_t row_end, size_t tokens);
/* Bytes of a packed matrix, and the first byte of row `row` (a multiple of row_step) in it. */
typedef size_t vti_packed_bytes_fn(size_t rows, size_t cols);
typedef size_t vti_packed_offset_fn(size_t row, size_t cols);
/* Repacks rows [row_begin, row_end) of `source` into `packed`, the whole matrix of rows × cols.
 * Row r of the source has the file's own format and starts at source + r * source_stride bytes, so
 * that a slice of columns (a whole number of blocks) of a larger matrix can be packed too.
 * row_begin is a multiple of row_step, row_end too or it is `rows`. */
typedef void vti_pack_fn(void *packed, const void *source, size_t source_stride, size_t rows,
                         size_t cols, size_t row_begin, size_t row_end);
/* Row of weights as in the file → floats. */
typedef void vti_dequantize_fn(float *dst, const void *source, size_t count);

typedef struct vti_act_kernel {
    vti_act_bytes_fn *bytes;
    vti_act_pack_fn *pack;
} vti_act_kernel;

typedef struct vti_matmul_kernel {
    const char *name;      /* grammar: operation_weights_activations_tile_instructionset */
    vti_act_type act;
    uint32_t row_step;     /* rows of one packed panel */
    uint32_t block;        /* columns of one quantisation block: cols is a multiple of it */
    vti_packed_bytes_fn *packed_bytes;
    vti_packed_offset_fn *packed_offset;
    vti_pack_fn *pack;
    vti_matmul_fn *matmul; /* any number of tokens */
    vti_dequantize_fn *dequantize;
} vti_matmul_kernel;

/* y[i] = x[i] / sqrt(mean(x²) + eps) * weight[i] */
typedef void vti_rms_norm_fn(float *y, const float *x, const float *weight, size_t n, float eps);

/* Rotates the first rope_dims of each of `heads` heads in place (head h at x + h * head_dim).
 * cos_sin holds rope_dims/2 pairs (cos, sin) for the token's position. */
typedef void vti_rope_fn(float *x, const float *cos_sin, size_t heads, size_t head_dim,
                         size_t rope_dims);

/* out[i] = activation(gate[i]) * up[i]; out may be gate or up. */
typedef void vti_gate_fn(float *out, const float *gate, const float *up, size_t n);

/* y[i] += x[i] */
typedef void vti_add_fn(float *y, const float *x, size_t n);

typedef void vti_f16_from_f32_fn(uint16_t *dst, const float *src, size_t n); /* nearest even */
typedef void vti_f32_from_f16_fn(float *dst, const uint16_t *src, size_t n);

/* Attention of the query heads that share one KV head, for one token: for each of `heads` queries q
 * (head h at q + h * head_dim) out_h = Σ softmax(q·k_j * scale)_j v_j over j in [0, kv_tokens).
 * k and v: rows of head_dim elements, contiguous, in F16 or F32 as the function's name says. Online
 * softmax: no buffer of kv_tokens is needed. */
typedef void vti_attention_fn(float *out, const float *q, size_t heads, size_t head_dim,
                              const void *k, const void *v, size_t kv_tokens, float scale);

/* Index of the largest x[i]; the first of equals. NaN never wins; 0 if all are NaN. */
typedef size_t vti_argmax_fn(const float *x, size_t n);

typedef struct vti_kernels {
    uint32_t features; /* vti_cpu_feature bits in use */
    vti_act_kernel act[VTI_ACT_TYPE_COUNT];
    vti_matmul_kernel matmul[VTI_WEIGHT_TYPE_COUNT];
    vti_rms_norm_fn *rms_norm;
    vti_rope_fn *rope_interleaved; /* pairs (2i, 2i+1): llama */
    vti_rope_fn *rope_half;        /* pairs (i, i + rope_dims/2): qwen, gemma */
    vti_gate_fn *silu_gate;
    vti_gate_fn *gelu_gate;        /* tanh form */
    vti_add_fn *add;
    vti_f16_from_f32_fn *f16_from_f32;
    vti_f32_from_f16_fn *f32_from_f16;
    vti_attention_fn *attention_f16;
    vti_attention_fn *attention_f32;
    vti_argmax_fn *argmax;
} vti_kernels;

/* CPU features, low to high. A bit is only ever set for a feature that this CPU has and the
 * operating system enables. */
typedef enum vti_cpu_feature {
    VTI_CPU_AVX2 = 1 << 0,       /* with FMA and F16C */
    VTI_CPU_AVX512 = 1 << 1,     /* F, BW, VL, DQ */
    VTI_CPU_AVX512_VNNI = 1 << 2,
    VTI_CPU_NEON = 1 << 8,
    VTI_CPU_NEON_DOTPROD = 1 << 9,
    VTI_CPU_NEON_FP16 = 1 << 10, /* arithmetic on halves */
    VTI_CPU_NEON_FHM = 1 << 11,  /* halves multiplied, floats added (FMLAL); with FP16 */
    VTI_CPU_NEON_I8MM = 1 << 12,
} vti_cpu_feature;

/* What this CPU has. */
uint32_t vti_cpu_features(void);

/* Name of one feature bit ("avx2"), or NULL. */
const char *vti_cpu_feature_name(uint32_t feature);

/* Fills the table from vti_cpu_features() & mask. Mask 0: scalar only; ~0: everything. */
void vti_kernels_init(vti_kernels *kernels, uint32_t mask);

#endif
