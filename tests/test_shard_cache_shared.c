/* The cache of shard blocks: several processes on one folder, killed ones, disks that are full or
 * may only be read. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/clock.h"
#include "../src/shard_cache.h"
#include "cache_support.h"

enum { BYTES = 4000, FILE_BYTES = BYTES + VTI_CACHE_HEADER_BYTES };

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/voltron-cache-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    cache_remove_folder(folder);
    return 0;
}

static char last_warning[512];

static void note(void *user, vt_log_level level, const char *message)
{
    (void)user;
    if (level == VT_LOG_WARNING) snprintf(last_warning, sizeof last_warning, "%s", message);
}

static vti_shard_cache *open_cache(uint64_t max_bytes)
{
    vti_shard_cache *cache;
    vt_log log = {note, NULL};
    vt_error err;
    last_warning[0] = 0;
    if (vti_shard_cache_open(folder, max_bytes, &log, &cache, &err) == VT_OK) return cache;
    fprintf(stderr, "%s\n", err.message);
    abort();
}

/* What a child found wrong; the parent sees the exit code. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                    \
        _exit(1);                                                                                  \
    } while (0)

static bool has(vti_shard_cache *cache, uint32_t number)
{
    cache_block b;
    cache_block_make(&b, number, BYTES);
    bool there = vti_shard_cache_has(cache, &b.hash, NULL);
    cache_block_free(&b);
    return there;
}

static bool put(vti_shard_cache *cache, uint32_t number)
{
    return cache_block_put(cache, number, BYTES);
}

static bool file_is_there(uint32_t number)
{
    return cache_block_is_there(folder, number, BYTES);
}

/* False: not there. Anything else than the right bytes ends the process. */
static bool get_right(vti_shard_cache *cache, uint32_t number, vti_cached_block *buffer)
{
    cache_block b;
    cache_block_make(&b, number, BYTES);
    bool there = vti_shard_cache_get(cache, &b.hash, buffer);
    if (there)
        REQUIRE(buffer->stored_bytes == BYTES && buffer->raw_bytes == b.block.raw_bytes &&
                memcmp(buffer->data, b.block.data, BYTES) == 0);
    cache_block_free(&b);
    return there;
}

static pid_t start(void (*child)(int number), int number)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    child(number);
    _exit(0);
}

static void expect_success(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- hammering --------------------------------------------------------------------------------- */

enum { ROUNDS = 60, NUMBERS = 40, WANTED = 4, ROOM = 16 };

/* Wants some blocks at a time: puts what is not there. What it has stays until it lets go. */
static void hammer_rounds(vti_shard_cache *cache, uint64_t seed, bool alone)
{
    test_random random = {seed};
    vti_cached_block buffer = {0};
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t wanted[WANTED];
        bool kept[WANTED];
        for (int i = 0; i < WANTED; i++) {
            wanted[i] = (uint32_t)(test_random_u64(&random) % NUMBERS);
            kept[i] = get_right(cache, wanted[i], &buffer) || put(cache, wanted[i]);
            REQUIRE(kept[i]); /* there is room for all that all processes want */
        }
        for (int i = 0; i < WANTED; i++)
            if (alone) REQUIRE(get_right(cache, wanted[i], &buffer));
        if (alone) vti_shard_cache_let_go(cache);
    }
    vti_cached_block_free(&buffer);
}

static void hammer(int number)
{
    vti_shard_cache *cache = open_cache(ROOM * FILE_BYTES);
    hammer_rounds(cache, (uint64_t)number + 1, true);
    vti_shard_cache_close(cache);
}

static void processes_hammer_one_cache(void **state)
{
    (void)state;
    pid_t children[3];
    for (int i = 0; i < 3; i++) children[i] = start(hammer, i);
    for (int i = 0; i < 3; i++) expect_success(children[i]);
    assert_true(cache_folder_bytes(folder) <= ROOM * FILE_BYTES);
    assert_true(cache_folder_bytes(folder) >= ROOM / 2 * FILE_BYTES);
    vti_shard_cache *cache = open_cache(ROOM * FILE_BYTES);
    uint64_t taken, most;
    vti_shard_cache_usage(cache, &taken, &most);
    assert_int_equal(taken, cache_folder_bytes(folder));
    vti_shard_cache_close(cache);
}

static void *hammer_thread(void *cache)
{
    hammer_rounds(cache, (uintptr_t)&cache, false);
    return NULL;
}

static void threads_hammer_one_cache(void **state)
{
    (void)state;
    pthread_t threads[3];
    vti_shard_cache *cache = open_cache(NUMBERS * FILE_BYTES + 3 * FILE_BYTES);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer_thread, cache), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_true(cache_folder_bytes(folder) <= NUMBERS * FILE_BYTES);
    vti_shard_cache_close(cache);
}

