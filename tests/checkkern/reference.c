/* The formats read by their definitions, in double and independently of kernels/. */
#include <math.h>
#include <string.h>

#include "checkkern.h"

static uint16_t u16(const unsigned char *at) { return (uint16_t)(at[0] | at[1] << 8); }

static void put_u16(unsigned char *at, uint16_t v)
{
    at[0] = (unsigned char)v;
    at[1] = (unsigned char)(v >> 8);
}

static float f32(const unsigned char *at)
{
    float v;
    memcpy(&v, at, 4);
    return v;
}

double ck_half_value(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(mantissa + 1024, exponent - 25);
    if (exponent == 31) magnitude = mantissa ? NAN : INFINITY;
    return half & 0x8000 ? -magnitude : magnitude;
}

uint16_t ck_half_nearest(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    double magnitude = fabs((double)value);
    if (isnan(value)) return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    if (magnitude >= 65520) return sign | 0x7c00;
    int exponent = -14; /* of the lowest binade whose step the value is rounded to */
    while (exponent < 15 && magnitude >= ldexp(1, exponent + 1)) exponent++;
    double steps = nearbyint(ldexp(magnitude, 10 - exponent));
    return (uint16_t)(sign | ((unsigned)(exponent + 14) * 1024 + (unsigned)steps));
}

/* --- weights ---------------------------------------------------------------------------------- */

static ck_weight plain(double value) { return (ck_weight){value, fabs(value)}; }

static ck_weight q4_0_weight(const unsigned char *block, size_t c)
{
    unsigned byte = block[2 + c % 16], q = c < 16 ? byte % 16 : byte / 16;
    return plain(ck_half_value(u16(block)) * ((double)q - 8));
}

/* Bit i of a little-endian bit string. */
static unsigned bit(const unsigned char *bytes, size_t i) { return bytes[i / 8] >> i % 8 & 1; }

static ck_weight q5_0_weight(const unsigned char *block, size_t c)
{
    unsigned byte = block[6 + c % 16], q = c < 16 ? byte % 16 : byte / 16;
    q += 16u * bit(block + 2, c);
    return plain(ck_half_value(u16(block)) * ((double)q - 16));
}

/* The six bits of scale (which 0) or min (which 1) of sub-block j, bit by bit: the first four
 * sub-blocks own the low six bits of bytes 4 × which + j; the others keep their low four bits in
 * byte 8 + j - 4 and their high two on top of the first ones'. */
static unsigned k_scale(const unsigned char *packed, size_t which, size_t j)
{
    unsigned value = 0;
    for (size_t b = 0; b < 6; b++) {
        size_t index = j < 4 ? (4 * which + j) * 8 + b
                       : b < 4 ? (8 + j - 4) * 8 + 4 * which + b
                               : (4 * which + j - 4) * 8 + 2 + b;
        value |= bit(packed, index) << b;
    }
    return value;
}

static ck_weight q45_k_weight(const unsigned char *block, size_t c, bool five)
{
    const unsigned char *nibbles = block + (five ? 48 : 16);
    unsigned byte = nibbles[c / 64 * 32 + c % 32], q = c / 32 % 2 ? byte / 16 : byte % 16;
    if (five) q += 16u * bit(block + 16, c % 32 * 8 + c / 32);
    double scaled = ck_half_value(u16(block)) * k_scale(block + 4, 0, c / 32) * q;
    double min = ck_half_value(u16(block + 2)) * k_scale(block + 4, 1, c / 32);
    return (ck_weight){scaled - min, fabs(scaled) + fabs(min)};
}

static ck_weight q6_k_weight(const unsigned char *block, size_t c)
{
    size_t half = c / 128, quarter = c % 128 / 32, l = c % 32;
    unsigned low = block[half * 64 + quarter % 2 * 32 + l];
    unsigned high = block[128 + half * 32 + l];
    unsigned q = (quarter < 2 ? low % 16 : low / 16) + (high >> 2 * quarter) % 4 * 16;
    int8_t scale = (int8_t)block[192 + c / 16];
    return plain(ck_half_value(u16(block + 208)) * scale * ((double)q - 32));
}

ck_weight ck_source_weight(vti_weight_type type, const unsigned char *row, size_t cols, size_t c)
{
    (void)cols;
    uint32_t bits;
    float value;
    switch (type) {
    case VTI_F32: return plain((double)f32(row + 4 * c));
    case VTI_F16: return plain(ck_half_value(u16(row + 2 * c)));
    case VTI_BF16:
        bits = (uint32_t)u16(row + 2 * c) << 16;
        memcpy(&value, &bits, 4);
        return plain((double)value);
    case VTI_Q8_0:
        row += c / 32 * 34;
        return plain(ck_half_value(u16(row)) * (int8_t)row[2 + c % 32]);
    case VTI_Q4_0: return q4_0_weight(row + c / 32 * 18, c % 32);
    case VTI_Q5_0: return q5_0_weight(row + c / 32 * 22, c % 32);
    case VTI_Q4_K: return q45_k_weight(row + c / 256 * 144, c % 256, false);
    case VTI_Q5_K: return q45_k_weight(row + c / 256 * 176, c % 256, true);
    case VTI_Q6_K: return q6_k_weight(row + c / 256 * 210, c % 256);
    default: ck_fail("the harness does not know weight type %d", (int)type);
    }
}

