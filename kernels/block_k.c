/* Q4_K, Q5_K, Q6_K: up to 256 columns with an F16 scale, in sub-blocks with integer scales.
 *
 * A narrow last block of our own (32 n columns) has the whole head; of its columns the file's form
 * keeps the bytes up to the last one used. */
#include <string.h>

#include "block.h"
#include "half.h"

/* --- Q4_K, Q5_K ------------------------------------------------------------------------------- */

/* File: F16 d, F16 dmin, 12 bytes of 6-bit scales and mins, Q5_K: 32 bytes of fifth bits, then
 * nibbles: per 64 columns 32 bytes, the first 32 columns in the lower nibbles.
 * Weight = d × scale × q - dmin × min, with scale and min of the sub-block of 32. */
enum { HEAD_BYTES = 16, FIFTH_BYTES = 32 };

static size_t nibble_bytes(size_t columns) { return (columns + 63) / 64 * 32; }

static size_t source_bytes_q4_k(size_t cols)
{
    return vti_k_blocks(cols) * HEAD_BYTES + nibble_bytes(cols);
}

static size_t source_bytes_q5_k(size_t cols)
{
    return vti_k_blocks(cols) * (HEAD_BYTES + FIFTH_BYTES) + nibble_bytes(cols);
}

typedef struct scale_min {
    unsigned scale, min;
} scale_min;

static scale_min source_scale(const unsigned char *source, size_t sub)
{
    const unsigned char *s = source + 4;
    if (sub < 4) return (scale_min){s[sub] & 63, s[sub + 4] & 63};
    return (scale_min){(s[sub + 4] & 15u) | (s[sub - 4] >> 6) << 4,
                       s[sub + 4] >> 4 | (s[sub] >> 6) << 4};
}

/* In the panel's head sub-blocks come in two halves of 4. [2 halves][16 rows][4] bytes: 6 bits of
 * scale, above them the high 2 bits of min; then [16 rows][4]: the low 4 bits of min, the second
 * half's on top. */
static size_t scale_byte(size_t r, size_t sub)
{
    return VTI_Q45_K_SCALES + (sub / 4 * VTI_PANEL_ROWS + r) * 4 + sub % 4;
}

static size_t min_byte(size_t r, size_t sub) { return VTI_Q45_K_MIN_LOWS + r * 4 + sub % 4; }

static void place_scale(unsigned char *block, size_t r, size_t sub, scale_min v)
{
    block[scale_byte(r, sub)] = (unsigned char)(v.scale | v.min >> 4 << 6);
    block[min_byte(r, sub)] |= (unsigned char)((v.min & 15) << (sub < 4 ? 0 : 4));
}

static scale_min take_scale(const unsigned char *block, size_t r, size_t sub)
{
    unsigned byte = block[scale_byte(r, sub)];
    unsigned low = block[min_byte(r, sub)] >> (sub < 4 ? 0 : 4) & 15;
    return (scale_min){byte & 63, byte >> 6 << 4 | low};
}

static unsigned source_nibble(const unsigned char *nibbles, size_t c)
{
    unsigned byte = nibbles[c / 64 * 32 + c % 32];
    return c % 64 < 32 ? byte & 15 : byte >> 4;
}

static float weight(uint16_t d, uint16_t dmin, scale_min v, unsigned q)
{
    float scale = f32_from_f16(d) * (float)v.scale, min = f32_from_f16(dmin) * (float)v.min;
    return scale * (float)q - min;
}

static void place_head(unsigned char *block, size_t r, const unsigned char *source, size_t columns)
{
    memcpy(block + 2 * r, source, 2);
    memcpy(block + VTI_Q45_K_MINS + 2 * r, source + 2, 2);
    for (size_t sub = 0; sub < columns / 32; sub++)
        place_scale(block, r, sub, source_scale(source, sub));
}

static void place_q4_k(unsigned char *block, size_t r, const unsigned char *source, size_t columns)
{
    place_head(block, r, source, columns);
    for (size_t c = 0; c < columns; c++)
        vti_nibble_place(block + VTI_Q45_K_HEAD + c / 32 * VTI_Q4_K_SUB, r, c % 32,
                         source_nibble(source + HEAD_BYTES, c) ^ vti_nibble_flip(r));
}

static void take_q4_k(float *dst, const unsigned char *block, size_t r, size_t columns)
{
    for (size_t c = 0; c < columns; c++) {
        const unsigned char *tile = block + VTI_Q45_K_HEAD + c / 32 * VTI_Q4_K_SUB;
        unsigned q = vti_nibble_take(tile, r, c % 32) ^ vti_nibble_flip(r);
        dst[c] = weight(load_u16(block + 2 * r), load_u16(block + VTI_Q45_K_MINS + 2 * r),
                        take_scale(block, r, c / 32), q);
    }
}

static void dequantize_q4_k(float *dst, const unsigned char *source, size_t columns)
{
    for (size_t c = 0; c < columns; c++)
        dst[c] = weight(load_u16(source), load_u16(source + 2), source_scale(source, c / 32),
                        source_nibble(source + HEAD_BYTES, c));
}

const vti_block_type vti_block_q4_k = {
    .columns = VTI_K_BLOCK,
    .source_bytes = source_bytes_q4_k,
    .panel_bytes = vti_panel_bytes_q4_k,
    .place = place_q4_k,
    .take = take_q4_k,
    .dequantize = dequantize_q4_k,
};

