/* Label setting: beginnings of paths, unit by unit, with the time and the memory they took. A label
 * is dropped if another one in its state is as fast and leaves as much memory, if no rest of its
 * way fits, or if every rest is slower than a plan that is known. That last test is sharp, as the
 * least that the rest can cost is known at prices that count memory (s->to_go). As long as no other
 * label had to be dropped, the result is exact. */
#include "search.h"

#include <string.h>

typedef struct label_run {
    plan_search *s;
    unsigned keep;      /* labels per unit and state */
    double prepaid;     /* the budgets at their prices */
    bool dropped;       /* a label was dropped that may have led to the best */
    unsigned steps;     /* tried in this unit */
} label_run;

static plan_label *labels_of(const label_run *run, unsigned unit, unsigned state)
{
    return &run->s->label[(unit * run->s->states + state) * run->keep];
}

static bool dominates(const plan_label *a, const plan_label *b, unsigned devices)
{
    if (a->seconds > b->seconds) return false;
    for (unsigned d = 0; d < devices; d++)
        if (a->left[d] < b->left[d]) return false;
    return true;
}

/* Bounds that differ by rounding only are equal; among these, who was faster used more memory that
 * is worth its price, and has an easier choice later. */
static bool before(const plan_label *a, const plan_label *b)
{
    double same = 1e-9 * b->bound;
    if (a->bound < b->bound - same) return true;
    return a->bound <= b->bound + same && a->seconds < b->seconds;
}

static void insert(label_run *run, unsigned unit, unsigned state, const plan_label *label)
{
    plan_search *s = run->s;
    plan_label *kept = labels_of(run, unit, state);
    unsigned n = s->labels[unit][state], worst = 0;
    for (unsigned i = 0; i < n;) {
        if (dominates(&kept[i], label, s->devices)) return;
        if (dominates(label, &kept[i], s->devices)) {
            kept[i] = kept[--n];
            continue;
        }
        if (before(&kept[worst], &kept[i])) worst = i;
        i++;
    }
    if (n < run->keep) {
        kept[n++] = *label;
    } else {
        run->dropped = true;
        if (before(label, &kept[worst])) kept[worst] = *label;
    }
    s->labels[unit][state] = (uint16_t)n;
}

/* Takes the option's bytes; false if they do not fit or what is left is not enough for the rest.
 * More than the rest needs is as good as that. */
static bool pay(const plan_search *s, unsigned unit, const double *left, const double *bytes,
                double *out)
{
    double sum = 0, need = s->bytes_to_go[unit + 1];
    for (unsigned d = 0; d < s->devices; d++) {
        out[d] = left[d] - bytes[d];
        if (out[d] < 0) {
            if (s->usable >> d & 1) return false;
            out[d] = 0;
        }
        out[d] = vti_smaller(out[d], need);
        sum += out[d];
    }
    return sum >= need;
}

static bool step(label_run *run, unsigned unit, const plan_label *label, uint32_t at,
                 unsigned option, unsigned from, unsigned state)
{
    plan_search *s = run->s;
    const plan_option *o = &s->option[option];
    plan_label next;
    run->steps++;
    double seconds = vti_plan_step_seconds(s, &s->group[s->group_of[unit]], o->compute_s, o->mask,
                                           from, state);
    next.seconds = label->seconds + seconds;
    next.paid = label->paid + seconds + (o->priced_s - o->compute_s);
    next.bound = vti_larger(next.paid + s->to_go[unit + 1][state] - run->prepaid, next.seconds);
    if (next.bound >= s->best_s || !pay(s, unit, label->left, o->bytes, next.left)) return false;
    next.parent = at, next.option = (uint16_t)option;
    insert(run, unit, state, &next);
    return true;
}

/* A spread made for what is left. */
static void step_that_fits(label_run *run, unsigned unit, const plan_label *label, uint32_t at,
                           unsigned from)
{
    plan_search *s = run->s;
    const plan_group *g = &s->group[s->group_of[unit]];
    const vti_plan_class *class_ = vti_plan_class_of(s->request, unit);
    double bytes = vti_plan_shard_bytes(s->request, unit);
    unsigned room[VTI_PLAN_DEVICES_MAX];
    uint16_t shares[VTI_PLAN_DEVICES_MAX];
    for (unsigned d = 0; d < s->devices; d++) {
        double free = label->left[d] - class_->shared_bytes;
        double n = free < 0 ? 0 : bytes > 0 ? free / bytes : g->shards;
        room[d] = n < g->shards ? (unsigned)n : g->shards;
    }
    if (!vti_plan_balance(g->work, s->devices, g->shards, s->usable, room, shares)) return;
    unsigned option = vti_plan_add_option(s, s->group_of[unit], shares);
    if (option == OPTIONS_MAX) return;
    for (unsigned state = 0; state < s->states; state++)
        if (unit + 1 < s->units || state == 0)
            step(run, unit, label, at, option, from, state);
}

