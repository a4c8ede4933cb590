/* What a phase's search looks up: transfer times by mask, who may have the residual stream, groups
 * of like units and the ways to spread them. */
#include "search.h"

#include <string.h>

static unsigned bits(unsigned mask) { return (unsigned)__builtin_popcount(mask); }

/* --- transfers -------------------------------------------------------------------------------- */

/* vti_plan_round_seconds for all sets of others at once. */
static void fill_rounds(const vti_plan_cluster *cluster, unsigned center, bool outward,
                        double bytes, double *seconds)
{
    unsigned masks = 1u << cluster->devices;
    for (unsigned m = 0; m < masks; m++) seconds[m] = 0;
    for (unsigned done = 1u << center; done != masks - 1;) {
        unsigned first = (unsigned)__builtin_ctz(~done), members = 0;
        double sent[VTI_PLAN_DEVICES_MAX], latency[VTI_PLAN_DEVICES_MAX];
        double busy[MASKS], slowest[MASKS];
        for (unsigned d = first; d < cluster->devices; d++) {
            const vti_plan_link *link =
                outward ? &cluster->link[center][d] : &cluster->link[d][center];
            const vti_plan_link *one =
                outward ? &cluster->link[center][first] : &cluster->link[first][center];
            if ((done >> d & 1) || (d != first && (one->group == 0 || link->group != one->group)))
                continue;
            members |= 1u << d;
            sent[d] = bytes / link->bytes_per_s, latency[d] = link->latency_s;
        }
        busy[0] = slowest[0] = 0;
        for (unsigned sub = members & -members; sub; sub = (sub - members) & members) {
            unsigned last = 31u - (unsigned)__builtin_clz(sub), rest = sub & ~(1u << last);
            busy[sub] = busy[rest] + sent[last];
            slowest[sub] = vti_larger(slowest[rest], latency[last]);
        }
        for (unsigned m = 0; m < masks; m++)
            seconds[m] = vti_larger(seconds[m], slowest[m & members] + busy[m & members]);
        done |= members;
    }
}

static double from_any(const plan_wires *w, unsigned holders, unsigned lacking, uint8_t *sender)
{
    double least = NEVER;
    for (; holders; holders &= holders - 1) {
        unsigned f = (unsigned)__builtin_ctz(holders);
        if (w->from_one[f][lacking] < least) least = w->from_one[f][lacking], *sender = (uint8_t)f;
    }
    return least;
}

static bool same_input(const plan_wires *a, const plan_wires *b)
{
    return a->input_width == b->input_width && a->wire == b->wire && a->tokens == b->tokens;
}

/* The wires among those before w that have the same input; w itself if there are none. */
static const plan_wires *like_input(const plan_search *s, const plan_wires *w)
{
    const plan_wires *like = s->wire;
    while (!same_input(like, w)) like++;
    return like;
}

/* Whether an exchange among `set` that takes `more` seconds than a star to `home` may be worth them
 * to units that receive as `w` says. */
static bool may_be_worth(const plan_search *s, const plan_wires *w, unsigned set, unsigned home,
                         double more)
{
    uint8_t sender;
    for (unsigned next = s->usable;; next = (next - 1) & s->usable) {
        double saved = w->from_one[home][next & ~(1u << home)] -
                       from_any(w, set, next & ~set, &sender);
        if (saved > more) return true;
        if (next == 0) return false;
    }
}

/* Whether the exchange among `set` is never better than a star, whatever comes after it. */
static bool never_better(const plan_search *s, const plan_wires *w, unsigned set)
{
    for (unsigned homes = set; homes; homes &= homes - 1) {
        unsigned home = (unsigned)__builtin_ctz(homes);
        double more = w->exchange[set] - w->out[set][home];
        bool may = false;
        for (unsigned i = 0; i < s->wires && !may; i++)
            may = like_input(s, &s->wire[i]) == &s->wire[i] &&
                  may_be_worth(s, &s->wire[i], set, home, more);
        if (!may) return true;
    }
    return false;
}

