/* INT8 activations × quantised weights. */
#include <string.h>

#include "half.h"
#include "layout.h"
#include "scalar.h"

/* Sums of a group's tokens for the rows of a panel. */
typedef float group_sums[VTI_TOKEN_GROUP][VTI_PANEL_ROWS];
/* Adds the whole panel × m tokens to `sums`. */
typedef void dot_panel_fn(group_sums sums, const unsigned char *panel, const unsigned char *x,
                          size_t cols, size_t m);

static void load_scales(float *dst, const unsigned char *halves)
{
    for (size_t r = 0; r < VTI_PANEL_ROWS; r++) dst[r] = f32_from_f16(load_u16(halves + 2 * r));
}

static float load_float(const unsigned char *at, size_t index)
{
    float value;
    memcpy(&value, at + 4 * index, sizeof value);
    return value;
}

static int32_t load_i16(const unsigned char *at, size_t index)
{
    return (int16_t)load_u16(at + 2 * index);
}

/* dot[r] += integers of `groups` groups of 4 columns. `w` is [groups][16 rows][4], `q` is
 * [groups / 2][m][8] from this token on. */
static void dot_tile(int32_t *dot, const int8_t *w, const unsigned char *q, size_t groups, size_t m)
{
    for (size_t group = 0; group < groups; group++) {
        const unsigned char *at = q + group / 2 * m * 8 + group % 2 * 4;
        for (size_t r = 0; r < VTI_PANEL_ROWS; r++)
            for (size_t i = 0; i < 4; i++)
                dot[r] += w[(group * VTI_PANEL_ROWS + r) * 4 + i] * (int8_t)at[i];
    }
}

/* Nibble tile → INT8 tile, as unsigned nibbles; `flip` is what the upper halves are xored with. */
static void spread_nibbles(int8_t *w, const unsigned char *tile, size_t groups, unsigned flip)
{
    for (size_t group = 0; group < groups; group++) {
        for (size_t i = 0; i < 32; i++) {
            unsigned byte = tile[group * 32 + i];
            w[group * 64 + i] = (int8_t)(byte & 15);
            w[group * 64 + 32 + i] = (int8_t)(byte >> 4 ^ flip);
        }
    }
}

/* Adds the fifth bits to such a tile of 32 columns. */
static void add_fifths(int8_t *w, const unsigned char *fifths)
{
    for (size_t i = 0; i < VTI_TILE_BYTES; i++)
        w[i] = (int8_t)(w[i] | (fifths[i % VTI_FIFTH_BYTES] >> i / VTI_FIFTH_BYTES & 1) << 4);
}

/* --- one scale per 32 columns: Q8_0, Q4_0, Q5_0 ----------------------------------------------- */

/* w: the block's INT8 tile. */
static void add_block(group_sums sums, const int8_t *w, const unsigned char *scales,
                      const unsigned char *x, size_t m)
{
    float d[VTI_PANEL_ROWS];
    load_scales(d, scales);
    for (size_t t = 0; t < m; t++) {
        int32_t dot[VTI_PANEL_ROWS] = {0};
        dot_tile(dot, w, x + 8 * m + 8 * t, 8, m);
        for (size_t r = 0; r < VTI_PANEL_ROWS; r++)
            sums[t][r] += (float)dot[r] * (d[r] * load_float(x, t));
    }
}

static void dot_panel_q8_0(group_sums sums, const unsigned char *panel, const unsigned char *x,
                           size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        int8_t w[VTI_TILE_BYTES];
        memcpy(w, panel + VTI_SCALES_BYTES, sizeof w);
        add_block(sums, w, panel, x, m);
        panel += VTI_Q8_0_BYTES;
        x += m * VTI_ACT_Q8_BYTES;
    }
}

static void dot_panel_q4_0(group_sums sums, const unsigned char *panel, const unsigned char *x,
                           size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        int8_t w[VTI_TILE_BYTES];
        spread_nibbles(w, panel + VTI_SCALES_BYTES, 8, 8);
        for (size_t i = 0; i < VTI_TILE_BYTES; i++) w[i] = (int8_t)(w[i] - 8);
        add_block(sums, w, panel, x, m);
        panel += VTI_Q4_0_BYTES;
        x += m * VTI_ACT_Q8_BYTES;
    }
}

