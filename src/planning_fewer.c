/* planning_fewer.c: the search again, without the devices that its plan leaves out.
 *
 * A search without a proof looks at candidates, and with one device less at other ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planning.h"

/* The plan's cluster without some devices. */
typedef struct fewer {
    vti_plan_cluster cluster;
    vti_plan_request request;
    vti_plan found, spread;
    uint8_t number[VTI_PLAN_DEVICES_MAX]; /* in the whole cluster */
} fewer;

static void take_used(fewer *f, const vt_plan *plan, unsigned used)
{
    const vti_plan_cluster *all = plan->request.cluster;
    unsigned n = 0;
    for (unsigned d = 0; d < all->devices; d++)
        if (used >> d & 1) f->number[n++] = (uint8_t)d;
    f->cluster.devices = n;
    for (unsigned i = 0; i < n; i++) {
        f->cluster.device[i] = all->device[f->number[i]];
        for (unsigned k = 0; k < n; k++)
            f->cluster.link[i][k] = all->link[f->number[i]][f->number[k]];
    }
    f->request = plan->request;
    f->request.cluster = &f->cluster;
}

/* What was found as a plan for the whole cluster. */
static void spread_out(fewer *f, const vt_plan *plan)
{
    f->spread = f->found;
    f->spread.devices = plan->request.cluster->devices;
    for (unsigned phase = 0; phase < VTI_PHASES; phase++)
        for (unsigned u = 0; u < f->found.units; u++) {
            const vti_plan_place *from = &f->found.place[phase][u];
            vti_plan_place *to = &f->spread.place[phase][u];
            memset(to->shares, 0, sizeof to->shares);
            for (unsigned i = 0; i < f->cluster.devices; i++)
                to->shares[f->number[i]] = from->shares[i];
            to->from = f->number[from->from];
            to->home = f->number[from->home];
        }
    for (unsigned u = 0; u < f->found.units; u++)
        if (f->found.replica[u])
            f->spread.replica[u] = (uint8_t)(1 + f->number[f->found.replica[u] - 1]);
    memcpy(f->spread.pruned, plan->found.pruned, sizeof f->spread.pruned);
    f->spread.epoch = plan->found.epoch;
    f->spread.proof = plan->found.proof;
    vti_plan_evaluate(&plan->request, &f->spread);
    f->spread.bound_s = fmin(plan->found.bound_s, f->spread.tpot_s);
}

static unsigned used_devices(const vti_plan *plan)
{
    unsigned used = 1;
    for (unsigned phase = 0; phase < VTI_PHASES; phase++)
        for (unsigned u = 0; u < plan->units; u++)
            used |= vti_plan_mask(&plan->place[phase][u]) | 1u << plan->place[phase][u].home;
    return used;
}

/* Better: what a plan is searched for, TPOT and then TTFT, unless a QoS that was met is not. */
static bool is_better(const vti_plan *plan, const vti_plan *than)
{
    if (!plan->feasible || plan->meets_qos < than->meets_qos) return false;
    return plan->tpot_s < than->tpot_s ||
           (plan->tpot_s <= than->tpot_s && plan->ttft_s < than->ttft_s);
}

void vti_planning_try_fewer(vt_plan *plan)
{
    unsigned all = (1u << plan->request.cluster->devices) - 1;
    unsigned used = used_devices(&plan->found), last = all;
    fewer *f = calloc(1, sizeof *f);
    while (f && plan->found.feasible && plan->found.proof == VTI_PROOF_NONE && used != last) {
        last = used;
        take_used(f, plan, used);
        if (!vti_plan_search(&f->request, VTI_SEARCH_DP, NULL, plan->scratch, &f->found)) break;
        spread_out(f, plan);
        if (!is_better(&f->spread, &plan->found)) break;
        plan->found = f->spread;
        used = used_devices(&plan->found);
    }
    free(f);
}
