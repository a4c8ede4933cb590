/* Precision allocation: the first step of lowering at which memory and QoS are met, and pruning
 * where the last step does not fit. */
#include "search.h"

#include <math.h>
#include <string.h>

/* --- order ------------------------------------------------------------------------------------ */

static double saved_bytes(const vti_plan_request *r, unsigned u)
{
    const vti_plan_class *class_ = vti_plan_class_of(r, u);
    double saved = class_->weight_bytes[VTI_PLAN_F16] + class_->always_bytes[VTI_PLAN_F16] -
                   class_->weight_bytes[VTI_PLAN_I8] - class_->always_bytes[VTI_PLAN_I8];
    return vti_larger(saved * class_->shards, 1);
}

/* Stable: of two that are as important, the one that comes first is lowered first. */
unsigned vti_plan_lowering_order(const vti_plan_request *r, const vti_plan_importance *importance,
                                 bool per_byte, uint16_t order[VTI_PLAN_UNITS_MAX])
{
    double key[VTI_PLAN_UNITS_MAX];
    unsigned n = 0;
    for (unsigned u = 1; u < r->model->units; u++) {
        key[u] = importance->unit[u] / (per_byte ? saved_bytes(r, u) : 1);
        unsigned at = n++;
        for (; at > 0 && key[order[at - 1]] > key[u]; at--) order[at] = order[at - 1];
        order[at] = (uint16_t)u;
    }
    return n;
}

/* --- steps ------------------------------------------------------------------------------------ */

typedef struct lowering {
    plan_search *s;
    vti_plan_search_kind planner;
    const vti_plan_request *highest;
    const uint16_t *order;
    unsigned ordered;
    vti_plan_request request; /* of the step looked at */
    vti_plan *plan;           /* of the last step that was found to do */
    unsigned step;            /* that step; beyond the last: none was */
} lowering;

static unsigned last_step(const lowering *l) { return 2 * l->ordered; }

static void set_step(lowering *l, unsigned step)
{
    for (unsigned i = 0; i < l->ordered; i++) {
        unsigned u = l->order[i], p = l->highest->precision[u];
        unsigned lowest = step > l->ordered + i ? VTI_PLAN_I4 : step > i ? VTI_PLAN_I8 : 0;
        l->request.precision[u] = (uint8_t)(p > lowest ? p : lowest);
    }
}

static void search_step(lowering *l, unsigned step, const vti_plan *incumbent, vti_plan *plan)
{
    set_step(l, step);
    if (l->planner != VTI_SEARCH_DP) {
        vti_plan_search(&l->request, l->planner, incumbent, l->s, plan);
        return;
    }
    vti_plan_start(&l->request, plan);
    vti_plan_thorough(l->s, &l->request, incumbent, plan);
    vti_plan_evaluate(&l->request, plan);
}

static bool does(lowering *l, unsigned step)
{
    vti_plan *plan = &l->s->probed;
    if (l->planner != VTI_SEARCH_DP || l->highest->model->units <= FEW_UNITS) {
        search_step(l, step, NULL, plan);
        if (!plan->meets_qos) return false;
    } else {
        set_step(l, step);
        vti_plan_start(&l->request, plan);
        if (!vti_plan_probe(l->s, &l->request, plan)) return false;
    }
    *l->plan = *plan;
    l->step = step;
    return true;
}

static unsigned search_steps(lowering *l)
{
    unsigned low = 0, high = last_step(l);
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (does(l, middle)) high = middle;
        else low = middle + 1;
    }
    return low;
}

static unsigned enumerate_steps(lowering *l, unsigned stride)
{
    unsigned step = 0;
    while (step < last_step(l) && !does(l, step)) step += stride;
    return step;
}

/* The best plan for a step; one found before if only that meets the QoS. */
static void settle(lowering *l, unsigned step)
{
    vti_plan *plan = &l->s->probed;
    search_step(l, step, l->step == step ? l->plan : NULL, plan);
    if (!plan->meets_qos && l->step == step) {
        vti_plan_evaluate(&l->request, l->plan);
        if (l->plan->meets_qos) return;
    }
    *l->plan = *plan;
}

