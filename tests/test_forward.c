/* The forward pass against itself: batches, positions, threads and cache precisions. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "voltron.h"

/* Two parts of attention (512 positions each), the last one ragged. */
enum { TOKENS = 620, KEPT = 8 };

static const char path[] = "src/assets/stories-4m-f16.gguf";
static vt_token ids[TOKENS];

/* Logits of the last KEPT positions. */
typedef struct tail {
    float *rows; /* KEPT × vocabulary */
    uint32_t vocabulary;
} tail;

static bool keep_tail(void *user, uint32_t position, const float *logits)
{
    tail *t = user;
    if (position >= TOKENS - KEPT)
        memcpy(t->rows + (size_t)(position - (TOKENS - KEPT)) * t->vocabulary, logits,
               t->vocabulary * sizeof *logits);
    return true;
}

/* Feeds all ids in batches of `batch`, the last KEPT ones perhaps one by one. */
static tail run(uint32_t threads, uint32_t batch, bool one_by_one, vt_kv_type kv)
{
    vt_model *model;
    vt_session *session;
    vt_error err;
    vt_model_info info;
    vt_model_params model_params = vt_model_params_default();
    model_params.threads = threads;
    if (vt_model_open(path, &model_params, &model, &err) != VT_OK) fail_msg("%s", err.message);
    vt_model_get_info(model, &info);
    vt_session_params params = vt_session_params_default();
    params.context_tokens = TOKENS;
    params.batch_tokens = batch;
    params.kv_type = kv;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    tail t = {calloc(KEPT * (size_t)info.vocabulary_tokens, sizeof(float)), info.vocabulary_tokens};
    vt_status status = vt_session_feed_logits(session, ids, TOKENS - KEPT, keep_tail, &t, &err);
    if (status == VT_OK && !one_by_one)
        status = vt_session_feed_logits(session, ids + TOKENS - KEPT, KEPT, keep_tail, &t, &err);
    for (int i = 0; one_by_one && i < KEPT && status == VT_OK; i++)
        status = vt_session_feed_logits(session, ids + TOKENS - KEPT + i, 1, keep_tail, &t, &err);
    if (status != VT_OK) fail_msg("%s", err.message);
    vt_session_close(session);
    vt_model_close(model);
    return t;
}

static double worst(tail a, tail b)
{
    double most = 0;
    for (size_t i = 0; i < KEPT * (size_t)a.vocabulary; i++) {
        double difference = fabs((double)a.rows[i] - (double)b.rows[i]);
        if (!(difference <= most)) most = difference;
    }
    return most;
}

/* Decoding splits attention into parts of the positions, prefill does not. */
static void decode_equals_prefill(void **state)
{
    (void)state;
    tail prefill = run(1, 64, false, VT_KV_F32), decode = run(1, 100, true, VT_KV_F32);
    double difference = worst(prefill, decode);
    printf("decode and prefill at position %d: %.2e apart\n", TOKENS, difference);
    assert_true(difference < 1e-4);
    assert_true(difference >= 0);
    free(prefill.rows);
    free(decode.rows);
}

/* The number of threads does not change a bit. */
static void threads_change_nothing(void **state)
{
    (void)state;
    tail one = run(1, 128, true, VT_KV_F16);
    for (uint32_t threads = 2; threads <= 5; threads += 3) {
        tail many = run(threads, 128, true, VT_KV_F16);
        assert_memory_equal(one.rows, many.rows, KEPT * (size_t)one.vocabulary * sizeof(float));
        free(many.rows);
    }
    free(one.rows);
}

/* INT8 is coarser than F16, but not wrong. */
static void cache_precisions(void **state)
{
    (void)state;
    tail exact = run(2, 128, true, VT_KV_F32), half = run(2, 128, true, VT_KV_F16);
    tail byte = run(2, 128, true, VT_KV_Q8);
    double half_error = worst(exact, half), byte_error = worst(exact, byte);
    printf("KV cache: f16 %.2e, q8 %.2e\n", half_error, byte_error);
    assert_true(half_error > 0 && half_error < 2e-2);
    assert_true(byte_error > half_error && byte_error < 0.5);
    free(exact.rows);
    free(half.rows);
    free(byte.rows);
}

static int set_up(void **state)
{
    (void)state;
    test_random random = {2024};
    for (int i = 0; i < TOKENS; i++) ids[i] = (vt_token)(test_random_u64(&random) % 2045);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_equals_prefill),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(cache_precisions),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
