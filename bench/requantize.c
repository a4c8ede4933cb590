#include "requantize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/quantize_search.h"
#include "../src/weight_types.h"

/* Weights that are read, quantised and written at a time; a row may be longer. */
enum { BATCH_FLOATS = 65536 };

/* One tensor of the new file. */
typedef struct copy {
    const vti_gguf_tensor *from;
    const synth_type *type; /* NULL: stays as it is */
    vti_dequantize_fn *read;
    uint64_t offset_bytes, size_bytes;
} copy;

typedef struct job {
    const vt_gguf *gguf;
    const synth_type *type;
    const char *path;
    vti_kernels kernels;
    copy *copies;
    uint64_t count, most_columns;
    synth_bytes header;
    synth_output out;
    float *floats;         /* a batch */
    unsigned char *packed; /* the same, quantised */
    const vt_progress *progress;
    const volatile int *cancel;
    requantize_report *report;
} job;

/* --- which tensor becomes what ---------------------------------------------------------------- */

static uint64_t row_count(const vti_gguf_tensor *t)
{
    return t->dimensions[1] * t->dimensions[2] * t->dimensions[3];
}

static bool is_matrix(const vti_gguf_tensor *t)
{
    return row_count(t) > 1 && !strstr(t->name, "ffn_gate_inp");
}

static vti_dequantize_fn *reader_of(const vti_kernels *kernels, uint32_t number)
{
    vti_weight_type type;
    const vti_conversion *conversion;
    if (!vti_weight_type_find(number, &type, &conversion)) return NULL;
    return conversion ? conversion->dequantize : kernels->matmul[type].dequantize;
}

static vt_status choose(job *j, copy *c, const char *name, vt_error *err)
{
    const vti_gguf_tensor *t = c->from = vti_gguf_find_tensor(j->gguf, name);
    c->size_bytes = t->size_bytes;
    if (!is_matrix(t)) return VT_OK;
    c->type = synth_fitting_type(j->type, t->dimensions[0]);
    c->size_bytes = t->dimensions[0] / c->type->block * c->type->block_bytes * row_count(t);
    j->report->fallen_back += c->type != j->type;
    j->report->changed++;
    if (t->dimensions[0] > j->most_columns) j->most_columns = t->dimensions[0];
    c->read = reader_of(&j->kernels, t->type);
    if (c->read) return VT_OK;
    return vti_fail(err, VT_ERR_UNSUPPORTED, "%s: tensor %s has type %s, which cannot be read",
                    vti_gguf_name(j->gguf), t->name, vti_ggml_type_find(t->type)->name);
}

static vt_status plan(job *j, vt_error *err)
{
    j->count = j->report->tensors = vt_gguf_tensor_count(j->gguf);
    j->copies = calloc((size_t)j->count + 1, sizeof *j->copies);
    if (!j->copies) return vti_fail(err, VT_ERR_MEMORY, "no memory for the list of tensors");
    uint64_t end = 0;
    for (uint64_t i = 0; i < j->count; i++) {
        vt_gguf_tensor named;
        vt_gguf_get_tensor(j->gguf, i, &named);
        VTI_TRY(choose(j, &j->copies[i], named.name, err));
        j->copies[i].offset_bytes = end;
        end += (j->copies[i].size_bytes + SYNTH_ALIGNMENT - 1) / SYNTH_ALIGNMENT * SYNTH_ALIGNMENT;
        j->report->source_bytes += named.size_bytes;
    }
    j->report->data_bytes = end;
    return VT_OK;
}

/* --- header ----------------------------------------------------------------------------------- */

/* Keys that say what the new file is not: its type, its alignment, one part of several. */
static bool is_replaced(const char *key)
{
    return strcmp(key, "general.file_type") == 0 || strcmp(key, "general.alignment") == 0 ||
           strncmp(key, "split.", 6) == 0;
}

static void put_metadata(synth_bytes *to, const job *j)
{
    for (uint64_t i = 0; i < vt_gguf_entry_count(j->gguf); i++) {
        vt_gguf_entry entry;
        vt_gguf_get_entry(j->gguf, i, &entry);
        if (is_replaced(entry.key)) continue;
        const vti_gguf_value *value = vti_gguf_find(j->gguf, entry.key);
        if (value->is_array)
            synth_key_array(to, entry.key, value->type, value->count);
        else
            synth_put_key(to, entry.key, value->type);
        synth_put(to, value->data, (size_t)(value->end - value->data));
    }
    synth_key_u32(to, "general.file_type", j->type->file_type);
}

