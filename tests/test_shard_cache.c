/* The cache of shard blocks, one process: what is kept, what goes, what is refused. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../src/shard_cache_internal.h"
#include "cache_support.h"

enum { BYTES = 10000, FILE_BYTES = BYTES + VTI_CACHE_HEADER_BYTES };

static char folder[64];
static vti_shard_cache *cache;
static unsigned warnings;
static char last_warning[512];

static void note(void *user, vt_log_level level, const char *message)
{
    (void)user;
    if (level != VT_LOG_WARNING) return;
    warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", message);
}

static void open_cache(uint64_t max_bytes)
{
    vt_log log = {note, NULL};
    vt_error err;
    if (vti_shard_cache_open(folder, max_bytes, &log, &cache, &err) != VT_OK)
        fail_msg("%s", err.message);
}

static void close_cache(void)
{
    vti_shard_cache_close(cache);
    cache = NULL;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/voltron-cache-XXXXXX");
    warnings = 0;
    last_warning[0] = 0;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    close_cache();
    cache_remove_folder(folder);
    return 0;
}

static void expect_there(uint32_t number)
{
    vti_cached_block got = {0};
    cache_block want;
    cache_block_make(&want, number, BYTES);
    if (!vti_shard_cache_get(cache, &want.hash, &got)) fail_msg("block %u is not there", number);
    assert_int_equal(got.encoding, want.block.encoding);
    assert_int_equal(got.raw_bytes, want.block.raw_bytes);
    assert_int_equal(got.stored_bytes, BYTES);
    assert_memory_equal(got.data, want.block.data, BYTES);
    vti_cached_block_free(&got);
    cache_block_free(&want);
}

static bool is_there(uint32_t number)
{
    cache_block want;
    cache_block_make(&want, number, BYTES);
    bool there = vti_shard_cache_has(cache, &want.hash, NULL);
    cache_block_free(&want);
    return there;
}

static bool put(uint32_t number) { return cache_block_put(cache, number, BYTES); }

static bool file_is_there(uint32_t number)
{
    return cache_block_is_there(folder, number, BYTES);
}

/* Times of change may be as coarse as a tick of the clock. */
static void let_time_pass(void) { nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); }

/* --- keeping ----------------------------------------------------------------------------------- */

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    vti_cached_block info;
    cache_block b;
    open_cache(1 << 20);
    assert_false(is_there(1));
    for (uint32_t i = 0; i < 20; i++) assert_true(put(i));
    for (uint32_t i = 0; i < 20; i++) expect_there(i);
    assert_true(put(7)); /* again: replaces itself */
    expect_there(7);
    cache_block_make(&b, 7, BYTES);
    assert_true(vti_shard_cache_has(cache, &b.hash, &info));
    assert_int_equal(info.raw_bytes, b.block.raw_bytes);
    assert_int_equal(info.stored_bytes, BYTES);
    assert_int_equal(info.encoding, b.block.encoding);
    vti_shard_cache_remove(cache, &b.hash);
    assert_false(vti_shard_cache_has(cache, &b.hash, NULL));
    cache_block_free(&b);
    close_cache();
    open_cache(1 << 20); /* the next process finds them */
    for (uint32_t i = 0; i < 20; i++) if (i != 7) expect_there(i);
    assert_int_equal(warnings, 0);
}

static void one_buffer_serves_many(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 70000, 10, 0, 70000, 5000};
    vti_cached_block got = {0};
    cache_block b;
    open_cache(1 << 20);
    for (uint32_t i = 0; i < 6; i++) {
        cache_block_make(&b, i, sizes[i]);
        assert_true(vti_shard_cache_put(cache, &b.hash, &b.block));
        assert_true(vti_shard_cache_get(cache, &b.hash, &got));
        assert_int_equal(got.stored_bytes, sizes[i]);
        assert_memory_equal(got.data, b.block.data, sizes[i]);
        cache_block_free(&b);
    }
    vti_cached_block_free(&got);
}

