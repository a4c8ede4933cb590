/* Q8_0, Q4_0, Q5_0: 32 columns with one F16 scale d. Weight = d × (q - offset). */
#include "block.h"
#include "half.h"

static void source_scales(vti_row_scales *to, const unsigned char *source, size_t columns)
{
    (void)columns;
    to->scale[0] = f32_from_f16(load_u16(source));
    to->min[0] = 0;
}

static void place_scales(unsigned char *block, size_t r, const unsigned char *source,
                         size_t columns)
{
    (void)columns;
    memcpy(block + 2 * r, source, 2);
}

static void panel_scales(vti_row_scales *to, const unsigned char *block, size_t r, size_t columns)
{
    source_scales(to, block + 2 * r, columns);
}

/* --- Q8_0. File: d, 32 × INT8. Panel: 16 × d, INT8 tile --------------------------------------- */

static size_t source_bytes_q8_0(size_t cols) { return cols / VTI_Q8_BLOCK * 34; }

static void decode_q8_0(uint8_t *q, const unsigned char *source, size_t columns)
{
    memcpy(q, source + 2, columns);
}

static void place_q8_0(unsigned char *block, size_t r, const uint8_t *low, const uint8_t *high,
                       size_t columns)
{
    unsigned char *tile = block + VTI_SCALES_BYTES;
    for (size_t g = 0; g < columns / 4; g++) {
        memcpy(tile + (g * VTI_PANEL_ROWS + r) * 4, low + 4 * g, 4);
        memcpy(tile + (g * VTI_PANEL_ROWS + r + 8) * 4, high + 4 * g, 4);
    }
}

static void take_q8_0(uint8_t *q, const unsigned char *block, size_t r, size_t columns)
{
    for (size_t g = 0; g < columns / 4; g++)
        memcpy(q + 4 * g, block + VTI_SCALES_BYTES + (g * VTI_PANEL_ROWS + r) * 4, 4);
}

const vti_block_type vti_block_q8_0 = {
    .columns = VTI_Q8_BLOCK,
    .sub_columns = VTI_Q8_BLOCK,
    .is_signed = true,
    .source_bytes = source_bytes_q8_0,
    .panel_bytes = vti_panel_bytes_q8_0,
    .decode = decode_q8_0,
    .source_scales = source_scales,
    .place_scales = place_scales,
    .place = place_q8_0,
    .take = take_q8_0,
    .panel_scales = panel_scales,
};

/* --- Q4_0. File: d, 16 bytes of nibbles. Panel: 16 × d, signed nibble tile -------------------- */

static size_t source_bytes_q4_0(size_t cols) { return cols / VTI_Q8_BLOCK * 18; }

/* Columns 0…15 are the lower nibbles, 16…31 the upper ones. */
static void decode_nibbles(uint8_t *q, const unsigned char *nibbles)
{
    for (size_t i = 0; i < 16; i++) {
        q[i] = nibbles[i] & 15;
        q[16 + i] = nibbles[i] >> 4;
    }
}

static void decode_q4_0(uint8_t *q, const unsigned char *source, size_t columns)
{
    (void)columns;
    decode_nibbles(q, source + 2);
}

static void place_q4_0(unsigned char *block, size_t r, const uint8_t *low, const uint8_t *high,
                       size_t columns)
{
    vti_nibbles_place(block + VTI_SCALES_BYTES, r, low, high, columns / 4, 8);
}

static void take_q4_0(uint8_t *q, const unsigned char *block, size_t r, size_t columns)
{
    vti_nibbles_take(q, block + VTI_SCALES_BYTES, r, columns / 4, 8);
}

const vti_block_type vti_block_q4_0 = {
    .columns = VTI_Q8_BLOCK,
    .sub_columns = VTI_Q8_BLOCK,
    .offset = 8,
    .source_bytes = source_bytes_q4_0,
    .panel_bytes = vti_panel_bytes_q4_0,
    .decode = decode_q4_0,
    .source_scales = source_scales,
    .place_scales = place_scales,
    .place = place_q4_0,
    .take = take_q4_0,
    .panel_scales = panel_scales,
};

/* --- Q5_0. File: d, 32 fifth bits, 16 bytes of nibbles. Panel: 16 × d, fifths, plain tile ----- */

static size_t source_bytes_q5_0(size_t cols) { return cols / VTI_Q8_BLOCK * 22; }

static void decode_q5_0(uint8_t *q, const unsigned char *source, size_t columns)
{
    uint32_t fifths = vti_load_u32(source + 2);
    decode_nibbles(q, source + 6);
    for (size_t i = 0; i < columns; i++) q[i] |= (uint8_t)((fifths >> i & 1) << 4);
}

static void place_q5_0(unsigned char *block, size_t r, const uint8_t *low, const uint8_t *high,
                       size_t columns)
{
    unsigned char *fifths = block + VTI_SCALES_BYTES;
    vti_tops_place(fifths, r, low, columns / 4, 1);
    vti_tops_place(fifths, r + 8, high, columns / 4, 1);
    vti_nibbles_place(fifths + VTI_FIFTH_BYTES, r, low, high, columns / 4, 0);
}

static void take_q5_0(uint8_t *q, const unsigned char *block, size_t r, size_t columns)
{
    const unsigned char *fifths = block + VTI_SCALES_BYTES;
    vti_nibbles_take(q, fifths + VTI_FIFTH_BYTES, r, columns / 4, 0);
    vti_tops_take(q, fifths, r, columns / 4, 1);
}

const vti_block_type vti_block_q5_0 = {
    .columns = VTI_Q8_BLOCK,
    .sub_columns = VTI_Q8_BLOCK,
    .offset = 16,
    .source_bytes = source_bytes_q5_0,
    .panel_bytes = vti_panel_bytes_q5_0,
    .decode = decode_q5_0,
    .source_scales = source_scales,
    .place_scales = place_scales,
    .place = place_q5_0,
    .take = take_q5_0,
    .panel_scales = panel_scales,
};