static void put_directory(synth_bytes *to, const job *j)
{
    for (uint64_t i = 0; i < j->count; i++) {
        const copy *c = &j->copies[i];
        synth_put_text(to, c->from->name);
        synth_put_u32(to, c->from->dimension_count);
        for (uint32_t k = 0; k < c->from->dimension_count; k++)
            synth_put_u64(to, c->from->dimensions[k]);
        synth_put_u32(to, c->type ? c->type->number : c->from->type);
        synth_put_u64(to, c->offset_bytes);
    }
}

static void put_header(job *j)
{
    synth_bytes metadata = {0};
    put_metadata(&metadata, j);
    synth_put_file_head(&j->header, j->count, &metadata);
    put_directory(&j->header, j);
    synth_put_padding(&j->header);
    free(metadata.data);
}

/* --- weights ---------------------------------------------------------------------------------- */

static vt_status check_finite(const job *j, const copy *c, size_t count, vt_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(j->floats[i]))
            return vti_fail(err, VT_ERR_FORMAT, "%s: tensor %s has a weight that is no number",
                            vti_gguf_name(j->gguf), c->from->name);
    return VT_OK;
}

/* Whole rows; what is in them does not depend on where they begin and end. */
static void quantize(const synth_type *type, void *out, const float *x, size_t count)
{
    if (type == &synth_q8_0)
        vti_quantize_i8(out, x, count, NULL);
    else if (type == &synth_q4_k)
        vti_quantize_i4(out, x, count, NULL);
    else
        type->pack(out, x, count);
}

static vt_status write_rows(job *j, const copy *c, vt_error *err)
{
    uint64_t cols = c->from->dimensions[0], rows = row_count(c->from);
    uint64_t batch = cols < BATCH_FLOATS ? BATCH_FLOATS / cols : 1;
    uint64_t source_row = c->from->size_bytes / rows, row_bytes = c->size_bytes / rows;
    for (uint64_t row = 0; row < rows; row += batch) {
        uint64_t part = rows - row < batch ? rows - row : batch;
        c->read(j->floats, (const unsigned char *)c->from->data + row * source_row,
                (size_t)(part * cols));
        VTI_TRY(check_finite(j, c, (size_t)(part * cols), err));
        quantize(c->type, j->packed, j->floats, (size_t)(part * cols));
        VTI_TRY(synth_output_write(&j->out, j->packed, (size_t)(part * row_bytes), err));
        if (j->cancel && *j->cancel) return vti_fail(err, VT_ERR_CANCELLED, "interrupted");
    }
    return VT_OK;
}

static vt_status write_tensor(job *j, const copy *c, vt_error *err)
{
    static const unsigned char zeros[SYNTH_ALIGNMENT];
    size_t over = c->size_bytes % SYNTH_ALIGNMENT;
    if (c->type)
        VTI_TRY(write_rows(j, c, err));
    else
        VTI_TRY(synth_output_write(&j->out, c->from->data, (size_t)c->size_bytes, err));
    if (j->progress && j->progress->report)
        j->progress->report(j->progress->user, j->path, j->out.written,
                            j->header.count + j->report->data_bytes);
    return synth_output_write(&j->out, zeros, over ? SYNTH_ALIGNMENT - over : 0, err);
}

static vt_status write_all(job *j, vt_error *err)
{
    VTI_TRY(plan(j, err));
    size_t floats = j->most_columns > BATCH_FLOATS ? (size_t)j->most_columns : BATCH_FLOATS;
    j->floats = malloc(floats * sizeof *j->floats);
    j->packed = malloc(floats * sizeof *j->floats);
    put_header(j);
    if (!j->floats || !j->packed || j->header.failed)
        return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", j->path);
    VTI_TRY(synth_output_open(&j->out, j->path, j->header.count + j->report->data_bytes, err));
    VTI_TRY(synth_output_write(&j->out, j->header.data, j->header.count, err));
    for (uint64_t i = 0; i < j->count; i++) VTI_TRY(write_tensor(j, &j->copies[i], err));
    return synth_output_finish(&j->out, err);
}

vt_status requantize(const vt_gguf *gguf, const synth_type *type, const char *path,
                     const vt_progress *progress, const volatile int *cancel,
                     requantize_report *report, vt_error *err)
{
    job j = {.gguf = gguf, .type = type, .path = path, .out = {.descriptor = -1},
             .progress = progress, .cancel = cancel, .report = report};
    *report = (requantize_report){0};
    vti_kernels_init(&j.kernels, 0);
    vt_status status = write_all(&j, err);
    synth_output_close(&j.out);
    free(j.header.data);
    free(j.floats);
    free(j.packed);
    free(j.copies);
    return status;
}
