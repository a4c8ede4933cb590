/* Sliding windows: what the KV cache drops was not needed; what was dropped and is needed after
 * all is computed again. */
#include "support.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/kv_cache.h"
#include "cluster_support.h"
#include "model_builder.h"

/* The window is 8, the room behind it 8 tokens or a batch: the rows move many times. */
enum { TOKENS = 300, V = TEST_MODEL_TOKENS };

static vt_token ids[TOKENS];
static unsigned char *file;
static vt_model *model;

static vt_session *open_session(vt_cluster *cluster, uint32_t context, uint32_t batch,
                                vt_kv_type kv)
{
    vt_session *session;
    vt_error err;
    vt_session_params params = vt_session_params_default();
    params.cluster = cluster;
    params.context_tokens = context;
    params.batch_tokens = batch;
    params.kv_type = kv;
    params.sampling.temperature = 0;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    return session;
}

static bool keep(void *user, uint32_t position, const float *logits)
{
    memcpy((float *)user + (size_t)position * V, logits, V * sizeof *logits);
    return true;
}

static void feed(vt_session *session, uint32_t first, uint32_t count, float *logits)
{
    vt_error err;
    if (vt_session_feed_logits(session, ids + first, count, keep, logits, &err) != VT_OK)
        fail_msg("%s", err.message);
}

static float *new_logits(void) { return calloc((size_t)TOKENS * V, sizeof(float)); }

static double apart(const float *a, const float *b, uint32_t first, uint32_t end)
{
    double most = 0;
    for (size_t i = (size_t)first * V; i < (size_t)end * V; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= most)) most = difference;
    }
    return most;
}

/* With one batch for everything nothing is ever dropped. */
static float *whole(vt_kv_type kv)
{
    float *logits = new_logits();
    vt_session *session = open_session(NULL, TOKENS, TOKENS, kv);
    feed(session, 0, TOKENS, logits);
    vt_session_close(session);
    return logits;
}

static void moving_rows(void **state)
{
    (void)state;
    for (vt_kv_type kv = VT_KV_F16; kv <= VT_KV_Q8; kv++) {
        float *expected = whole(kv), *logits = new_logits();
        /* Attention of a prefill works on 16 tokens at once: multiples of it give the same bits. */
        for (uint32_t batch = 16; batch <= 64; batch += 16) {
            vt_session *session = open_session(NULL, TOKENS, batch, kv);
            feed(session, 0, TOKENS, logits);
            assert_memory_equal(expected, logits, (size_t)TOKENS * V * sizeof *logits);
            vt_session_close(session);
        }
        for (uint32_t batch = 1; batch <= 7; batch += 6) {
            vt_session *session = open_session(NULL, TOKENS, batch, kv);
            feed(session, 0, TOKENS, logits);
            double difference = apart(expected, logits, 0, TOKENS);
            if (!(difference < (kv == VT_KV_F32 ? 1e-4 : 0.3)))
                fail_msg("kv %d, batch %u: %g", kv, batch, difference);
            vt_session_close(session);
        }
        free(expected);
        free(logits);
    }
}

/* A mask that is off by one would be noticed: the window matters, to the token. */
static void window_is_exact(void **state)
{
    (void)state;
    float *expected = whole(VT_KV_F32), *logits = new_logits();
    for (uint32_t window = 7; window <= 9; window++) {
        test_model shape = test_model_of("gemma3");
        size_t bytes;
        vt_error err;
        shape.window = window;
        unsigned char *other = test_model_build(&shape, &bytes);
        vt_model *before = model;
        assert_int_equal(vt_model_open_memory(other, bytes, NULL, &model, &err), VT_OK);
        vt_session *session = open_session(NULL, TOKENS, 32, VT_KV_F32);
        feed(session, 0, TOKENS, logits);
        vt_session_close(session);
        vt_model_close(model);
        model = before;
        free(other);
        /* Up to its end the window hides nothing. */
        assert_true(apart(expected, logits, 0, 7) < 1e-5);
        double difference = apart(expected, logits, 9, TOKENS);
        assert_true(window == 8 ? difference == 0 : difference > 1e-3);
    }
    free(expected);
    free(logits);
}

/* Back by `back` tokens after `count`, then on with other tokens. */
static void check_rewind(vt_cluster *cluster, uint32_t count, uint32_t back)
{
    float *expected = new_logits(), *logits = new_logits();
    vt_error err;
    vt_session *session = open_session(NULL, TOKENS, 16, VT_KV_F16);
    feed(session, 0, count - back, expected);
    feed(session, count, 20, expected);
    vt_session_close(session);
    session = open_session(cluster, TOKENS, 16, VT_KV_F16);
    feed(session, 0, count, logits);
    if (vt_session_rewind(session, count - back, &err) != VT_OK) fail_msg("%s", err.message);
    feed(session, count, 20, logits);
    size_t history;
    vt_session_history(session, &history);
    assert_int_equal(history, count - back + 20);
    double difference = apart(expected, logits, count - back, count - back + 20);
    if (!(difference < 0.02)) fail_msg("%u tokens, back by %u: %g", count, back, difference);
    vt_session_close(session);
    free(expected);
    free(logits);
}

