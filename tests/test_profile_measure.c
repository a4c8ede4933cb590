/* Measuring works and what it gives is a profile; how fast the machine is does not matter. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/kernels.h"
#include "../src/profile_fit.h"
#include "support.h"

static vt_profile_params trial(void)
{
    vt_profile_params params = vt_profile_params_default();
    params.threads = 2;
    params.trial = true;
    return params;
}

static void everything_has_a_price(void **state)
{
    (void)state;
    vt_profile_params params = trial();
    vt_profile *profile;
    vt_profile_info info;
    vt_error err;
    if (vt_profile_measure(&params, &profile, &err) != VT_OK) fail_msg("%s", err.message);
    assert_null(vti_profile_check(&profile->facts));
    vt_profile_get_info(profile, &info);
    assert_int_equal(info.threads, 2);
    assert_string_equal(info.version, VT_VERSION);
    assert_true(info.accuracy == 0 && strlen(info.name) > 0 && info.cache_bytes > 0);
    for (unsigned k = VTI_PLAN_EMBED + 1; k < VTI_PLAN_KINDS; k++)
        for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (unsigned phase = 0; phase < VTI_PHASES; phase++) {
                float terms[VTI_PROFILE_TERMS + 1];
                double sum = 0;
                vti_profile_terms(&profile->facts.cost[k][p][phase], terms);
                for (unsigned t = 0; t < VTI_PROFILE_TERMS; t++) sum += (double)terms[t];
                assert_true(sum > 0);
            }
    assert_true(vt_profile_is_current(profile, 2));
    assert_false(vt_profile_is_current(profile, 3));

    if (vt_profile_check(profile, &params, &err) != VT_OK) fail_msg("%s", err.message);
    vt_profile_get_info(profile, &info);
    assert_true(info.accuracy > 0 && info.accuracy <= 1);
    strcpy(profile->facts.name, "another processor");
    assert_int_equal(vt_profile_check(profile, &params, &err), VT_ERR_ARGUMENT);
    vt_profile_close(profile);
}

static bool now(void *user) { return ++*(unsigned *)user == 3; }

static void cancelled(void **state)
{
    (void)state;
    vt_profile_params params = trial();
    vt_profile *profile;
    vt_error err;
    unsigned asked = 0;
    params.cancelled = now;
    params.user = &asked;
    assert_int_equal(vt_profile_measure(&params, &profile, &err), VT_ERR_CANCELLED);
    assert_null(profile);
    assert_int_equal(asked, 3);
}

static void progress(void *user, const char *what, uint64_t done, uint64_t total)
{
    uint64_t *last = user;
    assert_non_null(strstr(what, "measuring"));
    assert_true(done >= *last && done <= total);
    *last = done == total ? total : done;
}

static void progress_ends(void **state)
{
    (void)state;
    vt_profile_params params = trial();
    vt_profile *profile;
    uint64_t last = 0;
    params.progress = (vt_progress){progress, &last};
    assert_int_equal(vt_profile_measure(&params, &profile, NULL), VT_OK);
    assert_int_equal(last, 1000);
    vt_profile_close(profile);
}

/* --- fitting ---------------------------------------------------------------------------------- */

/* Times of a machine whose coefficients are known, some of them disturbed. */
static vti_profile_samples made_up(const vti_profile *truth, unsigned disturbed)
{
    test_random random = {0xf17};
    vti_profile_samples s = {.count = 24 * 30};
    s.sample = calloc(s.count, sizeof *s.sample);
    for (size_t i = 0; i < s.count; i++) {
        vti_profile_sample *y = &s.sample[i];
        unsigned group = (unsigned)(i / 30), nth = (unsigned)(i % 30);
        y->kind = VTI_PLAN_EMBED + 1 + group / 6;
        y->precision = group / 2 % 3;
        y->phase = group % 2;
        for (unsigned t = 0; t < VTI_PROFILE_TERMS; t++)
            y->feature[t] = exp((double)test_random_float(&random, 0, 4)) * (t ? 1e3 : 1);
        y->feature[0] = 1;
        y->feature[nth % 2 ? VTI_TERM_WEIGHT_BYTE : VTI_TERM_CACHED_BYTE] = 0;
        y->feature[nth % 2 ? VTI_TERM_KV_BYTE : VTI_TERM_CACHED_KV_BYTE] = 0;
        y->bytes_per_s = nth % 2 ? 0 : 1e9 * (double)(1 + nth % 3);
        y->seconds = vti_profile_predict(truth, y);
        if (nth % 7 < disturbed) y->seconds *= 3;
    }
    return s;
}

