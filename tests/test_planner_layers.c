/* The best split of whole layers over a chain of devices, against every split there is. */
#include "planner_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *scratch;
static vti_plan plan, other;

static bool search(const planner_case *c, vti_plan *out)
{
    unsigned where;
    bool fits = vti_plan_search(&c->request, VTI_SEARCH_LAYERS, NULL, scratch, out);
    const char *wrong = planner_judge(&c->request, out);
    if (wrong) fail_msg("%s", wrong);
    assert_int_equal(vti_plan_check(&c->request, out, &where) == NULL, fits);
    assert_int_equal(out->feasible, fits);
    return fits;
}

/* The device of each layer; they are whole, in runs, device 0's first, the same in both phases. */
static void read_chain(const planner_case *c, const vti_plan *p, unsigned *device)
{
    unsigned layers = c->model.units / 2 - 1, seen = 0;
    for (unsigned u = 0; u < p->units; u++) {
        const vti_plan_place *place = &p->place[VTI_DECODE][u];
        assert_memory_equal(place, &p->place[VTI_PREFILL][u], sizeof *place);
        assert_int_equal(place->shares[place->home], vti_plan_shards(&c->request, u));
    }
    assert_int_equal(p->place[VTI_DECODE][0].home, 0);
    assert_int_equal(p->place[VTI_DECODE][p->units - 1].home, 0);
    for (unsigned l = 0; l < layers; l++) {
        device[l] = p->place[VTI_DECODE][1 + 2 * l].home;
        assert_int_equal(device[l], p->place[VTI_DECODE][2 + 2 * l].home);
        if (l > 0 && device[l] == device[l - 1]) continue;
        assert_false(seen >> device[l] & 1);
        if (l > 0) assert_int_not_equal(device[l], 0);
        seen |= 1u << device[l];
    }
}

/* --- every split ------------------------------------------------------------------------------ */

static void place_layer(const planner_case *c, vti_plan *p, unsigned layer, unsigned device)
{
    for (unsigned u = 1 + 2 * layer; u < 3 + 2 * layer; u++) {
        vti_plan_place place = {.home = (uint8_t)device,
                                .wire = (uint8_t)vti_plan_unit_wire(&c->request, u),
                                .from = p->place[VTI_DECODE][u - 1].home};
        place.shares[device] = (uint16_t)vti_plan_shards(&c->request, u);
        p->place[VTI_DECODE][u] = p->place[VTI_PREFILL][u] = place;
    }
}

/* Continues with every device that is allowed; the best TPOT of what fits. */
static double try_layer(const planner_case *c, vti_plan *p, unsigned layer, unsigned last,
                        unsigned seen)
{
    unsigned head = c->model.units - 1;
    if (1 + 2 * layer == head) {
        p->place[VTI_DECODE][head].from = p->place[VTI_PREFILL][head].from = (uint8_t)last;
        vti_plan_evaluate(&c->request, p);
        return p->feasible ? p->tpot_s : INFINITY;
    }
    double best = INFINITY;
    for (unsigned d = 0; d < c->cluster.devices; d++) {
        if (d != last && (seen >> d & 1)) continue;
        place_layer(c, p, layer, d);
        best = fmin(best, try_layer(c, p, layer + 1, d, seen | 1u << d));
    }
    return best;
}

static void as_good_as_the_best_of_all(void **state)
{
    (void)state;
    test_random random = {0x1a9e};
    planner_case c;
    unsigned fitting = 0, apart = 0, device[4], cases = planner_cases(2000);
    for (unsigned i = 0; i < cases; i++) {
        planner_random(&c, &random, 1 + i % 4, 1 + i % 5 % 4, 6, i % 3 * 0.45);
        bool fits = search(&c, &plan);
        read_chain(&c, &plan, device);
        other = plan; /* EMBED and HEAD as they are */
        double best = try_layer(&c, &other, 0, 0, 1);
        assert_int_equal(fits, best < INFINITY);
        if (!fits) continue;
        if (fabs(plan.tpot_s / best - 1) > 1e-9)
            fail_msg("case %u: %g s, not %g", i, plan.tpot_s, best);
        fitting++, apart += device[0] != plan.place[VTI_DECODE][c.model.units - 2].home;
    }
    print_message("%u of %u fit, %u over several devices\n", fitting, cases, apart);
    assert_true(fitting > cases / 2 && fitting < cases && apart > cases / 20);
}

