/* Plan search by dynamic programming over (unit, who has the residual stream). Decode is planned
 * first, as its weights and KV rows decide who holds what; prefill is then free to use whatever is
 * there and what still fits beside it. If the best path fits, it is the best plan; else confined.c
 * looks for the best that fits. */
#include "search.h"

#include <string.h>

size_t vti_plan_scratch_bytes(void) { return sizeof(plan_search); }

const char *vti_plan_search_name(vti_plan_search_kind kind)
{
    static const char *const names[VTI_SEARCHES] = {"dp",       "greedy",   "single",  "even-mp",
                                                    "even-tp",  "aware-mp", "aware-tp", "layers"};
    return kind < VTI_SEARCHES ? names[kind] : NULL;
}

/* What would fit if all devices had more memory in the same proportion. */
static void nearest(plan_search *s)
{
    double need = 0, have = 0;
    for (unsigned u = 1; u < s->units; u++) {
        const plan_option *option = &s->option[s->group[s->group_of[u]].first];
        for (unsigned d = 0; d < s->devices; d++) need += option->bytes[d];
    }
    for (unsigned d = 0; d < s->devices; d++)
        if (s->usable >> d & 1) have += vti_larger(s->budget[d], 0);
    double stretch = have > 0 && need > have ? need / have : 1;
    for (unsigned tries = 0; tries < 64 && have > 0; tries++, stretch *= 1.0625)
        if (vti_plan_fill(s, stretch, s->best)) {
            s->best_s = vti_plan_rehome(s, s->best);
            return;
        }
    memset(s->price, 0, sizeof s->price);
    vti_plan_path(s);
    vti_plan_path_places(s, s->best);
}

/* The best path without regard to memory; true if it fits. */
static bool plan_free(plan_search *s)
{
    vti_plan_path(s);
    vti_plan_path_places(s, s->best);
    if (!vti_plan_path_fits(s)) return false;
    s->best_s = s->path_s;
    return true;
}

static void plan_decode(plan_search *s, const vti_plan *incumbent, vti_plan *plan)
{
    if (plan_free(s)) {
        s->bound_s = s->best_s;
        plan->proof = VTI_PROOF_UNCONFINED;
    } else {
        vti_plan_confined_decode(s, incumbent);
        if (s->best_s >= NEVER) nearest(s);
        else if (s->complete && s->best_s <= s->bound_s) plan->proof = VTI_PROOF_BEST;
    }
    memcpy(plan->place[VTI_DECODE], s->best, s->units * sizeof *s->best);
    plan->bound_s = s->bound_s;
}

/* Whether the weights of both phases fit. */
static bool both_fit(const plan_search *s, const vti_plan_place *decode)
{
    double used[VTI_PLAN_DEVICES_MAX] = {0}, bytes[VTI_PLAN_DEVICES_MAX];
    for (unsigned u = 1; u < s->units; u++) {
        vti_plan_unit_bytes(s->request, u, &decode[u], &s->best[u], bytes);
        for (unsigned d = 0; d < s->devices; d++) used[d] += bytes[d];
    }
    for (unsigned d = 0; d < s->devices; d++)
        if ((s->usable >> d & 1) && used[d] > s->budget[d]) return false;
    return true;
}

/* Whether it is fast enough to prefill where decode is, for which there is memory. */
static bool as_decode(plan_search *s, const vti_plan_place *decode)
{
    if (s->enough_s <= 0) return false;
    memcpy(s->best, decode, s->units * sizeof *s->best);
    s->best_s = vti_plan_rehome(s, s->best);
    return vti_plan_is_enough(s);
}

static void plan_prefill(plan_search *s, vti_plan *plan)
{
    if (as_decode(s, plan->place[VTI_DECODE])) {
        memcpy(plan->place[VTI_PREFILL], s->best, s->units * sizeof *s->best);
        return;
    }
    s->best_s = NEVER;
    plan_free(s);
    if (!both_fit(s, plan->place[VTI_DECODE])) {
        s->best_s = NEVER;
        vti_plan_confine(s, plan->place[VTI_DECODE]);
        vti_plan_confined_prefill(s);
    }
    memcpy(plan->place[VTI_PREFILL], s->best, s->units * sizeof *s->best);
}

void vti_plan_thorough(plan_search *s, const vti_plan_request *r, const vti_plan *incumbent,
                       vti_plan *plan)
{
    s->enough_s = 0;
    vti_plan_begin(s, r, VTI_DECODE);
    plan_decode(s, incumbent, plan);
    vti_plan_begin(s, r, VTI_PREFILL);
    plan_prefill(s, plan);
}

bool vti_plan_probe(plan_search *s, const vti_plan_request *r, vti_plan *plan)
{
    s->enough_s = r->tpot_s;
    vti_plan_begin(s, r, VTI_DECODE);
    if (!plan_free(s)) {
        if (s->path_s > r->tpot_s) return false;
        vti_plan_confined_decode(s, NULL);
    }
    if (!vti_plan_is_enough(s)) return false;
    memcpy(plan->place[VTI_DECODE], s->best, s->units * sizeof *s->best);
    s->enough_s = r->ttft_s;
    vti_plan_begin(s, r, VTI_PREFILL);
    plan_prefill(s, plan);
    return vti_plan_is_enough(s);
}

void vti_plan_start(const vti_plan_request *r, vti_plan *plan)
{
    memset(plan, 0, sizeof *plan);
    plan->units = r->model->units;
    plan->devices = r->cluster->devices;
    memcpy(plan->precision, r->precision, plan->units);
    plan->pruned_shards = (uint16_t)r->pruned_shards;
    vti_plan_mark_pruned(r, NULL, plan);
}

bool vti_plan_search(const vti_plan_request *r, vti_plan_search_kind kind,
                     const vti_plan *incumbent, void *scratch, vti_plan *plan)
{
    vti_plan_start(r, plan);
    if (kind == VTI_SEARCH_DP) {
        ((plan_search *)scratch)->warm = false;
        vti_plan_thorough(scratch, r, incumbent, plan);
    } else if (kind == VTI_SEARCH_LAYERS) {
        vti_plan_layers(&((plan_search *)scratch)->layers, r, 0, true, plan);
    } else {
        vti_plan_baseline(r, kind, NULL, plan);
        vti_plan_baseline_prefill(r, kind, plan);
    }
    vti_plan_replicate(r, plan);
    return plan->feasible;
}

bool vti_plan_search_layers_with(const vti_plan_request *r, unsigned devices, void *scratch,
                                 vti_plan *plan)
{
    vti_plan_start(r, plan);
    if (!vti_plan_layers(&((plan_search *)scratch)->layers, r, devices, false, plan)) return false;
    vti_plan_evaluate(r, plan);
    return true;
}
