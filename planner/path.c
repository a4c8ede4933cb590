/* The best path through the states, for given prices of memory. Additions only: what units cost is
 * looked up in their group. */
#include "search.h"

#include <string.h>

static unsigned receivers(bool head, unsigned mask, unsigned home)
{
    return head ? mask : mask | 1u << home;
}

double vti_plan_step_seconds(const plan_search *s, const plan_group *group, double compute_s,
                             unsigned mask, unsigned before, unsigned after)
{
    const plan_wires *w = &s->wire[group->wires];
    unsigned holders = s->holders[after];
    if (holders & (holders - 1)) {
        if (mask != holders) return NEVER;
        return compute_s + w->exchange[mask] + w->in[mask][before];
    }
    unsigned home = (unsigned)__builtin_ctz(holders);
    return compute_s + w->out[mask][home] +
           w->in[receivers(vti_plan_is_head(s, group->unit), mask, home)][before];
}

/* --- prices ----------------------------------------------------------------------------------- */

void vti_plan_price_option(const plan_search *s, plan_option *option)
{
    option->priced_s = option->compute_s;
    for (unsigned d = 0; d < s->devices; d++) option->priced_s += s->price[d] * option->bytes[d];
}

/* What steps of a group cost, by the states after and before; none to `after` above most[after].
 * Single devices come first. */
typedef struct plan_costs {
    double most[STATES_MAX];
    double best[STATES_MAX][STATES_MAX];
} plan_costs;

static void lower(plan_costs *costs, unsigned after, double cost, const double *in, unsigned states)
{
    double *best = costs->best[after], most = 0;
    for (unsigned i = 0; i < states; i++) {
        double t = cost + in[i];
        best[i] = t < best[i] ? t : best[i];
        most = best[i] > most ? best[i] : most;
    }
    costs->most[after] = most;
}

/* With the sums to homes after which the option is not the best from any state left out. */
static void lower_homes(const plan_search *s, const plan_group *g, const plan_option *option,
                        plan_costs *costs)
{
    const plan_wires *w = &s->wire[g->wires];
    bool head = vti_plan_is_head(s, g->unit);
    unsigned singles = head ? 1 : s->singles;
    for (unsigned after = 0; after < singles; after++) {
        if (!head && option->priced_s + w->reach[option->mask][after] >= costs->most[after])
            continue;
        unsigned home = (unsigned)__builtin_ctz(s->holders[after]);
        lower(costs, after, option->priced_s + w->out[option->mask][home],
              w->in[receivers(head, option->mask, home)], s->states);
    }
    unsigned set = s->state_of[option->mask];
    if (!head && set != STATES_MAX && (option->mask & (option->mask - 1)))
        lower(costs, set, option->priced_s + w->exchange[option->mask], w->in[option->mask],
              s->states);
}

/* For each home, the option that may be the fastest to it. */
static void find_likely(const plan_search *s, const plan_group *g, unsigned *likely)
{
    double least[VTI_PLAN_DEVICES_MAX];
    for (unsigned i = 0; i < s->singles; i++) least[i] = NEVER, likely[i] = g->first;
    for (unsigned o = g->first; o < g->first + g->options; o++) {
        const plan_option *option = &s->option[o];
        const double *reach = s->wire[g->wires].reach[option->mask];
        for (unsigned i = 0; i < s->singles; i++)
            if (option->priced_s + reach[i] < least[i])
                least[i] = option->priced_s + reach[i], likely[i] = o;
    }
}

