/* local.c: worker processes on this machine, for trying a cluster out. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "cli.h"

static pid_t workers[CLI_LOCAL_MAX];
static uint32_t worker_count;

static vt_worker *serving;

static void on_terminate(int number)
{
    (void)number;
    vt_worker_stop(serving);
}

/* The child's whole life. Writes its address, NUL-terminated, to the pipe. */
static void serve(int pipe_end, uint32_t threads, const char *model_path, pid_t parent)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no orphan if the main process is killed */
#endif
    if (getppid() != parent) _exit(1);
    signal(SIGINT, SIG_IGN); /* Ctrl-C is for the main device, which then ends us */
    vt_worker_params params = vt_worker_params_default();
    vt_error err;
    params.listen = "127.0.0.1:0";
    params.threads = threads;
    params.model_path = model_path;
    vt_status status = vt_worker_open(&params, &serving, &err);
    if (status != VT_OK) { /* what is wrong with the model, the main device says */
        params.model_path = NULL;
        status = vt_worker_open(&params, &serving, &err);
    }
    if (status == VT_OK) {
        signal(SIGTERM, on_terminate);
        const char *address = vt_worker_address(serving);
        if (write(pipe_end, address, strlen(address) + 1) < 0) _exit(1);
        close(pipe_end);
        status = vt_worker_run(serving, &err);
        vt_worker_close(serving);
    }
    if (status != VT_OK) cli_fail(&err);
    _exit((int)status);
}

static int start_one(uint32_t threads, const char *model_path, char address[64])
{
    int ends[2];
    if (pipe(ends) != 0)
        return cli_error(VT_ERR_IO, "cannot start a worker: %s", strerror(errno));
    fflush(NULL); /* or the child would write it again */
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        serve(ends[1], threads, model_path, parent);
    }
    close(ends[1]);
    size_t at = 0;
    ssize_t got = 1;
    while (child > 0 && at < 63 && got > 0) {
        got = read(ends[0], address + at, 63 - at);
        if (got > 0) at += (size_t)got;
        if (at && address[at - 1] == 0) break;
    }
    address[at < 63 ? at : 63] = 0;
    close(ends[0]);
    if (child > 0) workers[worker_count++] = child;
    if (child > 0 && address[0]) return CLI_OK;
    return cli_error(VT_ERR_IO, "a worker process did not start");
}

int cli_start_workers(uint32_t count, uint32_t threads, const char *model_path,
                      char addresses[][64])
{
    for (uint32_t i = 0; i < count && i < CLI_LOCAL_MAX; i++) {
        int code = start_one(threads, model_path, addresses[i]);
        if (code != CLI_OK) {
            cli_stop_workers();
            return code;
        }
    }
    return CLI_OK;
}

static void signal_workers(int number)
{
    for (uint32_t i = 0; i < worker_count; i++) kill(workers[i], number);
}

void cli_pause_workers(bool pause) { signal_workers(pause ? SIGSTOP : SIGCONT); }

/* False: it still runs. */
static bool has_ended(pid_t worker)
{
    pid_t ended = waitpid(worker, NULL, WNOHANG);
    return ended == worker || (ended < 0 && errno == ECHILD);
}

void cli_stop_workers(void)
{
    enum { PATIENCE_MS = 1000 };
    signal_workers(SIGTERM);
    signal_workers(SIGCONT); /* one that was stopped does not see the other otherwise */
    for (int waited_ms = 0; worker_count; waited_ms++) {
        if (has_ended(workers[worker_count - 1])) {
            worker_count--;
            continue;
        }
        if (waited_ms == PATIENCE_MS) signal_workers(SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}
