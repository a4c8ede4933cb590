/* Weights from the file's order into panels, and back. No arithmetic, hence no instruction sets. */
#include "layout.h"

#include <string.h>

#include "block.h"
#include "half.h"
#include "scalar.h"

/* --- F32, F16, BF16: [column][row of panel] --------------------------------------------------- */

static size_t packed_bytes_elements(size_t element, size_t rows, size_t cols)
{
    return vti_panel_count(rows) * VTI_PANEL_ROWS * cols * element;
}

static void pack_elements(size_t element, unsigned char *packed, const unsigned char *source,
                          size_t source_stride, size_t rows, size_t cols, size_t row_begin,
                          size_t row_end)
{
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
        unsigned char *panel = packed + row * cols * element;
        size_t filled = vti_panel_rows(row, rows);
        if (filled < VTI_PANEL_ROWS) memset(panel, 0, VTI_PANEL_ROWS * cols * element);
        for (size_t r = 0; r < filled; r++) {
            const unsigned char *from = source + (row + r) * source_stride;
            for (size_t c = 0; c < cols; c++)
                memcpy(panel + (c * VTI_PANEL_ROWS + r) * element, from + c * element, element);
        }
    }
}

static void unpack_elements(size_t element, void (*convert)(float *, const void *, size_t),
                            float *dst, const unsigned char *packed, size_t cols, size_t row)
{
    const unsigned char *panel = packed + row / VTI_PANEL_ROWS * VTI_PANEL_ROWS * cols * element;
    for (size_t c = 0; c < cols; c++)
        convert(dst + c, panel + (c * VTI_PANEL_ROWS + row % VTI_PANEL_ROWS) * element, 1);
}

