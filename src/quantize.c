/* The block formats of ggml, written with rounding to the nearest step and no search for better
 * scales. Steps are never too small for their block, so no weight is off by more than half a step
 * (Q4_0 and Q5_0: one step, at the end of the range that has one step less).
 *
 * Loops over a block have no branches, so that they become vector code. */
#include "quantize.h"

#include <string.h>

#include "../kernels/half.h"

/* --- floats ----------------------------------------------------------------------------------- */

uint16_t vti_half_above(float x)
{
    uint16_t half = f16_from_f32(x);
    return f32_from_f16(half) < x ? (uint16_t)(half + 1) : half;
}

void vti_quantize_f32(void *out, const float *x, size_t count)
{
    memcpy(out, x, count * sizeof *x);
}

void vti_quantize_f16(void *out, const float *x, size_t count)
{
    uint16_t *halves = out;
    for (size_t i = 0; i < count; i++) halves[i] = f16_from_f32(x[i]);
}

void vti_quantize_bf16(void *out, const float *x, size_t count)
{
    uint16_t *halves = out;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = bits_of_float(x[i]);
        halves[i] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
}

/* --- ranges ----------------------------------------------------------------------------------- */

typedef struct range {
    float low, high;
} range;

/* `count` is a multiple of 8. */
static inline range range_of(const float *x, size_t count)
{
    float low[8], high[8];
    memcpy(low, x, sizeof low);
    memcpy(high, x, sizeof high);
    for (size_t i = 8; i < count; i += 8) {
        for (size_t j = 0; j < 8; j++) {
            low[j] = x[i + j] < low[j] ? x[i + j] : low[j];
            high[j] = x[i + j] > high[j] ? x[i + j] : high[j];
        }
    }
    range r = {low[0], high[0]};
    for (size_t j = 1; j < 8; j++) {
        r.low = low[j] < r.low ? low[j] : r.low;
        r.high = high[j] > r.high ? high[j] : r.high;
    }
    return r;
}

static float larger(float a, float b) { return a > b ? a : b; }

/* Nearest of 0 … most to each (x - zero) / step. */
static inline void round_to_steps(uint8_t *q, const float *x, size_t count, float zero, float step,
                                  int most)
{
    float inverse = step != 0 ? 1 / step : 0, last = (float)most;
    for (size_t i = 0; i < count; i++) {
        float place = (x[i] - zero) * inverse;
        place = place > 0 ? place : 0; /* also for what is not a number */
        place = place < last ? place : last;
        q[i] = (uint8_t)(int)(place + 0.5f);
    }
}

/* --- blocks of 32 ----------------------------------------------------------------------------- */

enum { BLOCK = 32 };

static void put_half(unsigned char *out, uint16_t half) { memcpy(out, &half, sizeof half); }

void vti_quantize_q8_0(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += BLOCK, to += 34) {
        range r = range_of(x + i, BLOCK);
        uint16_t d = vti_half_above(larger(-r.low, r.high) / 127);
        float step = f32_from_f16(d);
        uint8_t q[BLOCK];
        round_to_steps(q, x + i, BLOCK, -128 * step, step, 255);
        put_half(to, d);
        for (size_t j = 0; j < BLOCK; j++) to[2 + j] = (unsigned char)(q[j] - 128);
    }
}

/* Steps of a symmetric block with 2 × half levels: the weight of largest magnitude becomes -half,
 * so the sign of d says on which side it is. */
static uint16_t symmetric_step(const float *x, float half)
{
    range r = range_of(x, BLOCK);
    float largest = larger(-r.low, r.high);
    uint16_t d = vti_half_above(largest / half);
    return r.high > -r.low ? d | 0x8000 : d;
}

static void put_nibbles(unsigned char *to, const uint8_t *q)
{
    for (size_t j = 0; j < 16; j++) to[j] = (unsigned char)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

static void put_fifth_bits(unsigned char *to, const uint8_t *q)
{
    uint32_t bits = 0;
    for (size_t j = 0; j < BLOCK; j++) bits |= (uint32_t)(q[j] >> 4) << j;
    memcpy(to, &bits, sizeof bits);
}

void vti_quantize_q4_0(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += BLOCK, to += 18) {
        uint16_t d = symmetric_step(x + i, 8);
        float step = f32_from_f16(d);
        uint8_t q[BLOCK];
        round_to_steps(q, x + i, BLOCK, -8 * step, step, 15);
        put_half(to, d);
        put_nibbles(to + 2, q);
    }
}

