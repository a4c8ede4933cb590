/* INT8 activations with a scale per 32 columns × Q8_0, Q4_0, Q5_0.
 *
 * VPDPBUSD multiplies unsigned by signed bytes, so weights are read as q + 128 and accumulators
 * start at the activations' -128 × sum. A lane is a row; 4 activations are broadcast to all lanes.
 * Every block's integer sum is exact and is scaled and added in the order of columns, in one token
 * as in many, so that a token's result does not depend on the others. */
#include <immintrin.h>
#include <string.h>

#include "../layout.h"
#include "../scalar.h"
#include "vnni.h"
#include "x86.h"

enum {
    TILE_GROUPS = 3,    /* 12 tokens: 12 integer and 12 float accumulators */
    CHUNK_BLOCKS = 32,  /* of a panel that are spread out at once: 18 KB */
};

/* Blocks of a panel with weights as q + 128. */
typedef struct chunk {
    _Alignas(64) unsigned char w[CHUNK_BLOCKS][VTI_TILE_BYTES];
    _Alignas(64) float scales[CHUNK_BLOCKS][VTI_PANEL_ROWS];
} chunk;

/* Group of 4 columns of 16 rows, as q + 128. */
typedef __m512i load_fn(const unsigned char *block, size_t group);

static inline __m512i load_q8_0(const unsigned char *block, size_t group)
{
    __m512i w = _mm512_loadu_si512(block + VTI_SCALES_BYTES + group * 64);
    return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
}

static inline __m512i load_q4_0(const unsigned char *block, size_t group)
{
    __m512i w = load_nibbles(block + VTI_SCALES_BYTES + group * 32, true);
    return _mm512_add_epi8(w, _mm512_set1_epi8(120));
}

static inline __m512i load_q5_0(const unsigned char *block, size_t group)
{
    return _mm512_add_epi8(load_fives(block + VTI_SCALES_BYTES, group), _mm512_set1_epi8(112));
}

static inline __attribute__((always_inline)) void
spread(chunk *to, const unsigned char *panel, size_t block_bytes, load_fn *load, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++, panel += block_bytes) {
#pragma GCC unroll 8
        for (size_t group = 0; group < 8; group++)
            _mm512_store_si512(to->w[b] + group * 64, load(panel, group));
        _mm512_store_ps(to->scales[b], load_scales(panel));
    }
}

/* `groups` groups of m tokens × the chunk, added to y unless `fresh`. */
static inline __attribute__((always_inline)) void
tile(float *y, size_t y_stride, __mmask16 rows, const chunk *w, size_t blocks,
     const unsigned char *x, size_t group_stride, bool fresh, size_t groups, size_t m)
{
    __m512 sums[TILE_GROUPS * VTI_TOKEN_GROUP];
#pragma GCC unroll 12
    for (size_t t = 0; t < groups * m; t++)
        sums[t] = fresh ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(rows, y + t * y_stride);
    for (size_t b = 0; b < blocks; b++, x += m * VTI_ACT_Q8_BYTES) {
        __m512i dots[TILE_GROUPS * VTI_TOKEN_GROUP];
#pragma GCC unroll 12
        for (size_t t = 0; t < groups * m; t++)
            dots[t] = broadcast_i32(x + t / m * group_stride + (m + t % m) * 4);
#pragma GCC unroll 8
        for (size_t group = 0; group < 8; group++) {
            __m512i column = _mm512_load_si512(w->w[b] + group * 64);
#pragma GCC unroll 12
            for (size_t t = 0; t < groups * m; t++)
                dots[t] = _mm512_dpbusd_epi32(
                    dots[t], column,
                    broadcast_i32(x + t / m * group_stride + 8 * m + (group / 2 * m + t % m) * 8 +
                                  group % 2 * 4));
        }
        __m512 scales = _mm512_load_ps(w->scales[b]);
#pragma GCC unroll 12
        for (size_t t = 0; t < groups * m; t++) {
            __m512 scale = broadcast_f32(x + t / m * group_stride + t % m * 4);
            sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t]), _mm512_mul_ps(scales, scale),
                                      sums[t]);
        }
    }
#pragma GCC unroll 12
    for (size_t t = 0; t < groups * m; t++)
        _mm512_mask_storeu_ps(y + t * y_stride, rows, sums[t]);
}

/* All tokens × the chunk, which begins with block `first` of the row. */
static void chunk_tokens(float *y, size_t y_stride, __mmask16 rows, const chunk *w, size_t blocks,
                         const unsigned char *x, size_t token_bytes, size_t first, size_t tokens,
                         bool fresh, upcoming next)
{
    size_t stride = VTI_TOKEN_GROUP * token_bytes;
#define TILE(groups, m)                                                                            \
    tile(y, y_stride, rows, w, blocks, x + first * (m) * VTI_ACT_Q8_BYTES, stride, fresh, groups, m)
    while (tokens > 0) {
        size_t groups = tile_groups(tokens, TILE_GROUPS);
        fetch_step(&next);
        size_t done = groups ? groups * VTI_TOKEN_GROUP : tokens;
        switch (groups ? groups : 10 + tokens) {
        case 1: TILE(1, 4); break;
        case 2: TILE(2, 4); break;
        case 3: TILE(3, 4); break;
        case 11: TILE(1, 1); break;
        case 12: TILE(1, 2); break;
        default: TILE(1, 3); break;
        }
        y += done * y_stride;
        x += done * token_bytes;
        tokens -= done;
    }
#undef TILE
}

