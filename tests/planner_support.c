#include "planner_support.h"

#include <math.h>
#include <string.h>

unsigned planner_below(test_random *random, unsigned n)
{
    return (unsigned)(test_random_u64(random) >> 33) % n;
}

static double between(test_random *random, double low, double high) /* on a logarithmic scale */
{
    return low * pow(high / low, (double)(test_random_u64(random) >> 11) / 0x1p53);
}

/* --- cases ------------------------------------------------------------------------------------ */

static void random_device(vti_plan_device *device, test_random *random)
{
    double mac = 1 / between(random, 2e9, 2e11), byte = 1 / between(random, 2e9, 6e10);
    double fixed = between(random, 1e-6, 1e-4);
    for (int k = 0; k < VTI_UNIT_KINDS; k++)
        for (int p = 0; p < VTI_PRECISIONS; p++)
            for (int phase = 0; phase < VTI_PHASES; phase++)
                device->cost[k][p][phase] = (vti_plan_coefficients){
                    fixed, mac * between(random, 0.7, 1.4), byte * between(random, 0.7, 1.4),
                    byte * between(random, 0.7, 1.4)};
}

static void random_unit(vti_plan_unit *unit, test_random *random, unsigned shards_max, double width)
{
    unit->shards = 1 + planner_below(random, shards_max);
    double values = floor(width * between(random, 64, 4096) / unit->shards) + 1;
    if (unit->kind == VTI_UNIT_MOE) unit->active_shards = 1 + planner_below(random, unit->shards);
    if (unit->kind != VTI_UNIT_EMBED) {
        unit->weight_bytes[VTI_F16] = 2 * values;
        unit->weight_bytes[VTI_I8] = values + floor(values / 16);
        unit->weight_bytes[VTI_I4] = floor(values / 2) + floor(values / 16);
    }
    unit->macs = unit->kind == VTI_UNIT_EMBED ? 0 : values;
    unit->input_width = unit->output_width = (unsigned)width;
    if (unit->kind == VTI_UNIT_HEAD) unit->output_width = 64;
    if (unit->kind != VTI_UNIT_ATTN) return;
    unit->kv_bytes = 4 * 64;
    unit->kv_macs = 2 * 64 * (1 + planner_below(random, 8));
    if (planner_below(random, 3) == 0) unit->window = 512;
}

static void random_model(planner_case *c, test_random *random, unsigned layers, unsigned shards_max)
{
    double width = 64 * (1 + planner_below(random, 40));
    vti_plan_unit *unit = c->model.unit;
    bool moe = planner_below(random, 4) == 0, alike = planner_below(random, 2);
    c->model.units = 2 * layers + 2;
    for (unsigned u = 0; u < c->model.units; u++) {
        unit[u].kind = u == 0 ? VTI_UNIT_EMBED : u + 1 == c->model.units ? VTI_UNIT_HEAD
                       : u % 2 ? VTI_UNIT_ATTN : moe ? VTI_UNIT_MOE : VTI_UNIT_FFN;
        c->request.precision[u] = (uint8_t)planner_below(random, VTI_PRECISIONS);
        random_unit(&unit[u], random, shards_max, width);
        if (!alike || u < 3 || u + 1 == c->model.units) continue;
        unit[u] = unit[u - 2];
        c->request.precision[u] = c->request.precision[u - 2];
    }
}