static unsigned source_q5_k(const unsigned char *source, size_t c)
{
    unsigned fifth = source[HEAD_BYTES + c % 32] >> c / 32 & 1;
    return source_nibble(source + HEAD_BYTES + FIFTH_BYTES, c) | fifth << 4;
}

static void place_q5_k(unsigned char *block, size_t r, const unsigned char *source, size_t columns)
{
    place_head(block, r, source, columns);
    for (size_t c = 0; c < columns; c++) {
        unsigned char *sub = block + VTI_Q45_K_HEAD + c / 32 * VTI_Q5_K_SUB;
        unsigned q = source_q5_k(source, c);
        vti_fifth_place(sub, r, c % 32, q >> 4);
        vti_nibble_place(sub + VTI_FIFTH_BYTES, r, c % 32, q & 15);
    }
}

static void take_q5_k(float *dst, const unsigned char *block, size_t r, size_t columns)
{
    for (size_t c = 0; c < columns; c++) {
        const unsigned char *sub = block + VTI_Q45_K_HEAD + c / 32 * VTI_Q5_K_SUB;
        unsigned q = vti_nibble_take(sub + VTI_FIFTH_BYTES, r, c % 32);
        q |= vti_fifth_take(sub, r, c % 32) << 4;
        dst[c] = weight(load_u16(block + 2 * r), load_u16(block + VTI_Q45_K_MINS + 2 * r),
                        take_scale(block, r, c / 32), q);
    }
}

static void dequantize_q5_k(float *dst, const unsigned char *source, size_t columns)
{
    for (size_t c = 0; c < columns; c++)
        dst[c] = weight(load_u16(source), load_u16(source + 2), source_scale(source, c / 32),
                        source_q5_k(source, c));
}

const vti_block_type vti_block_q5_k = {
    .columns = VTI_K_BLOCK,
    .source_bytes = source_bytes_q5_k,
    .panel_bytes = vti_panel_bytes_q5_k,
    .place = place_q5_k,
    .take = take_q5_k,
    .dequantize = dequantize_q5_k,
};

/* --- Q6_K ------------------------------------------------------------------------------------- */

/* File: 128 bytes of lower nibbles, 64 of upper bit pairs, 16 × I8 scales, F16 d. Per 128 columns
 * l, l + 32 share no byte but l and l + 64 share a nibble byte, and l % 32 a byte of pairs.
 * Weight = d × scale × (q - 32), with the scale of the sub-block of 16. A narrow block keeps the
 * whole 210 bytes. */
enum { Q6_K_HIGH = 128, Q6_K_SCALES = 192, Q6_K_D = 208, Q6_K_BYTES = 210 };

static size_t source_bytes_q6_k(size_t cols) { return vti_k_blocks(cols) * Q6_K_BYTES; }

static unsigned source_q6_k(const unsigned char *source, size_t c)
{
    size_t half = c / 128, in_half = c % 128;
    unsigned low = source[half * 64 + in_half % 64];
    unsigned high = source[Q6_K_HIGH + half * 32 + in_half % 32];
    return (in_half < 64 ? low & 15 : low >> 4) | (high >> in_half / 32 * 2 & 3) << 4;
}

static void place_q6_k(unsigned char *block, size_t r, const unsigned char *source, size_t columns)
{
    memcpy(block + 2 * r, source + Q6_K_D, 2);
    for (size_t sub = 0; sub < columns / 16; sub++)
        block[VTI_Q6_K_SCALES + sub * 16 + r] = source[Q6_K_SCALES + sub];
    for (size_t c = 0; c < columns; c++) {
        unsigned char *sub = block + VTI_Q6_K_HEAD + c / 16 * VTI_Q6_K_SUB;
        unsigned q = source_q6_k(source, c);
        sub[r * 4 + c % 4] |= (unsigned char)(q >> 4 << c % 16 / 4 * 2);
        vti_nibble_place(sub + 64, r, c % 16, q & 15);
    }
}

static float weight_q6_k(uint16_t d, unsigned char scale, unsigned q)
{
    return f32_from_f16(d) * (float)(int8_t)scale * (float)((int)q - 32);
}

static void take_q6_k(float *dst, const unsigned char *block, size_t r, size_t columns)
{
    for (size_t c = 0; c < columns; c++) {
        const unsigned char *sub = block + VTI_Q6_K_HEAD + c / 16 * VTI_Q6_K_SUB;
        unsigned high = sub[r * 4 + c % 4] >> c % 16 / 4 * 2 & 3;
        dst[c] = weight_q6_k(load_u16(block + 2 * r), block[VTI_Q6_K_SCALES + c / 16 * 16 + r],
                             vti_nibble_take(sub + 64, r, c % 16) | high << 4);
    }
}

static void dequantize_q6_k(float *dst, const unsigned char *source, size_t columns)
{
    for (size_t c = 0; c < columns; c++)
        dst[c] = weight_q6_k(load_u16(source + Q6_K_D), source[Q6_K_SCALES + c / 16],
                             source_q6_k(source, c));
}

const vti_block_type vti_block_q6_k = {
    .columns = VTI_K_BLOCK,
    .source_bytes = source_bytes_q6_k,
    .panel_bytes = vti_panel_bytes_q6_k,
    .place = place_q6_k,
    .take = take_q6_k,
    .dequantize = dequantize_q6_k,
};
