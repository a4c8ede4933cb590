/* The sampler against an evaluation of the formulas by sorting (sampling_oracle.h), its random
 * numbers, log probabilities, bad input. */
#include "support.h"

#include <math.h>
#include <string.h>

#include <stdlib.h>

#include "../src/sampler.h"
#include "sampling_oracle.h"

enum { VOCAB = 50, LARGE = 152064 };

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
    return (vt_sampling){
        .repeat_penalty = 1, .typical_p = 1, .top_p = 1, .temperature = 1, .seed = 7};
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

/* --- against the oracle ----------------------------------------------------------------------- */

/* Draws once and compares who was left to draw from, and how likely, with the oracle. */
static void compare(vt_sampling params, const float *logits, uint32_t vocab,
                    const vt_token *history, size_t history_count)
{
    vti_sampler s;
    vt_error err;
    vt_token token;
    double *expected = malloc(vocab * sizeof *expected);
    assert_non_null(expected);
    sampling_oracle(&params, logits, vocab, history, history_count, expected);
    if (vti_sampler_open(&s, &params, &kernels, vocab, &err) != VT_OK) fail_msg("%s", err.message);
    if (vti_sampler_draw(&s, logits, history, history_count, &token, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_true(expected[token] > 0);
    const vti_candidates *c = &s.candidates;
    double total = 0;
    for (uint32_t i = 0; i < c->count; i++) total += (double)c->weight[i];
    for (uint32_t i = 0; i < c->count; i++) {
        double p = expected[c->token[i]];
        if (!(p > 0) || fabs((double)c->weight[i] / total - p) > 1e-5 * p + 1e-9)
            fail_msg("token %d: %g, expected %g", c->token[i], (double)c->weight[i] / total, p);
        if (i > 0) assert_true(c->token[i] > c->token[i - 1]);
        expected[c->token[i]] = 0;
    }
    for (uint32_t i = 0; i < vocab; i++)
        if (expected[i] > 0) fail_msg("token %u is missing (p = %g)", i, expected[i]);
    vti_sampler_close(&s);
    free(expected);
}

/* Sum of four uniform numbers: bell-shaped, as logits are. */
static void random_logits(test_random *random, float *logits, uint32_t count, float spread)
{
    for (uint32_t i = 0; i < count; i++) {
        logits[i] = 0;
        for (int j = 0; j < 4; j++) logits[i] += test_random_float(random, -spread, spread);
    }
}

static const float *small_logits(uint64_t seed)
{
    static float logits[VOCAB];
    test_random random = {seed};
    random_logits(&random, logits, VOCAB, 2);
    return logits;
}

static void each_filter(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const float *logits = small_logits(seed);
        test_random random = {seed * 7919};
        float share = test_random_float(&random, 0.01f, 0.999f);
        vt_sampling params = plain();
        compare(params, logits, VOCAB, NULL, 0);
        params.top_k = 1 + (uint32_t)(test_random_u64(&random) % (VOCAB + 5));
        if (params.top_k > 1) compare(params, logits, VOCAB, NULL, 0);
        params = plain();
        params.typical_p = share;
        compare(params, logits, VOCAB, NULL, 0);
        params = plain();
        params.top_p = share;
        compare(params, logits, VOCAB, NULL, 0);
        params = plain();
        params.min_p = share;
        compare(params, logits, VOCAB, NULL, 0);
        params = plain();
        params.temperature = share * 3;
        compare(params, logits, VOCAB, NULL, 0);
    }
}

/* All at once: the order matters. */
static void all_filters(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        const float *logits = small_logits(seed);
        test_random random = {seed * 104729};
        vt_token history[30];
        for (int i = 0; i < 30; i++) history[i] = (vt_token)(test_random_u64(&random) % VOCAB);
        const vt_logit_bias bias[] = {{3, 2.5f}, {4, -INFINITY}, {(vt_token)(seed % VOCAB), -1}};
        vt_sampling params = plain();
        params.logit_bias = bias;
        params.logit_bias_count = 3;
        params.repeat_penalty = test_random_float(&random, 0.5f, 2);
        params.frequency_penalty = test_random_float(&random, -1, 1);
        params.presence_penalty = test_random_float(&random, -1, 1);
        params.repeat_last_tokens = (uint32_t)(test_random_u64(&random) % 40);
        params.top_k = 2 + (uint32_t)(test_random_u64(&random) % VOCAB);
        params.typical_p = test_random_float(&random, 0.3f, 1);
        params.top_p = test_random_float(&random, 0.3f, 1);
        params.min_p = test_random_float(&random, 0, 0.3f);
        params.temperature = test_random_float(&random, 0.2f, 2);
        compare(params, logits, VOCAB, history, 30);
    }
}

