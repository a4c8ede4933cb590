/* The sampler: filters, penalty, repeatability, bad input. */
#include "support.h"

#include <math.h>
#include <string.h>

#include "../src/sampler.h"

enum { VOCAB = 50 };

static vti_kernels kernels;

static vti_sampler open_sampler(vt_sampling params)
{
    vti_sampler sampler;
    vt_error err;
    if (vti_sampler_open(&sampler, &params, &kernels, VOCAB, &err) != VT_OK)
        fail_msg("%s", err.message);
    return sampler;
}

static vt_sampling plain(void)
{
    return (vt_sampling){.repeat_penalty = 1, .typical_p = 1, .top_p = 1, .temperature = 1, .seed = 7};
}

static vt_token draw(vti_sampler *sampler, const float *logits)
{
    vt_token token;
    vt_error err;
    if (vti_sampler_draw(sampler, logits, NULL, 0, &token, &err) != VT_OK)
        fail_msg("%s", err.message);
    return token;
}

static void falling(float *logits)
{
    for (int i = 0; i < VOCAB; i++) logits[i] = -0.2f * (float)((i * 7) % VOCAB);
}

/* Counts 20000 draws. */
static void histogram(vt_sampling params, const float *logits, int *counts)
{
    vti_sampler sampler = open_sampler(params);
    memset(counts, 0, VOCAB * sizeof *counts);
    for (int i = 0; i < 20000; i++) counts[draw(&sampler, logits)]++;
    vti_sampler_close(&sampler);
}

static int distinct(const int *counts)
{
    int n = 0;
    for (int i = 0; i < VOCAB; i++) n += counts[i] > 0;
    return n;
}

static void frequencies_follow_softmax(void **state)
{
    (void)state;
    float logits[VOCAB];
    int counts[VOCAB];
    double total = 0;
    falling(logits);
    histogram(plain(), logits, counts);
    for (int i = 0; i < VOCAB; i++) total += exp((double)logits[i]);
    for (int i = 0; i < VOCAB; i++) {
        double p = exp((double)logits[i]) / total, expected = 20000 * p;
        double deviation = sqrt(20000 * p * (1 - p));
        assert_true(fabs(counts[i] - expected) <= 5 * deviation + 1);
    }
}

static void greedy(void **state)
{
    (void)state;
    float logits[VOCAB];
    vt_sampling params = plain();
    params.temperature = 0;
    vti_sampler sampler = open_sampler(params);
    falling(logits);
    logits[13] = 1;
    logits[31] = 1; /* of equals the first */
    for (int i = 0; i < 5; i++) assert_int_equal(draw(&sampler, logits), 13);
    vti_sampler_close(&sampler);
}

static void filters_cut_the_tail(void **state)
{
    (void)state;
    float logits[VOCAB];
    int counts[VOCAB];
    falling(logits);
    vt_sampling params = plain();
    params.top_k = 5;
    histogram(params, logits, counts);
    assert_int_equal(distinct(counts), 5);
    assert_true(counts[0] > 0 && counts[43] > 0); /* 43 * 7 mod 50 = 1: second */

    params = plain();
    params.min_p = 0.5f; /* ln 2 = 0.69: ranks 0 … 3 */
    histogram(params, logits, counts);
    assert_int_equal(distinct(counts), 4);

    /* p of rank r is proportional to e^(-0.2 r): the first four make 55 %, three 45 %. */
    params = plain();
    params.top_p = 0.5f;
    histogram(params, logits, counts);
    assert_int_equal(distinct(counts), 4);

    params.min_p = 0.5f;
    params.top_k = 3;
    histogram(params, logits, counts);
    assert_true(distinct(counts) <= 3);
}

static void temperature_sharpens(void **state)
{
    (void)state;
    float logits[VOCAB];
    int cold[VOCAB], hot[VOCAB];
    falling(logits);
    vt_sampling params = plain();
    params.temperature = 0.2f;
    histogram(params, logits, cold);
    params.temperature = 5;
    histogram(params, logits, hot);
    assert_true(cold[0] > 2 * hot[0]);
}

