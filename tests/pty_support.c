#include "pty_support.h"
#include "support.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <utmp.h> /* login_tty */
#include <unistd.h>

enum { PATIENCE_MS = 30000 };

static test_pty *start(const char *line)
{
    test_pty *pty = calloc(1, sizeof *pty);
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    if (openpty(&pty->fd, &pty->terminal, NULL, NULL, &size) != 0) fail_msg("no terminal");
    pty->pid = fork();
    if (pty->pid == 0) {
        close(pty->fd);
        setenv("TERM", "xterm", 1);
        login_tty(pty->terminal);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return pty;
}

static test_pty *start_between(const char *before, const char *arguments, const char *behind)
{
    char line[8192];
    snprintf(line, sizeof line, "%s %s %s/voltron-run %s%s", before, test_runner(),
             test_bin_folder(), arguments, behind);
    return start(line);
}

test_pty *test_pty_start(const char *arguments) { return start_between("exec", arguments, ""); }

test_pty *test_pty_start_job(const char *arguments, const char *then)
{
    char behind[256];
    snprintf(behind, sizeof behind, "; %s", then);
    return start_between("set -m;", arguments, behind);
}

void test_pty_send_bytes(test_pty *pty, const char *data, size_t bytes)
{
    if (write(pty->fd, data, bytes) != (ssize_t)bytes) fail_msg("cannot write to the terminal");
}

void test_pty_send(test_pty *pty, const char *text)
{
    test_pty_send_bytes(pty, text, strlen(text));
}

/* False at the end of the output. */
static bool read_more(test_pty *pty, int patience_ms)
{
    struct pollfd ready = {.fd = pty->fd, .events = POLLIN};
    if (pty->room - pty->bytes < 4097) {
        pty->room = pty->room * 2 + 8192;
        pty->output = realloc(pty->output, pty->room);
    }
    if (poll(&ready, 1, patience_ms) <= 0) return false;
    ssize_t got = read(pty->fd, pty->output + pty->bytes, 4096);
    if (got <= 0) return false;
    pty->bytes += (size_t)got;
    pty->output[pty->bytes] = 0;
    return true;
}

void test_pty_expect(test_pty *pty, const char *text)
{
    for (;;) {
        const char *found = NULL;
        size_t from = pty->seen;
        if (pty->bytes > from)
            found = memmem(pty->output + from, pty->bytes - from, text, strlen(text));
        if (found) {
            pty->seen = (size_t)(found - pty->output) + strlen(text);
            return;
        }
        if (!read_more(pty, PATIENCE_MS))
            fail_msg("no \"%s\" in what was printed:\n%s", text,
                     pty->output ? pty->output + from : "");
    }
}

bool test_pty_is_cooked(const test_pty *pty)
{
    struct termios settings;
    if (tcgetattr(pty->terminal, &settings) != 0) return false;
    return (settings.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG) &&
           (settings.c_oflag & OPOST);
}

int test_pty_finish(test_pty *pty)
{
    int status = 0, waited_ms = 0;
    while (waitpid(pty->pid, &status, WNOHANG) == 0) {
        if (!read_more(pty, 20)) waited_ms += 20;
        if (waited_ms > PATIENCE_MS) fail_msg("the program does not end:\n%s", pty->output);
    }
    while (read_more(pty, 0)) {}
    close(pty->terminal);
    close(pty->fd);
    free(pty->output);
    free(pty);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
