/* Plan search by dynamic programming over (unit, home). Memory has a price per device and byte
 * (Lagrange multipliers) that rises where a path needs too much; paths that still do not fit are
 * repaired. Decode is planned first, as its weights and KV rows decide who holds what; prefill is
 * then free to use whatever is there and what still fits beside it. */
#include "search.h"

#include <string.h>

enum { PRICE_ROUNDS = 12 };

size_t vti_plan_scratch_bytes(void) { return sizeof(plan_search); }

const char *vti_plan_search_name(vti_plan_search_kind kind)
{
    static const char *const names[VTI_SEARCHES] = {"dp",      "greedy",   "single", "even-mp",
                                                    "even-tp", "aware-mp", "aware-tp"};
    return kind < VTI_SEARCHES ? names[kind] : NULL;
}

/* --- classes and options ---------------------------------------------------------------------- */

static bool same_unit(const vti_plan_unit *a, const vti_plan_unit *b)
{
    for (int p = 0; p < VTI_PRECISIONS; p++)
        if (a->weight_bytes[p] != b->weight_bytes[p]) return false;
    return a->kind == b->kind && a->shards == b->shards && a->active_shards == b->active_shards &&
           a->macs == b->macs && a->kv_bytes == b->kv_bytes && a->kv_macs == b->kv_macs &&
           a->window == b->window && a->input_width == b->input_width &&
           a->output_width == b->output_width;
}

static bool same_class(const plan_search *s, unsigned u, unsigned v)
{
    const vti_plan_request *r = s->request;
    if (r->precision[u] != r->precision[v]) return false;
    if (s->decode && memcmp(s->decode[u].shares, s->decode[v].shares, sizeof s->decode[u].shares))
        return false;
    return same_unit(&r->model->unit[u], &r->model->unit[v]);
}

void vti_plan_place_bytes(const plan_search *s, unsigned u, const vti_plan_place *place,
                          double *bytes)
{
    double there[VTI_PLAN_DEVICES_MAX];
    const vti_plan_place *decode = s->decode ? &s->decode[u] : place;
    vti_plan_unit_bytes(s->request, u, decode, place, bytes);
    if (!s->decode) return;
    vti_plan_unit_bytes(s->request, u, decode, decode, there);
    for (unsigned d = 0; d < s->request->cluster->devices; d++) bytes[d] -= there[d];
}

static void add_option(plan_search *s, plan_class *c, const uint16_t *shares)
{
    const vti_plan_request *r = s->request;
    unsigned devices = r->cluster->devices;
    vti_plan_place place = {.wire = (uint8_t)r->wire};
    if (c->options == OPTIONS_MAX) return;
    memcpy(place.shares, shares, sizeof place.shares);
    for (unsigned i = 0; i < c->options; i++)
        if (memcmp(c->option[i].shares, shares, sizeof place.shares) == 0) return;
    plan_option *option = &c->option[c->options];
    memcpy(option->shares, shares, sizeof option->shares);
    option->mask = vti_plan_mask(&place);
    option->compute_s = 0;
    vti_plan_place_bytes(s, c->unit, &place, option->bytes);
    for (unsigned d = 0; d < devices; d++) {
        double t = vti_plan_compute_seconds(r, s->phase, c->unit, d, shares[d]);
        if (t > option->compute_s) option->compute_s = t;
    }
    for (unsigned from = 0; from < devices; from++)
        for (unsigned home = 0; home < devices; home++)
            c->wire_s[c->options][from][home] =
                vti_plan_wire_seconds(r, s->phase, c->unit, option->mask, r->wire, from, home);
    c->options++;
}

static void add_balanced(plan_search *s, plan_class *c, unsigned mask)
{
    uint16_t shares[VTI_PLAN_DEVICES_MAX];
    if ((mask & ~s->usable) == 0 &&
        vti_plan_balance(s->request, s->phase, c->unit, mask, NULL, shares))
        add_option(s, c, shares);
}

