/* Q4_K, Q5_K, Q6_K × INT8 activations with SDOT. All arithmetic inside a block of 256 columns is in
 * integers: its Σ scale × dot and Σ min × sum of activations become floats, then
 * sum += (dots × d - mins × dmin) × scale of the activations. */
#include "dotprod_lanes.h"
#include "product.h"

/* --- a block's end ---------------------------------------------------------------------------- */

/* mins[v] = Σ min × sum of activations, for one token. Step by step for all rows: in-order cores
 * wait for a result four cycles. */
ALWAYS_INLINE void dot_mins(int32x4_t mins[VECTORS], const int8x16_t halves[2][VECTORS],
                            int8x16_t sums)
{
    EACH_VECTOR(v) mins[v] = vdotq_laneq_s32(vdupq_n_s32(0), halves[0][v], sums, 0);
    EACH_VECTOR(v) mins[v] = vdotq_laneq_s32(mins[v], halves[1][v], sums, 1);
    EACH_VECTOR(v) mins[v] = vshlq_n_s32(mins[v], 7);
    EACH_VECTOR(v) mins[v] = vdotq_laneq_s32(mins[v], halves[0][v], sums, 2);
    EACH_VECTOR(v) mins[v] = vdotq_laneq_s32(mins[v], halves[1][v], sums, 3);
}

ALWAYS_INLINE void add_block(float32x4_t sums[VECTORS], const int32x4_t dots[VECTORS],
                             const float32x4_t d[VECTORS], float scale)
{
    float32x4_t scaled[VECTORS];
    EACH_VECTOR(v) scaled[v] = vcvtq_f32_s32(dots[v]);
    EACH_VECTOR(v) scaled[v] = vmulq_f32(scaled[v], d[v]);
    EACH_VECTOR(v) sums[v] = vfmaq_n_f32(sums[v], scaled[v], scale);
}

ALWAYS_INLINE void add_block_mins(float32x4_t sums[VECTORS], const int32x4_t dots[VECTORS],
                                  const float32x4_t d[VECTORS], const int32x4_t mins[VECTORS],
                                  const float32x4_t dmin[VECTORS], float scale)
{
    float32x4_t less[VECTORS], more[VECTORS];
    EACH_VECTOR(v) less[v] = vcvtq_f32_s32(mins[v]);
    EACH_VECTOR(v) more[v] = vcvtq_f32_s32(dots[v]);
    EACH_VECTOR(v) less[v] = vmulq_f32(less[v], dmin[v]);
    EACH_VECTOR(v) less[v] = vfmsq_f32(less[v], more[v], d[v]);
    EACH_VECTOR(v) sums[v] = vfmsq_n_f32(sums[v], less[v], scale);
}

/* --- few tokens ------------------------------------------------------------------------------- */

/* Σ scale × dot of a Q4_K or Q5_K block of n columns; scales: [2 halves] as load_scales_6bit. */
ALWAYS_INLINE void dot_block_q45_k(int32x4_t totals[][VECTORS], const unsigned char *sub,
                                   const uint8x16_t scales[2][VECTORS], const unsigned char *q,
                                   size_t n, size_t m, size_t width)
{
    set_dots(totals, m, 0);
    for (size_t s = 0; s < n / 32; s++, q += 32 * m) {
        int32x4_t dots[3][VECTORS];
        set_dots(dots, m, 0);
        dot_sub_block(dots, sub, q, m, 8, width);
        for (size_t v = 0; v < VECTORS; v++) {
            int32x4_t scale = byte_of_lanes(scales[s / 4][v], s % 4);
            for (size_t t = 0; t < m; t++)
                totals[t][v] = vmlaq_s32(totals[t][v], dots[t][v], scale);
        }
        sub += width ? VTI_Q5_K_SUB : VTI_Q4_K_SUB;
    }
}

