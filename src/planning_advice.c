/* planning_advice.c: what a person should know about a plan: why devices are left out, what would
 * help most, and what would make a plan possible. All by planning again with something changed. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planning.h"
#include "weight_types.h"

#define WORTH_SAYING 0.97 /* of the time that it takes now */

/* A cluster that is like the plan's but for something, and the request for it. */
typedef struct advice {
    vt_plan *plan;
    vti_plan_cluster cluster;
    vti_plan_request request;
    vti_plan found;
} advice;

static void start_over(advice *a)
{
    a->cluster = a->plan->file.plan;
    a->request = a->plan->request;
    a->request.cluster = &a->cluster;
}

static bool search(advice *a)
{
    return vti_plan_search(&a->request, VTI_SEARCH_DP, NULL, a->plan->scratch, &a->found);
}

static void remark(vt_plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void remark(vt_plan *plan, const char *format, ...)
{
    va_list args;
    if (plan->remarks == VTI_PLAN_REMARKS_MAX) return;
    va_start(args, format);
    vsnprintf(plan->remark[plan->remarks++], VTI_PLAN_REMARK_BYTES, format, args);
    va_end(args);
}

static const char *name_of(const vt_plan *plan, unsigned device)
{
    return plan->file.device[device].name;
}

/* "1.5 GiB", "38.0 ms", into the caller's buffer. */
enum { AMOUNT = 24 };

static const char *bytes_text(double bytes, char out[AMOUNT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
    snprintf(out, AMOUNT, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

static const char *time_text(double seconds, char out[AMOUNT])
{
    if (seconds >= 10)
        snprintf(out, AMOUNT, "%.0f s", seconds);
    else if (seconds >= 1)
        snprintf(out, AMOUNT, "%.2f s", seconds);
    else
        snprintf(out, AMOUNT, "%.3g ms", 1e3 * seconds);
    return out;
}

/* --- devices left out ------------------------------------------------------------------------- */

/* The least memory that a device needs to take part. */
static double least_bytes(const vt_plan *plan, unsigned device)
{
    double least = INFINITY;
    for (unsigned u = 1; u < plan->model.units; u++) {
        const vti_plan_class *c = &plan->model.class_[plan->model.unit_class[u]];
        double bytes = c->weight_bytes[plan->found.precision[u]] + c->shared_bytes;
        if (bytes < least) least = bytes;
    }
    return least + plan->file.plan.device[device].scratch_bytes;
}

static void free_links(advice *a, unsigned device)
{
    for (unsigned d = 0; d < a->cluster.devices; d++)
        a->cluster.link[d][device] = a->cluster.link[device][d] =
            (vti_plan_link){.latency_s = 0, .bytes_per_s = 1e15};
}

static bool uses(const vti_plan *plan, unsigned device)
{
    for (unsigned u = 1; u < plan->units; u++)
        if (plan->place[VTI_DECODE][u].shares[device] || plan->place[VTI_PREFILL][u].shares[device])
            return true;
    return false;
}

/* The plan with `shards` of a decode unit moved from its largest sharer to `device`; false if that
 * is no plan. */
static bool move_to(advice *a, unsigned u, unsigned device, bool all)
{
    vti_plan_place *place = &a->found.place[VTI_DECODE][u];
    unsigned from = 0;
    for (unsigned d = 0; d < a->cluster.devices; d++)
        if (place->shares[d] > place->shares[from]) from = d;
    unsigned shards = all ? place->shares[from] : 1;
    if (place->exchange && shards == place->shares[from]) return false;
    place->shares[from] = (uint16_t)(place->shares[from] - shards);
    place->shares[device] = (uint16_t)(place->shares[device] + shards);
    if (place->exchange) place->home = (uint8_t)__builtin_ctz(vti_plan_mask(place));
    return true;
}

/* The least TPOT of the plan with any one piece given to `device`; which piece it is. */
static double cheapest_use(advice *a, unsigned device, unsigned *unit, bool *whole)
{
    double least = INFINITY;
    start_over(a);
    for (unsigned u = 1; u < a->request.model->units; u++)
        for (unsigned all = 0; all < 2; all++) {
            a->found = a->plan->found;
            if (!move_to(a, u, device, all)) continue;
            vti_plan_evaluate(&a->request, &a->found);
            if (a->found.tpot_s >= least) continue;
            least = a->found.tpot_s;
            *unit = u;
            *whole = all || vti_plan_shards(&a->request, u) == 1;
        }
    return least;
}

static void explain_left_out(advice *a, unsigned device)
{
    vt_plan *plan = a->plan;
    char *why = plan->device[device].left_out;
    char have[AMOUNT], need[AMOUNT], now[AMOUNT], then[AMOUNT], unit_name[VTI_PLAN_UNIT_NAME];
    double budget = plan->budget_bytes[device];
    if (!(plan->file.reached >> device & 1)) {
        snprintf(why, VTI_PLAN_REMARK_BYTES, "the main device does not reach it");
    } else if (budget < least_bytes(plan, device)) {
        snprintf(why, VTI_PLAN_REMARK_BYTES, "its %s are too little: one shard and scratch take %s",
                 bytes_text(budget, have), bytes_text(least_bytes(plan, device), need));
    } else if (plan->kind != VTI_SEARCH_DP || strcmp(plan->planner, "given") == 0) {
        snprintf(why, VTI_PLAN_REMARK_BYTES, "%s does without it",
                 plan->kind == VTI_SEARCH_DP ? "the plan" : plan->planner);
    } else {
        unsigned unit = 1;
        bool whole = false;
        double tpot_s = cheapest_use(a, device, &unit, &whole);
        start_over(a);
        free_links(a, device);
        search(a);
        bool link = uses(&a->found, device);
        vti_planning_unit_name(plan, unit, unit_name);
        snprintf(why, VTI_PLAN_REMARK_BYTES,
                 "%s; with %s%s on it a token would take %s instead of %s",
                 link ? "its link costs more than its help saves"
                      : "it computes too slowly to help, whatever the link",
                 whole ? "" : "one shard of ", unit_name, time_text(tpot_s, then),
                 time_text(plan->found.tpot_s, now));
    }
}

/* --- what would help most --------------------------------------------------------------------- */

typedef struct best_change {
    char tpot[128], ttft[128];
    double tpot_s, ttft_s;
} best_change;

static void try_change(advice *a, best_change *best, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void try_change(advice *a, best_change *best, const char *format, ...)
{
    va_list args;
    char what[128];
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    bool fits = search(a);
    if (fits && a->found.tpot_s < best->tpot_s) {
        best->tpot_s = a->found.tpot_s;
        strcpy(best->tpot, what);
    }
    if (fits && a->found.ttft_s < best->ttft_s) {
        best->ttft_s = a->found.ttft_s;
        strcpy(best->ttft, what);
    }
    start_over(a);
}

static void scale_links(advice *a, unsigned device, double latency, double bandwidth)
{
    for (unsigned d = 0; d < a->cluster.devices; d++)
        for (unsigned way = 0; way < 2; way++) {
            vti_plan_link *link = way ? &a->cluster.link[d][device] : &a->cluster.link[device][d];
            link->latency_s *= latency;
            link->bytes_per_s *= bandwidth;
        }
}

static void halve_costs(vti_plan_device *device)
{
    for (unsigned kind = 0; kind < VTI_PLAN_KINDS; kind++)
        for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (unsigned phase = 0; phase < VTI_PHASES; phase++) {
                vti_plan_coefficients *c = &device->cost[kind][p][phase];
                c->fixed /= 2, c->per_mac /= 2, c->per_weight_byte /= 2, c->per_kv_byte /= 2;
                c->per_kv_mac /= 2, c->per_shard /= 2, c->per_value /= 2;
            }
}

static void try_changes_of(advice *a, best_change *best, unsigned device)
{
    const char *name = name_of(a->plan, device);
    halve_costs(&a->cluster.device[device]);
    try_change(a, best, "%s computing twice as fast", name);
    if (a->plan->found.proof != VTI_PROOF_UNCONFINED) {
        a->cluster.device[device].memory_bytes *= 2;
        try_change(a, best, "twice the memory on %s", name);
    }
    if (device == 0 && a->cluster.devices == 2) return; /* there is one link */
    scale_links(a, device, 0.5, 1);
    try_change(a, best, "half the latency between %s and the others", name);
    scale_links(a, device, 1, 2);
    try_change(a, best, "twice the bandwidth between %s and the others", name);
}

static void advise_changes(advice *a)
{
    vt_plan *plan = a->plan;
    const vti_plan *found = &plan->found;
    best_change best = {.tpot_s = found->tpot_s, .ttft_s = found->ttft_s};
    char now[AMOUNT], then[AMOUNT];
    start_over(a);
    for (unsigned d = 0; d < a->cluster.devices; d++) try_changes_of(a, &best, d);
    if (a->request.wire < VTI_WIRE_I8) {
        a->request.wire++;
        try_change(a, &best, "%s on the wire", a->request.wire == VTI_WIRE_F16 ? "F16" : "I8");
    }
    if (best.tpot_s < WORTH_SAYING * found->tpot_s)
        remark(plan, "What would help most, of single changes: %s (TPOT %s instead of %s).",
               best.tpot, time_text(best.tpot_s, then), time_text(found->tpot_s, now));
    else
        remark(plan, "No single change (a device twice as fast or with twice the memory, a link "
                     "twice as good) makes a token 3 %% faster.");
    if (found->ttft_s > a->request.ttft_s && best.ttft_s < WORTH_SAYING * found->ttft_s)
        remark(plan, "For the first token: %s (TTFT %s instead of %s).", best.ttft,
               time_text(best.ttft_s, then), time_text(found->ttft_s, now));
}

/* --- too little memory ------------------------------------------------------------------------ */

static const char *const precision_names[VTI_PLAN_PRECISIONS] = {"F16", "I8", "I4"};

/* Everything at the lowest precision that may be chosen, nothing pruned. */
static void lower_all(advice *a)
{
    start_over(a);
    a->request.pruned_shards = 0;
    if (a->plan->mixed) memcpy(a->request.precision, a->plan->lowest, a->plan->model.units);
}

/* With a fixed precision, the highest below it that fits. */
static void advise_precision(advice *a)
{
    const vt_plan *plan = a->plan;
    unsigned everywhere = 7;
    if (plan->mixed) return;
    for (unsigned u = 1; u < plan->model.units; u++) everywhere &= plan->offered[u];
    for (unsigned p = plan->found.precision[1] + 1u; p < VTI_PLAN_PRECISIONS; p++) {
        if (!(everywhere >> p & 1)) continue;
        start_over(a);
        memset(a->request.precision, (int)p, plan->model.units);
        if (!search(a)) continue;
        char now[AMOUNT];
        remark(a->plan, "All in %s it would fit: TPOT %s.", precision_names[p],
               time_text(a->found.tpot_s, now));
        return;
    }
}

static const char *what_would_fit(const vt_plan *plan)
{
    return plan->found.pruned_shards ? "With all shards it" : "It";
}

/* The longest context that fits, in steps of a 64th of the wanted one. */
static void advise_context(advice *a)
{
    const double wanted = a->plan->request.context_tokens, prompt = a->plan->request.prompt_tokens;
    double step = ceil(wanted / 64);
    unsigned low = 0, high = 63;
    lower_all(a);
    while (low < high) {
        unsigned middle = (low + high + 1) / 2;
        a->request.context_tokens = middle * step;
        bool fits = a->request.context_tokens >= prompt && search(a);
        if (fits) low = middle;
        else high = middle - 1;
    }
    if (low > 0)
        remark(a->plan, "%s would fit with a context of %.0f tokens.", what_would_fit(a->plan),
               low * step);
}

/* How much more a device needs so that the model fits; INFINITY if that does not help. */
static double memory_wanted(advice *a, unsigned device)
{
    double most = 0, have = a->plan->file.plan.device[device].memory_bytes;
    for (unsigned d = 0; d < a->cluster.devices; d++) most += a->plan->found.memory_bytes[d];
    for (unsigned u = 0; u < a->plan->model.units; u++) {
        const vti_plan_class *c = &a->plan->model.class_[a->plan->model.unit_class[u]];
        most += c->shards * (c->weight_bytes[a->request.precision[u]] +
                             c->kv_bytes * a->request.context_tokens) + c->shared_bytes;
    }
    double step = ceil(most / 200);
    unsigned low = 1, high = 202, highest = high;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        a->cluster.device[device].memory_bytes = have + middle * step;
        if (search(a)) high = middle;
        else low = middle + 1;
    }
    a->cluster.device[device].memory_bytes = have;
    return low == highest ? INFINITY : low * step;
}

/* So that a tenth of the unit that it is shown in is not what lacks. */
static double rounded_up(double bytes)
{
    double tenth = bytes < 0x1p20 ? 0x1p10 / 10 : bytes < 0x1p30 ? 0x1p20 / 10 : 0x1p30 / 10;
    return ceil(bytes / tenth) * tenth;
}

static void advise_memory(advice *a)
{
    unsigned best = 0;
    double least = INFINITY;
    char more[AMOUNT];
    lower_all(a);
    for (unsigned d = 0; d < a->cluster.devices; d++) {
        bool reached = a->plan->file.reached >> d & 1;
        double wanted = reached ? memory_wanted(a, d) : INFINITY;
        if (wanted >= least) continue;
        least = wanted;
        best = d;
    }
    if (least < INFINITY)
        remark(a->plan, "%s would fit with %s more memory on %s.", what_would_fit(a->plan),
               bytes_text(rounded_up(least), more), name_of(a->plan, best));
}

/* What the default planner makes of the same; false if that is who made the plan. */
static bool advise_planner(advice *a)
{
    char tpot[AMOUNT], ttft[AMOUNT];
    if (a->plan->kind == VTI_SEARCH_DP && strcmp(a->plan->planner, "given") != 0) return false;
    start_over(a);
    if (!search(a)) return false;
    remark(a->plan, "The planner dp would do it with TPOT %s and TTFT %s.",
           time_text(a->found.tpot_s, tpot), time_text(a->found.ttft_s, ttft));
    return true;
}

/* "15 of 16 shards of every ATTN and 7 of 8 of every FFN unit" */
enum { PRUNED = 128 };

static const char *pruned_text(const vt_plan *plan, char out[PRUNED])
{
    static const char *const names[VTI_PLAN_KINDS] = {[VTI_PLAN_ATTN] = "ATTN",
                                                      [VTI_PLAN_FFN] = "FFN",
                                                      [VTI_PLAN_MOE] = "MoE FFN"};
    bool said[VTI_PLAN_KINDS] = {false};
    size_t length = 0;
    out[0] = 0;
    for (unsigned u = 1; u + 1 < plan->model.units; u++) {
        const vti_plan_class *c = &plan->model.class_[plan->model.unit_class[u]];
        unsigned pruned = c->shards - vti_plan_shards(&plan->request, u);
        if (!pruned || said[c->kind] || length + 48 > PRUNED) continue;
        said[c->kind] = true;
        length += (size_t)snprintf(out + length, PRUNED - length, "%s%u of %u%s of every %s",
                                   length ? " and " : "", pruned, c->shards,
                                   length ? "" : " shards", names[c->kind]);
    }
    snprintf(out + length, PRUNED - length, " unit");
    return out;
}

static void advise_fit(advice *a)
{
    vt_plan *plan = a->plan;
    char lacks[AMOUNT], has[AMOUNT], pruned[PRUNED];
    if (plan->found.pruned_shards)
        remark(plan, "Nothing fits. The plan shown is the nearest: it is at the lowest precision "
                     "and leaves out %s, and what a device lacks is what this still lacks.",
               pruned_text(plan, pruned));
    else
        remark(plan, "It does not fit. The plan shown is the nearest.");
    for (unsigned d = 0; d < plan->file.plan.devices; d++)
        if (plan->found.shortfall_bytes[d] > 0 && !(plan->file.reached >> d & 1))
            remark(plan, "%s is part of the plan, but the main device does not reach it.",
                   name_of(plan, d));
        else if (plan->found.shortfall_bytes[d] > 0)
            remark(plan, "%s lacks %s: it has %s.", name_of(plan, d),
                   bytes_text(plan->found.shortfall_bytes[d], lacks),
                   bytes_text(plan->budget_bytes[d], has));
    if (advise_planner(a)) return;
    advise_precision(a);
    advise_memory(a);
    advise_context(a);
}

/* --- the rest --------------------------------------------------------------------------------- */

static void advise_precisions(advice *a)
{
    vt_plan *plan = a->plan;
    unsigned lowered = 0;
    for (unsigned u = 1; u < plan->model.units; u++)
        lowered += plan->found.precision[u] > plan->highest[u];
    if (plan->found.pruned_shards) {
        char pruned[PRUNED];
        remark(plan, "Not even the lowest precision fits: %s are left out, which costs quality. To "
                     "keep them:", pruned_text(plan, pruned));
        advise_memory(a);
        advise_context(a);
    }
    if (lowered && plan->mixed && !plan->has_importance)
        remark(plan, "Which units matter is not known (--importance FILE): %u of %u are lowered, "
                     "those in the middle first.", lowered, plan->model.units - 1);
}

/* What all units at one precision would take, for whoever would rather have it faster. */
static void advise_uniform(advice *a)
{
    vt_plan *plan = a->plan;
    char line[VTI_PLAN_REMARK_BYTES] = "", tpot[AMOUNT], ttft[AMOUNT];
    size_t length = 0;
    unsigned everywhere = 7;
    if (!plan->mixed && plan->found.meets_qos) return;
    for (unsigned u = 1; u < plan->model.units; u++) everywhere &= plan->offered[u];
    for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++) {
        if (!(everywhere >> p & 1)) continue;
        start_over(a);
        a->request.pruned_shards = 0;
        memset(a->request.precision, (int)p, plan->model.units);
        bool fits = search(a);
        length += (size_t)snprintf(line + length, sizeof line - length, "%s%s ", length ? "; " : "",
                                   precision_names[p]);
        if (fits)
            length += (size_t)snprintf(line + length, sizeof line - length, "TPOT %s, TTFT %s",
                                       time_text(a->found.tpot_s, tpot),
                                       time_text(a->found.ttft_s, ttft));
        else
            length += (size_t)snprintf(line + length, sizeof line - length, "does not fit");
    }
    remark(plan, "All units at one precision: %s.", line);
}

/* "8: as in the file (Q5_0, Q6_K)." */
static void explain_file(vt_plan *plan)
{
    static const char letters[VTI_PLAN_PRECISIONS] = {'F', '8', '4'};
    for (unsigned p = VTI_PLAN_I8; p < VTI_PLAN_PRECISIONS; p++) {
        char names[128] = "";
        size_t length = 0;
        for (unsigned type = 0; type < 64; type++) {
            if (!(plan->file_types[p] >> type & 1) || length + 20 > sizeof names) continue;
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                       length ? ", " : "", vti_weight_type_name(type));
        }
        if (length)
            remark(plan, "%c: as in the file (%s), which has nothing higher there.", letters[p],
                   names);
    }
}

/* Not what the plan is slower by than the best one, but no more than that. */
static void advise_bound(vt_plan *plan)
{
    const vti_plan *found = &plan->found;
    char now[AMOUNT], bound[AMOUNT];
    if (found->bound_s <= 0 || found->tpot_s <= 1.005 * found->bound_s) return;
    remark(plan, "TPOT %s may not be the best: but for rounding to whole shards, no plan that fits "
                 "can be faster than %s.", time_text(found->tpot_s, now),
           time_text(found->bound_s, bound));
}

static void advise_times(advice *a)
{
    vt_plan *plan = a->plan;
    const vti_plan_request *r = &plan->request;
    char now[AMOUNT], wanted[AMOUNT];
    advise_bound(plan);
    if (plan->found.tpot_s > r->tpot_s)
        remark(plan, "A token takes %s, more than the %s asked for.",
               time_text(plan->found.tpot_s, now), time_text(r->tpot_s, wanted));
    if (plan->found.ttft_s > r->ttft_s)
        remark(plan, "The first token takes %s, more than the %s asked for.",
               time_text(plan->found.ttft_s, now), time_text(r->ttft_s, wanted));
}

void vti_planning_advise(vt_plan *plan)
{
    advice *a = calloc(1, sizeof *a);
    if (!a) return; /* the plan is as good without */
    a->plan = plan;
    start_over(a);
    explain_file(plan);
    if (!plan->found.feasible) {
        advise_fit(a);
    } else {
        advise_precisions(a);
        advise_uniform(a);
        advise_times(a);
        bool better = advise_planner(a);
        for (unsigned d = 0; d < plan->file.plan.devices; d++)
            if (!vti_planning_uses(plan, d)) explain_left_out(a, d);
        if (!better) advise_changes(a);
    }
    free(a);
}
