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
    VTI_Q4_0,
    VTI_Q5_0,
    VTI_Q4_K,
    VTI_Q5_K,
    VTI_Q6_K,
    VTI_WEIGHT_TYPE_COUNT
} vti_weight_type;

/* Forms in which a matrix kernel wants its activations. */
typedef enum vti_act_type {
    VTI_ACT_F32, /* floats as they are */
    VTI_ACT_Q8,  /* INT8 with one scale per 32 columns */
    VTI_ACT_Q8K, /* INT8 with one scale per 256 columns, sums of 32 and of 16 */
    VTI_ACT_F16, /* F16 with one scale per 1024 columns */
    VTI_ACT_TYPE_COUNT
} vti_act_type;

/* Bytes of `tokens` rows of `cols` activations in that form; proportional to `tokens`. */
typedef size_t vti_act_bytes_fn(size_t tokens, size_t cols);
/* Converts `tokens` rows of x (row t at x + t * x_stride floats) into dst. Rows from token t on,
 * t a multiple of 4, can be converted by themselves to dst + bytes(t, cols), in parallel. Where x
 * is not finite, neither is the scale of its block. */
typedef void vti_act_pack_fn(void *dst, const float *x, size_t x_stride, size_t tokens,
                             size_t cols);
/* y[t * y_stride + r] = sum over c of W[r][c] * x[t][c], for rows [row_begin, row_end) and all
 * tokens; with `accumulate` the sum is added to what y holds. row_begin is a multiple of row_step,
 * row_end too or it is `rows`. Accumulates in F32, column block after column block in order.
 *
 * `w` is the whole packed matrix of rows × cols, `x` came from the act kernel for the same `tokens`
 * and `cols`. A result does not depend on the row range it was computed in, and if the kernel is
 * batch_invariant neither on the other tokens. A product over slices of columns, each added to the
 * ones before, then gives the very bits of the whole product. */
typedef void vti_matmul_fn(float *y, size_t y_stride, const void *w, const void *x, size_t rows,
                           size_t cols, size_t row_begin, size_t row_end, size_t tokens,
                           bool accumulate);
/* Bytes of one row of `cols` in the file's own format. */
typedef size_t vti_source_bytes_fn(size_t cols);
/* Bytes of a packed matrix, and the first byte of row `row` (a multiple of row_step) in it. Blocks
 * of columns follow each other: what row_step rows take with c columns, c a multiple of `block`, is
 * how they begin with more. */
typedef size_t vti_packed_bytes_fn(size_t rows, size_t cols);
typedef size_t vti_packed_offset_fn(size_t row, size_t cols);
/* Repacks rows [row_begin, row_end) of `source` into `packed`, the whole matrix of rows × cols.
 * Row r of the source has the file's own format and starts at source + r * source_stride bytes, so
 * that a slice of columns (a whole number of blocks) of a larger matrix can be packed too.
 * row_begin is a multiple of row_step, row_end too or it is `rows`. */
typedef void vti_pack_fn(void *packed, const void *source, size_t source_stride, size_t rows,
                         size_t cols, size_t row_begin, size_t row_end);
/* `count` weights of a row as in the file → floats. */
typedef void vti_dequantize_fn(float *dst, const void *source, size_t count);
/* Row `row` of a packed matrix of `cols` columns → floats, the same as dequantize gives. */
typedef void vti_unpack_fn(float *dst, const void *packed, size_t cols, size_t row);

/* Both NULL if no matrix kernel of the table wants the form. */
typedef struct vti_act_kernel {
    vti_act_bytes_fn *bytes;
    vti_act_pack_fn *pack;
} vti_act_kernel;

