/* INT8 activations × quantised weights on processors without SDOT: products of bytes are added up
 * in 16 bits as long as they fit, then in pairs to 32. */
#include "../scalar.h"
#include "lanes.h"
#include "neon.h"

typedef float32x4_t group_sums[VTI_TOKEN_GROUP][VECTORS];

/* Sums of pairs of columns: lanes 2i and 2i + 1 belong to row i. */
typedef struct pair_sums {
    int32x4_t v[2 * VECTORS];
} pair_sums;

static inline void rows_from_pairs(int32x4_t dot[VECTORS], const pair_sums *sums)
{
    for (size_t v = 0; v < VECTORS; v++) dot[v] = vpaddq_s32(sums->v[2 * v], sums->v[2 * v + 1]);
}

/* The four activations of group g, for two rows at a time. */
static inline int8x16_t load_act(const unsigned char *q, size_t g, size_t m)
{
    int32_t four;
    memcpy(&four, q + g / 2 * m * 8 + g % 2 * 4, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

/* dot[r] of `groups` groups of 4 columns, w as [groups][16 rows][4]; `q` is [groups / 2][m][8] from
 * this token on. Every `narrow` products of weights and activations fit into 16 bits. */
ALWAYS_INLINE void dot_tile(int32x4_t dot[VECTORS], const int8_t *w, const unsigned char *q,
                            size_t groups, size_t m, size_t narrow)
{
    pair_sums sums;
    for (size_t v = 0; v < 2 * VECTORS; v++) sums.v[v] = vdupq_n_s32(0);
    for (size_t first = 0; first < groups; first += narrow) {
        int16x8_t products[2 * VECTORS];
        for (size_t v = 0; v < 2 * VECTORS; v++) products[v] = vdupq_n_s16(0);
        for (size_t g = first; g < first + narrow; g++) {
            int8x16_t a = load_act(q, g, m);
            for (size_t v = 0; v < VECTORS; v++) {
                int8x16_t b = vld1q_s8(w + g * 64 + 16 * v);
                products[2 * v] = vmlal_s8(products[2 * v], vget_low_s8(b), vget_low_s8(a));
                products[2 * v + 1] = vmlal_high_s8(products[2 * v + 1], b, a);
            }
        }
        for (size_t v = 0; v < 2 * VECTORS; v++)
            sums.v[v] = vpadalq_s16(sums.v[v], products[v]);
    }
    rows_from_pairs(dot, &sums);
}

/* Nibble tile of `groups` groups → INT8 tile of 0…15; `flip`: what the upper halves are xored
 * with. */
static inline void spread_nibbles(int8_t *w, const unsigned char *tile, size_t groups, uint8_t flip)
{
    for (size_t i = 0; i < 2 * groups; i++, tile += 16) {
        uint8x16_t bytes = vld1q_u8(tile);
        int8_t *to = w + i / 2 * 64 + i % 2 * 16;
        vst1q_s8(to, vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15))));
        bytes = veorq_u8(vshrq_n_u8(bytes, 4), vdupq_n_u8(flip));
        vst1q_s8(to + 32, vreinterpretq_s8_u8(bytes));
    }
}

/* Adds the fifth bits to such a tile of 32 columns. */
static inline void add_fifths(int8_t *w, const unsigned char *fifths)
{
    for (size_t v = 0; v < VECTORS; v++) {
        uint8x16_t fifth = vld1q_u8(fifths + 16 * v);
        for (size_t g = 0; g < 8; g++, fifth = vshrq_n_u8(fifth, 1)) {
            uint8x16_t bit = vshlq_n_u8(vandq_u8(fifth, vdupq_n_u8(1)), 4);
            int8_t *at = w + g * 64 + 16 * v;
            vst1q_s8(at, vorrq_s8(vld1q_s8(at), vreinterpretq_s8_u8(bit)));
        }
    }
}

/* sums += dot × d × scale, of one token. */
static inline void add_scaled_dot(float32x4_t sums[VECTORS], const int32x4_t dot[VECTORS],
                                  const float32x4_t d[VECTORS], float scale)
{
    for (size_t v = 0; v < VECTORS; v++)
        sums[v] = vfmaq_n_f32(sums[v], vmulq_f32(vcvtq_f32_s32(dot[v]), d[v]), scale);
}

/* --- one scale per 32 columns ----------------------------------------------------------------- */

