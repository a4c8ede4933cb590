/* Searches when memory binds: each device's byte gets a price (a Lagrange multiplier); the best path
 * at these prices is never slower than the best that fits, so it bounds it, and guides to it. */
#include "search.h"

#include <string.h>

/* --- plans that fit --------------------------------------------------------------------------- */

static bool fits(const plan_search *s, const vti_plan_place *places)
{
    double used[VTI_PLAN_DEVICES_MAX] = {0}, bytes[VTI_PLAN_DEVICES_MAX];
    unsigned part = 1;
    for (unsigned u = 1; u < s->units; u++) {
        vti_plan_unit_bytes(s->request, u, &places[u], &places[u], bytes);
        for (unsigned d = 0; d < s->devices; d++) used[d] += bytes[d];
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

/* Deals a unit's shards by what is left on each device: whole shards by proportion, then to those
 * whose proportion was cut most. */
static bool fill_unit(const plan_search *s, unsigned unit, double *left, uint16_t *shares)
{
    double bytes = vti_plan_shard_bytes(s->request, unit), sum = 0;
    double shared = vti_plan_class_of(s->request, unit)->shared_bytes;
    double wanted[VTI_PLAN_DEVICES_MAX];
    unsigned shards = vti_plan_shards(s->request, unit), given = 0, room[VTI_PLAN_DEVICES_MAX];
    for (unsigned d = 0; d < s->devices; d++) {
        double free = s->usable >> d & 1 ? left[d] - shared : -1;
        double n = free < 0 ? 0 : bytes > 0 ? free / bytes : shards;
        room[d] = n < shards ? (unsigned)n : shards;
        sum += room[d] ? free : 0;
        wanted[d] = room[d] ? free : 0;
    }
    for (unsigned d = 0; d < s->devices; d++) {
        wanted[d] = sum > 0 ? wanted[d] / sum * shards : 0;
        shares[d] = (uint16_t)(wanted[d] < room[d] ? (unsigned)wanted[d] : room[d]);
        given += shares[d];
    }
    for (; given < shards; given++) {
        int best = -1;
        for (unsigned d = 0; d < s->devices; d++) {
            if (shares[d] >= room[d]) continue;
            if (best < 0 || wanted[d] - shares[d] > wanted[best] - shares[best]) best = (int)d;
        }
        if (best < 0) return false;
        shares[best]++;
    }
    for (unsigned d = 0; d < s->devices; d++)
        left[d] -= shares[d] * bytes + (shares[d] ? shared : 0);
    return true;
}

/* Units of large shards first. */
bool vti_plan_fill(const plan_search *s, double stretch, vti_plan_place *places)
{
    double left[VTI_PLAN_DEVICES_MAX];
    bool done[VTI_PLAN_UNITS_MAX + VTI_PLAN_CLASSES_MAX * VTI_PLAN_PRECISIONS] = {false};
    for (unsigned d = 0; d < s->devices; d++) left[d] = stretch * s->budget[d];
    for (unsigned round = s->first_group; round < s->groups; round++) {
        unsigned group = s->groups;
        double most = -1;
        for (unsigned g = s->first_group; g < s->groups; g++) {
            double bytes = vti_plan_shard_bytes(s->request, s->group[g].unit);
            if (!done[g] && bytes > most) most = bytes, group = g;
        }
        done[group] = true;
        for (unsigned u = 1; u < s->units; u++) {
            if (s->group_of[u] != group) continue;
            memset(&places[u], 0, sizeof *places);
            if (!fill_unit(s, u, left, places[u].shares)) return false;
        }
    }
    return true;
}

static void try_baseline(plan_search *s, vti_plan_search_kind kind)
{
    vti_plan *plan = &s->baseline;
    plan->units = s->units, plan->devices = s->devices;
    vti_plan_baseline(s->request, kind, plan);
    const vti_plan_place *places = plan->place[VTI_DECODE];
    if (fits(s, places)) vti_plan_offer(s, places, vti_plan_seconds(s->request, VTI_DECODE, places));
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

/* --- prices ----------------------------------------------------------------------------------- */

static double prepaid(const plan_search *s)
{
    double sum = 0;
    for (unsigned d = 0; d < s->devices; d++)
        if (s->usable >> d & 1) sum += s->price[d] * s->budget[d];
    return sum;
}

/* A step along the subgradient, in parts of the budgets, as long as the gap to the best known plan
 * suggests (Polyak). */
static void raise_prices(plan_search *s, double bound, double eagerness)
{
    double norm = 0, goal = s->best_s < NEVER ? s->best_s : 1.25 * bound;
    double excess[VTI_PLAN_DEVICES_MAX];
    for (unsigned d = 0; d < s->devices; d++) {
        excess[d] = 0;
        if (!(s->usable >> d & 1) || s->budget[d] < 1) continue;
        excess[d] = (s->used[d] - s->budget[d]) / s->budget[d];
        if (s->price[d] <= 0 && excess[d] < 0) excess[d] = 0;
        norm += excess[d] * excess[d];
    }
    if (norm <= 0) return;
    for (unsigned d = 0; d < s->devices; d++) {
        if (excess[d] == 0) continue;
        s->price[d] += eagerness * (goal - bound) / norm * excess[d] / s->budget[d];
        if (s->price[d] < 0) s->price[d] = 0;
    }
}

/* --- decode ----------------------------------------------------------------------------------- */

/* Whether all devices together have too little memory. */
static bool hopeless(const plan_search *s)
{
    double need = 0, have = 0;
    if (s->budget[0] < 0) return true;
    for (unsigned u = 1; u < s->units; u++) {
        const plan_option *option = &s->option[s->group[s->group_of[u]].first];
        for (unsigned d = 0; d < s->devices; d++) need += option->bytes[d];
    }
    for (unsigned d = 0; d < s->devices; d++) have += s->usable >> d & 1 ? s->budget[d] : 0;
    return need > have;
}

void vti_plan_confined_decode(plan_search *s, const vti_plan *incumbent)
{
    if (hopeless(s)) return;
    vti_plan_add_uneven(s);
    if (incumbent && same_shape(s, incumbent) && fits(s, incumbent->place[VTI_DECODE]))
        vti_plan_offer(s, incumbent->place[VTI_DECODE],
              vti_plan_seconds(s->request, VTI_DECODE, incumbent->place[VTI_DECODE]));
    if (vti_plan_fill(s, 1, s->draft)) {
        double seconds = vti_plan_rehome(s, s->draft);
        vti_plan_offer(s, s->draft, seconds);
    }
    try_baseline(s, VTI_SEARCH_SINGLE);
    try_baseline(s, VTI_SEARCH_GREEDY);
    plan_mixture mixture;
    memset(s->bound_price, 0, sizeof s->bound_price);
    if (vti_plan_mix(s, &mixture)) {
        vti_plan_sew(s, &mixture);
        if (vti_plan_repair(s)) {
            double seconds = vti_plan_rehome(s, s->draft);
            vti_plan_offer(s, s->draft, seconds);
        }
    }
    bool all = vti_plan_labels(s);
    if (all && s->complete) s->bound_s = s->best_s;
    for (vti_plan_search_kind kind = VTI_SEARCH_EVEN_MP; s->best_s >= NEVER && kind < VTI_SEARCHES;
         kind++)
        try_baseline(s, kind);
}

/* --- prefill ---------------------------------------------------------------------------------- */

/* Leaves units as decode has them, from the last on, as long as a device lacks memory for others. */
static void give_back(plan_search *s)
{
    vti_plan_path_places(s, s->draft);
    for (unsigned u = s->units - 1; u > 0 && !vti_plan_path_fits(s); u--) {
        const plan_option *option = &s->option[s->path_option[u]];
        bool helps = false;
        for (unsigned d = 0; d < s->devices; d++)
            helps |= s->used[d] > s->budget[d] && option->bytes[d] > 0;
        if (!helps) continue;
        for (unsigned d = 0; d < s->devices; d++) s->used[d] -= option->bytes[d];
        memcpy(s->draft[u].shares, s->decode[u].shares, sizeof s->decode[u].shares);
    }
}

void vti_plan_confined_prefill(plan_search *s)
{
    enum { ROUNDS = 4 };
    memcpy(s->draft, s->decode, s->units * sizeof *s->draft);
    double seconds = vti_plan_rehome(s, s->draft);
    vti_plan_offer(s, s->draft, seconds);
    memset(s->price, 0, sizeof s->price);
    for (unsigned round = 0; round < ROUNDS; round++) {
        double bound = vti_plan_path(s) - prepaid(s);
        double used[VTI_PLAN_DEVICES_MAX];
        memcpy(used, s->used, sizeof used);
        give_back(s);
        if (vti_plan_path_fits(s)) {
            seconds = vti_plan_rehome(s, s->draft);
            vti_plan_offer(s, s->draft, seconds);
        }
        memcpy(s->used, used, sizeof used);
        raise_prices(s, bound, 1);
    }
}