static void dot_panel_q5_0(group_sums sums, const unsigned char *panel, const unsigned char *x,
                           size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_Q8_BLOCK) {
        int8_t w[VTI_TILE_BYTES];
        spread_nibbles(w, panel + VTI_SCALES_BYTES + VTI_FIFTH_BYTES, 8, 0);
        add_fifths(w, panel + VTI_SCALES_BYTES);
        for (size_t i = 0; i < VTI_TILE_BYTES; i++) w[i] = (int8_t)(w[i] - 16);
        add_block(sums, w, panel, x, m);
        panel += VTI_Q5_0_BYTES;
        x += m * VTI_ACT_Q8_BYTES;
    }
}

/* --- K types ---------------------------------------------------------------------------------- */

/* Integers of one block: Σ scale × dot and, for Q4_K and Q5_K, Σ min × sum of activations. */
typedef struct block_sums {
    int32_t dots[VTI_TOKEN_GROUP][VTI_PANEL_ROWS];
    int32_t mins[VTI_TOKEN_GROUP][VTI_PANEL_ROWS];
} block_sums;

static void take_scales(int32_t *scale, int32_t *min, const unsigned char *block, size_t sub)
{
    const unsigned char *scales = block + VTI_Q45_K_SCALES + sub / 4 * 64 + sub % 4;
    const unsigned char *lows = block + VTI_Q45_K_MIN_LOWS + sub % 4;
    for (size_t r = 0; r < VTI_PANEL_ROWS; r++) {
        unsigned byte = scales[4 * r], low = lows[4 * r] >> (sub < 4 ? 0 : 4) & 15;
        scale[r] = (int32_t)(byte & 63);
        min[r] = (int32_t)(byte >> 6 << 4 | low);
    }
}

/* Adds one sub-block of 32 columns whose weights are in w; `q` and `sums` as in VTI_ACT_Q8K. */
static void add_sub_block(block_sums *total, const unsigned char *block, size_t sub,
                          const int8_t *w, const unsigned char *sums, const unsigned char *q,
                          size_t m)
{
    int32_t scale[VTI_PANEL_ROWS], min[VTI_PANEL_ROWS];
    take_scales(scale, min, block, sub);
    for (size_t t = 0; t < m; t++) {
        int32_t dot[VTI_PANEL_ROWS] = {0};
        dot_tile(dot, w, q + 8 * t, 8, m);
        for (size_t r = 0; r < VTI_PANEL_ROWS; r++) {
            total->dots[t][r] += scale[r] * dot[r];
            total->mins[t][r] += min[r] * load_i16(sums, t * 8 + sub);
        }
    }
}

static void finish_block(group_sums sums, const block_sums *total, const unsigned char *block,
                         const unsigned char *x, size_t m, bool mins)
{
    float d[VTI_PANEL_ROWS], dmin[VTI_PANEL_ROWS];
    load_scales(d, block);
    if (mins) load_scales(dmin, block + VTI_Q45_K_MINS);
    for (size_t t = 0; t < m; t++) {
        float scale = load_float(x, t);
        for (size_t r = 0; r < VTI_PANEL_ROWS; r++) {
            sums[t][r] += (float)total->dots[t][r] * (d[r] * scale);
            if (mins) sums[t][r] -= (float)total->mins[t][r] * (dmin[r] * scale);
        }
    }
}

static void dot_panel_q4_k(group_sums sums, const unsigned char *panel, const unsigned char *x,
                           size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
        size_t n = vti_k_columns(c, cols);
        const unsigned char *sub_block = panel + VTI_Q45_K_HEAD, *q = x + m * VTI_ACT_Q8K_HEAD;
        block_sums total = {{{0}}, {{0}}};
        for (size_t sub = 0; sub < n / 32; sub++, sub_block += VTI_Q4_K_SUB, q += 32 * m) {
            int8_t w[VTI_TILE_BYTES];
            spread_nibbles(w, sub_block, 8, 8);
            add_sub_block(&total, panel, sub, w, x + m * VTI_ACT_Q8K_SUMS, q, m);
        }
        finish_block(sums, &total, panel, x, m, true);
        panel = sub_block;
        x = q;
    }
}

static void dot_panel_q5_k(group_sums sums, const unsigned char *panel, const unsigned char *x,
                           size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
        size_t n = vti_k_columns(c, cols);
        const unsigned char *sub_block = panel + VTI_Q45_K_HEAD, *q = x + m * VTI_ACT_Q8K_HEAD;
        block_sums total = {{{0}}, {{0}}};
        for (size_t sub = 0; sub < n / 32; sub++, sub_block += VTI_Q5_K_SUB, q += 32 * m) {
            int8_t w[VTI_TILE_BYTES];
            spread_nibbles(w, sub_block + VTI_FIFTH_BYTES, 8, 0);
            add_fifths(w, sub_block);
            add_sub_block(&total, panel, sub, w, x + m * VTI_ACT_Q8K_SUMS, q, m);
        }
        finish_block(sums, &total, panel, x, m, true);
        panel = sub_block;
        x = q;
    }
}

