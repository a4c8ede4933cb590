/* The best homes and exchanges for given shares. */
#include "search.h"

#include <string.h>

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
    bool head, again; /* like two units before */
} given_unit;

static given_unit given(const plan_search *s, unsigned u, const vti_plan_place *place)
{
    const plan_group *g = &s->group[s->group_of[u]];
    given_unit unit = {.wires = &s->wire[g->wires], .head = vti_plan_is_head(s, u)};
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
    const double *from = s->at[s->slot[u - 1]];
    double *at = s->at[u], inside = least_sum(from, unit->wires->in[unit->mask], s->states);
    for (unsigned after = 0; after < s->states; after++) {
        at[after] = NEVER;
        if (unit->head && after) continue;
        double more = rest(s, unit, after);
        if (more >= NEVER) continue;
        unsigned m = hearing(s, unit, after);
        double t = m == unit->mask ? inside : least_sum(from, unit->wires->in[m], s->states);
        at[after] = t + more;
    }
    s->taken_s[u] = vti_plan_settle(at, s->states);
}

/* Units come in long alternating runs: those that are like two units before, and start from the
 * same times, end in the same. */
static double forward(plan_search *s, const vti_plan_place *places, given_unit *unit)
{
    double sum = s->embed_s;
    for (unsigned i = 0; i < s->states; i++) s->at[0][i] = i ? NEVER : 0;
    s->slot[0] = 0;
    for (unsigned u = 1; u < s->units; u++) {
        bool again = u > 2 && s->group_of[u] == s->group_of[u - 2] &&
                     memcmp(places[u].shares, places[u - 2].shares, sizeof places->shares) == 0;
        if (again) unit[u] = unit[u - 2];
        else unit[u] = given(s, u, &places[u]);
        unit[u].again = again;
        if (again && s->slot[u - 1] == s->slot[u - 3]) {
            s->slot[u] = s->slot[u - 2];
            s->taken_s[u] = s->taken_s[u - 2];
        } else {
            rehome_unit(s, u, &unit[u]);
            bool same = again && memcmp(s->at[u], s->at[s->slot[u - 2]],
                                        s->states * sizeof(double)) == 0;
            s->slot[u] = same ? s->slot[u - 2] : (uint16_t)u;
        }
        sum += s->taken_s[u];
    }
    return sum;
}

static unsigned find_before(const plan_search *s, unsigned u, const given_unit *unit,
                            unsigned after)
{
    const double *from = s->at[s->slot[u - 1]], *in = unit->wires->in[hearing(s, unit, after)];
    double more = rest(s, unit, after), wanted = s->at[s->slot[u]][after];
    unsigned before = 0;
    while (before + 1 < s->states && from[before] + in[before] + more - s->taken_s[u] != wanted)
        before++;
    return before;
}

double vti_plan_rehome(plan_search *s, vti_plan_place *places)
{
    given_unit unit[VTI_PLAN_UNITS_MAX];
    uint8_t state[VTI_PLAN_UNITS_MAX] = {0};
    double seconds = forward(s, places, unit);
    for (unsigned u = s->units - 1; u > 0; u--) {
        if (u + 2 < s->units && unit[u + 2].again && state[u] == state[u + 2] &&
            s->slot[u - 1] == s->slot[u + 1]) {
            places[u] = places[u + 2];
            state[u - 1] = state[u + 1];
            continue;
        }
        state[u - 1] = (uint8_t)find_before(s, u, &unit[u], state[u]);
        vti_plan_write_place(s, u, places[u].shares, unit[u].mask, state[u - 1], state[u],
                             &places[u]);
    }
    return seconds;
}
