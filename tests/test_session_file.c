/* Session files: what is loaded goes on as if nothing had happened; what is wrong is refused. */
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster_support.h"

static const char default_model[] = "src/assets/stories-4m-f16.gguf";
enum { PROMPT = 40, MORE = 12 };

static char folder[] = "/tmp/voltron-session-XXXXXX";
static char path[64];

static vt_model *open_model(const char *name)
{
    vt_model *model;
    vt_error err;
    if (vt_model_open(name, NULL, &model, &err) != VT_OK) fail_msg("%s", err.message);
    return model;
}

static vt_session *open_session(const vt_model *model, vt_cluster *cluster, vt_kv_type kv,
                                uint32_t context)
{
    vt_session *session;
    vt_error err;
    vt_session_params params = vt_session_params_default();
    params.cluster = cluster;
    params.kv_type = kv;
    params.context_tokens = context;
    params.batch_tokens = 16;
    params.sampling.temperature = 1.2f;
    params.sampling.top_k = 0;
    params.sampling.seed = 99;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    return session;
}

static void feed_prompt(vt_session *session, uint64_t seed)
{
    vt_token ids[PROMPT];
    vt_error err;
    test_random random = {seed};
    for (int i = 0; i < PROMPT; i++) ids[i] = (vt_token)(test_random_u64(&random) % 2045);
    if (vt_session_feed(session, ids, PROMPT, &err) != VT_OK) fail_msg("%s", err.message);
}

static void draw(vt_session *session, vt_token *out, int count)
{
    vt_error err;
    for (int i = 0; i < count; i++)
        if (vt_session_next(session, &out[i], &err) != VT_OK) fail_msg("%s", err.message);
}

static void save(vt_session *session, const void *blob, size_t bytes)
{
    vt_error err;
    if (vt_session_save(session, path, blob, bytes, &err) != VT_OK) fail_msg("%s", err.message);
}

static void load(vt_session *session)
{
    vt_error err;
    if (vt_session_load(session, path, NULL, NULL, &err) != VT_OK) fail_msg("%s", err.message);
}

static void assert_same_history(const vt_session *a, const vt_session *b)
{
    size_t a_count, b_count;
    const vt_token *a_ids = vt_session_history(a, &a_count);
    const vt_token *b_ids = vt_session_history(b, &b_count);
    assert_int_equal(a_count, b_count);
    assert_memory_equal(a_ids, b_ids, a_count * sizeof *a_ids);
}

/* The logits after the newest token, which is computed for it if needed, and more tokens. */
static void assert_same_future(vt_session *a, vt_session *b, uint32_t vocabulary)
{
    const float *a_logits, *b_logits;
    vt_token a_text[MORE], b_text[MORE];
    vt_error err;
    assert_same_history(a, b);
    assert_int_equal(vt_session_logits(a, &a_logits, &err), VT_OK);
    assert_int_equal(vt_session_logits(b, &b_logits, &err), VT_OK);
    assert_memory_equal(a_logits, b_logits, vocabulary * sizeof *a_logits);
    draw(a, a_text, MORE);
    draw(b, b_text, MORE);
    assert_memory_equal(a_text, b_text, sizeof a_text);
}

/* Saves after `drawn` tokens and a rewind by `back`, loads into a session that held something else
 * and compares with the one that was never saved. */
static void goes_on(const char *name, vt_kv_type kv, int drawn, uint32_t back)
{
    vt_token text[MORE];
    vt_error err;
    vt_model *model = open_model(name);
    vt_model_info info;
    vt_model_get_info(model, &info);
    vt_session *first = open_session(model, NULL, kv, 200);
    vt_session *second = open_session(model, NULL, kv, 150);
    feed_prompt(first, 1);
    draw(first, text, drawn);
    if (back) {
        uint32_t kept = (uint32_t)(PROMPT + drawn) - back;
        assert_int_equal(vt_session_rewind(first, kept, &err), VT_OK);
    }
    save(first, NULL, 0);
    feed_prompt(second, 2);
    draw(second, text, 3);
    load(second);
    assert_same_future(first, second, info.vocabulary_tokens);
    vt_session_close(first);
    vt_session_close(second);
    vt_model_close(model);
}

static void next_tokens_are_the_same(void **state)
{
    (void)state;
    for (int kv = VT_KV_F16; kv <= VT_KV_Q8; kv++)
        goes_on(default_model, (vt_kv_type)kv, 0, 0); /* logits of the prompt are saved */
    goes_on(default_model, VT_KV_F16, 11, 0);         /* the newest token is not computed yet */
    goes_on(default_model, VT_KV_F16, 11, 5);
    goes_on(default_model, VT_KV_F16, 11, 11 + 3);
}

