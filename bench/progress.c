#include "progress.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "bench.h"

static void show(void *user, const char *what, uint64_t done, uint64_t total)
{
    bench_progress *p = user;
    double now = bench_now(), past = now - p->start;
    if (past < 1 || now - p->shown < 0.2 || !done || !isatty(STDERR_FILENO)) return;
    unsigned left = (unsigned)(past * (double)(total - done) / (double)done);
    fprintf(stderr, "\r\033[K%s  %3.0f %%  ETA %u:%02u", what, 100.0 * (double)done / (double)total,
            left / 60, left % 60);
    fflush(stderr);
    p->shown = now;
    p->anything = true;
}

vt_progress bench_progress_begin(bench_progress *progress)
{
    *progress = (bench_progress){.start = bench_now()};
    return (vt_progress){show, progress};
}

double bench_progress_end(bench_progress *progress)
{
    if (progress->anything) fputs("\r\033[K", stderr);
    return bench_now() - progress->start;
}

static volatile int interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

const volatile int *bench_catch_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN);
    return &interrupted;
}
