/* weight_convert.c: weight types without a kernel: what their bytes mean, and the same weights in
 * a type with a kernel.
 *
 * A block becomes integers and the scale and minimum of each of its parts; weight = scale × q + min.
 * Built without contraction, so that the floats are those of the definition. */
#include <string.h>

#include "../kernels/half.h"
#include "quantize.h"
#include "weight_types.h"

enum { BLOCK = 32, SUPER = 256, MOST_PARTS = 16 };

/* A minimum that changes nothing: added to 0.0 and to -0.0 it leaves them as they are. */
#define NONE (-0.0f)

typedef struct parts {
    size_t columns; /* of one part */
    float scale[MOST_PARTS], min[MOST_PARTS];
    int8_t q[SUPER];
} parts;

typedef void read_fn(parts *to, const unsigned char *block);

static float half_at(const unsigned char *at) { return f32_from_f16(load_u16(at)); }

static void weigh(float *dst, const parts *p, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t part = i / p->columns;
        dst[i] = p->scale[part] * (float)p->q[i] + p->min[part];
    }
}

static void dequantize(read_fn *read, size_t block, size_t block_bytes, float *dst,
                       const void *source, size_t count)
{
    const unsigned char *from = source;
    for (size_t i = 0; i < count; i += block, from += block_bytes) {
        parts p;
        read(&p, from);
        weigh(dst + i, &p, block);
    }
}

/* --- blocks of 32 ----------------------------------------------------------------------------- */

/* Weights 0 … 15 are the lower nibbles, 16 … 31 the upper ones. */
static void read_nibbles(int8_t *q, const unsigned char *nibbles)
{
    for (size_t i = 0; i < 16; i++) {
        q[i] = (int8_t)(nibbles[i] & 15);
        q[16 + i] = (int8_t)(nibbles[i] >> 4);
    }
}

/* F16 d, F16 m, nibbles. */
static void read_q4_1(parts *to, const unsigned char *block)
{
    to->columns = BLOCK;
    to->scale[0] = half_at(block);
    to->min[0] = half_at(block + 2);
    read_nibbles(to->q, block + 4);
}

/* F16 d, F16 m, 32 fifth bits, nibbles. */
static void read_q5_1(parts *to, const unsigned char *block)
{
    uint32_t fifths = block[4] | block[5] << 8 | block[6] << 16 | (uint32_t)block[7] << 24;
    to->columns = BLOCK;
    to->scale[0] = half_at(block);
    to->min[0] = half_at(block + 2);
    read_nibbles(to->q, block + 8);
    for (size_t i = 0; i < BLOCK; i++) to->q[i] |= (int8_t)((fifths >> i & 1) << 4);
}

/* The levels that the sixteen values of an IQ4 nibble stand for. */
static const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

static void read_levels(int8_t *q, const unsigned char *nibbles)
{
    read_nibbles(q, nibbles);
    for (size_t i = 0; i < BLOCK; i++) q[i] = iq4_levels[q[i]];
}

/* F16 d, nibbles. */
static void read_iq4_nl(parts *to, const unsigned char *block)
{
    to->columns = BLOCK;
    to->scale[0] = half_at(block);
    to->min[0] = NONE;
    read_levels(to->q, block + 2);
}

/* --- blocks of 256 ---------------------------------------------------------------------------- */

