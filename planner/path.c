/* The best path through the states, for given prices of memory. Additions only: what units cost is
 * looked up in their group. */
#include "search.h"

#include <string.h>

static bool is_head(const plan_search *s, unsigned unit) { return unit + 1 == s->units; }

static unsigned receivers(bool head, unsigned mask, unsigned home)
{
    return head ? mask : mask | 1u << home;
}

double vti_plan_step_seconds(const plan_search *s, const plan_group *group,
                             const plan_option *option, unsigned before, unsigned after)
{
    const plan_wires *w = &s->wire[group->wires];
    unsigned mask = option->mask, holders = s->holders[after];
    if (holders & (holders - 1)) {
        if (mask != holders) return NEVER;
        return option->compute_s + w->exchange[mask] + w->in[mask][before];
    }
    unsigned home = (unsigned)__builtin_ctz(holders);
    return option->compute_s + w->out[mask][home] +
           w->in[receivers(is_head(s, group->unit), mask, home)][before];
}

/* --- prices ----------------------------------------------------------------------------------- */

void vti_plan_price_option(const plan_search *s, plan_option *option)
{
    option->priced_s = option->compute_s;
    for (unsigned d = 0; d < s->devices; d++) option->priced_s += s->price[d] * option->bytes[d];
}

static void lower(double *best, double cost, const double *in, unsigned states)
{
    for (unsigned i = 0; i < states; i++) {
        double t = cost + in[i];
        best[i] = t < best[i] ? t : best[i];
    }
}