static inline void dot_panel_q8_0(group_sums sums, const unsigned char *panel,
                                  const unsigned char *x, size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        float32x4_t d[VECTORS];
        int32x4_t dot[VECTORS];
        const int8_t *w = (const int8_t *)panel + VTI_SCALES_BYTES;
        load_scales(d, panel);
        for (size_t t = 0; t < m; t++) {
            dot_tile(dot, w, x + 8 * m + 8 * t, 8, m, 2);
            add_scaled_dot(sums[t], dot, d, load_float(x + 4 * t));
        }
        panel += VTI_Q8_0_BYTES;
        x += m * VTI_ACT_Q8_BYTES;
    }
}

/* A block whose weights are w - offset: the bias in x is -128 × the sum of the activations. */
static inline void add_block(group_sums sums, const int8_t *w, int offset,
                             const unsigned char *scales, const unsigned char *x, size_t m)
{
    float32x4_t d[VECTORS];
    load_scales(d, scales);
    for (size_t t = 0; t < m; t++) {
        int32x4_t dot[VECTORS];
        int32x4_t bias = vdupq_n_s32(load_i32(x + 4 * (m + t)) / 128 * offset);
        dot_tile(dot, w, x + 8 * m + 8 * t, 8, m, 8);
        for (size_t v = 0; v < VECTORS; v++) dot[v] = vaddq_s32(dot[v], bias);
        add_scaled_dot(sums[t], dot, d, load_float(x + 4 * t));
    }
}

static inline void dot_panel_q4_0(group_sums sums, const unsigned char *panel,
                                  const unsigned char *x, size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        int8_t w[VTI_TILE_BYTES];
        spread_nibbles(w, panel + VTI_SCALES_BYTES, 8, 8);
        add_block(sums, w, 8, panel, x, m);
        panel += VTI_Q4_0_BYTES;
        x += m * VTI_ACT_Q8_BYTES;
    }
}

static inline void dot_panel_q5_0(group_sums sums, const unsigned char *panel,
                                  const unsigned char *x, size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        int8_t w[VTI_TILE_BYTES];
        spread_nibbles(w, panel + VTI_SCALES_BYTES + VTI_FIFTH_BYTES, 8, 0);
        add_fifths(w, panel + VTI_SCALES_BYTES);
        add_block(sums, w, 16, panel, x, m);
        panel += VTI_Q5_0_BYTES;
        x += m * VTI_ACT_Q8_BYTES;
    }
}

/* --- K types ---------------------------------------------------------------------------------- */

/* Integers of one block of 256: Σ scale × dot and Σ min × sum of activations. */
typedef struct block_sums {
    int32x4_t dots[VTI_TOKEN_GROUP][VECTORS];
    int32x4_t mins[VTI_TOKEN_GROUP][VECTORS];
} block_sums;

static inline void clear(block_sums *total, size_t m)
{
    for (size_t t = 0; t < m; t++)
        for (size_t v = 0; v < VECTORS; v++) total->dots[t][v] = total->mins[t][v] = vdupq_n_s32(0);
}

static inline void add_scaled_i32(int32x4_t totals[VECTORS], const int32x4_t dot[VECTORS],
                                  const int32x4_t scale[VECTORS])
{
    for (size_t v = 0; v < VECTORS; v++) totals[v] = vmlaq_s32(totals[v], dot[v], scale[v]);
}

static inline void widen(int32x4_t to[VECTORS], int8x16_t bytes)
{
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    to[0] = vmovl_s16(vget_low_s16(low));
    to[1] = vmovl_high_s16(low);
    to[2] = vmovl_s16(vget_low_s16(high));
    to[3] = vmovl_high_s16(high);
}

/* The sub-block's 6-bit scales and mins: a byte of every 32-bit lane. */
static inline void take_scales(int32x4_t scale[VECTORS], int32x4_t min[VECTORS],
                               const unsigned char *block, size_t sub)
{
    const int32x4_t shift = vdupq_n_s32(-8 * (int)(sub % 4));
    for (size_t v = 0; v < VECTORS; v++) {
        uint8x16_t bytes = vld1q_u8(block + VTI_Q45_K_SCALES + sub / 4 * 64 + 16 * v);
        uint8x16_t lows = vld1q_u8(block + VTI_Q45_K_MIN_LOWS + 16 * v);
        if (sub >= 4) lows = vshrq_n_u8(lows, 4);
        uint8x16_t mins = vbslq_u8(vdupq_n_u8(15), lows, vshrq_n_u8(bytes, 2));
        uint32x4_t scales = vshlq_u32(vreinterpretq_u32_u8(bytes), shift);
        scale[v] = vreinterpretq_s32_u32(vandq_u32(scales, vdupq_n_u32(63)));
        min[v] = vreinterpretq_s32_u32(
            vandq_u32(vshlq_u32(vreinterpretq_u32_u8(mins), shift), vdupq_n_u32(63)));
    }
}

