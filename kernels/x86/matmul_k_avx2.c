/* INT8 activations with a scale per 256 columns × Q4_K, Q5_K, Q6_K. All arithmetic inside a block
 * is in integers and exact; what a block adds to a sum is rounded once per block, in the order of
 * blocks, in one token as in many. */
#include "int8_avx2.h"

#include "../scalar.h"
#include "x86.h"

enum {
    CHUNK_BLOCKS = 3,  /* of half a panel that are spread out at once: 8 KB */
    MOST_SCALES = 16,  /* of a block */
};

/* What the three types differ in; constants where they are used. */
typedef struct form {
    size_t head_bytes, sub_bytes; /* of a panel's block; of its 32 columns */
    size_t scale_groups;          /* groups of 4 columns that share an integer scale */
    size_t span;                  /* groups whose products can be added up as INT16 */
    bool mins;                    /* else the weights are q - 32 */
    __m256i (*load)(const unsigned char *sub, size_t group, size_t half);
} form;

/* Of half a panel: [sub-block][8 rows] INT16 pairs, the scale twice; and mins of two sub-blocks. */
typedef struct block_scales {
    _Alignas(32) int32_t scale[MOST_SCALES][HALF_ROWS];
    _Alignas(32) int32_t mins[4][HALF_ROWS];
} block_scales;

typedef struct chunk_block {
    _Alignas(32) unsigned char w[64][32];
    block_scales scales;
    const unsigned char *head; /* in the panel: d, dmin */
} chunk_block;

/* --- reading the panel ------------------------------------------------------------------------ */

static inline __m256i load_q4_k(const unsigned char *sub, size_t group, size_t half)
{
    return load_nibbles(sub + group * 32, half, true);
}

static inline __m256i load_q5_k(const unsigned char *sub, size_t group, size_t half)
{
    return load_fives(sub, group, half);
}

static inline __m256i load_q6_k(const unsigned char *sub, size_t group, size_t half)
{
    const unsigned char *part = sub + group / 4 * VTI_Q6_K_SUB;
    __m256i high = load_256(part + half * 32);
    high = group % 4 < 2 ? _mm256_slli_epi32(high, 4 - 2 * (int)(group % 4))
                         : _mm256_srli_epi32(high, 2 * (int)(group % 4) - 4);
    return _mm256_or_si256(load_nibbles(part + 64 + group % 4 * 32, half, false),
                           _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
}

static const form q4_k = {VTI_Q45_K_HEAD, VTI_Q4_K_SUB, 8, 8, true, load_q4_k};
static const form q5_k = {VTI_Q45_K_HEAD, VTI_Q5_K_SUB, 8, 4, true, load_q5_k};
static const form q6_k = {VTI_Q6_K_HEAD, 2 * VTI_Q6_K_SUB, 4, 2, false, load_q6_k};

static inline __m256i byte_of_lanes(__m256i v, int i)
{
    return _mm256_and_si256(_mm256_srli_epi32(v, 8 * i), _mm256_set1_epi32(0xff));
}

/* Two of every 32-bit lane's bytes → INT16 pairs. */
static inline __m256i pair(__m256i v, int even, int odd)
{
    return _mm256_or_si256(byte_of_lanes(v, even), _mm256_slli_epi32(byte_of_lanes(v, odd), 16));
}

/* Four sub-blocks from `sub` on. A lane is a row, its bytes are sub-blocks. lows: the low four bits
 * of the mins, below others. */
static inline void store_scales(block_scales *to, size_t sub, __m256i bytes, __m256i lows)
{
    __m256i scales = _mm256_and_si256(bytes, _mm256_set1_epi8(63));
    for (int i = 0; i < 4; i++)
        _mm256_store_si256((void *)to->scale[sub + (size_t)i], pair(scales, i, i));
    /* What crosses a byte in the shift is masked away. */
    __m256i highs = _mm256_and_si256(_mm256_srli_epi32(bytes, 2), _mm256_set1_epi8(0x30));
    __m256i mins = _mm256_or_si256(_mm256_and_si256(lows, _mm256_set1_epi8(15)), highs);
    _mm256_store_si256((void *)to->mins[sub / 2], pair(mins, 0, 1));
    _mm256_store_si256((void *)to->mins[sub / 2 + 1], pair(mins, 2, 3));
}

static inline __m128i load_64(const unsigned char *at)
{
    return _mm_loadl_epi64((const void *)at);
}

static inline void read_scales_6bit(block_scales *to, const unsigned char *head, size_t half)
{
    const unsigned char *scales = head + VTI_Q45_K_SCALES + half * 4 * HALF_ROWS;
    __m256i lows = load_256(head + VTI_Q45_K_MIN_LOWS + half * 4 * HALF_ROWS);
    store_scales(to, 0, load_256(scales), lows);
    store_scales(to, 4, load_256(scales + 64), _mm256_srli_epi32(lows, 4));
}

static inline void read_scales(block_scales *to, const unsigned char *head, size_t half, bool mins)
{
    if (mins) {
        read_scales_6bit(to, head, half);
        return;
    }
    for (size_t i = 0; i < MOST_SCALES; i++) {
        __m128i bytes = load_64(head + VTI_Q6_K_SCALES + i * 16 + half * HALF_ROWS);
        __m256i words = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes));
        _mm256_store_si256((void *)to->scale[i], words);
    }
}

