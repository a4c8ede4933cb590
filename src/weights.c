#include "weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/layout.h"

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

/* Bytes of the first `columns` of a row where it lies. */
static size_t stored_bytes(const vti_source *source, size_t columns)
{
    const vti_conversion *conversion = source->conversion;
    if (conversion) return columns / conversion->block * conversion->block_bytes;
    return (size_t)vti_source_bytes(source->type, 1, 1, (uint32_t)columns);
}

const void *vti_source_rows(const vti_source *source, uint64_t first, uint64_t count, void *buffer)
{
    const void *rows = (const char *)source->data + first * stored_bytes(source, source->cols);
    if (!source->conversion) return rows;
    source->conversion->convert(buffer, rows, (size_t)(count * source->cols));
    return buffer;
}

void vti_source_dequantize(const vti_kernels *kernels, const vti_source *source, uint64_t row,
                           float *out)
{
    const void *from = (const char *)source->data + row * stored_bytes(source, source->cols);
    if (source->conversion)
        source->conversion->dequantize(out, from, source->cols);
    else
        kernels->matmul[source->type].dequantize(out, from, source->cols);
}

/* 64-byte aligned, the widest vector load of any kernel. */
static uint64_t round_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Of one packed matrix, or of the vector. */
static uint64_t slice_bytes(const vti_kernels *kernels, vti_role role, const vti_source *source)
{
    if (vti_role_is_vector(role)) return (uint64_t)source->cols * sizeof(float);
    return round_up(kernels->matmul[source->type].packed_bytes(source->rows, source->cols));
}

uint64_t vti_tensor_bytes(const vti_kernels *kernels, vti_role role, const vti_source *source)
{
    if (source->rows == 0) return 0;
    return source->slices * slice_bytes(kernels, role, source);
}

typedef struct pack_job {
    const vti_matmul_kernel *kernel;
    const vti_source *source;
    const vti_tensor *tensor;
    size_t panels; /* of a slice */
} pack_job;

/* Columns that are converted at a time, and their bytes as Q8_0, the larger target. */
enum { PART_COLUMNS = 256, PART_BYTES = PART_COLUMNS / 32 * 34 };

/* `rows` rows at `stored` become one panel, a part of the columns after the other: each goes
 * where the panel would end if it had no more columns than those before. */
static void convert_panel(const pack_job *j, unsigned char *panel, const unsigned char *stored,
                          size_t rows)
{
    const vti_source *from = j->source;
    unsigned char part[VTI_PANEL_ROWS * PART_BYTES];
    size_t stored_row = stored_bytes(from, from->cols);
    for (size_t c = 0; c < from->cols; c += PART_COLUMNS) {
        size_t columns = from->cols - c < PART_COLUMNS ? from->cols - c : PART_COLUMNS;
        for (size_t r = 0; r < rows; r++)
            from->conversion->convert(part + r * PART_BYTES,
                                      stored + r * stored_row + stored_bytes(from, c), columns);
        j->kernel->pack(panel + j->kernel->packed_offset(VTI_PANEL_ROWS, c), part, PART_BYTES, rows,
                        columns, 0, rows);
    }
}

/* Units: panels, slice by slice. */
static void convert_panels(void *context, size_t begin, size_t end)
{
    const pack_job *j = context;
    const vti_source *from = j->source;
    for (size_t unit = begin; unit < end; unit++) {
        size_t slice = unit / j->panels, row = unit % j->panels * VTI_PANEL_ROWS;
        size_t left = from->rows - row, stored = slice * from->rows + row;
        unsigned char *packed = vti_tensor_slice(j->tensor, (uint32_t)slice).data;
        convert_panel(j, packed + j->kernel->packed_offset(row, from->cols),
                      (const unsigned char *)from->data + stored * stored_bytes(from, from->cols),
                      left < VTI_PANEL_ROWS ? left : VTI_PANEL_ROWS);
    }
}

