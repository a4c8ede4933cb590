/* importance_scores.c: from sums over the text to scores. */
#include <math.h>
#include <stdlib.h>

#include "importance_internal.h"
#include "model.h"

/* Of ln p: a perplexity beyond e^80 is as bad as that. */
static const double WORST_NLL = 80;

static double perplexity(const vt_importance *m, double nll)
{
    double mean = nll / (double)m->data->tokens;
    return exp(mean < WORST_NLL ? mean : WORST_NLL);
}

/* --- what a channel contributes --------------------------------------------------------------- */

/* Adds the squares of the matrix' elements to its columns' sums. `row`: room for one. */
static void add_column_squares(const vt_importance *m, const vti_tensor *w, uint32_t cols,
                               float *row, double *sums)
{
    for (uint32_t i = 0; i < w->rows; i++) {
        m->model->kernels.matmul[w->type].unpack(row, w->data, w->cols, i);
        for (uint32_t c = 0; c < cols; c++) sums[c] += (double)row[c] * row[c];
    }
}

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* sums: of the part's channels; of HEAD, whose rows are those of all shards, of all channels. */
static void weigh_columns(const vt_importance *m, const vti_weights *weights, uint32_t unit,
                          uint32_t part, float *row, double *sums)
{
    const vti_unit *u = vti_weights_unit(weights, unit);
    vti_unit_kind kind = vti_unit_kind_of(m->g, unit);
    uint32_t channels = m->data->part_at[m->data->first_part[unit] + part].channels;
    if (kind == VTI_UNIT_FFN)
        add_column_squares(m, &u->shard[part]->tensor[VTI_PIECE_DOWN], channels, row, sums);
    for (uint32_t i = VTI_PIECE_OUT; kind == VTI_UNIT_ATTN && i <= VTI_PIECE_OUT_REST; i++) {
        const vti_tensor *w = &u->shard[part]->tensor[i];
        uint32_t cols = w->rows ? smaller(w->cols, channels) : 0;
        if (cols) add_column_squares(m, w, cols, row, sums);
        sums += cols;
        channels -= cols;
    }
    for (uint32_t i = 0; kind == VTI_UNIT_HEAD && i < u->shards; i++)
        add_column_squares(m, &u->shard[i]->tensor[VTI_PIECE_ROWS], m->g->hparams.d, row, sums);
}

/* Turns m->squares into shares of a part: the size of what a channel adds to the unit's output, all
 * together 1. Of channels that add nothing, all have the same. */
static void share(const vti_importance_part *part, double *x)
{
    double sum = 0;
    for (uint32_t c = 0; c < part->channels; c++) sum += x[c] = sqrt(x[c]);
    for (uint32_t c = 0; c < part->channels; c++)
        x[c] = sum > 0 ? x[c] / sum : 1.0 / part->channels;
}

static vt_status weigh_unit(vt_importance *m, const vti_weights *weights, uint32_t unit, float *row,
                            double *sums, vt_error *err)
{
    const vti_importance *im = m->data;
    const vti_importance_part *first = &im->part_at[im->first_part[unit]];
    uint32_t parts = im->first_part[unit + 1] - im->first_part[unit];
    bool head = unit == vti_head_unit(m->g);
    if (m->p.cancelled && m->p.cancelled(m->p.user))
        return vti_fail(err, VT_ERR_CANCELLED, "cancelled");
    for (uint32_t i = 0; i < (head ? 1 : parts); i++) {
        uint32_t channels = head ? m->g->hparams.d : first[i].channels;
        for (uint32_t c = 0; c < channels; c++) sums[c] = 0;
        weigh_columns(m, weights, unit, i, row, sums);
        for (uint32_t c = 0; c < channels; c++) m->squares[first[i].first_channel + c] *= sums[c];
    }
    for (uint32_t i = 0; i < parts; i++) share(&first[i], m->squares + first[i].first_channel);
    return VT_OK;
}

static vt_status weigh(vt_importance *m, vt_error *err)
{
    uint32_t widest = m->g->hparams.d;
    const vti_weights *layers;
    for (uint32_t i = 0; i < m->data->parts; i++)
        if (m->data->part_at[i].channels > widest) widest = m->data->part_at[i].channels;
    VTI_TRY(vti_model_layers(m->model, &layers, err));
    float *row = malloc(2 * (size_t)vti_padded(widest) * sizeof *row);
    double *sums = malloc(widest * sizeof *sums);
    vt_status status = row && sums ? VT_OK
                                   : vti_fail(err, VT_ERR_MEMORY, "no memory for channels");
    for (uint32_t unit = 0; status == VT_OK && unit < m->data->units; unit++)
        if (m->wanted[unit])
            status = weigh_unit(m, unit == vti_head_unit(m->g) ? m->head.weights : layers, unit,
                                row, sums, err);
    free(row);
    free(sums);
    return status;
}

/* --- scores ----------------------------------------------------------------------------------- */

static void score_part(vt_importance *m, const vti_importance_part *part, uint64_t number)
{
    vti_importance *im = m->data;
    double *channel = im->channel + part->first_channel;
    if (!m->p.exact) im->part[number] = perplexity(m, m->nll[number]) - im->perplexity;
    for (uint32_t c = 0; c < part->channels; c++) {
        uint64_t at = part->first_channel + c;
        if (m->p.exact) {
            channel[c] = perplexity(m, m->nll[at]) - im->perplexity;
            im->part[number] += channel[c];
        } else {
            channel[c] = im->part[number] * m->squares[at];
        }
    }
}

vt_status vti_importance_finish(vt_importance *m, vt_error *err)
{
    vti_importance *im = m->data;
    if (!m->p.exact) VTI_TRY(weigh(m, err));
    im->perplexity = perplexity(m, m->whole_nll);
    for (uint32_t unit = 0; unit < im->units; unit++) {
        im->measured[unit] = m->wanted[unit];
        if (!m->wanted[unit]) continue;
        for (uint32_t i = im->first_part[unit]; i < im->first_part[unit + 1]; i++) {
            score_part(m, &im->part_at[i], i);
            im->unit[unit] += im->part[i];
        }
    }
    return VT_OK;
}
