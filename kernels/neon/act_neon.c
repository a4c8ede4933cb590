/* Conversion of activations: the bytes that scalar_act.c writes. */
#include "../scalar.h"
#include "lanes.h"
#include "neon.h"

/* --- floats ----------------------------------------------------------------------------------- */

/* Group of m tokens: [column][m]. */
static void interleave(float *to, const float *x, size_t x_stride, size_t m, size_t cols)
{
    size_t c = 0;
    const float *x1 = x + x_stride, *x2 = x1 + x_stride, *x3 = x2 + x_stride;
    for (; m == 4 && c + 4 <= cols; c += 4)
        vst4q_f32(to + 4 * c, ((float32x4x4_t){{vld1q_f32(x + c), vld1q_f32(x1 + c),
                                                vld1q_f32(x2 + c), vld1q_f32(x3 + c)}}));
    for (; m == 3 && c + 4 <= cols; c += 4)
        vst3q_f32(to + 3 * c, ((float32x4x3_t){
                                  {vld1q_f32(x + c), vld1q_f32(x1 + c), vld1q_f32(x2 + c)}}));
    for (; m == 2 && c + 4 <= cols; c += 4)
        vst2q_f32(to + 2 * c, ((float32x4x2_t){{vld1q_f32(x + c), vld1q_f32(x1 + c)}}));
    for (; c < cols; c++)
        for (size_t t = 0; t < m; t++) to[c * m + t] = x[t * x_stride + c];
}

static void act_pack_f32(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    float *to = dst;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        size_t m = vti_group_tokens(first, tokens);
        if (m == 1)
            memcpy(to, x + first * x_stride, cols * sizeof *to);
        else
            interleave(to, x + first * x_stride, x_stride, m, cols);
        to += m * cols;
    }
}

/* --- INT8 ------------------------------------------------------------------------------------- */

/* Largest |x| of n elements, a multiple of 32, as float bits: infinity and NaN are above all. */
static inline uint32_t largest_magnitude(const float *x, size_t n)
{
    const uint32x4_t mask = vdupq_n_u32(0x7fffffff);
    uint32x4_t largest[4];
    for (size_t j = 0; j < 4; j++) largest[j] = vdupq_n_u32(0);
    for (size_t i = 0; i < n; i += 16)
        for (size_t j = 0; j < 4; j++) {
            uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(x + i + 4 * j));
            largest[j] = vmaxq_u32(largest[j], vandq_u32(bits, mask));
        }
    return vmaxvq_u32(vmaxq_u32(vmaxq_u32(largest[0], largest[1]),
                                vmaxq_u32(largest[2], largest[3])));
}

/* scale = largest / 127 and 127 / largest, of four tokens. */
static inline void find_scales(float scale[4], float inverse[4], const uint32_t largest[4])
{
    float32x4_t top = vreinterpretq_f32_u32(vld1q_u32(largest));
    uint32x4_t usable = vcgtq_f32(top, vdupq_n_f32(1e-30f));
    float32x4_t upside_down = vdivq_f32(vdupq_n_f32(127), top);
    vst1q_f32(scale, vdivq_f32(top, vdupq_n_f32(127)));
    vst1q_f32(inverse,
              vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(upside_down), usable)));
}

/* 16 elements → integers: the low bytes of x × inverse + 1.5 × 2^23. */
static inline int8x16_t quantize16(const float *x, float inverse)
{
    const float32x4_t round = vdupq_n_f32(magic);
    uint16x8_t words[2];
    for (size_t i = 0; i < 2; i++) {
        float32x4_t a = vmulq_n_f32(vld1q_f32(x + 8 * i), inverse);
        float32x4_t b = vmulq_n_f32(vld1q_f32(x + 8 * i + 4), inverse);
        a = vaddq_f32(a, round);
        b = vaddq_f32(b, round);
        words[i] = vuzp1q_u16(vreinterpretq_u16_f32(a), vreinterpretq_u16_f32(b));
    }
    return vreinterpretq_s8_u8(
        vuzp1q_u8(vreinterpretq_u8_u16(words[0]), vreinterpretq_u8_u16(words[1])));
}