static void price_group(plan_search *s, plan_group *g)
{
    plan_costs costs;
    unsigned likely[VTI_PLAN_DEVICES_MAX];
    for (unsigned after = 0; after < s->states; after++) {
        costs.most[after] = NEVER;
        for (unsigned before = 0; before < s->states; before++) costs.best[after][before] = NEVER;
    }
    for (unsigned o = g->first; o < g->first + g->options; o++)
        vti_plan_price_option(s, &s->option[o]);
    find_likely(s, g, likely); /* first, so that most others can be left out */
    for (unsigned i = 0; i < s->singles; i++) lower_homes(s, g, &s->option[likely[i]], &costs);
    for (unsigned o = g->first; o < g->first + g->options; o++)
        lower_homes(s, g, &s->option[o], &costs);
    for (unsigned before = 0; before < s->states; before++)
        for (unsigned after = 0; after < s->states; after++)
            g->cost[before][after] = costs.best[after][before];
}

/* --- paths ------------------------------------------------------------------------------------ */

static void advance(const plan_group *g, unsigned states, const double *at, double *next)
{
    for (unsigned after = 0; after < states; after++) next[after] = NEVER;
    for (unsigned before = 0; before < states; before++)
        for (unsigned after = 0; after < states; after++) {
            double t = at[before] + g->cost[before][after];
            next[after] = t < next[after] ? t : next[after];
        }
}

double vti_plan_settle(double *at, unsigned states)
{
    double least = NEVER;
    for (unsigned i = 0; i < states; i++) least = at[i] < least ? at[i] : least;
    for (unsigned i = 0; i < states; i++) at[i] -= least;
    return least;
}

/* A step from a vector of times that was made before. */
typedef struct made_step {
    unsigned key; /* 0: none */
    uint16_t slot;
    double taken_s;
} made_step;

/* The times up to each unit. Units of a group that start from the same vector end in the same one,
 * and long rows of alike layers soon do. */
static double forward(plan_search *s)
{
    enum { STEPS = 64 };
    made_step made[STEPS] = {{0}};
    uint16_t last[GROUPS_MAX] = {0}; /* the slot that was filled last for each group */
    double sum = s->embed_s;
    for (unsigned i = 0; i < s->states; i++) s->at[0][i] = i ? NEVER : 0;
    s->slot[0] = 0;
    for (unsigned u = 1; u < s->units; u++) {
        unsigned g = s->group_of[u], from = s->slot[u - 1];
        made_step *step = &made[(g * 37 + from) % STEPS];
        if (step->key != 1 + g * VTI_PLAN_UNITS_MAX + from) {
            advance(&s->group[g], s->states, s->at[from], s->at[u]);
            step->key = 1 + g * VTI_PLAN_UNITS_MAX + from;
            step->taken_s = vti_plan_settle(s->at[u], s->states);
            bool same =
                last[g] && memcmp(s->at[u], s->at[last[g]], s->states * sizeof(double)) == 0;
            step->slot = last[g] = same ? last[g] : (uint16_t)u;
        }
        s->slot[u] = step->slot;
        s->taken_s[u] = step->taken_s;
        sum += step->taken_s;
    }
    return sum;
}

/* The first option that gives the step its cost; sums are made as in price_group. */
static unsigned find_option(const plan_search *s, const plan_group *g, unsigned before,
                            unsigned after)
{
    const plan_wires *w = &s->wire[g->wires];
    bool head = vti_plan_is_head(s, g->unit);
    bool set = (s->holders[after] & (s->holders[after] - 1)) != 0;
    unsigned home = (unsigned)__builtin_ctz(s->holders[after]);
    for (unsigned o = g->first; o < g->first + g->options; o++) {
        unsigned mask = s->option[o].mask;
        if (set && mask != s->holders[after]) continue;
        double cost = s->option[o].priced_s;
        double t = set ? cost + w->exchange[mask] + w->in[mask][before]
                       : cost + w->out[mask][home] +
                             w->in[receivers(head, mask, home)][before];
        if (t == g->cost[before][after]) return o;
    }
    return g->first;
}

