/* How workers come to their weights: real processes, bytes counted, and what may go wrong. */
#include "support.h"

#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache_support.h"
#include "cluster_support.h"
#include "voltron.h"

static const char default_model[] = "src/assets/stories-4m-f16.gguf";
enum { TOKENS = 12, WORKERS_MAX = 3 };

static char folder[64];
static vt_token expected[TOKENS]; /* of one device alone */

static const char *inside(const char *name)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void shell(const char *format, const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, format, a, b);
    if (system(command) != 0) fail_msg("%s", command);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/voltron-provision-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    cache_remove_folder(folder);
    return 0;
}

/* --- main devices ------------------------------------------------------------------------------ */

typedef struct result {
    vt_status status;
    vt_error error;
    uint64_t sent_bytes[WORKERS_MAX], weight_bytes[WORKERS_MAX];
} result;

static char main_log[4096];

static void note_main(void *user, vt_log_level level, const char *message)
{
    (void)user, (void)level;
    size_t at = strlen(main_log);
    snprintf(main_log + at, sizeof main_log - at, "%s\n", message);
}

/* A story, as far as the test needs it. */
static void tell(const vt_model *model, vt_cluster *cluster, vt_token *out)
{
    static const vt_token ids[] = {1, 400, 31, 7};
    vt_session_params params = vt_session_params_default();
    vt_session *session;
    vt_error err = {.message = ""};
    params.cluster = cluster;
    params.context_tokens = 64;
    params.sampling.temperature = 0;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    if (vt_session_feed(session, ids, 4, &err) != VT_OK) fail_msg("%s", err.message);
    for (int i = 0; i < TOKENS; i++)
        if (vt_session_next(session, &out[i], &err) != VT_OK) fail_msg("%s", err.message);
    vt_session_close(session);
}

static vt_model *open_model(const char *path)
{
    vt_model *model;
    vt_error err;
    vt_model_params params = vt_model_params_default();
    params.threads = 2;
    if (vt_model_open(path, &params, &model, &err) != VT_OK) fail_msg("%s", err.message);
    return model;
}

/* One start of a main device: weights to all workers, then a story that must be the right one. */
static result run(const char *path, const char *cache, const test_worker *workers, size_t count)
{
    const char *addresses[WORKERS_MAX];
    result r = {0};
    vt_cluster *cluster;
    vt_token text[TOKENS];
    vt_model *model = open_model(path);
    vt_cluster_params params = vt_cluster_params_default();
    for (size_t i = 0; i < count; i++) addresses[i] = workers[i].address;
    params.devices = addresses;
    params.device_count = count;
    params.split_evenly = true;
    params.cache_path = cache;
    params.context_tokens = 64;
    params.log.write = note_main;
    main_log[0] = 0;
    r.status = vt_cluster_open(model, &params, &cluster, &r.error);
    if (r.status == VT_OK) {
        for (size_t i = 0; i < count; i++) {
            vt_device_info info;
            assert_int_equal(vt_cluster_get_device(cluster, i + 1, &info), VT_OK);
            r.sent_bytes[i] = info.sent_bytes;
            r.weight_bytes[i] = info.weight_bytes;
        }
        tell(model, cluster, text);
        assert_memory_equal(text, expected, sizeof text);
        vt_cluster_close(cluster);
    }
    vt_model_close(model);
    return r;
}

/* The same, where nothing must go wrong. */
static result run_well(const char *path, const char *cache, const test_worker *workers,
                       size_t count)
{
    result r = run(path, cache, workers, count);
    if (r.status != VT_OK) fail_msg("%s", r.error.message);
    return r;
}

/* --- workers ----------------------------------------------------------------------------------- */

/* What workers tell of themselves, in memory shared with them. */
typedef struct shared_state {
    char log[8192];
    unsigned reports;
    unsigned kill_at;   /* number of the report at which `victim` (0: the worker) is killed */
    pid_t victim;
    unsigned stop_at;   /* … at which the worker is told to end, */
    char delete[128];   /* … or this folder deleted, */
    unsigned delete_at; /* at that report */
} shared_state;
static shared_state *shared;

static void note_worker(void *user, vt_log_level level, const char *message)
{
    (void)user, (void)level;
    size_t at = strlen(shared->log);
    snprintf(shared->log + at, sizeof shared->log - at, "%s\n", message);
}

