/* What the system says about memory: the texts, made-up systems of files, and this one. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../src/memory.h"
#include "../src/memory_parse.h"
#include "../src/memory_watch.h"

/* --- texts ----------------------------------------------------------------------------------- */

static void meminfo(void **state)
{
    (void)state;
    vti_meminfo m = {7, 8};
    static const char *const bad[] = {
        "",
        "MemTotal:  100 kB\n",
        "MemAvailable:  100 kB\n",
        "MemTotal:  100 kB\nMemAvailable:\n",
        "MemTotal:  100 kB\nMemAvailable: -5 kB\n",
        "MemTotal:  100 kB\nMemAvailable: 5\n",
        "MemTotal:  100 kB\nMemAvailable: 5 MB\n",
        "MemTotal:  100 kB\nMemAvailable: 18014398509481984 kB\n",     /* 2^64 bytes */
        "MemTotal:  100 kB\nMemAvailable: 99999999999999999999999 kB\n",
        "MemTotal:  100 kB\n  MemAvailable: 5 kB\n",
        "MemTotal MemAvailable 5 kB",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(vti_parse_meminfo(bad[i], &m));
    assert_true(m.total_bytes == 7 && m.available_bytes == 8);
    assert_true(vti_parse_meminfo("MemTotal:       24684084 kB\nMemFree:        23696360 kB\n"
                                  "MemAvailable:   24099932 kB\nBuffers:            7492 kB\n",
                                  &m));
    assert_int_equal(m.total_bytes, 24684084ull * 1024);
    assert_int_equal(m.available_bytes, 24099932ull * 1024);
    assert_true(vti_parse_meminfo("MemTotal: 1 kB\nMemAvailable:\t0 kB", &m)); /* cut at the end */
    assert_int_equal(m.available_bytes, 0);
}

static void pressure(void **state)
{
    (void)state;
    vti_pressure p = {-1, -1};
    static const char *const bad[] = {
        "",
        "some",
        "some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n",
        "some avg10=1.0 avg60=0.00\nfull avg10=0.00 avg60=0.00\n",
        "some avg10=1.000 avg60=0.00\nfull avg10=0.00 avg60=0.00\n",
        "some avg10=1 avg60=0.00\nfull avg10=0.00 avg60=0.00\n",
        "some avg10= 1.00\nfull avg10=0.00\n",
        "some avg10=1. 0\nfull avg10=0.00\n",
        "some avg10=101.00\nfull avg10=0.00\n",
        "some avg10=nan\nfull avg10=0.00\n",
        "some avg60=1.00\nfull avg60=0.00\n",
        "some avg10=1,00\nfull avg10=0,00\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(vti_parse_pressure(bad[i], &p));
    assert_true(p.some < 0 && p.full < 0);
    assert_true(vti_parse_pressure("some avg10=12.34 avg60=0.00 avg300=0.00 total=3847401\n"
                                   "full avg10=0.07 avg60=0.00 avg300=0.00 total=2254441\n",
                                   &p));
    assert_true(fabs(p.some - 12.34) < 1e-9 && fabs(p.full - 0.07) < 1e-9);
    assert_true(vti_parse_pressure("some avg10=100.00\nfull avg10=99.99", &p));
    assert_true(fabs(p.some - 100) < 1e-9);
}

static void group_files(void **state)
{
    (void)state;
    uint64_t bytes = 3;
    assert_false(vti_parse_cgroup_bytes("", &bytes));
    assert_false(vti_parse_cgroup_bytes("maximum\n", &bytes));
    assert_false(vti_parse_cgroup_bytes("12k\n", &bytes));
    assert_false(vti_parse_cgroup_bytes("-1\n", &bytes));
    assert_false(vti_parse_cgroup_bytes("18446744073709551616\n", &bytes));
    assert_int_equal(bytes, 3);
    assert_true(vti_parse_cgroup_bytes("max\n", &bytes) && bytes == UINT64_MAX);
    assert_true(vti_parse_cgroup_bytes("9223372036854771712\n", &bytes) && bytes == UINT64_MAX);
    assert_true(vti_parse_cgroup_bytes("536870912\n", &bytes) && bytes == 536870912);
    assert_true(vti_parse_cgroup_bytes("0", &bytes) && bytes == 0);

    assert_false(vti_parse_cgroup_file_bytes("anon 5\nfile 6\n", &bytes));
    assert_false(vti_parse_cgroup_file_bytes("inactive_file 5\n", &bytes));
    assert_false(vti_parse_cgroup_file_bytes("inactive_file 5\nactive_file x\n", &bytes));
    assert_false(vti_parse_cgroup_file_bytes(
        "inactive_file 18446744073709551615\nactive_file 1\n", &bytes));
    assert_true(vti_parse_cgroup_file_bytes("anon 1\ninactive_file 50\nactive_file 7\n", &bytes));
    assert_int_equal(bytes, 57);
    assert_true(vti_parse_cgroup_file_bytes("inactive_file 1\nactive_file 2\n"
                                            "total_inactive_file 100\ntotal_active_file 20\n",
                                            &bytes));
    assert_int_equal(bytes, 120);

    assert_false(vti_parse_statm("100 50", 4096, &bytes));
    assert_false(vti_parse_statm("", 4096, &bytes));
    assert_false(vti_parse_statm("1 9007199254740993 0", 4096, &bytes));
    assert_true(vti_parse_statm("100 50 20 1 0 30 0\n", 4096, &bytes) && bytes == 30 * 4096);
    assert_true(vti_parse_statm("100 50 60 1 0 30 0\n", 4096, &bytes) && bytes == 0);
}

typedef struct group_case {
    const char *cgroup, *mountinfo, *folder; /* folder NULL: there is none */
    size_t top_bytes;
    int version;
} group_case;

#define V2_MOUNT "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT                                                                                   \
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"                         \
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"                   \
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"

static const group_case group_cases[] = {
    /* a desktop; a container with its own namespace */
    {"0::/user.slice/user-1000.slice/app\n", V2_MOUNT,
     "/sys/fs/cgroup/user.slice/user-1000.slice/app", 14, 2},
    {"0::/\n", V2_MOUNT, "/sys/fs/cgroup", 14, 2},
    /* both versions: 1 has the memory */
    {"9:name=systemd:/\n4:cpu,memory:/jobs/a\n1:cpuset:/x\n0::/y\n", V1_MOUNT,
     "/sys/fs/cgroup/memory/jobs/a", 21, 1},
    /* version 1 without memory, and a controller whose name only begins so */
    {"4:memory_x,cpu:/jobs/a\n0::/y\n", V1_MOUNT, "/sys/fs/cgroup/unified/y", 22, 2},
    /* a container that sees only its own group, at the mount point */
    {"7:memory:/docker/abc\n",
     "50 49 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
     "/sys/fs/cgroup/memory", 21, 1},
    {"7:memory:/docker/abc/inner\n",
     "50 49 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
     "/sys/fs/cgroup/memory/inner", 21, 1},
    /* a group outside of what is mounted */
    {"7:memory:/elsewhere\n",
     "50 49 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
     "/sys/fs/cgroup/memory", 21, 1},
    {"0::/../sibling\n", V2_MOUNT, "/sys/fs/cgroup", 14, 2},
    /* a blank in the mount point; no optional fields, several of them */
    {"0::/a\n", "30 24 0:26 / /my\\040groups rw - cgroup2 none rw\n", "/my groups/a", 10, 2},
    {"0::/a", "30 24 0:26 / /c rw a:1 b:2 c:3 - cgroup2 none rw", "/c/a", 2, 2},
    /* not what they should be */
    {"", V2_MOUNT, NULL, 0, 0},
    {"0::/a\n", "", NULL, 0, 0},
    {"0::\n", V2_MOUNT, NULL, 0, 0},
    {"0:/a\n", V2_MOUNT, NULL, 0, 0},
    {"nonsense\n0::/a\n", V2_MOUNT, NULL, 0, 0},
    {"0::/a\n", "30 24 0:26 / /c rw cgroup2 none rw\n", NULL, 0, 0},
    {"0::/a\n", "30 24 0:26 / /c rw - cgroup2\n", NULL, 0, 0},
    {"0::/a\n", "30 24 0:26 / relative rw - cgroup2 none rw\n", NULL, 0, 0},
    {"4:memory:/a\n", "35 31 0:32 / /m rw - cgroup cgroup\n", NULL, 0, 0},
};

static void groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof group_cases / sizeof *group_cases; i++) {
        const group_case *c = &group_cases[i];
        vti_cgroup group = {0};
        bool found = vti_parse_cgroup(c->cgroup, c->mountinfo, &group);
        if (found != (c->folder != NULL)) fail_msg("case %zu: found %d", i, found);
        if (!found) continue;
        assert_string_equal(group.folder, c->folder);
        assert_int_equal(group.top_bytes, c->top_bytes);
        assert_int_equal(group.version, c->version);
    }
}