/* One sub-block of 32 columns with the weights w; x: the block's activations. */
static inline void add_sub_block(block_sums *total, const unsigned char *block, size_t sub,
                                 const int8_t *w, const unsigned char *x, size_t m)
{
    int32x4_t scale[VECTORS], min[VECTORS], dot[VECTORS];
    const unsigned char *q = x + m * VTI_ACT_Q8K_HEAD + sub * 32 * m;
    take_scales(scale, min, block, sub);
    for (size_t t = 0; t < m; t++) {
        int16_t sum;
        memcpy(&sum, x + m * VTI_ACT_Q8K_SUMS + (t * 8 + sub) * 2, 2);
        dot_tile(dot, w, q + 8 * t, 8, m, 8);
        add_scaled_i32(total->dots[t], dot, scale);
        for (size_t v = 0; v < VECTORS; v++)
            total->mins[t][v] = vmlaq_n_s32(total->mins[t][v], min[v], sum);
    }
}

static inline void finish_block(group_sums sums, const block_sums *total,
                                const unsigned char *block, const unsigned char *x, size_t m,
                                bool mins)
{
    float32x4_t d[VECTORS], dmin[VECTORS];
    load_scales(d, block);
    if (mins) load_scales(dmin, block + VTI_Q45_K_MINS);
    for (size_t t = 0; t < m; t++) {
        float scale = load_float(x + 4 * t);
        add_scaled_dot(sums[t], total->dots[t], d, scale);
        if (mins) add_scaled_dot(sums[t], total->mins[t], dmin, -scale);
    }
}

static inline void dot_panel_q4_k(group_sums sums, const unsigned char *panel,
                                  const unsigned char *x, size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
        size_t n = vti_k_columns(c, cols);
        const unsigned char *sub_block = panel + VTI_Q45_K_HEAD;
        block_sums total;
        clear(&total, m);
        for (size_t sub = 0; sub < n / 32; sub++, sub_block += VTI_Q4_K_SUB) {
            int8_t w[VTI_TILE_BYTES];
            spread_nibbles(w, sub_block, 8, 8);
            add_sub_block(&total, panel, sub, w, x, m);
        }
        finish_block(sums, &total, panel, x, m, true);
        panel = sub_block;
        x += m * (VTI_ACT_Q8K_HEAD + n);
    }
}

static inline void dot_panel_q5_k(group_sums sums, const unsigned char *panel,
                                  const unsigned char *x, size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
        size_t n = vti_k_columns(c, cols);
        const unsigned char *sub_block = panel + VTI_Q45_K_HEAD;
        block_sums total;
        clear(&total, m);
        for (size_t sub = 0; sub < n / 32; sub++, sub_block += VTI_Q5_K_SUB) {
            int8_t w[VTI_TILE_BYTES];
            spread_nibbles(w, sub_block + VTI_FIFTH_BYTES, 8, 0);
            add_fifths(w, sub_block);
            add_sub_block(&total, panel, sub, w, x, m);
        }
        finish_block(sums, &total, panel, x, m, true);
        panel = sub_block;
        x += m * (VTI_ACT_Q8K_HEAD + n);
    }
}

/* 16 columns → -32…31. */
static inline void spread_q6_k(int8_t *w, const unsigned char *sub_block)
{
    spread_nibbles(w, sub_block + 64, 4, 0);
    for (size_t v = 0; v < VECTORS; v++) {
        uint8x16_t high = vld1q_u8(sub_block + 16 * v);
        for (size_t g = 0; g < 4; g++, high = vshrq_n_u8(high, 2)) {
            uint8x16_t bits = vshlq_n_u8(vandq_u8(high, vdupq_n_u8(3)), 4);
            int8_t *at = w + g * 64 + 16 * v;
            int8x16_t q = vorrq_s8(vld1q_s8(at), vreinterpretq_s8_u8(bits));
            vst1q_s8(at, vsubq_s8(q, vdupq_n_s8(32)));
        }
    }
}

