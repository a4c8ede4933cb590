/* Memory for shards: separate, aligned, returned to the system, and what it says it holds is what
 * the system says the process has. */
#include "support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/shard_memory.h"

enum { KIBI = 1 << 10, MEBI = 1 << 20, BLOCK = 2 * MEBI };

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* --- what the system says -------------------------------------------------------------------- */

static bool counts_are_meaningful(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return false;
#endif
#endif
    return !test_is_emulated() && access("/proc/self/smaps_rollup", R_OK) == 0;
}

static void skip_without_counts(void)
{
    if (counts_are_meaningful()) return;
    printf("NOTICE skipped: resident memory is not the program's own here\n");
    skip();
}

/* A line of /proc/self/smaps_rollup, in bytes: exact, unlike /proc/self/statm. */
static int64_t rollup(const char *line_format)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    assert_non_null(file);
    char line[128];
    long kib = -1;
    while (kib < 0 && fgets(line, sizeof line, file)) sscanf(line, line_format, &kib);
    fclose(file);
    assert_true(kib >= 0);
    return (int64_t)kib * KIBI;
}

static int64_t resident_bytes(void) { return rollup("Anonymous: %ld kB"); }

/* --- allocations with a content -------------------------------------------------------------- */

typedef struct piece {
    unsigned char *at;
    size_t bytes;
    uint64_t mark;
} piece;

/* Writes every page, and its edges in full; checks the same bytes. */
static void write_piece(const piece *p)
{
    for (size_t i = 0; i + 8 <= p->bytes; i += KIBI) memcpy(p->at + i, &p->mark, 8);
    for (size_t i = p->bytes < 64 ? 0 : p->bytes - 64; i < p->bytes; i++)
        p->at[i] = (unsigned char)(p->mark >> 8);
}

static bool piece_is_whole(const piece *p)
{
    size_t tail = p->bytes < 64 ? 0 : p->bytes - 64;
    for (size_t i = 0; i + 8 <= p->bytes && i + 8 <= tail; i += KIBI)
        if (memcmp(p->at + i, &p->mark, 8) != 0) return false;
    for (size_t i = tail; i < p->bytes; i++)
        if (p->at[i] != (unsigned char)(p->mark >> 8)) return false;
    return true;
}

/* Many of KiB, some of MiB. */
static size_t random_size(test_random *random, size_t most)
{
    uint64_t r = test_random_u64(random);
    size_t shift = r % 12, bytes = (size_t)(r >> 16) % (most >> shift) + 1;
    return r >> 60 ? bytes : (bytes + KIBI - 1) / KIBI * KIBI;
}

static bool add_piece(vti_shard_memory *m, piece *p, size_t bytes, uint64_t mark)
{
    void *at;
    vt_error err;
    *p = (piece){NULL, bytes, mark};
    if (vti_shard_memory_allocate(m, bytes, "a piece", &at, &err) != VT_OK) return false;
    p->at = at;
    write_piece(p);
    return true;
}

/* --- tests ----------------------------------------------------------------------------------- */

static void pieces_are_separate(void **state)
{
    (void)state;
    enum { PIECES = 200 };
    static piece p[PIECES];
    vti_shard_memory *m = vti_shard_memory_open(NULL, VTI_BUDGET_WEIGHTS);
    for (size_t i = 0; i < PIECES; i++) {
        p[i].bytes = i * 1000 + !i;
        void *at;
        assert_int_equal(vti_shard_memory_allocate(m, i * 1000, "a piece", &at, NULL), VT_OK);
        assert_int_equal((uintptr_t)at % 64, 0);
        p[i].at = at;
        memset(p[i].at, (int)i + 1, p[i].bytes);
    }
    for (size_t i = 0; i < PIECES; i++)
        for (size_t j = 0; j < p[i].bytes; j++) assert_int_equal(p[i].at[j], (i + 1) & 255);
    assert_int_equal(vti_shard_memory_get(m).allocations, PIECES);
    assert_int_equal(vti_shard_memory_get(m).regions, 1);
    vti_shard_memory_free(m, NULL);
    vti_shard_memory_close(m);
    vti_shard_memory_close(NULL);
}