/* Files of the cache are changed, cut and deleted under the feet of two who use it. */
static void hammer_damaged(int number)
{
    test_random random = {(uint64_t)number + 77};
    vti_cached_block buffer = {0};
    vti_shard_cache *cache = open_cache(ROOM * FILE_BYTES);
    for (int round = 0; round < 4 * ROUNDS; round++) {
        uint32_t wanted = (uint32_t)(test_random_u64(&random) % 12);
        if (!get_right(cache, wanted, &buffer)) put(cache, wanted);
        vti_shard_cache_let_go(cache);
    }
    vti_cached_block_free(&buffer);
    vti_shard_cache_close(cache);
}

static void damage_something(test_random *random)
{
    char path[256], shards[96];
    unsigned how = (unsigned)(test_random_u64(random) % 8);
    cache_block_path(folder, (uint32_t)(test_random_u64(random) % 12), BYTES, path, sizeof path);
    snprintf(shards, sizeof shards, "%s/shards", folder);
    int file = open(path, O_RDWR);
    if (file >= 0) {
        if (how < 4 && pwrite(file, "damage", 6, (off_t)(how * 1000)) < 0) fail();
        if (how == 4 && ftruncate(file, 2000) != 0) fail();
        if (how == 5) unlink(path);
        close(file);
    }
    if (how == 6) cache_remove_folder(shards);
    usleep(500);
}

static void damage_while_two_use_it(void **state)
{
    (void)state;
    pid_t children[2];
    test_random random = {4711};
    int running = 2, status;
    for (int i = 0; i < 2; i++) children[i] = start(hammer_damaged, i);
    while (running) {
        damage_something(&random);
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended <= 0) continue;
        assert_true(ended == children[0] || ended == children[1]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        running--;
    }
}

/* --- processes that end ------------------------------------------------------------------------ */

static int ready[2];

static void tell_parent(void) { REQUIRE(write(ready[1], "!", 1) == 1); }

static void wait_for_child(void)
{
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
}

static void hold_blocks(int count)
{
    vti_shard_cache *cache = open_cache(6 * FILE_BYTES);
    for (int i = 0; i < count; i++) REQUIRE(put(cache, (uint32_t)i));
    tell_parent();
    pause();
}

static void killed_process_holds_nothing(void **state)
{
    (void)state;
    assert_int_equal(pipe(ready), 0);
    pid_t child = start(hold_blocks, 4);
    wait_for_child();
    vti_shard_cache *cache = open_cache(6 * FILE_BYTES);
    for (uint32_t i = 10; i < 20; i++) {
        assert_true(put(cache, i));
        vti_shard_cache_let_go(cache);
    }
    for (uint32_t i = 0; i < 4; i++) assert_true(file_is_there(i));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (uint32_t i = 20; i < 30; i++) {
        assert_true(put(cache, i));
        vti_shard_cache_let_go(cache);
    }
    for (uint32_t i = 0; i < 4; i++) assert_false(file_is_there(i));
    vti_shard_cache_close(cache);
    close(ready[0]);
    close(ready[1]);
}

static void put_for_ever(int number)
{
    vti_shard_cache *cache = open_cache(1 << 20);
    for (uint32_t i = 0;; i++) {
        put(cache, i % 7);
        if (i == 3 && number) tell_parent();
    }
}

static unsigned files_in(const char *name)
{
    char command[160];
    unsigned count = 0;
    snprintf(command, sizeof command, "ls %s/shards/%s | wc -l", folder, name);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    assert_int_equal(fscanf(output, "%u", &count), 1);
    pclose(output);
    return count;
}

