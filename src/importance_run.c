/* importance_run.c: the model over and over, each time without something else. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "importance_internal.h"
#include "model.h"

enum { SAVE_EVERY_S = 30 };

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* --- what is there to do ---------------------------------------------------------------------- */

vti_run_range vti_importance_runs_of(const vt_importance *m, uint32_t unit)
{
    const vti_importance *im = m->data;
    uint32_t first = im->first_part[unit], end = im->first_part[unit + 1];
    if (!m->p.exact) return (vti_run_range){first, end};
    return (vti_run_range){im->part_at[first].first_channel,
                           end < im->parts ? im->part_at[end].first_channel : im->channels};
}

/* Thousands of multiply-accumulates per token; of a mixture's experts those that are used. */
static uint64_t unit_work(const vti_geometry *g, uint32_t unit)
{
    uint64_t macs = 0, of_experts = 0;
    uint32_t experts = vti_unit_kind_of(g, unit) == VTI_UNIT_FFN ? g->hparams.experts : 0;
    for (uint32_t i = 0; i < vti_unit_shards(g, unit); i++)
        *(i < experts ? &of_experts : &macs) += vti_shard_macs(g, unit, i);
    if (experts) macs += of_experts / experts * g->hparams.experts_used;
    return macs / 1000 + 1;
}

/* Of one run per token. */
static uint64_t run_work(const vt_importance *m, uint32_t unit)
{
    uint64_t work = 0;
    for (uint32_t u = unit; u < m->data->units; u++) work += unit_work(m->g, u);
    return work;
}

/* All of a window, or what is done when its next run is `run`. */
static uint64_t window_work(const vt_importance *m, uint32_t window, uint64_t run)
{
    uint64_t work = 0;
    for (uint32_t unit = 0; unit < m->data->units; unit++) {
        vti_run_range runs = vti_importance_runs_of(m, unit);
        if (!m->wanted[unit] || run <= runs.first) continue;
        work += run_work(m, unit) * ((run < runs.end ? run : runs.end) - runs.first);
    }
    return work * (m->windows[window].count - 1);
}

static void reckon_work(vt_importance *m)
{
    m->done_work = m->total_work = 0;
    for (uint32_t w = 0; w < m->window_count; w++) {
        uint64_t all = window_work(m, w, m->runs);
        m->total_work += all;
        if (w < m->place.window) m->done_work += all;
        if (w == m->place.window) m->done_work += window_work(m, w, m->place.run);
    }
}

/* --- computing -------------------------------------------------------------------------------- */

static vt_status check_cancelled(const vt_importance *m, vt_error *err)
{
    if (!m->p.cancelled || !m->p.cancelled(m->p.user)) return VT_OK;
    return vti_fail(err, VT_ERR_CANCELLED, "cancelled");
}

static void embed(const vt_importance *m, const vti_window *w, float *h)
{
    for (uint32_t t = 0; t + 1 < w->count; t++)
        vti_model_embed(m->model, m->tokens[w->first + t], h + (size_t)t * m->g->hparams.d);
}

/* Units [first, first + count) of a whole window, batch by batch. */
static vt_status forward(vt_importance *m, const vti_window *w, float *h, uint32_t first,
                         uint32_t count, vt_error *err)
{
    uint32_t tokens = w->count - 1;
    for (uint32_t at = 0; count && at < tokens; at += m->batch) {
        VTI_TRY(check_cancelled(m, err));
        vti_stage_forward_units(m->stage, first, count, h + (size_t)at * m->g->hparams.d, at,
                                smaller(tokens - at, m->batch));
    }
    return VT_OK;
}

typedef struct rows_job {
    const vt_importance *m;
    const vt_token *targets;
    double nll[VTI_HEAD_ROWS];
} rows_job;

/* -ln p of each row's target; the logits are used up. With the largest logit and what softmax makes
 * of it, no probability is too small to be told. */
static void rate_rows(void *context, size_t begin, size_t end)
{
    rows_job *j = context;
    const vti_kernels *kernels = &j->m->model->kernels;
    size_t vocab = j->m->g->hparams.vocab;
    for (size_t row = begin; row < end; row++) {
        float *logits = j->m->logits + row * vocab;
        size_t best = kernels->argmax(logits, vocab);
        double below = (double)logits[best] - (double)logits[j->targets[row]];
        kernels->softmax(logits, vocab);
        j->nll[row] = below - log((double)logits[best]);
    }
}