static inline __attribute__((always_inline)) void
many(float *y, size_t y_stride, const unsigned char *w, size_t block_bytes, load_fn *load,
     const unsigned char *x, size_t cols, size_t row_begin, size_t row_end, size_t tokens,
     bool accumulate)
{
    size_t all = cols / VTI_Q8_BLOCK;
    chunk spread_out;
    for (size_t first = 0; first < all; first += CHUNK_BLOCKS) {
        size_t blocks = all - first < CHUNK_BLOCKS ? all - first : CHUNK_BLOCKS;
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
            const unsigned char *panel = w + (row / VTI_PANEL_ROWS * all + first) * block_bytes;
            bool last = row + VTI_PANEL_ROWS >= row_end;
            upcoming next = fetch_later(panel + all * block_bytes, last ? 0 : blocks * block_bytes,
                                        tokens, TILE_GROUPS * VTI_TOKEN_GROUP);
            spread(&spread_out, panel, block_bytes, load, blocks);
            chunk_tokens(y + row, y_stride, row_mask(row, row_end), &spread_out, blocks, x,
                         all * VTI_ACT_Q8_BYTES, first, tokens, first == 0 && !accumulate, next);
        }
    }
}

/* Integer sum of one block and one token, exact. */
typedef __m512i dot_fn(const unsigned char *block, const unsigned char *x);

static inline __m512i dot_q8_0(const unsigned char *block, const unsigned char *x)
{
    __m512i dot = broadcast_i32(x + 4);
#pragma GCC unroll 8
    for (size_t group = 0; group < 8; group++)
        dot = _mm512_dpbusd_epi32(dot, load_q8_0(block, group), broadcast_i32(x + 8 + group * 4));
    return dot;
}

static inline __m512i dot_q4_0(const unsigned char *block, const unsigned char *x)
{
    return dot_nibbles(block + VTI_SCALES_BYTES, x + 8, load_i32(x + 4) >> 4); /* -8 × sum */
}

static inline __m512i dot_q5_0(const unsigned char *block, const unsigned char *x)
{
    return dot_fives(block + VTI_SCALES_BYTES, x + 8, load_i32(x + 4) >> 3); /* -16 × sum */
}

/* One token × one panel. */
static inline __attribute__((always_inline)) void
single(float *y, const unsigned char *block, size_t block_bytes, dot_fn *dot,
       const unsigned char *x, size_t cols, __mmask16 rows, bool accumulate)
{
    __m512 sum = accumulate ? _mm512_maskz_loadu_ps(rows, y) : _mm512_setzero_ps();
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        __m512 scale = _mm512_mul_ps(load_scales(block), broadcast_f32(x));
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot(block, x)), scale, sum);
        block += block_bytes;
        x += VTI_ACT_Q8_BYTES;
    }
    _mm512_mask_storeu_ps(y, rows, sum);
}

static inline __attribute__((always_inline)) void
matmul(float *y, size_t y_stride, const unsigned char *w, size_t block_bytes, load_fn *load,
       dot_fn *dot, const unsigned char *x, size_t cols, size_t row_begin, size_t row_end,
       size_t tokens, bool accumulate)
{
    if (tokens > 1) {
        many(y, y_stride, w, block_bytes, load, x, cols, row_begin, row_end, tokens, accumulate);
        return;
    }
    size_t panel_bytes = cols / VTI_Q8_BLOCK * block_bytes;
    w += row_begin / VTI_PANEL_ROWS * panel_bytes;
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS, w += panel_bytes)
        single(y + row, w, block_bytes, dot, x, cols, row_mask(row, row_end), accumulate);
}

#define MATMUL(type, block_bytes)                                                                  \
    static void matmul_##type(float *y, size_t y_stride, const void *w, const void *x,             \
                              size_t rows, size_t cols, size_t row_begin, size_t row_end,          \
                              size_t tokens, bool accumulate)                                      \
    {                                                                                              \
        (void)rows;                                                                                \
        matmul(y, y_stride, w, block_bytes, load_##type, dot_##type, x, cols, row_begin, row_end,  \
               tokens, accumulate);                                                                \
    }

MATMUL(q8_0, VTI_Q8_0_BYTES)
MATMUL(q4_0, VTI_Q4_0_BYTES)
MATMUL(q5_0, VTI_Q5_0_BYTES)

void vti_kernels_init_matmul_q8_avx512vnni(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_Q8_0, matmul_q8_0, "matmul_q8_0_q8_16x12_avx512vnni");
    vti_matmul_set(kernels, VTI_Q4_0, matmul_q4_0, "matmul_q4_0_q8_16x12_avx512vnni");
    vti_matmul_set(kernels, VTI_Q5_0, matmul_q5_0, "matmul_q5_0_q8_16x12_avx512vnni");
}
