/* Precision allocation: what it chooses, that steps are monotone, pruning. */
#include "planner_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *scratch;

/* Lower precisions never compute slower, as on the devices that are meant. */
static void order_costs(planner_case *c)
{
    for (unsigned d = 0; d < c->cluster.devices; d++)
        for (int k = 0; k < VTI_PLAN_KINDS; k++)
            for (int p = 1; p < VTI_PLAN_PRECISIONS; p++)
                for (int phase = 0; phase < VTI_PHASES; phase++) {
                    vti_plan_coefficients *low = &c->cluster.device[d].cost[k][p][phase];
                    const vti_plan_coefficients *high = &c->cluster.device[d].cost[k][p - 1][phase];
                    low->fixed = fmin(low->fixed, high->fixed);
                    low->per_mac = fmin(low->per_mac, high->per_mac);
                    low->per_kv_byte = fmin(low->per_kv_byte, high->per_kv_byte);
                    low->per_kv_mac = fmin(low->per_kv_mac, high->per_kv_mac);
                    low->per_shard = fmin(low->per_shard, high->per_shard);
                    low->per_value = fmin(low->per_value, high->per_value);
                    low->per_weight_byte = fmin(low->per_weight_byte, high->per_weight_byte);
                }
}

static void precision_case(planner_case *c, vti_plan_importance *importance, test_random *random,
                           unsigned layers, double tightness)
{
    planner_random(c, random, 1 + planner_below(random, 4), layers, 8, tightness);
    order_costs(c);
    memset(c->request.precision, VTI_PLAN_F16, sizeof c->request.precision);
    c->request.pruned_shards = 0;
    memset(importance, 0, sizeof *importance);
    for (unsigned u = 0; u < c->model.units; u++)
        importance->unit[u] = planner_below(random, 1000);
}

static void lower(const vti_plan_request *from, const uint16_t *order, unsigned n, unsigned step,
                  vti_plan_request *to)
{
    *to = *from;
    for (unsigned i = 0; i < 2 * n && i < step; i++) to->precision[order[i % n]]++;
}

/* With the plan of the step before as incumbent, each step takes no more memory and time. */
static void every_step_is_monotone(void **state)
{
    (void)state;
    test_random random = {0x5e9};
    static planner_case c;
    static vti_plan_importance importance;
    static vti_plan before, plan;
    unsigned cases = planner_cases(200), compared = 0;
    for (unsigned i = 0; i < cases; i++) {
        uint16_t order[VTI_PLAN_UNITS_MAX];
        precision_case(&c, &importance, &random, 1 + planner_below(&random, 4), 0.2 + i % 4 * 0.2);
        unsigned n = vti_plan_lowering_order(&c.request, &importance, i % 2, order);
        assert_int_equal(n, c.model.units - 1);
        bool had = false;
        for (unsigned step = 0; step <= 2 * n; step++) {
            vti_plan_request r;
            lower(&c.request, order, n, step, &r);
            bool found = vti_plan_search(&r, VTI_SEARCH_DP, had ? &before : NULL, scratch, &plan);
            if (had && !found) fail_msg("case %u: step %u does not fit any more", i, step);
            if (had && plan.tpot_s > before.tpot_s * (1 + 1e-12))
                fail_msg("case %u: step %u is slower", i, step);
            compared += had;
            had = found;
            before = plan;
        }
    }
    assert_true(compared > cases * 5);
}

static unsigned steps_of(const vti_plan *plan, const uint16_t *order, unsigned n)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < n; i++) sum += plan->precision[order[i]];
    return sum;
}

static double miss(const vti_plan_request *r, const vti_plan *plan)
{
    return fmax(1, fmax(plan->ttft_s / r->ttft_s, plan->tpot_s / r->tpot_s));
}

/* Of all at one precision nothing that fits misses the QoS less, and nothing higher as little. */
static unsigned nothing_uniform_misses_less(const vti_plan_request *from, const uint16_t *order,
                                            unsigned n, const vti_plan *plan)
{
    static vti_plan other;
    unsigned steps = steps_of(plan, order, n);
    assert_int_equal(steps % n, 0);
    for (unsigned step = 0; step <= 2 * n; step += n) {
        vti_plan_request r;
        lower(from, order, n, step, &r);
        if (step == steps || !vti_plan_search(&r, VTI_SEARCH_DP, NULL, scratch, &other)) continue;
        if (step < steps) assert_true(miss(&r, &other) > miss(&r, plan));
        else assert_true(miss(&r, &other) >= miss(&r, plan));
    }
    return 1;
}

