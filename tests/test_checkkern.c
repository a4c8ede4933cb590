/* Every kernel of every instruction set this processor has, against the oracle.
 *
 *   test_checkkern [PART-OF-A-NAME [SEED]]      for example: test_checkkern avx2:matmul_q4_k 0x1234
 *
 * The feature mask is raised one step at a time and the normal initialisation runs again; what is
 * new in the table is checked. A failure prints the line that repeats it alone. Then the harness
 * itself is checked with kernels that are wrong on purpose. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkkern/checkkern.h"
#include "checkkern/wrong.h"

enum { MAX_LEVELS = 8 };

static uint64_t seed;

/* One test: an entry of the table at a level. */
typedef struct job {
    char name[96];
    ck_entry entry;
    const vti_kernels *kernels;
} job;

static vti_kernels levels[MAX_LEVELS];
static const char *level_names[MAX_LEVELS];
static size_t level_count;

static void add_level(uint32_t mask, const char *name)
{
    vti_kernels_init(&levels[level_count], mask);
    level_names[level_count++] = name;
}

static void init_levels(void)
{
    uint32_t features = vti_cpu_features(), mask = 0;
    add_level(0, "scalar");
    for (uint32_t bit = 1; bit; bit <<= 1) {
        if (!(features & bit)) continue;
        mask |= bit;
        add_level(mask, vti_cpu_feature_name(bit));
    }
}

static void run_job(void **state)
{
    const job *j = *state;
    char message[512];
    if (!ck_run(j->entry.check, j->kernels, j->entry.index, seed, message, sizeof message))
        fail_msg("%s\n    again: test_checkkern %s 0x%llx", message, j->name,
                 (unsigned long long)seed);
}

static void run_wrong(void **state)
{
    const ck_wrong *w = *state;
    vti_kernels kernels;
    char message[512] = "";
    vti_kernels_init(&kernels, 0);
    w->spoil(&kernels);
    if (ck_run(w->check, &kernels, w->index, seed, message, sizeof message))
        fail_msg("the harness takes a wrong kernel for a right one");
    if (!strstr(message, w->complaint))
        fail_msg("rejected for the wrong reason: %s (should be: … %s …)", message, w->complaint);
}

static job *make_jobs(size_t *count)
{
    job *jobs = calloc(MAX_LEVELS * CK_MAX_ENTRIES, sizeof *jobs);
    assert_non_null(jobs);
    *count = 0;
    for (size_t level = 0; level < level_count; level++) {
        ck_entry now[CK_MAX_ENTRIES], before[CK_MAX_ENTRIES];
        size_t entries = ck_entries(&levels[level], now);
        if (level > 0) ck_entries(&levels[level - 1], before);
        for (size_t i = 0; i < entries; i++) {
            /* An activation form that no product of this level wants has no function. */
            if (!now[i].function) continue;
            if (level > 0 && now[i].function == before[i].function) continue;
            job *j = &jobs[(*count)++];
            j->entry = now[i];
            j->kernels = &levels[level];
            snprintf(j->name, sizeof j->name, "%.20s:%.63s", level_names[level], now[i].name);
        }
    }
    return jobs;
}

static uint64_t random_seed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) * 0x9E3779B97F4A7C15u;
}

static size_t add_test(struct CMUnitTest *tests, size_t count, const char *only, const char *name,
                       CMUnitTestFunction function, void *state)
{
    if (only && !strstr(name, only)) return count;
    tests[count] = (struct CMUnitTest){name, function, NULL, NULL, state};
    return count + 1;
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : random_seed();
    printf("seed 0x%llx\n", (unsigned long long)seed);
    init_levels();
    size_t job_count, count = 0;
    job *jobs = make_jobs(&job_count);
    struct CMUnitTest *tests = calloc(job_count + ck_wrong_count, sizeof *tests);
    if (!tests) return 1;
    for (size_t i = 0; i < job_count; i++)
        count = add_test(tests, count, only, jobs[i].name, run_job, &jobs[i]);
    for (size_t i = 0; i < ck_wrong_count; i++)
        count = add_test(tests, count, only, ck_wrongs[i].name, run_wrong, (void *)&ck_wrongs[i]);
    int failed = _cmocka_run_group_tests("checkkern", tests, count, NULL, NULL);
    free(tests);
    free(jobs);
    return failed;
}
