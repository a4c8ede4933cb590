/* pty_support.h: voltron-run on a terminal, as a user has it. */
#ifndef VTI_TEST_PTY_SUPPORT_H
#define VTI_TEST_PTY_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <termios.h>

typedef struct test_pty {
    pid_t pid;
    int fd;           /* the terminal's other end */
    int terminal;     /* and the end the program has, kept open to look at its settings */
    char *output;     /* all that was printed */
    size_t bytes, room;
    size_t seen;      /* up to where something was expected and found */
} test_pty;

/* Starts "voltron-run ARGUMENTS" (a shell line) on a terminal of 80 columns. */
test_pty *test_pty_start(const char *arguments);

/* The same as a job of a shell, which runs `then` when it is suspended (such as "sleep 1; fg"). */
test_pty *test_pty_start_job(const char *arguments, const char *then);

void test_pty_send(test_pty *pty, const char *text);
void test_pty_send_bytes(test_pty *pty, const char *data, size_t bytes);

/* Waits until `text` is printed behind what was found before; fails the test if it does not come
 * within a minute. */
void test_pty_expect(test_pty *pty, const char *text);

/* Has the terminal line editing and echo of its own (no raw mode left)? */
bool test_pty_is_cooked(const test_pty *pty);

/* Waits for the end; exit code, or 128 + signal. Frees. */
int test_pty_finish(test_pty *pty);

#endif
