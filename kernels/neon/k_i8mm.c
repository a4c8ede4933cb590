/* Q4_K, Q5_K, Q6_K × INT8 activations: groups of four with SMMLA, few tokens with SDOT. The same
 * numbers as k_dotprod.c gives. Two rows and two tokens share a vector: [row][token]. */
#include "i8mm_lanes.h"
#include "product.h"

enum { BLOCKS = CHUNK / VTI_K_BLOCK, SUBS = 16, PAIRS = VTI_PANEL_ROWS / 2 };

/* Up to 256 columns, as the tiles read them. */
typedef struct unpacked_block {
    _Alignas(64) int8_t w[32][VTI_PANEL_ROWS][8]; /* groups of 8 columns: q, or q - 32 of Q6_K */
    int32x4_t scales[SUBS][PAIRS];                /* of 32 columns, or of 16; twice each */
    int8x16_t mins[PAIRS];                        /* [2 rows][8 sub-blocks] */
    float32x4_t d[PAIRS], dmin[PAIRS];            /* twice each */
} unpacked_block;

/* --- unpacking -------------------------------------------------------------------------------- */

ALWAYS_INLINE void twice_i32(int32x4_t to[2], int32x4_t rows)
{
    to[0] = vzip1q_s32(rows, rows);
    to[1] = vzip2q_s32(rows, rows);
}

static inline void unpack_halves(float32x4_t to[PAIRS], const unsigned char *halves)
{
    float32x4_t d[VECTORS];
    load_scales(d, halves);
    for (size_t v = 0; v < VECTORS; v++) {
        to[2 * v] = vzip1q_f32(d[v], d[v]);
        to[2 * v + 1] = vzip2q_f32(d[v], d[v]);
    }
}

static inline void unpack_head_q45_k(unpacked_block *to, const unsigned char *block)
{
    uint8x16_t scales[2][VECTORS];
    int8x16_t mins[2][VECTORS];
    unpack_halves(to->d, block);
    unpack_halves(to->dmin, block + VTI_Q45_K_MINS);
    load_scales_6bit(scales[0], mins[0], block, 0);
    load_scales_6bit(scales[1], mins[1], block, 1);
    for (size_t v = 0; v < VECTORS; v++) {
        int32x4_t first = vreinterpretq_s32_s8(mins[0][v]);
        int32x4_t second = vreinterpretq_s32_s8(mins[1][v]);
        to->mins[2 * v] = vreinterpretq_s8_s32(vzip1q_s32(first, second));
        to->mins[2 * v + 1] = vreinterpretq_s8_s32(vzip2q_s32(first, second));
        for (size_t s = 0; s < 8; s++)
            twice_i32(&to->scales[s][2 * v], byte_of_lanes(scales[s / 4][v], s % 4));
    }
}