static void rewinding(void **state)
{
    (void)state;
    for (uint32_t count = 20; count < 70; count += 7)
        for (uint32_t back = 1; back <= 20; back += count % 2 + 1) check_rewind(NULL, count, back);
    check_rewind(NULL, 250, 249);
    check_rewind(NULL, 250, 250);
}

static void rewinding_in_a_cluster(void **state)
{
    (void)state;
    test_worker workers[2];
    for (int i = 0; i < 2; i++) workers[i] = test_worker_start(0, NULL);
    vt_cluster *cluster;
    vt_error err;
    if (test_cluster_open(model, workers, 2, NULL, 0, &cluster, &err) != VT_OK)
        fail_msg("%s", err.message);
    for (uint32_t back = 1; back <= 40; back += 3) check_rewind(cluster, 100, back);
    vt_cluster_close(cluster);
    for (int i = 0; i < 2; i++) assert_int_equal(test_worker_end(&workers[i], SIGTERM), 0);
}

typedef struct stopper {
    float *logits;
    uint32_t at;
} stopper;

static bool stop_at(void *user, uint32_t position, const float *logits)
{
    stopper *s = user;
    keep(s->logits, position, logits);
    return position < s->at;
}

/* When a prefill is broken off in a cluster, this device's layers have run ahead of what came
 * back. */
static void broken_off_in_a_cluster(void **state)
{
    (void)state;
    float *expected = new_logits();
    stopper s = {new_logits(), 0};
    test_worker worker = test_worker_start(0, NULL);
    vt_cluster *cluster;
    vt_error err;
    vt_session *session = open_session(NULL, TOKENS, 16, VT_KV_F32);
    feed(session, 0, TOKENS, expected);
    vt_session_close(session);
    if (test_cluster_open(model, &worker, 1, NULL, 0, &cluster, &err) != VT_OK)
        fail_msg("%s", err.message);
    session = open_session(cluster, TOKENS, 16, VT_KV_F32);
    for (uint32_t at = 10; at < 200; at += 50) {
        s.at = at;
        assert_int_equal(vt_session_feed_logits(session, ids, TOKENS, stop_at, &s, &err),
                         VT_ERR_CANCELLED);
        assert_int_equal(vt_session_rewind(session, at, &err), VT_OK);
        if (vt_session_feed(session, ids + at, TOKENS - at, &err) != VT_OK)
            fail_msg("%s", err.message);
        const float *last;
        assert_int_equal(vt_session_logits(session, &last, &err), VT_OK);
        for (int i = 0; i < V; i++)
            assert_true(fabsf(last[i] - expected[(size_t)(TOKENS - 1) * V + (size_t)i]) < 1e-3f);
        assert_int_equal(vt_session_rewind(session, 0, &err), VT_OK);
    }
    vt_session_close(session);
    vt_cluster_close(cluster);
    assert_int_equal(test_worker_end(&worker, SIGTERM), 0);
    free(expected);
    free(s.logits);
}

/* Rows that a window no longer needs are not in the file either. */
static void session_files(void **state)
{
    (void)state;
    char path[] = "/tmp/voltron-window-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    for (uint32_t count = 5; count < 200; count += 48) {
        vt_token here[30], there[30];
        vt_error err;
        vt_session *session = open_session(NULL, TOKENS, 16, VT_KV_F16);
        assert_int_equal(vt_session_feed(session, ids, count, &err), VT_OK);
        if (vt_session_save(session, path, NULL, 0, &err) != VT_OK) fail_msg("%s", err.message);
        for (int i = 0; i < 30; i++)
            assert_int_equal(vt_session_next(session, &here[i], &err), VT_OK);
        vt_session_close(session);
        session = open_session(NULL, 250, 32, VT_KV_F16);
        assert_int_equal(vt_session_feed(session, ids, 77, &err), VT_OK);
        if (vt_session_load(session, path, NULL, NULL, &err) != VT_OK) fail_msg("%s", err.message);
        for (int i = 0; i < 30; i++)
            assert_int_equal(vt_session_next(session, &there[i], &err), VT_OK);
        assert_memory_equal(here, there, sizeof here);
        /* Back into what the file did not have. */
        assert_int_equal(vt_session_rewind(session, 3, &err), VT_OK);
        assert_int_equal(vt_session_next(session, &there[0], &err), VT_OK);
        assert_int_equal(vt_session_rewind(session, 3, &err), VT_OK);
        if (vt_session_save(session, path, NULL, 0, &err) != VT_OK) fail_msg("%s", err.message);
        vt_session_close(session);
    }
    unlink(path);
}