/* --- random weights --------------------------------------------------------------------------- */

static void random_bytes(unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(ck_random() >> 32);
}

/* A half between 2^-8 and 2^-4, either sign. */
static void put_scale(unsigned char *at)
{
    float magnitude = ldexpf(ck_random_float(1, 2), -(int)ck_random_below(4) - 5);
    put_u16(at, ck_half_nearest(ck_random() >> 63 ? magnitude : -magnitude));
}

static void fill_elements(vti_weight_type type, unsigned char *row, size_t cols, bool extreme)
{
    for (size_t c = 0; c < cols; c++) {
        float value = extreme ? 1.0f : ck_random_float(-1, 1);
        if (!extreme && ck_random_below(8) == 0) value *= 1e-6f; /* a subnormal half */
        if (!extreme && ck_random_below(16) == 0) value = 0;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        if (type == VTI_F32) memcpy(row + 4 * c, &value, 4);
        if (type == VTI_F16) put_u16(row + 2 * c, ck_half_nearest(value));
        if (type == VTI_BF16) put_u16(row + 2 * c, (uint16_t)(bits >> 16));
    }
}

/* Extreme integers: all ones or the most negative, whichever the type's worst is. */
static void fill_blocks(vti_weight_type type, unsigned char *row, size_t cols, bool extreme)
{
    static const struct {
        size_t columns, bytes, scale, second_scale;
    } form[] = {
        [VTI_Q8_0] = {32, 34, 0, 0},   [VTI_Q4_0] = {32, 18, 0, 0}, [VTI_Q5_0] = {32, 22, 0, 0},
        [VTI_Q4_K] = {256, 144, 0, 2},
        [VTI_Q5_K] = {256, 176, 0, 2}, [VTI_Q6_K] = {256, 210, 208, 208},
    };
    unsigned char fills[] = {0x00, 0xff, 0x80, 0x7f};
    unsigned char fill = fills[ck_random_below(4)];
    for (size_t c = 0; c < cols; c += form[type].columns) {
        unsigned char block[256];
        size_t left = cols - c, bytes = form[type].bytes;
        if (extreme)
            memset(block, fill, bytes);
        else
            random_bytes(block, bytes);
        put_scale(block + form[type].scale);
        put_scale(block + form[type].second_scale);
        /* Our narrow last K block ends with its last nibble. */
        if (left < 256 && type == VTI_Q4_K) bytes = 16 + (left + 63) / 64 * 32;
        if (left < 256 && type == VTI_Q5_K) bytes = 48 + (left + 63) / 64 * 32;
        memcpy(row, block, bytes);
        row += bytes;
    }
}

void ck_fill_source(vti_weight_type type, unsigned char *row, size_t cols, bool extreme)
{
    if (type == VTI_F32 || type == VTI_F16 || type == VTI_BF16)
        fill_elements(type, row, cols, extreme);
    else
        fill_blocks(type, row, cols, extreme);
}

/* --- activations and KV rows ------------------------------------------------------------------ */

double ck_act_value(vti_act_type type, const unsigned char *act, size_t tokens, size_t cols,
                    size_t t, size_t c)
{
    size_t first = t / 4 * 4, m = tokens - first < 4 ? tokens - first : 4;
    t -= first;
    if (type == VTI_ACT_F32) return (double)f32(act + (first * cols + c * m + t) * 4);
    size_t block = type == VTI_ACT_Q8 ? 32 : type == VTI_ACT_F16 ? 1024 : 256;
    size_t head = type == VTI_ACT_Q8 ? 8 : type == VTI_ACT_F16 ? 4 : 84;
    size_t element = type == VTI_ACT_F16 ? 2 : 1;
    act += first * ((cols + block - 1) / block * head + cols * element);
    act += m * (c / block * (head + block * element));
    c %= block;
    if (type == VTI_ACT_F16)
        return (double)f32(act + 4 * t) * ck_half_value(u16(act + 4 * m + (c * m + t) * 2));
    return (double)f32(act + 4 * t) * (int8_t)act[head * m + (c / 8 * m + t) * 8 + c % 8];
}

double ck_kv_value(vti_kv_form form, const unsigned char *row, size_t head_dim, size_t i)
{
    if (form == VTI_KV_F32) return (double)f32(row + 4 * i);
    if (form == VTI_KV_F16) return ck_half_value(u16(row + 2 * i));
    size_t blocks = (head_dim + 31) / 32;
    return ck_half_value(u16(row + i / 32 * 2)) * (int8_t)row[2 * blocks + i];
}