/* --- more devices and layers than can be tried ------------------------------------------------ */

static double all_on_main(const planner_case *c)
{
    other = plan;
    for (unsigned l = 0; l < c->model.units / 2 - 1; l++) place_layer(c, &other, l, 0);
    vti_plan_place *head = &other.place[VTI_DECODE][c->model.units - 1];
    head->from = 0;
    other.place[VTI_PREFILL][c->model.units - 1] = *head;
    vti_plan_evaluate(&c->request, &other);
    return other.feasible ? other.tpot_s : INFINITY;
}

static void improve(planner_case *c, test_random *random)
{
    unsigned d = planner_below(random, c->cluster.devices);
    vti_plan_device *device = &c->cluster.device[d];
    switch (planner_below(random, 3)) {
    case 0: device->memory_bytes = floor(device->memory_bytes * 1.3); break;
    case 1:
        for (unsigned e = 0; e < c->cluster.devices; e++) c->cluster.link[d][e].bytes_per_s *= 1.5;
        break;
    default:
        for (int k = 0; k < VTI_PLAN_KINDS; k++)
            for (int p = 0; p < VTI_PLAN_PRECISIONS; p++)
                for (int phase = 0; phase < VTI_PHASES; phase++)
                    device->cost[k][p][phase].per_weight_byte *= 0.7;
    }
}

static void never_worse_with_more(void **state)
{
    (void)state;
    test_random random = {0x33aa};
    static planner_case c;
    static vti_plan before;
    unsigned cases = planner_cases(600), alone = 0, better = 0;
    for (unsigned i = 0; i < cases; i++) {
        unsigned device[128], layers = 1 + planner_below(&random, 128);
        planner_random(&c, &random, 1 + planner_below(&random, 8), layers, 12, i % 4 * 0.4);
        bool fitted = search(&c, &before);
        read_chain(&c, &before, device);
        plan = before;
        double main_s = all_on_main(&c);
        assert_true(fitted || main_s == INFINITY);
        if (!fitted) continue;
        assert_true(before.tpot_s <= main_s * (1 + 1e-12));
        alone += main_s < INFINITY, better += before.tpot_s < main_s * 0.99;
        improve(&c, &random);
        assert_true(search(&c, &plan));
        if (plan.tpot_s > before.tpot_s * (1 + 1e-9))
            fail_msg("case %u: slower by %g", i, plan.tpot_s / before.tpot_s - 1);
    }
    assert_true(alone > cases / 10 && better > cases / 20);
}

/* --- what a person would expect --------------------------------------------------------------- */

/* Three equal devices of 8 equal layers, links of 1 ms. */
static void three_equal(planner_case *c)
{
    test_random random = {7};
    do planner_random(c, &random, 3, 8, 8, 0);
    while (c->model.classes != 4 || c->request.pruned_shards);
    c->request.batch_tokens = 0;
    for (unsigned u = 0; u < c->model.units; u++) c->request.precision[u] = VTI_PLAN_I8;
    for (unsigned d = 0; d < 3; d++) {
        c->cluster.device[d] = c->cluster.device[0];
        for (unsigned e = 0; e < 3; e++)
            c->cluster.link[d][e] = (vti_plan_link){.latency_s = 1e-3, .bytes_per_s = 1e8};
    }
}

static double layer_bytes(const planner_case *c)
{
    double bytes = 0;
    for (unsigned u = 1; u < 3; u++)
        bytes += planner_shard_bytes(&c->request, u) * vti_plan_shards(&c->request, u) +
                 planner_class(&c->request, u)->shared_bytes;
    return bytes;
}

