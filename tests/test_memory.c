/* A device's memory end to end: what sessions take from the budget, what the system says about it,
 * and what happens when there is too little. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_support.h"
#include "voltron.h"

enum { MEBI = 1 << 20, CONTEXT = 512 };

static const char default_model[] = "src/assets/stories-4m-f16.gguf";

static vt_model *open_model(const char *path, uint64_t memory_bytes, const char *precision)
{
    vt_model *model;
    vt_error err;
    vt_model_params params = vt_model_params_default();
    params.threads = 2;
    params.memory_bytes = memory_bytes;
    params.precision = precision;
    if (vt_model_open(path, &params, &model, &err) != VT_OK) fail_msg("%s", err.message);
    return model;
}

static vt_memory_usage usage_of(const vt_model *model)
{
    vt_memory_usage usage;
    vt_model_get_memory(model, &usage);
    return usage;
}

/* --- sums ------------------------------------------------------------------------------------ */

static void sessions_take_and_give(void **state)
{
    (void)state;
    vt_model *model = open_model(default_model, (uint64_t)256 * MEBI, NULL);
    vt_memory_usage empty = usage_of(model);
    assert_int_equal(empty.limit_bytes, 256 * MEBI);
    assert_int_equal(empty.used_bytes, 0);
    vt_session_params params = vt_session_params_default();
    params.context_tokens = 300;
    params.batch_tokens = 40;
    vt_memory_need need;
    vt_model_memory(model, &params, &need);
    vt_session *one, *two;
    vt_error err;
    assert_int_equal(vt_session_open(model, &params, &one, &err), VT_OK);
    vt_memory_usage first = usage_of(model);
    /* Weights in whole pages, the last of them in a huge one. */
    assert_in_range(first.weight_bytes, need.weight_bytes, need.weight_bytes * 21 / 20 + 2 * MEBI);
    assert_int_equal(first.kv_bytes, need.kv_bytes);
    assert_int_equal(first.scratch_bytes, need.scratch_bytes);
    assert_int_equal(first.wire_bytes | first.cache_bytes, 0);
    assert_int_equal(first.used_bytes, first.weight_bytes + first.kv_bytes + first.scratch_bytes);
    assert_int_equal(vt_session_open(model, &params, &two, &err), VT_OK);
    vt_memory_usage both = usage_of(model);
    assert_int_equal(both.weight_bytes, first.weight_bytes);
    assert_int_equal(both.kv_bytes, 2 * need.kv_bytes);
    assert_int_equal(both.scratch_bytes, 2 * need.scratch_bytes);
    vt_session_close(one);
    vt_session_close(two);
    vt_memory_usage after = usage_of(model);
    assert_int_equal(after.used_bytes, first.weight_bytes);
    assert_int_equal(after.peak_bytes, both.used_bytes);
    vt_model_close(model);
}

static bool keep_none(void *user, uint32_t position, const float *logits)
{
    (void)user, (void)position, (void)logits;
    return true;
}

static void all_logits_take_more(void **state)
{
    (void)state;
    vt_model *model = open_model(default_model, 0, NULL);
    vt_session *session;
    vt_error err;
    vt_model_info info;
    vt_model_get_info(model, &info);
    assert_int_equal(vt_session_open(model, NULL, &session, &err), VT_OK);
    uint64_t before = usage_of(model).scratch_bytes;
    const vt_token tokens[] = {1, 2, 3};
    assert_int_equal(vt_session_feed_logits(session, tokens, 3, keep_none, NULL, &err), VT_OK);
    assert_int_equal(usage_of(model).scratch_bytes - before, 15 * 4 * info.vocabulary_tokens);
    vt_session_close(session);
    assert_int_equal(usage_of(model).scratch_bytes, 0);
    vt_model_close(model);
}

/* --- limits ---------------------------------------------------------------------------------- */

/* One byte less than is needed is refused with every part in the sentence and nothing taken; room
 * for whole pages is enough. */
