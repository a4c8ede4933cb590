#include "tensor_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const vti_ggml_type *facts_of(vti_weight_type type)
{
    return vti_ggml_type_find(vti_weight_type_number(type));
}

uint64_t vti_source_bytes(vti_weight_type type, uint64_t slices, uint32_t rows, uint32_t cols)
{
    const vti_ggml_type *facts = facts_of(type);
    if (cols % facts->block) return 0;
    uint64_t matrix = (uint64_t)rows * (cols / facts->block), bytes;
    if (__builtin_mul_overflow(matrix, facts->block_bytes, &bytes) ||
        __builtin_mul_overflow(bytes, slices, &bytes))
        return 0;
    return bytes;
}

void vti_tensor_name(vti_role role, uint32_t layer, char *buffer, size_t capacity)
{
    if (role < VTI_LAYER_ROLE_COUNT)
        snprintf(buffer, capacity, "blk.%" PRIu32 ".%s", layer, vti_role_name(role));
    else
        snprintf(buffer, capacity, "%s", vti_role_name(role));
}

static vt_status find_type(const vt_gguf *gguf, const vti_gguf_tensor *tensor, vti_source *out,
                           vt_error *err)
{
    char known[256];
    if (vti_weight_type_find(tensor->type, &out->type, &out->conversion)) return VT_OK;
    vti_weight_type_list(known, sizeof known);
    return vti_fail(err, VT_ERR_UNSUPPORTED, "%s: tensor %s has type %s; supported are %s",
                    vti_gguf_name(gguf), tensor->name, vti_ggml_type_find(tensor->type)->name,
                    known);
}

static void shape_text(char *buffer, size_t capacity, uint32_t slices, uint32_t rows, uint32_t cols)
{
    int at = 0;
    if (slices != 1) at = snprintf(buffer, capacity, "%" PRIu32 " x ", slices);
    snprintf(buffer + at, capacity - (size_t)at, "%" PRIu32 " x %" PRIu32, rows, cols);
}

static vt_status check_shape(const vti_source *source, vti_role_shape shape, const char *name,
                             vt_error *err)
{
    char found[64], expected[64];
    if (source->slices == shape.slices && source->rows == shape.rows && source->cols == shape.cols)
        return VT_OK;
    shape_text(found, sizeof found, source->slices, source->rows, source->cols);
    shape_text(expected, sizeof expected, shape.slices, shape.rows, shape.cols);
    return vti_fail(err, VT_ERR_FORMAT, "%s is %s, expected %s", name, found, expected);
}

vt_status vti_source_check(const vti_hparams *hparams, vti_role role, const vti_source *source,
                           const char *name, vt_error *err)
{
    vti_role_shape shape = vti_role_shape_of(hparams, role);
    /* What a family's arithmetic does not have would be ignored: better refuse the file. */
    if (!vti_role_allowed(hparams, role))
        return vti_fail(err, VT_ERR_UNSUPPORTED, "%s: a %s model has no such tensor", name,
                        vti_arch_name(hparams->arch));
    VTI_TRY(check_shape(source, shape, name, err));
    if (shape.is_vector && facts_of(source->type)->block != 1)
        return vti_fail(err, VT_ERR_UNSUPPORTED, "%s is a vector of type %s; expected floats", name,
                        source->conversion ? source->conversion->name
                                           : facts_of(source->type)->name);
    uint64_t bytes = vti_source_bytes(source->type, shape.slices, shape.rows, shape.cols);
    if (bytes == 0 || bytes != source->size_bytes)
        return vti_fail(err, VT_ERR_FORMAT, "%s has %" PRIu64 " bytes, expected %" PRIu64, name,
                        source->size_bytes, bytes);
    return VT_OK;
}

vt_status vti_source_find(const vt_gguf *gguf, const vti_hparams *hparams, vti_role role,
                          uint32_t layer, vti_source *out, vt_error *err)
{
    char name[96], label[640];
    memset(out, 0, sizeof *out);
    vti_tensor_name(role, layer, name, sizeof name);
    const vti_gguf_tensor *tensor = vti_gguf_find_tensor(gguf, name);
    if (!tensor && !vti_role_required(hparams, role)) return VT_OK;
    if (!tensor)
        return vti_fail(err, VT_ERR_FORMAT, "%s: tensor %s is missing", vti_gguf_name(gguf), name);
    VTI_TRY(find_type(gguf, tensor, out, err));
    if (tensor->dimensions[3] != 1 || tensor->dimensions[0] > VTI_MAX_VOCAB ||
        tensor->dimensions[1] > VTI_MAX_VOCAB || tensor->dimensions[2] > VTI_MAX_VOCAB)
        return vti_fail(err, VT_ERR_FORMAT, "%s: tensor %s is not a matrix of sensible size",
                        vti_gguf_name(gguf), name);
    out->cols = (uint32_t)tensor->dimensions[0];
    out->rows = (uint32_t)tensor->dimensions[1];
    out->slices = (uint32_t)tensor->dimensions[2];
    out->data = tensor->data;
    out->size_bytes = out->file_bytes = tensor->size_bytes;
    if (out->conversion)
        out->size_bytes = vti_source_bytes(out->type, out->slices, out->rows, out->cols);
    snprintf(label, sizeof label, "%s: tensor %s", vti_gguf_name(gguf), name);
    return vti_source_check(hparams, role, out, label, err);
}

size_t vti_source_columns_bytes(const vti_source *source, size_t columns)
{
    const vti_conversion *conversion = source->conversion;
    if (conversion) return columns / conversion->block * conversion->block_bytes;
    return (size_t)vti_source_bytes(source->type, 1, 1, (uint32_t)columns);
}

const void *vti_source_row(const vti_source *source, uint32_t slice, uint64_t row)
{
    return (const char *)source->data +
           ((uint64_t)slice * source->rows + row) * vti_source_columns_bytes(source, source->cols);
}

void vti_source_dequantize(const vti_kernels *kernels, const vti_source *source, uint64_t row,
                           float *out)
{
    const void *from = vti_source_row(source, 0, row);
    if (source->conversion)
        source->conversion->dequantize(out, from, source->cols);
    else
        kernels->matmul[source->type].dequantize(out, from, source->cols);
}