ALWAYS_INLINE void few_q45_k(float *y, size_t y_stride, const unsigned char *panel,
                             const unsigned char *x, size_t cols, size_t m, size_t width)
{
    float32x4_t sums[3][VECTORS];
    load_sums(sums, y, y_stride, m, true);
    for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
        size_t n = vti_k_columns(c, cols);
        uint8x16_t scales[2][VECTORS];
        int8x16_t halves[2][VECTORS];
        int32x4_t totals[3][VECTORS], mins[VECTORS];
        float32x4_t d[VECTORS], dmin[VECTORS];
        load_scales_6bit(scales[0], halves[0], panel, 0);
        load_scales_6bit(scales[1], halves[1], panel, 1);
        dot_block_q45_k(totals, panel + VTI_Q45_K_HEAD, scales, x + m * VTI_ACT_Q8K_HEAD, n, m,
                        width);
        load_scales(d, panel);
        load_scales(dmin, panel + VTI_Q45_K_MINS);
        for (size_t t = 0; t < m; t++) {
            dot_mins(mins, halves, split_sums(x + m * VTI_ACT_Q8K_SUMS + 16 * t));
            add_block_mins(sums[t], totals[t], d, mins, dmin, load_float(x + 4 * t));
        }
        panel += VTI_Q45_K_HEAD + n / 32 * (width ? VTI_Q5_K_SUB : VTI_Q4_K_SUB);
        x += m * (VTI_ACT_Q8K_HEAD + n);
    }
    store_sums(sums, y, y_stride, m);
}

/* The weights are read as q + 32: accumulators start at -32 × the sum of the activations. */
ALWAYS_INLINE void dot_block_q6_k(int32x4_t totals[][VECTORS], const unsigned char *block,
                                  const unsigned char *x, size_t n, size_t m)
{
    const unsigned char *sub = block + VTI_Q6_K_HEAD, *q = x + m * VTI_ACT_Q8K_HEAD;
    const unsigned char *bias = x + m * VTI_ACT_Q8K_BIAS;
    set_dots(totals, m, 0);
    for (size_t s = 0; s < n / 16; s++, q += 16 * m, sub += VTI_Q6_K_SUB) {
        int32x4_t dots[3][VECTORS], scale[VECTORS];
        for (size_t t = 0; t < m; t++)
            set_dots(&dots[t], 1, load_i32(bias + (s * m + t) * 4));
        dot_sub_block(dots, sub, q, m, 4, 2);
        widen_i8(scale, load_i8(block + VTI_Q6_K_SCALES + s * 16));
        for (size_t v = 0; v < VECTORS; v++)
            for (size_t t = 0; t < m; t++)
                totals[t][v] = vmlaq_s32(totals[t][v], dots[t][v], scale[v]);
    }
}

ALWAYS_INLINE void few_q6_k(float *y, size_t y_stride, const unsigned char *panel,
                            const unsigned char *x, size_t cols, size_t m)
{
    float32x4_t sums[3][VECTORS];
    load_sums(sums, y, y_stride, m, true);
    for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
        size_t n = vti_k_columns(c, cols);
        int32x4_t totals[3][VECTORS];
        float32x4_t d[VECTORS];
        dot_block_q6_k(totals, panel, x, n, m);
        load_scales(d, panel);
        for (size_t t = 0; t < m; t++) add_block(sums[t], totals[t], d, load_float(x + 4 * t));
        panel += VTI_Q6_K_HEAD + n / 16 * VTI_Q6_K_SUB;
        x += m * (VTI_ACT_Q8K_HEAD + n);
    }
    store_sums(sums, y, y_stride, m);
}

static void zero_tokens(float *y, size_t y_stride, size_t m)
{
    for (size_t t = 0; t < m; t++) memset(y + t * y_stride, 0, VTI_PANEL_ROWS * sizeof *y);
}

void vti_few_q4_k_dotprod(float *y, size_t y_stride, const unsigned char *panel,
                          const unsigned char *x, size_t cols, size_t m, bool accumulate)
{
    if (!accumulate) zero_tokens(y, y_stride, m);
    if (m == 3) {
        few_q45_k(y, y_stride, panel, x, cols, 3, 0);
    } else if (m == 2) {
        few_q45_k(y, y_stride, panel, x, cols, 2, 0);
    } else {
        size_t whole = cols / VTI_K_BLOCK * VTI_K_BLOCK;
        if (whole > 0) vti_gemv_q4_k_dotprod(y, panel, x, whole / VTI_K_BLOCK);
        few_q45_k(y, y_stride, panel + vti_panel_bytes_q4_k(whole), x + vti_act_q8k_bytes(whole),
                  cols - whole, 1, 0);
    }
}

