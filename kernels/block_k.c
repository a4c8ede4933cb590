/* Q4_K, Q5_K, Q6_K: up to 256 columns with an F16 scale, in sub-blocks with integer scales.
 *
 * A narrow last block of our own (32 n columns) has the whole head; of its columns the file's form
 * keeps the bytes up to the last pair of sub-blocks. */
#include "block.h"
#include "half.h"

/* --- Q4_K, Q5_K: scales ----------------------------------------------------------------------- */

/* File: F16 d, F16 dmin, 12 bytes of 6-bit scales and mins, Q5_K: 32 bytes of fifth bits, then
 * nibbles. Weight = d × scale × q - dmin × min, with scale and min of the sub-block of 32. */
enum { HEAD_BYTES = 16, FIFTH_BYTES = 32 };

static size_t nibble_bytes(size_t columns) { return (columns + 63) / 64 * 32; }

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

static scale_min panel_scale(const unsigned char *block, size_t r, size_t sub)
{
    unsigned byte = block[scale_byte(r, sub)];
    unsigned low = block[min_byte(r, sub)] >> (sub < 4 ? 0 : 4) & 15;
    return (scale_min){byte & 63, byte >> 6 << 4 | low};
}

static void place_scales(unsigned char *block, size_t r, const unsigned char *source,
                         size_t columns)
{
    memcpy(block + 2 * r, source, 2);
    memcpy(block + VTI_Q45_K_MINS + 2 * r, source + 2, 2);
    for (size_t sub = 0; sub < columns / 32; sub++) {
        scale_min v = source_scale(source, sub);
        block[scale_byte(r, sub)] = (unsigned char)(v.scale | v.min >> 4 << 6);
        block[min_byte(r, sub)] |= (unsigned char)((v.min & 15) << (sub < 4 ? 0 : 4));
    }
}

static void source_scales(vti_row_scales *to, const unsigned char *source, size_t columns)
{
    float d = f32_from_f16(load_u16(source)), dmin = f32_from_f16(load_u16(source + 2));
    for (size_t sub = 0; sub < columns / 32; sub++) {
        scale_min v = source_scale(source, sub);
        to->scale[sub] = d * (float)v.scale;
        to->min[sub] = dmin * (float)v.min;
    }
}

static void panel_scales(vti_row_scales *to, const unsigned char *block, size_t r, size_t columns)
{
    float d = f32_from_f16(load_u16(block + 2 * r));
    float dmin = f32_from_f16(load_u16(block + VTI_Q45_K_MINS + 2 * r));
    for (size_t sub = 0; sub < columns / 32; sub++) {
        scale_min v = panel_scale(block, r, sub);
        to->scale[sub] = d * (float)v.scale;
        to->min[sub] = dmin * (float)v.min;
    }
}

/* Per 64 columns 32 bytes: the first 32 columns in the lower nibbles. */
static void decode_nibbles(uint8_t *q, const unsigned char *nibbles, size_t columns)
{
    for (size_t c = 0; c < columns; c += 64, nibbles += 32, q += 64) {
        for (size_t i = 0; i < 32; i++) {
            q[i] = nibbles[i] & 15;
            q[32 + i] = nibbles[i] >> 4;
        }
    }
}

/* --- Q4_K ------------------------------------------------------------------------------------- */

static size_t source_bytes_q4_k(size_t cols)
{
    return vti_k_blocks(cols) * HEAD_BYTES + nibble_bytes(cols);
}

static void decode_q4_k(uint8_t *q, const unsigned char *source, size_t columns)
{
    decode_nibbles(q, source + HEAD_BYTES, columns);
}

static void place_q4_k(unsigned char *block, size_t r, const uint8_t *low, const uint8_t *high,
                       size_t columns)
{
    vti_nibbles_place(block + VTI_Q45_K_HEAD, r, low, high, columns / 4, 8);
}

static void take_q4_k(uint8_t *q, const unsigned char *block, size_t r, size_t columns)
{
    vti_nibbles_take(q, block + VTI_Q45_K_HEAD, r, columns / 4, 8);
}

const vti_block_type vti_block_q4_k = {
    .columns = VTI_K_BLOCK,
    .sub_columns = 32,
    .source_bytes = source_bytes_q4_k,
    .panel_bytes = vti_panel_bytes_q4_k,
    .decode = decode_q4_k,
    .source_scales = source_scales,
    .place_scales = place_scales,
    .place = place_q4_k,
    .take = take_q4_k,
    .panel_scales = panel_scales,
};

/* --- Q5_K ------------------------------------------------------------------------------------- */

static size_t source_bytes_q5_k(size_t cols)
{
    return vti_k_blocks(cols) * (HEAD_BYTES + FIFTH_BYTES) + nibble_bytes(cols);
}

/* The fifth bit of column c is bit c / 32 of byte c % 32. */
static void decode_q5_k(uint8_t *q, const unsigned char *source, size_t columns)
{
    const unsigned char *fifths = source + HEAD_BYTES;
    decode_nibbles(q, fifths + FIFTH_BYTES, columns);
    for (size_t sub = 0; sub < columns / 32; sub++)
        for (size_t i = 0; i < 32; i++)
            q[sub * 32 + i] |= (uint8_t)((fifths[i] >> sub & 1) << 4);
}