ALWAYS_INLINE void unpack_q45_k(void *unpacked, const unsigned char *panel, size_t n, size_t width)
{
    unpacked_block *to = unpacked;
    for (size_t c = 0; c < n; c += VTI_K_BLOCK, to++) {
        unpack_head_q45_k(to, panel);
        panel += VTI_Q45_K_HEAD;
        for (size_t s = 0; s < vti_k_columns(c, n) / 32; s++) {
            unpack_sub_block(&to->w[4 * s], panel, 8, width, 0);
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
        unpack_halves(to->d, block);
        panel += VTI_Q6_K_HEAD;
        for (size_t s = 0; s < vti_k_columns(c, n) / 16; s++, panel += VTI_Q6_K_SUB) {
            int32x4_t scale[VECTORS];
            widen_i8(scale, load_i8(block + VTI_Q6_K_SCALES + s * 16));
            for (size_t v = 0; v < VECTORS; v++) twice_i32(&to->scales[s][2 * v], scale[v]);
            unpack_sub_block(&to->w[2 * s], panel, 4, 2, 32);
        }
    }
}

/* --- tiles ------------------------------------------------------------------------------------ */

/* Sums of activations of a pair of tokens, bytes [token][8 sub-blocks]: 128 × high + low. */
typedef struct pair_sums {
    int8x16_t high, low;
} pair_sums;

static inline pair_sums load_pair_sums(const unsigned char *sums)
{
    int64x2_t first = vreinterpretq_s64_s8(split_sums(sums));
    int64x2_t second = vreinterpretq_s64_s8(split_sums(sums + 16));
    return (pair_sums){vreinterpretq_s8_s64(vzip1q_s64(first, second)),
                       vreinterpretq_s8_s64(vzip2q_s64(first, second))};
}

/* dots × d - mins × dmin of two rows and two tokens, negative. */
static inline float32x4_t subtract_dots(const unpacked_block *block, size_t pair, int32x4_t dots,
                                        pair_sums sums)
{
    int32x4_t mins = vmmlaq_s32(vdupq_n_s32(0), block->mins[pair], sums.high);
    mins = vmmlaq_s32(vshlq_n_s32(mins, 7), block->mins[pair], sums.low);
    float32x4_t less = vmulq_f32(vcvtq_f32_s32(mins), block->dmin[pair]);
    return vfmsq_f32(less, vcvtq_f32_s32(dots), block->d[pair]);
}

/* Four rows, a pair of tokens: y += factor × scales. */
static inline void add_rows(float *y, size_t y_stride, float32x4_t first, float32x4_t second,
                            const float scales[2])
{
    float32x4_t one = vuzp1q_f32(first, second), other = vuzp2q_f32(first, second);
    vst1q_f32(y, vfmaq_n_f32(vld1q_f32(y), one, scales[0]));
    y += y_stride;
    vst1q_f32(y, vfmaq_n_f32(vld1q_f32(y), other, scales[1]));
}

typedef void dots_fn(int32_t *dots, const int8_t *w, const unsigned char *q, const int32_t *scales,
                     size_t count);

ALWAYS_INLINE void tile(float *y, size_t y_stride, const void *unpacked, const unsigned char *x,
                        size_t n, bool fresh, dots_fn *dots32, bool has_mins)
{
    const unpacked_block *block = unpacked;
    if (fresh) zero_rows(y, y_stride);
    for (size_t c = 0; c < n; c += VTI_K_BLOCK, block++) {
        size_t columns = vti_k_columns(c, n);
        int32_t dots[PAIRS][2][4];
        const unsigned char *q = x + 4 * VTI_ACT_Q8K_HEAD;
        const int32_t *scales = (const int32_t *)block->scales;
        dots32(dots[0][0], block->w[0][0], q, scales, columns / 32);
        dots32(dots[4][0], block->w[0][8], q, scales + 16, columns / 32);
        for (size_t tokens = 0; tokens < 2; tokens++) {
            pair_sums sums = load_pair_sums(x + 4 * VTI_ACT_Q8K_SUMS + 32 * tokens);
            float scale[2];
            memcpy(scale, x + 8 * tokens, sizeof scale);
            if (has_mins) scale[0] = -scale[0], scale[1] = -scale[1];
            for (size_t pair = 0; pair < PAIRS; pair += 2) {
                int32x4_t a = vld1q_s32(dots[pair][tokens]), b = vld1q_s32(dots[pair + 1][tokens]);
                float32x4_t first, second;
                if (has_mins) {
                    first = subtract_dots(block, pair, a, sums);
                    second = subtract_dots(block, pair + 1, b, sums);
                } else {
                    first = vmulq_f32(vcvtq_f32_s32(a), block->d[pair]);
                    second = vmulq_f32(vcvtq_f32_s32(b), block->d[pair + 1]);
                }
                add_rows(y + 2 * tokens * y_stride + 2 * pair, y_stride, first, second, scale);
            }
        }
        x += 4 * (VTI_ACT_Q8K_HEAD + columns);
    }
}

static void tile_q45_k(float *y, size_t y_stride, const void *unpacked, const unsigned char *x,
                       size_t n, bool fresh)
{
    tile(y, y_stride, unpacked, x, n, fresh, vti_dots32_i8mm, true);
}

static void tile_q6_k(float *y, size_t y_stride, const void *unpacked, const unsigned char *x,
                      size_t n, bool fresh)
{
    tile(y, y_stride, unpacked, x, n, fresh, vti_dots16_i8mm, false);
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

void vti_kernels_init_k_i8mm(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_Q4_K, matmul_q4_k, "matmul_q4_k_q8k_16x4_i8mm");
    vti_matmul_set(kernels, VTI_Q5_K, matmul_q5_k, "matmul_q5_k_q8k_16x4_i8mm");
    vti_matmul_set(kernels, VTI_Q6_K, matmul_q6_k, "matmul_q6_k_q8k_16x4_i8mm");
}
