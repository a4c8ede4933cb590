/* Clusters of real processes on loopback: the same numbers as one device, and what happens when
 * something goes wrong. */
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_support.h"
#include "cluster_support.h"

static const char default_model[] = "src/assets/stories-4m-f16.gguf";
/* More than t-gemma3's sliding window and the room behind it hold. */
enum { TOKENS = 120 };

static vt_model *open_model(const char *path)
{
    vt_model *model;
    vt_error err;
    if (vt_model_open(path, NULL, &model, &err) != VT_OK) fail_msg("%s", err.message);
    return model;
}

static vt_session *open_session(const vt_model *model, vt_cluster *cluster, uint32_t batch)
{
    vt_session *session;
    vt_error err;
    vt_session_params params = vt_session_params_default();
    params.cluster = cluster;
    params.batch_tokens = batch;
    params.sampling.temperature = 0;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    return session;
}

static void make_ids(vt_token *ids)
{
    test_random random = {42};
    for (int i = 0; i < TOKENS; i++) ids[i] = (vt_token)(test_random_u64(&random) % 2045);
}

/* --- the same numbers ---------------------------------------------------------------------------- */

typedef struct rows {
    float *data;
    uint32_t vocabulary, count;
} rows;

static bool keep(void *user, uint32_t position, const float *logits)
{
    rows *r = user;
    memcpy(r->data + (size_t)position * r->vocabulary, logits, r->vocabulary * sizeof *logits);
    r->count++;
    return true;
}