static void same_seed_same_draws(void **state)
{
    (void)state;
    float logits[VOCAB];
    vt_token first[100];
    falling(logits);
    vti_sampler sampler = open_sampler(plain());
    for (int i = 0; i < 100; i++) first[i] = draw(&sampler, logits);
    vti_sampler_reset(&sampler);
    for (int i = 0; i < 100; i++) assert_int_equal(draw(&sampler, logits), first[i]);
    vti_sampler_close(&sampler);

    vt_sampling other = plain();
    other.seed = 8;
    sampler = open_sampler(other);
    int equal = 0;
    for (int i = 0; i < 100; i++) equal += draw(&sampler, logits) == first[i];
    assert_true(equal < 60);
    vti_sampler_close(&sampler);
}

static void penalty_looks_back(void **state)
{
    (void)state;
    float logits[VOCAB];
    vt_token token;
    vt_sampling params = plain();
    params.temperature = 0;
    params.repeat_penalty = 3;
    params.repeat_last_tokens = 2;
    vti_sampler sampler = open_sampler(params);
    for (int i = 0; i < VOCAB; i++) logits[i] = -5;
    logits[1] = 3;
    logits[2] = 2;
    logits[3] = 1.5f;
    const vt_token history[] = {3, 1, 2}; /* 3 is out of reach; 1 → 1, 2 → 0.67 */
    assert_int_equal(vti_sampler_draw(&sampler, logits, history, 3, &token, NULL), VT_OK);
    assert_int_equal(token, 3);
    for (int i = 0; i < VOCAB; i++) logits[i] = -5;
    logits[1] = -1; /* → -3 */
    logits[2] = -2; /* → -6 */
    logits[4] = -2.9f;
    assert_int_equal(vti_sampler_draw(&sampler, logits, history, 3, &token, NULL), VT_OK);
    assert_int_equal(token, 4);
    vti_sampler_close(&sampler);
}

static void strange_logits(void **state)
{
    (void)state;
    float logits[VOCAB];
    vt_token token;
    vt_error err;
    vti_sampler sampler = open_sampler(plain());
    for (int i = 0; i < VOCAB; i++) logits[i] = NAN;
    assert_int_equal(vti_sampler_draw(&sampler, logits, NULL, 0, &token, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "not finite"));
    logits[17] = -3; /* the only number */
    assert_int_equal(draw(&sampler, logits), 17);
    for (int i = 0; i < VOCAB; i++) logits[i] = -INFINITY;
    logits[4] = 0;
    assert_int_equal(draw(&sampler, logits), 4);
    vti_sampler_close(&sampler);
}

static void refuses(float vt_sampling_value, size_t offset, const char *name)
{
    vt_sampling params = plain();
    vti_sampler sampler;
    vt_error err;
    memcpy((char *)&params + offset, &vt_sampling_value, sizeof vt_sampling_value);
    assert_int_equal(vti_sampler_open(&sampler, &params, &kernels, VOCAB, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, name));
}

static void bad_parameters(void **state)
{
    (void)state;
    refuses(-1, offsetof(vt_sampling, temperature), "temperature");
    refuses(NAN, offsetof(vt_sampling, temperature), "temperature");
    refuses(0, offsetof(vt_sampling, top_p), "top_p");
    refuses(1.5f, offsetof(vt_sampling, top_p), "top_p");
    refuses(-0.1f, offsetof(vt_sampling, min_p), "min_p");
    refuses(0, offsetof(vt_sampling, repeat_penalty), "repeat_penalty");
}

static int set_up(void **state)
{
    (void)state;
    vti_kernels_init(&kernels, ~0u);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_follow_softmax), cmocka_unit_test(greedy),
        cmocka_unit_test(filters_cut_the_tail), cmocka_unit_test(temperature_sharpens),
        cmocka_unit_test(same_seed_same_draws), cmocka_unit_test(penalty_looks_back),
        cmocka_unit_test(strange_logits), cmocka_unit_test(bad_parameters),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