/* A model of what must be true after every step. */
static void check_sums(vti_shard_memory *m, const vti_budget *budget, const piece *p, size_t count)
{
    vti_shard_memory_usage u = vti_shard_memory_get(m);
    uint64_t pages = 0;
    for (size_t i = 0; i < count; i++)
        pages += (p[i].bytes + page_bytes() - 1) / page_bytes();
    assert_int_equal(u.allocations, count);
    assert_int_equal(u.allocated_bytes, pages * page_bytes());
    assert_in_range(u.held_bytes, u.allocated_bytes,
                    u.allocated_bytes + (uint64_t)u.regions * BLOCK);
    assert_true((u.regions == 0) == (count == 0));
    assert_true((u.mapped_bytes == 0) == (count == 0));
    assert_int_equal(vti_budget_get(budget).used_bytes[VTI_BUDGET_CACHE], u.held_bytes);
    assert_int_equal(vti_budget_get(budget).total_bytes, u.held_bytes);
}

static void random_calls(size_t steps, size_t most_bytes, uint64_t limit, uint64_t seed,
                         bool look_at_system)
{
    enum { MOST = 256 };
    static piece p[MOST];
    size_t count = 0, refused = 0;
    int64_t baseline = look_at_system ? resident_bytes() : 0;
    test_random random = {seed};
    vti_budget budget;
    vti_budget_init(&budget, limit);
    vti_shard_memory *m = vti_shard_memory_open(&budget, VTI_BUDGET_CACHE);
    for (size_t step = 0; step < steps; step++) {
        /* Grows and shrinks in waves: nearly all of it is freed now and then. */
        bool grow = test_random_u64(&random) % 8 < (step / 300 % 2 ? 2u : 6u);
        if (count == 0 || (grow && count < MOST)) {
            size_t bytes = random_size(&random, most_bytes);
            if (add_piece(m, &p[count], bytes, test_random_u64(&random)))
                count++;
            else
                refused++;
        } else {
            size_t i = test_random_u64(&random) % count;
            assert_true(piece_is_whole(&p[i]));
            vti_shard_memory_free(m, p[i].at);
            p[i] = p[--count];
        }
        check_sums(m, &budget, p, count);
        if (!look_at_system || step % 10) continue;
        int64_t held = (int64_t)vti_shard_memory_get(m).held_bytes;
        int64_t seen = resident_bytes() - baseline;
        if (seen < held - held / 20 - 256 * KIBI || seen > held + held / 20 + 256 * KIBI)
            fail_msg("step %zu, seed %#llx: holds %lld KiB, the system says %lld", step,
                     (unsigned long long)seed, (long long)held / KIBI, (long long)seen / KIBI);
    }
    assert_true(limit ? refused > 0 : refused == 0);
    for (size_t i = 0; i < count; i++) assert_true(piece_is_whole(&p[i]));
    vti_shard_memory_close(m);
    assert_int_equal(vti_budget_get(&budget).total_bytes, 0);
}

static void random_calls_keep_content(void **state)
{
    (void)state;
    random_calls(4000, 600 * KIBI, 0, 0x5eed0001, false);
    random_calls(1500, 9 * MEBI, 0, 0x5eed0002, false);
}

static void random_calls_within_a_budget(void **state)
{
    (void)state;
    random_calls(2000, 2 * MEBI, 16 * MEBI, 0x5eed0003, false);
}

static void resident_is_what_is_held(void **state)
{
    (void)state;
    skip_without_counts();
    random_calls(1500, 4 * MEBI, 0, 0x5eed0004, true);
    random_calls(1000, 100 * KIBI, 0, 0x5eed0005, true);
    random_calls(600, 12 * MEBI, 0, 0x5eed0006, true);
}

/* What a plan change does: every shard is replaced by one of another size, first the new one, then
 * the old one goes. */
static void shards_are_replaced(void **state)
{
    (void)state;
    enum { SHARDS = 60, TURNS = 9 };
    static const size_t sizes[] = {1400 * KIBI, 750 * KIBI, 400 * KIBI}; /* F16, I8, I4 */
    static piece p[SHARDS];
    bool look = counts_are_meaningful();
    int64_t baseline = look ? resident_bytes() : 0;
    vti_budget budget;
    vti_budget_init(&budget, 0);
    vti_shard_memory *m = vti_shard_memory_open(&budget, VTI_BUDGET_WEIGHTS);
    for (size_t i = 0; i < SHARDS; i++) assert_true(add_piece(m, &p[i], sizes[0], i));
    for (size_t turn = 1; turn <= TURNS; turn++)
        for (size_t i = 0; i < SHARDS; i++) {
            piece next;
            assert_true(add_piece(m, &next, sizes[turn % 3], turn * SHARDS + i));
            assert_true(piece_is_whole(&p[i]));
            vti_shard_memory_free(m, p[i].at);
            p[i] = next;
            if (!look || i % 7) continue;
            int64_t held = (int64_t)vti_shard_memory_get(m).held_bytes;
            int64_t seen = resident_bytes() - baseline;
            assert_in_range(seen, held - held / 20, held + held / 20);
        }
    vti_shard_memory_usage u = vti_shard_memory_get(m);
    assert_int_equal(u.regions, 1);
    assert_int_equal(u.allocated_bytes, SHARDS * sizes[0]);
    /* More than one shard at a time was never needed beside those in use. */
    assert_in_range(vti_budget_get(&budget).peak_bytes, SHARDS * sizes[0],
                    SHARDS * sizes[0] + sizes[0] + BLOCK);
    vti_shard_memory_close(m);
}