void vti_quantize_q5_0(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += BLOCK, to += 22) {
        uint16_t d = symmetric_step(x + i, 16);
        float step = f32_from_f16(d);
        uint8_t q[BLOCK];
        round_to_steps(q, x + i, BLOCK, -16 * step, step, 31);
        put_half(to, d);
        put_fifth_bits(to + 2, q);
        put_nibbles(to + 6, q);
    }
}

/* Steps of a block with a least value m: writes d and m, and its numbers of steps. */
static void put_affine(unsigned char *to, const float *x, int most, uint8_t q[BLOCK])
{
    range r = range_of(x, BLOCK);
    uint16_t m = f16_from_f32(r.low);
    float low = f32_from_f16(m);
    uint16_t d = vti_half_above((r.high - low) / (float)most);
    round_to_steps(q, x, BLOCK, low, f32_from_f16(d), most);
    put_half(to, d);
    put_half(to + 2, m);
}

void vti_quantize_q5_1(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += BLOCK, to += 24) {
        uint8_t q[BLOCK];
        put_affine(to, x + i, 31, q);
        put_fifth_bits(to + 4, q);
        put_nibbles(to + 8, q);
    }
}

void vti_quantize_q4_1(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += BLOCK, to += 20) {
        uint8_t q[BLOCK];
        put_affine(to, x + i, 15, q);
        put_nibbles(to + 4, q);
    }
}

/* --- blocks of 256 ---------------------------------------------------------------------------- */

enum { SUPER = 256 };

/* The least integer whose product with `step` is not less than x, at most `most`. */
static int steps_above(float x, float step, int most)
{
    int n = step > 0 ? (int)(x / step) : 0;
    while (n < most && (float)n * step < x) n++;
    return n;
}

void vti_affine_choose(vti_affine *a, const float *x, size_t columns, int most)
{
    size_t parts = columns / BLOCK;
    float scale[8], min[8], largest_scale = 0, largest_min = 0;
    for (size_t j = 0; j < parts; j++) {
        range r = range_of(x + j * BLOCK, BLOCK);
        min[j] = larger(-r.low, 0);
        largest_min = larger(largest_min, min[j]);
    }
    a->dmin = vti_half_above(largest_min / 63);
    for (size_t j = 0; j < parts; j++) {
        range r = range_of(x + j * BLOCK, BLOCK);
        a->min[j] = (uint8_t)steps_above(min[j], f32_from_f16(a->dmin), 63);
        scale[j] = larger(r.high + (float)a->min[j] * f32_from_f16(a->dmin), 0) / (float)most;
        largest_scale = larger(largest_scale, scale[j]);
    }
    a->d = vti_half_above(largest_scale / 63);
    for (size_t j = 0; j < parts; j++)
        a->scale[j] = (uint8_t)steps_above(scale[j], f32_from_f16(a->d), 63);
}

static void quantize_affine(vti_affine *a, const float *x, int most)
{
    vti_affine_choose(a, x, SUPER, most);
    for (int j = 0; j < 8; j++) {
        float zero = -(float)a->min[j] * f32_from_f16(a->dmin);
        round_to_steps(a->q + j * BLOCK, x + j * BLOCK, BLOCK, zero,
                       (float)a->scale[j] * f32_from_f16(a->d), most);
    }
}

/* d, dmin, then 8 scales and 8 mins of six bits in 12 bytes: the first four of each in the lower
 * six bits of a byte; of the others four bits in a byte of their own, two above the first ones. */
static void put_scales(unsigned char *to, const vti_affine *a)
{
    put_half(to, a->d);
    put_half(to + 2, a->dmin);
    for (int j = 0; j < 4; j++) {
        unsigned scale = a->scale[j + 4], min = a->min[j + 4];
        to[4 + j] = (unsigned char)(a->scale[j] | scale >> 4 << 6);
        to[8 + j] = (unsigned char)(a->min[j] | min >> 4 << 6);
        to[12 + j] = (unsigned char)((scale & 15) | (min & 15) << 4);
    }
}

/* Of each 64 weights the lower nibbles hold the first 32, the upper ones the others. */
static void put_nibbles_k(unsigned char *to, const uint8_t *q, size_t columns)
{
    for (size_t i = 0; i < (columns + 63) / 64; i++)
        for (size_t j = 0; j < 32; j++)
            to[i * 32 + j] = (unsigned char)((q[i * 64 + j] & 15) | (q[i * 64 + 32 + j] & 15) << 4);
}

void vti_affine_put_q4_k(void *out, const vti_affine *a, size_t columns)
{
    unsigned char *to = out;
    put_scales(to, a);
    put_nibbles_k(to + 16, a->q, columns);
}

void vti_quantize_q4_k(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += SUPER, to += 144) {
        vti_affine a;
        quantize_affine(&a, x + i, 15);
        vti_affine_put_q4_k(to, &a, SUPER);
    }
}