/* Q2_K and Q3_K: of each 128 weights, byte l holds the weights l, 32 + l, 64 + l, 96 + l. */
static void read_pairs(int8_t *q, const unsigned char *pairs)
{
    for (size_t i = 0; i < SUPER; i++)
        q[i] = (int8_t)(pairs[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3);
}

/* 16 bytes of 4-bit scales and, above them, minima; pairs; F16 d, F16 dmin.
 * Weight = d × scale × q - dmin × min. */
static void read_q2_k(parts *to, const unsigned char *block)
{
    float d = half_at(block + 80), dmin = half_at(block + 82);
    to->columns = 16;
    for (size_t part = 0; part < 16; part++) {
        to->scale[part] = d * (float)(block[part] & 15);
        to->min[part] = -(dmin * (float)(block[part] >> 4));
    }
    read_pairs(to->q, block + 16);
}

/* Sixteen 6-bit scales + 32: the lower four bits in 8 bytes, the second 8 on top of the first;
 * the upper two in 4 bytes, of scale i in byte i % 4. */
static int q3_k_scale(const unsigned char *scales, size_t part)
{
    int low = scales[part % 8] >> part / 8 * 4 & 15;
    int high = scales[8 + part % 4] >> part / 4 * 2 & 3;
    return (low | high << 4) - 32;
}

/* 32 bytes of third bits, bit i of byte l belonging to weight 32 i + l; pairs; 12 bytes of scales;
 * F16 d. Weight = d × scale × (q - 4). */
static void read_q3_k_integers(int8_t *q, const unsigned char *block)
{
    read_pairs(q, block + 32);
    for (size_t i = 0; i < SUPER; i++)
        q[i] = (int8_t)(q[i] - (block[i % 32] >> i / 32 & 1 ? 0 : 4));
}

static void read_q3_k(parts *to, const unsigned char *block)
{
    float d = half_at(block + 108);
    to->columns = 16;
    for (size_t part = 0; part < 16; part++) {
        to->scale[part] = d * (float)q3_k_scale(block + 96, part);
        to->min[part] = NONE;
    }
    read_q3_k_integers(to->q, block);
}

/* F16 d; 16 bits: the upper two of eight 6-bit scales + 32; 4 bytes: their lower four; nibbles of
 * one part of 32 after the other. */
static void read_iq4_xs(parts *to, const unsigned char *block)
{
    float d = half_at(block);
    unsigned highs = load_u16(block + 2);
    to->columns = BLOCK;
    for (size_t part = 0; part < 8; part++) {
        unsigned low = block[4 + part / 2] >> part % 2 * 4 & 15, high = highs >> 2 * part & 3;
        to->scale[part] = d * (float)((int)(low | high << 4) - 32);
        to->min[part] = NONE;
        read_levels(to->q + part * BLOCK, block + 8 + part * 16);
    }
}

/* --- as types with a kernel ------------------------------------------------------------------- */

/* Scale of a block with an infinity or NaN, of a damaged file: so it is not lost on the way. */
static const uint16_t not_a_number = 0x7e00;

static void put_q8_0(unsigned char *dst, uint16_t d, const int8_t *q)
{
    memcpy(dst, &d, sizeof d);
    memcpy(dst + 2, q, BLOCK);
}

/* Q8_0 is scale × INT8 too: nothing is lost. */
static void convert_iq4_nl(void *dst, const void *source, size_t count)
{
    unsigned char *to = dst;
    const unsigned char *from = source;
    for (size_t i = 0; i < count; i += BLOCK, to += 34, from += 18) {
        int8_t q[BLOCK];
        read_levels(q, from + 2);
        put_q8_0(to, load_u16(from), q);
    }
}

/* The integers are kept; d × scale, of up to 16 bits, becomes a half, which has 11. */
static void convert_iq4_xs(void *dst, const void *source, size_t count)
{
    unsigned char *to = dst;
    const unsigned char *from = source;
    for (size_t i = 0; i < count; i += SUPER, from += 136) {
        parts p;
        read_iq4_xs(&p, from);
        for (size_t part = 0; part < 8; part++, to += 34)
            put_q8_0(to, f16_from_f32(p.scale[part]), p.q + part * BLOCK);
    }
}

/* Q6_K has integer scales per 16 too, and six bits hold what three do: nothing is lost. */
static void convert_q3_k(void *dst, const void *source, size_t count)
{
    unsigned char *to = dst;
    const unsigned char *from = source;
    for (size_t i = 0; i < count; i += SUPER, to += 210, from += 110) {
        int8_t q[SUPER], scales[16];
        uint8_t six_bits[SUPER];
        read_q3_k_integers(q, from);
        for (size_t j = 0; j < SUPER; j++) six_bits[j] = (uint8_t)(q[j] + 32);
        for (size_t part = 0; part < 16; part++) scales[part] = (int8_t)q3_k_scale(from + 96, part);
        vti_put_q6_k(to, load_u16(from + 108), scales, six_bits);
    }
}

/* A part of Q2_K has four levels, min + scale × 0 … 3. In Q6_K they become whole numbers of steps:
 * of some steps that are a multiple of d and large enough, the one that fits them best. */
enum { STEPS_TRIED = 64, LEAST_STEP = 64 /* of the part with the largest weight */ };

static float magnitude(float x) { return x < 0 ? -x : x; }

/* To the nearest whole number, |x| < 2^22: the sum has no bits below 1. */
static float nearest(float x)
{
    const float shift = 0x1.8p23f;
    return (x + shift) - shift;
}

/* Sum of squares that each of STEPS_TRIED multiples of d, from `least` on, leaves of the levels. All
 * are tried side by side, without branches. */
static void measure_misfits(float *misfit, const float *levels, float least, float d)
{
    float step[STEPS_TRIED], inverse[STEPS_TRIED];
    for (int i = 0; i < STEPS_TRIED; i++) {
        step[i] = (least + (float)i) * d;
        inverse[i] = 1 / step[i];
        misfit[i] = 0;
    }
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < STEPS_TRIED; i++) {
            float off = levels[k] - nearest(levels[k] * inverse[i]) * step[i];
            misfit[i] += off * off;
        }
    }
}

/* Place of the least of x[0 … STEPS_TRIED - 1]: its value first, in eight lanes. */
static int place_of_least(const float *x)
{
    float least[8];
    memcpy(least, x, sizeof least);
    for (int i = 8; i < STEPS_TRIED; i += 8)
        for (int j = 0; j < 8; j++) least[j] = x[i + j] < least[j] ? x[i + j] : least[j];
    for (int j = 1; j < 8; j++) least[0] = least[j] < least[0] ? least[j] : least[0];
    int place = 0;
    while (place < STEPS_TRIED - 1 && x[place] != least[0]) place++;
    return place;
}