static void known_coefficients_are_found(void **state)
{
    (void)state;
    vti_profile truth = {.threads = 1, .bytes_per_s = 2e9f}, fitted = truth;
    for (unsigned k = VTI_PLAN_EMBED + 1; k < VTI_PLAN_KINDS; k++)
        for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (unsigned phase = 0; phase < VTI_PHASES; phase++)
                truth.cost[k][p][phase] = (vti_profile_cost){
                    .fixed = 1e-5f, .per_mac = phase == VTI_PREFILL ? 1e-9f * (float)k : 0,
                    .per_weight_byte = 2e-9f,
                    .per_cached_byte = phase == VTI_PREFILL ? 2e-9f : 0.5e-9f,
                    .per_kv_byte = 1e-9f,
                    .per_cached_kv_byte = phase == VTI_PREFILL ? 1e-9f : 0.3e-9f,
                    .per_kv_mac = 3e-9f * (float)(1 + p)};
    for (unsigned disturbed = 0; disturbed < 2; disturbed++) {
        vti_profile_samples samples = made_up(&truth, disturbed);
        vt_error err;
        if (vti_profile_fit(&samples, &fitted, &err) != VT_OK) fail_msg("%s", err.message);
        assert_true(fabsf(fitted.bytes_per_s / truth.bytes_per_s - 1) < 1e-6f);
        for (size_t i = 0; i < samples.count; i++) {
            vti_profile_sample *y = &samples.sample[i];
            if (y->kind == VTI_PLAN_HEAD) continue; /* of decode in both phases */
            double wanted = vti_profile_predict(&truth, y), got = vti_profile_predict(&fitted, y);
            if (!(fabs(got / wanted - 1) < 0.02))
                fail_msg("sample %zu: %g, not %g", i, got, wanted);
        }
        vti_profile_judge(&fitted, &samples);
        double accuracy = vti_profile_accuracy(&fitted);
        assert_true(disturbed ? accuracy > 0.87 && accuracy < 0.91 : accuracy > 0.99);
        free(samples.sample);
    }
}

/* What takes a byte's time, given how fast memory was meanwhile; no more than 1.7 times off. */
static void memory_is_not_always_as_fast(void **state)
{
    (void)state;
    static const double rate[] = {0, 2e9, 1.6e9, 1e8, 1e12};
    static const double slower[] = {1, 1, 1.25, 1.7, 1 / 1.7};
    vti_profile p = {.threads = 1, .bytes_per_s = 2e9f};
    p.cost[VTI_PLAN_FFN][VTI_PLAN_I8][VTI_DECODE].per_weight_byte = 1e-9f;
    vti_profile_sample s = {.kind = VTI_PLAN_FFN, .precision = VTI_PLAN_I8, .phase = VTI_DECODE};
    s.feature[VTI_TERM_WEIGHT_BYTE] = 1e6;
    for (unsigned i = 0; i < sizeof rate / sizeof *rate; i++) {
        s.bytes_per_s = rate[i];
        assert_true(fabs(vti_profile_predict(&p, &s) / (1e-3 * slower[i]) - 1) < 1e-5);
    }
}

