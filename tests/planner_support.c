#include "planner_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

unsigned planner_cases(unsigned cases)
{
    return test_is_emulated() ? cases / 10 : cases;
}

unsigned planner_below(test_random *random, unsigned n)
{
    return (unsigned)(test_random_u64(random) >> 33) % n;
}

/* On a roughly logarithmic scale; no function of libm, which may differ between machines. */
static double between(test_random *random, double low, double high)
{
    unsigned doublings = 0;
    for (double x = low; 2 * x <= high; x *= 2) doublings++;
    double part = (double)(test_random_u64(random) >> 11) / 0x1p53;
    double x = low * (double)(1ull << planner_below(random, doublings + 1)) * (1 + part);
    return x < high ? x : high;
}

const vti_plan_class *planner_class(const vti_plan_request *r, unsigned u)
{
    return &r->model->class_[r->model->unit_class[u]];
}

static double rows(const vti_plan_request *r, unsigned u)
{
    double window = planner_class(r, u)->window;
    return window > 0 ? fmin(window, r->context_tokens) : r->context_tokens;
}

static double weight_bytes(const vti_plan_request *r, unsigned u)
{
    return planner_class(r, u)->weight_bytes[r->precision[u]] +
           planner_class(r, u)->always_bytes[r->precision[u]];
}

double planner_shard_bytes(const vti_plan_request *r, unsigned u)
{
    return weight_bytes(r, u) + planner_class(r, u)->kv_bytes * rows(r, u);
}

/* --- cases ------------------------------------------------------------------------------------ */

