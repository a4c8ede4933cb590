/* F16 weights × activations rounded to F16, added up in halves.
 *
 * Twice as fast as floats, and less exact (docs/numerics.md), so not among VTI_CPU_EXACT. At most
 * CHAIN products follow each other in halves, then their sum is added to those of the chains
 * before; that of a block becomes a float. Where one overflows, the panel is computed again in
 * floats. */
#include <math.h>

#include "../scalar.h"
#include "lanes.h"
#include "neon.h"

enum { BLOCK = VTI_ACT_F16_BLOCK, CHAIN = 152, MOST_TOKENS = 2 * VTI_TOKEN_GROUP };

/* --- activations ------------------------------------------------------------------------------ */

static size_t act_bytes_f16(size_t tokens, size_t cols) { return tokens * vti_act_f16_bytes(cols); }

/* As bits: infinity and NaN are above all. */
static uint32_t largest_magnitude(const float *x, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* The power of two above `largest` (its bits), so that it becomes 0.5 … 1; and its inverse. Values
 * outside of 2^-100 … 2^126 are left where these limits put them. What is not finite is its own
 * scale. */
static void find_scale(uint32_t largest, float *scale, float *inverse)
{
    uint32_t exponent = largest >> 23;
    bool finite = exponent < 255;
    exponent = exponent < 27 ? 27 : exponent > 252 ? 252 : exponent;
    uint32_t bits = finite ? (exponent + 1) << 23 : largest;
    memcpy(scale, &bits, 4);
    bits = (253 - exponent) << 23;
    memcpy(inverse, &bits, 4);
}

/* Token t of m. */
static void round_row(uint16_t *to, const float *x, size_t n, float inverse, size_t t, size_t m)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        float16x4_t half = vcvt_f16_f32(vmulq_n_f32(vld1q_f32(x + i), inverse));
        uint16x4_t bits = vreinterpret_u16_f16(half);
        uint16_t *at = to + i * m + t;
        if (m == 1) {
            vst1_u16(at, bits);
        } else {
            vst1_lane_u16(at, bits, 0);
            vst1_lane_u16(at + m, bits, 1);
            vst1_lane_u16(at + 2 * m, bits, 2);
            vst1_lane_u16(at + 3 * m, bits, 3);
        }
    }
    for (; i < n; i++) {
        float16x4_t half = vcvt_f16_f32(vdupq_n_f32(x[i] * inverse));
        vst1_lane_u16(to + i * m + t, vreinterpret_u16_f16(half), 0);
    }
}

static void act_pack_f16(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    unsigned char *block = dst;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP) {
        size_t m = vti_group_tokens(first, tokens);
        for (size_t c = 0; c < cols; c += BLOCK) {
            size_t n = cols - c < BLOCK ? cols - c : BLOCK;
            const float *from = x + first * x_stride + c;
            for (size_t t = 0; t < m; t++, from += x_stride) {
                float scale, inverse;
                find_scale(largest_magnitude(from, n), &scale, &inverse);
                memcpy(block + 4 * t, &scale, 4);
                round_row((uint16_t *)(void *)(block + 4 * m), from, n, inverse, t, m);
            }
            block += m * (4 + 2 * n);
        }
    }
}

/* --- products --------------------------------------------------------------------------------- */

typedef float panel_sums[MOST_TOKENS][VTI_PANEL_ROWS];

static inline float half_at(const unsigned char *at)
{
    float16x4_t half = vreinterpret_f16_u16(vld1_dup_u16((const uint16_t *)(const void *)at));
    return vgetq_lane_f32(vcvt_f32_f16(half), 0);
}

/* Adds n <= CHAIN columns for m tokens of a group. */
ALWAYS_INLINE void add_columns(float (*sums)[VTI_PANEL_ROWS], const unsigned char *w,
                               const unsigned char *x, const unsigned char *scales, size_t n,
                               size_t m)
{
    float16x8_t totals[VTI_TOKEN_GROUP][2];
    const float16_t *halves = (const float16_t *)(const void *)x;
    for (size_t t = 0; t < m; t++) totals[t][0] = totals[t][1] = vdupq_n_f16(0);
    for (size_t c = 0; c < n; c++, w += 2 * VTI_PANEL_ROWS, halves += m) {
        float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(w));
        float16x8_t high = vreinterpretq_f16_u8(vld1q_u8(w + 16));
        for (size_t t = 0; t < m; t++) {
            totals[t][0] = vfmaq_n_f16(totals[t][0], low, halves[t]);
            totals[t][1] = vfmaq_n_f16(totals[t][1], high, halves[t]);
        }
    }
    for (size_t t = 0; t < m; t++) {
        float scale = load_float(scales + 4 * t);
        for (size_t i = 0; i < 2; i++) {
            float *to = sums[t] + 8 * i;
            float32x4_t low = vcvt_f32_f16(vget_low_f16(totals[t][i]));
            float32x4_t high = vcvt_high_f32_f16(totals[t][i]);
            vst1q_f32(to, vfmaq_n_f32(vld1q_f32(to), low, scale));
            vst1q_f32(to + 4, vfmaq_n_f32(vld1q_f32(to + 4), high, scale));
        }
    }
}

