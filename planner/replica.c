/* Copies of KV rows on a second device, so that a lost device costs no recomputation. They take
 * only memory that is left when the search is done, and no part in times: rows are small and are
 * sent while the next units compute. */
#include "search.h"

int vti_plan_replica_of(const vti_plan *plan, unsigned unit, unsigned owner)
{
    const vti_plan_place *place = &plan->place[VTI_DECODE][unit];
    unsigned others = vti_plan_mask(place) & ~(1u << owner);
    if (!plan->replica[unit] || !place->shares[owner]) return -1;
    if (plan->replica[unit] != owner + 1) return plan->replica[unit] - 1;
    return others ? __builtin_ctz(others) : -1;
}

void vti_plan_replica_bytes(const vti_plan_request *r, const vti_plan *plan, unsigned u,
                            double *bytes)
{
    double kv = vti_plan_kv_bytes(r, u);
    for (unsigned d = 0; d < plan->devices; d++) bytes[d] = 0;
    for (unsigned d = 0; d < plan->devices; d++) {
        int copy = vti_plan_replica_of(plan, u, d);
        if (copy >= 0) bytes[copy] += kv * plan->place[VTI_DECODE][u].shares[d];
    }
}

/* Puts the unit's replica on `device`, if it fits there; `left` loses what it takes. */
static bool replicate(const vti_plan_request *r, unsigned u, unsigned device, vti_plan *plan,
                      double *left)
{
    double bytes[VTI_PLAN_DEVICES_MAX];
    plan->replica[u] = (uint8_t)(device + 1);
    vti_plan_replica_bytes(r, plan, u, bytes);
    bool fits = vti_plan_mask(&plan->place[VTI_DECODE][u]) != 1u << device;
    for (unsigned d = 0; d < plan->devices; d++) fits &= bytes[d] <= left[d];
    if (!fits) plan->replica[u] = 0;
    for (unsigned d = 0; fits && d < plan->devices; d++) left[d] -= bytes[d];
    return fits;
}

/* Devices that take part, those with more room first. */
static unsigned by_room(const vti_plan *plan, const double *left, unsigned *order)
{
    unsigned n = 0;
    for (unsigned d = 0; d < plan->devices; d++) {
        unsigned at = n;
        if (plan->memory_bytes[d] <= 0) continue;
        for (; at > 0 && left[order[at - 1]] < left[d]; at--) order[at] = order[at - 1];
        order[at] = d;
        n++;
    }
    return n;
}

/* From the last unit down: what lacks is computed anew from EMBED on, and needs no unit above the
 * last one that lacks its rows. */
void vti_plan_replicate(const vti_plan_request *r, vti_plan *plan)
{
    double left[VTI_PLAN_DEVICES_MAX];
    for (unsigned u = 0; u < plan->units; u++) plan->replica[u] = 0;
    vti_plan_evaluate(r, plan);
    if (!r->replicate_kv || !plan->feasible) return;
    for (unsigned d = 0; d < plan->devices; d++)
        left[d] = r->cluster->device[d].memory_bytes - plan->memory_bytes[d];
    for (unsigned u = plan->units; u-- > 0;) {
        unsigned order[VTI_PLAN_DEVICES_MAX];
        if (vti_plan_kv_bytes(r, u) <= 0) continue;
        unsigned n = by_room(plan, left, order), i = 0;
        while (i < n && !replicate(r, u, order[i], plan, left)) i++;
    }
    vti_plan_evaluate(r, plan);
}
