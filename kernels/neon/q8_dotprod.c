/* Q8_0, Q4_0, Q5_0 × INT8 activations with SDOT. */
#include "dotprod_lanes.h"
#include "product.h"

enum { BLOCKS = CHUNK / VTI_Q8_BLOCK };

/* --- few tokens ------------------------------------------------------------------------------- */

ALWAYS_INLINE void few_q8_0(float *y, size_t y_stride, const unsigned char *panel,
                            const unsigned char *x, size_t cols, size_t m, bool accumulate)
{
    float32x4_t sums[3][VECTORS];
    load_sums(sums, y, y_stride, m, accumulate);
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        int32x4_t dots[3][VECTORS];
        const unsigned char *w = panel + VTI_SCALES_BYTES, *q = x + 8 * m;
        for (size_t t = 0; t < m; t++)
            for (size_t v = 0; v < VECTORS; v++) dots[t][v] = vdupq_n_s32(MAGIC);
        for (size_t g = 0; g < 8; g += 2) {
            for (size_t t = 0; t < m; t++) {
                int8x8_t a = vreinterpret_s8_u8(vld1_u8(q + (g / 2 * m + t) * 8));
                for (size_t v = 0; v < VECTORS; v++)
                    dots[t][v] = vdotq_lane_s32(dots[t][v], load_i8(w + g * 64 + 16 * v), a, 0);
                for (size_t v = 0; v < VECTORS; v++)
                    dots[t][v] =
                        vdotq_lane_s32(dots[t][v], load_i8(w + g * 64 + 64 + 16 * v), a, 1);
            }
        }
        float32x4_t d[VECTORS];
        load_scales(d, panel);
        for (size_t t = 0; t < m; t++) {
            float scale = load_float(x + 4 * t);
            for (size_t v = 0; v < VECTORS; v++) {
                float32x4_t dot = vsubq_f32(as_float(dots[t][v]), vdupq_n_f32(magic));
                sums[t][v] = vfmaq_n_f32(sums[t][v], vmulq_f32(dot, d[v]), scale);
            }
        }
        panel += VTI_Q8_0_BYTES;
        x += m * VTI_ACT_Q8_BYTES;
    }
    store_sums(sums, y, y_stride, m);
}

/* A byte of a nibble tile is 16 × upper + lower, with the lower half unsigned: q = lower - 8. So
 * the upper rows' dot product × 16 is that of the whole bytes minus that of the lower halves. */
ALWAYS_INLINE void few_q4_0(float *y, size_t y_stride, const unsigned char *panel,
                            const unsigned char *x, size_t cols, size_t m, bool accumulate)
{
    const int8x16_t mask = vdupq_n_s8(15);
    float32x4_t sums[3][VECTORS];
    load_sums(sums, y, y_stride, m, accumulate);
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        int32x4_t lower[3][2], both[3][2];
        const unsigned char *w = panel + VTI_SCALES_BYTES, *q = x + 8 * m;
        for (size_t t = 0; t < m; t++)
            for (size_t v = 0; v < 2; v++) lower[t][v] = both[t][v] = vdupq_n_s32(MAGIC);
        for (size_t g = 0; g < 8; g += 2) {
            int8x16_t w0 = load_i8(w + g * 32), w1 = load_i8(w + g * 32 + 16);
            int8x16_t w2 = load_i8(w + g * 32 + 32), w3 = load_i8(w + g * 32 + 48);
            for (size_t t = 0; t < m; t++) {
                int8x8_t a = vreinterpret_s8_u8(vld1_u8(q + (g / 2 * m + t) * 8));
                lower[t][0] = vdotq_lane_s32(lower[t][0], vandq_s8(w0, mask), a, 0);
                both[t][0] = vdotq_lane_s32(both[t][0], w0, a, 0);
                lower[t][1] = vdotq_lane_s32(lower[t][1], vandq_s8(w1, mask), a, 0);
                both[t][1] = vdotq_lane_s32(both[t][1], w1, a, 0);
                lower[t][0] = vdotq_lane_s32(lower[t][0], vandq_s8(w2, mask), a, 1);
                both[t][0] = vdotq_lane_s32(both[t][0], w2, a, 1);
                lower[t][1] = vdotq_lane_s32(lower[t][1], vandq_s8(w3, mask), a, 1);
                both[t][1] = vdotq_lane_s32(both[t][1], w3, a, 1);
            }
        }
        float32x4_t d[VECTORS];
        load_scales(d, panel);
        for (size_t t = 0; t < m; t++) {
            float scale = load_float(x + 4 * t), scale16 = scale * 0.0625f;
            int32_t offset = MAGIC - (load_i32(x + 4 * m + 4 * t) >> 4); /* + 8 × sum */
            float32x4_t start = as_float(vdupq_n_s32(offset));
            for (size_t v = 0; v < 2; v++) {
                float32x4_t low = as_float(lower[t][v]);
                float32x4_t high = vsubq_f32(as_float(both[t][v]), low);
                low = vsubq_f32(low, start);
                sums[t][v] = vfmaq_n_f32(sums[t][v], vmulq_f32(low, d[v]), scale);
                sums[t][v + 2] = vfmaq_n_f32(sums[t][v + 2], vmulq_f32(high, d[v + 2]), scale16);
            }
        }
        panel += VTI_Q4_0_BYTES;
        x += m * VTI_ACT_Q8_BYTES;
    }
    store_sums(sums, y, y_stride, m);
}