/* Sum of -ln p over a window whose last residual stream is h. */
static vt_status rate(vt_importance *m, const vti_window *w, const float *h, double *out,
                      vt_error *err)
{
    double sum = 0;
    for (uint32_t at = 0, rows; at + 1 < w->count; at += rows) {
        rows = smaller(w->count - 1 - at, VTI_HEAD_ROWS);
        if (at % m->batch < VTI_HEAD_ROWS) VTI_TRY(check_cancelled(m, err));
        rows_job job = {.m = m, .targets = m->tokens + w->first + at + 1};
        vti_head_logits(&m->head, h + (size_t)at * m->g->hparams.d, rows, m->logits);
        vti_pool_run(m->model->pool, rows, 1, rate_rows, &job);
        for (uint32_t row = 0; row < rows; row++) sum += job.nll[row];
    }
    *out = sum;
    if (isfinite(sum)) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT,
                    "the model's logits are not finite numbers; its weights are damaged");
}

/* --- what the whole model does ---------------------------------------------------------------- */

static void add_squares(double *sums, const float *x, size_t stride, uint32_t tokens, uint32_t cols)
{
    for (uint32_t t = 0; t < tokens; t++, x += stride)
        for (uint32_t i = 0; i < cols; i++) sums[i] += (double)x[i] * x[i];
}

/* The part and the first of its channels that the column belongs to; false: it is padding. */
static bool find_channel(const vt_importance *m, uint32_t unit, vti_role role, uint32_t slice,
                         uint32_t col, const vti_importance_part **part, uint32_t *channel)
{
    const vti_geometry *g = m->g;
    const vti_importance_part *parts = m->data->part_at + m->data->first_part[unit];
    uint32_t width = role == VTI_OUTPUT ? parts->channels : g->ffn_width, first = 0;
    if (role == VTI_ATTN_OUT)
        width = vti_padded(g->hparams.heads / g->hparams.kv_heads * g->shard_kv_heads *
                           g->hparams.head_dim);
    if (role == VTI_SHARED_DOWN) first = g->hparams.experts;
    if (role == VTI_EXPERTS_DOWN) {
        first = slice;
        width = UINT32_MAX;
    }
    first += col / width;
    *channel = col % width;
    if (first >= m->data->first_part[unit + 1] - m->data->first_part[unit]) return false;
    *part = parts + first;
    return *channel < (*part)->channels;
}

static void observe(void *user, uint32_t layer, vti_role role, uint32_t slice, const float *x,
                    size_t stride, uint32_t tokens, uint32_t col, uint32_t cols)
{
    vt_importance *m = user;
    uint32_t unit = role == VTI_OUTPUT     ? vti_head_unit(m->g)
                    : role == VTI_ATTN_OUT ? vti_attn_unit(layer)
                                           : vti_ffn_unit(layer);
    if (role != VTI_OUTPUT && role != VTI_ATTN_OUT && role != VTI_FFN_DOWN &&
        role != VTI_SHARED_DOWN && role != VTI_EXPERTS_DOWN)
        return;
    for (uint32_t run; cols; cols -= run, col += run, x += run) {
        const vti_importance_part *part = NULL;
        uint32_t channel;
        run = 1;
        if (!find_channel(m, unit, role, slice, col, &part, &channel)) continue;
        run = smaller(cols, part->channels - channel);
        add_squares(m->fresh + part->first_channel + channel, x, stride, tokens, run);
    }
}

/* The window with nothing left out: what the runs are compared with. */
static vt_status run_whole(vt_importance *m, const vti_window *w, double *nll, vt_error *err)
{
    const vti_observer observer = {.input = observe, .user = m}, nobody = {.input = NULL};
    if (m->fresh) memset(m->fresh, 0, (size_t)m->data->channels * sizeof *m->fresh);
    embed(m, w, m->work);
    vti_stage_observe(m->stage, m->fresh ? &observer : &nobody);
    vti_head_observe(&m->head, m->fresh ? &observer : &nobody);
    vt_status status = forward(m, w, m->work, 0, vti_head_unit(m->g), err);
    if (status == VT_OK) status = rate(m, w, m->work, nll, err);
    vti_stage_observe(m->stage, &nobody);
    vti_head_observe(&m->head, &nobody);
    if (status != VT_OK || m->place.counted) return status;
    for (uint64_t c = 0; m->fresh && c < m->data->channels; c++) m->squares[c] += m->fresh[c];
    m->place.counted = true;
    return VT_OK;
}