static int64_t huge_bytes(void) { return rollup("AnonHugePages: %ld kB"); }

/* Weights that are loaded one after the other lie in huge pages, also those that were put into
 * holes. */
static void weights_lie_in_huge_pages(void **state)
{
    (void)state;
    skip_without_counts();
    enum { SHARDS = 48, BYTES = 700 * KIBI };
    static piece p[SHARDS];
    vti_shard_memory *m = vti_shard_memory_open(NULL, VTI_BUDGET_WEIGHTS);
    int64_t before = huge_bytes();
    for (size_t i = 0; i < SHARDS; i++) assert_true(add_piece(m, &p[i], BYTES, i));
    int64_t loaded = huge_bytes() - before;
    if (loaded == 0) {
        printf("NOTICE skipped: this system gives no huge pages\n");
        vti_shard_memory_close(m);
        skip();
    }
    /* An eighth: a system under pressure may refuse some. */
    assert_true(loaded >= (int64_t)SHARDS * BYTES * 7 / 8);
    for (size_t i = 0; i < SHARDS; i += 3) vti_shard_memory_free(m, p[i].at);
    assert_true(huge_bytes() - before < loaded / 2);
    for (size_t i = 0; i < SHARDS; i += 3) assert_true(add_piece(m, &p[i], BYTES, i));
    int64_t filled = huge_bytes() - before;
    for (size_t i = 0; i < SHARDS; i++) assert_true(piece_is_whole(&p[i]));
    vti_shard_memory_close(m);
    if (filled < loaded / 2) {
        printf("NOTICE skipped: this system does not join small pages on request\n");
        skip();
    }
    assert_true(filled >= (int64_t)SHARDS * BYTES * 7 / 8);
}

/* What does not fit in one region gets one of its own; small pieces still fill the first. */
static void large_pieces(void **state)
{
    (void)state;
    vti_shard_memory *m = vti_shard_memory_open(NULL, VTI_BUDGET_WEIGHTS);
    void *small, *large, *next;
    assert_int_equal(vti_shard_memory_allocate(m, 100, "small", &small, NULL), VT_OK);
    assert_int_equal(vti_shard_memory_allocate(m, (size_t)300 * MEBI, "large", &large, NULL),
                     VT_OK);
    assert_int_equal(vti_shard_memory_allocate(m, 100, "small", &next, NULL), VT_OK);
    assert_int_equal((unsigned char *)next - (unsigned char *)small, page_bytes());
    assert_int_equal(vti_shard_memory_get(m).regions, 2);
    ((unsigned char *)large)[0] = ((unsigned char *)large)[(size_t)300 * MEBI - 1] = 1;
    vti_shard_memory_free(m, large);
    assert_int_equal(vti_shard_memory_get(m).regions, 1);
    vti_shard_memory_free(m, small);
    vti_shard_memory_free(m, next);
    vti_shard_memory_usage u = vti_shard_memory_get(m);
    assert_int_equal(u.regions | u.mapped_bytes | u.held_bytes | u.allocations, 0);
    vti_shard_memory_close(m);
}

static void impossible_sizes(void **state)
{
    (void)state;
    vti_budget budget;
    vti_budget_init(&budget, 0);
    vti_shard_memory *m = vti_shard_memory_open(&budget, VTI_BUDGET_WEIGHTS);
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 63, UINT64_MAX / 2, UINT64_MAX / 4,
                                     (uint64_t)1 << 50};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *at = m;
        vt_error err = {0};
        assert_int_equal(vti_shard_memory_allocate(m, sizes[i], "shard 7 of unit 3", &at, &err),
                         VT_ERR_MEMORY);
        assert_null(at);
        assert_non_null(strstr(err.message, "shard 7 of unit 3"));
    }
    piece p;
    assert_true(add_piece(m, &p, 1, 1)); /* it goes on */
    vti_shard_memory_close(m);
    assert_int_equal(vti_budget_get(&budget).total_bytes, 0);
}