/* Weights are read as q = weight + 16: accumulators start at -16 × the sum of the activations. */
ALWAYS_INLINE void few_q5_0(float *y, size_t y_stride, const unsigned char *panel,
                            const unsigned char *x, size_t cols, size_t m, bool accumulate)
{
    float32x4_t sums[3][VECTORS];
    load_sums(sums, y, y_stride, m, accumulate);
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        int32x4_t dots[3][VECTORS];
        float32x4_t d[VECTORS];
        for (size_t t = 0; t < m; t++)
            set_dots(&dots[t], 1, MAGIC + (load_i32(x + 4 * (m + t)) >> 3));
        dot_sub_block(dots, panel + VTI_SCALES_BYTES, x + 8 * m, m, 8, 1);
        load_scales(d, panel);
        for (size_t t = 0; t < m; t++) {
            float32x4_t dot[VECTORS];
            EACH_VECTOR(v) dot[v] = vsubq_f32(as_float(dots[t][v]), vdupq_n_f32(magic));
            EACH_VECTOR(v) dot[v] = vmulq_f32(dot[v], d[v]);
            EACH_VECTOR(v) sums[t][v] = vfmaq_n_f32(sums[t][v], dot[v], load_float(x + 4 * t));
        }
        panel += VTI_Q5_0_BYTES;
        x += m * VTI_ACT_Q8_BYTES;
    }
    store_sums(sums, y, y_stride, m);
}

void vti_few_q5_0_dotprod(float *y, size_t y_stride, const unsigned char *panel,
                          const unsigned char *x, size_t cols, size_t m, bool accumulate)
{
    if (m == 1)
        few_q5_0(y, y_stride, panel, x, cols, 1, accumulate);
    else if (m == 2)
        few_q5_0(y, y_stride, panel, x, cols, 2, accumulate);
    else
        few_q5_0(y, y_stride, panel, x, cols, 3, accumulate);
}

#define FEW(type)                                                                                  \
    void vti_few_##type##_dotprod(float *y, size_t y_stride, const unsigned char *panel,           \
                                  const unsigned char *x, size_t cols, size_t m, bool accumulate)  \
    {                                                                                              \
        if (m == 1) {                                                                              \
            if (!accumulate) memset(y, 0, VTI_PANEL_ROWS * sizeof *y);                             \
            vti_gemv_##type##_dotprod(y, panel, x, cols / VTI_Q8_BLOCK);                           \
        } else if (m == 2)                                                                         \
            few_##type(y, y_stride, panel, x, cols, 2, accumulate);                                \
        else                                                                                       \
            few_##type(y, y_stride, panel, x, cols, 3, accumulate);                                \
    }

FEW(q8_0)
FEW(q4_0)

/* --- groups of four --------------------------------------------------------------------------- */

/* From so many groups of tokens on it is worth keeping the lower halves of Q4_0. */
enum { MANY_GROUPS = 8 };

/* What the tiles read beside the panel itself. */
typedef struct unpacked_q8 {
    _Alignas(64) float scales[BLOCKS][VTI_PANEL_ROWS];
    union {
        unsigned char lower[BLOCKS][2][8][16]; /* Q4_0: halves of [8 groups][4 rows][4] */
        unsigned char w[BLOCKS][VTI_TILE_BYTES]; /* Q5_0 */
    };
    const unsigned char *panel;
    bool has_lower;
} unpacked_q8;

static void unpack_q8_0(void *unpacked, const unsigned char *panel, size_t c, size_t n,
                        size_t groups)
{
    (void)groups;
    unpacked_q8 *to = unpacked;
    to->panel = panel += c / VTI_Q8_BLOCK * VTI_Q8_0_BYTES;
    for (size_t b = 0; b < n / VTI_Q8_BLOCK; b++, panel += VTI_Q8_0_BYTES) {
        float32x4_t d[VECTORS];
        load_scales(d, panel);
        for (size_t v = 0; v < VECTORS; v++) vst1q_f32(to->scales[b] + 4 * v, d[v]);
    }
}

static inline void unpack_lower(unsigned char lower[2][8][16], const unsigned char *tile)
{
    for (size_t g = 0; g < 8; g++)
        for (size_t v = 0; v < 2; v++)
            vst1q_u8(lower[v][g], vandq_u8(vld1q_u8(tile + g * 32 + v * 16), vdupq_n_u8(15)));
}

