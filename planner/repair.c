/* Moves shards of single units between devices: until a draft fits, then while it gets faster. A
 * move may make the receiver the unit's home, which lets runs of units grow at their ends. */
#include "search.h"

#include <string.h>

typedef struct shard_move {
    unsigned unit, from, to, shards, state;
    double seconds; /* what it adds */
} shard_move;

typedef struct repair_run {
    plan_search *s;
    uint16_t (*shares)[VTI_PLAN_DEVICES_MAX];
} repair_run;

static double unit_seconds(const plan_search *s, unsigned u, const uint16_t *shares,
                           unsigned before, unsigned after)
{
    const plan_group *g = &s->group[s->group_of[u]];
    plan_option option = {.compute_s = 0};
    for (unsigned d = 0; d < s->devices; d++) {
        if (!shares[d]) continue;
        option.mask |= 1u << d;
        option.compute_s =
            vti_larger(option.compute_s, vti_plan_work_seconds(&g->work[d], shares[d]));
    }
    return vti_plan_step_seconds(s, g, &option, before, after);
}

/* Seconds of unit u when it ends in `after`, and of the next unit, which starts there. */
static double around(const repair_run *run, unsigned u, const uint16_t *shares, unsigned after)
{
    const plan_search *s = run->s;
    double t = unit_seconds(s, u, shares, s->path_state[u - 1], after);
    if (u + 1 < s->units)
        t += unit_seconds(s, u + 1, run->shares[u + 1], after, s->path_state[u + 1]);
    return t;
}

/* Bytes that the move takes from one device and brings to the other. */
static void moved_bytes(const repair_run *run, const shard_move *m, double *out, double *in)
{
    double bytes = vti_plan_shard_bytes(run->s->request, m->unit) * m->shards;
    double shared = vti_plan_class_of(run->s->request, m->unit)->shared_bytes;
    const uint16_t *shares = run->shares[m->unit];
    *out = bytes + (m->shards == shares[m->from] ? shared : 0);
    *in = bytes + (shares[m->to] == 0 ? shared : 0);
}

static double room(const plan_search *s, unsigned d) { return s->budget[d] - s->used[d]; }

static void try_state(const repair_run *run, shard_move *m, unsigned state, const uint16_t *shares,
                      double now, shard_move *best)
{
    m->state = state;
    m->seconds = around(run, m->unit, shares, state) - now;
    if (m->seconds < best->seconds) *best = *m;
}

/* The fastest outcome of moving so many shards; best->seconds: must be below that. */
static void try_move(const repair_run *run, shard_move *m, double now, shard_move *best)
{
    const plan_search *s = run->s;
    uint16_t shares[VTI_PLAN_DEVICES_MAX];
    memcpy(shares, run->shares[m->unit], sizeof shares);
    shares[m->from] = (uint16_t)(shares[m->from] - m->shards);
    shares[m->to] = (uint16_t)(shares[m->to] + m->shards);
    unsigned state = s->path_state[m->unit], mask = 0;
    for (unsigned d = 0; d < s->devices; d++) mask |= (shares[d] > 0u) << d;
    try_state(run, m, state, shares, now, best);
    if (m->unit + 1 == s->units) return;
    unsigned single = s->state_of[1u << m->to], set = s->state_of[mask];
    if (single != state) try_state(run, m, single, shares, now, best);
    if (set != STATES_MAX && set != state && set != single)
        try_state(run, m, set, shares, now, best);
}

static void apply(repair_run *run, const shard_move *m)
{
    double out, in;
    uint16_t *shares = run->shares[m->unit];
    moved_bytes(run, m, &out, &in);
    run->s->used[m->from] -= out, run->s->used[m->to] += in;
    shares[m->from] = (uint16_t)(shares[m->from] - m->shards);
    shares[m->to] = (uint16_t)(shares[m->to] + m->shards);
    run->s->path_state[m->unit] = (uint8_t)m->state;
}

/* As many shards as `from` must lose, as `to` has room for. */
static unsigned useful_shards(const repair_run *run, unsigned u, unsigned from, unsigned to)
{
    const plan_search *s = run->s;
    double bytes = vti_plan_shard_bytes(s->request, u), have = run->shares[u][from];
    double free = room(s, to);
    if (!run->shares[u][to]) free -= vti_plan_class_of(s->request, u)->shared_bytes;
    if (bytes <= 0 || free < bytes) return 0;
    double need = -room(s, from) / bytes, most = free / bytes;
    double n = need > (unsigned)need ? (unsigned)need + 1 : need;
    n = vti_smaller(vti_smaller(n, most), have);
    return (unsigned)n;
}

static bool same_around(const repair_run *run, unsigned u, unsigned v)
{
    const plan_search *s = run->s;
    return s->group_of[u] == s->group_of[v] && s->path_state[u - 1] == s->path_state[v - 1] &&
           s->path_state[u] == s->path_state[v] && u + 1 < s->units && v + 1 < s->units &&
           s->group_of[u + 1] == s->group_of[v + 1] &&
           s->path_state[u + 1] == s->path_state[v + 1] &&
           memcmp(run->shares[u], run->shares[v], sizeof run->shares[u]) == 0 &&
           memcmp(run->shares[u + 1], run->shares[v + 1], sizeof run->shares[u]) == 0;
}

