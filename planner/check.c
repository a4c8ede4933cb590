/* What a request must be like for the other functions to be defined on it, and a plan to be carried
 * out. */
#include "search.h"

#include <math.h>
#include <string.h>

static bool amount(double x) { return isfinite(x) && x >= 0; }

/* Sums of whole numbers below 2^53 are exact: memory never depends on the order of units. */
static bool byte_count(double x) { return amount(x) && x < 0x1p44 && x == floor(x); }

static const char *check_device(const vti_plan_device *device)
{
    if (!byte_count(device->memory_bytes) || !byte_count(device->scratch_bytes))
        return "memory of a device must be a whole number of bytes, at most 16 TiB";
    for (int k = 0; k < VTI_PLAN_KINDS; k++)
        for (int p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (int phase = 0; phase < VTI_PHASES; phase++) {
                const vti_plan_coefficients *c = &device->cost[k][p][phase];
                if (!amount(c->fixed) || !amount(c->per_mac) || !amount(c->per_weight_byte) ||
                    !amount(c->per_kv_byte) || !amount(c->per_kv_mac) || !amount(c->per_shard) ||
                    !amount(c->per_value))
                    return "a device's cost coefficients must be finite and not negative";
            }
    return NULL;
}

static const char *check_links(const vti_plan_cluster *cluster, unsigned from)
{
    for (unsigned to = 0; to < cluster->devices; to++) {
        const vti_plan_link *link = &cluster->link[from][to];
        if (to == from) continue;
        if (!amount(link->latency_s) || !amount(link->bytes_per_s) || link->bytes_per_s <= 0)
            return "a device's links need a latency of at least 0 and a bandwidth above 0";
        if (link->group > VTI_PLAN_GROUPS_MAX) return "a link's airtime group must be 0 to 8";
    }
    return NULL;
}

static const char *check_class(const vti_plan_class *class_)
{
    if ((unsigned)class_->kind >= VTI_PLAN_KINDS)
        return "a unit must be EMBED, ATTN, FFN, MOE or HEAD";
    if (class_->shards == 0 || class_->shards > UINT16_MAX)
        return "a unit must have 1 to 65535 shards";
    for (int p = 0; p < VTI_PLAN_PRECISIONS; p++)
        if (!byte_count(class_->weight_bytes[p]) || !byte_count(class_->always_bytes[p]))
            return "a unit's weights must be a whole number of bytes, at most 16 TiB";
    if (!byte_count(class_->kv_bytes) || !byte_count(class_->shared_bytes) ||
        !byte_count(class_->window))
        return "a unit's KV and shared bytes and its window must be whole numbers";
    if (!amount(class_->macs) || !amount(class_->kv_macs) || !amount(class_->always_macs))
        return "a unit's work must be finite and not negative";
    if (class_->kind == VTI_PLAN_MOE &&
        (class_->active_shards == 0 || class_->active_shards > class_->shards))
        return "a MoE unit must have 1 to all of its experts active";
    return NULL;
}

static const char *check_unit(const vti_plan_request *r, unsigned u)
{
    if (r->model->unit_class[u] >= r->model->classes) return "a unit's class must be in the model";
    if (r->wire_lowered[u] >= VTI_WIRES || vti_plan_unit_wire(r, u) >= VTI_WIRES)
        return "a unit's wire precision cannot be lowered below I4";
    if (r->precision[u] >= VTI_PLAN_PRECISIONS) return "a unit's precision must be F16, I8 or I4";
    const vti_plan_class *class_ = vti_plan_class_of(r, u);
    if ((class_->kind == VTI_PLAN_EMBED) != (u == 0) ||
        (class_->kind == VTI_PLAN_HEAD) != (u + 1 == r->model->units))
        return "the first unit must be EMBED, the last HEAD, those between ATTN, FFN or MOE";
    return check_class(class_);
}

const char *vti_plan_check_request(const vti_plan_request *r, unsigned *where)
{
    const char *wrong = NULL;
    *where = 0;
    if (r->cluster->devices == 0 || r->cluster->devices > VTI_PLAN_DEVICES_MAX)
        return "a cluster must have 1 to 8 devices";
    if (r->model->units < 2 || r->model->units > VTI_PLAN_UNITS_MAX)
        return "a model must have 2 to 258 units";
    if (r->model->classes > VTI_PLAN_CLASSES_MAX) return "a model must have at most 16 classes";
    if ((unsigned)r->wire >= VTI_WIRES) return "the wire precision must be F32, F16, I8 or I4";
    if (r->pruned_shards >= VTI_PLAN_PRUNABLE_MAX)
        return "at most 255 shards of a unit can be pruned";
    if (!byte_count(r->prompt_tokens) || r->prompt_tokens < 1 || !byte_count(r->context_tokens) ||
        r->context_tokens < r->prompt_tokens)
        return "the prompt must have at least 1 token and the context as many as the prompt";
    if (!byte_count(r->batch_tokens)) return "the batch must have a whole number of tokens, or 0";
    if (!(r->ttft_s > 0) || !(r->tpot_s > 0)) return "the QoS times must be above 0";
    for (unsigned d = 0; d < r->cluster->devices && !wrong; d++) {
        *where = d;
        wrong = check_device(&r->cluster->device[d]);
        if (!wrong) wrong = check_links(r->cluster, d);
    }
    for (unsigned u = 0; u < r->model->units && !wrong; u++) {
        *where = u;
        wrong = check_unit(r, u);
    }
    return wrong;
}

/* --- plans ------------------------------------------------------------------------------------ */

static const char *check_place(const vti_plan_request *r, unsigned u, const vti_plan_place *place,
                               unsigned holders)
{
    unsigned sum = 0, devices = r->cluster->devices, mask = vti_plan_mask(place);
    for (unsigned d = 0; d < VTI_PLAN_DEVICES_MAX; d++) sum += place->shares[d];
    if (mask >> devices) return "a unit has shards on a device that the cluster lacks";
    if (sum != vti_plan_shards(r, u)) return "a unit's shares must add up to its shards";
    if (place->home >= devices) return "a unit's home must be a device of the cluster";
    if (place->from >= devices || !(holders >> place->from & 1))
        return "a unit's stream must come from a device that has it";
    if (place->wire >= VTI_WIRES) return "a wire precision must be F32, F16, I8 or I4";
    if (u == 0 && mask != 1) return "EMBED must be on the main device";
    if ((u == 0 || u + 1 == r->model->units) && (place->home || place->exchange))
        return "after EMBED and HEAD the main device must be the home";
    if (place->exchange > 1) return "a unit's exchange must be 0 or 1";
    if (place->exchange && (mask & (mask - 1)) == 0)
        return "an exchange needs two devices with shards";
    if (place->exchange && place->home != __builtin_ctz(mask))
        return "the home of an exchange must be its first device";
    return NULL;
}

static const char *check_replica(const vti_plan_request *r, const vti_plan *plan, unsigned u)
{
    unsigned replica = plan->replica[u];
    if (replica == 0) return NULL;
    if (replica > plan->devices) return "a replica must be on a device of the cluster";
    if (vti_plan_kv_bytes(r, u) <= 0) return "a unit without KV rows has no replica of them";
    return vti_plan_mask(&plan->place[VTI_DECODE][u]) == 1u << (replica - 1)
               ? "a replica must be on another device than the rows"
               : NULL;
}

static const char *check_pruned(const vti_plan_request *r, unsigned u, const uint64_t *pruned)
{
    unsigned shards = vti_plan_class_of(r, u)->shards, count = 0;
    for (unsigned i = 0; i < VTI_PLAN_PRUNABLE_MAX; i++) {
        bool is = pruned[i / 64] >> i % 64 & 1;
        if (is && i >= shards) return "a pruned shard must be one of the unit's";
        count += is;
    }
    return count == shards - vti_plan_shards(r, u) ? NULL
                                                   : "a unit has another number of pruned shards";
}

static bool same_amount(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

static const char *check_sums(const vti_plan_request *r, const vti_plan *plan, unsigned *where)
{
    vti_plan again = *plan;
    vti_plan_evaluate(r, &again);
    for (unsigned d = 0; d < plan->devices; d++) {
        *where = d;
        if (!same_amount(plan->memory_bytes[d], again.memory_bytes[d]))
            return "a device's memory is not what its shards need";
        if (again.shortfall_bytes[d] > 0) return "a device has too little memory for its shards";
        if (plan->shortfall_bytes[d] != 0) return "a device lacks no memory, but the plan says so";
    }
    *where = 0;
    if (!same_amount(plan->ttft_s, again.ttft_s) || !same_amount(plan->tpot_s, again.tpot_s))
        return "the times are not those of the plan";
    if (plan->feasible != again.feasible || plan->meets_qos != again.meets_qos)
        return "the plan is wrong about whether it fits and meets the QoS";
    return NULL;
}

const char *vti_plan_check_places(const vti_plan_request *r, const vti_plan *plan, unsigned *where)
{
    *where = 0;
    if (plan->units != r->model->units) return "the plan is for a model with other units";
    if (plan->devices != r->cluster->devices) return "the plan is for another number of devices";
    if (plan->pruned_shards != r->pruned_shards) return "the plan prunes another number of shards";
    for (unsigned u = 0; u < plan->units; u++) {
        const char *wrong = check_pruned(r, u, plan->pruned[u]);
        *where = u;
        if (plan->precision[u] != r->precision[u]) return "a unit has another precision";
        for (unsigned phase = 0; phase < VTI_PHASES && !wrong; phase++) {
            const vti_plan_place *places = plan->place[phase];
            wrong = check_place(r, u, &places[u], u ? vti_plan_holders(&places[u - 1]) : 1);
        }
        if (!wrong) wrong = check_replica(r, plan, u);
        if (wrong) return wrong;
    }
    return NULL;
}

const char *vti_plan_check(const vti_plan_request *r, const vti_plan *plan, unsigned *where)
{
    const char *wrong = vti_plan_check_places(r, plan, where);
    return wrong ? wrong : check_sums(r, plan, where);
}