typedef struct vti_matmul_kernel {
    const char *name;      /* grammar: operation_weights_activations_tile_instructionset */
    vti_act_type act;
    uint32_t row_step;     /* rows of one packed panel */
    /* Columns of one quantisation block, of which cols is a multiple in every file. */
    uint32_t block;
    /* What cols must be a multiple of: the K types allow a narrower last block. */
    uint32_t column_step;
    /* Products that may be added in F16, one after the other, before they become floats. 0: all
     * sums are floats. */
    uint32_t half_chain;
    bool batch_invariant;  /* a token's result does not depend on the tokens beside it */
    vti_source_bytes_fn *source_bytes;
    vti_packed_bytes_fn *packed_bytes;
    vti_packed_offset_fn *packed_offset;
    vti_pack_fn *pack;
    vti_unpack_fn *unpack;
    vti_dequantize_fn *dequantize;
    vti_matmul_fn *matmul; /* any number of tokens */
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

/* y[i] += x[i] * factor */
typedef void vti_add_scaled_fn(float *y, const float *x, float factor, size_t n);

/* x[i] = exp(x[i]) / Σ exp(x), in place, n ≥ 1. */
typedef void vti_softmax_fn(float *x, size_t n);

/* Forms of the KV cache. A row holds head_dim elements of one token and KV head. */
typedef enum vti_kv_form {
    VTI_KV_F32,
    VTI_KV_F16,
    VTI_KV_Q8, /* per 32 elements (the last block has what is left) an F16 scale: first all
                * scales, then head_dim INT8 */
    VTI_KV_FORM_COUNT
} vti_kv_form;

typedef size_t vti_kv_row_bytes_fn(size_t head_dim);
/* head_dim floats → one row. */
typedef void vti_kv_store_fn(void *row, const float *x, size_t head_dim);

/* One call's operands: `tokens` successive query tokens and the `heads` query heads that share one
 * KV head. Row j of k and v belongs to position j (counted from wherever the caller's cache
 * begins); rows lie one after the other. Query token t sits at `position` + t and sees the rows j
 * with j <= position + t and, if window > 0, j > position + t - window, and of these only the ones
 * in [kv_begin, kv_end).
 *
 * out_h = Σ softmax(q_h · k_j * scale)_j v_j. Online softmax: no buffer of scores is needed.
 *
 * With `parts` NULL every query must see at least one row. Else the call is one part of several
 * over disjoint ranges of rows: out holds Σ exp(score - m) v, parts[(t * heads + h) * 2] = m, the
 * largest score (-INFINITY if no row was seen), and parts[… + 1] = Σ exp(score - m);
 * vti_attention_merge_fn puts the parts together. */
typedef struct vti_attention_args {
    float *out;      /* head h of token t: out + t * out_stride + h * head_dim */
    size_t out_stride;
    const float *q;  /* head h of token t: q + t * q_stride + h * head_dim */
    size_t q_stride;
    size_t tokens, heads, head_dim;
    const void *k, *v;
    size_t position;
    size_t window;   /* 0: none */
    size_t kv_begin, kv_end;
    float scale;
    float *parts;
} vti_attention_args;
typedef void vti_attention_fn(const vti_attention_args *args);

/* Merges `count` parts of one query (token and head): part i's unnormalised output is
 * partial + i * partial_stride (head_dim floats), its two numbers parts + i * parts_stride. */
typedef void vti_attention_merge_fn(float *out, const float *partial, size_t partial_stride,
                                    const float *parts, size_t parts_stride, size_t count,
                                    size_t head_dim);

typedef struct vti_kv_kernel {
    vti_kv_row_bytes_fn *row_bytes;
    vti_kv_store_fn *store;
    vti_attention_fn *attention;
} vti_kv_kernel;

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
    vti_add_scaled_fn *add_scaled;
    vti_softmax_fn *softmax;
    vti_f16_from_f32_fn *f16_from_f32;
    vti_f32_from_f16_fn *f32_from_f16;
    vti_kv_kernel kv[VTI_KV_FORM_COUNT];
    vti_attention_merge_fn *attention_merge;
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

/* The mask of all kernels that add floats in floats, as docs/numerics.md promises. Arithmetic on
 * halves makes products with F16 weights twice as fast, and less exact. */
#define VTI_CPU_EXACT (~(uint32_t)VTI_CPU_NEON_FP16)

/* Fills the table from vti_cpu_features() & mask. Mask 0: scalar only; ~0: everything. */
void vti_kernels_init(vti_kernels *kernels, uint32_t mask);

#endif