static void large_vocabulary(void **state)
{
    (void)state;
    float *logits = malloc(LARGE * sizeof *logits);
    assert_non_null(logits);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        test_random random = {seed};
        random_logits(&random, logits, LARGE, 3);
        if (seed == 3) /* many equals */
            for (int i = 0; i < LARGE; i++) logits[i] = roundf(logits[i]);
        vt_sampling params = plain();
        const uint32_t ks[] = {2, 40, 2048, 2049, 100000, LARGE, LARGE + 1};
        for (int i = 0; i < 7; i++) {
            params.top_k = ks[i];
            compare(params, logits, LARGE, NULL, 0);
        }
        params.top_k = 0;
        params.top_p = 0.9f;
        compare(params, logits, LARGE, NULL, 0);
        if (seed == 3) continue; /* equally far from the entropy is a matter of rounding */
        params.top_p = 1;
        params.typical_p = 0.6f;
        compare(params, logits, LARGE, NULL, 0);
    }
    free(logits);
}

/* Frequencies of 20000 draws with everything on. */
static void draws_follow_the_distribution(void **state)
{
    (void)state;
    int counts[VOCAB];
    double expected[VOCAB];
    const float *logits = small_logits(77);
    vt_sampling params = plain();
    params.top_k = 30;
    params.typical_p = 0.95f;
    params.top_p = 0.9f;
    params.min_p = 0.02f;
    params.temperature = 0.8f;
    histogram(params, logits, counts);
    sampling_oracle(&params, logits, VOCAB, NULL, 0, expected);
    assert_true(distinct(counts) > 5);
    for (int i = 0; i < VOCAB; i++) {
        double deviation = sqrt(20000 * expected[i] * (1 - expected[i]));
        if (fabs(counts[i] - 20000 * expected[i]) > 5 * deviation)
            fail_msg("token %d: %d times, expected %g", i, counts[i], 20000 * expected[i]);
    }
}

static void extreme_temperatures(void **state)
{
    (void)state;
    const float *logits = small_logits(5);
    vt_sampling params = plain();
    params.temperature = 1e-30f;
    vti_sampler sampler = open_sampler(params);
    vt_token best = (vt_token)kernels.argmax(logits, VOCAB);
    for (int i = 0; i < 100; i++) assert_int_equal(draw(&sampler, logits), best);
    vti_sampler_close(&sampler);
}

static void other_parameters_later(void **state)
{
    (void)state;
    const float *logits = small_logits(6);
    vt_token expected[20];
    vt_error err;
    vt_sampling params = plain();
    vti_sampler sampler = open_sampler(params);
    for (int i = 0; i < 20; i++) expected[i] = draw(&sampler, logits);
    vti_sampler_reset(&sampler);
    for (int i = 0; i < 5; i++) draw(&sampler, logits);
    params.top_p = 7;
    assert_int_equal(vti_sampler_set(&sampler, &params, &err), VT_ERR_ARGUMENT);
    params.top_p = 1;
    params.logprobs = 3; /* the random sequence goes on */
    assert_int_equal(vti_sampler_set(&sampler, &params, &err), VT_OK);
    for (int i = 5; i < 20; i++) assert_int_equal(draw(&sampler, logits), expected[i]);
    params.seed++;
    assert_int_equal(vti_sampler_set(&sampler, &params, &err), VT_OK);
    int equal = 0;
    for (int i = 0; i < 20; i++) equal += draw(&sampler, logits) == expected[i];
    assert_true(equal < 15);
    vti_sampler_close(&sampler);
}

/* --- log probabilities ------------------------------------------------------------------------ */