static void only_the_owner_may_look(void **state)
{
    (void)state;
    char path[256];
    struct stat info;
    mode_t before = umask(0);
    open_cache(1 << 20);
    assert_true(put(1));
    umask(before);
    cache_block_path(folder, 1, BYTES, path, sizeof path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    *strrchr(path, '/') = 0;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    *strrchr(path, '/') = 0;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
}

/* --- going ------------------------------------------------------------------------------------- */

static void least_lately_used_goes(void **state)
{
    (void)state;
    open_cache(10 * FILE_BYTES);
    for (uint32_t i = 0; i < 10; i++) {
        assert_true(put(i));
        let_time_pass();
    }
    expect_there(0); /* used again: now the newest */
    expect_there(2);
    vti_shard_cache_let_go(cache);
    assert_true(put(10)); /* 1 and, to have some room, 3 */
    assert_true(file_is_there(0) && file_is_there(2));
    assert_false(file_is_there(1));
    assert_true(file_is_there(9) && file_is_there(8));
    uint64_t taken, most;
    vti_shard_cache_usage(cache, &taken, &most);
    assert_int_equal(most, 10 * FILE_BYTES);
    assert_int_equal(taken, cache_folder_bytes(folder));
    assert_true(taken <= most);
}

static void what_is_in_use_stays(void **state)
{
    (void)state;
    open_cache(5 * FILE_BYTES);
    for (uint32_t i = 0; i < 5; i++) assert_true(put(i));
    assert_false(put(5));
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(last_warning, "in use"));
    for (uint32_t i = 0; i < 5; i++) expect_there(i);
    vti_shard_cache_let_go(cache);
    assert_true(is_there(3)); /* this one is wanted again */
    assert_true(put(5));
    assert_true(put(6));
    expect_there(3);
    assert_true(cache_folder_bytes(folder) <= 5 * FILE_BYTES);
    assert_int_equal(warnings, 1); /* said once */
}

static void too_large_a_block(void **state)
{
    (void)state;
    open_cache(FILE_BYTES + 10);
    assert_true(put(1));
    cache_block b;
    cache_block_make(&b, 2, BYTES + 20);
    assert_false(vti_shard_cache_put(cache, &b.hash, &b.block));
    assert_non_null(strstr(last_warning, "larger"));
    expect_there(1); /* nothing went for it */
    /* Each reason is told once. */
    assert_false(put(3));
    assert_non_null(strstr(last_warning, "in use"));
    assert_false(put(3) || vti_shard_cache_put(cache, &b.hash, &b.block));
    assert_int_equal(warnings, 2);
    cache_block_free(&b);
}

/* Whoever chooses hashes does not choose where they go, or each would have to pass all others. */
static void chosen_hashes(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    vti_hash_set set = {0};
    size_t run = 0, longest = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        vti_content_hash hash = {{0}};
        memcpy(hash.bytes + 12, &i, sizeof i);
        assert_false(vti_hash_set_has(&set, &hash));
        assert_true(vti_hash_set_add(&set, &hash));
        assert_true(vti_hash_set_has(&set, &hash));
    }
    for (size_t i = 0; i < set.capacity; i++) {
        run = set.taken[i] ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    assert_int_equal(set.count, COUNT);
    assert_true(longest < COUNT / 4);
    vti_hash_set_clear(&set);
}

static void a_lower_limit_holds(void **state)
{
    (void)state;
    open_cache(20 * FILE_BYTES);
    for (uint32_t i = 0; i < 20; i++) assert_true(put(i));
    close_cache();
    open_cache(4 * FILE_BYTES);
    assert_true(put(20));
    assert_true(cache_folder_bytes(folder) <= 4 * FILE_BYTES);
    expect_there(20);
}

static void usual_limit(void **state)
{
    (void)state;
    uint64_t taken, most;
    open_cache(0);
    vti_shard_cache_usage(cache, &taken, &most);
    assert_int_equal(taken, 0);
    assert_true(most <= 20ull << 30);
}

/* --- files that are not right ------------------------------------------------------------------ */

static void damage(uint32_t number, long at, int how)
{
    char path[256];
    cache_block_path(folder, number, BYTES, path, sizeof path);
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    unsigned char byte;
    if (how < 0) {
        assert_int_equal(ftruncate(file, at), 0);
    } else {
        assert_int_equal(pread(file, &byte, 1, at), 1);
        byte ^= (unsigned char)how;
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
    }
    close(file);
}

static void flipped_bits(void **state)
{
    (void)state;
    open_cache(1 << 20);
    vti_cached_block got = {0};
    cache_block b;
    cache_block_make(&b, 3, BYTES);
    unsigned expected = 0;
    for (long at = 0; at < FILE_BYTES; at += at < VTI_CACHE_HEADER_BYTES ? 1 : 997) {
        assert_true(put(3));
        damage(3, at, 1 << (at % 8));
        if (vti_shard_cache_get(cache, &b.hash, &got)) fail_msg("bit of byte %ld unnoticed", at);
        assert_false(file_is_there(3));
        assert_int_equal(warnings, ++expected);
        assert_non_null(strstr(last_warning, "damaged"));
    }
    assert_true(put(3));
    expect_there(3);
    vti_cached_block_free(&got);
    cache_block_free(&b);
}

