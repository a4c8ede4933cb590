/* Floats → INT8 activations. */
#include <string.h>

#include "half.h"
#include "layout.h"
#include "scalar.h"

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

/* Token t of a group of m: n columns, a multiple of 8, to q = [n / 8][m][8]; returns the scale. */
static float quantize(unsigned char *q, const float *x, size_t n, size_t t, size_t m)
{
    float largest = largest_magnitude(x, n);
    /* Below this 127 / largest might overflow; such a block is zero beside any other value. */
    float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
    for (size_t i = 0; i < n; i++)
        q[(i / 8 * m + t) * 8 + i % 8] = (unsigned char)nearest(x[i] * inverse);
    return largest / 127.0f;
}

static int32_t sum(const unsigned char *q, size_t first, size_t n, size_t t, size_t m)
{
    int32_t total = 0;
    for (size_t i = first; i < first + n; i++) total += (int8_t)q[(i / 8 * m + t) * 8 + i % 8];
    return total;
}

static void store_float(unsigned char *at, size_t index, float v) { memcpy(at + 4 * index, &v, 4); }

static void store_i32(unsigned char *at, size_t index, int32_t v) { memcpy(at + 4 * index, &v, 4); }

static void store_i16(unsigned char *at, size_t index, int16_t v) { memcpy(at + 2 * index, &v, 2); }

/* --- VTI_ACT_Q8: per 32 columns [m] scale, [m] -128 × sum, [4][m][8] INT8 --------------------- */

static size_t act_bytes_q8(size_t tokens, size_t cols) { return tokens * vti_act_q8_bytes(cols); }

static void act_pack_q8(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    unsigned char *block = dst;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        size_t m = vti_group_tokens(first, tokens);
        for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK, block += m * VTI_ACT_Q8_BYTES) {
            unsigned char *q = block + 8 * m;
            for (size_t t = 0; t < m; t++) {
                const float *from = x + (first + t) * x_stride + c;
                store_float(block, t, quantize(q, from, VTI_Q8_BLOCK, t, m));
                store_i32(block, m + t, -128 * sum(q, 0, VTI_Q8_BLOCK, t, m));
            }
        }
    }
}

/* --- VTI_ACT_Q8K: per 256 columns [m] scale, [m][8] sums of 32, [16][m] -32 × sum of 16, INT8 - */

static void pack_block_q8k(unsigned char *block, const float *x, size_t n, size_t t, size_t m)
{
    unsigned char *sums = block + m * VTI_ACT_Q8K_SUMS, *bias = block + m * VTI_ACT_Q8K_BIAS;
    unsigned char *q = block + m * VTI_ACT_Q8K_HEAD;
    store_float(block, t, quantize(q, x, n, t, m));
    for (size_t sub = 0; sub < 8; sub++) {
        bool used = sub < n / 32;
        int32_t first = used ? sum(q, sub * 32, 16, t, m) : 0;
        int32_t second = used ? sum(q, sub * 32 + 16, 16, t, m) : 0;
        store_i16(sums, t * 8 + sub, (int16_t)(first + second));
        store_i32(bias, 2 * sub * m + t, -32 * first);
        store_i32(bias, (2 * sub + 1) * m + t, -32 * second);
    }
}

static size_t act_bytes_q8k(size_t tokens, size_t cols) { return tokens * vti_act_q8k_bytes(cols); }

static void act_pack_q8k(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    unsigned char *block = dst;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        size_t m = vti_group_tokens(first, tokens);
        for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
            size_t n = vti_k_columns(c, cols);
            for (size_t t = 0; t < m; t++)
                pack_block_q8k(block, x + (first + t) * x_stride + c, n, t, m);
            block += m * (VTI_ACT_Q8K_HEAD + n);
        }
    }
}

void vti_kernels_init_scalar_act(vti_kernels *kernels)
{
    kernels->act[VTI_ACT_Q8] = (vti_act_kernel){act_bytes_q8, act_pack_q8};
    kernels->act[VTI_ACT_Q8K] = (vti_act_kernel){act_bytes_q8k, act_pack_q8k};
}