/* They are the model's, whatever bias, penalties, filters and temperature do. */
static void log_probabilities(void **state)
{
    (void)state;
    const float *logits = small_logits(9);
    const vt_logit_bias bias = {11, 50};
    const vt_token history[] = {1, 2, 3};
    double total = 0;
    vt_token token;
    vt_sampling params = plain();
    params.logprobs = 5;
    params.temperature = 0.3f;
    params.logit_bias = &bias;
    params.logit_bias_count = 1;
    params.repeat_penalty = 2;
    params.repeat_last_tokens = 9;
    vti_sampler s = open_sampler(params);
    assert_int_equal(vti_sampler_draw(&s, logits, history, 3, &token, NULL), VT_OK);
    assert_int_equal(token, 11);
    for (int i = 0; i < VOCAB; i++) total += exp((double)logits[i]);
    assert_int_equal(s.drawn.drawn.token, 11);
    assert_true(fabs((double)s.drawn.drawn.logprob - ((double)logits[11] - log(total))) < 1e-5);
    assert_int_equal(s.drawn.top_count, 5);
    for (size_t i = 0; i < 5; i++) {
        vt_logprob top = s.drawn.top[i];
        int better = 0;
        for (int j = 0; j < VOCAB; j++) better += logits[j] > logits[top.token];
        assert_int_equal(better, i);
        assert_true(fabs((double)top.logprob - ((double)logits[top.token] - log(total))) < 1e-5);
    }
    vti_sampler_close(&s);

    params.logprobs = VT_LOGPROBS_MAX; /* more than there are */
    s = open_sampler(params);
    draw(&s, logits);
    assert_int_equal(s.drawn.top_count, VOCAB);
    vti_sampler_close(&s);
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

static void everything_is_excluded(void **state)
{
    (void)state;
    vt_logit_bias bias[VOCAB];
    vt_token token;
    vt_error err;
    for (int i = 0; i < VOCAB; i++) bias[i] = (vt_logit_bias){i, -INFINITY};
    vt_sampling params = plain();
    params.logit_bias = bias;
    params.logit_bias_count = VOCAB;
    vti_sampler s = open_sampler(params);
    assert_int_equal(vti_sampler_draw(&s, small_logits(1), NULL, 0, &token, &err),
                     VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "logit_bias"));
    vti_sampler_close(&s);
    params.logit_bias_count = VOCAB - 1;
    s = open_sampler(params);
    for (int i = 0; i < 10; i++) assert_int_equal(draw(&s, small_logits(2)), VOCAB - 1);
    vti_sampler_close(&s);
}

/* The error names the field and what would be right. */
static void refuses_params(const vt_sampling *params, const char *name, const char *range)
{
    vti_sampler sampler;
    vt_error err;
    assert_int_equal(vti_sampler_open(&sampler, params, &kernels, VOCAB, &err), VT_ERR_ARGUMENT);
    if (!strstr(err.message, name) || !strstr(err.message, range))
        fail_msg("no \"%s\" or \"%s\" in: %s", name, range, err.message);
}

static void refuses(float value, size_t offset, const char *name, const char *range)
{
    vt_sampling params = plain();
    memcpy((char *)&params + offset, &value, sizeof value);
    refuses_params(&params, name, range);
}

static void bad_parameters(void **state)
{
    (void)state;
    refuses(-1, offsetof(vt_sampling, temperature), "temperature", "0 to 100");
    refuses(NAN, offsetof(vt_sampling, temperature), "temperature", "0 to 100");
    refuses(INFINITY, offsetof(vt_sampling, temperature), "temperature", "0 to 100");
    refuses(0, offsetof(vt_sampling, top_p), "top_p", "at most 1");
    refuses(1.5f, offsetof(vt_sampling, top_p), "top_p", "at most 1");
    refuses(0, offsetof(vt_sampling, typical_p), "typical_p", "at most 1");
    refuses(NAN, offsetof(vt_sampling, typical_p), "typical_p", "at most 1");
    refuses(-0.1f, offsetof(vt_sampling, min_p), "min_p", "0 to 1");
    refuses(0, offsetof(vt_sampling, repeat_penalty), "repeat_penalty", "0.01 to 100");
    refuses(NAN, offsetof(vt_sampling, frequency_penalty), "frequency_penalty", "-100 to 100");
    refuses(101, offsetof(vt_sampling, presence_penalty), "presence_penalty", "-100 to 100");
    vt_sampling params = plain();
    params.logprobs = VT_LOGPROBS_MAX + 1;
    refuses_params(&params, "logprobs is 101", "0 to 100");
    params = plain();
    params.logit_bias_count = 1;
    refuses_params(&params, "logit_bias is NULL", "1");
    vt_logit_bias bias = {VOCAB, 0};
    params.logit_bias = &bias;
    refuses_params(&params, "token 50", "0 to 49");
    bias = (vt_logit_bias){7, INFINITY};
    refuses_params(&params, "token 7 is inf", "-inf");
    bias.bias = NAN;
    refuses_params(&params, "token 7 is nan", "-inf");
    bias = (vt_logit_bias){-1, 0};
    refuses_params(&params, "token -1", "0 to 49");
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
        cmocka_unit_test(each_filter), cmocka_unit_test(all_filters),
        cmocka_unit_test(large_vocabulary), cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(extreme_temperatures), cmocka_unit_test(temperature_sharpens),
        cmocka_unit_test(same_seed_same_draws), cmocka_unit_test(other_parameters_later),
        cmocka_unit_test(penalty_looks_back), cmocka_unit_test(log_probabilities),
        cmocka_unit_test(strange_logits), cmocka_unit_test(everything_is_excluded),
        cmocka_unit_test(bad_parameters),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
