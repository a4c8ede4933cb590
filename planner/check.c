/* What a request must be like for the other functions to be defined on it. */
#include "planner.h"

#include <math.h>

static bool amount(double x) { return isfinite(x) && x >= 0; }

/* Sums of whole numbers below 2^53 are exact, so that memory never depends on the order of units. */
static bool byte_count(double x) { return amount(x) && x < 0x1p44 && x == floor(x); }

static const char *check_device(const vti_plan_device *device)
{
    if (!byte_count(device->memory_bytes) || !byte_count(device->scratch_bytes))
        return "memory of a device must be a whole number of bytes, at most 16 TiB";
    for (int k = 0; k < VTI_UNIT_KINDS; k++)
        for (int p = 0; p < VTI_PRECISIONS; p++)
            for (int phase = 0; phase < VTI_PHASES; phase++) {
                const vti_plan_coefficients *c = &device->cost[k][p][phase];
                if (!amount(c->fixed) || !amount(c->per_mac) || !amount(c->per_weight_byte) ||
                    !amount(c->per_kv_byte))
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

static const char *check_unit(const vti_plan_request *r, unsigned u)
{
    const vti_plan_unit *unit = &r->model->unit[u];
    if ((unsigned)unit->kind >= VTI_UNIT_KINDS || (unit->kind == VTI_UNIT_EMBED) != (u == 0) ||
        (unit->kind == VTI_UNIT_HEAD) != (u + 1 == r->model->units))
        return "the first unit must be EMBED, the last HEAD, those between ATTN, FFN or MOE";
    if (unit->shards == 0 || unit->shards > UINT16_MAX) return "a unit must have 1 to 65535 shards";
    if (r->precision[u] >= VTI_PRECISIONS) return "a unit's precision must be F16, I8 or I4";
    for (int p = 0; p < VTI_PRECISIONS; p++)
        if (!byte_count(unit->weight_bytes[p]))
            return "a unit's weights must be a whole number of bytes, at most 16 TiB";
    if (!byte_count(unit->kv_bytes) || !amount(unit->macs) || !amount(unit->kv_macs) ||
        !byte_count(unit->window))
        return "a unit's work must be finite and not negative, its KV bytes and window whole";
    if (unit->kind == VTI_UNIT_MOE &&
        (unit->active_shards == 0 || unit->active_shards > unit->shards))
        return "a MoE unit must have 1 to all of its experts active";
    return NULL;
}

const char *vti_plan_check_request(const vti_plan_request *r, unsigned *where)
{
    const char *wrong = NULL;
    *where = 0;
    if (r->cluster->devices == 0 || r->cluster->devices > VTI_PLAN_DEVICES_MAX)
        return "a cluster must have 1 to 8 devices";
    if (r->model->units < 2 || r->model->units > VTI_PLAN_UNITS_MAX)
        return "a model must have 2 to 258 units";
    if ((unsigned)r->wire >= VTI_WIRES) return "the wire precision must be F32, F16, I8 or I4";
    if (!byte_count(r->prompt_tokens) || r->prompt_tokens < 1 || !byte_count(r->context_tokens) ||
        r->context_tokens < r->prompt_tokens)
        return "the prompt must have at least 1 token and the context as many as the prompt";
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