/* --- the end of a block ----------------------------------------------------------------------- */

/* sum + what token t of m contributes: dots × d - mins × dmin, both times the activations' scale.
 * x: the block's converted activations. */
static inline __m256 add_block(__m256 sum, __m256i dots, const block_scales *scales,
                               const unsigned char *head, const unsigned char *x, size_t half,
                               size_t t, size_t m, bool mins)
{
    __m256 x_scale = broadcast_f32(x + t * 4);
    __m256 scale = _mm256_mul_ps(load_scales(head, half), x_scale);
    if (!mins) return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), scale, sum);
    sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), scale, sum);
    __m256i min_dots = _mm256_setzero_si256();
    for (size_t p = 0; p < 4; p++) {
        __m256i sums = broadcast_i32(x + m * VTI_ACT_Q8K_SUMS + t * 16 + p * 4);
        __m256i factor = _mm256_load_si256((const void *)scales->mins[p]);
        min_dots = _mm256_add_epi32(min_dots, _mm256_madd_epi16(factor, sums));
    }
    __m256 min_scale = _mm256_mul_ps(load_scales(head + VTI_Q45_K_MINS, half), x_scale);
    return _mm256_fnmadd_ps(_mm256_cvtepi32_ps(min_dots), min_scale, sum);
}

/* Σ scale × bias over sub-blocks of 16 columns, bias = -32 × sum of activations. It is even and may
 * have 17 bits, so half of it is multiplied, once with each of the scale's two copies. */
static inline __m256i add_bias(__m256i total, const block_scales *scales, const unsigned char *x,
                               size_t t, size_t m, size_t count)
{
    for (size_t s = 0; s < count; s++) {
        __m256i bias = broadcast_i32(x + m * VTI_ACT_Q8K_BIAS + (s * m + t) * 4);
        bias = _mm256_srai_epi32(bias, 1);
        bias = _mm256_blend_epi16(bias, _mm256_slli_epi32(bias, 16), 0xaa);
        __m256i factor = _mm256_load_si256((const void *)scales->scale[s]);
        total = _mm256_add_epi32(total, _mm256_madd_epi16(factor, bias));
    }
    return total;
}

/* --- many tokens ------------------------------------------------------------------------------ */

static inline __attribute__((always_inline)) void
spread(chunk_block *to, const unsigned char *block, size_t half, size_t columns, const form f)
{
    to->head = block;
    read_scales(&to->scales, block, half, f.mins);
    for (size_t sub = 0; sub < columns / 32; sub++)
#pragma GCC unroll 8
        for (size_t group = 0; group < 8; group++)
            _mm256_store_si256((void *)to->w[sub * 8 + group],
                               f.load(block + f.head_bytes + sub * f.sub_bytes, group, half));
}

/* One group of m tokens (a constant where this is inlined) × one block, added to y unless `fresh`.
 * x: the block of the group. */