static void price_group(plan_search *s, plan_group *g)
{
    double best[STATES_MAX][STATES_MAX]; /* [after][before] */
    const plan_wires *w = &s->wire[g->wires];
    bool head = is_head(s, g->unit);
    for (unsigned after = 0; after < s->states; after++)
        for (unsigned before = 0; before < s->states; before++) best[after][before] = NEVER;
    for (unsigned o = g->first; o < g->first + g->options; o++) {
        plan_option *option = &s->option[o];
        vti_plan_price_option(s, option);
        double cost = option->priced_s;
        for (unsigned after = 0; after < s->states; after++) {
            if (s->holders[after] & (s->holders[after] - 1)) break; /* sets come last */
            unsigned home = (unsigned)__builtin_ctz(s->holders[after]);
            lower(best[after], cost + w->out[option->mask][home],
                  w->in[receivers(head, option->mask, home)], s->states);
            if (head) break; /* the result goes to the main device, which is the first state */
        }
        unsigned set = s->state_of[option->mask];
        if (!head && set != STATES_MAX && (option->mask & (option->mask - 1)))
            lower(best[set], cost + w->exchange[option->mask], w->in[option->mask], s->states);
    }
    for (unsigned before = 0; before < s->states; before++)
        for (unsigned after = 0; after < s->states; after++)
            g->cost[before][after] = best[after][before];
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

/* The first option that gives the step its cost; sums are made as in price_group. */
static unsigned find_option(const plan_search *s, const plan_group *g, unsigned before,
                            unsigned after)
{
    const plan_wires *w = &s->wire[g->wires];
    bool head = is_head(s, g->unit), set = (s->holders[after] & (s->holders[after] - 1)) != 0;
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

/* What was found for a group and two states is kept: paths are repetitive. */
static void read_path(plan_search *s)
{
    struct {
        uint16_t group, option;
        uint8_t before, after;
    } known[16] = {{0}};
    unsigned after = 0;
    memset(s->used, 0, sizeof s->used);
    for (unsigned u = s->units - 1; u > 0; u--) {
        const plan_group *g = &s->group[s->group_of[u]];
        unsigned before = 0;
        while (before + 1 < s->states &&
               s->at[u - 1][before] + g->cost[before][after] != s->at[u][after])
            before++;
        unsigned slot = (s->group_of[u] * 7u + before * 3u + after) % 16;
        if (known[slot].option == 0 || known[slot].group != s->group_of[u] ||
            known[slot].before != before || known[slot].after != after) {
            known[slot].group = s->group_of[u];
            known[slot].before = (uint8_t)before, known[slot].after = (uint8_t)after;
            known[slot].option = (uint16_t)(find_option(s, g, before, after) + 1);
        }
        unsigned o = known[slot].option - 1u;
        s->path_state[u] = (uint8_t)after;
        s->path_option[u] = (uint16_t)o;
        for (unsigned d = 0; d < s->devices; d++) s->used[d] += s->option[o].bytes[d];
        after = before;
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
    for (unsigned i = 0; i < s->states; i++) s->at[0][i] = i ? NEVER : s->embed_s;
    for (unsigned u = 1; u < s->units; u++)
        advance(&s->group[s->group_of[u]], s->states, s->at[u - 1], s->at[u]);
    read_path(s);
    s->path_s = s->at[s->units - 1][0];
    for (unsigned d = 0; d < s->devices; d++) s->path_s -= s->price[d] * s->used[d];
    return s->at[s->units - 1][0];
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
    unsigned hearing = set ? mask : receivers(is_head(s, u), mask, home);
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

/* The least of `at` with the transfer added. */
static double least_sum(const double *at, const double *in, unsigned states)
{
    double a = NEVER, b = NEVER;
    unsigned i = 0;
    for (; i + 1 < states; i += 2) {
        double x = at[i] + in[i], y = at[i + 1] + in[i + 1];
        a = x < a ? x : a;
        b = y < b ? y : b;
    }
    if (i < states && at[i] + in[i] < a) a = at[i] + in[i];
    return a < b ? a : b;
}

/* A unit's shares as an option; what its steps cost: `hearing` receivers, then `rest` seconds. */
typedef struct given_unit {
    const plan_wires *wires;
    double compute_s;
    unsigned mask;
    bool head;
} given_unit;

static given_unit given(const plan_search *s, unsigned u, const vti_plan_place *place)
{
    const plan_group *g = &s->group[s->group_of[u]];
    given_unit unit = {.wires = &s->wire[g->wires], .head = is_head(s, u)};
    for (unsigned d = 0; d < s->devices; d++) {
        if (!place->shares[d]) continue;
        unit.mask |= 1u << d;
        unit.compute_s =
            vti_larger(unit.compute_s, vti_plan_work_seconds(&g->work[d], place->shares[d]));
    }
    return unit;
}

static unsigned hearing(const plan_search *s, const given_unit *unit, unsigned after)
{
    unsigned holders = s->holders[after];
    return holders & (holders - 1) || unit->head ? unit->mask : unit->mask | holders;
}

static double rest(const plan_search *s, const given_unit *unit, unsigned after)
{
    unsigned holders = s->holders[after];
    if ((holders & (holders - 1)) == 0)
        return unit->compute_s + unit->wires->out[unit->mask][__builtin_ctz(holders)];
    return holders == unit->mask ? unit->compute_s + unit->wires->exchange[unit->mask] : NEVER;
}

static void rehome_unit(plan_search *s, unsigned u, const given_unit *unit)
{
    double inside = least_sum(s->at[u - 1], unit->wires->in[unit->mask], s->states);
    for (unsigned after = 0; after < s->states; after++) {
        s->at[u][after] = NEVER;
        if (unit->head && after) continue;
        double more = rest(s, unit, after);
        if (more >= NEVER) continue;
        unsigned m = hearing(s, unit, after);
        double t = m == unit->mask ? inside
                                   : least_sum(s->at[u - 1], unit->wires->in[m], s->states);
        s->at[u][after] = t + more;
    }
}

double vti_plan_rehome(plan_search *s, vti_plan_place *places)
{
    for (unsigned i = 0; i < s->states; i++) s->at[0][i] = i ? NEVER : s->embed_s;
    given_unit unit[2] = {{0}}; /* units come in long alternating runs */
    for (unsigned u = 1; u < s->units; u++) {
        bool again = u > 2 && s->group_of[u] == s->group_of[u - 2] &&
                     memcmp(places[u].shares, places[u - 2].shares, sizeof places->shares) == 0;
        if (!again) unit[u % 2] = given(s, u, &places[u]);
        rehome_unit(s, u, &unit[u % 2]);
    }
    for (unsigned u = s->units - 1, after = 0; u > 0; u--) {
        given_unit it = given(s, u, &places[u]);
        const double *in = it.wires->in[hearing(s, &it, after)];
        double more = rest(s, &it, after);
        unsigned before = 0;
        while (before + 1 < s->states &&
               s->at[u - 1][before] + in[before] + more != s->at[u][after])
            before++;
        vti_plan_write_place(s, u, places[u].shares, it.mask, before, after, &places[u]);
        after = before;
    }
    return s->at[s->units - 1][0];
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
