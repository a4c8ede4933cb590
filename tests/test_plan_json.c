/* Plans as text: what is written is read back the same, and what is wrong is refused by name. */
#include "../src/plan_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner_support.h"

static void *scratch;

static void random_plan(planner_case *c, test_random *random, vti_plan *plan)
{
    unsigned layers = 1 + planner_below(random, 3);
    do planner_random(c, random, 1 + planner_below(random, 5), layers, 12, 0.4);
    while (!vti_plan_search(&c->request, VTI_SEARCH_DP, NULL, scratch, plan));
    plan->epoch = test_random_u64(random) >> 1;
}

static void there_and_back(void **state)
{
    (void)state;
    test_random random = {0x1501};
    static planner_case c;
    static vti_plan plan, read;
    unsigned cases = planner_cases(500);
    for (unsigned i = 0; i < cases; i++) {
        vt_error err = {.message = ""};
        random_plan(&c, &random, &plan);
        vti_plan_request other = c.request;
        memset(other.precision, VTI_PLAN_F16, sizeof other.precision);
        other.pruned_shards = 0;
        char *text = vti_plan_write_json(&plan);
        assert_non_null(text);
        if (vti_plan_read_json(text, strlen(text), &read, &err) != VT_OK ||
            vti_plan_adopt(&other, &read, &err) != VT_OK)
            fail_msg("case %u: %s\n%s", i, err.message, text);
        plan.bound_s = 0, plan.proof = 0; /* they are the search's, not the plan's */
        assert_memory_equal(&plan, &read, sizeof plan);
        assert_int_equal(other.pruned_shards, plan.pruned_shards);
        free(text);
    }
}

/* A plan of two devices, as a person might write it. Single quotes stand for double ones. */
static const char sound[] =
    "{'format': 'voltron-plan', 'version': 1, 'epoch': 7, 'devices': 2,\n"
    " 'pruned_shards': 0, 'units': [\n"
    "{'unit': 0, 'precision': 'F16', 'pruned': [],\n"
    " 'prefill': {'from': 0, 'home': 0, 'exchange': false, 'wire': 'F16', 'shares': [4, 0]},\n"
    " 'decode': {'from': 0, 'home': 0, 'exchange': false, 'wire': 'F16', 'shares': [4, 0]}},\n"
    "{'unit': 1, 'precision': 'I4', 'pruned': [],\n"
    " 'prefill': {'from': 0, 'home': 0, 'exchange': false, 'wire': 'F16', 'shares': [4, 4]},\n"
    " 'decode': {'from': 0, 'home': 0, 'exchange': true, 'wire': 'I8', 'shares': [5, 3]}}]}";

static const struct {
    const char *from, *to, *says;
} edits[] = {
    {"{'format'", "[{'format'", "no JSON: line"},
    {"voltron-plan", "other-plan", "the plan: 'format' must be 'voltron-plan'"},
    {"'version': 1", "'version': 2", "'version' must be 1"},
    {"'epoch': 7", "'epoch': -7", "'epoch' must be a whole number"},
    {"'epoch': 7", "'epoch': 7.5", "'epoch' must be a whole number"},
    {"'epoch': 7", "'epoch': 99999999999999999999", "JSON"},
    {"'epoch': 7,", "", "'epoch' must be a whole number"},
    {"'epoch': 7", "'epoch': 7, 'epoch': 8", "duplicate"},
    {"'epoch': 7", "'epoch': 7, 'epohc': 8", "the plan: there is no field 'epohc'"},
    {"'devices': 2", "'devices': 9", "'devices' must be a whole number from 0 to 8"},
    {"'devices': 2", "'devices': 0", "'devices' must be at least 1"},
    {"'devices': 2", "'devices': 3", "unit 0, prefill: 'shares' must be a list"},
    {"'epoch': 7", "'epoch': 7, 'ttft_s': 'soon'", "'ttft_s' must be a number"},
    {"'epoch': 7", "'epoch': 7, 'tpot_s': null", "'tpot_s' must be a number"},
    {"'epoch': 7", "'epoch': 7, 'memory_bytes': 5", "'memory_bytes' must be a list"},
    {"'epoch': 7", "'epoch': 7, 'memory_bytes': [1]", "'memory_bytes' must be a list"},
    {"'pruned_shards': 0", "'pruned_shards': 256", "from 0 to 255"},
    {"'units': [", "'units': 3, 'x': [", "there is no field 'x'"},
    {"'unit': 1", "'unit': 0", "unit 1: 'unit' must be the number of its place"},
    {"'precision': 'I4'", "'precision': 'I5'", "unit 1: 'precision' must be F16, I8 or I4"},
    {"'precision': 'I4'", "'precision': 4", "unit 1: 'precision' must be"},
    {"'I4', 'pruned': []", "'I4', 'pruned': [256]", "unit 1: 'pruned' must be a list"},
    {"'I4', 'pruned': []", "'I4', 'pruned': [1, 1]", "unit 1: 'pruned' must be a list"},
    {"'I4', 'pruned': []", "'I4', 'pruned': {}", "unit 1: 'pruned' must be a list"},
    {"'exchange': true", "'exchange': 1", "unit 1, decode: 'exchange' must be true or false"},
    {"'I8'", "'I9'", "unit 1, decode: 'wire' must be F32, F16, I8 or I4"},
    {"[5, 3]", "[5, -3]", "unit 1, decode: 'shares' must be whole numbers"},
    {"[5, 3]", "[5, 70000]", "unit 1, decode: 'shares' must be whole numbers"},
    {"[5, 3]", "[5]", "unit 1, decode: 'shares' must be a list"},
    {"[5, 3]", "[5, '3']", "unit 1, decode: 'shares' must be whole numbers"},
    {"true, 'wire': 'I8'", "true, 'wier': 'I8'", "unit 1, decode: there is no field 'wier'"},
    {"{'from': 0, 'home': 0, 'exchange': true", "{'from': 2, 'home': 0, 'exchange': true",
     "unit 1, decode: 'from' must be a whole number from 0 to 1"},
    {"[5, 3]}}]}", "[5, 3]}, 'replica': 2}]}", "unit 1: 'replica' must be a whole number"},
    {"[5, 3]}}]}", "[5, 3]}, 'replica': null}]}", "unit 1: 'replica' must be a whole number"},
    {"[5, 3]}}]}", "[5, 3]}}, 4]}", "unit 2: must be an object"},
};