static void needs_are_exact(void **state)
{
    (void)state;
    vt_session_params params = vt_session_params_default();
    params.context_tokens = 2000;
    vt_memory_need need;
    vt_model *model = open_model(default_model, 0, NULL);
    vt_model_memory(model, &params, &need);
    vt_model_close(model);
    uint64_t sum = need.weight_bytes + need.kv_bytes + need.scratch_bytes;
    vt_session *session;
    vt_error err;
    model = open_model(default_model, sum - 1, NULL);
    assert_int_equal(vt_session_open(model, &params, &session, &err), VT_ERR_MEMORY);
    assert_null(session);
    static const char *const parts[] = {"2000 tokens", "weights", "KV cache", "scratch",
                                        "missing", "smaller context", "q8"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(err.message, parts[i])) fail_msg("no \"%s\" in: %s", parts[i], err.message);
    assert_int_equal(usage_of(model).used_bytes, 0);
    /* The same model with a context that fits. */
    params.context_tokens = 1000;
    assert_int_equal(vt_session_open(model, &params, &session, &err), VT_OK);
    vt_session_close(session);
    vt_model_close(model);

    model = open_model(default_model, sum + sum / 20, NULL);
    params.context_tokens = 2000;
    assert_int_equal(vt_session_open(model, &params, &session, &err), VT_OK);
    assert_true(usage_of(model).used_bytes <= sum + sum / 20);
    vt_session_close(session);
    vt_model_close(model);
}

/* Where the weights alone are too large, a smaller context is no help. */
static void weights_too_large(void **state)
{
    (void)state;
    vt_model *model = open_model(default_model, 2 * MEBI, NULL);
    vt_session *session;
    vt_error err;
    assert_int_equal(vt_session_open(model, NULL, &session, &err), VT_ERR_MEMORY);
    assert_non_null(strstr(err.message, "weights of fewer bits, more devices or"));
    vt_model_close(model);
}

static void limits_of_programs(void **state)
{
    (void)state;
    const char *bin = test_bin_folder();
    static const struct {
        const char *options;
        int code;
        const char *text;
    } cases[] = {
        {"--memory 3M", 6, "missing"},
        {"--memory 40M -c 100000", 6, "smaller context"},
        {"--memory 64M -v", 0, "of 64.0 MiB: weights"},
        {"--memory 0.1", 2, "--memory"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[512], text[4096];
        snprintf(line, sizeof line, "%s '%s/voltron-run' run -p Once -n 2 %s 2>&1",
                 test_runner(), bin, cases[i].options);
        FILE *pipe = popen(line, "r");
        assert_non_null(pipe);
        size_t bytes = fread(text, 1, sizeof text - 1, pipe);
        text[bytes] = 0;
        int status = pclose(pipe);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != cases[i].code ||
            !strstr(text, cases[i].text))
            fail_msg("%s: status %#x, text: %s", cases[i].options, (unsigned)status, text);
    }
}

/* --- what the system says -------------------------------------------------------------------- */

/* Sanitizers and emulators have memory of their own. */
static void skip_unless_native(void)
{
    bool native = true;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    native = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    native = false;
#endif
#endif
    if (native && !test_is_emulated() && access("/proc/self/smaps_rollup", R_OK) == 0) return;
    printf("NOTICE skipped: resident memory is not the program's own here\n");
    skip();
}

/* Bytes that are resident and no file's. */
static int64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[128];
    long kib = -1;
    while (file && kib < 0 && fgets(line, sizeof line, file))
        sscanf(line, "Anonymous: %ld kB", &kib);
    if (file) fclose(file);
    return (int64_t)kib * 1024;
}

typedef struct run_case {
    const char *precision;
    vt_kv_type kv_type;
} run_case;

typedef struct run_result {
    vt_status status;
    int64_t resident, used; /* with a full context */
    int64_t resident_after; /* with the session closed: weights */
    int64_t used_after;
    vt_error err;
} run_result;

static vt_status fill_context(vt_session *session, vt_error *err)
{
    vt_token tokens[CONTEXT];
    for (int i = 0; i < CONTEXT; i++) tokens[i] = i % 500;
    vt_status status = vt_session_feed(session, tokens, CONTEXT - 1, err);
    vt_token next; /* through the sampler, too */
    return status == VT_OK ? vt_session_next(session, &next, err) : status;
}

/* In a process of its own: nothing else comes and goes there. */
static run_result run_model(const char *path, const run_case *c)
{
    run_result r = {.status = VT_ERR_INTERNAL};
    vt_error err = {0};
    vt_model *model = NULL;
    vt_session *session = NULL;
    vt_model_params params = vt_model_params_default();
    params.threads = 2;
    params.memory_bytes = (uint64_t)400 * MEBI;
    params.precision = c->precision;
    vt_session_params session_params = vt_session_params_default();
    session_params.context_tokens = CONTEXT;
    session_params.kv_type = c->kv_type;
    int64_t base = resident_bytes();
    r.status = vt_model_open(path, &params, &model, &err);
    if (r.status == VT_OK) r.status = vt_session_open(model, &session_params, &session, &err);
    if (r.status == VT_OK) r.status = fill_context(session, &err);
    if (r.status == VT_OK) {
        r.used = (int64_t)usage_of(model).used_bytes;
        r.resident = resident_bytes() - base;
        vt_session_close(session);
        r.used_after = (int64_t)usage_of(model).used_bytes;
        r.resident_after = resident_bytes() - base;
        vt_model_close(model);
    }
    r.err = err;
    return r;
}

