/* Where every hop is dear: each device of a subset runs one row of whole units. The fastest are
 * filled, the slowest gets the rest; the order is the one that costs least. */
#include "search.h"

#include <string.h>

typedef struct runs_search {
    plan_search *s;
    double total_bytes;
    unsigned order[VTI_PLAN_DEVICES_MAX], devices; /* of the subset tried */
    double quota[VTI_PLAN_DEVICES_MAX];            /* bytes of each device's row */
    unsigned best_order[VTI_PLAN_DEVICES_MAX], best_end[VTI_PLAN_DEVICES_MAX], best_devices;
    double best_s;
} runs_search;

/* s->sums[d]: whole units on device d, which is the home all the time. */
static void add_up(runs_search *run)
{
    plan_search *s = run->s;
    for (unsigned d = 0; d < s->devices; d++) {
        plan_sums *sums = &s->sums[d];
        sums->seconds[0] = sums->bytes[0][0] = 0;
        for (unsigned u = 1; u < s->units; u++) {
            const plan_group *g = &s->group[s->group_of[u]];
            double bytes = vti_plan_shard_bytes(s->request, u) * g->shards +
                           vti_plan_class_of(s->request, u)->shared_bytes;
            sums->seconds[u] = sums->seconds[u - 1] + vti_plan_work_seconds(&g->work[d], g->shards);
            sums->bytes[u][0] = sums->bytes[u - 1][0] + bytes;
        }
    }
    run->total_bytes = s->sums[0].bytes[s->units - 1][0];
}

double vti_plan_whole_bound(const plan_search *s)
{
    double rate[VTI_PLAN_DEVICES_MAX], left = 0, seconds = s->embed_s;
    unsigned rest = s->usable;
    for (unsigned d = 0; d < s->devices; d++) rate[d] = NEVER;
    for (unsigned i = 0; i < s->groups; i++) {
        const plan_group *g = &s->group[i];
        double bytes = vti_plan_shard_bytes(s->request, g->unit) * g->shards +
                       vti_plan_class_of(s->request, g->unit)->shared_bytes;
        left += bytes * g->count;
        for (unsigned d = 0; d < s->devices && bytes > 0; d++) {
            double unit = vti_plan_work_seconds(&g->work[d], g->shards);
            rate[d] = vti_smaller(rate[d], unit / bytes);
        }
    }
    while (rest && left > 0) { /* as if units were divisible: the fastest devices first */
        unsigned fastest = (unsigned)__builtin_ctz(rest);
        for (unsigned d = fastest + 1; rest >> d; d++)
            if ((rest >> d & 1) && rate[d] < rate[fastest]) fastest = d;
        double bytes = vti_smaller(left, vti_larger(s->budget[fastest], 0));
        seconds += bytes * rate[fastest];
        left -= bytes;
        rest &= ~(1u << fastest);
    }
    return seconds * (1 - 1e-9); /* rounding */
}

static double hop(const plan_search *s, unsigned unit, unsigned from, unsigned to)
{
    const plan_wires *w = &s->wire[s->group[s->group_of[unit]].wires];
    return w->in[1u << to][s->state_of[1u << from]];
}

/* The last unit of a row that begins behind `begin` and has so many bytes. */
static unsigned row_end(const plan_search *s, unsigned begin, double bytes)
{
    const double(*sums)[VTI_PLAN_DEVICES_MAX] = s->sums[0].bytes;
    unsigned low = begin, high = s->units - 1;
    double most = sums[begin][0] + bytes;
    while (low < high) {
        unsigned middle = (low + high + 1) / 2;
        if (sums[middle][0] <= most) low = middle;
        else high = middle - 1;
    }
    return low;
}

static void try_order(runs_search *run)
{
    const plan_search *s = run->s;
    double seconds = s->embed_s;
    unsigned begin = 0, last = s->units - 1, home = 0, end[VTI_PLAN_DEVICES_MAX];
    for (unsigned i = 0; i < run->devices; i++) {
        unsigned d = run->order[i];
        end[i] = i + 1 < run->devices ? row_end(s, begin, run->quota[d]) : last;
        if (end[i] == begin) continue;
        seconds += s->sums[d].seconds[end[i]] - s->sums[d].seconds[begin];
        if (d != home) seconds += hop(s, begin + 1, home, d);
        begin = end[i], home = d;
    }
    seconds += s->wire[s->group[s->group_of[last]].wires].out[1u << home][0];
    if (seconds >= run->best_s) return;
    run->best_s = seconds, run->best_devices = run->devices;
    memcpy(run->best_end, end, sizeof end);
    memcpy(run->best_order, run->order, sizeof run->order);
}

/* All orders of few devices; of many, those in which two places are exchanged. */
static void try_orders(runs_search *run, unsigned at)
{
    enum { FEW = 5 };
    if (run->devices > FEW) {
        for (unsigned i = 0; i < run->devices; i++)
            for (unsigned j = i; j < run->devices; j++) {
                unsigned a = run->order[i], b = run->order[j];
                run->order[i] = b, run->order[j] = a;
                try_order(run);
                run->order[i] = a, run->order[j] = b;
            }
        return;
    }
    if (at == run->devices) {
        try_order(run);
        return;
    }
    for (unsigned i = at; i < run->devices; i++) {
        unsigned a = run->order[at], b = run->order[i];
        run->order[at] = b, run->order[i] = a;
        try_orders(run, at + 1);
        run->order[at] = a, run->order[i] = b;
    }
}

static bool deal_quotas(runs_search *run, unsigned mask)
{
    const plan_search *s = run->s;
    double left = run->total_bytes;
    run->devices = 0;
    for (unsigned rest = mask; rest; run->devices++) {
        unsigned fastest = (unsigned)__builtin_ctz(rest);
        for (unsigned d = fastest + 1; rest >> d; d++)
            if ((rest >> d & 1) &&
                s->sums[d].seconds[s->units - 1] < s->sums[fastest].seconds[s->units - 1])
                fastest = d;
        if (left <= 0) return false; /* a smaller subset does */
        run->quota[fastest] = vti_smaller(left, s->budget[fastest]);
        left -= run->quota[fastest];
        run->order[run->devices] = fastest;
        rest &= ~(1u << fastest);
    }
    return left <= 0;
}

bool vti_plan_runs(plan_search *s, vti_plan_place *places)
{
    runs_search run = {.s = s, .best_s = NEVER};
    add_up(&run);
    for (unsigned mask = 1; mask <= s->usable; mask++)
        if ((mask & ~s->usable) == 0 && deal_quotas(&run, mask)) try_orders(&run, 0);
    for (unsigned i = 0, u = 1; i < run.best_devices; i++)
        for (; u <= run.best_end[i]; u++) {
            unsigned d = run.best_order[i];
            places[u] = (vti_plan_place){.home = (uint8_t)(u + 1 < s->units ? d : 0)};
            places[u].shares[d] = (uint16_t)s->group[s->group_of[u]].shards;
        }
    return run.best_devices > 0;
}