static void slow_devices_are_left_out(void **state)
{
    (void)state;
    static planner_case c;
    unsigned device[8];
    three_equal(&c);
    assert_true(search(&c, &plan));
    read_chain(&c, &plan, device);
    for (unsigned l = 0; l < 8; l++) assert_int_equal(device[l], 0); /* hops cost, nothing is won */

    /* Room for 5 of the layers: the rest goes to one of the others, not to both. */
    vti_plan_device *main_device = &c.cluster.device[0];
    double used = plan.memory_bytes[0];
    main_device->memory_bytes = used - 3 * layer_bytes(&c);
    assert_true(search(&c, &plan));
    read_chain(&c, &plan, device);
    assert_int_equal(device[0], 0); /* 4 or 5 of them: that takes the same time */
    assert_int_not_equal(device[5], 0);
    assert_int_equal(device[5], device[7]);

    /* The one with the faster link. */
    unsigned far = device[7], near = 3 - far;
    for (unsigned d = 0; d < 3; d++)
        c.cluster.link[d][far].latency_s = c.cluster.link[far][d].latency_s = 2e-3;
    assert_true(search(&c, &plan));
    read_chain(&c, &plan, device);
    assert_int_equal(device[7], near);
    assert_true(plan.memory_bytes[far] == 0);

    /* What it would cost to use both. */
    assert_true(vti_plan_search_layers_with(&c.request, 1u << far, scratch, &other));
    read_chain(&c, &other, device);
    assert_true(other.memory_bytes[far] > 0 && other.tpot_s > plan.tpot_s);
    c.cluster.device[far].memory_bytes = c.cluster.device[far].scratch_bytes;
    assert_false(vti_plan_search_layers_with(&c.request, 1u << far, scratch, &other));
}

/* As fast per token either way: then TTFT decides. */
static void ttft_breaks_ties(void **state)
{
    (void)state;
    static planner_case c;
    unsigned device[8];
    for (unsigned fast = 1; fast < 3; fast++) {
        three_equal(&c);
        c.cluster.device[0].memory_bytes -= 3 * layer_bytes(&c);
        assert_true(search(&c, &plan));
        c.cluster.device[0].memory_bytes = plan.memory_bytes[0];
        for (int k = 0; k < VTI_PLAN_KINDS; k++)
            c.cluster.device[fast].cost[k][VTI_PLAN_I8][VTI_PREFILL].per_mac *= 0.5;
        for (unsigned d = 0; d < 3; d++) c.cluster.device[d].memory_bytes = layer_bytes(&c) * 5;
        assert_true(search(&c, &plan));
        read_chain(&c, &plan, device);
        assert_int_equal(device[7], fast);
    }
}

/* What a device lacks is what it needs more, not less. */
static void shortfall_is_enough(void **state)
{
    (void)state;
    test_random random = {0x5f};
    static planner_case c;
    unsigned infeasible = 0, device[24];
    for (unsigned i = 0; i < planner_cases(300); i++) {
        planner_random(&c, &random, 1 + i % 8, 1 + planner_below(&random, 24), 12, 1.6);
        if (search(&c, &plan)) continue;
        read_chain(&c, &plan, device);
        double lacks = 0;
        for (unsigned d = 0; d < c.cluster.devices; d++) {
            lacks += plan.shortfall_bytes[d];
            c.cluster.device[d].memory_bytes += plan.shortfall_bytes[d];
        }
        assert_true(lacks > 0);
        assert_true(search(&c, &other));
        assert_true(other.tpot_s <= plan.tpot_s * (1 + 1e-9));
        infeasible++;
    }
    assert_true(infeasible > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_good_as_the_best_of_all), cmocka_unit_test(never_worse_with_more),
        cmocka_unit_test(slow_devices_are_left_out),  cmocka_unit_test(ttft_breaks_ties),
        cmocka_unit_test(shortfall_is_enough),
    };
    scratch = malloc(vti_plan_scratch_bytes());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    return failed;
}