/* --- memory ---------------------------------------------------------------------------------- */

static void only_the_window_is_kept(void **state)
{
    (void)state;
    vt_session_params params = vt_session_params_default();
    vt_memory_need need;
    params.context_tokens = TOKENS;
    params.batch_tokens = 16;
    vt_model_memory(model, &params, &need);
    /* 5 local layers: 8 + 16 - 1 rows; 2 KV heads, 32 halves, keys and values. */
    assert_int_equal(need.kv_bytes, (5 * 23 + TOKENS) * 2 * 2 * 32 * 2);
    vt_session *session = open_session(NULL, TOKENS, 16, VT_KV_F16);
    vt_session_stats stats;
    vt_session_get_stats(session, &stats);
    assert_int_equal(stats.kv_bytes, need.kv_bytes);
    vt_session_close(session);
    params.context_tokens = 10;
    vt_model_memory(model, &params, &need);
    assert_int_equal(need.kv_bytes, 6 * 10 * 2 * 2 * 32 * 2);
}

/* A cache of some layers knows which of them are local. */
static void layers_of_a_stage(void **state)
{
    (void)state;
    vti_kernels kernels;
    vti_kernels_init(&kernels, 0);
    const vti_hparams hparams = {.layers = 13, .kv_heads = 2, .head_dim = 16, .window = 8,
                                 .window_period = 6};
    for (uint32_t first = 0; first < 13; first++) {
        vti_kv_params p = {&kernels, &hparams, first, 13 - first, 100, 4, VT_KV_F32};
        uint64_t rows = 0;
        for (uint32_t layer = first; layer < 13; layer++)
            rows += layer % 6 == 5 ? 100 : 8 + 8 - 1;
        assert_int_equal(vti_kv_cache_bytes(&p), rows * 2 * 2 * 16 * 4);
    }
}

/* Every row that a query of a local layer sees is where it was put, whatever steps came before. */
static void rows_stay_themselves(void **state)
{
    (void)state;
    vti_kernels kernels;
    vti_kernels_init(&kernels, 0);
    const vti_hparams hparams = {.layers = 6, .kv_heads = 1, .head_dim = 2, .window = 8,
                                 .window_period = 6};
    vti_kv_params p = {&kernels, &hparams, 0, 6, 4000, 12, VT_KV_F32};
    vti_kv_cache cache;
    vt_error err;
    test_random random = {77};
    uint32_t end = 0, recomputed = 0;
    assert_int_equal(vti_kv_cache_open(&cache, &p, &err), VT_OK);
    for (int step = 0; step < 3000; step++) {
        if (test_random_u64(&random) % 4 == 0) {
            uint32_t back = (uint32_t)(test_random_u64(&random) % 30);
            uint32_t wanted = end > back ? end - back : 0;
            end = vti_kv_cache_resume(&cache, wanted);
            assert_true(end == wanted || end == 0);
            recomputed += end != wanted;
        }
        uint32_t tokens = 1 + (uint32_t)(test_random_u64(&random) % 12);
        if (end + tokens > 4000) end = 0;
        vti_kv_cache_make_room(&cache, NULL, end, tokens);
        for (uint32_t t = 0; t < tokens; t++)
            for (uint32_t layer = 0; layer < 6; layer++) {
                float row[2] = {(float)(end + t), (float)layer};
                vti_kv_cache_store(&cache, layer, end + t, row, row);
            }
        for (uint32_t at = end >= 7 ? end - 7 : 0; at < end + tokens; at++)
            for (uint32_t layer = 0; layer < 6; layer++) {
                const float *row = vti_kv_cache_rows(&cache, layer, VTI_KV_VALUES, 0, at);
                assert_true(row[0] == (float)at && row[1] == (float)layer);
            }
        end += tokens;
    }
    assert_true(recomputed > 10);
    vti_kv_cache_close(&cache);
}

static int set_up(void **state)
{
    (void)state;
    test_model shape = test_model_of("gemma3");
    test_random random = {31};
    size_t bytes;
    vt_error err;
    vt_model_params params = vt_model_params_default();
    params.threads = 1; /* workers are forked from this process */
    for (int i = 0; i < TOKENS; i++) ids[i] = (vt_token)(test_random_u64(&random) % V);
    file = test_model_build(&shape, &bytes);
    return vt_model_open_memory(file, bytes, &params, &model, &err) != VT_OK;
}

static int tear_down(void **state)
{
    (void)state;
    vt_model_close(model);
    free(file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewinding_in_a_cluster),
        cmocka_unit_test(broken_off_in_a_cluster),
        cmocka_unit_test(moving_rows),
        cmocka_unit_test(window_is_exact),
        cmocka_unit_test(rewinding),
        cmocka_unit_test(session_files),
        cmocka_unit_test(only_the_window_is_kept),
        cmocka_unit_test(layers_of_a_stage),
        cmocka_unit_test(rows_stay_themselves),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
