#include "cli_support.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static char folder[] = "/tmp/voltron-cli-XXXXXX";

const char *test_cli_folder(void) { return folder; }

/* History and caches of whoever runs the tests are left alone. */
int test_cli_set_up(void **state)
{
    (void)state;
    char cache[64];
    if (!mkdtemp(folder)) return -1;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("VOLTRON_NO_PROFILE", "1", 1); /* takes seconds */
    return setenv("XDG_STATE_HOME", folder, 1);
}

int test_cli_tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* The line with every RUN replaced by the program. */
static void write_line(const char *line, char *out, size_t capacity)
{
    char program[1024];
    snprintf(program, sizeof program, "%s %s/voltron-run", test_runner(), test_bin_folder());
    size_t at = (size_t)snprintf(out, capacity, "DIR=%s; ", folder);
    while (*line && at + sizeof program < capacity) {
        if (strncmp(line, "RUN", 3) == 0) {
            at += (size_t)snprintf(out + at, capacity - at, "%s", program);
            line += 3;
        } else {
            out[at++] = *line++;
        }
    }
    out[at] = 0;
    if (*line) fail_msg("the line is too long: %s", line);
}

test_result test_cli(const char *line)
{
    char command[8192], full[1024], out[64], err[64];
    write_line(line, command, sizeof command);
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(err, sizeof err, "%s/err", folder);
    setenv("VOLTRON_TEST_LINE", command, 1);
    snprintf(full, sizeof full, "bash -c \"$VOLTRON_TEST_LINE\" >%s 2>%s </dev/null", out, err);
    int status = system(full);
    test_result r = {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), NULL, NULL};
    r.out = (char *)test_read_file(out, NULL);
    r.err = (char *)test_read_file(err, NULL);
    return r;
}

void test_result_free(test_result *r)
{
    free(r->out);
    free(r->err);
}

void test_cli_expect(const char *line, int code, const char *in_out, const char *in_err)
{
    test_result r = test_cli(line);
    if (r.code != code) fail_msg("%s: exit code %d, expected %d\n%s", line, r.code, code, r.err);
    if (in_out && !strstr(r.out, in_out)) fail_msg("%s: no \"%s\" in:\n%s", line, in_out, r.out);
    if (in_err && !strstr(r.err, in_err)) fail_msg("%s: no \"%s\" in:\n%s", line, in_err, r.err);
    test_result_free(&r);
}

char *test_cli_output(const char *line, int code)
{
    test_result r = test_cli(line);
    if (r.code != code)
        fail_msg("%s: exit code %d, expected %d\n%s%s", line, r.code, code, r.out, r.err);
    free(r.err);
    return r.out;
}