/* In clusters of up to 4 devices exchanges of any are tried, in larger ones those of the pairs that
 * save most. */
enum { SMALL_CLUSTER = 4, PAIRS = 10 };

static bool small_cluster(const plan_search *s) { return bits(s->usable) <= SMALL_CLUSTER; }

static unsigned most_in_set(const plan_search *s) { return small_cluster(s) ? SMALL_CLUSTER : 2; }

/* Adds what all units of the group are faster by TP over each pair than by MP on one of it. */
static void add_gains(const plan_search *s, const plan_group *g, double *gain)
{
    double seconds[MASKS];
    for (unsigned m = 0; m < 1u << s->devices; m++) seconds[m] = NEVER;
    for (unsigned o = g->first; o < g->first + g->options; o++)
        seconds[s->option[o].mask] = s->option[o].compute_s;
    for (unsigned a = 0; a < s->devices; a++)
        for (unsigned b = a + 1; b < s->devices; b++) {
            unsigned pair = 1u << a | 1u << b;
            double alone = vti_smaller(seconds[1u << a], seconds[1u << b]);
            double together = seconds[pair] + s->wire[g->wires].exchange[pair];
            if ((pair & ~s->usable) == 0 && together < alone)
                gain[pair] += g->count * (alone - together);
        }
}

static bool may_exchange(const plan_search *s, unsigned set)
{
    for (unsigned i = 0; i < s->wires; i++)
        if (s->wire[i].inner && !never_better(s, &s->wire[i], set)) return true;
    return false;
}

static void add_set(plan_search *s, unsigned set)
{
    if (!may_exchange(s, set)) return;
    s->state_of[set] = (uint8_t)s->states;
    s->holders[s->states++] = set;
}

static void add_sets(plan_search *s)
{
    double gain[MASKS] = {0};
    for (unsigned set = 1; small_cluster(s) && set <= s->usable; set++)
        if (!(set & ~s->usable) && bits(set) >= 2) add_set(s, set);
    if (small_cluster(s)) return;
    for (unsigned g = 0; g < s->groups; g++)
        if (s->group[g].unit + 1 < s->units) add_gains(s, &s->group[g], gain);
    for (unsigned i = 0; i < PAIRS; i++) {
        unsigned best = 0;
        for (unsigned set = 1; set <= s->usable; set++)
            if (gain[set] > gain[best]) best = set;
        if (best == 0) return;
        gain[best] = 0;
        add_set(s, best);
    }
}

static void fill_wires(plan_search *s, plan_wires *w, unsigned unit)
{
    const vti_plan_request *r = s->request;
    const plan_wires *like = like_input(s, w);
    double in = vti_plan_transfer_bytes(r, s->phase, unit, w->wire, w->input_width);
    double out = vti_plan_transfer_bytes(r, s->phase, unit, w->wire, w->output_width);
    unsigned masks = 1u << s->devices;
    for (unsigned d = 0; d < s->devices; d++) {
        double to_one[MASKS];
        if (!(s->usable >> d & 1)) continue;
        if (like == w) fill_rounds(r->cluster, d, true, in, w->from_one[d]);
        else memcpy(w->from_one[d], like->from_one[d], masks * sizeof w->from_one[d][0]);
        fill_rounds(r->cluster, d, false, out, to_one);
        for (unsigned m = 0; m < masks; m++) w->out[m][d] = to_one[m & ~(1u << d)];
    }
    for (unsigned m = 0; m < masks; m++)
        if ((m & ~s->usable) == 0 && bits(m) >= 2 && bits(m) <= most_in_set(s))
            w->exchange[m] = vti_plan_exchange_seconds(r->cluster, m, out);
}

