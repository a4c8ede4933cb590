/* INT8 activations with a scale per 256 columns × Q4_K, Q5_K, Q6_K.
 *
 * All arithmetic inside a block is in integers and exact; what a block adds to a sum is rounded
 * once per block, in the order of blocks, in one token as in many. */
#include <immintrin.h>
#include <string.h>

#include "../layout.h"
#include "../scalar.h"
#include "vnni.h"
#include "x86.h"

enum {
    TILE_GROUPS = 3,   /* 12 tokens: 12 accumulators of a sub-block, 12 of a block */
    CHUNK_BLOCKS = 4,  /* of a panel that are spread out at once: 21 KB */
    MOST_SCALES = 16,  /* of a block */
};

/* What the three types differ in. All are constants where they are used. */
typedef struct form {
    size_t head_bytes, sub_bytes;   /* of a panel's block; of its 32 columns */
    size_t scale_groups;            /* groups of 4 columns that share an integer scale */
    bool mins;                      /* else the weights are q - 32 */
    __m512i (*load)(const unsigned char *sub, size_t group);
    /* One token × the columns that share a scale, plus `start`. */
    __m512i (*dot)(const unsigned char *sub, const unsigned char *q, int32_t start);
} form;

/* Scales of a block: [sub-block][16 rows]. */
typedef struct block_scales {
    _Alignas(64) int32_t scale[MOST_SCALES][VTI_PANEL_ROWS];
    _Alignas(64) int32_t mins[4][VTI_PANEL_ROWS]; /* of two sub-blocks each, as INT16 pairs */
} block_scales;

typedef struct chunk_block {
    _Alignas(64) unsigned char w[8][VTI_TILE_BYTES];
    block_scales scales;
    const unsigned char *head; /* in the panel: d, dmin */
} chunk_block;

/* --- reading the panel ------------------------------------------------------------------------ */

static inline __m512i load_q4_k(const unsigned char *sub, size_t group)
{
    return load_nibbles(sub + group * 32, true);
}

static inline __m512i load_q5_k(const unsigned char *sub, size_t group)
{
    return load_fives(sub, group);
}

static inline __m512i load_q6_k(const unsigned char *sub, size_t group)
{
    const unsigned char *half = sub + group / 4 * VTI_Q6_K_SUB;
    __m512i high = _mm512_loadu_si512(half);
    __m512i nibbles = load_nibbles(half + 64 + group % 4 * 32, false);
    high = group % 4 < 2 ? _mm512_slli_epi32(high, 4 - 2 * (unsigned)(group % 4))
                         : _mm512_srli_epi32(high, 2 * (unsigned)(group % 4) - 4);
    return _mm512_ternarylogic_epi32(nibbles, high, _mm512_set1_epi8(0x30), 0xf8);
}

static const form q4_k = {VTI_Q45_K_HEAD, VTI_Q4_K_SUB, 8, true, load_q4_k, dot_nibbles};
static const form q5_k = {VTI_Q45_K_HEAD, VTI_Q5_K_SUB, 8, true, load_q5_k, dot_fives};
static const form q6_k = {VTI_Q6_K_HEAD, 2 * VTI_Q6_K_SUB, 4, false, load_q6_k, dot_sixes};

/* Bytes 0 and 1, or 2 and 3, of every 32-bit lane → INT16 pairs. */
static inline __m512i pair_mins(__m512i mins, unsigned shift)
{
    __m512i even = _mm512_and_si512(_mm512_srli_epi32(mins, shift), _mm512_set1_epi32(0xff));
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(mins, shift + 8), _mm512_set1_epi32(0xff));
    return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
}

/* Four sub-blocks from `sub` on. A lane is a row, its bytes are sub-blocks. lows: the low four bits
 * of the mins, below others. */
static inline void store_scales(block_scales *to, size_t sub, __m512i bytes, __m512i lows)
{
    const __m512i scale = _mm512_set1_epi32(63);
    for (size_t i = 0; i < 4; i++)
        _mm512_store_si512(to->scale[sub + i],
                           _mm512_and_si512(_mm512_srli_epi32(bytes, (unsigned)(8 * i)), scale));
    /* (lows & 15) | (highs & 0x30): what crosses a byte is masked away */
    __m512i highs = _mm512_and_si512(_mm512_srli_epi32(bytes, 2), _mm512_set1_epi8(0x30));
    __m512i mins = _mm512_or_si512(_mm512_and_si512(lows, _mm512_set1_epi8(15)), highs);
    _mm512_store_si512(to->mins[sub / 2], pair_mins(mins, 0));
    _mm512_store_si512(to->mins[sub / 2 + 1], pair_mins(mins, 16));
}

static inline void read_scales_6bit(block_scales *to, const unsigned char *head)
{
    __m512i lows = _mm512_loadu_si512(head + VTI_Q45_K_MIN_LOWS);
    store_scales(to, 0, _mm512_loadu_si512(head + VTI_Q45_K_SCALES), lows);
    store_scales(to, 4, _mm512_loadu_si512(head + VTI_Q45_K_SCALES + 64),
                 _mm512_srli_epi32(lows, 4));
}

