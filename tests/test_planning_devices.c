/* Plans of clusters with too little memory, and with devices that do not help. */
#include "planning_support.h"

#include <stdio.h>

#define COMPUTE "\"compute\": {\"gmacs_per_s\": 50, \"gbytes_per_s\": 20}"

/* What the nearest plan leaves out is said, and is what it has. */
static void a_pruned_nearest_plan_says_so(void **state)
{
    (void)state;
    vt_plan_info info;
    vt_plan_unit_info attn, ffn;
    char words[128];
    vt_plan *plan = planning_open(planning_cluster(2, 2, 2), NULL);
    vt_plan_get_info(plan, &info);
    assert_false(info.is_feasible);
    assert_true(info.pruned_shards > 0);
    vt_plan_get_unit(plan, 1, &attn);
    vt_plan_get_unit(plan, 2, &ffn);
    snprintf(words, sizeof words,
             "leaves out %u of %u shards of every ATTN and %u of %u of every FFN unit", attn.pruned,
             attn.pruned + attn.shards, ffn.pruned, ffn.pruned + ffn.shards);
    assert_non_null(planning_remark(plan, words));
    assert_non_null(planning_remark(plan, "With all shards it would fit with "));
    vt_plan_close(plan);
}

/* A device that is not reached has the memory that the file gives it, and takes no part. */
static void an_unreachable_device_keeps_its_budget(void **state)
{
    (void)state;
    vt_plan_device_info info;
    vt_plan *plan = planning_open(
        "{\"devices\": [{\"name\": \"a\", \"memory\": \"64M\", " COMPUTE
        "}, {\"name\": \"b\", \"memory\": \"400M\", " COMPUTE
        ", \"medium\": \"wifi-ac-80\", \"rssi_dbm\": -119}]}", NULL);
    assert_int_equal(vt_plan_get_device(plan, 1, &info), VT_OK);
    assert_false(info.is_used);
    assert_int_equal(info.budget_bytes, 400 << 20);
    assert_int_equal(info.memory_bytes, 0);
    vt_plan_close(plan);
}

/* A cluster with a device of no use: the plan is no slower than without it. */
static void a_useless_device_does_no_harm(void **state)
{
    (void)state;
    unsigned left_out = 0;
    for (unsigned i = 0; i < 24; i++) {
        char rest[700], text[1024];
        vt_plan_params params = vt_plan_params_default();
        vt_plan_info with, without;
        vt_plan_device_info weak;
        params.precision = "I8";
        snprintf(rest, sizeof rest,
                 "{\"name\": \"a\", \"memory\": \"%uM\", \"medium\": \"wifi-ac-80\", "
                 "\"compute\": {\"gmacs_per_s\": 60, \"gbytes_per_s\": 20}}, "
                 "{\"name\": \"b\", \"memory\": \"%uM\", \"medium\": \"wifi-ac-80\", "
                 "\"compute\": {\"gmacs_per_s\": 40, \"gbytes_per_s\": 9}}, "
                 "{\"name\": \"c\", \"memory\": \"%uM\", \"medium\": \"ethernet-1000\", "
                 "\"compute\": {\"gmacs_per_s\": 10, \"gbytes_per_s\": 5}}",
                 5 + i % 2, 3 + i / 2 % 3, 3 + i / 6 % 4);
        snprintf(text, sizeof text,
                 "{\"devices\": [%s, {\"name\": \"weak\", \"memory\": \"3M\", "
                 "\"medium\": \"bluetooth\", \"compute\": {\"gmacs_per_s\": 1, "
                 "\"gbytes_per_s\": 1}}]}", rest);
        vt_plan *plan = planning_open(text, &params);
        vt_plan_get_info(plan, &with);
        vt_plan_get_device(plan, 3, &weak);
        vt_plan_close(plan);
        snprintf(text, sizeof text, "{\"devices\": [%s]}", rest);
        plan = planning_open(text, &params);
        vt_plan_get_info(plan, &without);
        vt_plan_close(plan);
        if (weak.is_used || !without.is_feasible) continue;
        left_out++;
        assert_true(with.tpot_s <= without.tpot_s * (1 + 1e-12));
    }
    assert_true(left_out > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pruned_nearest_plan_says_so),
        cmocka_unit_test(an_unreachable_device_keeps_its_budget),
        cmocka_unit_test(a_useless_device_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