/* The last pages of a budget can be used, without the rest of their huge page. */
static void budget_to_the_last_page(void **state)
{
    (void)state;
    enum { PIECES = 37 };
    size_t bytes = 16 * page_bytes();
    vti_budget budget;
    vti_budget_init(&budget, PIECES * bytes);
    vti_shard_memory *m = vti_shard_memory_open(&budget, VTI_BUDGET_WEIGHTS);
    piece p[PIECES + 1];
    vt_error err = {0};
    for (size_t i = 0; i < PIECES; i++) assert_true(add_piece(m, &p[i], bytes, i));
    void *at;
    assert_int_equal(vti_shard_memory_allocate(m, 1, "the one too many", &at, &err), VT_ERR_MEMORY);
    assert_null(at);
    assert_non_null(strstr(err.message, "the one too many needs"));
    assert_int_equal(vti_budget_left(&budget), 0);
    vti_shard_memory_free(m, p[5].at);
    assert_true(add_piece(m, &p[5], bytes, 99));
    for (size_t i = 0; i < PIECES; i++) assert_true(piece_is_whole(&p[i]));
    vti_shard_memory_close(m);
}

/* A limited address space: smaller regions, then an error, and then it goes on. */
static int fill_address_space(void)
{
    struct rlimit limit = {(rlim_t)700 * MEBI, (rlim_t)700 * MEBI};
    vti_shard_memory *m = vti_shard_memory_open(NULL, VTI_BUDGET_WEIGHTS);
    if (!m || setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    void *at[200];
    size_t count = 0;
    vt_error err = {0};
    vt_status status = VT_OK;
    while (count < 200 && status == VT_OK)
        if ((status = vti_shard_memory_allocate(m, 5 * MEBI, "x", &at[count], &err)) == VT_OK)
            *(char *)at[count++] = 1;
    if (count < 60 || count == 200 || status != VT_ERR_MEMORY) return 3;
    vti_shard_memory_free(m, at[3]);
    if (vti_shard_memory_allocate(m, 5 * MEBI, "x", &at[3], &err) != VT_OK) return 4;
    vti_shard_memory_close(m);
    return 0;
}

static void limited_address_space(void **state)
{
    (void)state;
    skip_without_counts();
    pid_t child = fork();
    if (child == 0) _exit(fill_address_space());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 400, OWN = 12 };

typedef struct worker {
    vti_shard_memory *memory;
    uint64_t seed;
    size_t damaged;
} worker;

static void *allocate_and_free(void *argument)
{
    worker *w = argument;
    test_random random = {w->seed};
    piece p[OWN] = {{0}};
    for (size_t i = 0; i < ROUNDS; i++) {
        piece *chosen = &p[test_random_u64(&random) % OWN];
        if (chosen->at) {
            w->damaged += !piece_is_whole(chosen);
            vti_shard_memory_free(w->memory, chosen->at);
            chosen->at = NULL;
        } else {
            add_piece(w->memory, chosen, random_size(&random, 3 * MEBI), test_random_u64(&random));
        }
    }
    for (size_t i = 0; i < OWN; i++) {
        w->damaged += p[i].at && !piece_is_whole(&p[i]);
        vti_shard_memory_free(w->memory, p[i].at);
    }
    return NULL;
}

static void threads_share_it(void **state)
{
    (void)state;
    vti_budget budget;
    vti_budget_init(&budget, 24 * MEBI);
    vti_shard_memory *m = vti_shard_memory_open(&budget, VTI_BUDGET_WEIGHTS);
    worker workers[THREADS];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){m, 0xabcdef01 + i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].damaged, 0);
    }
    check_sums(m, &(vti_budget){0}, NULL, 0);
    assert_int_equal(vti_budget_get(&budget).total_bytes, 0);
    vti_shard_memory_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_separate),
        cmocka_unit_test(random_calls_keep_content),
        cmocka_unit_test(random_calls_within_a_budget),
        cmocka_unit_test(resident_is_what_is_held),
        cmocka_unit_test(shards_are_replaced),
        cmocka_unit_test(weights_lie_in_huge_pages),
        cmocka_unit_test(large_pieces),
        cmocka_unit_test(impossible_sizes),
        cmocka_unit_test(budget_to_the_last_page),
        cmocka_unit_test(limited_address_space),
        cmocka_unit_test(threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