static void place_q5_k(unsigned char *block, size_t r, const uint8_t *low, const uint8_t *high,
                       size_t columns)
{
    unsigned char *sub = block + VTI_Q45_K_HEAD;
    for (size_t c = 0; c < columns; c += 32, sub += VTI_Q5_K_SUB) {
        vti_tops_place(sub, r, low + c, 8, 1);
        vti_tops_place(sub, r + 8, high + c, 8, 1);
        vti_nibbles_place(sub + VTI_FIFTH_BYTES, r, low + c, high + c, 8, 0);
    }
}

static void take_q5_k(uint8_t *q, const unsigned char *block, size_t r, size_t columns)
{
    const unsigned char *sub = block + VTI_Q45_K_HEAD;
    for (size_t c = 0; c < columns; c += 32, sub += VTI_Q5_K_SUB) {
        vti_nibbles_take(q + c, sub + VTI_FIFTH_BYTES, r, 8, 0);
        vti_tops_take(q + c, sub, r, 8, 1);
    }
}

const vti_block_type vti_block_q5_k = {
    .columns = VTI_K_BLOCK,
    .sub_columns = 32,
    .source_bytes = source_bytes_q5_k,
    .panel_bytes = vti_panel_bytes_q5_k,
    .decode = decode_q5_k,
    .source_scales = source_scales,
    .place_scales = place_scales,
    .place = place_q5_k,
    .take = take_q5_k,
    .panel_scales = panel_scales,
};

/* --- Q6_K ------------------------------------------------------------------------------------- */

/* File: 128 bytes of lower nibbles, 64 of upper bit pairs, 16 × INT8 scales, F16 d; a narrow block
 * keeps all 210 bytes. Weight = d × scale × (q - 32), with the scale of the sub-block of 16. */
enum { Q6_K_HIGH = 128, Q6_K_SCALES = 192, Q6_K_D = 208, Q6_K_BYTES = 210 };

static size_t source_bytes_q6_k(size_t cols) { return vti_k_blocks(cols) * Q6_K_BYTES; }

/* Per 128 columns, 64 bytes of nibbles hold columns l in the lower and l + 64 in the upper halves,
 * and 32 bytes of pairs hold column l + 32 i in bits 2 i, 2 i + 1 of byte l. */
static void decode_q6_k(uint8_t *q, const unsigned char *source, size_t columns)
{
    const unsigned char *low = source, *high = source + Q6_K_HIGH;
    for (size_t c = 0; c < columns; c += 128, low += 64, high += 32, q += 128) {
        for (size_t l = 0; l < 32; l++) {
            q[l] = (uint8_t)((low[l] & 15) | (high[l] & 3) << 4);
            q[32 + l] = (uint8_t)((low[32 + l] & 15) | (high[l] >> 2 & 3) << 4);
            q[64 + l] = (uint8_t)(low[l] >> 4 | (high[l] >> 4 & 3) << 4);
            q[96 + l] = (uint8_t)(low[32 + l] >> 4 | (high[l] >> 6) << 4);
        }
    }
}

static void source_scales_q6_k(vti_row_scales *to, const unsigned char *source, size_t columns)
{
    float d = f32_from_f16(load_u16(source + Q6_K_D));
    for (size_t sub = 0; sub < columns / 16; sub++) {
        to->scale[sub] = d * (float)(int8_t)source[Q6_K_SCALES + sub];
        to->min[sub] = 0;
    }
}

static void place_scales_q6_k(unsigned char *block, size_t r, const unsigned char *source,
                              size_t columns)
{
    memcpy(block + 2 * r, source + Q6_K_D, 2);
    for (size_t sub = 0; sub < columns / 16; sub++)
        block[VTI_Q6_K_SCALES + sub * 16 + r] = source[Q6_K_SCALES + sub];
}

static void panel_scales_q6_k(vti_row_scales *to, const unsigned char *block, size_t r,
                              size_t columns)
{
    float d = f32_from_f16(load_u16(block + 2 * r));
    for (size_t sub = 0; sub < columns / 16; sub++) {
        to->scale[sub] = d * (float)(int8_t)block[VTI_Q6_K_SCALES + sub * 16 + r];
        to->min[sub] = 0;
    }
}

static void place_q6_k(unsigned char *block, size_t r, const uint8_t *low, const uint8_t *high,
                       size_t columns)
{
    unsigned char *sub = block + VTI_Q6_K_HEAD;
    for (size_t c = 0; c < columns; c += 16, sub += VTI_Q6_K_SUB) {
        vti_tops_place(sub, r, low + c, 4, 2);
        vti_tops_place(sub, r + 8, high + c, 4, 2);
        vti_nibbles_place(sub + 64, r, low + c, high + c, 4, 0);
    }
}

static void take_q6_k(uint8_t *q, const unsigned char *block, size_t r, size_t columns)
{
    const unsigned char *sub = block + VTI_Q6_K_HEAD;
    for (size_t c = 0; c < columns; c += 16, sub += VTI_Q6_K_SUB) {
        vti_nibbles_take(q + c, sub + 64, r, 4, 0);
        vti_tops_take(q + c, sub, r, 4, 2);
    }
}

const vti_block_type vti_block_q6_k = {
    .columns = VTI_K_BLOCK,
    .sub_columns = 16,
    .offset = 32,
    .source_bytes = source_bytes_q6_k,
    .panel_bytes = vti_panel_bytes_q6_k,
    .decode = decode_q6_k,
    .source_scales = source_scales_q6_k,
    .place_scales = place_scales_q6_k,
    .place = place_q6_k,
    .take = take_q6_k,
    .panel_scales = panel_scales_q6_k,
};
