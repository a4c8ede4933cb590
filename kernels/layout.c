/* Weights from the file's order into panels, and back. No arithmetic, hence no instruction sets. */
#include "layout.h"

#include <string.h>

#include "half.h"
#include "scalar.h"

/* --- F32, F16, BF16: [column][row of panel] --------------------------------------------------- */

static void pack_elements(unsigned char *packed, const unsigned char *source, size_t source_stride,
                          size_t element, size_t rows, size_t cols, size_t row_begin,
                          size_t row_end)
{
    size_t row_bytes = cols * element;
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
        unsigned char *panel = packed + row * row_bytes;
        size_t filled = vti_panel_rows(row, rows);
        if (filled < VTI_PANEL_ROWS) memset(panel, 0, VTI_PANEL_ROWS * row_bytes);
        for (size_t r = 0; r < filled; r++) {
            const unsigned char *from = source + (row + r) * source_stride;
            for (size_t c = 0; c < cols; c++)
                memcpy(panel + (c * VTI_PANEL_ROWS + r) * element, from + c * element, element);
        }
    }
}

static size_t packed_bytes_f32(size_t rows, size_t cols)
{
    return vti_panel_count(rows) * VTI_PANEL_ROWS * cols * 4;
}

static size_t packed_offset_f32(size_t row, size_t cols) { return row * cols * 4; }

static void pack_f32(void *packed, const void *source, size_t source_stride, size_t rows,
                     size_t cols, size_t row_begin, size_t row_end)
{
    pack_elements(packed, source, source_stride, 4, rows, cols, row_begin, row_end);
}

static void dequantize_f32(float *dst, const void *source, size_t count)
{
    memcpy(dst, source, count * sizeof *dst);
}

static size_t packed_bytes_16bit(size_t rows, size_t cols)
{
    return vti_panel_count(rows) * VTI_PANEL_ROWS * cols * 2;
}

static size_t packed_offset_16bit(size_t row, size_t cols) { return row * cols * 2; }

static void pack_16bit(void *packed, const void *source, size_t source_stride, size_t rows,
                       size_t cols, size_t row_begin, size_t row_end)
{
    pack_elements(packed, source, source_stride, 2, rows, cols, row_begin, row_end);
}

static void dequantize_f16(float *dst, const void *source, size_t count)
{
    const unsigned char *from = source;
    for (size_t i = 0; i < count; i++) dst[i] = f32_from_f16(load_u16(from + 2 * i));
}

static void dequantize_bf16(float *dst, const void *source, size_t count)
{
    const unsigned char *from = source;
    for (size_t i = 0; i < count; i++) dst[i] = f32_from_bf16(load_u16(from + 2 * i));
}

/* --- Q8_0 ------------------------------------------------------------------------------------- */

/* File: per 32 columns an F16 scale, 32 × I8. Panel: per 32 columns 16 F16 scales, then
 * [8 groups of 4 columns][16 rows][4] × I8. */
enum { Q8_0_BYTES = 34 };

static size_t packed_offset_q8_0(size_t row, size_t cols)
{
    return row * (cols / VTI_Q8_BLOCK) * Q8_0_BYTES;
}

static size_t packed_bytes_q8_0(size_t rows, size_t cols)
{
    return packed_offset_q8_0(vti_panel_count(rows) * VTI_PANEL_ROWS, cols);
}

static void pack_q8_0(void *packed, const void *source, size_t source_stride, size_t rows,
                      size_t cols, size_t row_begin, size_t row_end)
{
    size_t blocks = cols / VTI_Q8_BLOCK, row_bytes = blocks * Q8_0_BYTES;
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
        unsigned char *panel = (unsigned char *)packed + row * row_bytes;
        size_t filled = vti_panel_rows(row, rows);
        if (filled < VTI_PANEL_ROWS) memset(panel, 0, VTI_PANEL_ROWS * row_bytes);
        for (size_t r = 0; r < filled; r++) {
            const unsigned char *from = (const unsigned char *)source + (row + r) * source_stride;
            for (size_t b = 0; b < blocks; b++, from += Q8_0_BYTES) {
                unsigned char *block = panel + b * Q8_0_BYTES * VTI_PANEL_ROWS;
                memcpy(block + 2 * r, from, 2);
                for (size_t group = 0; group < 8; group++)
                    memcpy(block + 32 + (group * VTI_PANEL_ROWS + r) * 4, from + 2 + 4 * group, 4);
            }
        }
    }
}

static void dequantize_q8_0(float *dst, const void *source, size_t count)
{
    const unsigned char *block = source;
    for (size_t i = 0; i < count; i += VTI_Q8_BLOCK, block += Q8_0_BYTES) {
        float scale = f32_from_f16(load_u16(block));
        for (size_t j = 0; j < VTI_Q8_BLOCK; j++) dst[i + j] = scale * (int8_t)block[2 + j];
    }
}

/* --- table ------------------------------------------------------------------------------------ */

void vti_kernels_init_layout(vti_kernels *kernels)
{
    kernels->matmul[VTI_F32] = (vti_matmul_kernel){
        .act = VTI_ACT_F32,
        .row_step = VTI_PANEL_ROWS,
        .block = 1,
        .packed_bytes = packed_bytes_f32,
        .packed_offset = packed_offset_f32,
        .pack = pack_f32,
        .dequantize = dequantize_f32,
    };
    kernels->matmul[VTI_F16] = (vti_matmul_kernel){
        .act = VTI_ACT_F32,
        .row_step = VTI_PANEL_ROWS,
        .block = 1,
        .packed_bytes = packed_bytes_16bit,
        .packed_offset = packed_offset_16bit,
        .pack = pack_16bit,
        .dequantize = dequantize_f16,
    };
    kernels->matmul[VTI_BF16] = kernels->matmul[VTI_F16];
    kernels->matmul[VTI_BF16].dequantize = dequantize_bf16;
    kernels->matmul[VTI_Q8_0] = (vti_matmul_kernel){
        .act = VTI_ACT_Q8,
        .row_step = VTI_PANEL_ROWS,
        .block = VTI_Q8_BLOCK,
        .packed_bytes = packed_bytes_q8_0,
        .packed_offset = packed_offset_q8_0,
        .pack = pack_q8_0,
        .dequantize = dequantize_q8_0,
    };
}