void vti_few_q5_k_dotprod(float *y, size_t y_stride, const unsigned char *panel,
                          const unsigned char *x, size_t cols, size_t m, bool accumulate)
{
    if (!accumulate) zero_tokens(y, y_stride, m);
    if (m == 3)
        few_q45_k(y, y_stride, panel, x, cols, 3, 1);
    else if (m == 2)
        few_q45_k(y, y_stride, panel, x, cols, 2, 1);
    else
        few_q45_k(y, y_stride, panel, x, cols, 1, 1);
}

void vti_few_q6_k_dotprod(float *y, size_t y_stride, const unsigned char *panel,
                          const unsigned char *x, size_t cols, size_t m, bool accumulate)
{
    if (!accumulate) zero_tokens(y, y_stride, m);
    if (m == 3)
        few_q6_k(y, y_stride, panel, x, cols, 3);
    else if (m == 2)
        few_q6_k(y, y_stride, panel, x, cols, 2);
    else
        few_q6_k(y, y_stride, panel, x, cols, 1);
}

/* --- groups of four --------------------------------------------------------------------------- */

enum { BLOCKS = CHUNK / VTI_K_BLOCK, SUBS = 16 };

/* Up to 256 columns, as the tiles read them. */
typedef struct unpacked_block {
    _Alignas(64) int8_t w[8][VTI_TILE_BYTES];    /* q, or q - 32 of Q6_K */
    int32_t scales[SUBS][VTI_PANEL_ROWS];        /* of 32 columns, or of 16 */
    int8x16_t mins[2][VECTORS];                  /* [2 halves][16 rows][4] */
    float32x4_t d[VECTORS], dmin[VECTORS];
} unpacked_block;

ALWAYS_INLINE void unpack_q45_k(void *unpacked, const unsigned char *panel, size_t n, size_t width)
{
    unpacked_block *to = unpacked;
    for (size_t c = 0; c < n; c += VTI_K_BLOCK, to++) {
        const unsigned char *block = panel;
        load_scales(to->d, block);
        load_scales(to->dmin, block + VTI_Q45_K_MINS);
        for (size_t half = 0; half < 2; half++) {
            uint8x16_t scales[VECTORS];
            load_scales_6bit(scales, to->mins[half], block, half);
            for (size_t s = 0; s < 4; s++)
                for (size_t v = 0; v < VECTORS; v++)
                    vst1q_s32(to->scales[4 * half + s] + 4 * v, byte_of_lanes(scales[v], s));
        }
        panel += VTI_Q45_K_HEAD;
        for (size_t s = 0; s < vti_k_columns(c, n) / 32; s++) {
            unpack_sub_block(to->w[s], panel, 8, width, 0);
            panel += width ? VTI_Q5_K_SUB : VTI_Q4_K_SUB;
        }
    }
}

static void unpack_q4_k(void *unpacked, const unsigned char *panel, size_t c, size_t n,
                        size_t groups)
{
    (void)groups;
    unpack_q45_k(unpacked, panel + vti_panel_bytes_q4_k(c), n, 0);
}

static void unpack_q5_k(void *unpacked, const unsigned char *panel, size_t c, size_t n,
                        size_t groups)
{
    (void)groups;
    unpack_q45_k(unpacked, panel + vti_panel_bytes_q5_k(c), n, 1);
}

static void unpack_q6_k(void *unpacked, const unsigned char *panel, size_t first, size_t n,
                        size_t groups)
{
    (void)groups;
    unpacked_block *to = unpacked;
    panel += vti_panel_bytes_q6_k(first);
    for (size_t c = 0; c < n; c += VTI_K_BLOCK, to++) {
        const unsigned char *block = panel;
        load_scales(to->d, block);
        panel += VTI_Q6_K_HEAD;
        for (size_t s = 0; s < vti_k_columns(c, n) / 16; s++, panel += VTI_Q6_K_SUB) {
            int32x4_t scale[VECTORS];
            widen_i8(scale, load_i8(block + VTI_Q6_K_SCALES + s * 16));
            for (size_t v = 0; v < VECTORS; v++) vst1q_s32(to->scales[s] + 4 * v, scale[v]);
            unpack_sub_block(to->w[s / 2] + s % 2 * 256, panel, 4, 2, 32);
        }
    }
}

/* 16 rows × four tokens of one block, dots [4][16] summed up already. What the tokens share is kept
 * in registers. */
