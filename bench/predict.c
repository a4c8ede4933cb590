/* Predictions: the planner's cost model with a profile of this machine. */
#include "predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/model.h"

enum { BATCH_TOKENS = 128 }; /* the default of sessions */

/* --- predicting -------------------------------------------------------------------------------- */

static void place_layers(const predict_row *row, vti_plan *plan)
{
    unsigned process = 0, before = 0;
    uint32_t left = row->layers[0];
    for (unsigned u = 0; u < plan->units; u++) {
        unsigned here = 0;
        if (u > 0 && u + 1 < plan->units) {
            if (u % 2) {
                while (left == 0) left = row->layers[++process];
                left--;
            }
            here = process;
        }
        for (unsigned phase = 0; phase < VTI_PHASES; phase++) {
            vti_plan_place *place = &plan->place[phase][u];
            *place = (vti_plan_place){.from = (uint8_t)before, .home = (uint8_t)here,
                                      .wire = VTI_WIRE_F32};
        }
        before = here;
    }
}

static void fill_shares(const vti_plan_request *request, vti_plan *plan)
{
    for (unsigned phase = 0; phase < VTI_PHASES; phase++)
        for (unsigned u = 0; u < plan->units; u++) {
            vti_plan_place *place = &plan->place[phase][u];
            place->shares[place->home] = (uint16_t)vti_plan_shards(request, u);
        }
}

static void make_cluster(const predict_case *c, const vti_plan_model *model, unsigned processes,
                         vti_plan_cluster *out)
{
    memset(out, 0, sizeof *out);
    out->devices = processes;
    for (unsigned d = 0; d < processes; d++) {
        vti_profile_fill(c->profile, model, &out->device[d]);
        out->device[d].memory_bytes = 1e15;
        for (unsigned e = 0; e < processes; e++) out->link[d][e] = c->link;
    }
}

vt_status predict_by_plan(const predict_case *c, predict_row *row, vt_error *err)
{
    static vti_plan_model model; /* these three are large */
    static vti_plan_cluster cluster;
    static vti_plan plan;
    const vt_session_params defaults = vt_session_params_default();
    vti_plan_model_params params = {row->context + c->decode_tokens + 2, BATCH_TOKENS,
                                    defaults.kv_type};
    VTI_TRY(vti_plan_model_of(c->model->shards, &params, &model, err));
    make_cluster(c, &model, row->processes, &cluster);
    vti_plan_request request = {.cluster = &cluster, .model = &model, .wire = VTI_WIRE_F32,
                                .prompt_tokens = row->context, .batch_tokens = BATCH_TOKENS,
                                .context_tokens = row->context + c->decode_tokens / 2.0,
                                .ttft_s = 1e9, .tpot_s = 1e9};
    memset(request.precision, c->precision, sizeof request.precision);
    memset(&plan, 0, sizeof plan);
    plan.units = model.units;
    plan.devices = cluster.devices;
    memcpy(plan.precision, request.precision, sizeof plan.precision);
    place_layers(row, &plan);
    fill_shares(&request, &plan);
    vti_plan_evaluate(&request, &plan);
    row->ttft_predicted = plan.ttft_s;
    row->tpot_predicted = plan.tpot_s;
    return VT_OK;
}

/* --- comparing --------------------------------------------------------------------------------- */

static bool are_alternatives(const predict_row *a, const predict_row *b)
{
    return strcmp(a->model, b->model) == 0 && a->threads == b->threads && a->context == b->context;
}

static void compare_order(double a, double b, double predicted_a, double predicted_b,
                          predict_summary *sum)
{
    if (fmax(a, b) <= 1.1 * fmin(a, b)) return;
    sum->pairs++;
    sum->right += (a < b) == (predicted_a < predicted_b);
}

predict_summary predict_sum_up(const predict_row *rows, size_t count)
{
    predict_summary sum = {0};
    for (size_t i = 0; i < count; i++) {
        const predict_row *a = &rows[i];
        sum.ttft_error += fabs(a->ttft_predicted / a->ttft - 1) / (double)count;
        sum.tpot_error += fabs(a->tpot_predicted / a->tpot - 1) / (double)count;
        for (size_t j = 0; j < i; j++) {
            const predict_row *b = &rows[j];
            if (!are_alternatives(a, b)) continue;
            compare_order(a->ttft, b->ttft, a->ttft_predicted, b->ttft_predicted, &sum);
            compare_order(a->tpot, b->tpot, a->tpot_predicted, b->tpot_predicted, &sum);
        }
    }
    return sum;
}
