#include "bench_support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/voltron-bench-XXXXXX";

const char *bench_folder(void) { return folder; }

bench_result bench_run(const char *line)
{
    char command[4096], full[4096], text_path[128];
    size_t at = 0;
    snprintf(text_path, sizeof text_path, "%s.text", folder);
    for (const char *c = line; *c && at < sizeof command - 1024; c++) {
        size_t room = sizeof command - at;
        if (strncmp(c, "BENCH", 5) == 0) {
            at += (size_t)snprintf(command + at, room, "%s %s/voltron-bench", test_runner(),
                                   test_bin_folder());
            c += 4;
        } else if (strncmp(c, "DIR", 3) == 0) {
            at += (size_t)snprintf(command + at, room, "%s", folder);
            c += 2;
        } else {
            command[at++] = *c;
        }
    }
    command[at] = 0;
    setenv("VOLTRON_TEST_LINE", command, 1);
    snprintf(full, sizeof full, "bash -c \"$VOLTRON_TEST_LINE\" >%s 2>&1 </dev/null", text_path);
    int status = system(full);
    bench_result r = {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), NULL};
    r.text = (char *)test_read_file(text_path, NULL);
    unlink(text_path);
    return r;
}

void bench_expect(const char *line, int code, const char *text)
{
    bench_result r = bench_run(line);
    if (r.code != code) fail_msg("%s: exit code %d, expected %d\n%s", line, r.code, code, r.text);
    if (text && !strstr(r.text, text)) fail_msg("%s: no \"%s\" in:\n%s", line, text, r.text);
    free(r.text);
}

const char *bench_synth(const char *file, const char *options)
{
    static char path[128];
    char line[512];
    snprintf(line, sizeof line, "BENCH synth -o DIR/%s %s", file, options);
    bench_expect(line, 0, NULL);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

void bench_expect_empty_folder(void)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.') fail_msg("%s was left behind", entry->d_name);
    closedir(dir);
}

int bench_make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

int bench_remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}