/* Units that were looked at: what is true of one is true of all that are the same around. */
typedef struct looked_at {
    uint16_t unit[64];
} looked_at;

/* Whether one like u was looked at; if not, u is from now on. */
static bool known(const repair_run *run, looked_at *seen, unsigned u)
{
    const plan_search *s = run->s;
    unsigned hash = s->group_of[u] + 5u * s->path_state[u - 1] + 11u * s->path_state[u];
    for (unsigned d = 0; d < s->devices; d++) hash = hash * 3 + run->shares[u][d];
    if (u + 1 < s->units) hash += 7u * s->group_of[u + 1];
    uint16_t *slot = &seen->unit[(hash ^ hash >> 6) % 64];
    if (*slot && same_around(run, u, *slot)) return true;
    *slot = (uint16_t)u;
    return false;
}

/* The move that takes memory from `from` for the least time per byte. */
static bool best_relief(const repair_run *run, unsigned from, shard_move *best)
{
    const plan_search *s = run->s;
    looked_at seen = {{0}};
    double least = NEVER;
    for (unsigned u = 1; u < s->units; u++) {
        if (!run->shares[u][from] || known(run, &seen, u)) continue;
        double now = around(run, u, run->shares[u], s->path_state[u]);
        for (unsigned to = 0; to < s->devices; to++) {
            if (to == from || !(s->usable >> to & 1) || room(s, to) <= 0) continue;
            shard_move m = {.unit = u, .from = from, .to = to}, found = {.seconds = NEVER};
            m.shards = useful_shards(run, u, from, to);
            if (m.shards == 0) continue;
            try_move(run, &m, now, &found);
            double gain = vti_plan_shard_bytes(s->request, u) * m.shards;
            if (found.seconds / gain < least) least = found.seconds / gain, *best = found;
        }
    }
    return least < NEVER;
}

static bool relieve(repair_run *run)
{
    enum { STEPS = 24 };
    plan_search *s = run->s;
    for (unsigned i = 0; i < STEPS; i++) {
        shard_move m;
        unsigned worst = s->devices;
        for (unsigned d = 0; d < s->devices; d++)
            if ((s->usable >> d & 1) && room(s, d) < 0 &&
                (worst == s->devices || room(s, d) < room(s, worst)))
                worst = d;
        if (worst == s->devices) return true;
        if (!best_relief(run, worst, &m)) return false;
        apply(run, &m);
    }
    return false;
}

/* One shard, or as many as fit: the move of unit u that saves most. */
static bool best_gain(const repair_run *run, unsigned u, shard_move *best)
{
    const plan_search *s = run->s;
    double now = around(run, u, run->shares[u], s->path_state[u]);
    double bytes = vti_plan_shard_bytes(s->request, u);
    *best = (shard_move){.seconds = -1e-9 * now};
    for (unsigned from = 0; from < s->devices; from++)
        for (unsigned to = 0; to < s->devices; to++) {
            unsigned have = run->shares[u][from], fit = have;
            if (to == from || !have || !(s->usable >> to & 1)) continue;
            double free = room(s, to);
            if (!run->shares[u][to]) free -= vti_plan_class_of(s->request, u)->shared_bytes;
            if (free < bytes || free < 0) continue;
            if (bytes > 0 && free / bytes < have) fit = (unsigned)(free / bytes);
            shard_move m = {.unit = u, .from = from, .to = to, .shards = 1};
            try_move(run, &m, now, best);
            m.shards = fit;
            if (fit > 1) try_move(run, &m, now, best);
            m.shards = fit / 2;
            if (fit > 3) try_move(run, &m, now, best);
        }
    return best->shards > 0;
}

static void improve(repair_run *run)
{
    enum { SWEEPS = 3 };
    plan_search *s = run->s;
    for (unsigned sweep = 0, changed = 1; sweep < SWEEPS && changed; sweep++) {
        looked_at idle = {{0}};
        changed = 0;
        for (unsigned u = 1; u < s->units; u++) {
            shard_move m;
            if (known(run, &idle, u) || !best_gain(run, u, &m)) continue;
            apply(run, &m);
            idle = (looked_at){{0}};
            changed = 1;
        }
    }
}

bool vti_plan_repair(plan_search *s, bool faster)
{
    uint16_t shares[VTI_PLAN_UNITS_MAX][VTI_PLAN_DEVICES_MAX];
    repair_run run = {.s = s, .shares = shares};
    memset(s->used, 0, sizeof s->used);
    s->path_state[0] = 0;
    for (unsigned u = 1; u < s->units; u++) {
        double bytes[VTI_PLAN_DEVICES_MAX];
        memcpy(shares[u], s->draft[u].shares, sizeof shares[u]);
        unsigned state = s->state_of[vti_plan_holders(&s->draft[u])];
        s->path_state[u] = (uint8_t)(state < s->states ? state : 0);
        vti_plan_unit_bytes(s->request, u, &s->draft[u], &s->draft[u], bytes);
        for (unsigned d = 0; d < s->devices; d++) s->used[d] += bytes[d];
    }
    if (!relieve(&run)) return false;
    if (faster) improve(&run);
    for (unsigned u = 1; u < s->units; u++)
        memcpy(s->draft[u].shares, shares[u], sizeof shares[u]);
    return true;
}
