/* The cost model: the time and memory of places. Everything that compares plans asks here. */
#include "search.h"

#include <string.h>

unsigned vti_plan_mask(const vti_plan_place *place)
{
    unsigned mask = 0;
    for (unsigned d = 0; d < VTI_PLAN_DEVICES_MAX; d++) mask |= (place->shares[d] > 0u) << d;
    return mask;
}

unsigned vti_plan_holders(const vti_plan_place *place)
{
    return place->exchange ? vti_plan_mask(place) : 1u << place->home;
}

unsigned vti_plan_shards(const vti_plan_request *r, unsigned u)
{
    const vti_plan_class *class_ = vti_plan_class_of(r, u);
    if (class_->kind == VTI_PLAN_EMBED || class_->kind == VTI_PLAN_HEAD) return class_->shards;
    return r->pruned_shards < class_->shards ? class_->shards - r->pruned_shards : 1;
}

vti_plan_wire vti_plan_unit_wire(const vti_plan_request *r, unsigned u)
{
    return (vti_plan_wire)(r->wire + r->wire_lowered[u]);
}

/* --- computing -------------------------------------------------------------------------------- */

static double unit_tokens(const vti_plan_request *r, vti_plan_phase phase, vti_plan_kind kind)
{
    return phase == VTI_DECODE || kind == VTI_PLAN_HEAD ? 1 : r->prompt_tokens;
}

/* So many times a unit computes some of its tokens. */
static double unit_batches(const vti_plan_request *r, double tokens)
{
    if (r->batch_tokens == 0 || tokens <= r->batch_tokens) return 1;
    return (double)(uint64_t)((tokens + r->batch_tokens - 1) / r->batch_tokens);
}

/* Tokens in the KV cache that a token attends to. Of a prompt the mean: half of it, until it is
 * longer than the window. */
static double seen_tokens(const vti_plan_request *r, vti_plan_phase phase, double window)
{
    double last = phase == VTI_DECODE ? r->context_tokens : r->prompt_tokens;
    bool all = window <= 0 || last <= window;
    if (phase == VTI_DECODE) return all ? last : window;
    return all ? last / 2 : window * (1 - window / (2 * last));
}

static double shards_per_s(const plan_work *work)
{
    double s = work->per_shard;
    if (work->active)
        s += (work->per_active + work->per_read * vti_smaller(work->batch_tokens, work->shards)) *
             work->active / work->shards;
    return 1 / (s > DBL_MIN ? s : DBL_MIN);
}

void vti_plan_work(const vti_plan_request *r, vti_plan_phase phase, unsigned u, unsigned device,
                   plan_work *work)
{
    const vti_plan_class *class_ = vti_plan_class_of(r, u);
    unsigned p = r->precision[u];
    const vti_plan_coefficients *c = &r->cluster->device[device].cost[class_->kind][p][phase];
    double tokens = unit_tokens(r, phase, class_->kind), batches = unit_batches(r, tokens);
    double expert_macs = c->per_mac * tokens * class_->macs;
    double expert_read = batches * (c->per_shard + c->per_weight_byte * class_->weight_bytes[p]);
    *work = (plan_work){.fixed = batches * c->fixed + c->per_value * tokens * class_->input_width,
                        .tokens = tokens, .batch_tokens = tokens / batches};
    if (class_->kind != VTI_PLAN_MOE) {
        double met = tokens * seen_tokens(r, phase, class_->window);
        work->per_shard = expert_macs + expert_read + c->per_kv_mac * class_->kv_macs * met +
                          c->per_kv_byte * class_->kv_bytes * met;
        work->shards_per_s = shards_per_s(work);
        return;
    }
    work->per_active = expert_macs;
    work->per_read = expert_read;
    work->per_shard = c->per_mac * tokens * class_->always_macs +
                      batches * c->per_weight_byte * class_->always_bytes[p];
    work->shards = vti_plan_shards(r, u);
    work->active = class_->active_shards < work->shards ? class_->active_shards : work->shards;
    work->shards_per_s = shards_per_s(work);
}

double vti_plan_work_seconds(const plan_work *work, unsigned share)
{
    if (share == 0) return 0;
    double seconds = work->fixed + work->per_shard * share;
    if (work->active == 0) return seconds;
    /* A device has its part of a token's experts, rounded up: they do not fall evenly. */
    unsigned active = (work->active * share + work->shards - 1) / work->shards;
    return seconds + work->per_active * active +
           work->per_read * vti_smaller(share, work->batch_tokens * active);
}