static inline void dot_panel_q6_k(group_sums sums, const unsigned char *panel,
                                  const unsigned char *x, size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
        size_t n = vti_k_columns(c, cols);
        const unsigned char *sub_block = panel + VTI_Q6_K_HEAD, *q = x + m * VTI_ACT_Q8K_HEAD;
        block_sums total;
        clear(&total, m);
        for (size_t sub = 0; sub < n / 16; sub++, sub_block += VTI_Q6_K_SUB, q += 16 * m) {
            int8_t w[VTI_TILE_BYTES / 2];
            int32x4_t scale[VECTORS], dot[VECTORS];
            spread_q6_k(w, sub_block);
            widen(scale, load_i8(panel + VTI_Q6_K_SCALES + sub * 16));
            for (size_t t = 0; t < m; t++) {
                dot_tile(dot, w, q + 8 * t, 4, m, 4);
                add_scaled_i32(total.dots[t], dot, scale);
            }
        }
        finish_block(sums, &total, panel, x, m, false);
        panel = sub_block;
        x = q;
    }
}

/* --- all -------------------------------------------------------------------------------------- */

typedef void dot_panel_fn(group_sums sums, const unsigned char *panel, const unsigned char *x,
                          size_t cols, size_t m);

ALWAYS_INLINE void matmul(float *y, size_t y_stride, const unsigned char *w, size_t panel_bytes,
                          const unsigned char *x, size_t token_bytes, size_t cols,
                          size_t row_begin, size_t row_end, size_t tokens, bool accumulate,
                          dot_panel_fn *dot_panel)
{
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
        const unsigned char *panel = w + row / VTI_PANEL_ROWS * panel_bytes;
        size_t row_bytes = vti_panel_rows(row, row_end) * sizeof(float);
        for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
            float buffer[VTI_TOKEN_GROUP][VTI_PANEL_ROWS] = {{0}};
            group_sums sums;
            size_t m = vti_group_tokens(first, tokens);
            float *out = y + first * y_stride + row;
            for (size_t t = 0; accumulate && t < m; t++)
                memcpy(buffer[t], out + t * y_stride, row_bytes);
            load_sums(sums, buffer[0], VTI_PANEL_ROWS, VTI_TOKEN_GROUP, true);
            dot_panel(sums, panel, x + first * token_bytes, cols, m);
            store_sums(sums, buffer[0], VTI_PANEL_ROWS, VTI_TOKEN_GROUP);
            for (size_t t = 0; t < m; t++) memcpy(out + t * y_stride, buffer[t], row_bytes);
        }
    }
}

#define MATMUL(type, act)                                                                          \
    static void matmul_##type(float *y, size_t y_stride, const void *w, const void *x,             \
                              size_t rows, size_t cols, size_t row_begin, size_t row_end,          \
                              size_t tokens, bool accumulate)                                      \
    {                                                                                              \
        (void)rows;                                                                                \
        matmul(y, y_stride, w, vti_panel_bytes_##type(cols), x, vti_act_##act##_bytes(cols), cols, \
               row_begin, row_end, tokens, accumulate, dot_panel_##type);                          \
    }

MATMUL(q8_0, q8)
MATMUL(q4_0, q8)
MATMUL(q5_0, q8)
MATMUL(q4_k, q8k)
MATMUL(q5_k, q8k)
MATMUL(q6_k, q8k)

void vti_kernels_init_quant_neon(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_Q8_0, matmul_q8_0, "matmul_q8_0_q8_16x4_neon");
    vti_matmul_set(kernels, VTI_Q4_0, matmul_q4_0, "matmul_q4_0_q8_16x4_neon");
    vti_matmul_set(kernels, VTI_Q5_0, matmul_q5_0, "matmul_q5_0_q8_16x4_neon");
    vti_matmul_set(kernels, VTI_Q4_K, matmul_q4_k, "matmul_q4_k_q8k_16x4_neon");
    vti_matmul_set(kernels, VTI_Q5_K, matmul_q5_k, "matmul_q5_k_q8k_16x4_neon");
    vti_matmul_set(kernels, VTI_Q6_K, matmul_q6_k, "matmul_q6_k_q8k_16x4_neon");
}
