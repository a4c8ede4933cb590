/* calibrate.c: what a session's activations say about the importance of weights. */
#include <math.h>
#include <stdlib.h>

#include "calibration.h"
#include "session_internal.h"

struct vt_calibration {
    vt_session *session;
    vti_calibration *data; /* its means are not filled before they are written */
    double *sums;          /* of squares, one for each of the data's values */
};

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

static void add_squares(double *sums, const float *x, size_t stride, uint32_t tokens,
                        uint32_t cols)
{
    for (uint32_t t = 0; t < tokens; t++, x += stride)
        for (uint32_t i = 0; i < cols; i++) sums[i] += (double)x[i] * x[i];
}

/* The step's buffers are filled up with zeros: behind the last column, and attention's output
 * behind every shard's slice. */
static void observe(void *user, uint32_t layer, vti_role role, uint32_t slice, const float *x,
                    size_t stride, uint32_t tokens, uint32_t col, uint32_t cols)
{
    vt_calibration *c = user;
    const vti_geometry *g = &c->session->model->geometry;
    vti_calibration_input *in = vti_calibration_input_of(c->data, layer, role, slice);
    if (!in) return;
    double *sums = c->sums + (in->mean - c->data->values);
    uint32_t own = in->cols;
    if (role == VTI_ATTN_OUT)
        own = g->hparams.heads / g->hparams.kv_heads * g->shard_kv_heads * g->hparams.head_dim;
    uint32_t padded = vti_padded(own);
    if (col == 0) in->tokens += tokens; /* later columns are of the same ones */
    for (uint32_t run; cols; cols -= run, col += run, x += run) {
        uint32_t within = col % padded, column = col / padded * own + within;
        run = smaller(cols, padded - within);
        if (within < own && column < in->cols)
            add_squares(sums + column, x, stride, tokens,
                        smaller(smaller(run, own - within), in->cols - column));
    }
}

static void look(vt_calibration *c, const vti_observer *observer)
{
    vti_stage_observe(c->session->stage, observer);
    vti_head_observe(&c->session->head, observer);
}

vt_status vt_calibration_open(vt_session *session, vt_calibration **out, vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_calibration_open: out is NULL");
    *out = NULL;
    if (!session) return vti_fail(err, VT_ERR_ARGUMENT, "vt_calibration_open: session is NULL");
    if (session->cluster)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "a session on several devices cannot calibrate: their activations are not "
                        "seen here");
    if (session->head.observer.input)
        return vti_fail(err, VT_ERR_BUSY, "this session is calibrating already");
    vt_calibration *c = calloc(1, sizeof *c);
    if (!c) return vti_fail(err, VT_ERR_MEMORY, "no memory to calibrate");
    c->session = session;
    vt_status status = vti_calibration_new(&session->model->hparams, &c->data, err);
    if (status == VT_OK) {
        c->sums = calloc((size_t)c->data->value_count, sizeof *c->sums);
        if (!c->sums) status = vti_fail(err, VT_ERR_MEMORY, "no memory to calibrate");
    }
    if (status != VT_OK) {
        vt_calibration_close(c);
        return status;
    }
    look(c, &(vti_observer){.input = observe, .user = c});
    *out = c;
    return VT_OK;
}

void vt_calibration_close(vt_calibration *c)
{
    if (!c) return;
    if (c->sums) look(c, &(vti_observer){.input = NULL});
    vti_calibration_free(c->data);
    free(c->sums);
    free(c);
}

void vt_calibration_get_stats(const vt_calibration *c, vt_calibration_stats *out)
{
    const vti_calibration *im = c->data;
    *out = (vt_calibration_stats){.tokens = im->inputs[0].tokens, .inputs = im->count};
    for (uint32_t i = 0; i < im->count; i++) out->unseen += im->inputs[i].tokens == 0;
}

vt_status vt_calibration_save(const vt_calibration *c, const char *path, vt_error *err)
{
    if (!path) return vti_fail(err, VT_ERR_ARGUMENT, "vt_calibration_save: path is NULL");
    const vti_calibration *im = c->data;
    if (!im->inputs[0].tokens)
        return vti_fail(err, VT_ERR_ARGUMENT, "nothing was computed that could be written to %s",
                        path);
    for (uint32_t i = 0; i < im->count; i++) {
        const vti_calibration_input *in = &im->inputs[i];
        const double *sums = c->sums + (in->mean - im->values);
        for (uint32_t col = 0; in->tokens && col < in->cols; col++) {
            in->mean[col] = (float)(sums[col] / (double)in->tokens);
            if (!isfinite(in->mean[col]))
                return vti_fail(err, VT_ERR_FORMAT,
                                "the model's activations are not finite numbers; its weights are "
                                "damaged");
        }
    }
    vti_model_identity identity;
    vti_model_get_identity(c->session->model, &identity);
    return vti_calibration_save(im, path, &identity, err);
}