/* --- transfers -------------------------------------------------------------------------------- */

double vti_plan_transfer_bytes(const vti_plan_request *r, vti_plan_phase phase, unsigned u,
                               unsigned wire, unsigned width)
{
    /* Blocks of 32 values carry a scale of 2 bytes, F16 rows one of 4. */
    static const double per_value[VTI_WIRES] = {4, 2, 1 + 2 / 32.0, 0.5 + 2 / 32.0};
    double tokens = unit_tokens(r, phase, vti_plan_class_of(r, u)->kind);
    return tokens * (width * per_value[wire] + (wire == VTI_WIRE_F16 ? 4 : 0));
}

double vti_plan_round_seconds(const vti_plan_cluster *cluster, unsigned center, unsigned others,
                              bool outward, double bytes)
{
    double busy[VTI_PLAN_GROUPS_MAX + 1] = {0}, latency[VTI_PLAN_GROUPS_MAX + 1] = {0}, worst = 0;
    for (unsigned d = 0; others >> d; d++) {
        if (!(others >> d & 1)) continue;
        const vti_plan_link *link = outward ? &cluster->link[center][d] : &cluster->link[d][center];
        double sent = bytes / link->bytes_per_s;
        if (link->group == 0) {
            worst = vti_larger(worst, link->latency_s + sent);
            continue;
        }
        busy[link->group] += sent;
        latency[link->group] = vti_larger(latency[link->group], link->latency_s);
        worst = vti_larger(worst, latency[link->group] + busy[link->group]);
    }
    return worst;
}

double vti_plan_exchange_seconds(const vti_plan_cluster *cluster, unsigned mask, double bytes)
{
    double busy[VTI_PLAN_GROUPS_MAX + 1] = {0}, latency[VTI_PLAN_GROUPS_MAX + 1] = {0}, worst = 0;
    for (unsigned a = 0; mask >> a; a++)
        for (unsigned b = 0; mask >> b; b++) {
            if (a == b || !(mask >> a & 1) || !(mask >> b & 1)) continue;
            const vti_plan_link *link = &cluster->link[a][b];
            double sent = bytes / link->bytes_per_s;
            busy[link->group] = link->group ? busy[link->group] + sent
                                            : vti_larger(busy[0], link->latency_s + sent);
            latency[link->group] = vti_larger(latency[link->group], link->latency_s);
        }
    worst = busy[0];
    for (unsigned g = 1; g <= VTI_PLAN_GROUPS_MAX; g++)
        worst = vti_larger(worst, latency[g] + busy[g]);
    return worst;
}

double vti_plan_unit_seconds(const vti_plan_request *r, vti_plan_phase phase, unsigned u,
                             const vti_plan_place *place, unsigned holders)
{
    const vti_plan_class *class_ = vti_plan_class_of(r, u);
    unsigned mask = vti_plan_mask(place), home = 1u << place->home;
    double in = vti_plan_transfer_bytes(r, phase, u, place->wire, class_->input_width);
    double out = vti_plan_transfer_bytes(r, phase, u, place->wire, class_->output_width);
    double slowest = 0;
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        plan_work work;
        if (!place->shares[d]) continue;
        vti_plan_work(r, phase, u, d, &work);
        slowest = vti_larger(slowest, vti_plan_work_seconds(&work, place->shares[d]));
    }
    /* The sum is added to the residual, so that the home needs it; after HEAD there is none. */
    unsigned receivers = class_->kind == VTI_PLAN_HEAD ? mask : mask | home;
    double hear = vti_plan_round_seconds(r->cluster, place->from, receivers & ~holders, true, in);
    if (place->exchange) return slowest + hear + vti_plan_exchange_seconds(r->cluster, mask, out);
    return slowest + hear +
           vti_plan_round_seconds(r->cluster, place->home, mask & ~home, false, out);
}

/* Units come in long alternating runs. */
bool vti_plan_repeats(const vti_plan_request *r, const vti_plan_place *places, unsigned u)
{
    return u > 2 && r->model->unit_class[u] == r->model->unit_class[u - 2] &&
           r->precision[u] == r->precision[u - 2] &&
           memcmp(&places[u - 3], &places[u - 1], sizeof *places) == 0 &&
           memcmp(&places[u - 2], &places[u], sizeof *places) == 0;
}

