/* The cost model: the time and memory of places. Everything that compares plans asks here. */
#include "search.h"

#include <string.h>

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

unsigned vti_plan_mask(const vti_plan_place *place)
{
    unsigned mask = 0;
    for (unsigned d = 0; d < VTI_PLAN_DEVICES_MAX; d++)
        if (place->shares[d]) mask |= 1u << d;
    return mask;
}

static double unit_tokens(const vti_plan_request *r, vti_plan_phase phase, const vti_plan_unit *unit)
{
    return phase == VTI_DECODE || unit->kind == VTI_UNIT_HEAD ? 1 : r->prompt_tokens;
}

/* Blocks of 32 values carry a scale of 2 bytes, F16 rows one of 4. */
static double wire_bytes(unsigned wire, double width, double tokens)
{
    static const double per_value[VTI_WIRES] = {4, 2, 1 + 2 / 32.0, 0.5 + 2 / 32.0};
    return tokens * (width * per_value[wire] + (wire == VTI_WIRE_F16 ? 4 : 0));
}

double vti_plan_compute_seconds(const vti_plan_request *r, vti_plan_phase phase, unsigned u,
                                unsigned device, unsigned share)
{
    const vti_plan_unit *unit = &r->model->unit[u];
    const vti_plan_coefficients *c =
        &r->cluster->device[device].cost[unit->kind][r->precision[u]][phase];
    double tokens = unit_tokens(r, phase, unit), run = share, read = share;
    if (share == 0) return 0;
    if (unit->kind == VTI_UNIT_MOE) {
        /* A device has its part of a token's experts, rounded up: they do not fall evenly. */
        unsigned active = (unit->active_shards * share + unit->shards - 1) / unit->shards;
        run = active;
        read = smaller(share, tokens * active);
    }
    double seen = phase == VTI_DECODE ? r->context_tokens : r->prompt_tokens / 2;
    double held = phase == VTI_DECODE ? r->context_tokens : r->prompt_tokens;
    if (unit->window > 0) {
        seen = smaller(seen, unit->window);
        held = phase == VTI_DECODE ? seen : held;
    }
    double macs = tokens * run * unit->macs + tokens * share * unit->kv_macs * seen;
    return c->fixed + c->per_mac * macs + c->per_weight_byte * read * unit->weight_bytes[r->precision[u]] +
           c->per_kv_byte * share * unit->kv_bytes * held;
}

/* Everyone in `others` exchanges `bytes` with `center` at once; a group's airtime is used in turn. */
static double round_seconds(const vti_plan_cluster *cluster, unsigned center, unsigned others,
                            bool outward, double bytes)
{
    double busy[VTI_PLAN_GROUPS_MAX + 1] = {0}, latency[VTI_PLAN_GROUPS_MAX + 1] = {0}, worst = 0;
    for (unsigned d = 0; others >> d; d++) {
        if (!(others >> d & 1)) continue;
        const vti_plan_link *link = outward ? &cluster->link[center][d] : &cluster->link[d][center];
        double sent = bytes / link->bytes_per_s;
        if (link->group == 0) {
            worst = larger(worst, link->latency_s + sent);
            continue;
        }
        busy[link->group] += sent;
        latency[link->group] = larger(latency[link->group], link->latency_s);
        worst = larger(worst, latency[link->group] + busy[link->group]);
    }
    return worst;
}

double vti_plan_wire_seconds(const vti_plan_request *r, vti_plan_phase phase, unsigned u,
                             unsigned mask, unsigned wire, unsigned from, unsigned home)
{
    const vti_plan_unit *unit = &r->model->unit[u];
    double tokens = unit_tokens(r, phase, unit);
    /* The sum is added to the residual at the home, which needs it; after HEAD there is none. */
    unsigned receivers = unit->kind == VTI_UNIT_HEAD ? mask : mask | 1u << home;
    double in = wire_bytes(wire, unit->input_width, tokens);
    double out = wire_bytes(wire, unit->output_width, tokens);
    return round_seconds(r->cluster, from, receivers & ~(1u << from), true, in) +
           round_seconds(r->cluster, home, mask & ~(1u << home), false, out);
}