static void note_progress(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)user, (void)what;
    shared->reports++;
    if (done > total) raise(SIGABRT);
    if (shared->reports == shared->kill_at)
        kill(shared->victim ? shared->victim : getpid(), SIGKILL);
    if (shared->reports == shared->stop_at) raise(SIGTERM);
    if (shared->reports == shared->delete_at) cache_remove_folder(shared->delete);
}

static test_worker start_prepared(const char *cache, const char *model, uint64_t max_bytes,
                                  void (*prepare)(void))
{
    vt_worker_params params = vt_worker_params_default();
    params.cache_path = cache;
    params.cache_max_bytes = max_bytes;
    params.model_path = model;
    params.threads = 2;
    params.log.write = note_worker;
    params.progress.report = note_progress;
    memset(shared, 0, sizeof *shared);
    return test_worker_start_with(&params, prepare);
}

static test_worker start(const char *cache, const char *model)
{
    return start_prepared(cache, model, 0, NULL);
}

static void end(test_worker *worker)
{
    int status = test_worker_end(worker, SIGTERM);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void expect_worker_says(const char *text)
{
    if (!strstr(shared->log, text)) fail_msg("no \"%s\" in:\n%s", text, shared->log);
}

/* --- what need not be sent --------------------------------------------------------------------- */

static void second_start_sends_nothing(void **state)
{
    (void)state;
    test_worker w[2] = {start(inside("a"), NULL), start(inside("b"), NULL)};
    result first = run_well(default_model, inside("main"), w, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(first.sent_bytes[i] > first.weight_bytes[i] / 2);
        assert_true(first.sent_bytes[i] < first.weight_bytes[i]); /* compressed */
    }
    result second = run_well(default_model, inside("main"), w, 2);
    assert_int_equal(second.sent_bytes[0] + second.sent_bytes[1], 0);
    assert_int_equal(second.weight_bytes[0], first.weight_bytes[0]);
    for (int i = 0; i < 2; i++) end(&w[i]);
    w[0] = start(inside("a"), NULL); /* other processes, the main device's cache gone */
    w[1] = start(inside("b"), NULL);
    result third = run_well(default_model, NULL, w, 2);
    assert_int_equal(third.sent_bytes[0] + third.sent_bytes[1], 0);
    for (int i = 0; i < 2; i++) end(&w[i]);
}

static void without_caches(void **state)
{
    (void)state;
    test_worker w = start(NULL, NULL);
    result first = run_well(default_model, NULL, &w, 1);
    result second = run_well(default_model, NULL, &w, 1);
    assert_true(first.sent_bytes[0] > 0);
    assert_int_equal(first.sent_bytes[0], second.sent_bytes[0]);
    end(&w);
}

/* What the main device's cache keeps: the blocks, and what they are. */
static void main_device_prepares_once(void **state)
{
    (void)state;
    test_worker w = start(NULL, NULL);
    result first = run_well(default_model, inside("main"), &w, 1);
    uint64_t kept = cache_folder_bytes(inside("main"));
    assert_true(kept > first.sent_bytes[0]);
    result second = run_well(default_model, inside("main"), &w, 1);
    assert_int_equal(second.sent_bytes[0], first.sent_bytes[0]);
    assert_int_equal(cache_folder_bytes(inside("main")), kept);
    /* Blocks that are gone are built again, by the list that is still there. */
    shell("find %s -size +20k -name '????????????????*' -delete%s", inside("main"), "");
    assert_true(cache_folder_bytes(inside("main")) < kept);
    result third = run_well(default_model, inside("main"), &w, 1);
    assert_int_equal(third.sent_bytes[0], first.sent_bytes[0]);
    assert_int_equal(cache_folder_bytes(inside("main")), kept);
    end(&w);
}

static void pack_model(const char *path, const char *to)
{
    vt_error err;
    vt_pack_params params = vt_pack_params_default();
    vt_model *model = open_model(path);
    params.precisions = 1u << VT_PRECISION_F16;
    if (vt_pack(model, to, &params, &err) != VT_OK) fail_msg("%s", err.message);
    vt_model_close(model);
}

static void pack(const char *to) { pack_model(default_model, to); }

/* Main device and worker have a GGUF file or a shard store of it, the same file or a copy. */
static void worker_has_the_file(void **state)
{
    (void)state;
    shell("cp %s %s", default_model, inside("copy.gguf"));
    pack(inside("model.vts"));
    shell("cp %s %s", inside("model.vts"), inside("copy.vts"));
    const char *const files[] = {default_model, inside("model.vts"), inside("copy.gguf"),
                                 inside("copy.vts")};
    bool emulated = test_is_emulated(); /* that takes long: the same file and a copy will do */
    for (int i = 0; i < (emulated ? 1 : 2); i++)
        for (int j = 0; j < 4; j += emulated ? 2 : 1) {
            test_worker w = start(NULL, files[j]);
            result r = run_well(files[i], NULL, &w, 1);
            if (r.sent_bytes[0]) fail_msg("%s: sent to %s", files[i], files[j]);
            assert_true(r.weight_bytes[0] > 0);
            end(&w);
        }
}

static void from_a_store(void **state)
{
    (void)state;
    pack(inside("model.vts"));
    test_worker w = start(inside("a"), NULL);
    result first = run_well(inside("model.vts"), NULL, &w, 1);
    assert_true(first.sent_bytes[0] > 0); /* the same shards, whichever file they come from: */
    result second = run_well(default_model, NULL, &w, 1);
    assert_int_equal(second.sent_bytes[0], 0);
    end(&w);
}

static void worker_has_another_model(void **state)
{
    (void)state;
    const char *other = test_shared_path("golden/t-qwen2.gguf");
    if (!other) skip();
    test_worker w = start(NULL, other);
    result r = run_well(default_model, NULL, &w, 1);
    assert_true(r.sent_bytes[0] > 0);
    expect_worker_says("another model");
    end(&w);
}

/* The worker's copy is damaged where samples for the model's identity do not look. */
static void worker_has_a_damaged_copy(void **state)
{
    (void)state;
    const char *copy = inside("copy.gguf");
    vt_gguf *gguf;
    vt_gguf_tensor tensor;
    shell("cp %s %s", default_model, copy);
    assert_int_equal(vt_gguf_open(copy, &gguf, NULL), VT_OK);
    for (uint64_t i = 0; vt_gguf_get_tensor(gguf, i, &tensor) == VT_OK; i++)
        if (strcmp(tensor.name, "blk.4.ffn_up.weight") == 0) break;
    assert_string_equal(tensor.name, "blk.4.ffn_up.weight");
    uint64_t at = tensor.offset_bytes + tensor.size_bytes / 4;
    vt_gguf_close(gguf);
    int file = open(copy, O_RDWR);
    assert_int_equal(pwrite(file, "!", 1, (off_t)at), 1);
    close(file);
    test_worker w = start(NULL, copy);
    result r = run_well(default_model, NULL, &w, 1);
    assert_true(r.sent_bytes[0] > 0);
    assert_true(r.sent_bytes[0] < r.weight_bytes[0] / 10);
    end(&w);
}

/* Under a worker that has opened it the file becomes another model: both use that one. */
static void workers_file_is_replaced(void **state)
{
    (void)state;
    for (int store = 0; store < 2; store++)
        for (int in_place = 0; in_place < 2; in_place++) {
            const char *old = inside("old"), *new = inside(store ? "new.vts" : "new");
            const char *file = inside(store ? "file.vts" : "file");
            shell("cp %s %s", default_model, old);
            test_change_weights(old);
            if (store) pack_model(old, file), pack(new);
            if (!store) shell("cp %s %s", old, file), shell("cp %s %s", default_model, new);
            test_worker w = start(NULL, file);
            shell(in_place ? "cp %s %s" : "mv %s %s", new, file);
            result r = run_well(file, NULL, &w, 1);
            assert_int_equal(r.sent_bytes[0], 0);
            expect_worker_says("opened again");
            end(&w);
        }
}

/* --- interruptions ----------------------------------------------------------------------------- */

static void worker_is_killed_half_way(void **state)
{
    (void)state;
    test_worker w = start(inside("a"), NULL);
    result whole = run_well(default_model, NULL, &w, 1);
    end(&w);
    cache_remove_folder(inside("a"));
    w = start(inside("a"), NULL);
    shared->kill_at = 10;
    result killed = run(default_model, inside("main"), &w, 1);
    assert_int_equal(killed.status, VT_ERR_NETWORK);
    assert_non_null(strstr(killed.error.message, w.address));
    test_worker_end(&w, SIGKILL);
    w = start(inside("a"), NULL);
    result resumed = run_well(default_model, inside("main"), &w, 1);
    assert_true(resumed.sent_bytes[0] > 0);
    assert_true(resumed.sent_bytes[0] < whole.sent_bytes[0]);
    end(&w);
}

/* What is still under way to it then is nothing to complain about. */
static void worker_is_told_to_end_half_way(void **state)
{
    (void)state;
    for (unsigned at = 2; at < 12; at += 3) {
        int status;
        test_worker w = start(NULL, NULL);
        shared->stop_at = at;
        result r = run(default_model, inside("main"), &w, 1);
        assert_int_equal(r.status, VT_ERR_NETWORK);
        if (!strstr(r.error.message, "goodbye")) fail_msg("%s", r.error.message);
        waitpid(w.pid, &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void main_device_is_killed_half_way(void **state)
{
    (void)state;
    test_worker w = start(inside("a"), NULL);
    result whole = run_well(default_model, inside("main"), &w, 1);
    cache_remove_folder(inside("a"));
    shared->reports = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        while (shared->victim != getpid()) usleep(1000);
        run(default_model, inside("main"), &w, 1);
        _exit(0);
    }
    shared->kill_at = 10;
    shared->victim = child;
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    shared->kill_at = 0;
    /* The worker is soon free again, and has what came. */
    result resumed = run(default_model, inside("main"), &w, 1);
    for (int i = 0; i < 100 && resumed.status == VT_ERR_BUSY; i++) {
        usleep(100000);
        resumed = run(default_model, inside("main"), &w, 1);
    }
    assert_int_equal(resumed.status, VT_OK); /* what was on its way may have been all */
    assert_true(resumed.sent_bytes[0] < whole.sent_bytes[0]);
    end(&w);
}

static void cache_is_deleted(void **state)
{
    (void)state;
    test_worker w = start(inside("a"), NULL);
    result first = run_well(default_model, inside("main"), &w, 1);
    cache_remove_folder(inside("a"));
    result second = run_well(default_model, inside("main"), &w, 1);
    assert_int_equal(second.sent_bytes[0], first.sent_bytes[0]);
    /* While weights are loaded from it. */
    snprintf(shared->delete, sizeof shared->delete, "%s", inside("a"));
    shared->reports = 0;
    shared->delete_at = 3;
    result third = run_well(default_model, inside("main"), &w, 1);
    assert_true(third.sent_bytes[0] > 0);
    assert_true(third.sent_bytes[0] < first.sent_bytes[0]);
    /* The main device's. */
    cache_remove_folder(inside("main"));
    result fourth = run_well(default_model, inside("main"), &w, 1);
    assert_true(fourth.sent_bytes[0] < first.sent_bytes[0]);
    end(&w);
}

/* --- caches that are not right ----------------------------------------------------------------- */

static char victim_path[256];
static off_t victim_bytes;

static int find_block(const char *path, const struct stat *info, int type, struct FTW *where)
{
    bool block = type == FTW_F && strlen(path + where->base) == 64;
    if (!block || info->st_size <= victim_bytes) return 0;
    victim_bytes = info->st_size;
    snprintf(victim_path, sizeof victim_path, "%s", path);
    return 0;
}

/* Changes the largest block in a cache; its bytes without the header. */
static uint64_t damage_a_block(const char *cache)
{
    victim_bytes = 0;
    nftw(cache, find_block, 16, FTW_PHYS);
    int file = open(victim_path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(file, &byte, 1, victim_bytes / 2), 1);
    byte ^= 1;
    assert_int_equal(pwrite(file, &byte, 1, victim_bytes / 2), 1);
    close(file);
    return (uint64_t)victim_bytes - VTI_CACHE_HEADER_BYTES;
}

static void damaged_block_is_sent_again(void **state)
{
    (void)state;
    test_worker w = start(inside("a"), NULL);
    run_well(default_model, inside("main"), &w, 1);
    uint64_t bytes = damage_a_block(inside("a"));
    result second = run_well(default_model, inside("main"), &w, 1);
    assert_int_equal(second.sent_bytes[0], bytes);
    expect_worker_says("damaged");
    result third = run_well(default_model, inside("main"), &w, 1);
    assert_int_equal(third.sent_bytes[0], 0);
    end(&w);
}

static void main_devices_damaged_block_is_built_again(void **state)
{
    (void)state;
    test_worker w = start(NULL, NULL);
    result first = run_well(default_model, inside("main"), &w, 1);
    damage_a_block(inside("main"));
    result second = run_well(default_model, inside("main"), &w, 1);
    assert_int_equal(second.sent_bytes[0], first.sent_bytes[0]);
    assert_non_null(strstr(main_log, "damaged"));
    end(&w);
}

/* More weights than the cache may hold: what fits is kept, nothing is pushed out for the rest. */
static void small_cache(void **state)
{
    (void)state;
    test_worker w = start_prepared(inside("a"), NULL, 1 << 20, NULL);
    result first = run_well(default_model, inside("main"), &w, 1);
    assert_true(first.sent_bytes[0] > 1 << 20);
    expect_worker_says("is in use");
    for (int i = 0; i < 3; i++) {
        result next = run_well(default_model, inside("main"), &w, 1);
        assert_true(next.sent_bytes[0] < first.sent_bytes[0]);
        assert_true(cache_folder_bytes(inside("a")) <= 1 << 20);
    }
    end(&w);
}

/* The cache is on a disk that is too small. */
static void mount_small_disk(void)
{
    const char *path = inside("a");
    mkdir(path, 0700);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", path, "tmpfs", 0, "size=600k,mode=0700") != 0)
        snprintf(shared->log, sizeof shared->log, "cannot mount");
}

static void full_disk(void **state)
{
    (void)state;
    test_worker w = start_prepared(inside("a"), NULL, 1 << 30, mount_small_disk);
    if (strcmp(shared->log, "cannot mount") == 0) {
        printf("NOTICE no small disk may be mounted here\n");
        end(&w);
        skip();
    }
    result first = run_well(default_model, NULL, &w, 1);
    expect_worker_says("No space left on device");
    result second = run_well(default_model, NULL, &w, 1);
    assert_true(second.sent_bytes[0] > 0);
    assert_true(second.sent_bytes[0] < first.sent_bytes[0]); /* some were kept */
    end(&w);
}

static void cache_that_cannot_be(void **state)
{
    (void)state;
    test_worker w = start("/dev/null/cache", NULL);
    expect_worker_says("/dev/null/cache");
    result r = run_well(default_model, "/dev/null/other", &w, 1);
    assert_true(r.sent_bytes[0] > 0);
    assert_non_null(strstr(main_log, "/dev/null/other"));
    end(&w);
}

/* --- memory ------------------------------------------------------------------------------------ */

static void too_little_memory(void **state)
{
    (void)state;
    vt_worker_params params = vt_worker_params_default();
    params.memory_bytes = 1 << 20;
    params.log.write = note_worker;
    params.progress.report = note_progress;
    memset(shared, 0, sizeof *shared);
    test_worker w = test_worker_start_with(&params, NULL);
    result r = run(default_model, inside("main"), &w, 1);
    assert_int_equal(r.status, VT_ERR_MEMORY);
    assert_non_null(strstr(r.error.message, w.address));
    assert_int_equal(shared->reports, 0); /* before anything travelled */
    assert_int_equal(cache_folder_bytes(inside("main")), 0); /* or was built */
    end(&w);
}

static int set_up_all(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return -1;
    vt_model *model = open_model(default_model);
    tell(model, NULL, expected);
    vt_model_close(model);
    return 0;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(second_start_sends_nothing), T(without_caches), T(main_device_prepares_once),
        T(worker_has_the_file), T(from_a_store), T(worker_has_another_model),
        T(worker_has_a_damaged_copy), T(workers_file_is_replaced), T(worker_is_killed_half_way),
        T(worker_is_told_to_end_half_way),
        T(main_device_is_killed_half_way), T(cache_is_deleted), T(damaged_block_is_sent_again),
        T(main_devices_damaged_block_is_built_again), T(small_cache), T(full_disk),
        T(cache_that_cannot_be), T(too_little_memory),
    };
    return cmocka_run_group_tests(tests, set_up_all, NULL);
}
