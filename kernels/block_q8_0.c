/* Q8_0, Q4_0, Q5_0: 32 columns with one F16 scale. */
#include <string.h>

#include "block.h"
#include "half.h"

/* File: F16 d, 32 × I8. Weight = d × q. Panel: 16 × d, INT8 tile. */
static size_t source_bytes_q8_0(size_t cols) { return cols / VTI_Q8_BLOCK * 34; }

static void place_q8_0(unsigned char *block, size_t r, const unsigned char *source, size_t columns)
{
    memcpy(block + 2 * r, source, 2);
    for (size_t c = 0; c < columns; c++)
        block[VTI_SCALES_BYTES + vti_tile_byte(r, c)] = source[2 + c];
}

static void take_q8_0(float *dst, const unsigned char *block, size_t r, size_t columns)
{
    float scale = f32_from_f16(load_u16(block + 2 * r));
    for (size_t c = 0; c < columns; c++)
        dst[c] = scale * (int8_t)block[VTI_SCALES_BYTES + vti_tile_byte(r, c)];
}

static void dequantize_q8_0(float *dst, const unsigned char *source, size_t columns)
{
    float scale = f32_from_f16(load_u16(source));
    for (size_t c = 0; c < columns; c++) dst[c] = scale * (int8_t)source[2 + c];
}

const vti_block_type vti_block_q8_0 = {
    .columns = VTI_Q8_BLOCK,
    .source_bytes = source_bytes_q8_0,
    .panel_bytes = vti_panel_bytes_q8_0,
    .place = place_q8_0,
    .take = take_q8_0,
    .dequantize = dequantize_q8_0,
};

/* File: F16 d, 16 bytes: columns 0…15 in the lower nibbles, 16…31 in the upper ones.
 * Weight = d × (q - 8). Panel: 16 × d, signed nibble tile. */
static size_t source_bytes_q4_0(size_t cols) { return cols / VTI_Q8_BLOCK * 18; }

static unsigned nibble_q4_0(const unsigned char *source, size_t c)
{
    return c < 16 ? source[2 + c] & 15 : source[2 + c - 16] >> 4;
}

static void place_q4_0(unsigned char *block, size_t r, const unsigned char *source, size_t columns)
{
    memcpy(block + 2 * r, source, 2);
    for (size_t c = 0; c < columns; c++)
        vti_nibble_place(block + VTI_SCALES_BYTES, r, c,
                         nibble_q4_0(source, c) ^ vti_nibble_flip(r));
}

static void take_q4_0(float *dst, const unsigned char *block, size_t r, size_t columns)
{
    float scale = f32_from_f16(load_u16(block + 2 * r));
    for (size_t c = 0; c < columns; c++) {
        unsigned q = vti_nibble_take(block + VTI_SCALES_BYTES, r, c) ^ vti_nibble_flip(r);
        dst[c] = scale * (float)((int)q - 8);
    }
}

static void dequantize_q4_0(float *dst, const unsigned char *source, size_t columns)
{
    float scale = f32_from_f16(load_u16(source));
    for (size_t c = 0; c < columns; c++)
        dst[c] = scale * (float)((int)nibble_q4_0(source, c) - 8);
}

const vti_block_type vti_block_q4_0 = {
    .columns = VTI_Q8_BLOCK,
    .source_bytes = source_bytes_q4_0,
    .panel_bytes = vti_panel_bytes_q4_0,
    .place = place_q4_0,
    .take = take_q4_0,
    .dequantize = dequantize_q4_0,
};

/* File: F16 d, 4 bytes with the fifth bits of columns 0…31, then nibbles as in Q4_0.
 * Weight = d × (q - 16). Panel: 16 × d, fifth bits, plain nibble tile. */
static size_t source_bytes_q5_0(size_t cols) { return cols / VTI_Q8_BLOCK * 22; }

static unsigned source_q5_0(const unsigned char *source, size_t c)
{
    unsigned nibble = c < 16 ? source[6 + c] & 15 : source[6 + c - 16] >> 4;
    return nibble | (source[2 + c / 8] >> c % 8 & 1u) << 4;
}

static void place_q5_0(unsigned char *block, size_t r, const unsigned char *source, size_t columns)
{
    memcpy(block + 2 * r, source, 2);
    for (size_t c = 0; c < columns; c++) {
        unsigned q = source_q5_0(source, c);
        vti_fifth_place(block + VTI_SCALES_BYTES, r, c, q >> 4);
        vti_nibble_place(block + VTI_SCALES_BYTES + VTI_FIFTH_BYTES, r, c, q & 15);
    }
}

static void take_q5_0(float *dst, const unsigned char *block, size_t r, size_t columns)
{
    float scale = f32_from_f16(load_u16(block + 2 * r));
    const unsigned char *fifths = block + VTI_SCALES_BYTES;
    for (size_t c = 0; c < columns; c++) {
        unsigned q = vti_nibble_take(fifths + VTI_FIFTH_BYTES, r, c);
        dst[c] = scale * (float)((int)(q | vti_fifth_take(fifths, r, c) << 4) - 16);
    }
}

static void dequantize_q5_0(float *dst, const unsigned char *source, size_t columns)
{
    float scale = f32_from_f16(load_u16(source));
    for (size_t c = 0; c < columns; c++)
        dst[c] = scale * (float)((int)source_q5_0(source, c) - 16);
}

const vti_block_type vti_block_q5_0 = {
    .columns = VTI_Q8_BLOCK,
    .source_bytes = source_bytes_q5_0,
    .panel_bytes = vti_panel_bytes_q5_0,
    .place = place_q5_0,
    .take = take_q5_0,
    .dequantize = dequantize_q5_0,
};