/* Shares in proportion to memory: with these everywhere, what fits at all nearly fits. */
static void add_by_memory(plan_search *s, plan_class *c)
{
    uint16_t shares[VTI_PLAN_DEVICES_MAX] = {0};
    unsigned shards = s->request->model->unit[c->unit].shards, given = 0, most = 0;
    double sum = 0;
    for (unsigned d = 0; d < s->request->cluster->devices; d++) {
        if (!(s->usable >> d & 1)) continue;
        if (s->budget[d] > 0) sum += s->budget[d];
        if (s->budget[d] > s->budget[most]) most = d;
    }
    if (sum <= 0) return;
    for (unsigned d = 0; d < s->request->cluster->devices; d++) {
        if ((s->usable >> d & 1) && s->budget[d] > 0)
            shares[d] = (uint16_t)(shards * (s->budget[d] / sum));
        given += shares[d];
    }
    shares[most] = (uint16_t)(shares[most] + shards - given);
    add_option(s, c, shares);
}

/* Every subset of up to 4 devices; of more, the pairs and the fastest 3, 4, … */
static void add_options(plan_search *s, plan_class *c)
{
    unsigned devices = s->request->cluster->devices;
    if (s->request->model->unit[c->unit].kind == VTI_UNIT_EMBED) {
        uint16_t all_main[VTI_PLAN_DEVICES_MAX] = {
            (uint16_t)s->request->model->unit[c->unit].shards};
        add_option(s, c, all_main);
        return;
    }
    if (s->decode) add_option(s, c, s->decode[c->unit].shares);
    if (devices <= 4) {
        for (unsigned mask = 1; mask < 1u << devices; mask++) add_balanced(s, c, mask);
    } else {
        unsigned shards = s->request->model->unit[c->unit].shards, fastest = 0;
        for (unsigned a = 0; a < devices; a++)
            for (unsigned b = a; b < devices; b++) add_balanced(s, c, 1u << a | 1u << b);
        for (unsigned n = 0; n < devices; n++) {
            int next = -1;
            double least = 0;
            for (unsigned d = 0; d < devices; d++) {
                double t = vti_plan_compute_seconds(s->request, s->phase, c->unit, d, shards);
                if ((fastest >> d & 1) || !(s->usable >> d & 1) || (next >= 0 && t >= least))
                    continue;
                next = (int)d, least = t;
            }
            if (next < 0) break;
            fastest |= 1u << next;
            add_balanced(s, c, fastest);
        }
    }
    add_by_memory(s, c);
}

void vti_plan_begin(plan_search *s, const vti_plan_request *r, vti_plan_phase phase,
                    const vti_plan_place *decode)
{
    s->request = r, s->phase = phase, s->decode = decode;
    s->have_best = false, s->classes = 0, s->usable = 1;
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        s->budget[d] = r->cluster->device[d].memory_bytes - r->cluster->device[d].scratch_bytes;
        if (s->budget[d] >= 0) s->usable |= 1u << d;
    }
    for (unsigned u = 0; decode && u < r->model->units; u++) {
        double bytes[VTI_PLAN_DEVICES_MAX];
        vti_plan_unit_bytes(r, u, &decode[u], &decode[u], bytes);
        for (unsigned d = 0; d < r->cluster->devices; d++) s->budget[d] -= bytes[d];
    }
    for (unsigned u = 0; u < r->model->units; u++) {
        unsigned c = 0;
        while (c < s->classes && !same_class(s, u, s->class_[c].unit)) c++;
        s->class_of[u] = (uint16_t)c;
        if (c < s->classes) continue;
        s->class_[s->classes].unit = u;
        s->class_[s->classes++].options = 0;
        add_options(s, &s->class_[c]);
    }
}

/* --- paths ------------------------------------------------------------------------------------ */