static inline __attribute__((always_inline)) void
tile(float *y, size_t y_stride, __m256i rows, const chunk_block *w, size_t half, size_t columns,
     const unsigned char *x, bool fresh, const form f, size_t m)
{
    const unsigned char *q = x + m * VTI_ACT_Q8K_HEAD;
    __m256i total[VTI_TOKEN_GROUP];
#pragma GCC unroll 4
    for (size_t t = 0; t < m; t++) total[t] = _mm256_setzero_si256();
    for (size_t group = 0; group < columns / 4; group += f.span, q += f.span * 4 * m) {
        __m256i dots[VTI_TOKEN_GROUP];
#pragma GCC unroll 8
        for (size_t g = 0; g < f.span; g++) {
            __m256i column = _mm256_load_si256((const void *)w->w[group + g]);
#pragma GCC unroll 4
            for (size_t t = 0; t < m; t++) {
                __m256i values = broadcast_i32(q + (g / 2 * m + t) * 8 + g % 2 * 4);
                __m256i products = _mm256_maddubs_epi16(column, values);
                dots[t] = g ? add_i16(dots[t], products) : products;
            }
        }
        __m256i scale = _mm256_load_si256((const void *)w->scales.scale[group / f.scale_groups]);
#pragma GCC unroll 4
        for (size_t t = 0; t < m; t++)
            total[t] = _mm256_add_epi32(total[t], _mm256_madd_epi16(dots[t], scale));
    }
#pragma GCC unroll 4
    for (size_t t = 0; t < m; t++) {
        if (!f.mins) total[t] = add_bias(total[t], &w->scales, x, t, m, columns / 16);
        float *out = y + t * y_stride;
        __m256 sum = fresh ? _mm256_setzero_ps() : _mm256_maskload_ps(out, rows);
        sum = add_block(sum, total[t], &w->scales, w->head, x, half, t, m, f.mins);
        _mm256_maskstore_ps(out, rows, sum);
    }
}

/* All blocks of the chunk × one group of m tokens. */
static inline __attribute__((always_inline)) void
tile_blocks(float *y, size_t y_stride, __m256i rows, const chunk_block *w, size_t half,
            size_t columns, const unsigned char *x, bool fresh, const form f, size_t m)
{
    for (size_t c = 0; c < columns; c += VTI_K_BLOCK, w++) {
        size_t n = vti_k_columns(c, columns);
        tile(y, y_stride, rows, w, half, n, x, fresh && c == 0, f, m);
        x += m * (VTI_ACT_Q8K_HEAD + n);
    }
}

/* All tokens × the chunk of `columns` columns from `first` on. */
static inline __attribute__((always_inline)) void
chunk_tokens(float *y, size_t y_stride, __m256i rows, const chunk_block *w, size_t half,
             size_t first, size_t columns, const unsigned char *x, size_t token_bytes,
             size_t tokens, bool fresh, const form f)
{
    size_t offset = vti_act_q8k_bytes(first);
#define TILE(m) tile_blocks(y, y_stride, rows, w, half, columns, x + (m) * offset, fresh, f, m)
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
half_panel(float *y, size_t y_stride, size_t rows, const unsigned char *block, size_t half,
           size_t first, size_t columns, const unsigned char *x, size_t token_bytes, size_t tokens,
           bool fresh, const form f)
{
    chunk_block chunk[CHUNK_BLOCKS];
    for (size_t c = 0; c < columns; c += VTI_K_BLOCK, block += f.head_bytes + 8 * f.sub_bytes)
        spread(&chunk[c / VTI_K_BLOCK], block, half, vti_k_columns(c, columns), f);
    chunk_tokens(y + half * HALF_ROWS, y_stride, half_mask(rows, half), chunk, half, first, columns,
                 x, token_bytes, tokens, fresh, f);
}

static inline __attribute__((always_inline)) void
many(float *y, size_t y_stride, const unsigned char *w, size_t panel_bytes, const unsigned char *x,
     size_t cols, size_t row_begin, size_t row_end, size_t tokens, bool accumulate, const form f)
{
    size_t block_bytes = f.head_bytes + 8 * f.sub_bytes, token_bytes = vti_act_q8k_bytes(cols);
    for (size_t first = 0; first < cols; first += CHUNK_BLOCKS * VTI_K_BLOCK) {
        size_t columns = CHUNK_BLOCKS * VTI_K_BLOCK;
        if (columns > cols - first) columns = cols - first;
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
            const unsigned char *block = w + row / VTI_PANEL_ROWS * panel_bytes;
            block += first / VTI_K_BLOCK * block_bytes;
#pragma GCC unroll 2
            for (size_t half = 0; half < 2; half++)
                half_panel(y + row, y_stride, vti_panel_rows(row, row_end), block, half, first,
                           columns, x, token_bytes, tokens, first == 0 && !accumulate, f);
        }
    }
}