void planner_random(planner_case *c, test_random *random, unsigned devices, unsigned layers,
                    unsigned shards_max, double tightness)
{
    memset(c, 0, sizeof *c);
    c->request = (vti_plan_request){.cluster = &c->cluster, .model = &c->model};
    c->request.wire = (vti_plan_wire)planner_below(random, VTI_WIRES);
    c->request.prompt_tokens = 1 + planner_below(random, 512);
    c->request.context_tokens = c->request.prompt_tokens + planner_below(random, 4096);
    c->request.ttft_s = 10, c->request.tpot_s = 0.4;
    random_model(c, random, layers, shards_max);
    double total = 0;
    for (unsigned u = 0; u < c->model.units; u++)
        total += c->model.unit[u].shards *
                 (c->model.unit[u].weight_bytes[c->request.precision[u]] +
                  c->model.unit[u].kv_bytes * c->request.context_tokens);
    c->cluster.devices = devices;
    for (unsigned d = 0; d < devices; d++) {
        vti_plan_device *device = &c->cluster.device[d];
        random_device(device, random);
        device->scratch_bytes = planner_below(random, 1000);
        device->memory_bytes = device->scratch_bytes + 2 * total;
        if (tightness > 0)
            device->memory_bytes = device->scratch_bytes +
                floor(total * between(random, 0.5, 2.5) / (tightness * devices));
        bool one_radio = planner_below(random, 2);
        for (unsigned e = 0; e < d; e++) {
            vti_plan_link link = {between(random, 1e-4, 1e-2), between(random, 1e6, 1e9),
                                  one_radio ? 1 : planner_below(random, 3)};
            c->cluster.link[d][e] = c->cluster.link[e][d] = link;
        }
    }
}

/* --- the checker ------------------------------------------------------------------------------ */

static double exchange(const vti_plan_request *r, unsigned center, const bool *with, bool outward,
                       double bytes)
{
    double worst = 0;
    for (unsigned group = 0; group <= VTI_PLAN_GROUPS_MAX; group++) {
        double sum = 0, latency = 0;
        for (unsigned d = 0; d < r->cluster->devices; d++) {
            const vti_plan_link *link =
                outward ? &r->cluster->link[center][d] : &r->cluster->link[d][center];
            if (!with[d] || d == center || link->group != group) continue;
            sum += bytes / link->bytes_per_s;
            latency = fmax(latency, link->latency_s);
            if (group == 0) worst = fmax(worst, link->latency_s + bytes / link->bytes_per_s);
        }
        if (group) worst = fmax(worst, latency + sum);
    }
    return worst;
}

static double compute(const vti_plan_request *r, bool decode, unsigned u, unsigned d, double share)
{
    const vti_plan_unit *unit = &r->model->unit[u];
    unsigned p = r->precision[u];
    const vti_plan_coefficients *c =
        &r->cluster->device[d].cost[unit->kind][p][decode ? VTI_DECODE : VTI_PREFILL];
    double tokens = decode || unit->kind == VTI_UNIT_HEAD ? 1 : r->prompt_tokens;
    double keys = decode ? r->context_tokens : r->prompt_tokens / 2;
    double rows = decode ? r->context_tokens : r->prompt_tokens;
    if (unit->window > 0) keys = fmin(keys, unit->window);
    if (unit->window > 0 && decode) rows = keys;
    double experts = ceil(unit->active_shards * share / unit->shards);
    double work = unit->kind == VTI_UNIT_MOE ? experts : share;
    double read = unit->kind == VTI_UNIT_MOE ? fmin(share, tokens * experts) : share;
    return c->fixed + c->per_mac * tokens * (work * unit->macs + share * unit->kv_macs * keys) +
           c->per_weight_byte * read * unit->weight_bytes[p] +
           c->per_kv_byte * share * unit->kv_bytes * rows;
}

double planner_unit_seconds(const vti_plan_request *r, bool decode, unsigned u,
                            const vti_plan_place *place, unsigned from)
{
    static const double value_bits[] = {32, 16, 8.5, 4.5}; /* with the scales of blocks */
    const vti_plan_unit *unit = &r->model->unit[u];
    double tokens = decode || unit->kind == VTI_UNIT_HEAD ? 1 : r->prompt_tokens, slowest = 0;
    double row = place->wire == VTI_WIRE_F16 ? 4 : 0, value = value_bits[place->wire] / 8;
    bool runs[VTI_PLAN_DEVICES_MAX] = {0}, hears[VTI_PLAN_DEVICES_MAX] = {0};
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        runs[d] = hears[d] = place->shares[d] > 0;
        if (runs[d]) slowest = fmax(slowest, compute(r, decode, u, d, place->shares[d]));
    }
    if (unit->kind != VTI_UNIT_HEAD) hears[place->home] = true;
    return slowest +
           exchange(r, from, hears, true, tokens * (unit->input_width * value + row)) +
           exchange(r, place->home, runs, false, tokens * (unit->output_width * value + row));
}