/* The best option of a class between any two homes, at `price` seconds per byte. */
static void price_class(const plan_search *s, plan_class *c, const double *price)
{
    unsigned devices = s->request->cluster->devices;
    for (unsigned from = 0; from < devices; from++)
        for (unsigned home = 0; home < devices; home++) c->best[from][home] = -1;
    for (unsigned o = 0; o < c->options; o++) {
        double cost = c->option[o].compute_s;
        for (unsigned d = 0; d < devices; d++) cost += price[d] * c->option[o].bytes[d];
        for (unsigned from = 0; from < devices; from++)
            for (unsigned home = 0; home < devices; home++) {
                double t = cost + c->wire_s[o][from][home];
                if (c->best[from][home] >= 0 && t >= c->best[from][home]) continue;
                c->best[from][home] = t;
                c->choice[from][home] = (uint8_t)o;
            }
    }
}

/* After EMBED and HEAD the main device is the home. */
static bool home_allowed(const plan_search *s, unsigned u, unsigned home)
{
    bool end = u == 0 || u + 1 == s->request->model->units;
    return end ? home == 0 : (s->usable >> home & 1) != 0;
}

static void read_path(plan_search *s)
{
    memset(s->used, 0, sizeof s->used);
    for (unsigned u = s->request->model->units, home = 0; u-- > 0;) {
        const plan_class *c = &s->class_[s->class_of[u]];
        unsigned from = s->came_from[u][home];
        const plan_option *option = &c->option[c->choice[from][home]];
        memset(&s->place[u], 0, sizeof s->place[u]);
        s->place[u].home = (uint8_t)home;
        s->place[u].wire = (uint8_t)s->request->wire;
        memcpy(s->place[u].shares, option->shares, sizeof option->shares);
        for (unsigned d = 0; d < s->request->cluster->devices; d++) s->used[d] += option->bytes[d];
        home = from;
    }
}

static void best_path(plan_search *s, const double *price)
{
    unsigned devices = s->request->cluster->devices;
    double at[VTI_PLAN_DEVICES_MAX], next[VTI_PLAN_DEVICES_MAX];
    for (unsigned c = 0; c < s->classes; c++) price_class(s, &s->class_[c], price);
    for (unsigned d = 0; d < devices; d++) at[d] = d == 0 ? 0 : -1;
    for (unsigned u = 0; u < s->request->model->units; u++) {
        const plan_class *c = &s->class_[s->class_of[u]];
        for (unsigned home = 0; home < devices; home++) {
            next[home] = -1;
            if (!home_allowed(s, u, home)) continue;
            for (unsigned from = 0; from < devices; from++) {
                if (at[from] < 0) continue;
                double t = at[from] + c->best[from][home];
                if (next[home] >= 0 && t >= next[home]) continue;
                next[home] = t;
                s->came_from[u][home] = (uint8_t)from;
            }
        }
        memcpy(at, next, sizeof at);
    }
    read_path(s);
}

void vti_plan_keep(plan_search *s)
{
    double over = 0, t = vti_plan_seconds(s->request, s->phase, s->place);
    for (unsigned d = 0; d < s->request->cluster->devices; d++)
        if (s->used[d] > s->budget[d] && (d == 0 || s->used[d] > 0))
            over += s->used[d] - s->budget[d];
    if (s->have_best && (over > s->best_over || (over == s->best_over && t >= s->best_s))) return;
    s->have_best = true, s->best_over = over, s->best_s = t;
    memcpy(s->best, s->place, s->request->model->units * sizeof *s->best);
}

static void load(plan_search *s, const vti_plan_place *places)
{
    memcpy(s->place, places, s->request->model->units * sizeof *places);
    memset(s->used, 0, sizeof s->used);
    for (unsigned u = 0; u < s->request->model->units; u++) {
        double bytes[VTI_PLAN_DEVICES_MAX];
        vti_plan_place_bytes(s, u, &places[u], bytes);
        for (unsigned d = 0; d < s->request->cluster->devices; d++) s->used[d] += bytes[d];
    }
}