/* Nothing from memory, nothing in the cache, a cache that seems to be slower: one price. */
static void cache_and_memory_share_a_price(void **state)
{
    (void)state;
    for (unsigned lacks = 0; lacks < 3; lacks++) {
        vti_profile truth = {.threads = 1, .bytes_per_s = 2e9f}, fitted = truth;
        vt_error err;
        for (unsigned k = VTI_PLAN_EMBED + 1; k < VTI_PLAN_KINDS; k++)
            for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
                for (unsigned phase = 0; phase < VTI_PHASES; phase++)
                    truth.cost[k][p][phase] = (vti_profile_cost){
                        .fixed = 1e-5f, .per_weight_byte = 2e-9f,
                        .per_cached_byte = lacks == 2 ? 4e-9f : 1e-9f};
        vti_profile_samples samples = made_up(&truth, 0);
        for (size_t i = 0; i < samples.count; i++) {
            vti_profile_sample *y = &samples.sample[i];
            if (lacks == 0) y->feature[VTI_TERM_WEIGHT_BYTE] = 0;
            if (lacks == 1) y->feature[VTI_TERM_CACHED_BYTE] = 0;
            y->seconds = vti_profile_predict(&truth, y);
        }
        if (vti_profile_fit(&samples, &fitted, &err) != VT_OK) fail_msg("%s", err.message);
        const vti_profile_cost *cost = &fitted.cost[VTI_PLAN_FFN][VTI_PLAN_I4][VTI_DECODE];
        assert_true(cost->per_weight_byte > 0.5e-9f);
        assert_true(cost->per_cached_byte == cost->per_weight_byte);
        free(samples.sample);
    }
}

/* --- disturbed measurements ------------------------------------------------------------------- */

static vti_profile plain_truth(void)
{
    vti_profile truth = {.threads = 1, .bytes_per_s = 2e9f};
    for (unsigned k = VTI_PLAN_EMBED + 1; k < VTI_PLAN_KINDS; k++)
        for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (unsigned phase = 0; phase < VTI_PHASES; phase++)
                truth.cost[k][p][phase] = (vti_profile_cost){
                    .fixed = 1e-5f, .per_mac = phase == VTI_PREFILL ? 1e-9f : 0,
                    .per_weight_byte = 0.5e-9f, .per_cached_byte = 0.1e-9f};
    return truth;
}

/* Times that do not depend on the weights at all, as of a device that is busy with others: the
 * weights are not read faster than memory allows, and the other terms explain what they can. */
static void weights_are_not_faster_than_memory(void **state)
{
    (void)state;
    vti_profile truth = plain_truth(), fitted = truth;
    vti_profile_samples samples = made_up(&truth, 0);
    vt_error err;
    for (size_t i = 0; i < samples.count; i++)
        if (samples.sample[i].phase == VTI_DECODE) samples.sample[i].seconds = 3e-5;
    if (vti_profile_fit(&samples, &fitted, &err) != VT_OK) fail_msg("%s", err.message);
    float least = 1 / (1.5f * fitted.bytes_per_s);
    for (unsigned k = VTI_PLAN_EMBED + 1; k < VTI_PLAN_KINDS; k++)
        for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++) {
            const vti_profile_cost *c = &fitted.cost[k][p][VTI_DECODE];
            assert_true(c->per_weight_byte >= 0.999f * least);
            assert_true(c->per_cached_byte < least && c->fixed < 3.01e-5f && c->fixed > 0);
        }
    free(samples.sample);
}

static bool is_delayed(const vti_profile_samples *samples, size_t i)
{
    return i % 30 % 7 < 3 && samples->sample[i].seconds > 0;
}

/* 3 of 7 samples delayed and their repeats 20 % apart: noticed, and all of them found;
 * measured again undisturbed, nothing is left of it. */