double vti_plan_unit_seconds(const vti_plan_request *r, vti_plan_phase phase, unsigned u,
                             const vti_plan_place *place, unsigned from)
{
    double slowest = 0;
    for (unsigned d = 0; d < r->cluster->devices; d++)
        slowest = larger(slowest, vti_plan_compute_seconds(r, phase, u, d, place->shares[d]));
    return slowest + vti_plan_wire_seconds(r, phase, u, vti_plan_mask(place), place->wire, from,
                                           place->home);
}

double vti_plan_seconds(const vti_plan_request *r, vti_plan_phase phase, const vti_plan_place *places)
{
    double sum = 0;
    for (unsigned u = 0, from = 0; u < r->model->units; from = places[u++].home)
        sum += vti_plan_unit_seconds(r, phase, u, &places[u], from);
    return sum;
}

/* Shards of device d that are in either place's range. */
static unsigned shards_of_both(const vti_plan_place *a, const vti_plan_place *b, unsigned device)
{
    unsigned a0 = 0, b0 = 0;
    for (unsigned d = 0; d < device; d++) a0 += a->shares[d], b0 += b->shares[d];
    unsigned a1 = a0 + a->shares[device], b1 = b0 + b->shares[device];
    unsigned low = a0 > b0 ? a0 : b0, high = a1 < b1 ? a1 : b1;
    return a1 - a0 + b1 - b0 - (high > low ? high - low : 0);
}

void vti_plan_unit_bytes(const vti_plan_request *r, unsigned u, const vti_plan_place *decode,
                         const vti_plan_place *prefill, double *bytes)
{
    const vti_plan_unit *unit = &r->model->unit[u];
    double rows = unit->window > 0 ? smaller(unit->window, r->context_tokens) : r->context_tokens;
    for (unsigned d = 0; d < r->cluster->devices; d++)
        bytes[d] = unit->weight_bytes[r->precision[u]] * shards_of_both(decode, prefill, d) +
                   unit->kv_bytes * rows * decode->shares[d];
}

void vti_plan_evaluate(const vti_plan_request *r, vti_plan *plan)
{
    const vti_plan_cluster *cluster = r->cluster;
    unsigned used = 1; /* the main device has the user */
    memset(plan->memory_bytes, 0, sizeof plan->memory_bytes);
    memset(plan->shortfall_bytes, 0, sizeof plan->shortfall_bytes);
    for (unsigned u = 0; u < r->model->units; u++) {
        const vti_plan_place *decode = &plan->place[VTI_DECODE][u];
        const vti_plan_place *prefill = &plan->place[VTI_PREFILL][u];
        double bytes[VTI_PLAN_DEVICES_MAX];
        vti_plan_unit_bytes(r, u, decode, prefill, bytes);
        for (unsigned d = 0; d < cluster->devices; d++) plan->memory_bytes[d] += bytes[d];
        used |= vti_plan_mask(decode) | vti_plan_mask(prefill) | 1u << decode->home |
                1u << prefill->home;
    }
    plan->feasible = true;
    for (unsigned d = 0; d < cluster->devices; d++) {
        if (used >> d & 1) plan->memory_bytes[d] += cluster->device[d].scratch_bytes;
        double lacks = plan->memory_bytes[d] - cluster->device[d].memory_bytes;
        plan->shortfall_bytes[d] = larger(lacks, 0);
        if (lacks > 0) plan->feasible = false;
    }
    plan->ttft_s = vti_plan_seconds(r, VTI_PREFILL, plan->place[VTI_PREFILL]);
    plan->tpot_s = vti_plan_seconds(r, VTI_DECODE, plan->place[VTI_DECODE]);
    plan->meets_qos = plan->feasible && plan->ttft_s <= r->ttft_s && plan->tpot_s <= r->tpot_s;
}