static void unpack_q4_0(void *unpacked, const unsigned char *panel, size_t c, size_t n,
                        size_t groups)
{
    unpacked_q8 *to = unpacked;
    to->panel = panel += c / VTI_Q8_BLOCK * VTI_Q4_0_BYTES;
    to->has_lower = groups >= MANY_GROUPS;
    for (size_t b = 0; b < n / VTI_Q8_BLOCK; b++, panel += VTI_Q4_0_BYTES) {
        float32x4_t d[VECTORS];
        load_scales(d, panel);
        EACH_VECTOR(v) vst1q_f32(to->scales[b] + 4 * v, v < 2 ? d[v] : vmulq_n_f32(d[v], 0.0625f));
        if (to->has_lower) unpack_lower(to->lower[b], panel + VTI_SCALES_BYTES);
    }
}

static void unpack_q5_0(void *unpacked, const unsigned char *panel, size_t c, size_t n,
                        size_t groups)
{
    (void)groups;
    unpacked_q8 *to = unpacked;
    panel += c / VTI_Q8_BLOCK * VTI_Q5_0_BYTES;
    for (size_t b = 0; b < n / VTI_Q8_BLOCK; b++, panel += VTI_Q5_0_BYTES) {
        float32x4_t d[VECTORS];
        load_scales(d, panel);
        EACH_VECTOR(v) vst1q_f32(to->scales[b] + 4 * v, d[v]);
        unpack_sub_block((int8_t *)to->w[b], panel + VTI_SCALES_BYTES, 8, 1, 16);
    }
}

static inline void tile_i8(float *y, size_t y_stride, const unpacked_q8 *from,
                           const unsigned char *w, size_t w_bytes, const unsigned char *x,
                           size_t n, bool fresh)
{
    size_t stride_bytes = y_stride * sizeof *y, blocks = n / VTI_Q8_BLOCK;
    if (fresh) zero_rows(y, y_stride);
    vti_tile_q8_0_dotprod(y, stride_bytes, from->scales[0], w, x, blocks, w_bytes);
    vti_tile_q8_0_dotprod(y + 8, stride_bytes, from->scales[0] + 8, w + 32, x, blocks, w_bytes);
}

static void tile_q8_0(float *y, size_t y_stride, const void *unpacked, const unsigned char *x,
                      size_t n, bool fresh)
{
    const unpacked_q8 *from = unpacked;
    tile_i8(y, y_stride, from, from->panel + VTI_SCALES_BYTES, VTI_Q8_0_BYTES, x, n, fresh);
}

static void tile_q5_0(float *y, size_t y_stride, const void *unpacked, const unsigned char *x,
                      size_t n, bool fresh)
{
    const unpacked_q8 *from = unpacked;
    tile_i8(y, y_stride, from, from->w[0], VTI_TILE_BYTES, x, n, fresh);
}

static void tile_q4_0(float *y, size_t y_stride, const void *unpacked, const unsigned char *x,
                      size_t n, bool fresh)
{
    const unpacked_q8 *from = unpacked;
    const unsigned char *w = from->panel + VTI_SCALES_BYTES;
    size_t stride_bytes = y_stride * sizeof *y, blocks = n / VTI_Q8_BLOCK;
    if (fresh) zero_rows(y, y_stride);
    const unsigned char *lower = from->has_lower ? from->lower[0][0][0] : NULL;
    vti_tile_q4_0_dotprod(y, stride_bytes, from->scales[0], w, x, blocks, lower);
    if (lower) lower = from->lower[0][1][0];
    vti_tile_q4_0_dotprod(y + 4, stride_bytes, from->scales[0] + 4, w + 16, x, blocks, lower);
}

/* --- table ------------------------------------------------------------------------------------ */

#define MATMUL(type)                                                                               \
    static void matmul_##type(float *y, size_t y_stride, const void *w, const void *x,             \
                              size_t rows, size_t cols, size_t row_begin, size_t row_end,          \
                              size_t tokens, bool accumulate)                                      \
    {                                                                                              \
        static const product p = {vti_panel_bytes_##type, vti_act_q8_bytes, unpack_##type,         \
                                  tile_##type, vti_few_##type##_dotprod};                          \
        unpacked_q8 unpacked;                                                                      \
        (void)rows;                                                                                \
        multiply(&p, &unpacked, y, y_stride, w, x, cols, row_begin, row_end, tokens, accumulate);  \
    }

MATMUL(q8_0)
MATMUL(q4_0)
MATMUL(q5_0)

void vti_kernels_init_q8_dotprod(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_Q8_0, matmul_q8_0, "matmul_q8_0_q8_16x4_dotprod");
    vti_matmul_set(kernels, VTI_Q4_0, matmul_q4_0, "matmul_q4_0_q8_16x4_dotprod");
    vti_matmul_set(kernels, VTI_Q5_0, matmul_q5_0, "matmul_q5_0_q8_16x4_dotprod");
}