static void disturbance_is_noticed_and_repaired(void **state)
{
    (void)state;
    vti_profile truth = plain_truth(), fitted = truth;
    vti_profile_samples quiet = made_up(&truth, 0), busy = made_up(&truth, 3);
    for (size_t i = 0; i < busy.count; i++) {
        if (busy.sample[i].kind == VTI_PLAN_HEAD && busy.sample[i].phase == VTI_PREFILL)
            quiet.sample[i].seconds = busy.sample[i].seconds = 0;
        quiet.sample[i].point = busy.sample[i].point = (uint32_t)i;
        quiet.sample[i].spread = 0.02;
        busy.sample[i].spread = is_delayed(&busy, i) ? 0.2 : 0.02;
    }
    bool *only = calloc(vti_profile_points(&busy), sizeof *only);
    assert_non_null(only);
    assert_int_equal(vti_profile_points(&busy), busy.count);
    assert_int_equal(vti_profile_fit(&quiet, &fitted, NULL), VT_OK);
    assert_true(vti_profile_disturbance(&fitted, &quiet) == 0);
    assert_int_equal(vti_profile_mark(&fitted, &quiet, only), 0);

    assert_int_equal(vti_profile_fit(&busy, &fitted, NULL), VT_OK);
    double off = vti_profile_disturbance(&fitted, &busy);
    assert_true(off > 0.1 && off < 1);
    assert_true(vti_profile_mark(&fitted, &busy, only) > 0);
    for (size_t i = 0; i < busy.count; i++)
        if (is_delayed(&busy, i)) assert_true(only[i]);

    vti_profile_improve(&busy, &quiet);
    assert_int_equal(vti_profile_fit(&busy, &fitted, NULL), VT_OK);
    assert_true(vti_profile_disturbance(&fitted, &busy) == 0);
    free(only);
    free(quiet.sample);
    free(busy.sample);
}

/* Only the points that are asked for, and they have the numbers that they had. */
static void points_are_measured_again(void **state)
{
    (void)state;
    vti_kernels kernels;
    vti_profile_samples all = {.count = 0}, some = {.count = 0};
    vti_sweep_params params = {.kernels = &kernels, .cache_bytes = 1 << 20, .tiny = true};
    vti_kernels_init(&kernels, VTI_CPU_EXACT);
    assert_int_equal(vti_pool_open(1, &params.pool, NULL), VT_OK);
    assert_int_equal(vti_profile_sweep(&params, &all, NULL), VT_OK);
    size_t points = vti_profile_points(&all), wanted = 0;
    bool *only = calloc(points, sizeof *only);
    assert_true(only && points > 7);
    only[5] = only[points - 1] = true;
    params.only = only;
    assert_int_equal(vti_profile_sweep(&params, &some, NULL), VT_OK);
    for (size_t i = 0; i < all.count; i++) {
        if (!only[all.sample[i].point]) continue;
        assert_true(wanted < some.count);
        assert_int_equal(some.sample[wanted].point, all.sample[i].point);
        assert_int_equal(some.sample[wanted].kind, all.sample[i].kind);
        assert_memory_equal(some.sample[wanted++].feature, all.sample[i].feature,
                            sizeof all.sample[i].feature);
    }
    assert_int_equal(wanted, some.count);
    vti_pool_close(params.pool);
    free(only);
    free(all.sample);
    free(some.sample);
}

static void nothing_measured(void **state)
{
    (void)state;
    vti_profile profile = {.threads = 1};
    vti_profile_samples none = {.count = 0};
    assert_int_equal(vti_profile_fit(&none, &profile, NULL), VT_ERR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_has_a_price), cmocka_unit_test(cancelled),
        cmocka_unit_test(progress_ends),          cmocka_unit_test(known_coefficients_are_found),
        cmocka_unit_test(memory_is_not_always_as_fast),
        cmocka_unit_test(cache_and_memory_share_a_price),
        cmocka_unit_test(nothing_measured),
        cmocka_unit_test(weights_are_not_faster_than_memory),
        cmocka_unit_test(disturbance_is_noticed_and_repaired),
        cmocka_unit_test(points_are_measured_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