/* Adds one block of n columns for the m tokens of a group. */
static void add_group(float (*sums)[VTI_PANEL_ROWS], const unsigned char *w,
                      const unsigned char *x, size_t n, size_t m)
{
    const unsigned char *halves = x + 4 * m;
    for (size_t c = 0, some; c < n; c += some) {
        const unsigned char *at = halves + c * m * 2, *from = w + c * 2 * VTI_PANEL_ROWS;
        some = n - c < CHAIN ? n - c : CHAIN;
        if (m == 4)
            add_columns(sums, from, at, x, some, 4);
        else if (m == 3)
            add_columns(sums, from, at, x, some, 3);
        else if (m == 2)
            add_columns(sums, from, at, x, some, 2);
        else
            add_columns(sums, from, at, x, some, 1);
    }
}

/* The same in floats, column by column. */
static void add_group_exactly(float (*sums)[VTI_PANEL_ROWS], const unsigned char *w,
                              const unsigned char *x, size_t n, size_t m)
{
    for (size_t c = 0; c < n; c++, w += 2 * VTI_PANEL_ROWS) {
        float32x4_t column[VECTORS];
        load_scales(column, w);
        for (size_t t = 0; t < m; t++) {
            float value = half_at(x + 4 * m + 2 * (c * m + t)) * load_float(x + 4 * t);
            for (size_t v = 0; v < VECTORS; v++) {
                float *to = sums[t] + 4 * v;
                vst1q_f32(to, vfmaq_n_f32(vld1q_f32(to), column[v], value));
            }
        }
    }
}

typedef void add_fn(float (*sums)[VTI_PANEL_ROWS], const unsigned char *w, const unsigned char *x,
                    size_t n, size_t m);

/* A panel × a group. */
static void sum_group(float (*sums)[VTI_PANEL_ROWS], const unsigned char *panel,
                      const unsigned char *x, size_t cols, size_t m, add_fn *add)
{
    memset(sums, 0, m * sizeof *sums);
    for (size_t c = 0; c < cols; c += BLOCK) {
        size_t n = cols - c < BLOCK ? cols - c : BLOCK;
        add(sums, panel + c * 2 * VTI_PANEL_ROWS, x, n, m);
        x += m * (4 + 2 * n);
    }
}

/* A panel × one token. */
static void sum_one(float (*sums)[VTI_PANEL_ROWS], const unsigned char *panel,
                    const unsigned char *x, size_t cols)
{
    size_t done = cols / 8 * 8;
    if (done == 0) {
        sum_group(sums, panel, x, cols, 1, add_group);
        return;
    }
    vti_gemv_f16_fp16(sums[0], panel, x, done);
    if (done == cols) return;
    const unsigned char *block = x + vti_act_f16_bytes(done / BLOCK * BLOCK);
    const unsigned char *halves = x + vti_act_f16_bytes(cols) - (cols - done) * 2;
    add_columns(sums, panel + done * 2 * VTI_PANEL_ROWS, halves, block, cols - done, 1);
}

/* One block of n columns, an even number, for two groups of four; the first one sets the sums. */
static void add_groups(panel_sums sums, const unsigned char *w, const unsigned char *x,
                       const unsigned char *second, size_t n, bool first)
{
    const size_t head = VTI_TOKEN_GROUP * 4;
    uint16_t halves[MOST_TOKENS][VTI_PANEL_ROWS];
    vti_tile_f16_fp16(halves[0], w, x + head, second + head, n);
    for (size_t t = 0; t < MOST_TOKENS; t++) {
        float scale = load_float((t < VTI_TOKEN_GROUP ? x : second) + 4 * (t % VTI_TOKEN_GROUP));
        float32x4_t row[VECTORS];
        load_scales(row, (const unsigned char *)halves[t]);
        EACH_VECTOR(v) row[v] = vmulq_n_f32(row[v], scale);
        if (!first) EACH_VECTOR(v) row[v] = vaddq_f32(vld1q_f32(sums[t] + 4 * v), row[v]);
        EACH_VECTOR(v) vst1q_f32(sums[t] + 4 * v, row[v]);
    }
}

