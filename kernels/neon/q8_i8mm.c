/* Q8_0, Q4_0, Q5_0 × INT8 activations: groups of four with SMMLA, few tokens with SDOT. */
#include "i8mm_lanes.h"
#include "product.h"

enum { BLOCKS = CHUNK / VTI_Q8_BLOCK };

/* What the tile reads. */
typedef struct unpacked_q8 {
    _Alignas(64) float scales[BLOCKS][VTI_PANEL_ROWS][2]; /* twice each, for two tokens */
    int8_t w[BLOCKS][4][VTI_PANEL_ROWS][8];              /* groups of 8 columns */
} unpacked_q8;

static inline void unpack_scales(float (*to)[2], const unsigned char *halves, float factor)
{
    float32x4_t d[VECTORS];
    load_scales(d, halves);
    for (size_t v = 0; v < VECTORS; v++, to += 4) {
        float32x4_t scaled = vmulq_n_f32(d[v], factor);
        vst1q_f32(to[0], vzip1q_f32(scaled, scaled));
        vst1q_f32(to[2], vzip2q_f32(scaled, scaled));
    }
}

/* Four rows of two neighbouring groups of 4 columns → of one group of 8. */
static inline void store_zipped(int8_t (*w)[8], uint8x16_t first, uint8x16_t second)
{
    uint32x4_t a = vreinterpretq_u32_u8(first), b = vreinterpretq_u32_u8(second);
    vst1q_s8(w[0], vreinterpretq_s8_u32(vzip1q_u32(a, b)));
    vst1q_s8(w[2], vreinterpretq_s8_u32(vzip2q_u32(a, b)));
}

static void unpack_q8_0(void *unpacked, const unsigned char *panel, size_t c, size_t n,
                        size_t groups)
{
    (void)groups;
    unpacked_q8 *to = unpacked;
    panel += c / VTI_Q8_BLOCK * VTI_Q8_0_BYTES;
    for (size_t b = 0; b < n / VTI_Q8_BLOCK; b++, panel += VTI_Q8_0_BYTES) {
        const unsigned char *from = panel + VTI_SCALES_BYTES;
        unpack_scales(to->scales[b], panel, 1);
        for (size_t g = 0; g < 4; g++, from += 128)
            for (size_t v = 0; v < VECTORS; v++)
                store_zipped(&to->w[b][g][4 * v], vld1q_u8(from + 16 * v),
                             vld1q_u8(from + 64 + 16 * v));
    }
}

/* Two rows of a group of 8 columns and, in the upper halves, the ones eight rows further down, all
 * to 16 × (q - 8). */
static inline void store_halves(int8_t (*w)[8], uint32x4_t zipped)
{
    uint8x16_t bytes = vreinterpretq_u8_u32(zipped);
    uint8x16_t lower = veorq_u8(vshlq_n_u8(bytes, 4), vdupq_n_u8(0x80));
    vst1q_s8(w[0], vreinterpretq_s8_u8(lower));
    vst1q_s8(w[8], vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(0xf0))));
}

static void unpack_q4_0(void *unpacked, const unsigned char *panel, size_t c, size_t n,
                        size_t groups)
{
    (void)groups;
    unpacked_q8 *to = unpacked;
    panel += c / VTI_Q8_BLOCK * VTI_Q4_0_BYTES;
    for (size_t b = 0; b < n / VTI_Q8_BLOCK; b++, panel += VTI_Q4_0_BYTES) {
        const unsigned char *from = panel + VTI_SCALES_BYTES;
        unpack_scales(to->scales[b], panel, 0.0625f);
        for (size_t g = 0; g < 4; g++, from += 64) {
            for (size_t v = 0; v < 2; v++) {
                uint32x4_t first = vreinterpretq_u32_u8(vld1q_u8(from + 16 * v));
                uint32x4_t second = vreinterpretq_u32_u8(vld1q_u8(from + 32 + 16 * v));
                store_halves(&to->w[b][g][4 * v], vzip1q_u32(first, second));
                store_halves(&to->w[b][g][4 * v + 2], vzip2q_u32(first, second));
            }
        }
    }
}

static void unpack_q5_0(void *unpacked, const unsigned char *panel, size_t c, size_t n,
                        size_t groups)
{
    (void)groups;
    unpacked_q8 *to = unpacked;
    panel += c / VTI_Q8_BLOCK * VTI_Q5_0_BYTES;
    for (size_t b = 0; b < n / VTI_Q8_BLOCK; b++, panel += VTI_Q5_0_BYTES) {
        unpack_scales(to->scales[b], panel, 1);
        unpack_sub_block(to->w[b], panel + VTI_SCALES_BYTES, 8, 1, 16);
    }
}

static void tile_q8(float *y, size_t y_stride, const void *unpacked, const unsigned char *x,
                    size_t n, bool fresh)
{
    const unpacked_q8 *from = unpacked;
    size_t stride_bytes = y_stride * sizeof *y, blocks = n / VTI_Q8_BLOCK;
    if (fresh) zero_rows(y, y_stride);
    vti_tile_q8_i8mm(y, stride_bytes, from->scales[0][0], from->w[0][0][0], x, blocks);
    vti_tile_q8_i8mm(y + 8, stride_bytes, from->scales[0][8], from->w[0][0][8], x, blocks);
}

#define MATMUL(type)                                                                               \
    static void matmul_##type(float *y, size_t y_stride, const void *w, const void *x,             \
                              size_t rows, size_t cols, size_t row_begin, size_t row_end,          \
                              size_t tokens, bool accumulate)                                      \
    {                                                                                              \
        static const product p = {vti_panel_bytes_##type, vti_act_q8_bytes, unpack_##type,         \
                                  tile_q8, vti_few_##type##_dotprod};                              \
        unpacked_q8 unpacked;                                                                      \
        (void)rows;                                                                                \
        multiply(&p, &unpacked, y, y_stride, w, x, cols, row_begin, row_end, tokens, accumulate);  \
    }

MATMUL(q8_0)
MATMUL(q4_0)
MATMUL(q5_0)

void vti_kernels_init_q8_i8mm(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_Q8_0, matmul_q8_0, "matmul_q8_0_q8_16x4_i8mm");
    vti_matmul_set(kernels, VTI_Q4_0, matmul_q4_0, "matmul_q4_0_q8_16x4_i8mm");
    vti_matmul_set(kernels, VTI_Q5_0, matmul_q5_0, "matmul_q5_0_q8_16x4_i8mm");
}