static void fill_states(const plan_search *s, plan_wires *w)
{
    const plan_wires *like = like_input(s, w);
    if (like != w) {
        memcpy(w->in, like->in, sizeof w->in[0] << s->devices);
        memcpy(w->sender, like->sender, sizeof w->sender[0] << s->devices);
        return;
    }
    for (unsigned m = 0; m < 1u << s->devices; m++) {
        if (m & ~s->usable) continue;
        for (unsigned i = 0; i < s->states; i++) {
            w->sender[m][i] = 0;
            w->in[m][i] = from_any(w, s->holders[i], m & ~s->holders[i], &w->sender[m][i]);
        }
    }
}

static void fill_reach(const plan_search *s, plan_wires *w)
{
    double least[MASKS];
    for (unsigned m = 0; m < 1u << s->devices; m++) {
        if (m & ~s->usable) continue;
        least[m] = NEVER;
        for (unsigned i = 0; i < s->states; i++) least[m] = vti_smaller(least[m], w->in[m][i]);
    }
    for (unsigned m = 0; m < 1u << s->devices; m++)
        for (unsigned i = 0; i < s->singles && !(m & ~s->usable); i++)
            w->reach[m][i] = w->out[m][__builtin_ctz(s->holders[i])] + least[m | s->holders[i]];
}

static unsigned find_wires(plan_search *s, const plan_wires *wanted)
{
    unsigned i = 0;
    while (i < s->wires &&
           !(same_input(&s->wire[i], wanted) && s->wire[i].output_width == wanted->output_width))
        i++;
    return i;
}

static void add_wires(plan_search *s)
{
    s->wires = s->states = 0;
    memset(s->state_of, STATES_MAX, sizeof s->state_of);
    for (unsigned d = 0; d < s->devices; d++)
        if (s->usable >> d & 1) {
            s->state_of[1u << d] = (uint8_t)s->states;
            s->holders[s->states++] = 1u << d;
        }
    s->singles = s->states;
    for (unsigned g = 0; g < s->groups; g++) {
        plan_group *group = &s->group[g];
        const vti_plan_class *class_ = vti_plan_class_of(s->request, group->unit);
        plan_wires *w = &s->wire[s->wires];
        w->input_width = class_->input_width, w->output_width = class_->output_width;
        w->wire = vti_plan_unit_wire(s->request, group->unit);
        w->tokens = group->work[0].tokens;
        group->wires = find_wires(s, w);
        bool inner = group->unit + 1 < s->units;
        if (group->wires < s->wires) {
            s->wire[group->wires].inner |= inner;
            continue;
        }
        s->wires++;
        w->inner = inner;
        fill_wires(s, w, group->unit);
    }
    add_sets(s);
    for (unsigned i = 0; i < s->wires; i++) {
        fill_states(s, &s->wire[i]);
        fill_reach(s, &s->wire[i]);
    }
}

/* --- groups and options ----------------------------------------------------------------------- */

static void option_bytes(const plan_search *s, unsigned unit, plan_option *option)
{
    vti_plan_place place;
    memcpy(place.shares, option->shares, sizeof place.shares);
    if (!s->decode) {
        vti_plan_unit_bytes(s->request, unit, &place, &place, option->bytes);
        return;
    }
    double there[VTI_PLAN_DEVICES_MAX];
    vti_plan_unit_bytes(s->request, unit, &s->decode[unit], &s->decode[unit], there);
    vti_plan_unit_bytes(s->request, unit, &s->decode[unit], &place, option->bytes);
    for (unsigned d = 0; d < s->devices; d++) option->bytes[d] -= there[d];
}

static bool append(plan_search *s, plan_group *g, const uint16_t *shares)
{
    if (s->options >= (g->options ? OPTIONS_MORE : OPTIONS_MAX)) return false;
    if (g->first + g->options != s->options) return false;
    plan_option *option = &s->option[s->options++];
    memcpy(option->shares, shares, sizeof option->shares);
    option->mask = 0;
    option->compute_s = 0;
    memset(option->bytes, 0, sizeof option->bytes);
    for (unsigned d = 0; d < s->devices; d++) {
        if (!shares[d]) continue;
        option->mask |= 1u << d;
        option->compute_s =
            vti_larger(option->compute_s, vti_plan_work_seconds(&g->work[d], shares[d]));
    }
    option_bytes(s, g->unit, option);
    vti_plan_price_option(s, option);
    g->options++;
    return true;
}

