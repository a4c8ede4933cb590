/* INT8 activations with a scale per 32 columns × quantised weights. */
#include <string.h>

#include "half.h"
#include "layout.h"
#include "scalar.h"

static size_t act_bytes_q8(size_t tokens, size_t cols)
{
    return tokens * (cols / VTI_Q8_BLOCK) * VTI_Q8_BLOCK_BYTES;
}

/* Largest |x| as float bits: among non-negative floats the order of bits is the order of values,
 * with infinity and NaN on top, so either makes the block's scale non-finite. */
static float largest_magnitude(const float *x, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_of_float(x[i]) & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return float_from_bits(largest);
}

/* Nearest integer, ties to even, of |v| < 2^22; anything else gives some integer. */
static int32_t nearest(float v) { return (int32_t)(bits_of_float(v + 12582912.0f) - 0x4b400000u); }

/* One token's part of a block, interleaved with the m tokens of its group. */
static void quantize_block(unsigned char *block, const float *x, size_t t, size_t m)
{
    float largest = largest_magnitude(x, VTI_Q8_BLOCK);
    float scale = largest / 127.0f;
    /* Below this 127 / largest might overflow; such a block is zero beside any other value. */
    float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
    int32_t sum = 0;
    for (size_t i = 0; i < VTI_Q8_BLOCK; i++) {
        int8_t q = (int8_t)nearest(x[i] * inverse);
        sum += q;
        block[8 * m + (i / 8 * m + t) * 8 + i % 8] = (unsigned char)q;
    }
    memcpy(block + 4 * t, &scale, 4);
    memcpy(block + 4 * (m + t), &sum, 4);
}

static void act_pack_q8(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    unsigned char *block = dst;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        size_t m = vti_group_tokens(first, tokens);
        for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK, block += m * VTI_Q8_BLOCK_BYTES)
            for (size_t t = 0; t < m; t++)
                quantize_block(block, x + (first + t) * x_stride + c, t, m);
    }
}

/* Adds one block of one token to sums[r]. `w` is [8][16 rows][4], `q` [4][m][8] from this token
 * on. */
static void dot_block_q8_0(float *sums, const unsigned char *w, const float *scales,
                           const unsigned char *q, size_t m, float x_scale)
{
    int32_t dot[VTI_PANEL_ROWS] = {0};
    for (size_t group = 0; group < 8; group++) {
        const unsigned char *at = q + group / 2 * m * 8 + group % 2 * 4;
        for (size_t r = 0; r < VTI_PANEL_ROWS; r++)
            for (size_t i = 0; i < 4; i++)
                dot[r] += (int8_t)w[(group * VTI_PANEL_ROWS + r) * 4 + i] * (int8_t)at[i];
    }
    for (size_t r = 0; r < VTI_PANEL_ROWS; r++) sums[r] += (float)dot[r] * (scales[r] * x_scale);
}

static void dot_group_q8_0(float sums[][VTI_PANEL_ROWS], const unsigned char *panel,
                           const unsigned char *x, size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        float scales[VTI_PANEL_ROWS], x_scale[VTI_TOKEN_GROUP];
        memcpy(x_scale, x, m * sizeof *x_scale);
        for (size_t r = 0; r < VTI_PANEL_ROWS; r++)
            scales[r] = f32_from_f16(load_u16(panel + 2 * r));
        for (size_t t = 0; t < m; t++)
            dot_block_q8_0(sums[t], panel + 32, scales, x + 8 * m + 8 * t, m, x_scale[t]);
        panel += 34 * VTI_PANEL_ROWS;
        x += m * VTI_Q8_BLOCK_BYTES;
    }
}

static void matmul_q8_0(float *y, size_t y_stride, const void *w, const void *x, size_t rows,
                        size_t cols, size_t row_begin, size_t row_end, size_t tokens)
{
    (void)rows;
    size_t row_bytes = cols / VTI_Q8_BLOCK * 34;
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
        size_t filled = vti_panel_rows(row, row_end);
        for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
            float sums[VTI_TOKEN_GROUP][VTI_PANEL_ROWS] = {{0}};
            size_t m = vti_group_tokens(first, tokens);
            dot_group_q8_0(sums, (const unsigned char *)w + row * row_bytes,
                           (const unsigned char *)x + act_bytes_q8(first, cols), cols, m);
            for (size_t t = 0; t < m; t++)
                memcpy(y + (first + t) * y_stride + row, sums[t], filled * sizeof(float));
        }
    }
}

void vti_kernels_init_scalar_quant(vti_kernels *kernels)
{
    kernels->act[VTI_ACT_Q8] = (vti_act_kernel){act_bytes_q8, act_pack_q8};
    kernels->matmul[VTI_Q8_0].matmul = matmul_q8_0;
    kernels->matmul[VTI_Q8_0].name = "matmul_q8_0_q8_16x4_scalar";
}
