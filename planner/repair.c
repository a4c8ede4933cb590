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

/* A unit whose shares may change, and the next one, which starts where it ends. */
typedef struct focus {
    unsigned unit, before;
    const plan_group *group, *next; /* NULL after the last unit */
    double seconds[VTI_PLAN_DEVICES_MAX]; /* of each device's shares */
    double next_s; /* computing */
    unsigned next_mask, next_after;
    double now; /* as things are */
} focus;

static double compute_seconds(const plan_search *s, unsigned u, const uint16_t *shares,
                              double *seconds)
{
    double slowest = 0;
    for (unsigned d = 0; d < s->devices; d++) {
        seconds[d] = vti_plan_work_seconds(&s->group[s->group_of[u]].work[d], shares[d]);
        slowest = vti_larger(slowest, seconds[d]);
    }
    return slowest;
}

static unsigned mask_of(const plan_search *s, const uint16_t *shares)
{
    unsigned mask = 0;
    for (unsigned d = 0; d < s->devices; d++) mask |= (shares[d] > 0u) << d;
    return mask;
}

/* Seconds of the unit when it ends in `after`, and of the next one. */
static double around(const plan_search *s, const focus *f, double compute_s, unsigned mask,
                     unsigned after)
{
    double t = vti_plan_step_seconds(s, f->group, compute_s, mask, f->before, after);
    if (!f->next) return t;
    return t + vti_plan_step_seconds(s, f->next, f->next_s, f->next_mask, after, f->next_after);
}

static void focus_on(const repair_run *run, unsigned u, focus *f)
{
    const plan_search *s = run->s;
    double next[VTI_PLAN_DEVICES_MAX];
    f->unit = u, f->before = s->path_state[u - 1];
    f->group = &s->group[s->group_of[u]], f->next = NULL;
    double compute_s = compute_seconds(s, u, run->shares[u], f->seconds);
    if (u + 1 < s->units) {
        f->next = &s->group[s->group_of[u + 1]];
        f->next_s = compute_seconds(s, u + 1, run->shares[u + 1], next);
        f->next_mask = mask_of(s, run->shares[u + 1]);
        f->next_after = s->path_state[u + 1];
    }
    f->now = around(s, f, compute_s, mask_of(s, run->shares[u]), s->path_state[u]);
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

/* The fastest outcome of moving so many shards; best->seconds: must be below that. */
static void try_move(const repair_run *run, const focus *f, shard_move *m, shard_move *best)
{
    const plan_search *s = run->s;
    const uint16_t *shares = run->shares[m->unit];
    unsigned mask = mask_of(s, shares) | 1u << m->to;
    if (shares[m->from] == m->shards) mask &= ~(1u << m->from);
    double slowest = vti_larger(
        vti_plan_work_seconds(&f->group->work[m->from], shares[m->from] - m->shards),
        vti_plan_work_seconds(&f->group->work[m->to], shares[m->to] + m->shards));
    for (unsigned d = 0; d < s->devices; d++)
        if (d != m->from && d != m->to) slowest = vti_larger(slowest, f->seconds[d]);
    unsigned states[3] = {s->path_state[m->unit], s->state_of[1u << m->to], s->state_of[mask]};
    for (unsigned i = 0; i < (f->next ? 3 : 1); i++) {
        if (states[i] == STATES_MAX || (i && states[i] == states[0])) continue;
        m->state = states[i];
        m->seconds = around(s, f, slowest, mask, states[i]) - f->now;
        if (m->seconds < best->seconds) *best = *m;
    }
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
        focus f;
        focus_on(run, u, &f);
        for (unsigned to = 0; to < s->devices; to++) {
            if (to == from || !(s->usable >> to & 1) || room(s, to) <= 0) continue;
            shard_move m = {.unit = u, .from = from, .to = to}, found = {.seconds = NEVER};
            m.shards = useful_shards(run, u, from, to);
            if (m.shards == 0) continue;
            try_move(run, &f, &m, &found);
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
    focus f;
    focus_on(run, u, &f);
    double bytes = vti_plan_shard_bytes(s->request, u);
    *best = (shard_move){.seconds = -1e-9 * f.now};
    for (unsigned from = 0; from < s->devices; from++)
        for (unsigned to = 0; to < s->devices; to++) {
            unsigned have = run->shares[u][from], fit = have;
            if (to == from || !have || !(s->usable >> to & 1)) continue;
            double free = room(s, to);
            if (!run->shares[u][to]) free -= vti_plan_class_of(s->request, u)->shared_bytes;
            if (free < bytes || free < 0) continue;
            if (bytes > 0 && free / bytes < have) fit = (unsigned)(free / bytes);
            shard_move m = {.unit = u, .from = from, .to = to, .shards = 1};
            try_move(run, &f, &m, best);
            m.shards = fit;
            if (fit > 1) try_move(run, &f, &m, best);
            m.shards = fit / 2;
            if (fit > 3) try_move(run, &f, &m, best);
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
