/* INT8 activations with a scale per 32 columns × Q8_0, Q4_0, Q5_0. Block sums are exact and are
 * scaled and added in the order of columns, in one token as in many. */
#include "int8_avx2.h"

#include "../scalar.h"
#include "x86.h"

enum {
    CHUNK_BLOCKS = 24, /* of a half panel that are spread out at once: 7 KB */
};

/* What the types differ in; constants where they are used. */
typedef struct form {
    size_t block_bytes;
    size_t span;    /* groups whose products can be added up as INT16 */
    bool is_signed; /* weights INT8 as they are, else unsigned with an offset: */
    int offset_log; /* they stand for q - 2^offset_log */
    __m256i (*load)(const unsigned char *block, size_t group, size_t half);
} form;

static inline __m256i load_q8_0(const unsigned char *block, size_t group, size_t half)
{
    return load_256(block + VTI_SCALES_BYTES + group * 64 + half * 32);
}

static inline __m256i load_q4_0(const unsigned char *block, size_t group, size_t half)
{
    return load_nibbles(block + VTI_SCALES_BYTES + group * 32, half, true);
}

static inline __m256i load_q5_0(const unsigned char *block, size_t group, size_t half)
{
    return load_fives(block + VTI_SCALES_BYTES, group, half);
}

static const form q8_0 = {VTI_Q8_0_BYTES, 1, true, 0, load_q8_0};
static const form q4_0 = {VTI_Q4_0_BYTES, 8, false, 3, load_q4_0};
static const form q5_0 = {VTI_Q5_0_BYTES, 4, false, 4, load_q5_0};

/* Blocks of half a panel. */
typedef struct chunk {
    _Alignas(32) unsigned char w[CHUNK_BLOCKS][8][32];
    _Alignas(32) float scales[CHUNK_BLOCKS][HALF_ROWS];
} chunk;

/* Pairs of products as INT16. |w| <= 128 and |x| <= 127, so two of them fit. */
static inline __m256i multiply(__m256i w, __m256i x, bool is_signed)
{
    if (!is_signed) return _mm256_maddubs_epi16(w, x);
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

/* bias: of the activations, -128 × sum. */
static inline __m256i start_dot(const unsigned char *bias, const form f)
{
    return f.is_signed ? _mm256_setzero_si256()
                       : _mm256_srai_epi32(broadcast_i32(bias), 7 - f.offset_log);
}

static inline __m256i widen(__m256i dot, __m256i products)
{
    return _mm256_add_epi32(dot, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
}

/* --- many tokens ------------------------------------------------------------------------------ */

static inline __attribute__((always_inline)) void
spread(chunk *to, const unsigned char *block, size_t half, size_t blocks, const form f)
{
    for (size_t b = 0; b < blocks; b++, block += f.block_bytes) {
        for (size_t group = 0; group < 8; group++)
            _mm256_store_si256((void *)to->w[b][group], f.load(block, group, half));
        _mm256_store_ps(to->scales[b], load_scales(block, half));
    }
}

/* One group of m tokens (a constant where this is inlined) × the chunk, added to y unless `fresh`.
 * x: the chunk's first block of the group. */
static inline __attribute__((always_inline)) void
tile(float *y, size_t y_stride, __m256i rows, const chunk *w, size_t blocks,
     const unsigned char *x, bool fresh, const form f, size_t m)
{
    __m256 sums[VTI_TOKEN_GROUP];
#pragma GCC unroll 4
    for (size_t t = 0; t < m; t++)
        sums[t] = fresh ? _mm256_setzero_ps() : _mm256_maskload_ps(y + t * y_stride, rows);
    for (size_t b = 0; b < blocks; b++, x += m * VTI_ACT_Q8_BYTES) {
        __m256i dots[VTI_TOKEN_GROUP], span[VTI_TOKEN_GROUP];
#pragma GCC unroll 4
        for (size_t t = 0; t < m; t++) dots[t] = start_dot(x + (m + t) * 4, f);
#pragma GCC unroll 8
        for (size_t group = 0; group < 8; group++) {
            __m256i column = _mm256_load_si256((const void *)w->w[b][group]);
            const unsigned char *q = x + 8 * m + group / 2 * m * 8 + group % 2 * 4;
#pragma GCC unroll 4
            for (size_t t = 0; t < m; t++) {
                __m256i product = multiply(column, broadcast_i32(q + t * 8), f.is_signed);
                span[t] = group % f.span ? add_i16(span[t], product) : product;
                if ((group + 1) % f.span == 0) dots[t] = widen(dots[t], span[t]);
            }
        }
        __m256 scales = _mm256_load_ps(w->scales[b]);
#pragma GCC unroll 4
        for (size_t t = 0; t < m; t++) {
            __m256 scale = _mm256_mul_ps(scales, broadcast_f32(x + t * 4));
            sums[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[t]), scale, sums[t]);
        }
    }
#pragma GCC unroll 4
    for (size_t t = 0; t < m; t++) _mm256_maskstore_ps(y + t * y_stride, rows, sums[t]);
}

static inline __attribute__((always_inline)) void
chunk_tokens(float *y, size_t y_stride, __m256i rows, const chunk *w, size_t blocks,
             const unsigned char *x, size_t token_bytes, size_t first, size_t tokens, bool fresh,
             const form f)
{
#define TILE(m)                                                                                    \
    tile(y, y_stride, rows, w, blocks, x + first * (m) * VTI_ACT_Q8_BYTES, fresh, f, m)
    for (size_t t = 0; t < tokens; t += VTI_TOKEN_GROUP) {
        switch (vti_group_tokens(t, tokens)) {
        case 1: TILE(1); break;
        case 2: TILE(2); break;
        case 3: TILE(3); break;
        default: TILE(4); break;
        }
        y += VTI_TOKEN_GROUP * y_stride;
        x += VTI_TOKEN_GROUP * token_bytes;
    }
#undef TILE
}

static inline __attribute__((always_inline)) void
many(float *y, size_t y_stride, const unsigned char *w, const unsigned char *x, size_t cols,
     size_t row_begin, size_t row_end, size_t tokens, bool accumulate, const form f)
{
    size_t all = cols / VTI_Q8_BLOCK;
    chunk spread_out;
    for (size_t first = 0; first < all; first += CHUNK_BLOCKS) {
        size_t blocks = all - first < CHUNK_BLOCKS ? all - first : CHUNK_BLOCKS;
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
            const unsigned char *panel = w + (row / VTI_PANEL_ROWS * all + first) * f.block_bytes;
#pragma GCC unroll 2
            for (size_t half = 0; half < 2; half++) {
                spread(&spread_out, panel, half, blocks, f);
                chunk_tokens(y + row + half * HALF_ROWS, y_stride,
                             half_mask(vti_panel_rows(row, row_end), half), &spread_out, blocks, x,
                             all * VTI_ACT_Q8_BYTES, first, tokens, first == 0 && !accumulate, f);
            }
        }
    }
}

