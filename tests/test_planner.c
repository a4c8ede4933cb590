/* Properties of plans on random clusters and models, and how near to the best they are. */
#include "planner_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *scratch;

static bool plan_with(const planner_case *c, vti_plan_search_kind kind, vti_plan *plan)
{
    return vti_plan_search(&c->request, kind, NULL, scratch, plan);
}

/* Both checkers agree that the plan is as it says. */
static void check(const planner_case *c, const vti_plan *plan, unsigned number)
{
    unsigned where;
    const char *wrong = planner_judge(&c->request, plan);
    if (wrong) fail_msg("case %u: %s", number, wrong);
    wrong = vti_plan_check(&c->request, plan, &where);
    if ((wrong == NULL) != plan->feasible) fail_msg("case %u: at %u: %s", number, where, wrong);
}

static void random_case(planner_case *c, test_random *random, double tightness)
{
    unsigned where, devices = 1 + planner_below(random, planner_below(random, 16) ? 4 : 8);
    unsigned layers = 1 + planner_below(random, planner_below(random, 16) ? 3 : 24);
    planner_random(c, random, devices, layers, 12, tightness);
    assert_null(vti_plan_check_request(&c->request, &where));
}

/* Every search says the truth about its plan; dp finds one whenever another does, never a slower
 * one. */
static void every_plan(void **state)
{
    (void)state;
    test_random random = {0x91a4};
    planner_case c;
    static vti_plan dp, other;
    unsigned feasible = 0, beyond = 0, cases = planner_cases(10000);
    for (unsigned i = 0; i < cases; i++) {
        random_case(&c, &random, i % 4 * 0.4);
        bool found = plan_with(&c, VTI_SEARCH_DP, &dp), any = false;
        check(&c, &dp, i);
        for (vti_plan_search_kind kind = VTI_SEARCH_GREEDY; kind < VTI_SEARCHES; kind++) {
            bool fits = plan_with(&c, kind, &other);
            check(&c, &other, i);
            any |= fits;
            /* Equal plans may differ in their last bits: sums in another order. */
            if (fits && (!found || dp.tpot_s > other.tpot_s * (1 + 0x1p-48)))
                fail_msg("case %u: %s is better than dp", i, vti_plan_search_name(kind));
        }
        feasible += found;
        beyond += found && !any;
    }
    print_message("%u of %u feasible, %u of them by dp alone\n", feasible, cases, beyond);
    assert_true(feasible > cases / 2 && feasible < cases);
}

/* 8 devices, 14 classes of units besides EMBED and HEAD in 3 precisions each: as many ways to spread
 * units as there can be. */
static void as_many_classes_as_possible(void **state)
{
    (void)state;
    test_random random = {0x3a11};
    static planner_case c;
    static vti_plan plan;
    unsigned where;
    for (unsigned i = 0; i < 3; i++) {
        do planner_random(&c, &random, 8, 7, 12, i * 0.3);
        while (c.model.classes < VTI_PLAN_CLASSES_MAX);
        c.model.units = 3 * 14 + 2;
        c.request.precision[c.model.units - 1] = VTI_PLAN_I8;
        c.model.unit_class[c.model.units - 1] = 15;
        for (unsigned u = 1; u + 1 < c.model.units; u++) {
            c.model.unit_class[u] = (uint8_t)(1 + (u - 1) % 14);
            c.request.precision[u] = (uint8_t)((u - 1) / 14);
        }
        for (unsigned k = 1; k < VTI_PLAN_CLASSES_MAX; k++) c.model.class_[k].shards = 12;
        for (unsigned d = 0; d < 8; d++) { /* equal, so that all are of use to each other */
            vti_plan_device *device = &c.cluster.device[d];
            memcpy(device->cost, c.cluster.device[0].cost, sizeof device->cost);
            device->memory_bytes *= 12;
        }
        assert_null(vti_plan_check_request(&c.request, &where));
        assert_true(plan_with(&c, VTI_SEARCH_DP, &plan));
        check(&c, &plan, i);
    }
}

/* The same input gives the same bytes, whatever was in the scratch memory, on every machine: the
 * digest is a record, to be replaced by the one printed when searches change. */