/* One sub-block of 16 columns. */
static void add_sub_block_q6_k(block_sums *total, const unsigned char *sub_block,
                               const unsigned char *scales, const unsigned char *q, size_t m)
{
    int8_t w[VTI_TILE_BYTES / 2];
    spread_nibbles(w, sub_block + 64, 4, 0);
    for (size_t i = 0; i < sizeof w; i++)
        w[i] = (int8_t)((w[i] | (sub_block[i % 64] >> i / 64 * 2 & 3) << 4) - 32);
    for (size_t t = 0; t < m; t++) {
        int32_t dot[VTI_PANEL_ROWS] = {0};
        dot_tile(dot, w, q + 8 * t, 4, m);
        for (size_t r = 0; r < VTI_PANEL_ROWS; r++)
            total->dots[t][r] += (int8_t)scales[r] * dot[r];
    }
}

static void dot_panel_q6_k(group_sums sums, const unsigned char *panel, const unsigned char *x,
                           size_t cols, size_t m)
{
    for (size_t c = 0; c < cols; c += VTI_K_BLOCK) {
        size_t n = vti_k_columns(c, cols);
        const unsigned char *sub_block = panel + VTI_Q6_K_HEAD, *q = x + m * VTI_ACT_Q8K_HEAD;
        block_sums total = {{{0}}, {{0}}};
        for (size_t sub = 0; sub < n / 16; sub++, sub_block += VTI_Q6_K_SUB, q += 16 * m)
            add_sub_block_q6_k(&total, sub_block, panel + VTI_Q6_K_SCALES + sub * 16, q, m);
        finish_block(sums, &total, panel, x, m, false);
        panel = sub_block;
        x = q;
    }
}

/* --- all -------------------------------------------------------------------------------------- */

static void matmul(float *y, size_t y_stride, const unsigned char *w, size_t panel_bytes,
                   const unsigned char *x, size_t token_bytes, size_t cols, size_t row_begin,
                   size_t row_end, size_t tokens, bool accumulate, dot_panel_fn *dot_panel)
{
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
        const unsigned char *panel = w + row / VTI_PANEL_ROWS * panel_bytes;
        size_t row_bytes = vti_panel_rows(row, row_end) * sizeof(float);
        for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
            group_sums sums = {{0}};
            size_t m = vti_group_tokens(first, tokens);
            float *out = y + first * y_stride + row;
            for (size_t t = 0; accumulate && t < m; t++)
                memcpy(sums[t], out + t * y_stride, row_bytes);
            dot_panel(sums, panel, x + first * token_bytes, cols, m);
            for (size_t t = 0; t < m; t++) memcpy(out + t * y_stride, sums[t], row_bytes);
        }
    }
}

#define MATMUL(type, act)                                                                          \
    static void matmul_##type(float *y, size_t y_stride, const void *w, const void *x,             \
                              size_t rows, size_t cols, size_t row_begin, size_t row_end,          \
                              size_t tokens, bool accumulate)                                      \
    {                                                                                              \
        (void)rows;                                                                                \
        matmul(y, y_stride, w, vti_panel_bytes_##type(cols), x, vti_act_##act##_bytes(cols), cols, \
               row_begin, row_end, tokens, accumulate, dot_panel_##type);                          \
    }

MATMUL(q8_0, q8)
MATMUL(q4_0, q8)
MATMUL(q5_0, q8)
MATMUL(q4_k, q8k)
MATMUL(q5_k, q8k)
MATMUL(q6_k, q8k)

void vti_kernels_init_scalar_quant(vti_kernels *kernels)
{
    vti_matmul_set(kernels, VTI_Q8_0, matmul_q8_0, "matmul_q8_0_q8_16x4_scalar");
    vti_matmul_set(kernels, VTI_Q4_0, matmul_q4_0, "matmul_q4_0_q8_16x4_scalar");
    vti_matmul_set(kernels, VTI_Q5_0, matmul_q5_0, "matmul_q5_0_q8_16x4_scalar");
    vti_matmul_set(kernels, VTI_Q4_K, matmul_q4_k, "matmul_q4_k_q8k_16x4_scalar");
    vti_matmul_set(kernels, VTI_Q5_K, matmul_q5_k, "matmul_q5_k_q8k_16x4_scalar");
    vti_matmul_set(kernels, VTI_Q6_K, matmul_q6_k, "matmul_q6_k_q8k_16x4_scalar");
}