/* Token t of m: 16 columns from c on to q = [columns / 8][m][8]; returns their sum. */
static inline int32_t store16(unsigned char *q, size_t c, size_t t, size_t m, int8x16_t v)
{
    vst1_s8((int8_t *)q + (c / 8 * m + t) * 8, vget_low_s8(v));
    vst1_s8((int8_t *)q + ((c / 8 + 1) * m + t) * 8, vget_high_s8(v));
    return vaddlvq_s8(v);
}

static inline void store_i32(unsigned char *at, size_t index, int32_t v)
{
    memcpy(at + 4 * index, &v, 4);
}

static void pack_block_q8(unsigned char *block, const float *x, size_t x_stride, size_t m)
{
    uint32_t largest[VTI_TOKEN_GROUP] = {0};
    float scale[VTI_TOKEN_GROUP], inverse[VTI_TOKEN_GROUP];
    for (size_t t = 0; t < m; t++)
        largest[t] = largest_magnitude(x + t * x_stride, VTI_Q8_BLOCK);
    find_scales(scale, inverse, largest);
    memcpy(block, scale, m * sizeof *scale);
    for (size_t t = 0; t < m; t++, x += x_stride) {
        unsigned char *q = block + 8 * m;
        int32_t sum = store16(q, 0, t, m, quantize16(x, inverse[t]));
        sum += store16(q, 16, t, m, quantize16(x + 16, inverse[t]));
        store_i32(block, m + t, -128 * sum);
    }
}

static void act_pack_q8(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    unsigned char *block = dst;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        size_t m = vti_group_tokens(first, tokens);
        for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK, block += m * VTI_ACT_Q8_BYTES)
            pack_block_q8(block, x + first * x_stride + c, x_stride, m);
    }
}

/* Token t of m, n columns. */
static inline void pack_row_q8k(unsigned char *block, const float *x, size_t n, size_t t, size_t m,
                                float inverse)
{
    unsigned char *sums = block + m * VTI_ACT_Q8K_SUMS, *bias = block + m * VTI_ACT_Q8K_BIAS;
    int16_t both = 0;
    for (size_t c = 0; c < VTI_K_BLOCK; c += 16) {
        int32_t sum = 0;
        if (c < n)
            sum = store16(block + m * VTI_ACT_Q8K_HEAD, c, t, m, quantize16(x + c, inverse));
        store_i32(bias, c / 16 * m + t, -32 * sum);
        both = (int16_t)(c % 32 ? both + sum : sum);
        memcpy(sums + (t * 8 + c / 32) * 2, &both, 2);
    }
}

static void act_pack_q8k(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    unsigned char *block = dst;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        size_t m = vti_group_tokens(first, tokens);
        for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
            size_t n = vti_k_columns(c, cols);
            const float *from = x + first * x_stride + c;
            uint32_t largest[VTI_TOKEN_GROUP] = {0};
            float scale[VTI_TOKEN_GROUP], inverse[VTI_TOKEN_GROUP];
            for (size_t t = 0; t < m; t++)
                largest[t] = largest_magnitude(from + t * x_stride, n);
            find_scales(scale, inverse, largest);
            memcpy(block, scale, m * sizeof *scale);
            for (size_t t = 0; t < m; t++)
                pack_row_q8k(block, from + t * x_stride, n, t, m, inverse[t]);
            block += m * (VTI_ACT_Q8K_HEAD + n);
        }
    }
}

void vti_kernels_init_act_neon(vti_kernels *kernels)
{
    kernels->act[VTI_ACT_F32].pack = act_pack_f32;
    kernels->act[VTI_ACT_Q8].pack = act_pack_q8;
    kernels->act[VTI_ACT_Q8K].pack = act_pack_q8k;
}
