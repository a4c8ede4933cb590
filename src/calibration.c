#include "calibration.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "output_file.h"
#include "save_stream.h"

/* --- inputs ----------------------------------------------------------------------------------- */

/* Inputs of a layer: attention's two, the (shared) FFN's two, and two per expert. */
enum { OF_ATTN, OF_ATTN_OUT, OF_FFN, OF_FFN_DOWN, OF_EXPERTS };

static uint32_t inputs_of_layer(uint32_t experts) { return OF_EXPERTS + 2 * experts; }

static void add_input(vti_calibration *im, const vti_hparams *p, vti_role role, uint32_t layer,
                      uint32_t slice)
{
    uint32_t cols = vti_role_shape_of(p, role).cols;
    im->inputs[im->count++] = (vti_calibration_input){role, layer, slice, cols, 0, NULL};
    im->value_count += cols;
}

static void list_inputs(vti_calibration *im, const vti_hparams *p)
{
    for (uint32_t layer = 0; layer < p->layers; layer++) {
        add_input(im, p, VTI_ATTN_Q, layer, 0);
        add_input(im, p, VTI_ATTN_OUT, layer, 0);
        add_input(im, p, p->experts ? VTI_SHARED_GATE : VTI_FFN_GATE, layer, 0);
        add_input(im, p, p->experts ? VTI_SHARED_DOWN : VTI_FFN_DOWN, layer, 0);
        for (uint32_t e = 0; e < p->experts; e++) {
            add_input(im, p, VTI_EXPERTS_GATE, layer, e);
            add_input(im, p, VTI_EXPERTS_DOWN, layer, e);
        }
    }
    add_input(im, p, VTI_OUTPUT, p->layers, 0);
}

vt_status vti_calibration_new(const vti_hparams *hparams, vti_calibration **out, vt_error *err)
{
    *out = NULL;
    vti_calibration *im = calloc(1, sizeof *im);
    if (!im) return vti_fail(err, VT_ERR_MEMORY, "no memory for a calibration");
    im->layers = hparams->layers;
    im->experts = hparams->experts;
    size_t count = (size_t)im->layers * inputs_of_layer(im->experts) + 1;
    im->inputs = calloc(count, sizeof *im->inputs);
    if (im->inputs) list_inputs(im, hparams);
    im->values = calloc((size_t)im->value_count + 1, sizeof *im->values);
    if (!im->inputs || !im->values) {
        vti_calibration_free(im);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a calibration");
    }
    float *at = im->values;
    for (uint32_t i = 0; i < im->count; i++) {
        im->inputs[i].mean = at;
        at += im->inputs[i].cols;
    }
    *out = im;
    return VT_OK;
}

void vti_calibration_free(vti_calibration *calibration)
{
    if (!calibration) return;
    free(calibration->inputs);
    free(calibration->values);
    free(calibration);
}

/* Place of a role's input among those of its layer; -1 if it has none there. */
static int place_of(vti_role role, uint32_t slice)
{
    switch (role) {
    case VTI_ATTN_Q: case VTI_ATTN_K: case VTI_ATTN_V: return OF_ATTN;
    case VTI_ATTN_OUT: return OF_ATTN_OUT;
    case VTI_FFN_GATE: case VTI_FFN_UP: return OF_FFN;
    case VTI_SHARED_GATE: case VTI_SHARED_UP: return OF_FFN;
    case VTI_ROUTER: case VTI_SHARED_ROUTER: return OF_FFN;
    case VTI_FFN_DOWN: case VTI_SHARED_DOWN: return OF_FFN_DOWN;
    case VTI_EXPERTS_GATE: case VTI_EXPERTS_UP: return (int)(OF_EXPERTS + 2 * slice);
    case VTI_EXPERTS_DOWN: return (int)(OF_EXPERTS + 2 * slice + 1);
    default: return -1;
    }
}

vti_calibration_input *vti_calibration_input_of(const vti_calibration *im, uint32_t layer,
                                                vti_role role, uint32_t slice)
{
    if (role == VTI_OUTPUT) return &im->inputs[im->count - 1];
    int place = place_of(role, slice);
    if (layer >= im->layers || place < 0 || (place >= OF_EXPERTS && slice >= im->experts))
        return NULL;
    return &im->inputs[layer * inputs_of_layer(im->experts) + (uint32_t)place];
}

const float *vti_calibration_of(void *calibration, uint32_t layer, vti_role role, uint32_t slice)
{
    const vti_calibration_input *in = vti_calibration_input_of(calibration, layer, role, slice);
    return in && in->tokens ? in->mean : NULL;
}