/* Units: panels, slice by slice. */
static void pack_panels(void *context, size_t begin, size_t end)
{
    const pack_job *j = context;
    const vti_source *from = j->source;
    size_t row_bytes = (size_t)vti_source_bytes(from->type, 1, 1, from->cols);
    size_t step = j->kernel->row_step;
    while (begin < end) {
        size_t slice = begin / j->panels, first = begin % j->panels;
        size_t count = end - begin < j->panels - first ? end - begin : j->panels - first;
        size_t last = (first + count) * step;
        j->kernel->pack(vti_tensor_slice(j->tensor, (uint32_t)slice).data,
                        (const unsigned char *)from->data + slice * from->rows * row_bytes,
                        row_bytes, from->rows, from->cols, first * step,
                        last < from->rows ? last : from->rows);
        begin += count;
    }
}

vt_status vti_tensor_load(const vti_loader *loader, vti_role role, const vti_source *source,
                          vti_tensor *out, vt_error *err)
{
    const vti_matmul_kernel *kernel = &loader->kernels->matmul[source->type];
    uint64_t bytes = vti_tensor_bytes(loader->kernels, role, source);
    void *data = bytes <= SIZE_MAX ? vti_arena_allocate(loader->arena, (size_t)bytes) : NULL;
    memset(out, 0, sizeof *out);
    if (!data)
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a tensor of %" PRIu64 " bytes", bytes);
    bool is_vector = vti_role_is_vector(role);
    *out = (vti_tensor){is_vector ? VTI_F32 : source->type, source->rows, source->cols,
                        slice_bytes(loader->kernels, role, source), data};
    if (is_vector) {
        kernel->dequantize(data, source->data, source->cols);
        return VT_OK;
    }
    pack_job job = {kernel, source, out, (source->rows + kernel->row_step - 1) / kernel->row_step};
    vti_pool_run(loader->pool, job.panels * source->slices, 1,
                 source->conversion ? convert_panels : pack_panels, &job);
    return VT_OK;
}

vt_status vti_weights_new(uint32_t first, uint32_t count, vti_weights **out, vt_error *err)
{
    *out = NULL;
    vti_weights *weights = calloc(1, sizeof *weights);
    if (weights) {
        weights->first = first;
        weights->count = count;
        weights->layers = calloc(count ? count : 1, sizeof *weights->layers);
        weights->arena = vti_arena_open();
    }
    if (!weights || !weights->layers || !weights->arena) {
        vti_weights_free(weights);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for %" PRIu32 " layers", count);
    }
    *out = weights;
    return VT_OK;
}

static vt_status load_one(const vt_gguf *gguf, const vti_hparams *hparams, const vti_loader *loader,
                          vti_role role, uint32_t layer, vti_tensor *tensor, uint64_t *bytes,
                          vt_error *err)
{
    vti_source source;
    VTI_TRY(vti_source_find(gguf, hparams, role, layer, &source, err));
    if (!source.data) return VT_OK;
    VTI_TRY(vti_tensor_load(loader, role, &source, tensor, err));
    *bytes += vti_tensor_bytes(loader->kernels, role, &source);
    return VT_OK;
}

vt_status vti_weights_load(const vt_gguf *gguf, const vti_hparams *hparams,
                           const vti_kernels *kernels, vti_pool *pool, uint32_t first,
                           uint32_t count, vti_weights **out, vt_error *err)
{
    VTI_TRY(vti_weights_new(first, count, out, err));
    vti_weights *w = *out;
    vti_loader loader = {kernels, w->arena, pool};
    vt_status status =
        load_one(gguf, hparams, &loader, VTI_ROPE_FREQS, 0, &w->rope_freqs, &w->bytes, err);
    for (uint32_t i = 0; i < count && status == VT_OK; i++) {
        for (unsigned role = 0; role < VTI_LAYER_ROLE_COUNT && status == VT_OK; role++)
            status = load_one(gguf, hparams, &loader, (vti_role)role, first + i,
                              &w->layers[i].tensor[role], &w->bytes, err);
    }
    vti_gguf_let_go(gguf);
    if (status != VT_OK) {
        vti_weights_free(w);
        *out = NULL;
    }
    return status;
}

void vti_weights_free(vti_weights *weights)
{
    if (!weights) return;
    vti_arena_close(weights->arena);
    free(weights->layers);
    free(weights);
}