/* How far a plan misses the QoS, by whichever time misses it more; 1: not. */
static double missed(const vti_plan_request *r, const vti_plan *plan)
{
    double worse = vti_larger(plan->ttft_s / r->ttft_s, plan->tpot_s / r->tpot_s);
    return plan->feasible ? vti_larger(worse, 1) : INFINITY;
}

/* Lower is not faster on every device: if not even the last step meets the QoS, the uniform step
 * that misses it least, of equal ones the highest. */
static void settle_uniform(lowering *l, unsigned step)
{
    const unsigned higher[] = {l->ordered, 0};
    for (unsigned i = 0; i < 2; i++) {
        vti_plan *plan = &l->s->probed;
        search_step(l, higher[i], NULL, plan);
        if (missed(&l->request, plan) > missed(&l->request, l->plan)) continue;
        if (!plan->feasible) continue;
        *l->plan = *plan;
        step = higher[i];
    }
    set_step(l, step);
}

/* --- pruning ---------------------------------------------------------------------------------- */

/* Marks `n` shards of a unit: the least important, of these the last. */
static void mark_pruned(const float *importance, unsigned shards, unsigned n, uint64_t *pruned)
{
    memset(pruned, 0, VTI_PLAN_PRUNABLE_MAX / 8);
    if (shards > VTI_PLAN_PRUNABLE_MAX) shards = VTI_PLAN_PRUNABLE_MAX;
    for (; n > 0; n--) {
        unsigned least = shards;
        for (unsigned i = shards; i-- > 0;) {
            if (pruned[i / 64] >> i % 64 & 1) continue;
            if (least == shards || (importance && importance[i] < importance[least])) least = i;
        }
        pruned[least / 64] |= UINT64_C(1) << least % 64;
    }
}

void vti_plan_mark_pruned(const vti_plan_request *r, const vti_plan_importance *importance,
                          vti_plan *plan)
{
    for (unsigned u = 0; r->pruned_shards && u < r->model->units; u++) {
        unsigned shards = vti_plan_class_of(r, u)->shards;
        mark_pruned(importance && importance->shard ? importance->shard[u] : NULL, shards,
                    shards - vti_plan_shards(r, u), plan->pruned[u]);
    }
}

/* The fewest shards per unit without which the model fits; 0 if no number helps. */
static unsigned fewest_pruned(lowering *l)
{
    const vti_plan_model *model = l->request.model;
    unsigned low = 1, high = 1;
    for (unsigned c = 0; c < model->classes; c++)
        if (model->class_[c].kind != VTI_PLAN_EMBED && model->class_[c].kind != VTI_PLAN_HEAD &&
            model->class_[c].shards > high)
            high = model->class_[c].shards;
    if (high > VTI_PLAN_PRUNABLE_MAX) high = VTI_PLAN_PRUNABLE_MAX;
    high--;
    unsigned most = high;
    while (low < high) {
        l->request.pruned_shards = (low + high) / 2;
        search_step(l, last_step(l), NULL, &l->s->probed);
        if (l->s->probed.feasible) high = l->request.pruned_shards;
        else low = l->request.pruned_shards + 1;
    }
    l->step = last_step(l) + 1;
    return low <= most ? low : 0;
}

bool vti_plan_allocate(const vti_plan_request *r, const vti_plan_importance *importance,
                       const uint16_t *order, unsigned ordered, vti_plan_allocation kind,
                       vti_plan_search_kind planner, void *scratch, vti_plan *plan)
{
    lowering l = {.s = scratch, .planner = planner, .highest = r, .order = order,
                  .ordered = ordered, .request = *r,
                  .plan = plan, .step = 2 * ordered + 1};
    l.request.pruned_shards = 0;
    l.s->warm = false;
    unsigned step = kind == VTI_ALLOCATE_SEARCH      ? search_steps(&l)
                    : kind == VTI_ALLOCATE_ENUMERATE ? enumerate_steps(&l, 1)
                                                     : enumerate_steps(&l, ordered ? ordered : 1);
    settle(&l, step);
    if (step == last_step(&l) && plan->feasible && !plan->meets_qos)
        settle_uniform(&l, step);
    if (!plan->feasible) {
        l.request.pruned_shards = fewest_pruned(&l);
        settle(&l, step);
        vti_plan_mark_pruned(&l.request, importance, plan);
    }
    vti_plan_replicate(&l.request, plan);
    return plan->feasible;
}