/* A panel × two groups of four. */
static void sum_groups(panel_sums sums, const unsigned char *panel, const unsigned char *x,
                       size_t cols)
{
    const unsigned char *second = x + VTI_TOKEN_GROUP * vti_act_f16_bytes(cols);
    size_t c = 0;
    do {
        size_t n = cols - c < BLOCK ? cols - c : BLOCK;
        const unsigned char *w = panel + c * 2 * VTI_PANEL_ROWS;
        if (n % 2 == 0) {
            add_groups(sums, w, x, second, n, c == 0);
        } else {
            if (c == 0) memset(sums, 0, sizeof(panel_sums));
            add_group(sums, w, x, n, VTI_TOKEN_GROUP);
            add_group(sums + VTI_TOKEN_GROUP, w, second, n, VTI_TOKEN_GROUP);
        }
        x += VTI_TOKEN_GROUP * (4 + 2 * n);
        second += VTI_TOKEN_GROUP * (4 + 2 * n);
        c += BLOCK;
    } while (c < cols);
}

/* Infinity × 0 is NaN, which stays. */
static bool all_finite(float (*sums)[VTI_PANEL_ROWS], size_t tokens)
{
    float32x4_t zeros[VECTORS];
    EACH_VECTOR(v) zeros[v] = vdupq_n_f32(0);
    for (size_t t = 0; t < tokens; t++)
        EACH_VECTOR(v) zeros[v] = vfmaq_f32(zeros[v], vld1q_f32(sums[t] + 4 * v), vdupq_n_f32(0));
    float32x4_t zero = vaddq_f32(vaddq_f32(zeros[0], zeros[1]), vaddq_f32(zeros[2], zeros[3]));
    return vaddvq_f32(zero) == 0;
}

/* One panel × up to eight tokens. */
static void sum_panel(panel_sums sums, const unsigned char *panel, const unsigned char *x,
                      size_t cols, size_t tokens)
{
    if (tokens == MOST_TOKENS)
        sum_groups(sums, panel, x, cols);
    else if (tokens == 1)
        sum_one(sums, panel, x, cols);
    else
        sum_group(sums, panel, x, cols, tokens, add_group);
    if (all_finite(sums, tokens)) return;
    for (size_t first = 0; first < tokens; first += VTI_TOKEN_GROUP)
        sum_group(sums + first, panel, x + first * vti_act_f16_bytes(cols), cols,
                  vti_group_tokens(first, tokens), add_group_exactly);
}

static void write_rows(float *y, const float *sums, size_t rows, bool accumulate)
{
    if (rows == VTI_PANEL_ROWS) {
        float32x4_t row[VECTORS];
        EACH_VECTOR(v) row[v] = vld1q_f32(sums + 4 * v);
        if (accumulate) EACH_VECTOR(v) row[v] = vaddq_f32(vld1q_f32(y + 4 * v), row[v]);
        EACH_VECTOR(v) vst1q_f32(y + 4 * v, row[v]);
        return;
    }
    for (size_t r = 0; r < rows; r++) y[r] = accumulate ? y[r] + sums[r] : sums[r];
}

static void matmul_f16(float *y, size_t y_stride, const void *w, const void *x, size_t rows,
                       size_t cols, size_t row_begin, size_t row_end, size_t tokens,
                       bool accumulate)
{
    (void)rows;
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
        const unsigned char *panel = (const unsigned char *)w + row * cols * 2;
        for (size_t first = 0, n; first < tokens; first += n) {
            panel_sums sums;
            size_t left = tokens - first;
            n = left >= MOST_TOKENS ? MOST_TOKENS : vti_group_tokens(first, tokens);
            sum_panel(sums, panel, (const unsigned char *)x + first * vti_act_f16_bytes(cols), cols,
                      n);
            for (size_t t = 0; t < n; t++)
                write_rows(y + (first + t) * y_stride + row, sums[t], vti_panel_rows(row, row_end),
                           accumulate);
        }
    }
}

void vti_kernels_init_float_fp16(vti_kernels *kernels)
{
    kernels->act[VTI_ACT_F16] = (vti_act_kernel){act_bytes_f16, act_pack_f16};
    vti_matmul_set(kernels, VTI_F16, matmul_f16, "matmul_f16_f16_16x8_fp16");
    kernels->matmul[VTI_F16].act = VTI_ACT_F16;
    kernels->matmul[VTI_F16].half_chain = CHAIN + BLOCK / CHAIN;
    kernels->matmul[VTI_F16].batch_invariant = false;
}