static double check_phase(const vti_plan_request *r, const vti_plan_place *places, bool decode)
{
    double seconds = 0;
    for (unsigned u = 0, from = 0; u < r->model->units; from = places[u++].home) {
        unsigned sum = 0;
        for (unsigned d = 0; d < VTI_PLAN_DEVICES_MAX; d++) {
            sum += places[u].shares[d];
            if (d >= r->cluster->devices) assert_int_equal(places[u].shares[d], 0);
        }
        assert_int_equal(sum, r->model->unit[u].shards);
        assert_true(places[u].home < r->cluster->devices);
        assert_int_equal(places[u].wire, r->wire);
        if (u == 0) assert_int_equal(places[u].shares[0], sum); /* EMBED is on the main device */
        if (u == 0 || u + 1 == r->model->units) assert_int_equal(places[u].home, 0);
        seconds += planner_unit_seconds(r, decode, u, &places[u], from);
    }
    return seconds;
}

/* Marks shard by shard who holds it, instead of reckoning with ranges. */
static void add_memory(const vti_plan_request *r, const vti_plan *plan, unsigned u, double *memory)
{
    const vti_plan_unit *unit = &r->model->unit[u];
    double rows = unit->window > 0 ? fmin(unit->window, r->context_tokens) : r->context_tokens;
    int holder[VTI_PHASES];
    unsigned left[VTI_PHASES];
    for (int p = 0; p < VTI_PHASES; p++) holder[p] = -1, left[p] = 0;
    for (unsigned shard = 0; shard < unit->shards; shard++) {
        for (int p = 0; p < VTI_PHASES; p++) {
            while (left[p] == 0) left[p] = plan->place[p][u].shares[++holder[p]];
            left[p]--;
        }
        memory[holder[VTI_DECODE]] += unit->weight_bytes[r->precision[u]] + unit->kv_bytes * rows;
        if (holder[VTI_PREFILL] != holder[VTI_DECODE])
            memory[holder[VTI_PREFILL]] += unit->weight_bytes[r->precision[u]];
    }
}

static void near(double a, double b)
{
    if (fabs(a - b) > 1e-9 * fabs(b)) fail_msg("%.17g is not %.17g", a, b);
}

void planner_check(const vti_plan_request *r, const vti_plan *plan)
{
    double memory[VTI_PLAN_DEVICES_MAX] = {0};
    bool fits = true;
    assert_int_equal(plan->units, r->model->units);
    assert_int_equal(plan->devices, r->cluster->devices);
    assert_memory_equal(plan->precision, r->precision, plan->units);
    near(plan->tpot_s, check_phase(r, plan->place[VTI_DECODE], true));
    near(plan->ttft_s, check_phase(r, plan->place[VTI_PREFILL], false));
    for (unsigned u = 0; u < plan->units; u++) add_memory(r, plan, u, memory);
    for (unsigned d = 0; d < plan->devices; d++) {
        bool part = d == 0;
        for (unsigned u = 0; u < plan->units; u++)
            for (int p = 0; p < VTI_PHASES; p++)
                part |= plan->place[p][u].shares[d] > 0 || plan->place[p][u].home == d;
        if (part) memory[d] += r->cluster->device[d].scratch_bytes;
        near(plan->memory_bytes[d], memory[d]);
        double lack = fmax(0, memory[d] - r->cluster->device[d].memory_bytes);
        near(plan->shortfall_bytes[d], lack);
        fits &= lack <= 0;
    }
    assert_int_equal(plan->feasible, fits);
    assert_int_equal(plan->meets_qos,
                     fits && plan->ttft_s <= r->ttft_s && plan->tpot_s <= r->tpot_s);
}