static inline void read_scales(block_scales *to, const unsigned char *head, bool mins)
{
    if (mins) {
        read_scales_6bit(to, head);
        return;
    }
    for (size_t i = 0; i < MOST_SCALES; i++) {
        __m128i bytes = _mm_loadu_si128((const void *)(head + VTI_Q6_K_SCALES + i * 16));
        _mm512_store_si512(to->scale[i], _mm512_cvtepi8_epi32(bytes));
    }
}

/* --- the end of a block ----------------------------------------------------------------------- */

/* sum + what token t of m contributes: dots × d - mins × dmin, both times the activations' scale.
 * x: the block's converted activations. */
static inline __m512 add_block(__m512 sum, __m512i dots, const block_scales *scales,
                               const unsigned char *head, const unsigned char *x, size_t t,
                               size_t m, bool mins)
{
    __m512 x_scale = broadcast_f32(x + t * 4);
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_mul_ps(load_scales(head), x_scale), sum);
    if (!mins) return sum;
    __m512i min_dots = _mm512_setzero_si512();
    for (size_t pair = 0; pair < 4; pair++) {
        __m512i sums = broadcast_i32(x + m * VTI_ACT_Q8K_SUMS + t * 16 + pair * 4);
        min_dots = _mm512_dpwssd_epi32(min_dots, _mm512_load_si512(scales->mins[pair]), sums);
    }
    __m512 min_scale = _mm512_mul_ps(load_scales(head + VTI_Q45_K_MINS), x_scale);
    return _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min_dots), min_scale, sum);
}

/* --- many tokens ------------------------------------------------------------------------------ */

static inline __attribute__((always_inline)) void
spread(chunk_block *to, const unsigned char *block, size_t columns, const form f)
{
    to->head = block;
    read_scales(&to->scales, block, f.mins);
    for (size_t sub = 0; sub < columns / 32; sub++)
#pragma GCC unroll 8
        for (size_t group = 0; group < 8; group++)
            _mm512_store_si512(to->w[sub] + group * 64,
                               f.load(block + f.head_bytes + sub * f.sub_bytes, group));
}

/* `groups` groups of m tokens × one block, added to y unless `fresh`. */
static inline __attribute__((always_inline)) void
tile(float *y, size_t y_stride, __mmask16 rows, const chunk_block *w, size_t columns,
     const unsigned char *x, size_t group_stride, bool fresh, const form f, size_t groups, size_t m)
{
    enum { TOKENS = TILE_GROUPS * VTI_TOKEN_GROUP };
    const unsigned char *q = x + m * VTI_ACT_Q8K_HEAD, *bias = x + m * VTI_ACT_Q8K_BIAS;
    const unsigned char *column = w->w[0];
    __m512i total[TOKENS];
#pragma GCC unroll 12
    for (size_t t = 0; t < groups * m; t++) total[t] = _mm512_setzero_si512();
    for (size_t s = 0; s < columns / 4 / f.scale_groups; s++, bias += m * 4) {
        __m512i dots[TOKENS];
#pragma GCC unroll 12
        for (size_t t = 0; t < groups * m; t++)
            dots[t] = f.mins ? _mm512_setzero_si512()
                             : broadcast_i32(bias + t / m * group_stride + t % m * 4);
#pragma GCC unroll 8
        for (size_t group = 0; group < f.scale_groups; group++) {
            __m512i weights = _mm512_load_si512(column + group * 64);
#pragma GCC unroll 12
            for (size_t t = 0; t < groups * m; t++)
                dots[t] = _mm512_dpbusd_epi32(
                    dots[t], weights,
                    broadcast_i32(q + t / m * group_stride + (group / 2 * m + t % m) * 8 +
                                  group % 2 * 4));
        }
        __m512i scale = _mm512_load_si512(w->scales.scale[s]);
#pragma GCC unroll 12
        for (size_t t = 0; t < groups * m; t++)
            total[t] = _mm512_add_epi32(total[t], _mm512_mullo_epi32(dots[t], scale));
        column += f.scale_groups * 64;
        q += f.scale_groups * 4 * m;
    }
#pragma GCC unroll 12
    for (size_t t = 0; t < groups * m; t++) {
        float *out = y + t * y_stride;
        __m512 sum = fresh ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(rows, out);
        sum = add_block(sum, total[t], &w->scales, w->head, x + t / m * group_stride, t % m, m,
                        f.mins);
        _mm512_mask_storeu_ps(out, rows, sum);
    }
}

/* `groups` groups of m tokens × all blocks of the chunk; x: its first block of the first group. */
static inline __attribute__((always_inline)) void
tile_blocks(float *y, size_t y_stride, __mmask16 rows, const chunk_block *w, size_t columns,
            const unsigned char *x, size_t group_stride, bool fresh, const form f, size_t groups,
            size_t m)
{
    for (size_t c = 0; c < columns; c += VTI_K_BLOCK, w++) {
        size_t n = vti_k_columns(c, columns);
        tile(y, y_stride, rows, w, n, x, group_stride, fresh && c == 0, f, groups, m);
        x += m * (VTI_ACT_Q8K_HEAD + n);
    }
}

