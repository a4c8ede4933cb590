/* Makes a plan of a mixture of paths: which path is followed from where to where. */
#include "search.h"

#include <string.h>

typedef struct seams {
    const plan_search *s;
    const plan_mixture *mixture;
    unsigned order[VTI_PLAN_DEVICES_MAX + 1]; /* of the mixture's paths */
    unsigned end[VTI_PLAN_DEVICES_MAX + 1];   /* each is followed up to and with this unit */
    double penalty;                           /* seconds per byte that lacks */
} seams;

static const plan_path *path_of(const seams *m, unsigned i)
{
    return &m->s->path[m->mixture->path[m->order[i]]];
}

static double step(const plan_search *s, const plan_path *path, unsigned unit, unsigned from)
{
    const plan_option *option = &s->option[path->option[unit]];
    return vti_plan_step_seconds(s, &s->group[s->group_of[unit]], option->compute_s, option->mask,
                                 from, path->state[unit]);
}

/* Sums up to each unit, of each path in the mixture. */
static void add_up(plan_search *s, const plan_mixture *mixture)
{
    for (unsigned i = 0; i < mixture->parts; i++) {
        const plan_path *path = &s->path[mixture->path[i]];
        plan_sums *sums = &s->sums[i];
        sums->seconds[0] = 0;
        memset(sums->bytes[0], 0, sizeof sums->bytes[0]);
        for (unsigned u = 1; u < s->units; u++) {
            const plan_option *option = &s->option[path->option[u]];
            sums->seconds[u] = sums->seconds[u - 1] + step(s, path, u, path->state[u - 1]);
            for (unsigned d = 0; d < s->devices; d++)
                sums->bytes[u][d] = sums->bytes[u - 1][d] + option->bytes[d];
        }
    }
}

/* Seconds, with a penalty for memory that lacks. */
static double judge(const seams *m)
{
    const plan_search *s = m->s;
    double seconds = 0, used[VTI_PLAN_DEVICES_MAX] = {0};
    unsigned begin = 0, state = 0;
    for (unsigned i = 0; i < m->mixture->parts; i++) {
        const plan_sums *sums = &s->sums[m->order[i]];
        const plan_path *path = path_of(m, i);
        unsigned end = m->end[i];
        if (end <= begin) continue;
        seconds += sums->seconds[end] - sums->seconds[begin];
        if (state != path->state[begin])
            seconds += step(s, path, begin + 1, state) -
                       step(s, path, begin + 1, path->state[begin]);
        for (unsigned d = 0; d < s->devices; d++)
            used[d] += sums->bytes[end][d] - sums->bytes[begin][d];
        begin = end, state = path->state[end];
    }
    for (unsigned d = 0; d < s->devices; d++)
        if ((s->usable >> d & 1) && used[d] > s->budget[d])
            seconds += m->penalty * (used[d] - s->budget[d]);
    return seconds;
}

static void cut_by_parts(seams *m)
{
    double sum = 0;
    unsigned n = m->mixture->parts, last = m->s->units - 1;
    for (unsigned i = 0; i < n; i++) {
        sum += m->mixture->part[m->order[i]];
        double end = sum * last + 0.5;
        m->end[i] = end < last ? (unsigned)end : last;
    }
    m->end[n - 1] = last;
}

/* Swaps neighbours in the order while that helps. */
static double sort_paths(seams *m)
{
    unsigned n = m->mixture->parts;
    for (unsigned i = 0; i < n; i++) m->order[i] = i;
    cut_by_parts(m);
    double best = judge(m);
    for (unsigned sweep = 0; sweep < n; sweep++) {
        bool changed = false;
        for (unsigned i = 0; i < n; i++)
            for (unsigned j = i + 1; j < n; j++) {
                unsigned a = m->order[i], b = m->order[j];
                m->order[i] = b, m->order[j] = a;
                cut_by_parts(m);
                double t = judge(m);
                if (t < best) {
                    best = t, changed = true;
                    continue;
                }
                m->order[i] = a, m->order[j] = b;
            }
        if (!changed) break;
    }
    cut_by_parts(m);
    return best;
}

/* Moves one seam, or a run of seams together. */
static double move_seams(seams *m, double best)
{
    static const int by[] = {1, -1, 2, -2, 5, -5};
    unsigned n = m->mixture->parts, last = m->s->units - 1;
    for (unsigned sweep = 0; sweep < 16; sweep++) {
        double before = best;
        for (unsigned i = 0; i + 1 < n; i++)
            for (unsigned j = i; j + 1 < n; j++)
                for (unsigned k = 0; k < sizeof by / sizeof *by; k++) {
                    seams moved = *m;
                    bool ordered = true;
                    for (unsigned c = i; c <= j; c++) {
                        int end = (int)m->end[c] + by[k];
                        moved.end[c] = (unsigned)end;
                        ordered &= end >= 0 && end <= (int)last;
                    }
                    for (unsigned c = 0; c + 1 < n; c++)
                        ordered &= moved.end[c] <= moved.end[c + 1];
                    if (!ordered) continue;
                    double t = judge(&moved);
                    if (t < best) best = t, *m = moved;
                }
        if (best >= before) break;
    }
    return best;
}

void vti_plan_sew(plan_search *s, const plan_mixture *mixture)
{
    seams m = {.s = s, .mixture = mixture};
    for (unsigned d = 0; d < s->devices; d++)
        m.penalty = vti_larger(m.penalty, 4 * s->bound_price[d]);
    add_up(s, mixture);
    move_seams(&m, sort_paths(&m));
    for (unsigned i = 0, u = 1; i < mixture->parts; i++)
        for (const plan_path *path = path_of(&m, i); u <= m.end[i]; u++) {
            s->path_state[u] = path->state[u];
            s->path_option[u] = path->option[u];
        }
    vti_plan_path_places(s, s->draft);
}