/* --- one token -------------------------------------------------------------------------------- */

/* Integers of one half's 32 columns. */
static inline __attribute__((always_inline)) __m256i
single_sub(__m256i total, const unsigned char *sub, const block_scales *scales, size_t first_scale,
           const unsigned char *q, size_t half, const form f)
{
#pragma GCC unroll 4
    for (size_t group = 0; group < 8; group += f.span) {
        __m256i dots = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (size_t g = group; g < group + f.span; g++)
            dots = add_i16(dots, _mm256_maddubs_epi16(f.load(sub, g, half),
                                                      broadcast_i32(q + g * 4)));
        const int32_t *scale = scales->scale[first_scale + group / f.scale_groups];
        __m256i factor = _mm256_load_si256((const void *)scale);
        total = _mm256_add_epi32(total, _mm256_madd_epi16(dots, factor));
    }
    return total;
}

static inline __attribute__((always_inline)) void
single_block(__m256 sums[2], const unsigned char *block, size_t columns, const unsigned char *x,
             const form f)
{
    block_scales scales[2];
    const unsigned char *q = x + VTI_ACT_Q8K_HEAD, *sub = block + f.head_bytes;
    __m256i total[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    read_scales(&scales[0], block, 0, f.mins);
    read_scales(&scales[1], block, 1, f.mins);
    for (size_t c = 0; c < columns; c += 32, q += 32, sub += f.sub_bytes) {
        size_t scale = c / 4 / f.scale_groups;
        total[0] = single_sub(total[0], sub, &scales[0], scale, q, 0, f);
        total[1] = single_sub(total[1], sub, &scales[1], scale, q, 1, f);
    }
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++) {
        if (!f.mins) total[half] = add_bias(total[half], &scales[half], x, 0, 1, columns / 16);
        sums[half] =
            add_block(sums[half], total[half], &scales[half], block, x, half, 0, 1, f.mins);
    }
}

static inline __attribute__((always_inline)) void
single(float *y, const unsigned char *panel, const unsigned char *x, size_t cols, size_t rows,
       bool accumulate, const form f)
{
    __m256 sums[2];
    for (size_t half = 0; half < 2; half++)
        sums[half] = accumulate ? _mm256_maskload_ps(y + half * HALF_ROWS, half_mask(rows, half))
                                : _mm256_setzero_ps();
    for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
        size_t n = vti_k_columns(c, cols);
        single_block(sums, panel, n, x, f);
        panel += f.head_bytes + n / 32 * f.sub_bytes;
        x += VTI_ACT_Q8K_HEAD + n;
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
        size_t panel_bytes = vti_panel_bytes_##type(cols);                                         \
        if (tokens > 1) {                                                                          \
            many(y, y_stride, w, panel_bytes, x, cols, row_begin, row_end, tokens, accumulate,     \
                 type);                                                                            \
            return;                                                                                \
        }                                                                                          \
        const unsigned char *panel = w;                                                            \
        panel += row_begin / VTI_PANEL_ROWS * panel_bytes;                                         \
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS, panel += panel_bytes)   \
            single(y + row, panel, x, cols, vti_panel_rows(row, row_end), accumulate, type);       \
    }

MATMUL(q4_k)
MATMUL(q5_k)
MATMUL(q6_k)

void vti_kernels_init_matmul_k_avx2(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_Q4_K, matmul_q4_k, "matmul_q4_k_q8k_8x4_avx2");
    vti_matmul_set(kernels, VTI_Q5_K, matmul_q5_k, "matmul_q5_k_q8k_8x4_avx2");
    vti_matmul_set(kernels, VTI_Q6_K, matmul_q6_k, "matmul_q6_k_q8k_8x4_avx2");
}
