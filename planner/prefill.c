/* The search for prefill when memory binds: what decode holds is free, the rest has a price that
 * rises where a path needs more than is left. */
#include "search.h"

#include <string.h>

/* A plan that is so near to the bound is good enough, as a part of it. */
#define NEAR 1e-3

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

/* Leaves units as decode has them, from the last on, as long as a device lacks memory. */
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
    for (unsigned round = 0; round < ROUNDS && !vti_plan_is_enough(s); round++) {
        double bound = vti_plan_path(s) - prepaid(s);
        double used[VTI_PLAN_DEVICES_MAX];
        memcpy(used, s->used, sizeof used);
        bool fits = vti_plan_path_fits(s);
        give_back(s);
        if (vti_plan_path_fits(s)) {
            seconds = fits ? s->path_s : vti_plan_rehome(s, s->draft);
            vti_plan_offer(s, s->draft, seconds);
        }
        memcpy(s->used, used, sizeof used);
        if (s->best_s - bound <= NEAR * s->best_s) return;
        raise_prices(s, bound, 1);
    }
}