/* All tokens × the chunk of `columns` columns from `first` on. */
static inline __attribute__((always_inline)) void
chunk_tokens(float *y, size_t y_stride, __mmask16 rows, const chunk_block *w, size_t first,
             size_t columns, const unsigned char *x, size_t token_bytes, size_t tokens, bool fresh,
             upcoming next, const form f)
{
    size_t stride = VTI_TOKEN_GROUP * token_bytes, offset = vti_act_q8k_bytes(first);
#define TILE(groups, m)                                                                            \
    tile_blocks(y, y_stride, rows, w, columns, x + (m) * offset, stride, fresh, f, groups, m)
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
many(float *y, size_t y_stride, const unsigned char *w, size_t panel_bytes, const unsigned char *x,
     size_t cols, size_t row_begin, size_t row_end, size_t tokens, bool accumulate, const form f)
{
    chunk_block chunk[CHUNK_BLOCKS];
    size_t block_bytes = f.head_bytes + 8 * f.sub_bytes;
    for (size_t first = 0; first < cols; first += CHUNK_BLOCKS * VTI_K_BLOCK) {
        size_t columns = CHUNK_BLOCKS * VTI_K_BLOCK;
        if (columns > cols - first) columns = cols - first;
        for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
            const unsigned char *block = w + row / VTI_PANEL_ROWS * panel_bytes;
            block += first / VTI_K_BLOCK * block_bytes;
            bool last = row + VTI_PANEL_ROWS >= row_end;
            size_t bytes = vti_k_blocks(columns) * block_bytes;
            upcoming next = fetch_later(block + panel_bytes, last ? 0 : bytes, tokens,
                                        TILE_GROUPS * VTI_TOKEN_GROUP);
            for (size_t c = 0; c < columns; c += VTI_K_BLOCK, block += block_bytes)
                spread(&chunk[c / VTI_K_BLOCK], block, vti_k_columns(c, columns), f);
            chunk_tokens(y + row, y_stride, row_mask(row, row_end), chunk, first, columns, x,
                         vti_act_q8k_bytes(cols), tokens, first == 0 && !accumulate, next, f);
        }
    }
}

/* --- one token -------------------------------------------------------------------------------- */

static inline __m512i add_scaled(__m512i total, __m512i dots, const int32_t *scale)
{
    return _mm512_add_epi32(total, _mm512_mullo_epi32(dots, _mm512_load_si512(scale)));
}

static inline __attribute__((always_inline)) __m512
single_block(__m512 sum, const unsigned char *block, size_t columns, const unsigned char *x,
             const form f)
{
    block_scales scales;
    const unsigned char *q = x + VTI_ACT_Q8K_HEAD, *sub = block + f.head_bytes;
    __m512i total = _mm512_setzero_si512();
    read_scales(&scales, block, f.mins);
    for (size_t c = 0; c < columns; c += 32, q += 32, sub += f.sub_bytes) {
        size_t s = c / 4 / f.scale_groups;
        if (f.mins) {
            total = add_scaled(total, f.dot(sub, q, 0), scales.scale[s]);
            continue;
        }
        const unsigned char *bias = x + VTI_ACT_Q8K_BIAS + s * 4;
        total = add_scaled(total, f.dot(sub, q, load_i32(bias)), scales.scale[s]);
        total = add_scaled(total, f.dot(sub + VTI_Q6_K_SUB, q + 16, load_i32(bias + 4)),
                           scales.scale[s + 1]);
    }
    return add_block(sum, total, &scales, block, x, 0, 1, f.mins);
}

static inline __attribute__((always_inline)) void
single(float *y, const unsigned char *panel, const unsigned char *x, size_t cols, __mmask16 rows,
       bool accumulate, const form f)
{
    __m512 sum = accumulate ? _mm512_maskz_loadu_ps(rows, y) : _mm512_setzero_ps();
    for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
        size_t n = vti_k_columns(c, cols);
        sum = single_block(sum, panel, n, x, f);
        panel += f.head_bytes + n / 32 * f.sub_bytes;
        x += VTI_ACT_Q8K_HEAD + n;
    }
    _mm512_mask_storeu_ps(y, rows, sum);
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
            single(y + row, panel, x, cols, row_mask(row, row_end), accumulate, type);             \
    }

MATMUL(q4_k)
MATMUL(q5_k)
MATMUL(q6_k)

void vti_kernels_init_matmul_k_avx512vnni(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_Q4_K, matmul_q4_k, "matmul_q4_k_q8k_16x12_avx512vnni");
    vti_matmul_set(kernels, VTI_Q5_K, matmul_q5_k, "matmul_q5_k_q8k_16x12_avx512vnni");
    vti_matmul_set(kernels, VTI_Q6_K, matmul_q6_k, "matmul_q6_k_q8k_16x12_avx512vnni");
}