static void same_bits_everywhere(void **state)
{
    (void)state;
    test_random random = {0xb175};
    planner_case c;
    static vti_plan plan, again;
    uint64_t digest = 0xcbf29ce484222325;
    for (unsigned i = 0; i < 400; i++) {
        random_case(&c, &random, i % 4 * 0.4);
        memset(scratch, (int)i, vti_plan_scratch_bytes());
        plan_with(&c, VTI_SEARCH_DP, &plan);
        plan_with(&c, VTI_SEARCH_DP, &again);
        assert_memory_equal(&plan, &again, sizeof plan);
        const unsigned char *bytes = (const unsigned char *)&plan;
        for (size_t b = 0; b < sizeof plan; b++) digest = (digest ^ bytes[b]) * 0x100000001b3;
    }
    if (digest != 0x556283f83b7ac1a9)
        fail_msg("the digest is 0x%016llx", (unsigned long long)digest);
}

/* --- copies of KV rows ------------------------------------------------------------------------ */

/* Copies change nothing else of a plan and are wherever there is room for them. */
static void replicas_where_memory_is_left(void **state)
{
    (void)state;
    test_random random = {0x4e91};
    planner_case c;
    static vti_plan without, plan;
    unsigned cases = planner_cases(2000), with = 0, lacking = 0;
    for (unsigned i = 0; i < cases; i++) {
        random_case(&c, &random, i % 4 * 0.4);
        c.request.replicate_kv = false;
        plan_with(&c, VTI_SEARCH_DP, &without);
        c.request.replicate_kv = true;
        if (!plan_with(&c, VTI_SEARCH_DP, &plan)) continue;
        check(&c, &plan, i);
        assert_memory_equal(plan.place, without.place, sizeof plan.place);
        for (unsigned u = 1; u + 1 < c.model.units; u++) {
            vti_plan more = plan;
            assert_int_equal(without.replica[u], 0);
            if (planner_class(&c.request, u)->kind != VTI_PLAN_ATTN) continue;
            with += plan.replica[u] > 0, lacking += plan.replica[u] == 0;
            for (unsigned d = 0; d < plan.devices && !plan.replica[u]; d++) {
                if (plan.memory_bytes[d] <= 0) continue;
                more.replica[u] = (uint8_t)(1 + d);
                vti_plan_evaluate(&c.request, &more);
                if (!planner_judge(&c.request, &more) && more.feasible)
                    fail_msg("case %u: unit %u might have a replica on device %u", i, u, d);
            }
        }
    }
    print_message("%u units with replicas, %u without\n", with, lacking);
    assert_true(with > cases && lacking > cases / 2);
}

/* Lower transfers are used where they are wanted, and never make a plan slower. */
static void lower_wires(void **state)
{
    (void)state;
    test_random random = {0x31e5};
    planner_case c;
    static vti_plan before, after;
    unsigned cases = planner_cases(2000), faster = 0;
    for (unsigned i = 0; i < cases; i++) {
        random_case(&c, &random, i % 2 * 0.4);
        c.request.wire = VTI_WIRE_F32;
        memset(c.request.wire_lowered, 0, sizeof c.request.wire_lowered);
        if (!plan_with(&c, VTI_SEARCH_DP, &before)) continue;
        for (unsigned u = 0; u < c.model.units; u++)
            c.request.wire_lowered[u] = (uint8_t)planner_below(&random, VTI_WIRES);
        assert_true(vti_plan_search(&c.request, VTI_SEARCH_DP, &before, scratch, &after));
        check(&c, &after, i);
        for (unsigned u = 0; u < c.model.units; u++)
            for (unsigned phase = 0; phase < VTI_PHASES; phase++)
                assert_int_equal(after.place[phase][u].wire, c.request.wire_lowered[u]);
        if (after.tpot_s > before.tpot_s * (1 + 1e-12)) fail_msg("case %u: slower", i);
        faster += after.tpot_s < before.tpot_s * 0.99;
    }
    print_message("%u of %u faster with lower transfers\n", faster, cases);
    assert_true(faster > cases / 10);
}

/* --- more never hurts ------------------------------------------------------------------------- */