static void other_families(void **state)
{
    (void)state;
    static const char *const names[] = {"t-qwen2-odd", "t-llama", "t-gemma3", "t-qwen3",
                                        "t-qwen2moe"};
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "golden/%s.gguf", names[i]);
        const char *file = test_shared_path(name);
        if (!file) skip();
        goes_on(file, VT_KV_F16, 0, 0);
        goes_on(file, VT_KV_Q8, 11, 2);
    }
}

static void empty_session(void **state)
{
    (void)state;
    vt_model *model = open_model(default_model);
    vt_session *first = open_session(model, NULL, VT_KV_F16, 0);
    save(first, "x", 1);
    feed_prompt(first, 3);
    load(first);
    size_t count;
    vt_session_history(first, &count);
    assert_int_equal(count, 0);
    vt_session_close(first);
    vt_model_close(model);
}

static void blob_comes_back(void **state)
{
    (void)state;
    static const char text[] = "messages\0of\xFFthe caller";
    vt_error err;
    const void *blob;
    size_t bytes;
    vt_model *model = open_model(default_model);
    vt_session *session = open_session(model, NULL, VT_KV_F16, 0);
    feed_prompt(session, 1);
    save(session, text, sizeof text);
    assert_int_equal(vt_session_load(session, path, &blob, &bytes, &err), VT_OK);
    assert_int_equal(bytes, sizeof text);
    assert_memory_equal(blob, text, sizeof text);
    save(session, NULL, 0);
    assert_int_equal(vt_session_load(session, path, &blob, &bytes, &err), VT_OK);
    assert_int_equal(bytes, 0);
    assert_null(blob);
    vt_session_close(session);
    vt_model_close(model);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void refuses(vt_session *session, vt_status status, const char *word)
{
    vt_error err;
    size_t before, after;
    vt_session_history(session, &before);
    assert_int_equal(vt_session_load(session, path, NULL, NULL, &err), status);
    vt_session_history(session, &after);
    assert_int_equal(before, after);
    if (!strstr(err.message, word)) fail_msg("no \"%s\" in: %s", word, err.message);
    if (!strstr(err.message, path)) fail_msg("no file name in: %s", err.message);
}

static void wrong_session(void **state)
{
    (void)state;
    const char *other_path = test_shared_path("golden/t-qwen2.gguf");
    vt_model *model = open_model(default_model);
    vt_session *session = open_session(model, NULL, VT_KV_F16, 200);
    vt_session *bytes = open_session(model, NULL, VT_KV_Q8, 200);
    vt_session *small = open_session(model, NULL, VT_KV_F16, PROMPT - 1);
    feed_prompt(session, 1);
    save(session, NULL, 0);
    refuses(bytes, VT_ERR_ARGUMENT, "KV cache of f16");
    refuses(small, VT_ERR_CONTEXT_FULL, "40 tokens");
    if (other_path) {
        vt_model *other = open_model(other_path);
        vt_session *foreign = open_session(other, NULL, VT_KV_F16, 0);
        refuses(foreign, VT_ERR_ARGUMENT, "another model");
        vt_session_close(foreign);
        vt_model_close(other);
    }
    vt_session_close(session);
    vt_session_close(bytes);
    vt_session_close(small);
    vt_model_close(model);
}

static void other_files(void **state)
{
    (void)state;
    vt_error err;
    vt_model *model = open_model(default_model);
    vt_session *session = open_session(model, NULL, VT_KV_F16, 0);
    assert_int_equal(vt_session_load(session, default_model, NULL, NULL, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "not a session file"));
    assert_int_equal(vt_session_load(session, folder, NULL, NULL, &err), VT_ERR_IO);
    assert_int_equal(vt_session_load(session, "/nowhere/x", NULL, NULL, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere/x"));
    assert_int_equal(vt_session_load(session, NULL, NULL, NULL, &err), VT_ERR_ARGUMENT);
    /* Nor is one of them replaced. */
    char other[64];
    size_t bytes;
    snprintf(other, sizeof other, "%s/other", folder);
    FILE *file = fopen(other, "wb");
    assert_true(file && fputs("GGUF and more", file) > 0 && fclose(file) == 0);
    assert_int_equal(vt_session_save(session, other, NULL, 0, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "is not a saved session"));
    unsigned char *kept = test_read_file(other, &bytes);
    assert_string_equal((char *)kept, "GGUF and more");
    free(kept);
    unlink(other);
    vt_session_close(session);
    vt_model_close(model);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void failed_write_keeps_the_old_file(void **state)
{
    (void)state;
    vt_error err;
    vt_model *model = open_model(default_model);
    vt_session *session = open_session(model, NULL, VT_KV_F16, 0);
    feed_prompt(session, 1);
    save(session, "old", 4);
    size_t before_bytes, after_bytes;
    unsigned char *before = test_read_file(path, &before_bytes);
    feed_prompt(session, 2);
    /* A full disk, as far as a process can be told: EFBIG at the limit. */
    struct rlimit old, limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    limit = (struct rlimit){4096, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    vt_status status = vt_session_save(session, path, "new", 4, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, VT_ERR_IO);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, strerror(EFBIG)));
    unsigned char *after = test_read_file(path, &after_bytes);
    assert_int_equal(before_bytes, after_bytes);
    assert_memory_equal(before, after, before_bytes);
    free(before);
    free(after);
    assert_int_equal(vt_session_save(session, "/nowhere/x", NULL, 0, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere/x"));
    assert_int_equal(vt_session_save(session, folder, NULL, 0, &err), VT_ERR_IO);
    assert_int_equal(vt_session_save(session, "/dev/null", NULL, 0, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "/dev/null: it is not a regular file"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* no temporary file is left */
    assert_int_equal(mkdir(folder, 0700), 0);
    vt_session_close(session);
    vt_model_close(model);
}

/* What the link leads to is written, the link stays. */
static void symbolic_link(void **state)
{
    (void)state;
    char link[80];
    struct stat info;
    vt_error err;
    vt_model *model = open_model(default_model);
    vt_session *session = open_session(model, NULL, VT_KV_F16, 0);
    feed_prompt(session, 1);
    save(session, NULL, 0);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("talk.vts", link), 0);
    feed_prompt(session, 2);
    assert_int_equal(vt_session_save(session, link, NULL, 0, &err), VT_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(vt_session_rewind(session, 0, &err), VT_OK);
    load(session);
    size_t count;
    vt_session_history(session, &count);
    assert_int_equal(count, 2 * PROMPT);
    assert_int_equal(unlink(link), 0);
    vt_session_close(session);
    vt_model_close(model);
}

/* --- devices ---------------------------------------------------------------------------------- */

static vt_cluster *open_cluster(const vt_model *model, const test_worker *workers, size_t count,
                                const uint32_t *split)
{
    vt_cluster *cluster;
    vt_error err;
    if (test_cluster_open(model, workers, count, split, split ? count + 1 : 0, &cluster, &err) !=
        VT_OK)
        fail_msg("%s", err.message);
    return cluster;
}

static bool break_off(void *user, uint32_t position, const float *logits)
{
    (void)user;
    (void)logits;
    return position < 20;
}

/* Leaves steps under way. */
static void broken_off_prefill(vt_session *session)
{
    vt_token ids[PROMPT];
    for (int i = 0; i < PROMPT; i++) ids[i] = i;
    assert_int_equal(vt_session_feed_logits(session, ids, PROMPT, break_off, NULL, NULL),
                     VT_ERR_CANCELLED);
}

/* What comes next: logits and tokens. */
typedef struct future {
    float *logits;
    size_t bytes;
    vt_token text[MORE];
} future;

static void look_ahead(vt_session *session, uint32_t vocabulary, future *out)
{
    const float *logits;
    vt_error err;
    if (vt_session_logits(session, &logits, &err) != VT_OK) fail_msg("%s", err.message);
    out->bytes = vocabulary * sizeof *logits;
    out->logits = malloc(out->bytes);
    assert_non_null(out->logits);
    memcpy(out->logits, logits, out->bytes);
    draw(session, out->text, MORE);
}

/* Loads, compares and closes. */
static void expect_future(vt_session *session, const future *expected)
{
    future found;
    load(session);
    look_ahead(session, (uint32_t)(expected->bytes / sizeof(float)), &found);
    assert_memory_equal(found.logits, expected->logits, expected->bytes);
    assert_memory_equal(found.text, expected->text, sizeof found.text);
    free(found.logits);
    vt_session_close(session);
}

/* A session that is never saved, and one on several devices that is saved, closed and loaded: on
 * the same devices, on this one alone, and on other shares of the layers. */
static void on_devices(const char *name, size_t workers, const uint32_t *split,
                       const uint32_t *other_split, int drawn)
{
    test_worker worker[3];
    vt_token text[MORE];
    future expected;
    for (size_t i = 0; i < workers; i++) worker[i] = test_worker_start(0, NULL);
    vt_model *model = open_model(name);
    vt_model_info info;
    vt_model_get_info(model, &info);
    vt_session *session = open_session(model, NULL, VT_KV_F16, 200);
    feed_prompt(session, 1);
    draw(session, text, drawn);
    look_ahead(session, info.vocabulary_tokens, &expected);
    vt_session_close(session);

    vt_cluster *cluster = open_cluster(model, worker, workers, split);
    session = open_session(model, cluster, VT_KV_F16, 200);
    feed_prompt(session, 1);
    draw(session, text, drawn);
    save(session, NULL, 0);
    vt_session_close(session);
    session = open_session(model, cluster, VT_KV_F16, 150);
    broken_off_prefill(session);
    expect_future(session, &expected);
    vt_cluster_close(cluster);

    expect_future(open_session(model, NULL, VT_KV_F16, 150), &expected);
    cluster = open_cluster(model, worker, workers, other_split);
    expect_future(open_session(model, cluster, VT_KV_F16, 0), &expected);
    vt_cluster_close(cluster);
    free(expected.logits);
    vt_model_close(model);
    for (size_t i = 0; i < workers; i++) assert_int_equal(test_worker_end(&worker[i], SIGTERM), 0);
}

static void several_devices(void **state)
{
    (void)state;
    on_devices(default_model, 1, NULL, (const uint32_t[]){0, 6}, 0);
    on_devices(default_model, 2, (const uint32_t[]){0, 2, 4}, (const uint32_t[]){5, 0, 1}, 11);
}

static void sliding_windows_on_devices(void **state)
{
    (void)state;
    const char *gemma = test_shared_path("golden/t-gemma3.gguf");
    if (!gemma) skip();
    on_devices(gemma, 1, NULL, NULL, 5);
}

/* A file that is found damaged before anything was changed, and then a good one. */
static void devices_survive_a_bad_file(void **state)
{
    (void)state;
    vt_token text[MORE];
    size_t bytes;
    test_worker worker = test_worker_start(0, NULL);
    vt_model *model = open_model(default_model);
    vt_model_info info;
    vt_model_get_info(model, &info);
    vt_cluster *cluster = open_cluster(model, &worker, 1, NULL);
    vt_session *session = open_session(model, cluster, VT_KV_F16, 200);
    vt_session *never = open_session(model, NULL, VT_KV_F16, 200);
    feed_prompt(session, 1);
    feed_prompt(never, 1);
    draw(session, text, 5);
    draw(never, text, 5);
    save(session, NULL, 0);
    unsigned char *file = test_read_file(path, &bytes);
    FILE *out = fopen(path, "wb");
    assert_true(out && fwrite(file, 1, bytes - 1, out) == bytes - 1);
    fclose(out);
    refuses(session, VT_ERR_FORMAT, "ends too early");
    assert_same_future(session, never, info.vocabulary_tokens);
    free(file);
    vt_session_close(session);
    vt_session_close(never);
    vt_cluster_close(cluster);
    vt_model_close(model);
    assert_int_equal(test_worker_end(&worker, SIGTERM), 0);
}

static void lost_device(void **state)
{
    (void)state;
    vt_error err;
    test_worker worker = test_worker_start(0, NULL);
    vt_model *model = open_model(default_model);
    vt_cluster *cluster = open_cluster(model, &worker, 1, NULL);
    vt_session *session = open_session(model, cluster, VT_KV_F16, 200);
    feed_prompt(session, 1);
    save(session, "old", 4);
    test_worker_end(&worker, SIGKILL);
    assert_int_equal(vt_session_save(session, path, "new", 4, &err), VT_ERR_NETWORK);
    assert_non_null(strstr(err.message, worker.address));
    vt_session_close(session);
    vt_cluster_close(cluster);
    session = open_session(model, NULL, VT_KV_F16, 200);
    const void *blob;
    assert_int_equal(vt_session_load(session, path, &blob, NULL, &err), VT_OK);
    assert_string_equal(blob, "old");
    vt_session_close(session);
    vt_model_close(model);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/talk.vts", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_tokens_are_the_same), cmocka_unit_test(other_families),
        cmocka_unit_test(empty_session), cmocka_unit_test(blob_comes_back),
        cmocka_unit_test(wrong_session), cmocka_unit_test(other_files),
        cmocka_unit_test(failed_write_keeps_the_old_file),
        cmocka_unit_test(symbolic_link), cmocka_unit_test(several_devices),
        cmocka_unit_test(sliding_windows_on_devices),
        cmocka_unit_test(devices_survive_a_bad_file), cmocka_unit_test(lost_device),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