/* Paths that do not fit are not cut. */
static void long_paths(void **state)
{
    (void)state;
    static char path[VTI_CGROUP_PATH_MAX + 64], cgroup[sizeof path + 8];
    vti_cgroup group;
    memset(path, 'p', sizeof path - 1);
    path[0] = '/';
    static const size_t too_long[] = {VTI_CGROUP_PATH_MAX - 14, VTI_CGROUP_PATH_MAX,
                                      sizeof path - 1};
    for (size_t i = 0; i < 3; i++) {
        snprintf(cgroup, sizeof cgroup, "0::%.*s\n", (int)too_long[i], path);
        assert_false(vti_parse_cgroup(cgroup, V2_MOUNT, &group));
    }
    snprintf(cgroup, sizeof cgroup, "0::%.*s\n", VTI_CGROUP_PATH_MAX - 15, path);
    assert_true(vti_parse_cgroup(cgroup, V2_MOUNT, &group));
    assert_int_equal(strlen(group.folder), VTI_CGROUP_PATH_MAX - 1);
}

/* Whatever bytes are damaged: no access beyond the text, and what is found has a sense. */
static void damaged_texts(void **state)
{
    (void)state;
    static const char sample[] = "4:cpu,memory:/jobs/a\n0::/y\n" V1_MOUNT V2_MOUNT
                                 "MemTotal: 10 kB\nMemAvailable: 5 kB\nsome avg10=1.00 \nfull "
                                 "avg10=0.50\ninactive_file 5\nactive_file 6\n";
    test_random random = {0xda3a9ed};
    for (size_t round = 0; round < 20000; round++) {
        char *text = strdup(sample); /* of exactly its size: the sanitizers see what is beyond */
        for (size_t flips = test_random_u64(&random) % 8; flips > 0; flips--)
            text[test_random_u64(&random) % (sizeof sample - 1)] =
                "\0\n :-/,\\0179max"[test_random_u64(&random) % 15];
        vti_cgroup group;
        vti_meminfo info;
        vti_pressure p;
        uint64_t bytes;
        if (vti_parse_cgroup(text, text, &group)) {
            assert_true(group.version == 1 || group.version == 2);
            assert_true(group.top_bytes <= strlen(group.folder) && group.folder[0] == '/');
        }
        vti_parse_meminfo(text, &info);
        if (vti_parse_pressure(text, &p)) assert_true(p.some >= 0 && p.some <= 101);
        vti_parse_cgroup_bytes(text, &bytes);
        vti_parse_cgroup_file_bytes(text, &bytes);
        vti_parse_statm(text, 4096, &bytes);
        free(text);
    }
}