static void improve(planner_case *c, test_random *random)
{
    double times = 1 + (1 + planner_below(random, 100)) / 50.0;
    unsigned what = planner_below(random, 4), d = planner_below(random, c->cluster.devices);
    vti_plan_device *device = &c->cluster.device[d];
    if (what == 0) device->memory_bytes = floor(device->memory_bytes * times);
    for (unsigned e = 0; what == 1 && e < c->cluster.devices; e++) {
        c->cluster.link[d][e].bytes_per_s *= times;
        c->cluster.link[e][d].latency_s /= times;
    }
    for (int k = 0; what >= 2 && k < VTI_PLAN_KINDS; k++)
        for (int p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (int phase = 0; phase < VTI_PHASES; phase++) {
                vti_plan_coefficients *cost = &device->cost[k][p][phase];
                cost->per_mac /= times, cost->per_weight_byte /= times;
                cost->per_kv_mac /= times;
                if (what == 3) cost->per_kv_byte /= times, cost->fixed /= times;
                if (what == 3) cost->per_shard /= times, cost->per_value /= times;
            }
}

/* With more memory, bandwidth or speed, no proven plan is slower, and none at all that knows the
 * one before; of those that are searched anew, few are. */
static void more_never_hurts(void **state)
{
    (void)state;
    test_random random = {0x3042};
    planner_case c;
    static vti_plan before, after;
    unsigned cases = planner_cases(10000), compared = 0, slower = 0;
    double sum = 0, worst = 0;
    for (unsigned i = 0; i < cases; i++) {
        random_case(&c, &random, i % 4 * 0.4);
        if (!plan_with(&c, VTI_SEARCH_DP, &before)) continue;
        improve(&c, &random);
        compared++;
        if (!vti_plan_search(&c.request, VTI_SEARCH_DP, &before, scratch, &after) ||
            after.tpot_s > before.tpot_s * (1 + 1e-12))
            fail_msg("case %u: slower than the plan in force", i);
        if (!plan_with(&c, VTI_SEARCH_DP, &after)) fail_msg("case %u: none is found any more", i);
        double loss = after.tpot_s / before.tpot_s - 1;
        if (loss <= 1e-12) continue;
        if (after.proof) fail_msg("case %u: proven, but slower by %g", i, loss);
        slower++, sum += loss;
        worst = loss > worst ? loss : worst;
    }
    print_message("searched anew: %u of %u slower, by %.2f %% in the mean, %.2f %% at worst\n",
                  slower, compared, slower ? 100 * sum / slower : 0, 100 * worst);
    assert_true(slower <= 2 + compared / 400 && worst < 0.5);
}

/* --- the best there is ------------------------------------------------------------------------ */

typedef struct everything {
    const vti_plan_request *request;
    double left[VTI_PLAN_DEVICES_MAX], best;
} everything;

static void try_unit(everything *e, unsigned u, unsigned holders, double seconds);

/* From every device that has the stream, to every home, and by exchange. */
static void try_homes(everything *e, unsigned u, unsigned holders, double seconds,
                      vti_plan_place *place)
{
    unsigned devices = e->request->cluster->devices, mask = 0, sharers = 0;
    bool head = u + 1 == e->request->model->units;
    for (unsigned d = 0; d < devices; d++)
        if (place->shares[d]) mask |= 1u << d, sharers++;
    for (unsigned from = 0; from < devices; from++) {
        if (!(holders >> from & 1)) continue;
        place->from = (uint8_t)from;
        for (unsigned home = 0; home < (head ? 1 : devices); home++) {
            if (e->left[home] < 0) continue;
            place->home = (uint8_t)home;
            double t = planner_unit_seconds(e->request, true, u, place, holders);
            try_unit(e, u + 1, 1u << home, seconds + t);
        }
        if (head || sharers < 2) continue;
        place->exchange = 1;
        for (place->home = 0; !place->shares[place->home]; place->home++) continue;
        double t = planner_unit_seconds(e->request, true, u, place, holders);
        try_unit(e, u + 1, mask, seconds + t);
        place->exchange = 0;
    }
}

/* Deals the unit's shards to devices from `d` on, then tries every home. */
static void deal(everything *e, unsigned u, unsigned holders, double seconds, vti_plan_place *place,
                 unsigned d, unsigned shards)
{
    if (d == e->request->cluster->devices) {
        if (shards == 0) try_homes(e, u, holders, seconds, place);
        return;
    }
    double bytes = planner_shard_bytes(e->request, u), before = e->left[d];
    double shared = planner_class(e->request, u)->shared_bytes;
    for (unsigned share = 0; share <= shards; share++) {
        place->shares[d] = (uint16_t)share;
        e->left[d] = before - share * bytes - (share ? shared : 0);
        if (share && e->left[d] < 0) break;
        deal(e, u, holders, seconds, place, d + 1, shards - share);
    }
    place->shares[d] = 0;
    e->left[d] = before;
}

static void try_unit(everything *e, unsigned u, unsigned holders, double seconds)
{
    if (e->best >= 0 && seconds >= e->best) return;
    if (u == e->request->model->units) {
        e->best = seconds;
        return;
    }
    vti_plan_place place = {.wire = (uint8_t)vti_plan_unit_wire(e->request, u)};
    deal(e, u, holders, seconds, &place, 0, vti_plan_shards(e->request, u));
}

static double best_tpot(const planner_case *c)
{
    everything e = {.request = &c->request, .best = -1};
    vti_plan_place embed = {.wire = (uint8_t)vti_plan_unit_wire(&c->request, 0)};
    embed.shares[0] = (uint16_t)planner_class(&c->request, 0)->shards;
    for (unsigned d = 0; d < c->cluster.devices; d++)
        e.left[d] = c->cluster.device[d].memory_bytes - c->cluster.device[d].scratch_bytes;
    if (e.left[0] < 0) return -1;
    try_unit(&e, 1, 1, planner_unit_seconds(&c->request, true, 0, &embed, 1));
    return e.best;
}

typedef struct gap {
    double sum, worst;
    unsigned plans, lost;
} gap;

static void add_gap(gap *g, bool found, double tpot_s, double best)
{
    double over = tpot_s / best - 1;
    if (!found) {
        g->lost++;
        return;
    }
    g->plans++;
    g->sum += over;
    if (over > g->worst) g->worst = over;
}

static void print_gap(const char *name, const gap *g)
{
    print_message("%-8s mean %.3f %%, worst %.2f %% over the best of %u plans, %u not found\n",
                  name, 100 * g->sum / g->plans, 100 * g->worst, g->plans, g->lost);
}

/* Every case by every way to deal every unit's shards, to choose homes and exchanges. */
static void measure_gap(double tightness, gap *dp, gap *greedy)
{
    test_random random = {0xbe57};
    planner_case c;
    static vti_plan plan;
    unsigned proven = 0, cases = planner_cases(3000);
    for (unsigned i = 0; i < cases; i++) {
        unsigned devices = 2 + (i % 4 == 0), layers = 1 + (i % 5 == 1) + (i % 50 == 2);
        planner_random(&c, &random, devices, devices == 2 ? layers : 1, 6 - devices, tightness);
        double best = best_tpot(&c);
        bool found = plan_with(&c, VTI_SEARCH_DP, &plan);
        if (best < 0) {
            assert_false(found);
            continue;
        }
        if (found && plan.tpot_s < best * (1 - 1e-9)) fail_msg("case %u: better than the best", i);
        if (found && plan.proof && plan.tpot_s > best * (1 + 1e-9))
            fail_msg("case %u: proven to be the best, but is not", i);
        if (plan.bound_s > best * (1 + 1e-9)) fail_msg("case %u: the bound is none", i);
        proven += found && plan.proof;
        add_gap(dp, found, plan.tpot_s, best);
        found = plan_with(&c, VTI_SEARCH_GREEDY, &plan);
        add_gap(greedy, found, plan.tpot_s, best);
    }
    print_gap("dp", dp);
    print_gap("greedy", greedy);
    print_message("%u of dp's plans are proven to be the best\n", proven);
}

static void best_with_memory_to_spare(void **state)
{
    (void)state;
    gap dp = {0}, greedy = {0};
    measure_gap(0, &dp, &greedy);
    assert_int_equal(dp.lost, 0);
    assert_true(dp.worst < 1e-9);
}

static void near_the_best_with_little_memory(void **state)
{
    (void)state;
    gap dp = {0}, greedy = {0};
    measure_gap(0.7, &dp, &greedy);
    assert_int_equal(dp.lost, 0);
    assert_true(dp.sum / dp.plans <= 0.01);
    assert_true(dp.worst <= 0.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan),
        cmocka_unit_test(as_many_classes_as_possible),
        cmocka_unit_test(same_bits_everywhere),
        cmocka_unit_test(replicas_where_memory_is_left),
        cmocka_unit_test(lower_wires),
        cmocka_unit_test(more_never_hurts),
        cmocka_unit_test(best_with_memory_to_spare),
        cmocka_unit_test(near_the_best_with_little_memory),
    };
    scratch = malloc(vti_plan_scratch_bytes());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    return failed;
}