/* Killed at any moment: nothing half is ever found, and what it leaves is cleared away. */
static void killed_while_writing(void **state)
{
    (void)state;
    vti_cached_block buffer = {0};
    test_random random = {99};
    assert_int_equal(pipe(ready), 0);
    for (int round = 0; round < 25; round++) {
        pid_t child = start(put_for_ever, 1);
        wait_for_child();
        usleep((useconds_t)(test_random_u64(&random) % 2000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        vti_shard_cache *cache = open_cache(1 << 20);
        assert_string_equal(last_warning, "");
        assert_int_equal(files_in("parts"), 0);
        assert_int_equal(files_in("in-use"), 1);
        for (uint32_t i = 0; i < 4; i++)
            if (!get_right(cache, i, &buffer)) fail_msg("block %u is gone", i);
        assert_string_equal(last_warning, "");
        vti_shard_cache_close(cache);
    }
    vti_cached_block_free(&buffer);
    close(ready[0]);
    close(ready[1]);
}

/* A process that was stopped while it had the lock: others go on without it, soon. */
static void stopped_process(void **state)
{
    (void)state;
    char path[96];
    vti_cached_block buffer = {0};
    vti_shard_cache *cache = open_cache(1 << 20);
    assert_true(put(cache, 1));
    snprintf(path, sizeof path, "%s/shards/usage", folder);
    int file = open(path, O_RDWR);
    assert_int_equal(flock(file, LOCK_EX), 0);
    uint64_t begin = vti_now_ns();
    assert_false(put(cache, 2));
    for (uint32_t i = 3; i < 100; i++) assert_false(has(cache, i));
    assert_true(get_right(cache, 1, &buffer));
    assert_false(put(cache, 3));
    /* One wait of two seconds, not one for each. */
    if (vti_now_ns() - begin > 60000000000u) fail_msg("waited again and again");
    assert_non_null(strstr(last_warning, "another process"));
    close(file);
    assert_true(put(cache, 2));
    vti_cached_block_free(&buffer);
    vti_shard_cache_close(cache);
}

/* --- full disks -------------------------------------------------------------------------------- */

static void use_full_disk(void)
{
    vti_cached_block buffer = {0};
    vti_shard_cache *cache = open_cache(1 << 30);
    uint32_t count = 0;
    while (count < 1000 && put(cache, count)) count++;
    REQUIRE(count > 3 && count < 1000);
    REQUIRE(strstr(last_warning, strerror(ENOSPC)));
    for (uint32_t i = 0; i < count; i++) REQUIRE(get_right(cache, i, &buffer));
    REQUIRE(!has(cache, count));
    REQUIRE(!put(cache, count)); /* still no room; and nothing breaks */
    REQUIRE(files_in("parts") == 0);
    for (uint32_t i = 0; i < 3; i++) {
        cache_block b;
        cache_block_make(&b, i, BYTES);
        vti_shard_cache_remove(cache, &b.hash);
        cache_block_free(&b);
    }
    REQUIRE(put(cache, count)); /* now there is */
    REQUIRE(get_right(cache, count, &buffer));
    uint64_t taken, most;
    vti_shard_cache_usage(cache, &taken, &most);
    REQUIRE(taken == cache_folder_bytes(folder));
    vti_cached_block_free(&buffer);
    vti_shard_cache_close(cache);
}

static bool become_root_of_a_namespace(void)
{
    char text[64];
    int bytes = snprintf(text, sizeof text, "0 %u 1", (unsigned)geteuid());
    if (geteuid() == 0 && unshare(CLONE_NEWNS) == 0) return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    int map = open("/proc/self/uid_map", O_WRONLY);
    bool mapped = map >= 0 && write(map, text, (size_t)bytes) == bytes;
    close(map);
    return mapped;
}

/* A small disk of its own, which only this process sees. */
static void use_small_disk(int number)
{
    (void)number;
    if (!become_root_of_a_namespace() ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", folder, "tmpfs", 0, "size=200k,mode=0700") != 0)
        _exit(77);
    use_full_disk();
}

static void full_disk(void **state)
{
    (void)state;
    int status;
    pid_t child = start(use_small_disk, 1);
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        printf("NOTICE no small disk may be mounted here\n");
        skip();
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Blocks that are larger than a file may be. */
static void use_small_files(int number)
{
    (void)number;
    signal(SIGXFSZ, SIG_IGN);
    vti_shard_cache *cache = open_cache(1 << 20);
    struct rlimit limit = {FILE_BYTES - 100, FILE_BYTES - 100};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (uint32_t i = 0; i < 5; i++) REQUIRE(!put(cache, i) && !has(cache, i));
    REQUIRE(strstr(last_warning, strerror(EFBIG)));
    REQUIRE(cache_folder_bytes(folder) == 0);
    uint64_t taken, most;
    vti_shard_cache_usage(cache, &taken, &most);
    REQUIRE(taken == 0);
    vti_shard_cache_close(cache);
}

static void small_files(void **state)
{
    (void)state;
    expect_success(start(use_small_files, 0));
}

/* --- folders that may only be read ------------------------------------------------------------- */

/* As a user for whom permissions count. */
static void use_read_only_folder(int number)
{
    (void)number;
    vti_cached_block buffer = {0};
    if (geteuid() == 0) REQUIRE(setgid(65534) == 0 && setuid(65534) == 0);
    REQUIRE(access(folder, W_OK) != 0);
    vti_shard_cache *cache = open_cache(1 << 20);
    REQUIRE(has(cache, 1) && get_right(cache, 1, &buffer));
    REQUIRE(!has(cache, 2));
    REQUIRE(!put(cache, 2) && !put(cache, 3));
    REQUIRE(strstr(last_warning, "cannot be written"));
    REQUIRE(file_is_there(1));
    vti_shard_cache_let_go(cache);
    REQUIRE(get_right(cache, 1, &buffer));
    vti_cached_block_free(&buffer);
    vti_shard_cache_close(cache);
}

static void read_only_folder(void **state)
{
    (void)state;
    char command[256];
    vti_shard_cache *cache = open_cache(1 << 20);
    assert_true(put(cache, 1));
    vti_shard_cache_close(cache);
    /* As a system's would be: a block and its folders may be read by everybody. */
    snprintf(command, sizeof command, "chmod -R a+rX,a-w %s", folder);
    assert_int_equal(system(command), 0);
    expect_success(start(use_read_only_folder, 0));
    snprintf(command, sizeof command, "chmod -R u+w %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(processes_hammer_one_cache), T(threads_hammer_one_cache), T(damage_while_two_use_it),
        T(killed_process_holds_nothing), T(killed_while_writing), T(stopped_process),
        T(full_disk), T(small_files), T(read_only_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