static run_result run_in_child(const char *path, const run_case *c)
{
    int ends[2];
    run_result r = {.status = VT_ERR_INTERNAL};
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        r = run_model(path, c);
        _exit(write(ends[1], &r, sizeof r) == sizeof r ? 0 : 1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &r, sizeof r), sizeof r);
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return r;
}

/* What no category has: vocabulary, directory of the file, threads. */
enum { CONSTANT = MEBI };

static void check_close(const char *what, int64_t resident, int64_t used)
{
    if (resident < used - used / 20 || resident > used + used / 20 + CONSTANT)
        fail_msg("%s: %.1f MiB are accounted, %.1f MiB resident", what, (double)used / MEBI,
                 (double)resident / MEBI);
}

static void resident_is_what_is_accounted(void **state)
{
    (void)state;
    skip_unless_native();
    static const struct {
        const char *shape;
        run_case run;
    } cases[] = {
        {"--shape qwen2.5-0.5b --layers 4 --vocab 8000 --type f16", {NULL, VT_KV_F16}},
        {"--shape qwen2.5-0.5b --layers 4 --vocab 8000 --type f16", {"I4", VT_KV_Q8}},
        {"--shape qwen1.5-moe-a2.7b --layers 2 --experts 4 --vocab 4000 --type q8_0",
         {NULL, VT_KV_F32}},
        {"--shape gemma3-1b --layers 5 --vocab 6000 --type q4_0", {NULL, VT_KV_F16}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = bench_synth("model.gguf", cases[i].shape);
        run_result r = run_in_child(path, &cases[i].run);
        unlink(path);
        if (r.status != VT_OK) fail_msg("%s: %s", cases[i].shape, r.err.message);
        check_close(cases[i].shape, r.resident, r.used);
        check_close(cases[i].shape, r.resident_after, r.used_after);
    }
}

/* --- a limited address space ----------------------------------------------------------------- */

static vt_status try_model(uint64_t limit_bytes, vt_error *err)
{
    vt_model *model;
    vt_session *session;
    vt_token token;
    struct rlimit limit = {limit_bytes, limit_bytes};
    vt_model_params params = vt_model_params_default();
    params.threads = 2;
    if (setrlimit(RLIMIT_AS, &limit) != 0) return VT_ERR_INTERNAL;
    vt_status status = vt_model_open(default_model, &params, &model, err);
    if (status != VT_OK) return status;
    status = vt_session_open(model, NULL, &session, err);
    if (status == VT_OK) status = vt_session_feed_text(session, "Once", 4, 0, err);
    if (status == VT_OK) status = vt_session_next(session, &token, err);
    vt_session_close(session);
    vt_model_close(model);
    return status;
}

static uint64_t address_space_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Wherever it ends: an error, no crash; and with enough of it everything works. */
static void limited_address_space(void **state)
{
    (void)state;
    skip_unless_native();
    uint64_t base = address_space_bytes();
    int succeeded = 0, refused = 0;
    uint64_t step = 3 * MEBI / 2;
    for (uint64_t more = 0; more <= (uint64_t)160 * MEBI; more += step) {
        if (more >= 36 * MEBI) step = 16 * MEBI;
        pid_t child = fork();
        if (child == 0) {
            vt_error err = {0};
            vt_status status = try_model(base + more, &err);
            _exit((int)status);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status))
            fail_msg("with %llu KiB more: signal %d", (unsigned long long)more / 1024,
                     WTERMSIG(status));
        if (WEXITSTATUS(status) == VT_OK)
            succeeded++;
        else if (WEXITSTATUS(status) == VT_ERR_MEMORY)
            refused++;
        else
            fail_msg("with %llu KiB more: status %d", (unsigned long long)more / 1024,
                     WEXITSTATUS(status));
    }
    assert_true(succeeded > 0 && refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: these fork, and have no thread yet. */
        cmocka_unit_test_setup_teardown(resident_is_what_is_accounted, bench_make_folder,
                                        bench_remove_folder),
        cmocka_unit_test(limited_address_space),
        cmocka_unit_test(sessions_take_and_give),
        cmocka_unit_test(all_logits_take_more),
        cmocka_unit_test(needs_are_exact),
        cmocka_unit_test(weights_too_large),
        cmocka_unit_test(limits_of_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