/* --- runs ------------------------------------------------------------------------------------- */

/* Which part a run is without, and, exact, which of its channels. */
static const vti_importance_part *part_of(const vt_importance *m, uint32_t unit, uint64_t run)
{
    uint32_t i = m->data->first_part[unit], end = m->data->first_part[unit + 1];
    if (!m->p.exact) return &m->data->part_at[run];
    while (i + 1 < end && m->data->part_at[i + 1].first_channel <= run) i++;
    return &m->data->part_at[i];
}

static vt_status leave_out(vt_importance *m, const vti_importance_part *part, uint64_t run,
                           bool out, vt_error *err)
{
    uint32_t channel = m->p.exact ? (uint32_t)(run - part->first_channel) : 0;
    if (part->unit == vti_head_unit(m->g)) {
        const vti_importance_part *head = &m->data->part_at[m->data->first_part[part->unit]];
        uint32_t first = (uint32_t)(part->first_channel - head->first_channel);
        uint32_t count = m->p.exact ? 1 : part->channels;
        vti_head_prune_columns(&m->head, first + channel, out ? count : 0);
        return VT_OK;
    }
    if (!m->p.exact) return vti_stage_prune(m->stage, part->unit, part->part, out, err);
    vti_stage_prune_channel(m->stage,
                            out ? &(vti_channel){part->unit, part->part, channel} : NULL);
    return VT_OK;
}

static vt_status make_run(vt_importance *m, const vti_window *w, uint32_t unit, uint64_t run,
                          vt_error *err)
{
    const vti_importance_part *part = part_of(m, unit, run);
    double nll;
    memcpy(m->work, m->h, (size_t)(w->count - 1) * m->g->hparams.d * sizeof *m->h);
    VTI_TRY(leave_out(m, part, run, true, err));
    vt_status status = forward(m, w, m->work, unit, vti_head_unit(m->g) - unit, err);
    if (status == VT_OK) status = rate(m, w, m->work, &nll, err);
    leave_out(m, part, run, false, NULL);
    VTI_TRY(status);
    m->nll[run] += nll;
    m->place.run = run + 1;
    return VT_OK;
}

static vt_status after_run(vt_importance *m, const vti_window *w, uint32_t unit, const char *path,
                           vt_error *err)
{
    m->done_work += run_work(m, unit) * (w->count - 1);
    if (m->p.progress.report)
        m->p.progress.report(m->p.progress.user, "importance", m->done_work, m->total_work);
    if (vti_now_ns() - m->saved_ns < (uint64_t)SAVE_EVERY_S * 1000000000u) return VT_OK;
    return vti_importance_save_progress(m, path, err);
}

static vt_status run_unit(vt_importance *m, const vti_window *w, uint32_t unit, const char *path,
                          vt_error *err)
{
    vti_run_range runs = vti_importance_runs_of(m, unit);
    if (m->wanted[unit])
        for (uint64_t run = runs.first; run < runs.end; run++) {
            if (run < m->place.run) continue;
            VTI_TRY(make_run(m, w, unit, run, err));
            VTI_TRY(after_run(m, w, unit, path, err));
        }
    if (unit == vti_head_unit(m->g)) return VT_OK;
    return forward(m, w, m->h, unit, 1, err);
}

static vt_status run_window(vt_importance *m, const vti_window *w, const char *path, vt_error *err)
{
    double whole;
    VTI_TRY(check_cancelled(m, err));
    VTI_TRY(run_whole(m, w, &whole, err));
    embed(m, w, m->h);
    for (uint32_t unit = 0; unit < m->data->units; unit++)
        VTI_TRY(run_unit(m, w, unit, path, err));
    m->whole_nll += whole;
    m->place = (vti_importance_place){.window = m->place.window + 1};
    return VT_OK;
}

vt_status vti_importance_run(vt_importance *m, const char *path, vt_error *err)
{
    vt_status status = VT_OK;
    reckon_work(m);
    m->saved_ns = vti_now_ns();
    while (status == VT_OK && m->place.window < m->window_count)
        status = run_window(m, &m->windows[m->place.window], path, err);
    return status;
}