/* --- made-up systems ------------------------------------------------------------------------- */

static char root[64];

/* Writes root/name, with its folders; NULL removes it. */
static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
    if (!text) {
        unlink(path);
        return;
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/voltron-test-memory-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

static vti_memory_sample sample_once(void)
{
    vti_memory_watch *watch = vti_memory_watch_open(root, 0);
    assert_non_null(watch);
    vti_memory_sample s = vti_memory_watch_sample(watch);
    vti_memory_watch_close(watch);
    return s;
}

#define CALM "some avg10=0.00 avg60=0.00\nfull avg10=0.00 avg60=0.00\n"

static void unknown_system(void **state)
{
    (void)state;
    vti_memory_sample s = sample_once();
    assert_int_equal(s.total_bytes | s.available_bytes | s.own_bytes | s.suggested_limit_bytes, 0);
    assert_false(s.in_group || s.is_short);
}

static void without_groups(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal: 8000 kB\nMemAvailable: 6000 kB\n");
    put("proc/pressure/memory", "some avg10=3.25 avg60=0.00\nfull avg10=1.50 avg60=0.00\n");
    char statm[64];
    snprintf(statm, sizeof statm, "900 %ld %ld 1 0 1 0\n", 1200 * 1024 / sysconf(_SC_PAGESIZE),
             200 * 1024 / sysconf(_SC_PAGESIZE));
    put("proc/self/statm", statm);
    vti_memory_sample s = sample_once();
    assert_int_equal(s.total_bytes, 8000 * 1024);
    assert_int_equal(s.available_bytes, 6000 * 1024);
    assert_in_range(s.own_bytes, 1000 * 1024 - 65536, 1000 * 1024 + 65536);
    uint64_t most = s.own_bytes + s.available_bytes;
    assert_int_equal(s.suggested_limit_bytes, most - most / 10);
    assert_true(fabs(s.some_pressure - 3.25) < 1e-9 && fabs(s.full_pressure - 1.5) < 1e-9);
    assert_false(s.in_group || s.is_short);
}

/* The limit that leaves least counts, of whichever group above. */
static void nested_groups(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal: 8000 kB\nMemAvailable: 6000 kB\n");
    put("proc/pressure/memory", CALM);
    put("proc/self/cgroup", "0::/outer/inner\n");
    put("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
    put("sys/fs/cgroup/outer/inner/memory.current", "1000\n");
    put("sys/fs/cgroup/outer/inner/memory.pressure",
        "some avg10=7.00 avg60=0.00\nfull avg10=0.00 avg60=0.00\n");
    put("sys/fs/cgroup/outer/memory.max", "3000000\n");
    put("sys/fs/cgroup/outer/memory.current", "1500000\n");
    vti_memory_sample s = sample_once();
    assert_int_equal(s.available_bytes, 1500000);
    assert_int_equal(s.total_bytes, 3000000);
    assert_true(s.in_group);
    assert_true(fabs(s.some_pressure - 7) < 1e-9);

    /* Pages of files make room when it is needed. */
    put("sys/fs/cgroup/outer/memory.stat", "anon 700\ninactive_file 400000\nactive_file 300000\n");
    assert_int_equal(sample_once().available_bytes, 2200000);
    /* More files than is used: counters are not read at the same time. */
    put("sys/fs/cgroup/outer/memory.stat", "inactive_file 4000000\nactive_file 300000\n");
    assert_int_equal(sample_once().available_bytes, 3000000);
    put("sys/fs/cgroup/outer/memory.stat", NULL);

    put("sys/fs/cgroup/outer/inner/memory.high", "2000\n");
    s = sample_once();
    assert_int_equal(s.available_bytes, 1000);
    assert_int_equal(s.total_bytes, 2000);
    put("sys/fs/cgroup/outer/inner/memory.high", "900\n"); /* over it already */
    s = sample_once();
    assert_int_equal(s.available_bytes, 0);
    assert_true(s.is_short);
    put("sys/fs/cgroup/outer/inner/memory.high", "max\n");

    /* A limit beyond what the system has says nothing. */
    put("sys/fs/cgroup/outer/memory.max", "9000000000\n");
    s = sample_once();
    assert_int_equal(s.available_bytes, 6000 * 1024);
    assert_int_equal(s.total_bytes, 8000 * 1024);
    assert_false(s.in_group);

    /* Without meminfo a group is all that is known. */
    put("proc/meminfo", NULL);
    s = sample_once();
    assert_int_equal(s.available_bytes, 9000000000 - 1500000);
    assert_true(s.in_group);
}

static void groups_of_version_1(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal: 8000 kB\nMemAvailable: 6000 kB\n");
    put("proc/self/cgroup", "4:memory:/job\n0::/\n");
    put("proc/self/mountinfo", V1_MOUNT);
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000000\n");
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000000\n");
    put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1200000\n");
    put("sys/fs/cgroup/memory/job/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 100000\ntotal_active_file 0\n");
    vti_memory_sample s = sample_once();
    assert_int_equal(s.available_bytes, 900000);
    assert_true(s.in_group);
}

/* --- time ------------------------------------------------------------------------------------ */

static void put_available(unsigned kib, const char *some)
{
    char text[128];
    snprintf(text, sizeof text, "MemTotal: 10000 kB\nMemAvailable: %u kB\n", kib);
    put("proc/meminfo", text);
    snprintf(text, sizeof text, "some avg10=%s avg60=0.00\nfull avg10=0.00 avg60=0.00\n", some);
    put("proc/pressure/memory", text);
}

static void samples_are_kept_for_an_interval(void **state)
{
    (void)state;
    vti_memory_watch *lazy = vti_memory_watch_open(root, 3600 * 1000);
    vti_memory_watch *eager = vti_memory_watch_open(root, 0);
    put_available(5000, "0.00");
    assert_int_equal(vti_memory_watch_sample(lazy).available_bytes, 5000 * 1024);
    put_available(4000, "0.00");
    assert_int_equal(vti_memory_watch_sample(lazy).available_bytes, 5000 * 1024);
    assert_int_equal(vti_memory_watch_sample(eager).available_bytes, 4000 * 1024);
    vti_memory_watch_close(lazy);
    vti_memory_watch_close(eager);
    vti_memory_watch_close(NULL);
}

static void count_warnings(void *user, vt_log_level level, const char *message)
{
    assert_int_equal(level, VT_LOG_WARNING);
    assert_non_null(strstr(message, "memory is short"));
    ++*(int *)user;
}

static void one_warning_per_shortage(void **state)
{
    (void)state;
    int warnings = 0;
    vt_log log = {count_warnings, &warnings};
    vti_memory_watch *watch = vti_memory_watch_open(root, 0);
    static const struct {
        unsigned kib;
        const char *some;
        int warnings;
    } steps[] = {
        {5000, "0.00", 0},  {501, "19.99", 0}, {499, "0.00", 1}, {499, "0.00", 1},
        {900, "0.00", 1}, /* not yet plentiful */
        {499, "0.00", 1},   {1001, "0.00", 1}, {700, "0.00", 1}, {400, "0.00", 2},
        {5000, "0.00", 2},  {5000, "20.00", 3}, {5000, "10.00", 3}, {5000, "25.00", 3},
        {5000, "9.99", 3},  {5000, "50.00", 4},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        put_available(steps[i].kib, steps[i].some);
        vti_memory_watch_warn(watch, &log);
        if (warnings != steps[i].warnings) fail_msg("step %zu: %d warnings", i, warnings);
    }
    vti_memory_watch_close(watch);
}

/* --- this system ----------------------------------------------------------------------------- */

static void this_system(void **state)
{
    (void)state;
    if (access("/proc/meminfo", R_OK) != 0) skip();
    vti_memory_watch *watch = vti_memory_watch_open("", 1000);
    vti_memory_sample s = vti_memory_watch_sample(watch);
    assert_true(s.total_bytes >= 1 << 20);
    assert_in_range(s.available_bytes, 1, s.total_bytes);
    assert_in_range(s.some_pressure, 0, 100);
    assert_true(s.suggested_limit_bytes > 0 && s.suggested_limit_bytes < s.total_bytes);
    s = vti_memory_watch_sample(watch);
    vti_memory_watch_close(watch);
    uint64_t spare = vti_memory_spare_bytes();
    assert_in_range(spare, 1, s.total_bytes - s.total_bytes / 10);
}

int main(void)
{
#define ON_FILES(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meminfo),
        cmocka_unit_test(pressure),
        cmocka_unit_test(group_files),
        cmocka_unit_test(groups),
        cmocka_unit_test(long_paths),
        cmocka_unit_test(damaged_texts),
        ON_FILES(unknown_system),
        ON_FILES(without_groups),
        ON_FILES(nested_groups),
        ON_FILES(groups_of_version_1),
        ON_FILES(samples_are_kept_for_an_interval),
        ON_FILES(one_warning_per_shortage),
        cmocka_unit_test(this_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
