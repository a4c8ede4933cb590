/* Logits against references that independent implementations computed in float64. */
#include "support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/model.h"

typedef struct golden {
    const float *reference; /* positions × vocabulary */
    uint32_t positions, vocabulary;
    double worst;           /* largest absolute difference */
    uint32_t wrong_best;    /* positions whose most likely token differs */
    uint32_t seen;
} golden;

static uint32_t best_of(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static bool compare(void *user, uint32_t position, const float *logits)
{
    golden *g = user;
    assert_int_equal(position, g->seen);
    const float *reference = g->reference + (size_t)position * g->vocabulary;
    for (uint32_t i = 0; i < g->vocabulary; i++) {
        double difference = fabs((double)logits[i] - (double)reference[i]);
        if (!(difference <= g->worst) && !isnan(g->worst)) g->worst = difference; /* NaN stays */
    }
    g->wrong_best += best_of(logits, g->vocabulary) != best_of(reference, g->vocabulary);
    g->seen++;
    return true;
}

static vt_token *read_ids(const char *path, size_t *count)
{
    json_t *array = json_load_file(path, 0, NULL);
    assert_true(json_is_array(array));
    *count = json_array_size(array);
    vt_token *ids = malloc(*count * sizeof *ids);
    for (size_t i = 0; i < *count; i++)
        ids[i] = (vt_token)json_integer_value(json_array_get(array, i));
    json_decref(array);
    return ids;
}

/* Feeds the ids in batches of `batch` and checks every position. `features`: what kernels may
 * use. */
static void check(const char *model_path, const char *ids_path, const char *logits_path,
                  uint32_t features, vt_kv_type kv, uint32_t batch, double tolerance)
{
    vt_model *model;
    vt_session *session;
    vt_error err = {0};
    size_t count, bytes;
    vt_token *ids = read_ids(ids_path, &count);
    unsigned char *reference = test_read_file(logits_path, &bytes);
    if (vt_model_open(model_path, NULL, &model, &err) != VT_OK) fail_msg("%s", err.message);
    vti_kernels_init(&model->kernels, features);
    vt_model_info info;
    vt_model_get_info(model, &info);
    assert_int_equal(bytes, count * info.vocabulary_tokens * sizeof(float));
    vt_session_params params = vt_session_params_default();
    params.kv_type = kv;
    params.batch_tokens = batch;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    golden g = {.reference = (const float *)(const void *)reference,
                .positions = (uint32_t)count,
                .vocabulary = info.vocabulary_tokens};
    if (vt_session_feed_logits(session, ids, count, compare, &g, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(g.seen, count);
    printf("%s, %skv %s, batch %u: worst difference %.2e\n", model_path,
           features ? "" : "scalar, ", kv == VT_KV_F32 ? "f32" : "f16", batch, g.worst);
    if (!(g.worst <= tolerance)) fail_msg("worst difference %g > %g", g.worst, tolerance);
    assert_int_equal(g.wrong_best, 0);
    vt_session_close(session);
    vt_model_close(model);
    free(reference);
    free(ids);
}

static const double exact = 2e-4, half = 5e-3;

static void check_shared(const char *name)
{
    char model[64], logits[64];
    snprintf(model, sizeof model, "golden/%s.gguf", name);
    snprintf(logits, sizeof logits, "golden/%s.logits.f32", name);
    const char *model_path = test_shared_path(model);
    if (!model_path) skip();
    const char *logits_path = test_shared_path(logits), *ids = test_shared_path("golden/ids.json");
    static const uint32_t batches[] = {48, 1, 7};
    for (int i = 0; i < 3; i++) {
        check(model_path, ids, logits_path, 0, VT_KV_F32, batches[i], exact);
        check(model_path, ids, logits_path, VTI_CPU_EXACT, VT_KV_F32, batches[i], exact);
        check(model_path, ids, logits_path, VTI_CPU_EXACT, VT_KV_F16, batches[i], half);
    }
    check(model_path, ids, logits_path, VTI_CPU_EXACT, VT_KV_F16, 0, half);
}

static void qwen2(void **state)
{
    (void)state;
    check_shared("t-qwen2");
}

static void qwen2_odd(void **state)
{
    (void)state;
    check_shared("t-qwen2-odd");
}

static void llama(void **state)
{
    (void)state;
    check_shared("t-llama");
}

/* The window is 32 tokens: most of the positions are beyond it. */
static void gemma3(void **state)
{
    (void)state;
    check_shared("t-gemma3");
}

static void qwen3(void **state)
{
    (void)state;
    check_shared("t-qwen3");
}

static void qwen2moe(void **state)
{
    (void)state;
    check_shared("t-qwen2moe");
}

static void default_model(void **state)
{
    (void)state;
    const char *model = "src/assets/stories-4m-f16.gguf", *ids = "tests/data/default-ids.json",
               *logits = "tests/data/default.logits.f32";
    check(model, ids, logits, VTI_CPU_EXACT, VT_KV_F32, 0, exact);
    check(model, ids, logits, VTI_CPU_EXACT, VT_KV_F32, 5, exact);
    check(model, ids, logits, VTI_CPU_EXACT, VT_KV_F16, 0, half);
}

/* The comparison itself must be able to fail. */
static void comparison_notices(void **state)
{
    (void)state;
    float reference[4] = {0, 1, 2, 3}, logits[4] = {0, 1, 2, 3};
    golden g = {.reference = reference, .positions = 1, .vocabulary = 4};
    compare(&g, 0, logits);
    assert_true(g.worst == 0 && g.wrong_best == 0);
    logits[3] = 1.5f;
    g.seen = 0;
    compare(&g, 0, logits);
    assert_true(g.worst == 1.5 && g.wrong_best == 1);
    logits[0] = NAN;
    g.seen = 0;
    compare(&g, 0, logits);
    assert_true(isnan(g.worst));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparison_notices), cmocka_unit_test(default_model),
        cmocka_unit_test(qwen2), cmocka_unit_test(qwen2_odd), cmocka_unit_test(llama),
        cmocka_unit_test(gemma3), cmocka_unit_test(qwen3), cmocka_unit_test(qwen2moe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