double vti_plan_seconds(const vti_plan_request *r, vti_plan_phase phase,
                        const vti_plan_place *places)
{
    double sum = 0, last[2] = {0};
    for (unsigned u = 0; u < r->model->units; u++) {
        unsigned holders = u ? vti_plan_holders(&places[u - 1]) : 1;
        if (!vti_plan_repeats(r, places, u))
            last[u % 2] = vti_plan_unit_seconds(r, phase, u, &places[u], holders);
        sum += last[u % 2];
    }
    return sum;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Shards of device d that are in either place's range. */
static unsigned shards_of_both(const vti_plan_place *a, const vti_plan_place *b, unsigned device)
{
    unsigned a0 = 0, b0 = 0;
    for (unsigned d = 0; d < device; d++) a0 += a->shares[d], b0 += b->shares[d];
    unsigned a1 = a0 + a->shares[device], b1 = b0 + b->shares[device];
    unsigned low = a0 > b0 ? a0 : b0, high = a1 < b1 ? a1 : b1;
    return a1 - a0 + b1 - b0 - (high > low ? high - low : 0);
}

static double weight_bytes(const vti_plan_request *r, unsigned u)
{
    const vti_plan_class *class_ = vti_plan_class_of(r, u);
    return class_->weight_bytes[r->precision[u]] + class_->always_bytes[r->precision[u]];
}

double vti_plan_kv_bytes(const vti_plan_request *r, unsigned u)
{
    const vti_plan_class *class_ = vti_plan_class_of(r, u);
    double rows = class_->window > 0 ? vti_smaller(class_->window, r->context_tokens)
                                     : r->context_tokens;
    return class_->kv_bytes * rows;
}

double vti_plan_shard_bytes(const vti_plan_request *r, unsigned u)
{
    return weight_bytes(r, u) + vti_plan_kv_bytes(r, u);
}

void vti_plan_unit_bytes(const vti_plan_request *r, unsigned u, const vti_plan_place *decode,
                         const vti_plan_place *prefill, double *bytes)
{
    double weight = weight_bytes(r, u), kv = vti_plan_kv_bytes(r, u);
    double shared = vti_plan_class_of(r, u)->shared_bytes;
    bool same = decode == prefill ||
                memcmp(decode->shares, prefill->shares, sizeof decode->shares) == 0;
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        unsigned held = same ? decode->shares[d] : shards_of_both(decode, prefill, d);
        bytes[d] = weight * held + kv * decode->shares[d] + (held ? shared : 0);
    }
}

static void add_up_memory(const vti_plan_request *r, vti_plan *plan)
{
    unsigned used = 1; /* the main device has the user */
    memset(plan->memory_bytes, 0, sizeof plan->memory_bytes);
    for (unsigned u = 0; u < r->model->units; u++) {
        const vti_plan_place *decode = &plan->place[VTI_DECODE][u];
        const vti_plan_place *prefill = &plan->place[VTI_PREFILL][u];
        double bytes[VTI_PLAN_DEVICES_MAX];
        vti_plan_unit_bytes(r, u, decode, prefill, bytes);
        for (unsigned d = 0; d < r->cluster->devices; d++) plan->memory_bytes[d] += bytes[d];
        used |= vti_plan_mask(decode) | vti_plan_mask(prefill) | 1u << decode->home |
                1u << prefill->home;
        if (!plan->replica[u]) continue;
        vti_plan_replica_bytes(r, plan, u, bytes);
        for (unsigned d = 0; d < r->cluster->devices; d++) plan->memory_bytes[d] += bytes[d];
        used |= 1u << (plan->replica[u] - 1);
    }
    for (unsigned d = 0; d < r->cluster->devices; d++)
        if (used >> d & 1) plan->memory_bytes[d] += r->cluster->device[d].scratch_bytes;
}

void vti_plan_evaluate(const vti_plan_request *r, vti_plan *plan)
{
    add_up_memory(r, plan);
    memset(plan->shortfall_bytes, 0, sizeof plan->shortfall_bytes);
    plan->feasible = true;
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        double lacks = plan->memory_bytes[d] - r->cluster->device[d].memory_bytes;
        plan->shortfall_bytes[d] = vti_larger(lacks, 0);
        if (lacks > 0) plan->feasible = false;
    }
    plan->ttft_s = vti_plan_prompt_seconds(r, plan->place[VTI_PREFILL]);
    plan->tpot_s = vti_plan_seconds(r, VTI_DECODE, plan->place[VTI_DECODE]);
    plan->meets_qos = plan->feasible && plan->ttft_s <= r->ttft_s && plan->tpot_s <= r->tpot_s;
}
