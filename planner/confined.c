/* The search for decode when memory binds: candidates from several sides, each made to fit and
 * improved; of small models nearly all paths. */
#include "search.h"

#include <string.h>

enum { FEW_SPREADS = 64, SEVERAL_SPREADS = 512, TINY_MODEL = 8 };

static bool fits(const plan_search *s, const vti_plan_place *places)
{
    double used[VTI_PLAN_DEVICES_MAX] = {0}, bytes[2][VTI_PLAN_DEVICES_MAX];
    unsigned part = 1;
    for (unsigned u = 1; u < s->units; u++) { /* units come in alternating runs */
        bool again = u > 2 && s->group_of[u] == s->group_of[u - 2] &&
                     memcmp(&places[u], &places[u - 2], sizeof *places) == 0;
        if (!again) vti_plan_unit_bytes(s->request, u, &places[u], &places[u], bytes[u % 2]);
        for (unsigned d = 0; d < s->devices; d++) used[d] += bytes[u % 2][d];
        if (again) continue;
        part |= vti_plan_mask(&places[u]) | 1u << places[u].home;
    }
    for (unsigned d = 0; d < s->devices; d++)
        if ((part >> d & 1) && (used[d] > s->budget[d] || !(s->usable >> d & 1))) return false;
    return true;
}

void vti_plan_offer(plan_search *s, const vti_plan_place *places, double seconds)
{
    if (seconds >= s->best_s) return;
    s->best_s = seconds;
    memcpy(&s->best[1], &places[1], (s->units - 1) * sizeof *places);
}

static bool fits_on_one(const plan_search *s)
{
    double all = 0, most = 0;
    for (unsigned g = 0; g < s->groups; g++)
        all += s->group[g].count * s->option[s->group[g].first].bytes[0];
    for (unsigned d = 0; d < s->devices; d++) most = vti_larger(most, s->budget[d]);
    return all <= most;
}

static void try_baseline(plan_search *s, vti_plan_search_kind kind, plan_limit *limit)
{
    vti_plan *plan = &s->baseline;
    if (kind == VTI_SEARCH_SINGLE && !fits_on_one(s)) return;
    plan->units = s->units, plan->devices = s->devices;
    limit->seconds = s->best_s;
    if (kind != VTI_SEARCH_LAYERS && !vti_plan_baseline(s->request, kind, limit, plan)) return;
    if (kind == VTI_SEARCH_LAYERS && !vti_plan_layers(&s->layers, s->request, 0, false, plan))
        return;
    const vti_plan_place *places = plan->place[VTI_DECODE];
    if (fits(s, places))
        vti_plan_offer(s, places, vti_plan_seconds(s->request, VTI_DECODE, places));
}

static bool same_shape(const plan_search *s, const vti_plan *plan)
{
    if (plan->units != s->units || plan->devices != s->devices ||
        plan->pruned_shards != s->request->pruned_shards)
        return false;
    for (unsigned u = 0; u < s->units; u++) {
        unsigned sum = 0;
        for (unsigned d = 0; d < s->devices; d++) sum += plan->place[VTI_DECODE][u].shares[d];
        if (sum != vti_plan_shards(s->request, u)) return false;
    }
    return true;
}

/* Its transfers are made as the request wants them. */
static void try_incumbent(plan_search *s, const vti_plan *incumbent)
{
    if (!same_shape(s, incumbent) || !fits(s, incumbent->place[VTI_DECODE])) return;
    memcpy(s->draft, incumbent->place[VTI_DECODE], s->units * sizeof *s->draft);
    for (unsigned u = 1; u < s->units; u++)
        s->draft[u].wire = (uint8_t)vti_plan_unit_wire(s->request, u);
    vti_plan_offer(s, s->draft, vti_plan_seconds(s->request, VTI_DECODE, s->draft));
}

/* Whether all devices together have too little memory. */
static bool hopeless(const plan_search *s)
{
    double need = 0, have = 0;
    if (s->budget[0] < 0) return true;
    for (unsigned g = 0; g < s->groups; g++) {
        const plan_option *option = &s->option[s->group[g].first];
        for (unsigned d = 0; d < s->devices; d++) need += s->group[g].count * option->bytes[d];
    }
    for (unsigned d = 0; d < s->devices; d++) have += s->usable >> d & 1 ? s->budget[d] : 0;
    return need > have;
}

/* Makes the draft fit, and faster if that may make it the best. */
static bool repair_draft(plan_search *s)
{
    enum { PERCENT_TO_GAIN = 10 };
    double before = s->best_s;
    if (!vti_plan_repair(s, false)) return false;
    double seconds = vti_plan_rehome(s, s->draft);
    vti_plan_offer(s, s->draft, seconds);
    if (vti_plan_is_enough(s)) return true;
    bool hopeful = seconds * (100 - PERCENT_TO_GAIN) / 100 < before || s->units <= FEW_UNITS;
    if (hopeful && vti_plan_repair(s, true))
        vti_plan_offer(s, s->draft, vti_plan_rehome(s, s->draft));
    return s->best_s < before;
}

/* No spread of a unit computes faster. */
static double least_seconds(const plan_search *s, const plan_group *g)
{
    double least = NEVER;
    for (unsigned o = g->first; o < g->first + g->options; o++)
        least = vti_smaller(least, s->option[o].compute_s);
    return least;
}