ALWAYS_INLINE void add_group(float *y, size_t y_stride, const unpacked_block *block,
                             const int32_t dots[4][VTI_PANEL_ROWS], const unsigned char *x,
                             bool has_mins)
{
    float32x4_t d[VECTORS], dmin[VECTORS];
    int8x16_t halves[2][VECTORS];
    EACH_VECTOR(v) d[v] = block->d[v];
    EACH_VECTOR(v) dmin[v] = block->dmin[v];
    EACH_VECTOR(v) halves[0][v] = block->mins[0][v];
    EACH_VECTOR(v) halves[1][v] = block->mins[1][v];
    for (size_t t = 0; t < VTI_TOKEN_GROUP; t++, y += y_stride) {
        float32x4_t sums[VECTORS];
        int32x4_t mins[VECTORS], dot[VECTORS];
        if (has_mins) dot_mins(mins, halves, split_sums(x + 4 * VTI_ACT_Q8K_SUMS + 16 * t));
        EACH_VECTOR(v) dot[v] = vld1q_s32(dots[t] + 4 * v);
        EACH_VECTOR(v) sums[v] = vld1q_f32(y + 4 * v);
        if (has_mins)
            add_block_mins(sums, dot, d, mins, dmin, load_float(x + 4 * t));
        else
            add_block(sums, dot, d, load_float(x + 4 * t));
        EACH_VECTOR(v) vst1q_f32(y + 4 * v, sums[v]);
    }
}

static void tile_q45_k(float *y, size_t y_stride, const void *unpacked, const unsigned char *x,
                       size_t n, bool fresh)
{
    const unpacked_block *block = unpacked;
    if (fresh) zero_rows(y, y_stride);
    for (size_t c = 0; c < n; c += VTI_K_BLOCK, block++) {
        size_t columns = vti_k_columns(c, n);
        int32_t dots[4][VTI_PANEL_ROWS];
        const unsigned char *q = x + 4 * VTI_ACT_Q8K_HEAD;
        vti_dots32_dotprod(dots[0], block->w[0], q, block->scales[0], columns / 32);
        vti_dots32_dotprod(dots[0] + 8, block->w[0] + 32, q, block->scales[0] + 8, columns / 32);
        add_group(y, y_stride, block, dots, x, true);
        x += 4 * (VTI_ACT_Q8K_HEAD + columns);
    }
}

static void tile_q6_k(float *y, size_t y_stride, const void *unpacked, const unsigned char *x,
                      size_t n, bool fresh)
{
    const unpacked_block *block = unpacked;
    if (fresh) zero_rows(y, y_stride);
    for (size_t c = 0; c < n; c += VTI_K_BLOCK, block++) {
        size_t columns = vti_k_columns(c, n);
        int32_t dots[4][VTI_PANEL_ROWS];
        const unsigned char *q = x + 4 * VTI_ACT_Q8K_HEAD;
        vti_dots16_dotprod(dots[0], block->w[0], q, block->scales[0], columns / 32);
        vti_dots16_dotprod(dots[0] + 8, block->w[0] + 32, q, block->scales[0] + 8, columns / 32);
        add_group(y, y_stride, block, dots, x, false);
        x += 4 * (VTI_ACT_Q8K_HEAD + columns);
    }
}

/* --- table ------------------------------------------------------------------------------------ */

#define MATMUL(type, tile)                                                                         \
    static void matmul_##type(float *y, size_t y_stride, const void *w, const void *x,             \
                              size_t rows, size_t cols, size_t row_begin, size_t row_end,          \
                              size_t tokens, bool accumulate)                                      \
    {                                                                                              \
        static const product p = {vti_panel_bytes_##type, vti_act_q8k_bytes, unpack_##type, tile,  \
                                  vti_few_##type##_dotprod};                                       \
        unpacked_block unpacked[BLOCKS];                                                           \
        (void)rows;                                                                                \
        multiply(&p, unpacked, y, y_stride, w, x, cols, row_begin, row_end, tokens, accumulate);   \
    }

MATMUL(q4_k, tile_q45_k)
MATMUL(q5_k, tile_q45_k)
MATMUL(q6_k, tile_q6_k)

void vti_kernels_init_k_dotprod(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_Q4_K, matmul_q4_k, "matmul_q4_k_q8k_16x4_dotprod");
    vti_matmul_set(kernels, VTI_Q5_K, matmul_q5_k, "matmul_q5_k_q8k_16x4_dotprod");
    vti_matmul_set(kernels, VTI_Q6_K, matmul_q6_k, "matmul_q6_k_q8k_16x4_dotprod");
}