static void expand(label_run *run, unsigned unit, unsigned from, uint32_t at)
{
    plan_search *s = run->s;
    const plan_group *g = &s->group[s->group_of[unit]];
    plan_label label = s->label[at];
    bool any = false;
    for (unsigned state = 0; state < s->states; state++) {
        double least = label.paid + g->cost[from][state] + s->to_go[unit + 1][state];
        if (least - run->prepaid >= s->best_s) continue;
        unsigned set = s->holders[state] & (s->holders[state] - 1) ? s->holders[state] : 0;
        for (unsigned o = g->first, end = g->first + g->options; o < end; o++)
            if (!set || s->option[o].mask == set)
                any |= step(run, unit, &label, at, o, from, state);
    }
    if (!any && !s->complete && label.bound < s->best_s)
        step_that_fits(run, unit, &label, at, from);
}

static void write_best(label_run *run, const plan_label *last)
{
    plan_search *s = run->s;
    s->best_s = last->seconds;
    unsigned after = 0;
    for (unsigned u = s->units - 1; u > 0; u--) {
        const plan_option *option = &s->option[last->option];
        unsigned slot = last->parent / run->keep, from = slot % s->states;
        vti_plan_write_place(s, u, option->shares, option->mask, from, after, &s->best[u]);
        after = from;
        last = &s->label[last->parent];
    }
}

static void begin(label_run *run)
{
    plan_search *s = run->s;
    memcpy(s->price, s->bound_price, sizeof s->price);
    vti_plan_backward(s);
    s->bytes_to_go[s->units] = 0;
    for (unsigned u = s->units - 1; u > 0; u--) {
        const plan_option *whole = &s->option[s->group[s->group_of[u]].first];
        double sum = 0;
        for (unsigned d = 0; d < s->devices; d++) sum += whole->bytes[d];
        s->bytes_to_go[u] = s->bytes_to_go[u + 1] + sum;
    }
    for (unsigned d = 0; d < s->devices; d++) run->prepaid += s->price[d] * s->budget[d];
    memset(s->labels, 0, sizeof s->labels);
    plan_label *first = labels_of(run, 0, 0);
    *first = (plan_label){.seconds = s->embed_s, .paid = s->embed_s};
    for (unsigned d = 0; d < s->devices; d++)
        first->left[d] = s->usable >> d & 1 ? vti_smaller(s->budget[d], s->bytes_to_go[1]) : 0;
    s->labels[0][0] = 1;
}

static unsigned labels_to_keep(const plan_search *s)
{
    unsigned most = LABELS_MAX / (s->units * s->states);
    return most < STATE_LABELS_MAX ? most : STATE_LABELS_MAX;
}

/* The labels of a unit, the best bounds first. */
static unsigned sort_labels(const label_run *run, unsigned unit, uint32_t *sorted)
{
    plan_search *s = run->s;
    unsigned n = 0;
    for (unsigned state = 0; state < s->states; state++) {
        uint32_t at = (uint32_t)(labels_of(run, unit, state) - s->label);
        for (unsigned i = 0; i < s->labels[unit][state]; i++) sorted[n++] = at + i;
    }
    for (unsigned gap = n / 2; gap > 0; gap /= 2)
        for (unsigned i = gap; i < n; i++) {
            uint32_t moved = sorted[i];
            unsigned j = i;
            for (; j >= gap && s->label[sorted[j - gap]].bound > s->label[moved].bound; j -= gap)
                sorted[j] = sorted[j - gap];
            sorted[j] = moved;
        }
    return n;
}

static void expand_all(label_run *run, unsigned unit, unsigned most_steps)
{
    uint32_t sorted[STATES_MAX * STATE_LABELS_MAX];
    unsigned n = sort_labels(run, unit - 1, sorted);
    run->steps = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned state = sorted[i] / run->keep % run->s->states;
        if (run->steps > most_steps) {
            run->dropped = true;
            return;
        }
        expand(run, unit, state, sorted[i]);
    }
}

bool vti_plan_labels(plan_search *s)
{
    enum { STEPS = 60000, USEFUL = 4000 };
    label_run run = {.s = s, .keep = labels_to_keep(s)};
    if (STEPS / s->units < USEFUL && s->best_s < NEVER) return false;
    begin(&run);
    for (unsigned u = 1; u < s->units; u++) expand_all(&run, u, STEPS / s->units);
    const plan_label *last = labels_of(&run, s->units - 1, 0), *best = NULL;
    for (unsigned i = 0; i < s->labels[s->units - 1][0]; i++)
        if (!best || last[i].seconds < best->seconds) best = &last[i];
    if (best && best->seconds < s->best_s) write_best(&run, best);
    return !run.dropped;
}