static int fitting_step(const float *levels, float largest, float d)
{
    float misfit[STEPS_TRIED];
    int least = (int)(largest / (31 * d)) + 1; /* at most 65 */
    measure_misfits(misfit, levels, (float)least, d);
    int step = least + place_of_least(misfit);
    return step < 127 ? step : 127;
}

typedef struct part_levels {
    float level[4], largest;
} part_levels;

/* The largest magnitude of all; NaN if one is not finite. */
static float read_levels_q2_k(part_levels *to, const parts *p)
{
    float largest = 0, sum = 0;
    for (size_t part = 0; part < 16; part++) {
        to[part].largest = 0;
        for (int k = 0; k < 4; k++) {
            float level = p->scale[part] * (float)k + p->min[part];
            to[part].level[k] = level;
            if (magnitude(level) > to[part].largest) to[part].largest = magnitude(level);
            sum += level - level; /* 0 unless it is not finite */
        }
        if (to[part].largest > largest) largest = to[part].largest;
    }
    return largest + sum;
}

static void put_parts_q2_k(unsigned char *to, const parts *p, const part_levels *levels,
                           uint16_t half)
{
    float d = f32_from_f16(half);
    int8_t scales[16];
    uint8_t q[SUPER];
    for (size_t part = 0; part < 16; part++) {
        int step = fitting_step(levels[part].level, levels[part].largest, d);
        uint8_t rounded[4];
        for (int k = 0; k < 4; k++)
            rounded[k] = (uint8_t)(nearest(levels[part].level[k] / ((float)step * d)) + 32);
        scales[part] = (int8_t)step;
        for (size_t i = part * 16; i < part * 16 + 16; i++) q[i] = rounded[p->q[i]];
    }
    vti_put_q6_k(to, half, scales, q);
}

static void convert_q2_k(void *dst, const void *source, size_t count)
{
    unsigned char *to = dst;
    const unsigned char *from = source;
    for (size_t i = 0; i < count; i += SUPER, to += 210, from += 84) {
        parts p;
        part_levels levels[16];
        read_q2_k(&p, from);
        float largest = read_levels_q2_k(levels, &p);
        uint16_t d = f16_from_f32(largest / (31 * LEAST_STEP));
        memset(to, 0, 210);
        if (largest > 0)
            put_parts_q2_k(to, &p, levels, d ? d : 1); /* 1: the least half */
        else if (largest != 0)
            memcpy(to + 208, &not_a_number, sizeof not_a_number);
    }
}

static bool all_finite(const float *x, size_t count)
{
    bool finite = true;
    for (size_t i = 0; i < count; i++) finite &= x[i] - x[i] == 0;
    return finite;
}

/* Minima have no place in Q8_0: rounded anew. */
static void round_to_q8_0(read_fn *read, size_t block_bytes, unsigned char *to,
                          const unsigned char *from, size_t count)
{
    for (size_t i = 0; i < count; i += BLOCK, to += 34, from += block_bytes) {
        float weights[BLOCK];
        dequantize(read, BLOCK, block_bytes, weights, from, BLOCK);
        bool finite = all_finite(weights, BLOCK);
        if (!finite) memset(weights, 0, sizeof weights);
        vti_quantize_q8_0(to, weights, BLOCK);
        if (!finite) memcpy(to, &not_a_number, sizeof not_a_number);
    }
}

#define DEQUANTIZE(type, block, bytes)                                                             \
    static void dequantize_##type(float *dst, const void *source, size_t count)                    \
    {                                                                                              \
        dequantize(read_##type, block, bytes, dst, source, count);                                 \
    }
#define ROUND_TO_Q8_0(type, bytes)                                                                 \
    static void convert_##type(void *dst, const void *source, size_t count)                        \
    {                                                                                              \
        round_to_q8_0(read_##type, bytes, dst, source, count);                                     \
    }

DEQUANTIZE(q4_1, BLOCK, 20)
DEQUANTIZE(q5_1, BLOCK, 24)
DEQUANTIZE(q2_k, SUPER, 84)
DEQUANTIZE(q3_k, SUPER, 110)
DEQUANTIZE(iq4_nl, BLOCK, 18)
DEQUANTIZE(iq4_xs, SUPER, 136)
ROUND_TO_Q8_0(q4_1, 20)
ROUND_TO_Q8_0(q5_1, 24)

const vti_conversion vti_conversions[VTI_CONVERSION_COUNT] = {
    {"Q4_1", 3, VTI_Q8_0, BLOCK, 20, dequantize_q4_1, convert_q4_1},
    {"Q5_1", 7, VTI_Q8_0, BLOCK, 24, dequantize_q5_1, convert_q5_1},
    {"Q2_K", 10, VTI_Q6_K, SUPER, 84, dequantize_q2_k, convert_q2_k},
    {"Q3_K", 11, VTI_Q6_K, SUPER, 110, dequantize_q3_k, convert_q3_k},
    {"IQ4_NL", 20, VTI_Q8_0, BLOCK, 18, dequantize_iq4_nl, convert_iq4_nl},
    {"IQ4_XS", 23, VTI_Q8_0, SUPER, 136, dequantize_iq4_xs, convert_iq4_xs},
};