static void cut_and_longer_files(void **state)
{
    (void)state;
    static const long sizes[] = {0, 1, 95, 96, 97, FILE_BYTES - 1, FILE_BYTES + 1, 1 << 20};
    open_cache(1 << 21);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_true(put(4));
        damage(4, sizes[i], -1);
        assert_false(is_there(4));
        assert_false(file_is_there(4));
    }
    assert_true(put(4));
    expect_there(4);
}

/* A whole, undamaged block under another one's name. */
static void changed_names(void **state)
{
    (void)state;
    char one[256], other[256];
    open_cache(1 << 20);
    assert_true(put(1) && put(2));
    cache_block_path(folder, 1, BYTES, one, sizeof one);
    cache_block_path(folder, 2, BYTES, other, sizeof other);
    assert_int_equal(rename(one, other), 0);
    assert_false(is_there(2));
    assert_false(is_there(1));
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A name below the cache's folder. */
static const char *inside(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void strangers_files_stay(void **state)
{
    (void)state;
    static const char *const names[] = {
        "notes.txt", "shards/notes.txt", "shards/00/notes.txt", "shards/parts/0-0",
        "shards/in-use/somebody", "shards/00/00ABCDEF",
        /* like a block, but in the wrong folder or with a capital digit */
        "shards/00/11aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "shards/00/00Aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    open_cache(3 * FILE_BYTES);
    assert_true(put(1));
    mkdir(inside("shards/00"), 0700);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        write_text(inside(names[i]), "somebody's");
    close_cache();
    open_cache(3 * FILE_BYTES);
    uint64_t taken, most;
    vti_shard_cache_usage(cache, &taken, &most);
    assert_int_equal(taken, FILE_BYTES);
    for (uint32_t i = 2; i < 9; i++) {
        assert_true(put(i));
        vti_shard_cache_let_go(cache);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (access(inside(names[i]), F_OK) != 0) fail_msg("%s was deleted", names[i]);
}

/* Of the folder's files, `usage` is only a help. */
static void wrong_usage_file(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "x", "VTUSAGE and something else",
                                        "VTUSAGE\1\xff\xff\xff\xff\xff\xff\xff\xff"};
    open_cache(4 * FILE_BYTES);
    for (uint32_t i = 0; i < 4; i++) {
        write_text(inside("shards/usage"), texts[i]);
        assert_true(put(i));
        vti_shard_cache_let_go(cache);
    }
    for (uint32_t i = 4; i < 8; i++) {
        assert_true(put(i));
        vti_shard_cache_let_go(cache);
        assert_true(cache_folder_bytes(folder) <= 4 * FILE_BYTES);
    }
    assert_int_equal(warnings, 0);
}

/* --- links, pipes, permissions ----------------------------------------------------------------- */

static void links_are_not_followed(void **state)
{
    (void)state;
    char path[256], outside[80];
    cache_block b;
    cache_block_make(&b, 1, BYTES);
    open_cache(1 << 20);
    assert_true(put(1));
    cache_block_path(folder, 1, BYTES, path, sizeof path);
    /* the block itself */
    snprintf(outside, sizeof outside, "%s.outside", folder);
    assert_int_equal(rename(path, outside), 0);
    assert_int_equal(symlink(outside, path), 0);
    assert_false(is_there(1));
    assert_int_equal(unlink(path), 0);
    /* its folder */
    *strrchr(path, '/') = 0;
    unlink(outside);
    assert_int_equal(rename(path, outside), 0);
    assert_int_equal(symlink(outside, path), 0);
    assert_false(put(1));
    assert_false(is_there(1));
    assert_int_equal(rmdir(outside), 0); /* still empty */
    assert_int_equal(unlink(path), 0);
    assert_true(put(1));
    expect_there(1);
    /* all of it */
    close_cache();
    snprintf(path, sizeof path, "%s/shards", folder);
    assert_int_equal(rename(path, outside), 0);
    assert_int_equal(symlink(outside, path), 0);
    vt_error err;
    assert_int_equal(vti_shard_cache_open(folder, 1 << 20, NULL, &cache, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, path));
    cache_remove_folder(outside);
    cache_block_free(&b);
}

/* The folder that was named may be a link; many have their ~/.cache elsewhere. */
static void the_folder_may_be_a_link(void **state)
{
    (void)state;
    char real[80], link_path[80];
    snprintf(real, sizeof real, "%s/real", folder);
    snprintf(link_path, sizeof link_path, "%s/link", folder);
    assert_int_equal(mkdir(real, 0700), 0);
    assert_int_equal(symlink(real, link_path), 0);
    vt_error err;
    assert_int_equal(vti_shard_cache_open(link_path, 1 << 20, NULL, &cache, &err), VT_OK);
    assert_true(put(1));
    expect_there(1);
}

static void pipes_and_folders_instead_of_files(void **state)
{
    (void)state;
    char path[256];
    open_cache(1 << 20);
    assert_true(put(1));
    cache_block_path(folder, 1, BYTES, path, sizeof path);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(is_there(1)); /* and does not wait for a writer */
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(is_there(1));
    assert_false(put(1));
    assert_int_equal(rmdir(path), 0);
    assert_true(put(1));
    uint64_t taken, most;
    vti_shard_cache_usage(cache, &taken, &most);
    assert_true(taken >= cache_folder_bytes(folder));
}

static void others_may_not_write(void **state)
{
    (void)state;
    static const mode_t modes[] = {0777, 0770, 0702, 01777};
    vt_error err;
    char path[80];
    snprintf(path, sizeof path, "%s/shards", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_int_equal(vti_shard_cache_open(folder, 1 << 20, NULL, &cache, &err),
                         VT_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, path));
        assert_null(cache);
    }
    assert_int_equal(chmod(path, 0755), 0); /* reading is no harm */
    open_cache(1 << 20);
}

static void folders_that_cannot_be(void **state)
{
    (void)state;
    vt_error err;
    write_text(inside("file"), "");
    assert_int_equal(vti_shard_cache_open(inside("file"), 1 << 20, NULL, &cache, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "/file/shards"));
    assert_int_equal(vti_shard_cache_open("", 1 << 20, NULL, &cache, &err), VT_ERR_ARGUMENT);
    assert_int_equal(vti_shard_cache_open("/dev/null/x", 1 << 20, NULL, &cache, &err), VT_ERR_IO);
    assert_null(cache);
    assert_int_equal(vti_shard_cache_open("/dev/null/x", 1 << 20, NULL, &cache, NULL), VT_ERR_IO);
    /* those above it are made */
    assert_int_equal(vti_shard_cache_open(inside("a/b/c"), 1 << 20, NULL, &cache, &err), VT_OK);
}

/* --- deleted while in use ---------------------------------------------------------------------- */

static void delete_inside(const char *what)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s/%s", folder, what);
    assert_int_equal(system(command), 0);
}

static void deleted_during_use(void **state)
{
    (void)state;
    static const char *const what[] = {"shards", "shards/*", "shards/usage", "shards/in-use",
                                       "shards/parts", "shards/??", "../*"};
    char moved[80];
    open_cache(6 * FILE_BYTES);
    for (size_t i = 0; i < sizeof what / sizeof what[0]; i++) {
        assert_true(put(1) && put(2));
        if (strcmp(what[i], "../*") == 0)
            cache_remove_folder(folder); /* with the folder that was named */
        else
            delete_inside(what[i]);
        assert_false(is_there(3));
        assert_true(put(1) && put(2) && put(3));
        for (uint32_t number = 1; number <= 3; number++) expect_there(number);
        vti_shard_cache_let_go(cache);
        delete_inside("shards/??");
    }
    /* moved away, another one in its place */
    snprintf(moved, sizeof moved, "%s.moved", folder);
    assert_true(put(1));
    assert_int_equal(rename(folder, moved), 0);
    assert_false(is_there(1));
    assert_true(put(2));
    expect_there(2);
    cache_remove_folder(moved);
    assert_int_equal(warnings, 0);
}

/* What is in use stays so when the file that says it was deleted. */
static void use_is_said_again(void **state)
{
    (void)state;
    open_cache(3 * FILE_BYTES);
    assert_true(put(1) && put(2));
    delete_inside("shards/in-use");
    assert_true(is_there(1)); /* notices */
    vti_shard_cache *mine = cache;
    open_cache(3 * FILE_BYTES); /* as another process would */
    assert_true(put(3));
    vti_shard_cache_let_go(cache);
    assert_true(put(4));
    assert_true(file_is_there(1) && file_is_there(2) && file_is_there(4));
    assert_false(file_is_there(3));
    vti_shard_cache_close(mine);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(what_goes_in_comes_out), T(one_buffer_serves_many), T(only_the_owner_may_look),
        T(least_lately_used_goes), T(what_is_in_use_stays), T(too_large_a_block), T(chosen_hashes),
        T(a_lower_limit_holds), T(usual_limit), T(flipped_bits), T(cut_and_longer_files),
        T(changed_names), T(strangers_files_stay), T(wrong_usage_file), T(links_are_not_followed),
        T(the_folder_may_be_a_link), T(pipes_and_folders_instead_of_files),
        T(others_may_not_write), T(folders_that_cannot_be),
        T(deleted_during_use), T(use_is_said_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