/* --- a phase ---------------------------------------------------------------------------------- */

static bool fits(const plan_search *s)
{
    for (unsigned d = 0; d < s->request->cluster->devices; d++)
        if (s->used[d] > s->budget[d] && (d == 0 || s->used[d] > 0)) return false;
    return true;
}

/* Raises the price where too much is used and lowers it where memory is left over. */
static void adjust(const plan_search *s, double *price, double scale, unsigned round)
{
    for (unsigned d = 0; d < s->request->cluster->devices; d++) {
        double room = s->budget[d] > 1 ? s->budget[d] : 1;
        double excess = (s->used[d] - s->budget[d]) / room;
        if (excess > 1) excess = 1;
        price[d] += scale * excess / (room * (1 + round / 2.0));
        if (price[d] < 0) price[d] = 0;
    }
}

/* True if the path without prices fits: there is no better one. */
static bool search_phase(plan_search *s)
{
    double price[VTI_PLAN_DEVICES_MAX] = {0};
    best_path(s, price);
    bool free_path = fits(s);
    double scale = vti_plan_seconds(s->request, s->phase, s->place);
    if (free_path) {
        vti_plan_keep(s);
        return true;
    }
    for (unsigned round = 0; round < PRICE_ROUNDS; round++) {
        adjust(s, price, scale, round);
        if (round) vti_plan_repair(s);
        if (round && fits(s)) vti_plan_improve(s);
        vti_plan_keep(s);
        best_path(s, price);
    }
    vti_plan_repair(s);
    vti_plan_keep(s);
    load(s, s->best);
    vti_plan_improve(s);
    vti_plan_keep(s);
    return false;
}

static void search_dp(const vti_plan_request *r, plan_search *s, vti_plan *plan)
{
    vti_plan best = *plan;
    bool have = false;
    for (vti_plan_search_kind kind = VTI_SEARCH_GREEDY; kind < VTI_SEARCHES; kind++) {
        vti_plan_baseline(r, kind, plan);
        vti_plan_evaluate(r, plan);
        if (!plan->feasible) continue;
        if (have && (plan->tpot_s > best.tpot_s ||
                     (plan->tpot_s == best.tpot_s && plan->ttft_s >= best.ttft_s)))
            continue;
        best = *plan;
        have = true;
    }
    vti_plan_begin(s, r, VTI_DECODE, NULL);
    if (have) {
        load(s, best.place[VTI_DECODE]);
        vti_plan_keep(s);
    }
    bool unconfined = search_phase(s);
    memcpy(plan->place[VTI_DECODE], s->best, sizeof s->best[0] * r->model->units);
    vti_plan_begin(s, r, VTI_PREFILL, plan->place[VTI_DECODE]);
    load(s, plan->place[VTI_DECODE]);
    vti_plan_keep(s);
    search_phase(s);
    memcpy(plan->place[VTI_PREFILL], s->best, sizeof s->best[0] * r->model->units);
    vti_plan_evaluate(r, plan);
    /* A baseline with the same decode time may have spread it in a way that suits prefill better. */
    if (have && (!plan->feasible || (plan->tpot_s >= best.tpot_s && plan->ttft_s > best.ttft_s)))
        *plan = best;
    plan->unconfined = unconfined;
}

bool vti_plan_search(const vti_plan_request *r, vti_plan_search_kind kind, void *scratch,
                     vti_plan *plan)
{
    plan_search *s = scratch;
    memset(plan, 0, sizeof *plan);
    plan->units = r->model->units;
    plan->devices = r->cluster->devices;
    memcpy(plan->precision, r->precision, plan->units);
    if (kind == VTI_SEARCH_DP) {
        search_dp(r, s, plan);
    } else {
        vti_plan_baseline(r, kind, plan);
        vti_plan_evaluate(r, plan);
    }
    return plan->feasible;
}