/* --- files ------------------------------------------------------------------------------------ */

enum { VERSION = 1 };
static const uint8_t prefix[VTI_SAVE_PREFIX_BYTES] = {'V', 'T', 'I', 'M', VERSION, 0, 0, 0};
#define KIND "a calibration file"

vt_status vt_calibration_check_path(const char *path, vt_error *err)
{
    if (!path) return vti_fail(err, VT_ERR_ARGUMENT, "vt_calibration_check_path: path is NULL");
    return vti_output_check(path, prefix, KIND, err);
}
static const char what[] = "calibration file";

vt_status vti_calibration_save(const vti_calibration *im, const char *path,
                               const vti_model_identity *identity, vt_error *err)
{
    vti_save_writer *w;
    VTI_TRY(vti_save_writer_open(path, prefix, KIND, &w, err));
    vti_save_write(w, identity->shape, sizeof identity->shape);
    vti_save_write(w, identity->weights, sizeof identity->weights);
    vti_save_write_u32(w, im->count);
    for (uint32_t i = 0; i < im->count; i++) {
        const vti_calibration_input *in = &im->inputs[i];
        vti_save_write_u32(w, (uint32_t)in->role);
        vti_save_write_u32(w, in->layer);
        vti_save_write_u32(w, in->slice);
        vti_save_write_u32(w, in->cols);
        vti_save_write_u64(w, in->tokens);
        vti_save_write(w, in->mean, in->cols * sizeof *in->mean);
    }
    return vti_save_writer_commit(w, err);
}

static vt_status check_identity(vti_save_reader *r, const char *path,
                                const vti_model_identity *own, vt_error *err)
{
    vti_model_identity found;
    VTI_TRY(vti_save_read(r, found.shape, sizeof found.shape, err));
    VTI_TRY(vti_save_read(r, found.weights, sizeof found.weights, err));
    bool shape = memcmp(own->shape, found.shape, sizeof own->shape) == 0;
    if (shape && memcmp(own->weights, found.weights, sizeof own->weights) == 0) return VT_OK;
    VTI_TRY(vti_save_skip_rest(r, err)); /* or is it damaged? */
    return vti_fail(err, VT_ERR_ARGUMENT,
                    "%s: this %s was measured on another model: its %s differ; "
                    "\"voltron-run calibrate\" makes one for this model",
                    path, what, shape ? "weights" : "hyperparameters or tokenizer");
}

static vt_status read_input(vti_save_reader *r, vti_calibration_input *in, vt_error *err)
{
    uint32_t found[4];
    for (int i = 0; i < 4; i++) VTI_TRY(vti_save_read_u32(r, &found[i], err));
    VTI_TRY(vti_save_read_u64(r, &in->tokens, err));
    if (found[0] != (uint32_t)in->role || found[1] != in->layer || found[2] != in->slice ||
        found[3] != in->cols)
        return vti_save_damaged(r, "it names an input that the model does not have there", err);
    VTI_TRY(vti_save_read(r, in->mean, in->cols * sizeof *in->mean, err));
    bool zero = true;
    for (uint32_t c = 0; c < in->cols; c++) {
        if (!isfinite(in->mean[c]) || in->mean[c] < 0)
            return vti_save_damaged(r, "a mean square is no number, or negative", err);
        zero = zero && in->mean[c] == 0;
    }
    if (in->tokens || zero) return VT_OK;
    return vti_save_damaged(r, "an input that was never seen has mean squares", err);
}

static vt_status read_inputs(vti_save_reader *r, vti_calibration *im, vt_error *err)
{
    uint32_t count;
    VTI_TRY(vti_save_read_u32(r, &count, err));
    if (count != im->count) return vti_save_damaged(r, "its number of inputs is wrong", err);
    for (uint32_t i = 0; i < count; i++) VTI_TRY(read_input(r, &im->inputs[i], err));
    return vti_save_read_end(r, err);
}

vt_status vti_calibration_load(const char *path, const vti_hparams *hparams,
                               const vti_model_identity *identity, vti_calibration **out,
                               vt_error *err)
{
    vti_save_reader *r;
    *out = NULL;
    VTI_TRY(vti_save_reader_open(path, what, prefix, &r, err));
    vt_status status = vti_calibration_new(hparams, out, err);
    if (status == VT_OK) status = check_identity(r, path, identity, err);
    if (status == VT_OK) status = read_inputs(r, *out, err);
    vti_save_reader_close(r);
    if (status == VT_OK) return VT_OK;
    vti_calibration_free(*out);
    *out = NULL;
    return status;
}