/* Where I4 computes slower than I8, a QoS that nothing meets does not end at I4. */
static void the_lowest_need_not_be_the_fastest(void **state)
{
    (void)state;
    test_random random = {0x1418};
    static planner_case c;
    static vti_plan_importance importance;
    static vti_plan plan;
    for (unsigned i = 0; i < 20; i++) {
        uint16_t order[VTI_PLAN_UNITS_MAX];
        precision_case(&c, &importance, &random, 2, 0);
        for (unsigned d = 0; d < c.cluster.devices; d++)
            for (int k = 0; k < VTI_PLAN_KINDS; k++)
                for (int phase = 0; phase < VTI_PHASES; phase++)
                    c.cluster.device[d].cost[k][VTI_PLAN_I4][phase].fixed +=
                        1 + c.cluster.device[d].cost[k][VTI_PLAN_I8][phase].fixed;
        unsigned n = vti_plan_lowering_order(&c.request, &importance, false, order);
        c.request.ttft_s = c.request.tpot_s = 1e-9;
        assert_true(vti_plan_allocate(&c.request, &importance, order, n, VTI_ALLOCATE_SEARCH,
                                      VTI_SEARCH_DP, scratch, &plan));
        assert_true(steps_of(&plan, order, n) <= n);
        nothing_uniform_misses_less(&c.request, order, n, &plan);
        vti_plan_request r;
        lower(&c.request, order, n, steps_of(&plan, order, n), &r);
        assert_null(planner_judge(&r, &plan));
    }
}

/* Units are lowered in the order given and none too many: a step less does not do, as far as the
 * enumeration of all steps finds. */
static void as_high_as_possible(void **state)
{
    (void)state;
    test_random random = {0x41c};
    static planner_case c;
    static vti_plan_importance importance;
    static vti_plan plan, other;
    unsigned cases = planner_cases(300), same = 0, between = 0, missed = 0;
    for (unsigned i = 0; i < cases; i++) {
        uint16_t order[VTI_PLAN_UNITS_MAX];
        precision_case(&c, &importance, &random, 1 + planner_below(&random, 3), 0.2 + i % 4 * 0.2);
        unsigned n = vti_plan_lowering_order(&c.request, &importance, i % 2, order);
        vti_plan_search(&c.request, VTI_SEARCH_DP, NULL, scratch, &plan);
        c.request.ttft_s = 1e9, c.request.tpot_s = plan.tpot_s * (i % 3 ? 2 : 0.7);
        vti_plan_allocate(&c.request, &importance, order, n, VTI_ALLOCATE_ENUMERATE,
                          VTI_SEARCH_DP, scratch, &other);
        bool found = vti_plan_allocate(&c.request, &importance, order, n, VTI_ALLOCATE_SEARCH,
                                       VTI_SEARCH_DP, scratch, &plan);
        assert_int_equal(found, other.feasible);
        unsigned steps = steps_of(&plan, order, n);
        vti_plan_request r;
        lower(&c.request, order, n, steps, &r);
        assert_memory_equal(plan.precision, r.precision, plan.units);
        r.pruned_shards = plan.pruned_shards;
        const char *wrong = planner_judge(&r, &plan);
        if (wrong) fail_msg("case %u: %s", i, wrong);
        if (steps % n && !plan.meets_qos) fail_msg("case %u: not low enough", i);
        if (plan.feasible && !plan.pruned_shards && !plan.meets_qos)
            missed += nothing_uniform_misses_less(&c.request, order, n, &plan);
        if (plan.pruned_shards && steps < 2 * n) fail_msg("case %u: pruned too early", i);
        same += steps == steps_of(&other, order, n);
        between += steps > 0 && steps < 2 * n;
        vti_plan_allocate(&c.request, &importance, order, n, VTI_ALLOCATE_UNIFORM,
                          VTI_SEARCH_DP, scratch, &other);
        unsigned uniform = steps_of(&other, order, n);
        assert_true(uniform == 0 || uniform == n || uniform == 2 * n);
    }
    print_message("%u of %u like the enumeration, %u mixed, %u too slow\n", same, cases, between,
                  missed);
    assert_true(missed > cases / 50);
    assert_true(same >= cases * 98 / 100 && between > cases / 4);
}

/* Precisions are those at which the planner that was asked for finds a plan, not dp: whole layers
 * need lower ones where devices hold a layer and a half. */
