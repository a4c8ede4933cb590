/* Changes one unit's place at a time. The candidates are the options of the unit's class with every
 * home, and the present place with one shard moved. */
#include "search.h"

#include <string.h>

enum {
    SWEEPS_MAX = 4,
    PAIR_TRIES = 40, /* moves that are only possible with another: how many are looked into */
};

typedef plan_move move;

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

/* All candidates for a unit: options with homes first, then moved shards. */
typedef struct plan_search_moves {
    const plan_search *s;
    unsigned u, option, home, from, to;
} plan_search_moves;

static void begin_moves(plan_search_moves *it, const plan_search *s, unsigned u)
{
    *it = (plan_search_moves){.s = s, .u = u};
}

static bool next_option(plan_search_moves *it, move *m)
{
    const plan_search *s = it->s;
    const plan_class *c = &s->class_[s->class_of[it->u]];
    bool head = it->u + 1 == s->request->model->units;
    while (it->option < c->options) {
        unsigned home = it->home++, o = it->option;
        if (it->home == s->request->cluster->devices) it->home = 0, it->option++;
        if (head ? home != 0 : !(s->usable >> home & 1)) continue;
        memcpy(m->place.shares, c->option[o].shares, sizeof m->place.shares);
        m->place.home = (uint8_t)home;
        return true;
    }
    return false;
}

static bool next_move(plan_search_moves *it, move *m)
{
    const plan_search *s = it->s;
    unsigned devices = s->request->cluster->devices;
    m->place = s->place[it->u];
    if (next_option(it, m)) return true;
    while (it->from < devices) {
        unsigned from = it->from, to = it->to++;
        if (it->to == devices) it->to = 0, it->from++;
        if (to == from || !(s->usable >> to & 1) || m->place.shares[from] == 0) continue;
        m->place.shares[from]--, m->place.shares[to]++;
        return true;
    }
    return false;
}

static bool best_move(const plan_search *s, unsigned u, bool repairing, move *best)
{
    plan_search_moves it;
    move m;
    bool have = false;
    for (begin_moves(&it, s, u); next_move(&it, &m);) {
        judge(s, u, &m);
        if (is_better(&m, best, have, repairing)) *best = m, have = true;
    }
    return have;
}

/* Looks at every unit, then moves them from the best to the worst bargain. A unit is looked at again
 * before its turn: by then it may be of no use. */
static bool repair_once(plan_search *s)
{
    unsigned units = s->request->model->units;
    bool changed = false, done[VTI_PLAN_UNITS_MAX] = {false};
    for (unsigned u = 1; u < units; u++) done[u] = !best_move(s, u, true, &s->bargain[u]);
    for (;;) {
        unsigned at = 0;
        move m;
        for (unsigned u = 1; u < units; u++)
            if (!done[u] && (at == 0 || is_better(&s->bargain[u], &s->bargain[at], true, true)))
                at = u;
        if (at == 0) return changed;
        done[at] = true;
        if (!best_move(s, at, true, &m)) continue;
        apply(s, at, &m);
        changed = true;
    }
}

/* Ends, as every step lowers the overflow by at least a byte; far fewer than the bound are made. */
void vti_plan_repair(plan_search *s)
{
    for (unsigned round = 0; round < 64 && repair_once(s); round++) continue;
}

static bool improve_alone(plan_search *s)
{
    bool changed = false;
    for (unsigned u = 1; u < s->request->model->units; u++) {
        move m;
        if (!best_move(s, u, false, &m)) continue;
        apply(s, u, &m);
        changed = true;
    }
    return changed;
}

/* Makes a move of u that saves time but needs too much memory, and looks for the other unit whose
 * move gives the memory back for less time than was saved. Undoes it if there is none. */
static bool try_pair(plan_search *s, unsigned u, const move *wanted)
{
    unsigned units = s->request->model->units, at = 0;
    move back = {.place = s->place[u]}, best = {.seconds = -wanted->seconds};
    apply(s, u, wanted);
    for (unsigned v = 1; v < units; v++) {
        plan_search_moves it;
        move m;
        if (v == u) continue;
        for (begin_moves(&it, s, v); next_move(&it, &m);) {
            judge(s, v, &m);
            if (m.over <= -wanted->over && m.seconds < best.seconds) best = m, at = v;
        }
    }
    if (at == 0) {
        apply(s, u, &back);
        return false;
    }
    apply(s, at, &best);
    return true;
}

static bool improve_in_pairs(plan_search *s)
{
    unsigned tries = 0;
    bool changed = false;
    for (unsigned u = 1; u < s->request->model->units; u++) {
        plan_search_moves it;
        move m;
        for (begin_moves(&it, s, u); tries < PAIR_TRIES && next_move(&it, &m);) {
            judge(s, u, &m);
            if (m.seconds >= 0 || m.over <= 0) continue;
            tries++;
            if (!try_pair(s, u, &m)) continue;
            changed = true;
            begin_moves(&it, s, u);
        }
    }
    return changed;
}

void vti_plan_improve(plan_search *s)
{
    for (unsigned sweep = 0; sweep < SWEEPS_MAX; sweep++)
        if (!improve_alone(s) && !improve_in_pairs(s)) return;
}