static void random_device(vti_plan_device *device, test_random *random)
{
    double mac = 1 / between(random, 2e9, 2e11), byte = 1 / between(random, 2e9, 6e10);
    double fixed = between(random, 1e-6, 1e-4);
    test_random own = {random->state ^ 0x5eed}; /* leaves the other draws as they were */
    for (int k = 0; k < VTI_PLAN_KINDS; k++)
        for (int p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (int phase = 0; phase < VTI_PHASES; phase++)
                device->cost[k][p][phase] = (vti_plan_coefficients){
                    .fixed = fixed,
                    .per_mac = mac * between(random, 0.7, 1.4),
                    .per_weight_byte = byte * between(random, 0.7, 1.4),
                    .per_kv_byte = byte * between(random, 0.7, 1.4),
                    .per_kv_mac = mac * between(&own, 1, 10),
                    .per_shard = fixed * between(&own, 0.001, 0.1),
                    .per_value = byte * between(&own, 1, 4)};
}

static void random_class(vti_plan_class *class_, test_random *random, unsigned shards_max,
                         double width)
{
    class_->shards = 1 + planner_below(random, shards_max);
    double values = floor(width * between(random, 64, 4096) / class_->shards) + 1;
    class_->input_width = class_->output_width = (unsigned)width;
    if (class_->kind == VTI_PLAN_EMBED) return;
    class_->weight_bytes[VTI_PLAN_F16] = 2 * values;
    class_->weight_bytes[VTI_PLAN_I8] = values + floor(values / 16);
    class_->weight_bytes[VTI_PLAN_I4] = floor(values / 2) + floor(values / 16);
    class_->macs = values;
    class_->shared_bytes = planner_below(random, 2) ? 4 * width : 0;
    if (class_->kind == VTI_PLAN_HEAD) class_->output_width = 64;
    if (class_->kind == VTI_PLAN_MOE) {
        class_->active_shards = 1 + planner_below(random, class_->shards);
        class_->always_macs = floor(values / 8);
        for (int p = 0; p < VTI_PLAN_PRECISIONS; p++)
            class_->always_bytes[p] = floor(class_->weight_bytes[p] / 8);
    }
    if (class_->kind != VTI_PLAN_ATTN) return;
    class_->kv_bytes = 4 * 64;
    class_->kv_macs = 2 * 64 * (1 + planner_below(random, 8));
    if (planner_below(random, 3) == 0) class_->window = 512;
}

static void random_model(planner_case *c, test_random *random, unsigned layers, unsigned shards_max)
{
    vti_plan_model *m = &c->model;
    double width = 64 * (1 + planner_below(random, 40));
    bool moe = planner_below(random, 4) == 0, alike = planner_below(random, 2) || layers > 7;
    m->units = 2 * layers + 2;
    for (unsigned u = 0; u < m->units; u++) {
        bool head = u + 1 == m->units;
        c->request.precision[u] = (uint8_t)planner_below(random, VTI_PLAN_PRECISIONS);
        if (planner_below(random, 16) == 0)
            c->request.wire_lowered[u] =
                (uint8_t)planner_below(random, VTI_WIRES - c->request.wire);
        if (alike && u >= 3 && !head) {
            m->unit_class[u] = m->unit_class[u - 2];
            if (planner_below(random, 8)) c->request.precision[u] = c->request.precision[u - 2];
            continue;
        }
        m->unit_class[u] = (uint8_t)m->classes;
        vti_plan_class *class_ = &m->class_[m->classes++];
        class_->kind = u == 0 ? VTI_PLAN_EMBED : head ? VTI_PLAN_HEAD
                       : u % 2 ? VTI_PLAN_ATTN : moe ? VTI_PLAN_MOE : VTI_PLAN_FFN;
        random_class(class_, random, shards_max, width);
    }
}

void planner_random(planner_case *c, test_random *random, unsigned devices, unsigned layers,
                    unsigned shards_max, double tightness)
{
    memset(c, 0, sizeof *c);
    c->request = (vti_plan_request){.cluster = &c->cluster, .model = &c->model};
    c->request.wire = (vti_plan_wire)planner_below(random, VTI_WIRES);
    c->request.replicate_kv = planner_below(random, 2);
    c->request.prompt_tokens = 1 + planner_below(random, 512);
    c->request.context_tokens = c->request.prompt_tokens + planner_below(random, 4096);
    c->request.ttft_s = 10, c->request.tpot_s = 0.4;
    c->request.pruned_shards = planner_below(random, 4) ? 0 : 1 + planner_below(random, 3);
    random_model(c, random, layers, shards_max);
    double total = 0;
    for (unsigned u = 0; u < c->model.units; u++)
        total += planner_class(&c->request, u)->shards * planner_shard_bytes(&c->request, u);
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
    c->request.batch_tokens = planner_below(random, 2) ? 1 + planner_below(random, 256) : 0;
}

/* --- the checker ------------------------------------------------------------------------------ */

/* A set of messages at once; links of a group in turn. */
static double round_seconds(const vti_plan_request *r, bool sends[8][8], double bytes)
{
    double worst = 0;
    for (unsigned group = 0; group <= VTI_PLAN_GROUPS_MAX; group++) {
        double sum = 0, latency = 0;
        for (unsigned a = 0; a < r->cluster->devices; a++)
            for (unsigned b = 0; b < r->cluster->devices; b++) {
                const vti_plan_link *link = &r->cluster->link[a][b];
                if (!sends[a][b] || a == b || link->group != group) continue;
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
    const vti_plan_class *class_ = planner_class(r, u);
    unsigned p = r->precision[u];
    const vti_plan_coefficients *c =
        &r->cluster->device[d].cost[class_->kind][p][decode ? VTI_DECODE : VTI_PREFILL];
    double tokens = decode || class_->kind == VTI_PLAN_HEAD ? 1 : r->prompt_tokens;
    double times = 1;
    if (!decode && r->batch_tokens > 0) times = fmax(1, ceil(tokens / r->batch_tokens));
    double keys = decode ? rows(r, u) : r->prompt_tokens / 2, window = class_->window;
    if (!decode && window > 0 && window < r->prompt_tokens) /* a triangle, then whole windows */
        keys = (window * window / 2 + window * (r->prompt_tokens - window)) / r->prompt_tokens;
    double work = share, read = share;
    if (class_->kind == VTI_PLAN_MOE) {
        double left = fmax(1, (double)class_->shards - r->pruned_shards);
        work = ceil(fmin(class_->active_shards, left) * share / left - 1e-9);
        read = fmin(share, tokens / times * work);
    }
    return times * (c->fixed + c->per_shard * read) +
           c->per_value * tokens * class_->input_width +
           c->per_mac * tokens * (work * class_->macs + share * class_->always_macs) +
           tokens * share * keys *
               (c->per_kv_mac * class_->kv_macs + c->per_kv_byte * class_->kv_bytes) +
           times * c->per_weight_byte *
               (read * class_->weight_bytes[p] + share * class_->always_bytes[p]);
}

double planner_unit_seconds(const vti_plan_request *r, bool decode, unsigned u,
                            const vti_plan_place *place, unsigned holders)
{
    static const double value_bits[] = {32, 16, 8.5, 4.5}; /* with the scales of blocks */
    const vti_plan_class *class_ = planner_class(r, u);
    double tokens = decode || class_->kind == VTI_PLAN_HEAD ? 1 : r->prompt_tokens, slowest = 0;
    double row = place->wire == VTI_WIRE_F16 ? 4 : 0, value = value_bits[place->wire] / 8;
    bool in[8][8] = {{0}}, out[8][8] = {{0}};
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        if (place->shares[d]) slowest = fmax(slowest, compute(r, decode, u, d, place->shares[d]));
        bool needs = place->shares[d] || (d == place->home && class_->kind != VTI_PLAN_HEAD);
        in[place->from][d] = needs && !(holders >> d & 1);
        for (unsigned e = 0; e < r->cluster->devices; e++)
            out[d][e] = place->shares[d] &&
                        (place->exchange ? place->shares[e] > 0 : e == place->home);
    }
    return slowest + round_seconds(r, in, tokens * (class_->input_width * value + row)) +
           round_seconds(r, out, tokens * (class_->output_width * value + row));
}

static unsigned holders_after(const vti_plan_place *place)
{
    unsigned holders = 0;
    for (unsigned d = 0; d < 8; d++)
        if (place->exchange ? place->shares[d] > 0 : d == place->home) holders |= 1u << d;
    return holders;
}

static const char *judge_pruned(const vti_plan_request *r, const vti_plan *plan, unsigned u)
{
    unsigned shards = planner_class(r, u)->shards, marked = 0, kept = 0;
    for (unsigned i = 0; i < 256; i++) {
        if (!(plan->pruned[u][i / 64] & UINT64_C(1) << i % 64)) continue;
        if (i >= shards) return "pruned shard outside";
        marked++;
    }
    for (unsigned d = 0; d < 8; d++) kept += plan->place[VTI_DECODE][u].shares[d];
    return marked + kept == shards ? NULL : "pruned and kept shards are not all";
}

static const char *judge_place(const vti_plan_request *r, unsigned u, const vti_plan_place *place,
                               unsigned holders)
{
    const vti_plan_class *class_ = planner_class(r, u);
    unsigned sum = 0, sharers = 0, first = 8;
    bool end = class_->kind == VTI_PLAN_EMBED || class_->kind == VTI_PLAN_HEAD;
    unsigned left = end ? class_->shards
                        : (unsigned)fmax(1, (double)class_->shards - r->pruned_shards);
    for (unsigned d = 0; d < VTI_PLAN_DEVICES_MAX; d++) {
        sum += place->shares[d], sharers += place->shares[d] > 0;
        if (place->shares[d] && first == 8) first = d;
        if (d >= r->cluster->devices && place->shares[d]) return "shares of no device";
    }
    if (sum != left) return "shares do not add up";
    if (place->home >= r->cluster->devices) return "home";
    if (place->from >= 8 || !(holders & 1u << place->from)) return "from";
    if (place->wire > VTI_WIRE_I4) return "wire";
    if (u == 0 && place->shares[0] != sum) return "EMBED is not on the main device";
    if (end && (place->home != 0 || place->exchange)) return "the ends are not on the main device";
    if (place->exchange > 1) return "exchange";
    if (place->exchange && (sharers < 2 || place->home != first)) return "exchange of whom";
    return NULL;
}

/* Marks shard by shard who holds it, instead of reckoning with ranges. */
static void add_memory(const vti_plan_request *r, const vti_plan *plan, unsigned u, double *memory)
{
    const vti_plan_class *class_ = planner_class(r, u);
    int holder[VTI_PHASES];
    unsigned left[VTI_PHASES], shards = 0;
    bool any[VTI_PLAN_DEVICES_MAX] = {0};
    for (unsigned d = 0; d < 8; d++) shards += plan->place[0][u].shares[d];
    for (int p = 0; p < VTI_PHASES; p++) holder[p] = -1, left[p] = 0;
    for (unsigned shard = 0; shard < shards; shard++) {
        for (int p = 0; p < VTI_PHASES; p++) {
            while (left[p] == 0) left[p] = plan->place[p][u].shares[++holder[p]];
            left[p]--;
            any[holder[p]] = true;
        }
        memory[holder[VTI_DECODE]] += planner_shard_bytes(r, u);
        if (holder[VTI_PREFILL] != holder[VTI_DECODE])
            memory[holder[VTI_PREFILL]] += weight_bytes(r, u);
    }
    for (unsigned d = 0; d < 8; d++) memory[d] += any[d] ? class_->shared_bytes : 0;
}

/* Marks row by row who has it; every row must be on two devices. */
static const char *add_replica(const vti_plan_request *r, const vti_plan *plan, unsigned u,
                               double *memory)
{
    const vti_plan_class *class_ = planner_class(r, u);
    unsigned owners = 0, first[2] = {8, 8}, where = plan->replica[u] - 1u;
    if (plan->replica[u] == 0) return NULL;
    if (class_->kind != VTI_PLAN_ATTN || !(class_->kv_bytes > 0)) return "a replica of nothing";
    if (where >= plan->devices) return "a replica on no device";
    for (unsigned d = 0; d < 8; d++)
        if (plan->place[VTI_DECODE][u].shares[d] && ++owners <= 2) first[owners - 1] = d;
    for (unsigned d = 0; d < 8; d++)
        for (unsigned row = 0; row < plan->place[VTI_DECODE][u].shares[d]; row++) {
            unsigned copy = d != where ? where : d != first[0] ? first[0] : first[1];
            if (copy == 8) return "a replica where the rows are";
            if (vti_plan_replica_of(plan, u, d) != (int)copy) return "another replica";
            memory[copy] += class_->kv_bytes * rows(r, u);
        }
    return NULL;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

static const char *judge_memory(const vti_plan_request *r, const vti_plan *plan, bool *fits)
{
    double memory[VTI_PLAN_DEVICES_MAX] = {0};
    *fits = true;
    for (unsigned u = 0; u < plan->units; u++) {
        add_memory(r, plan, u, memory);
        const char *wrong = add_replica(r, plan, u, memory);
        if (wrong) return wrong;
    }
    for (unsigned d = 0; d < plan->devices; d++) {
        bool part = d == 0;
        for (unsigned u = 0; u < plan->units; u++) {
            part |= plan->replica[u] == d + 1;
            for (int p = 0; p < VTI_PHASES; p++)
                part |= plan->place[p][u].shares[d] > 0 || plan->place[p][u].home == d;
        }
        if (part) memory[d] += r->cluster->device[d].scratch_bytes;
        if (!near(plan->memory_bytes[d], memory[d])) return "memory";
        double lack = fmax(0, memory[d] - r->cluster->device[d].memory_bytes);
        if (!near(plan->shortfall_bytes[d], lack)) return "shortfall";
        *fits &= lack <= 0;
    }
    return plan->feasible == *fits ? NULL : "feasible";
}

/* The part of a unit's time that is the wire's. */
static double wire_seconds(const vti_plan_request *r, unsigned u, const vti_plan_place *place,
                           unsigned holders)
{
    double slowest = 0;
    for (unsigned d = 0; d < r->cluster->devices; d++)
        if (place->shares[d]) slowest = fmax(slowest, compute(r, false, u, d, place->shares[d]));
    return planner_unit_seconds(r, false, u, place, holders) - slowest;
}

/* What of a prompt goes on behind the first batch: that of what has most to do. Each device, each
 * airtime group and each single link is looked at by itself. */
static double bottleneck(const vti_plan_request *r, const vti_plan *plan)
{
    double most = 0;
    for (int what = 0; what < 8 + VTI_PLAN_GROUPS_MAX + 64; what++) {
        double busy = 0;
        unsigned holders = 1;
        for (unsigned u = 0; u + 1 < plan->units; u++) {
            const vti_plan_place *place = &plan->place[VTI_PREFILL][u];
            unsigned from = place->from, to = place->home;
            for (unsigned d = 8; place->home == from && d-- > 0;) /* the lowest other sharer */
                if (d != from && place->shares[d]) to = d;
            unsigned group = r->cluster->link[from][to].group;
            int wire = group ? 7 + (int)group : 8 + VTI_PLAN_GROUPS_MAX + (int)(8 * from + to);
            if (what < 8 && place->shares[what])
                busy += compute(r, false, u, (unsigned)what, place->shares[what]);
            if (what == wire) busy += wire_seconds(r, u, place, holders);
            holders = holders_after(place);
        }
        most = fmax(most, busy);
    }
    return most;
}

/* `in_turn`: of all units, of which HEAD is the last. */
static double prompt_seconds(const vti_plan_request *r, const vti_plan *plan, double in_turn,
                             double head)
{
    double batches = r->batch_tokens > 0 ? r->prompt_tokens / r->batch_tokens : 1;
    if (batches <= 1) return in_turn;
    double later = bottleneck(r, plan) * (batches - 1) / batches;
    return fmin(in_turn, (in_turn - head) / batches + later + head);
}

const char *planner_judge(const vti_plan_request *r, const vti_plan *plan)
{
    double seconds[VTI_PHASES] = {0}, head = 0;
    bool fits;
    if (plan->units != r->model->units || plan->devices != r->cluster->devices ||
        plan->pruned_shards != r->pruned_shards)
        return "another request";
    for (int p = 0; p < VTI_PHASES; p++) {
        unsigned holders = 1;
        for (unsigned u = 0; u < r->model->units; u++) {
            const vti_plan_place *place = &plan->place[p][u];
            const char *wrong = judge_place(r, u, place, holders);
            if (wrong) return wrong;
            if (plan->precision[u] != r->precision[u]) return "precision";
            head = planner_unit_seconds(r, p == VTI_DECODE, u, place, holders);
            seconds[p] += head;
            if (p == VTI_PREFILL && u + 1 == plan->units)
                seconds[p] = prompt_seconds(r, plan, seconds[p], head);
            holders = holders_after(place);
        }
    }
    if (!near(plan->tpot_s, seconds[VTI_DECODE])) return "TPOT";
    if (!near(plan->ttft_s, seconds[VTI_PREFILL])) return "TTFT";
    const char *wrong = judge_memory(r, plan, &fits);
    for (unsigned u = 0; u < plan->units && !wrong; u++) wrong = judge_pruned(r, plan, u);
    if (wrong) return wrong;
    bool qos = fits && plan->ttft_s <= r->ttft_s && plan->tpot_s <= r->tpot_s;
    return plan->meets_qos == qos ? NULL : "QoS";
}