/* Logits of all positions in batches of 16, then 20 greedy tokens. */
static void run_all(const vt_model *model, vt_cluster *cluster, float *logits, vt_token *text)
{
    vt_token ids[TOKENS];
    vt_error err;
    vt_model_info info;
    make_ids(ids);
    vt_model_get_info(model, &info);
    rows r = {logits, info.vocabulary_tokens, 0};
    vt_session *session = open_session(model, cluster, 16);
    if (vt_session_feed_logits(session, ids, TOKENS, keep, &r, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(r.count, TOKENS);
    for (int i = 0; i < 20; i++)
        if (vt_session_next(session, &text[i], &err) != VT_OK) fail_msg("%s", err.message);
    vt_session_close(session);
}

static void check_devices(const char *path, size_t workers, const uint32_t *split, size_t numbers)
{
    test_worker worker[4];
    vt_error err;
    vt_cluster *cluster;
    vt_token here[20], there[20];
    for (size_t i = 0; i < workers; i++) worker[i] = test_worker_start(0, NULL);
    vt_model *model = open_model(path);
    vt_model_info info;
    vt_model_get_info(model, &info);
    size_t bytes = (size_t)TOKENS * info.vocabulary_tokens * sizeof(float);
    float *one = malloc(bytes), *many = malloc(bytes);
    run_all(model, NULL, one, here);
    if (test_cluster_open(model, worker, workers, split, numbers, &cluster, &err) != VT_OK)
        fail_msg("%s", err.message);
    run_all(model, cluster, many, there);
    assert_memory_equal(one, many, bytes);
    assert_memory_equal(here, there, sizeof here);
    vt_cluster_close(cluster);
    for (size_t i = 0; i < workers; i++) {
        int status = test_worker_end(&worker[i], SIGTERM);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    free(one);
    free(many);
    vt_model_close(model);
}

static void one_to_four_devices(void **state)
{
    (void)state;
    for (size_t workers = 0; workers <= 3; workers++)
        check_devices(default_model, workers, NULL, 0);
}

static void hand_given_splits(void **state)
{
    (void)state;
    check_devices(default_model, 2, (const uint32_t[]){3, 2, 1}, 3);
    check_devices(default_model, 2, (const uint32_t[]){1, 5}, 2);
    check_devices(default_model, 2, (const uint32_t[]){0, 0, 6}, 3);
    check_devices(default_model, 2, (const uint32_t[]){6, 0, 0}, 3);
}

/* t-gemma3 has seven layers, the others two or three: of four devices some may have nothing to do.
 * The second split leaves the main device none. */
static void check_family(const char *name)
{
    const char *path = test_shared_path(name);
    if (!path) skip();
    vt_model_info info;
    vt_model *model = open_model(path);
    vt_model_get_info(model, &info);
    vt_model_close(model);
    check_devices(path, 3, NULL, 0);
    check_devices(path, 2, (const uint32_t[]){0, info.layers - 1, 1}, 3);
}

static void family_qwen2(void **state)
{
    (void)state;
    check_family("golden/t-qwen2.gguf");
    check_family("golden/t-qwen2-odd.gguf");
}

static void family_llama(void **state)
{
    (void)state;
    check_family("golden/t-llama.gguf");
}

static void family_qwen3(void **state)
{
    (void)state;
    check_family("golden/t-qwen3.gguf");
}

static void family_gemma3(void **state)
{
    (void)state;
    check_family("golden/t-gemma3.gguf");
}

static void family_qwen2moe(void **state)
{
    (void)state;
    check_family("golden/t-qwen2moe.gguf");
}

/* Weights without a kernel are converted on the main device: workers hold the same bits. */
static void converted_weights(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/converted.gguf", bench_folder());
    static const char *const types[] = {"q2_k", "q5_1"};
    for (int i = 0; i < 2; i++) {
        char line[256];
        snprintf(line, sizeof line, "BENCH requantize -m %s --type %s -o %s", default_model,
                 types[i], path);
        bench_expect(line, 0, NULL);
        check_devices(path, 2, NULL, 0);
    }
    unlink(path);
}

/* --- conversations --------------------------------------------------------------------------------- */

/* A worker outlives main devices that leave, one of them by SIGKILL. */
static void worker_serves_the_next(void **state)
{
    (void)state;
    test_worker worker = test_worker_start(0, NULL);
    for (int round = 0; round < 3; round++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            vt_cluster *cluster;
            vt_error err;
            vt_token token;
            vt_model *model = open_model(default_model);
            if (test_cluster_open(model, &worker, 1, NULL, 0, &cluster, &err) != VT_OK) _exit(1);
            vt_session *session = open_session(model, cluster, 16);
            if (vt_session_feed(session, (const vt_token[]){5, 6, 7}, 3, &err) != VT_OK) _exit(2);
            if (vt_session_next(session, &token, &err) != VT_OK) _exit(3);
            if (round == 1) kill(getpid(), SIGKILL);
            vt_session_close(session);
            vt_cluster_close(cluster);
            vt_model_close(model);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (round == 1)
            assert_true(WIFSIGNALED(status));
        else
            assert_int_equal(status, 0);
    }
    assert_int_equal(test_worker_end(&worker, SIGTERM), 0);
}

static void sessions_follow_each_other(void **state)
{
    (void)state;
    test_worker worker[2] = {test_worker_start(0, NULL), test_worker_start(0, NULL)};
    vt_model *model = open_model(default_model);
    vt_cluster *cluster;
    vt_session *second;
    vt_error err;
    vt_token ids[TOKENS], first_text[8], text[8];
    make_ids(ids);
    assert_int_equal(test_cluster_open(model, worker, 2, NULL, 0, &cluster, &err), VT_OK);
    vt_session *session = open_session(model, cluster, 8);
    vt_session_params params = vt_session_params_default();
    params.cluster = cluster;
    assert_int_equal(vt_session_open(model, &params, &second, &err), VT_ERR_BUSY);
    assert_int_equal(vt_session_feed(session, ids, TOKENS, &err), VT_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(vt_session_next(session, &first_text[i], &err), VT_OK);

    /* Back to the prompt: the same continuation. */
    assert_int_equal(vt_session_rewind(session, TOKENS, &err), VT_OK);
    for (int i = 0; i < 8; i++) assert_int_equal(vt_session_next(session, &text[i], &err), VT_OK);
    assert_memory_equal(text, first_text, sizeof text);
    vt_session_close(session);

    /* A new session begins empty. */
    session = open_session(model, cluster, 5);
    assert_int_equal(vt_session_feed(session, ids, TOKENS, &err), VT_OK);
    for (int i = 0; i < 8; i++) assert_int_equal(vt_session_next(session, &text[i], &err), VT_OK);
    assert_memory_equal(text, first_text, sizeof text);
    vt_session_close(session);
    vt_cluster_close(cluster);
    vt_model_close(model);
    for (int i = 0; i < 2; i++) assert_int_equal(test_worker_end(&worker[i], SIGTERM), 0);
}

static bool stop_at_once(void *user, uint32_t position, const float *logits)
{
    (void)user;
    (void)logits;
    return position < 3;
}

/* A prefill that is broken off leaves steps under way; what follows is not confused by them. */
static void broken_off_prefill(void **state)
{
    (void)state;
    test_worker worker[2] = {test_worker_start(0, NULL), test_worker_start(0, NULL)};
    vt_model *model = open_model(default_model);
    vt_cluster *cluster;
    vt_error err;
    vt_token ids[TOKENS], expected, token;
    make_ids(ids);
    vt_session *alone = open_session(model, NULL, 2);
    assert_int_equal(vt_session_feed(alone, ids, TOKENS, &err), VT_OK);
    assert_int_equal(vt_session_next(alone, &expected, &err), VT_OK);
    vt_session_close(alone);

    assert_int_equal(test_cluster_open(model, worker, 2, NULL, 0, &cluster, &err), VT_OK);
    vt_session *session = open_session(model, cluster, 2);
    assert_int_equal(vt_session_feed_logits(session, ids, TOKENS, stop_at_once, NULL, &err),
                     VT_ERR_CANCELLED);
    assert_int_equal(vt_session_rewind(session, 0, &err), VT_OK);
    assert_int_equal(vt_session_feed(session, ids, TOKENS, &err), VT_OK);
    assert_int_equal(vt_session_next(session, &token, &err), VT_OK);
    assert_int_equal(token, expected);
    assert_int_equal(vt_session_rewind(session, 0, &err), VT_OK);
    assert_int_equal(vt_session_feed_logits(session, ids, TOKENS, stop_at_once, NULL, &err),
                     VT_ERR_CANCELLED);
    vt_session_close(session);

    session = open_session(model, cluster, 2);
    assert_int_equal(vt_session_feed(session, ids, TOKENS, &err), VT_OK);
    assert_int_equal(vt_session_next(session, &token, &err), VT_OK);
    assert_int_equal(token, expected);
    vt_session_close(session);
    vt_cluster_close(cluster);
    vt_model_close(model);
    for (int i = 0; i < 2; i++) assert_int_equal(test_worker_end(&worker[i], SIGTERM), 0);
}

/* --- trouble --------------------------------------------------------------------------------------- */

/* Ends one of three workers in the middle of a conversation; the error must name it. */
static void lose_worker(int which, int how)
{
    test_worker worker[3];
    for (int i = 0; i < 3; i++) worker[i] = test_worker_start(0, NULL);
    vt_model *model = open_model(default_model);
    vt_cluster *cluster;
    vt_error err = {0};
    vt_token token;
    assert_int_equal(test_cluster_open(model, worker, 3, NULL, 0, &cluster, &err), VT_OK);
    vt_session *session = open_session(model, cluster, 16);
    assert_int_equal(vt_session_feed(session, (const vt_token[]){5, 6, 7}, 3, &err), VT_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(vt_session_next(session, &token, &err), VT_OK);
    kill(worker[which].pid, how);
    vt_status status = VT_OK;
    for (int i = 0; i < 500 && status == VT_OK; i++) status = vt_session_next(session, &token, &err);
    assert_true(status == VT_ERR_NETWORK || status == VT_ERR_REMOTE);
    if (!strstr(err.message, worker[which].address))
        fail_msg("%s is not named: %s", worker[which].address, err.message);
    printf("lost device: %s\n", err.message);
    assert_int_not_equal(vt_session_next(session, &token, &err), VT_OK);
    vt_session_close(session);
    vt_cluster_close(cluster);
    vt_model_close(model);
    for (int i = 0; i < 3; i++) {
        int ended = test_worker_end(&worker[i], SIGTERM);
        assert_true(i == which || ended == 0);
    }
}

static void killed_worker(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) lose_worker(which, SIGKILL);
}

static void stopped_worker(void **state)
{
    (void)state;
    lose_worker(1, SIGSTOP);
}

static void nobody_listens(void **state)
{
    (void)state;
    test_worker worker = test_worker_start(0, NULL), gone = test_worker_start(0, NULL);
    test_worker_end(&gone, SIGKILL);
    vt_model *model = open_model(default_model);
    vt_cluster *cluster;
    vt_error err;
    test_worker both[2] = {worker, gone};
    assert_int_equal(test_cluster_open(model, both, 2, NULL, 0, &cluster, &err), VT_ERR_NETWORK);
    assert_null(cluster);
    assert_non_null(strstr(err.message, gone.address));
    /* The other worker is free again. */
    assert_int_equal(test_cluster_open(model, &worker, 1, NULL, 0, &cluster, &err), VT_OK);
    vt_cluster_close(cluster);
    vt_model_close(model);
    assert_int_equal(test_worker_end(&worker, SIGTERM), 0);
}

static void busy_worker(void **state)
{
    (void)state;
    test_worker worker = test_worker_start(0, NULL);
    vt_model *model = open_model(default_model);
    vt_cluster *cluster, *second;
    vt_error err;
    assert_int_equal(test_cluster_open(model, &worker, 1, NULL, 0, &cluster, &err), VT_OK);
    assert_int_equal(test_cluster_open(model, &worker, 1, NULL, 0, &second, &err), VT_ERR_BUSY);
    assert_non_null(strstr(err.message, worker.address));
    vt_session *session = open_session(model, cluster, 16); /* undisturbed */
    assert_int_equal(vt_session_feed(session, (const vt_token[]){5}, 1, &err), VT_OK);
    vt_session_close(session);
    vt_cluster_close(cluster);
    vt_model_close(model);
    assert_int_equal(test_worker_end(&worker, SIGTERM), 0);
}

static void too_little_memory(void **state)
{
    (void)state;
    test_worker small = test_worker_start(1 << 20, NULL), tight = test_worker_start(9 << 20, NULL);
    vt_model *model = open_model(default_model);
    vt_cluster *cluster;
    vt_session *session;
    vt_error err;
    assert_int_equal(test_cluster_open(model, &small, 1, NULL, 0, &cluster, &err), VT_ERR_MEMORY);
    assert_non_null(strstr(err.message, small.address));
    assert_non_null(strstr(err.message, "short"));
    /* Weights fit, but not with the KV cache of a large context. */
    assert_int_equal(test_cluster_open(model, &tight, 1, NULL, 0, &cluster, &err), VT_OK);
    vt_session_params params = vt_session_params_default();
    params.cluster = cluster;
    params.context_tokens = 100000;
    assert_int_equal(vt_session_open(model, &params, &session, &err), VT_ERR_MEMORY);
    assert_non_null(strstr(err.message, tight.address));
    vt_cluster_close(cluster);
    vt_model_close(model);
    assert_int_equal(test_worker_end(&small, SIGTERM), 0);
    assert_int_equal(test_worker_end(&tight, SIGTERM), 0);
}

static void wrong_splits(void **state)
{
    (void)state;
    vt_model *model = open_model(default_model);
    vt_cluster *cluster;
    vt_error err;
    test_worker nobody = {0, "127.0.0.1:1"};
    const uint32_t sum[] = {3, 4}, many[] = {1, 2, 3};
    assert_int_equal(test_cluster_open(model, &nobody, 1, sum, 2, &cluster, &err),
                     VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "7 layers"));
    assert_int_equal(test_cluster_open(model, &nobody, 1, many, 3, &cluster, &err),
                     VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "3 numbers"));
    vt_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_to_four_devices), cmocka_unit_test(hand_given_splits),
        cmocka_unit_test(family_qwen2), cmocka_unit_test(family_llama),
        cmocka_unit_test(family_qwen3), cmocka_unit_test(family_gemma3),
        cmocka_unit_test(family_qwen2moe), cmocka_unit_test(worker_serves_the_next),
        cmocka_unit_test_setup_teardown(converted_weights, bench_make_folder, bench_remove_folder),
        cmocka_unit_test(sessions_follow_each_other), cmocka_unit_test(broken_off_prefill),
        cmocka_unit_test(killed_worker), cmocka_unit_test(stopped_worker),
        cmocka_unit_test(nobody_listens), cmocka_unit_test(busy_worker),
        cmocka_unit_test(too_little_memory), cmocka_unit_test(wrong_splits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