/* --- one token -------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) void
single(float *y, const unsigned char *block, const unsigned char *x, size_t cols, size_t rows,
       bool accumulate, const form f)
{
    __m256 sums[2];
    for (size_t half = 0; half < 2; half++)
        sums[half] = accumulate ? _mm256_maskload_ps(y + half * HALF_ROWS, half_mask(rows, half))
                                : _mm256_setzero_ps();
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        __m256i dots[2] = {start_dot(x + 4, f), start_dot(x + 4, f)}, span[2];
#pragma GCC unroll 8
        for (size_t group = 0; group < 8; group++) {
            __m256i q = broadcast_i32(x + 8 + group * 4);
#pragma GCC unroll 2
            for (size_t half = 0; half < 2; half++) {
                __m256i product = multiply(f.load(block, group, half), q, f.is_signed);
                span[half] = group % f.span ? add_i16(span[half], product) : product;
                if ((group + 1) % f.span == 0) dots[half] = widen(dots[half], span[half]);
            }
        }
#pragma GCC unroll 2
        for (size_t half = 0; half < 2; half++) {
            __m256 scale = _mm256_mul_ps(load_scales(block, half), broadcast_f32(x));
            sums[half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[half]), scale, sums[half]);
        }
        block += f.block_bytes;
        x += VTI_ACT_Q8_BYTES;
    }
    for (size_t half = 0; half < 2; half++)
        _mm256_maskstore_ps(y + half * HALF_ROWS, half_mask(rows, half), sums[half]);
}

/* --- table ------------------------------------------------------------------------------------ */

#define MATMUL(type)                                                                               \
    static void matmul_##type(float *y, size_t y_stride, const void *w, const void *x,             \
                              size_t rows, size_t cols, size_t row_begin, size_t row_end,          \
                              size_t tokens, bool accumulate)                                      \
    {                                                                                              \
        (void)rows;                                                                                \
        if (tokens > 1) {                                                                          \
            many(y, y_stride, w, x, cols, row_begin, row_end, tokens, accumulate, type);           \
            return;                                                                                \
        }                                                                                          \
        size_t panel_bytes = vti_panel_bytes_##type(cols);                                         \
        const unsigned char *panel = w;                                                            \
        panel += row_begin / VTI_PANEL_ROWS * panel_bytes;                                         \
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS, panel += panel_bytes)   \
            single(y + row, panel, x, cols, vti_panel_rows(row, row_end), accumulate, type);       \
    }

MATMUL(q8_0)
MATMUL(q4_0)
MATMUL(q5_0)

void vti_kernels_init_matmul_q8_avx2(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_Q8_0, matmul_q8_0, "matmul_q8_0_q8_8x4_avx2");
    vti_matmul_set(kernels, VTI_Q4_0, matmul_q4_0, "matmul_q4_0_q8_8x4_avx2");
    vti_matmul_set(kernels, VTI_Q5_0, matmul_q5_0, "matmul_q5_0_q8_8x4_avx2");
}