static bool has(const plan_search *s, const plan_group *g, const uint16_t *shares)
{
    for (unsigned o = g->first; o < g->first + g->options; o++)
        if (memcmp(s->option[o].shares, shares, sizeof s->option[o].shares) == 0) return true;
    return false;
}

/* A spread that leaves a device of the mask idle is that of a smaller mask. */
static void add_balanced(plan_search *s, plan_group *g)
{
    g->first = s->options, g->options = 0;
    for (unsigned mask = 1; mask <= s->usable; mask++) {
        uint16_t shares[VTI_PLAN_DEVICES_MAX];
        unsigned busy = 0;
        if ((mask & ~s->usable) || bits(mask) > g->shards) continue;
        vti_plan_balance(g->work, s->devices, g->shards, mask, NULL, shares);
        for (unsigned d = 0; d < s->devices; d++) busy |= (shares[d] > 0u) << d;
        if (busy == mask) append(s, g, shares);
    }
}

static void add_groups(plan_search *s)
{
    const vti_plan_request *r = s->request;
    uint8_t known[VTI_PLAN_CLASSES_MAX][VTI_PLAN_PRECISIONS][VTI_WIRES] = {{{0}}};
    s->first_group = s->groups = s->options = 0;
    for (unsigned u = 1; u < s->units; u++) {
        uint8_t *at =
            &known[r->model->unit_class[u]][r->precision[u]][vti_plan_unit_wire(r, u)];
        if (*at == 0) {
            plan_group *g = &s->group[s->groups++];
            *at = (uint8_t)s->groups;
            g->unit = u, g->count = 0;
            g->shards = vti_plan_shards(r, u);
            for (unsigned d = 0; d < s->devices; d++) vti_plan_work(r, s->phase, u, d, &g->work[d]);
            add_balanced(s, g);
        }
        s->group_of[u] = (uint16_t)(*at - 1);
        s->group[*at - 1].count++;
    }
}

static void embed(plan_search *s)
{
    const vti_plan_request *r = s->request;
    vti_plan_place place = {.wire = (uint8_t)vti_plan_unit_wire(r, 0)};
    double bytes[VTI_PLAN_DEVICES_MAX];
    place.shares[0] = (uint16_t)vti_plan_shards(r, 0);
    s->best[0] = place;
    s->embed_s = vti_plan_unit_seconds(r, s->phase, 0, &place, 1);
    vti_plan_unit_bytes(r, 0, &place, &place, bytes);
    s->budget[0] -= bytes[0];
}

void vti_plan_begin(plan_search *s, const vti_plan_request *r, vti_plan_phase phase)
{
    s->request = r, s->phase = phase, s->decode = NULL;
    s->units = r->model->units, s->devices = r->cluster->devices;
    s->usable = 1, s->complete = false;
    s->best_s = NEVER, s->bound_s = 0;
    memset(s->price, 0, sizeof s->price);
    for (unsigned d = 0; d < s->devices; d++) {
        s->budget[d] = r->cluster->device[d].memory_bytes - r->cluster->device[d].scratch_bytes;
        if (s->budget[d] >= 0) s->usable |= 1u << d;
    }
    embed(s);
    add_groups(s);
    add_wires(s);
}

/* --- when memory binds ------------------------------------------------------------------------ */

/* Copies a group's options to the end, where it may get more. */
static bool move_options(plan_search *s, plan_group *g)
{
    if (s->options + g->options > OPTIONS_MORE) return false;
    memcpy(&s->option[s->options], &s->option[g->first], g->options * sizeof *s->option);
    g->first = s->options;
    s->options += g->options;
    return true;
}