void vti_quantize_q5_k(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += SUPER, to += 176) {
        vti_affine a;
        quantize_affine(&a, x + i, 31);
        put_scales(to, &a);
        memset(to + 16, 0, 32);
        for (size_t j = 0; j < 8; j++)
            for (size_t k = 0; k < 32; k++)
                to[16 + k] = (unsigned char)(to[16 + k] | a.q[j * 32 + k] >> 4 << j);
        put_nibbles_k(to + 48, a.q, SUPER);
    }
}

/* Twice 128 weights as four rows of 32: lower four bits of rows 0 and 2 in a byte, of 1 and 3 in
 * another; upper two bits of all four in a third. */
static void put_six_bits(unsigned char *low, unsigned char *high, const uint8_t *q)
{
    for (size_t half = 0; half < 2; half++, q += 128, low += 64, high += 32) {
        for (size_t j = 0; j < 32; j++) {
            unsigned q0 = q[j], q1 = q[j + 32], q2 = q[j + 64], q3 = q[j + 96];
            low[j] = (unsigned char)((q0 & 15) | (q2 & 15) << 4);
            low[j + 32] = (unsigned char)((q1 & 15) | (q3 & 15) << 4);
            high[j] = (unsigned char)(q0 >> 4 | q1 >> 4 << 2 | q2 >> 4 << 4 | q3 >> 4 << 6);
        }
    }
}

void vti_put_q6_k(void *block, uint16_t d, const int8_t *scales, const uint8_t *q)
{
    unsigned char *to = block;
    put_six_bits(to, to + 128, q);
    memcpy(to + 192, scales, 16);
    put_half(to + 208, d);
}

void vti_quantize_q6_k(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += SUPER, to += 210) {
        float scale[16], largest = 0;
        int8_t steps[16];
        uint8_t q[SUPER];
        for (int j = 0; j < 16; j++) {
            range r = range_of(x + i + j * 16, 16);
            scale[j] = larger(-r.low, r.high) / 31;
            largest = larger(largest, scale[j]);
        }
        uint16_t d = vti_half_above(largest / 127);
        for (int j = 0; j < 16; j++) {
            int n = steps_above(scale[j], f32_from_f16(d), 127);
            float step = (float)n * f32_from_f16(d);
            round_to_steps(q + j * 16, x + i + j * 16, 16, -32 * step, step, 63);
            steps[j] = (int8_t)n;
        }
        vti_put_q6_k(to, d, steps, q);
    }
}

/* --- Q2_K, Q3_K ------------------------------------------------------------------------------- */

enum { PARTS = 16, PART = 16 }; /* of a super-block; weights in one */

/* The lower two bits: of each 128 weights, byte l holds the weights l, 32 + l, 64 + l, 96 + l. */
static void put_pairs(unsigned char *to, const uint8_t *q)
{
    memset(to, 0, SUPER / 4);
    for (size_t i = 0; i < SUPER; i++)
        to[i / 128 * 32 + i % 32] |= (unsigned char)((q[i] & 3) << i / 32 % 4 * 2);
}

/* Weight = d × scale × q - dmin × min, scale and min of four bits per 16 weights. */
static void put_q2_k(unsigned char *to, const float *x)
{
    float low[PARTS], high[PARTS], most_low = 0, most_high = 0;
    uint8_t q[SUPER];
    for (int j = 0; j < PARTS; j++) {
        range r = range_of(x + j * PART, PART);
        low[j] = larger(-r.low, 0);
        high[j] = r.high;
        most_low = larger(most_low, low[j]);
    }
    uint16_t dmin = vti_half_above(most_low / 15);
    for (int j = 0; j < PARTS; j++) {
        int min = steps_above(low[j], f32_from_f16(dmin), 15);
        low[j] = (float)min * f32_from_f16(dmin);
        high[j] = larger(high[j] + low[j], 0) / 3;
        most_high = larger(most_high, high[j]);
        to[j] = (unsigned char)(min << 4);
    }
    uint16_t d = vti_half_above(most_high / 15);
    for (int j = 0; j < PARTS; j++) {
        int scale = steps_above(high[j], f32_from_f16(d), 15);
        round_to_steps(q + j * PART, x + j * PART, PART, -low[j], (float)scale * f32_from_f16(d),
                       3);
        to[j] |= (unsigned char)scale;
    }
    put_pairs(to + 16, q);
    put_half(to + 80, d);
    put_half(to + 82, dmin);
}

void vti_quantize_q2_k(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += SUPER, to += 84) put_q2_k(to, x + i);
}