/* The state before unit u that leads to `after` in the least time. */
static unsigned find_before(const plan_search *s, unsigned u, unsigned after)
{
    const plan_group *g = &s->group[s->group_of[u]];
    const double *from = s->at[s->slot[u - 1]];
    double wanted = s->at[s->slot[u]][after];
    unsigned before = 0;
    while (before + 1 < s->states &&
           from[before] + g->cost[before][after] - s->taken_s[u] != wanted)
        before++;
    return before;
}

/* What was found for a group, a vector and a state is kept: paths are repetitive. */
static void read_path(plan_search *s)
{
    enum { STEPS = 64 };
    struct {
        unsigned key;
        uint16_t option;
        uint8_t before;
    } known[STEPS] = {{0}};
    unsigned after = 0;
    memset(s->used, 0, sizeof s->used);
    for (unsigned u = s->units - 1; u > 0; u--) {
        unsigned g = s->group_of[u], from = s->slot[u - 1];
        unsigned key = 1 + (g * VTI_PLAN_UNITS_MAX + from) * STATES_MAX + after;
        unsigned at = (g * 37 + from * 5 + after) % STEPS;
        if (known[at].key != key) {
            known[at].key = key;
            known[at].before = (uint8_t)find_before(s, u, after);
            known[at].option =
                (uint16_t)find_option(s, &s->group[g], known[at].before, after);
        }
        s->path_state[u] = (uint8_t)after;
        s->path_option[u] = known[at].option;
        const double *bytes = s->option[known[at].option].bytes;
        for (unsigned d = 0; d < VTI_PLAN_DEVICES_MAX; d++) s->used[d] += bytes[d];
        after = known[at].before;
    }
    s->path_state[0] = 0;
}

static void price_all(plan_search *s)
{
    for (unsigned g = s->first_group; g < s->groups; g++) price_group(s, &s->group[g]);
}

double vti_plan_path(plan_search *s)
{
    price_all(s);
    double priced = forward(s);
    read_path(s);
    s->path_s = priced;
    for (unsigned d = 0; d < s->devices; d++) s->path_s -= s->price[d] * s->used[d];
    return priced;
}

bool vti_plan_path_fits(const plan_search *s)
{
    for (unsigned d = 0; d < s->devices; d++)
        if ((s->usable >> d & 1) && s->used[d] > s->budget[d]) return false;
    return true;
}

/* Writes down unit u's place between two states. */
void vti_plan_write_place(const plan_search *s, unsigned u, const uint16_t *shares, unsigned mask,
                          unsigned before, unsigned after, vti_plan_place *place)
{
    unsigned holders = s->holders[after], home = (unsigned)__builtin_ctz(holders);
    bool set = (holders & (holders - 1)) != 0;
    unsigned hearing = set ? mask : receivers(vti_plan_is_head(s, u), mask, home);
    place->from = s->wire[s->group[s->group_of[u]].wires].sender[hearing][before];
    place->home = (uint8_t)home;
    place->exchange = set;
    place->wire = (uint8_t)vti_plan_unit_wire(s->request, u);
    memmove(place->shares, shares, sizeof place->shares);
}

void vti_plan_path_places(const plan_search *s, vti_plan_place *places)
{
    for (unsigned u = 1; u < s->units; u++) {
        const plan_option *option = &s->option[s->path_option[u]];
        vti_plan_write_place(s, u, option->shares, option->mask, s->path_state[u - 1],
                             s->path_state[u], &places[u]);
    }
}

void vti_plan_backward(plan_search *s)
{
    price_all(s);
    for (unsigned i = 0; i < s->states; i++) s->to_go[s->units][i] = i ? NEVER : 0;
    for (unsigned u = s->units - 1; u > 0; u--) {
        const plan_group *g = &s->group[s->group_of[u]];
        for (unsigned before = 0; before < s->states; before++) {
            double least = NEVER;
            for (unsigned after = 0; after < s->states; after++)
                least = vti_smaller(least, g->cost[before][after] + s->to_go[u + 1][after]);
            s->to_go[u][before] = least;
        }
    }
}