static void other_planners(void **state)
{
    (void)state;
    test_random random = {0x0be};
    static planner_case c;
    static vti_plan_importance importance;
    static vti_plan plan, all_i4;
    unsigned cases = planner_cases(400), found = 0, lower_than_dp = 0;
    for (unsigned i = 0; i < cases; i++) {
        uint16_t order[VTI_PLAN_UNITS_MAX];
        precision_case(&c, &importance, &random, 2 + planner_below(&random, 3), 0.4 + i % 4 * 0.2);
        c.request.ttft_s = c.request.tpot_s = 1e9;
        unsigned n = vti_plan_lowering_order(&c.request, &importance, false, order);
        vti_plan_request r;
        lower(&c.request, order, n, 2 * n, &r);
        if (!vti_plan_search(&r, VTI_SEARCH_LAYERS, NULL, scratch, &all_i4)) continue;
        found++;
        assert_true(vti_plan_allocate(&c.request, &importance, order, n, VTI_ALLOCATE_SEARCH,
                                      VTI_SEARCH_LAYERS, scratch, &plan));
        unsigned steps = steps_of(&plan, order, n);
        assert_int_equal(plan.pruned_shards, 0);
        lower(&c.request, order, n, steps, &r);
        assert_null(planner_judge(&r, &plan));
        for (unsigned u = 0; u < plan.units; u++)
            assert_int_equal(plan.place[VTI_DECODE][u].exchange, 0);
        vti_plan_allocate(&c.request, &importance, order, n, VTI_ALLOCATE_SEARCH, VTI_SEARCH_DP,
                          scratch, &plan);
        lower_than_dp += steps > steps_of(&plan, order, n);
    }
    print_message("%u of %u lower than dp\n", lower_than_dp, found);
    assert_true(lower_than_dp > 0);
}

/* Where all-I4 lacks memory: the fewest shards are pruned, the same number of every unit, and these
 * are the least important. */
static void pruning(void **state)
{
    (void)state;
    test_random random = {0x9121};
    static planner_case c;
    static vti_plan_importance importance;
    static vti_plan plan, fewer;
    static float shard[VTI_PLAN_UNITS_MAX][VTI_PLAN_PRUNABLE_MAX];
    unsigned cases = planner_cases(1000), pruned = 0;
    for (unsigned i = 0; i < cases; i++) {
        uint16_t order[VTI_PLAN_UNITS_MAX];
        unsigned where;
        precision_case(&c, &importance, &random, 1 + planner_below(&random, 3), 4);
        importance.shard = (const float(*)[VTI_PLAN_PRUNABLE_MAX])shard;
        for (unsigned u = 0; u < c.model.units; u++)
            for (unsigned k = 0; k < 8; k++) shard[u][k] = (float)planner_below(&random, 5);
        unsigned n = vti_plan_lowering_order(&c.request, &importance, false, order);
        if (!vti_plan_allocate(&c.request, &importance, order, n, VTI_ALLOCATE_SEARCH,
                               VTI_SEARCH_DP, scratch, &plan) ||
            plan.pruned_shards == 0)
            continue;
        pruned++;
        vti_plan_request r = c.request;
        memset(r.precision, VTI_PLAN_I4, sizeof r.precision);
        r.precision[0] = VTI_PLAN_F16;
        r.pruned_shards = plan.pruned_shards;
        assert_null(vti_plan_check(&r, &plan, &where));
        for (unsigned u = 1; u + 1 < c.model.units; u++)
            for (unsigned a = 0; a < planner_class(&r, u)->shards; a++)
                for (unsigned b = 0; b < planner_class(&r, u)->shards; b++)
                    if ((plan.pruned[u][0] >> a & 1) && !(plan.pruned[u][0] >> b & 1))
                        assert_true(shard[u][a] <= shard[u][b]);
        r.pruned_shards--;
        if (vti_plan_search(&r, VTI_SEARCH_DP, NULL, scratch, &fewer))
            fail_msg("case %u: %u instead of %u would do", i, r.pruned_shards, plan.pruned_shards);
    }
    print_message("%u of %u pruned\n", pruned, cases);
    assert_true(pruned > cases / 10);
}

static void order_of_lowering(void **state)
{
    (void)state;
    test_random random = {0x02de2};
    static planner_case c;
    static vti_plan_importance importance;
    uint16_t order[VTI_PLAN_UNITS_MAX];
    precision_case(&c, &importance, &random, 2, 0);
    static const double of_units[] = {0, 5, 2, 5, 1, 9};
    memcpy(importance.unit, of_units, sizeof of_units);
    assert_int_equal(vti_plan_lowering_order(&c.request, &importance, false, order), 5);
    static const uint16_t expected[] = {4, 2, 1, 3, 5};
    assert_memory_equal(order, expected, sizeof expected);
    for (unsigned u = 1; u < 6; u++) /* each as important as it is big */
        importance.unit[u] = planner_class(&c.request, u)->shards *
                             planner_class(&c.request, u)->weight_bytes[VTI_PLAN_F16];
    importance.unit[3] /= 4;
    vti_plan_lowering_order(&c.request, &importance, true, order);
    assert_int_equal(order[0], 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_lowering),
        cmocka_unit_test(every_step_is_monotone),
        cmocka_unit_test(as_high_as_possible),
        cmocka_unit_test(the_lowest_need_not_be_the_fastest),
        cmocka_unit_test(other_planners),
        cmocka_unit_test(pruning),
    };
    scratch = malloc(vti_plan_scratch_bytes());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    return failed;
}