/* Ways to deal `shards` to `devices`, up to a bound. */
static unsigned ways(unsigned shards, unsigned devices, unsigned bound)
{
    double n = 1;
    for (unsigned i = 1; i < devices && n <= bound; i++) n = n * (shards + i) / i;
    return n <= bound ? (unsigned)n : bound + 1;
}

static bool deal(plan_search *s, plan_group *g, unsigned device, unsigned left, uint16_t *shares)
{
    if (device == s->devices) return left > 0 || has(s, g, shares) || append(s, g, shares);
    unsigned most = s->usable >> device & 1 ? left : 0;
    bool all = true;
    for (unsigned n = 0; n <= most && all; n++) {
        shares[device] = (uint16_t)n;
        all = deal(s, g, device + 1, left - n, shares);
    }
    shares[device] = 0;
    return all;
}

void vti_plan_add_uneven(plan_search *s, unsigned most)
{
    s->complete = true;
    for (unsigned i = 0; i < s->groups; i++) {
        plan_group *g = &s->group[i];
        uint16_t shares[VTI_PLAN_DEVICES_MAX] = {0};
        s->complete &= ways(g->shards, bits(s->usable), most) <= most && move_options(s, g) &&
                       deal(s, g, 0, g->shards, shares);
    }
}

unsigned vti_plan_add_option(plan_search *s, unsigned group, const uint16_t *shares)
{
    plan_group *g = &s->group[group];
    for (unsigned o = g->first; o < g->first + g->options; o++)
        if (memcmp(s->option[o].shares, shares, sizeof s->option[o].shares) == 0) return o;
    if (g->first + g->options != s->options && !move_options(s, g)) return OPTIONS_MAX;
    return append(s, g, shares) ? s->options - 1 : OPTIONS_MAX;
}

/* The group of units like `unit` that decode has spread in the same way; s->groups: none yet. */
static unsigned find_confined(const plan_search *s, unsigned first, unsigned unit)
{
    unsigned g = first;
    while (g < s->groups &&
           (s->group[g].like != s->group_of[unit] ||
            memcmp(s->decode[s->group[g].unit].shares, s->decode[unit].shares,
                   sizeof s->decode[unit].shares) != 0))
        g++;
    return g;
}

static void add_confined(plan_search *s, unsigned unit)
{
    plan_group *g = &s->group[s->groups++];
    const plan_group *like = &s->group[s->group_of[unit]];
    g->unit = unit, g->count = 0, g->like = s->group_of[unit];
    g->wires = like->wires, g->shards = like->shards;
    g->first = s->options, g->options = 0;
    memcpy(g->work, like->work, sizeof g->work);
    append(s, g, s->decode[unit].shares);
    for (unsigned o = like->first; o < like->first + like->options; o++) {
        plan_option *option = &s->option[s->options];
        if (memcmp(s->option[o].shares, s->decode[unit].shares, sizeof s->option->shares) == 0)
            continue;
        if (s->options >= OPTIONS_MORE) return;
        *option = s->option[o];
        option_bytes(s, unit, option);
        s->options++, g->options++;
    }
}

void vti_plan_confine(plan_search *s, const vti_plan_place *decode)
{
    unsigned first = s->groups;
    uint16_t group_of[VTI_PLAN_UNITS_MAX] = {0};
    s->decode = decode;
    s->first_group = first;
    for (unsigned u = 1; u < s->units; u++) {
        double there[VTI_PLAN_DEVICES_MAX];
        unsigned at = find_confined(s, first, u);
        if (at == s->groups) add_confined(s, u);
        group_of[u] = (uint16_t)at;
        vti_plan_unit_bytes(s->request, u, &decode[u], &decode[u], there);
        for (unsigned d = 0; d < s->devices; d++) s->budget[d] -= there[d];
    }
    memcpy(s->group_of, group_of, sizeof group_of);
}
