/* Classes of devices: all can be planned with, and are ordered as their figures say. */
#include <stdio.h>
#include <string.h>

#include "../src/device_class.h"
#include "support.h"

static vti_profile of(const char *name)
{
    vti_profile profile;
    vt_error err;
    if (vti_device_class(name, &profile, NULL, &err) != VT_OK) fail_msg("%s", err.message);
    return profile;
}

static double price(const char *name, vti_plan_precision precision, vti_plan_phase phase)
{
    vti_profile profile = of(name);
    const vti_profile_cost *c = &profile.cost[VTI_PLAN_FFN][precision][phase];
    return (double)(phase == VTI_DECODE ? c->per_weight_byte : c->per_mac);
}

static void all_are_sound(void **state)
{
    (void)state;
    size_t count = vt_device_class_count();
    vt_device_class c;
    assert_true(count >= 8);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(vt_device_class_get(i, &c), VT_OK);
        assert_true(c.name[0] && c.title[0] && c.group[0] && c.memory_bytes >= 512u << 20);
        vti_profile profile = of(c.name);
        const char *wrong = vti_profile_check(&profile);
        if (wrong) fail_msg("%s: %s", c.name, wrong);
        assert_true(profile.threads >= 2 && profile.cache_bytes > 0 && profile.bytes_per_s > 1e9f);
        for (unsigned k = VTI_PLAN_EMBED + 1; k < VTI_PLAN_KINDS; k++)
            for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++) {
                assert_true(profile.cost[k][p][VTI_DECODE].per_weight_byte > 0);
                assert_true(profile.cost[k][p][VTI_DECODE].per_cached_byte <=
                            profile.cost[k][p][VTI_DECODE].per_weight_byte);
                assert_true(k == VTI_PLAN_HEAD || profile.cost[k][p][VTI_PREFILL].per_mac > 0);
            }
    }
    assert_int_equal(vt_device_class_get(count, &c), VT_ERR_ARGUMENT);
}

/* Each is faster than the next in prompts, at I8 … */
static void order(void **state)
{
    (void)state;
    static const char *const names[] = {
        "ryzen-7840u", "galaxy-tab-s9", "snapdragon-8-gen-2", "snapdragon-8155", "pixel-5",
        "pixel-2-xl", "raspberry-pi-4", "exynos-w930", "snapdragon-w5", "raspberry-pi-zero-2-w"};
    for (size_t i = 1; i < sizeof names / sizeof *names; i++)
        if (price(names[i - 1], VTI_PLAN_I8, VTI_PREFILL) >=
            price(names[i], VTI_PLAN_I8, VTI_PREFILL))
            fail_msg("%s is not faster than %s", names[i - 1], names[i]);
}

/* … SDOT makes I8 faster than F16, and decoding follows memory where that is what limits it. */
static void what_limits(void **state)
{
    (void)state;
    assert_true(price("pixel-5", VTI_PLAN_I8, VTI_PREFILL) * 2.5 <
                price("pixel-5", VTI_PLAN_F16, VTI_PREFILL));
    assert_true(price("pixel-2-xl", VTI_PLAN_I8, VTI_PREFILL) * 2 >
                price("pixel-2-xl", VTI_PLAN_F16, VTI_PREFILL));
    assert_true(price("raspberry-pi-5", VTI_PLAN_I8, VTI_DECODE) <
                price("raspberry-pi-4", VTI_PLAN_I8, VTI_DECODE));
    assert_true(price("raspberry-pi-4", VTI_PLAN_I8, VTI_DECODE) <
                price("raspberry-pi-zero-2-w", VTI_PLAN_I8, VTI_DECODE));
}

static void unknown_classes(void **state)
{
    (void)state;
    vti_profile profile;
    vt_profile *made;
    vt_error err;
    assert_int_equal(vti_device_class("toaster", &profile, NULL, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "\"toaster\""));
    assert_non_null(strstr(err.message, "ryzen-7840u")); /* the last one is named, too */
    assert_int_equal(vt_profile_of_class("", &made, &err), VT_ERR_ARGUMENT);
    assert_null(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_sound),
        cmocka_unit_test(order),
        cmocka_unit_test(what_limits),
        cmocka_unit_test(unknown_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