/* The largest magnitude; negative if the weight that has it is positive, as the level that it
 * shall become is negative. */
static float signed_largest(const float *x, size_t count)
{
    range r = range_of(x, count);
    return r.high > -r.low ? -r.high : -r.low;
}

/* Integer scales of `count` parts, from -31 to 31, for one d. */
static uint16_t choose_signed_scales(int *scales, const float *wanted, size_t count)
{
    float largest = 0;
    for (size_t j = 0; j < count; j++)
        largest = larger(largest, wanted[j] < 0 ? -wanted[j] : wanted[j]);
    uint16_t d = vti_half_above(largest / 31);
    for (size_t j = 0; j < count; j++) {
        int n = steps_above(wanted[j] < 0 ? -wanted[j] : wanted[j], f32_from_f16(d), 31);
        scales[j] = wanted[j] < 0 ? -n : n;
    }
    return d;
}

/* Sixteen 6-bit scales + 32: lower four bits of 8 and of the other 8 in a byte each; upper two of
 * four. */
static void put_six_bit_scales(unsigned char *to, const int *scales)
{
    memset(to, 0, 12);
    for (int j = 0; j < PARTS; j++) {
        int scale = scales[j] + 32;
        to[j % 8] |= (unsigned char)((scale & 15) << j / 8 * 4);
        to[8 + j % 4] |= (unsigned char)(scale >> 4 << j / 4 * 2);
    }
}

/* Weight = d × scale × (q - 4), scale of six bits per 16 weights. */
static void put_q3_k(unsigned char *to, const float *x)
{
    float wanted[PARTS];
    int scales[PARTS];
    uint8_t q[SUPER];
    for (int j = 0; j < PARTS; j++) wanted[j] = signed_largest(x + j * PART, PART) / 4;
    uint16_t d = choose_signed_scales(scales, wanted, PARTS);
    for (int j = 0; j < PARTS; j++) {
        float step = (float)scales[j] * f32_from_f16(d);
        round_to_steps(q + j * PART, x + j * PART, PART, -4 * step, step, 7);
    }
    memset(to, 0, 32);
    for (size_t i = 0; i < SUPER; i++) to[i % 32] |= (unsigned char)(q[i] >> 2 << i / 32);
    put_pairs(to + 32, q);
    put_six_bit_scales(to + 96, scales);
    put_half(to + 108, d);
}

void vti_quantize_q3_k(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += SUPER, to += 110) put_q3_k(to, x + i);
}

/* --- IQ4_NL, IQ4_XS --------------------------------------------------------------------------- */

static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

/* Nearest of step × level to each of 32 weights. */
static void round_to_levels(uint8_t *q, const float *x, float step)
{
    float inverse = step != 0 ? 1 / step : 0;
    for (size_t i = 0; i < BLOCK; i++) {
        q[i] = 0;
        for (size_t k = 1; k < 16; k++)
            q[i] += (uint8_t)(2 * x[i] * inverse > (float)(levels[k - 1] + levels[k]));
    }
}

void vti_quantize_iq4_nl(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += BLOCK, to += 18) {
        float wanted = signed_largest(x + i, BLOCK) / 127;
        uint16_t d = vti_half_above(wanted < 0 ? -wanted : wanted) | (wanted < 0 ? 0x8000 : 0);
        uint8_t q[BLOCK];
        round_to_levels(q, x + i, f32_from_f16(d));
        put_half(to, d);
        put_nibbles(to + 2, q);
    }
}

/* Weight = d × scale × level, scale of six bits per 32 weights. */
static void put_iq4_xs(unsigned char *to, const float *x)
{
    float wanted[8];
    int scales[8];
    for (int j = 0; j < 8; j++) wanted[j] = signed_largest(x + j * BLOCK, BLOCK) / 127;
    uint16_t d = choose_signed_scales(scales, wanted, 8), highs = 0;
    memset(to + 4, 0, 4);
    for (int j = 0; j < 8; j++) {
        unsigned scale = (unsigned)(scales[j] + 32);
        uint8_t q[BLOCK];
        round_to_levels(q, x + j * BLOCK, (float)scales[j] * f32_from_f16(d));
        put_nibbles(to + 8 + j * 16, q);
        to[4 + j / 2] |= (unsigned char)((scale & 15) << j % 2 * 4);
        highs |= (uint16_t)(scale >> 4 << 2 * j);
    }
    put_half(to, d);
    put_half(to + 2, highs);
}

void vti_quantize_iq4_xs(void *out, const float *x, size_t count)
{
    unsigned char *to = out;
    for (size_t i = 0; i < count; i += SUPER, to += 136) put_iq4_xs(to, x + i);
}