static void dequantize_f32(float *dst, const void *source, size_t count)
{
    memcpy(dst, source, count * sizeof *dst);
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

#define ELEMENT_TYPE(type, element)                                                                \
    static size_t source_bytes_##type(size_t cols) { return cols * element; }                      \
    static size_t packed_bytes_##type(size_t rows, size_t cols)                                    \
    {                                                                                              \
        return packed_bytes_elements(element, rows, cols);                                         \
    }                                                                                              \
    static size_t packed_offset_##type(size_t row, size_t cols) { return row * cols * element; }   \
    static void pack_##type(void *packed, const void *source, size_t source_stride, size_t rows,   \
                            size_t cols, size_t row_begin, size_t row_end)                         \
    {                                                                                              \
        pack_elements(element, packed, source, source_stride, rows, cols, row_begin, row_end);     \
    }                                                                                              \
    static void unpack_##type(float *dst, const void *packed, size_t cols, size_t row)             \
    {                                                                                              \
        unpack_elements(element, dequantize_##type, dst, packed, cols, row);                       \
    }

ELEMENT_TYPE(f32, 4)
ELEMENT_TYPE(f16, 2)
ELEMENT_TYPE(bf16, 2)

/* --- quantised types -------------------------------------------------------------------------- */

static size_t block_columns(const vti_block_type *type, size_t c, size_t cols)
{
    return cols - c < type->columns ? cols - c : type->columns;
}

/* One row of a panel's block; a source that is NULL is a row of zeros. */
static void pack_row(const vti_block_type *type, unsigned char *block, size_t r, uint8_t *q,
                     const unsigned char *source, size_t columns)
{
    if (!source) {
        memset(q, 0, columns);
        return;
    }
    type->decode(q, source, columns);
    type->place_scales(block, r, source, columns);
}

/* Rows r and r + 8. */
static void pack_pair(const vti_block_type *type, unsigned char *block, size_t r,
                      const unsigned char *low, const unsigned char *high, size_t columns)
{
    uint8_t low_q[VTI_MOST_COLUMNS], high_q[VTI_MOST_COLUMNS];
    pack_row(type, block, r, low_q, low, columns);
    pack_row(type, block, r + 8, high_q, high, columns);
    type->place(block, r, low_q, high_q, columns);
}

static void pack_blocks(const vti_block_type *type, unsigned char *packed,
                        const unsigned char *source, size_t source_stride, size_t rows,
                        size_t cols, size_t row_begin, size_t row_end)
{
    size_t panel_bytes = type->panel_bytes(cols);
    for (size_t row = row_begin; row < row_end; row += VTI_PANEL_ROWS) {
        unsigned char *panel = packed + row / VTI_PANEL_ROWS * panel_bytes;
        memset(panel, 0, panel_bytes);
        for (size_t r = 0; r < 8; r++) {
            const unsigned char *low = source + (row + r) * source_stride;
            const unsigned char *high = low + 8 * source_stride;
            for (size_t c = 0; c < cols; c += type->columns) {
                size_t at = type->source_bytes(c);
                pack_pair(type, panel + type->panel_bytes(c), r, row + r < rows ? low + at : NULL,
                          row + r + 8 < rows ? high + at : NULL, block_columns(type, c, cols));
            }
        }
    }
}

static void weigh(const vti_block_type *type, float *dst, const uint8_t *q,
                  const vti_row_scales *scales, size_t columns)
{
    int flip = type->is_signed ? 128 : 0, offset = type->offset + flip;
    for (size_t sub = 0; sub < columns / type->sub_columns; sub++) {
        float scale = scales->scale[sub], min = scales->min[sub];
        for (size_t i = 0; i < type->sub_columns; i++, q++, dst++)
            *dst = scale * (float)((*q ^ flip) - offset) - min;
    }
}

static void unpack_blocks(const vti_block_type *type, float *dst, const unsigned char *packed,
                          size_t cols, size_t row)
{
    const unsigned char *panel = packed + row / VTI_PANEL_ROWS * type->panel_bytes(cols);
    for (size_t c = 0; c < cols; c += type->columns) {
        uint8_t q[VTI_MOST_COLUMNS];
        vti_row_scales scales;
        size_t columns = block_columns(type, c, cols), r = row % VTI_PANEL_ROWS;
        type->take(q, panel + type->panel_bytes(c), r, columns);
        type->panel_scales(&scales, panel + type->panel_bytes(c), r, columns);
        weigh(type, dst + c, q, &scales, columns);
    }
}

static void dequantize_blocks(const vti_block_type *type, float *dst, const unsigned char *source,
                              size_t count)
{
    for (size_t c = 0; c < count; c += type->columns) {
        uint8_t q[VTI_MOST_COLUMNS];
        vti_row_scales scales;
        size_t columns = block_columns(type, c, count);
        type->decode(q, source + type->source_bytes(c), columns);
        type->source_scales(&scales, source + type->source_bytes(c), columns);
        weigh(type, dst + c, q, &scales, columns);
    }
}

#define BLOCK_TYPE(type)                                                                           \
    static size_t source_bytes_##type(size_t cols) { return vti_block_##type.source_bytes(cols); } \
    static size_t packed_bytes_##type(size_t rows, size_t cols)                                    \
    {                                                                                              \
        return vti_panel_count(rows) * vti_panel_bytes_##type(cols);                               \
    }                                                                                              \
    static size_t packed_offset_##type(size_t row, size_t cols)                                    \
    {                                                                                              \
        return row / VTI_PANEL_ROWS * vti_panel_bytes_##type(cols);                                \
    }                                                                                              \
    static void pack_##type(void *packed, const void *source, size_t source_stride, size_t rows,   \
                            size_t cols, size_t row_begin, size_t row_end)                         \
    {                                                                                              \
        pack_blocks(&vti_block_##type, packed, source, source_stride, rows, cols, row_begin,       \
                    row_end);                                                                      \
    }                                                                                              \
    static void unpack_##type(float *dst, const void *packed, size_t cols, size_t row)             \
    {                                                                                              \
        unpack_blocks(&vti_block_##type, dst, packed, cols, row);                                  \
    }                                                                                              \
    static void dequantize_##type(float *dst, const void *source, size_t count)                    \
    {                                                                                              \
        dequantize_blocks(&vti_block_##type, dst, source, count);                                  \
    }

BLOCK_TYPE(q8_0)
BLOCK_TYPE(q4_0)
BLOCK_TYPE(q5_0)
BLOCK_TYPE(q4_k)
BLOCK_TYPE(q5_k)
BLOCK_TYPE(q6_k)

/* --- table ------------------------------------------------------------------------------------ */

#define TABLE_ENTRY(type, act_type, block_columns, step)                                           \
    (vti_matmul_kernel)                                                                            \
    {                                                                                              \
        .act = act_type, .row_step = VTI_PANEL_ROWS, .block = block_columns, .column_step = step,  \
        .source_bytes = source_bytes_##type, .packed_bytes = packed_bytes_##type,                  \
        .packed_offset = packed_offset_##type, .pack = pack_##type, .unpack = unpack_##type,       \
        .dequantize = dequantize_##type                                                            \
    }

void vti_kernels_init_layout(vti_kernels *kernels)
{
    vti_matmul_kernel *matmul = kernels->matmul;
    matmul[VTI_F32] = TABLE_ENTRY(f32, VTI_ACT_F32, 1, 1);
    matmul[VTI_F16] = TABLE_ENTRY(f16, VTI_ACT_F32, 1, 1);
    matmul[VTI_BF16] = TABLE_ENTRY(bf16, VTI_ACT_F32, 1, 1);
    matmul[VTI_Q8_0] = TABLE_ENTRY(q8_0, VTI_ACT_Q8, VTI_Q8_BLOCK, VTI_Q8_BLOCK);
    matmul[VTI_Q4_0] = TABLE_ENTRY(q4_0, VTI_ACT_Q8, VTI_Q8_BLOCK, VTI_Q8_BLOCK);
    matmul[VTI_Q5_0] = TABLE_ENTRY(q5_0, VTI_ACT_Q8, VTI_Q8_BLOCK, VTI_Q8_BLOCK);
    matmul[VTI_Q4_K] = TABLE_ENTRY(q4_k, VTI_ACT_Q8K, VTI_K_BLOCK, VTI_Q8_BLOCK);
    matmul[VTI_Q5_K] = TABLE_ENTRY(q5_k, VTI_ACT_Q8K, VTI_K_BLOCK, VTI_Q8_BLOCK);
    matmul[VTI_Q6_K] = TABLE_ENTRY(q6_k, VTI_ACT_Q8K, VTI_K_BLOCK, VTI_Q8_BLOCK);
}