static char *quoted(const char *text)
{
    static char out[4][4096]; /* of the last four calls */
    static unsigned next;
    char *copy = out[next++ % 4];
    snprintf(copy, sizeof out[0], "%s", text);
    for (char *c = copy; (c = strchr(c, '\'')); c++) *c = '"';
    return copy;
}

static void edit(const char *from, const char *to, char *out, size_t capacity)
{
    const char *at = strstr(sound, from);
    assert_non_null(at);
    snprintf(out, capacity, "%.*s%s%s", (int)(at - sound), sound, to, at + strlen(from));
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static vti_plan plan, before;
    static char text[4096];
    vt_error err = {.message = ""};
    if (vti_plan_read_json(quoted(sound), strlen(sound), &plan, &err) != VT_OK)
        fail_msg("the sound plan: %s", err.message);
    assert_int_equal(plan.epoch, 7);
    assert_int_equal(plan.place[VTI_DECODE][1].shares[1], 3);
    assert_int_equal(plan.place[VTI_DECODE][1].wire, VTI_WIRE_I8);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        edit(edits[i].from, edits[i].to, text, sizeof text);
        before = plan;
        if (vti_plan_read_json(quoted(text), strlen(text), &plan, &err) == VT_OK)
            fail_msg("\"%s\" is accepted", edits[i].to);
        if (!strstr(err.message, quoted(edits[i].says)))
            fail_msg("\"%s\": %s", edits[i].to, err.message);
        assert_memory_equal(&plan, &before, sizeof plan);
    }
}

/* Whatever bytes: an error, or a plan that adopting judges. */
static void any_bytes(void **state)
{
    (void)state;
    test_random random = {0xb17e5};
    static planner_case c;
    static vti_plan plan, read;
    vt_error err;
    unsigned cases = planner_cases(4000), accepted = 0;
    random_plan(&c, &random, &plan);
    char *text = vti_plan_write_json(&plan);
    size_t length = strlen(text);
    char *copy = malloc(length);
    for (unsigned i = 0; i < cases; i++) {
        memcpy(copy, text, length);
        for (unsigned n = planner_below(&random, 3); n < 3; n++) {
            unsigned at = planner_below(&random, (unsigned)length);
            copy[at] = (char)(32 + planner_below(&random, 96));
        }
        size_t cut = planner_below(&random, 4) ? length : planner_below(&random, (unsigned)length);
        if (vti_plan_read_json(copy, cut, &read, &err) != VT_OK) continue;
        vti_plan_request request = c.request;
        if (vti_plan_adopt(&request, &read, &err) != VT_OK) continue;
        const char *wrong = planner_judge(&request, &read);
        if (wrong) fail_msg("case %u: %s", i, wrong);
        accepted++;
    }
    assert_true(accepted > 0 && accepted < cases / 2);
    free(copy);
    free(text);
}

static void plans_for_others(void **state)
{
    (void)state;
    test_random random = {0x07e2};
    static planner_case c;
    static vti_plan plan, sick;
    vt_error err;
    random_plan(&c, &random, &plan);
    vti_plan_request request = c.request;
    sick = plan, sick.units -= 2;
    assert_int_equal(vti_plan_adopt(&request, &sick, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "units, the model"));
    sick = plan, sick.devices++;
    assert_int_equal(vti_plan_adopt(&request, &sick, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "devices, the cluster"));
    sick = plan, sick.place[VTI_DECODE][1].shares[0]++;
    assert_int_equal(vti_plan_adopt(&request, &sick, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "the plan's unit 1: a unit's shares must add up"));
    c.cluster.device[0].memory_bytes = plan.memory_bytes[0] - 1;
    sick = plan;
    assert_int_equal(vti_plan_adopt(&request, &sick, &err), VT_ERR_MEMORY);
    assert_non_null(strstr(err.message, "bytes on device 0, which has"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(plans_for_others),
    };
    scratch = malloc(vti_plan_scratch_bytes());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    return failed;
}
