/* Changes one unit's place at a time. The candidates are the options of the unit's class with every
 * home, and the present place with one shard moved. */
#include "search.h"

#include <string.h>

enum { SWEEPS_MAX = 4 };

typedef struct move {
    vti_plan_place place;
    double seconds; /* what it adds to the phase */
    double over;    /* what it adds to the overflow, in bytes */
} move;

static double excess(const plan_search *s, unsigned device, double used)
{
    double over = used - s->budget[device];
    return over > 0 && (device == 0 || used > 0) ? over : 0;
}

/* Seconds of unit u at `place` and of the next unit, which starts where that ends. */
static double around(const plan_search *s, unsigned u, const vti_plan_place *place)
{
    const vti_plan_request *r = s->request;
    double t = vti_plan_unit_seconds(r, s->phase, u, place, u ? s->place[u - 1].home : 0);
    if (u + 1 < r->model->units)
        t += vti_plan_unit_seconds(r, s->phase, u + 1, &s->place[u + 1], place->home);
    return t;
}

static void judge(const plan_search *s, unsigned u, move *m)
{
    double before[VTI_PLAN_DEVICES_MAX], after[VTI_PLAN_DEVICES_MAX];
    vti_plan_place_bytes(s, u, &s->place[u], before);
    vti_plan_place_bytes(s, u, &m->place, after);
    m->over = 0;
    for (unsigned d = 0; d < s->request->cluster->devices; d++)
        m->over += excess(s, d, s->used[d] - before[d] + after[d]) - excess(s, d, s->used[d]);
    m->seconds = around(s, u, &m->place) - around(s, u, &s->place[u]);
}

static void apply(plan_search *s, unsigned u, const move *m)
{
    double before[VTI_PLAN_DEVICES_MAX], after[VTI_PLAN_DEVICES_MAX];
    vti_plan_place_bytes(s, u, &s->place[u], before);
    vti_plan_place_bytes(s, u, &m->place, after);
    for (unsigned d = 0; d < s->request->cluster->devices; d++) s->used[d] += after[d] - before[d];
    s->place[u] = m->place;
}

/* Less overflow per second added when repairing; less time without overflow when improving. */
static bool is_better(const move *m, const move *best, bool have, bool repairing)
{
    if (!repairing) return m->over <= 0 && m->seconds < (have ? best->seconds : 0);
    if (m->over >= 0) return false;
    if (!have) return true;
    double a = m->seconds > 0 ? m->seconds : 0, b = best->seconds > 0 ? best->seconds : 0;
    double left = a * -best->over, right = b * -m->over;
    return left < right || (left == right && m->over < best->over);
}

static bool best_move(const plan_search *s, unsigned u, bool repairing, move *best)
{
    unsigned devices = s->request->cluster->devices, units = s->request->model->units;
    const plan_class *c = &s->class_[s->class_of[u]];
    bool have = false;
    move m = {.place = s->place[u]};
    for (unsigned o = 0; o < c->options; o++)
        for (unsigned home = 0; home < devices; home++) {
            if (u + 1 == units ? home != 0 : !(s->usable >> home & 1)) continue;
            memcpy(m.place.shares, c->option[o].shares, sizeof m.place.shares);
            m.place.home = (uint8_t)home;
            judge(s, u, &m);
            if (is_better(&m, best, have, repairing)) *best = m, have = true;
        }
    m.place = s->place[u];
    for (unsigned from = 0; from < devices; from++)
        for (unsigned to = 0; to < devices && s->place[u].shares[from]; to++) {
            if (to == from || !(s->usable >> to & 1)) continue;
            m.place.shares[from]--, m.place.shares[to]++;
            judge(s, u, &m);
            if (is_better(&m, best, have, repairing)) *best = m, have = true;
            m.place.shares[from]++, m.place.shares[to]--;
        }
    return have;
}

/* Each step takes the best move of all units; there are never more than units × shards useful ones,
 * and far fewer are made. */
void vti_plan_repair(plan_search *s)
{
    unsigned units = s->request->model->units;
    for (unsigned step = 0; step < 4 * units; step++) {
        bool have = false;
        unsigned at = 0;
        move best = {.over = 0}, m;
        for (unsigned u = 1; u < units; u++) {
            if (!best_move(s, u, true, &m)) continue;
            if (is_better(&m, &best, have, true)) best = m, at = u, have = true;
        }
        if (!have) return;
        apply(s, at, &best);
    }
}

void vti_plan_improve(plan_search *s)
{
    for (unsigned sweep = 0, changed = 1; changed && sweep < SWEEPS_MAX; sweep++) {
        changed = 0;
        for (unsigned u = 1; u < s->request->model->units; u++) {
            move m;
            if (!best_move(s, u, false, &m)) continue;
            apply(s, u, &m);
            changed = 1;
        }
    }
}