/* The other searches. Those that place whole units need not be tried when their bound says so. */
static void try_baselines(plan_search *s)
{
    static const vti_plan_search_kind spread[] = {VTI_SEARCH_GREEDY, VTI_SEARCH_AWARE_TP,
                                                  VTI_SEARCH_EVEN_TP},
                                      whole[] = {VTI_SEARCH_SINGLE, VTI_SEARCH_EVEN_MP,
                                                 VTI_SEARCH_AWARE_MP, VTI_SEARCH_LAYERS};
    plan_limit limit = {.seconds = NEVER};
    double least[GROUPS_MAX];
    for (unsigned g = 0; g < s->groups; g++) least[g] = least_seconds(s, &s->group[g]);
    limit.least_s[s->units] = 0;
    for (unsigned u = s->units - 1; u > 0; u--)
        limit.least_s[u] = limit.least_s[u + 1] + least[s->group_of[u]];
    for (unsigned i = 0; i < sizeof spread / sizeof *spread; i++)
        try_baseline(s, spread[i], &limit);
    if (vti_plan_whole_bound(s) >= s->best_s) return;
    for (unsigned i = 0; i < sizeof whole / sizeof *whole; i++)
        try_baseline(s, whole[i], &limit);
}

static void improve_best(plan_search *s)
{
    enum { TIMES = 4 };
    for (unsigned i = 0; i < TIMES && s->best_s < NEVER; i++) {
        memcpy(&s->draft[1], &s->best[1], (s->units - 1) * sizeof *s->draft);
        if (!repair_draft(s)) return;
    }
}

/* Where memory is full no shard fits anywhere else: moves some all the same, and lets the repair
 * find what gives way to them. True if that gave a better plan. */
static bool push(plan_search *s, unsigned unit, unsigned from, unsigned to, unsigned shards)
{
    double before = s->best_s;
    memcpy(&s->draft[1], &s->best[1], (s->units - 1) * sizeof *s->draft);
    uint16_t *shares = s->draft[unit].shares;
    shares[from] = (uint16_t)(shares[from] - shards);
    shares[to] = (uint16_t)(shares[to] + shards);
    repair_draft(s);
    return s->best_s < before;
}

static void push_all(plan_search *s)
{
    enum { SWEEPS = 2 };
    for (unsigned sweep = 0, better = 1; sweep < SWEEPS && better; sweep++) {
        better = 0;
        for (unsigned u = 1; u < s->units; u++)
            for (unsigned from = 0; from < s->devices; from++)
                for (unsigned to = 0; to < s->devices; to++) {
                    unsigned have = s->best[u].shares[from];
                    if (from == to || have == 0 || !(s->usable >> to & 1)) continue;
                    if (push(s, u, from, to, have)) better = 1;
                    else if (have > 1 && push(s, u, from, to, 1)) better = 1;
                }
    }
}

static void try_fill(plan_search *s)
{
    if (!vti_plan_fill(s, 1, s->draft)) return;
    vti_plan_offer(s, s->draft, vti_plan_rehome(s, s->draft));
    repair_draft(s);
}

/* Small models, where there is time and single units count: nearly all there is. */
static void try_everything(plan_search *s)
{
    bool all = vti_plan_labels(s);
    if (all && s->complete) {
        s->bound_s = s->best_s;
        return;
    }
    for (vti_plan_search_kind kind = VTI_SEARCH_GREEDY; kind <= VTI_SEARCH_AWARE_TP; kind++) {
        vti_plan_baseline(s->request, kind, NULL, &s->baseline);
        memcpy(s->draft, s->baseline.place[VTI_DECODE], s->units * sizeof *s->draft);
        repair_draft(s);
    }
    try_fill(s);
    improve_best(s);
    if (s->best_s < NEVER) push_all(s);
    if (s->units > TINY_MODEL || s->complete) return;
    /* With so good a plan, most labels are dropped at once. */
    vti_plan_add_uneven(s, SEVERAL_SPREADS);
    if (vti_plan_labels(s) && s->complete) s->bound_s = s->best_s;
}

static void try_mixture(plan_search *s, bool hasty)
{
    plan_mixture mixture;
    if (!vti_plan_mix(s, hasty, &mixture)) return;
    vti_plan_sew(s, &mixture);
    repair_draft(s);
}

void vti_plan_confined_decode(plan_search *s, const vti_plan *incumbent)
{
    if (hopeless(s)) return;
    vti_plan_add_uneven(s, FEW_SPREADS);
    if (incumbent) try_incumbent(s, incumbent);
    if (s->enough_s > 0) try_mixture(s, true);
    if (vti_plan_is_enough(s) || vti_plan_is_vain(s)) return;
    try_mixture(s, false);
    if (vti_plan_is_enough(s) || vti_plan_is_vain(s)) return;
    bool few = s->units <= FEW_UNITS, probing = s->enough_s > 0;
    if ((few || vti_plan_whole_bound(s) < s->best_s) && vti_plan_runs(s, s->draft)) repair_draft(s);
    if (vti_plan_is_enough(s)) return;
    if (probing && !few) {
        if (s->best_s >= NEVER) try_fill(s);
        return;
    }
    try_baselines(s);
    if (vti_plan_is_enough(s)) return;
    if (few || s->best_s >= NEVER) try_everything(s);
}
