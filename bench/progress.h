/* progress.h: commands of voltron-bench that write a large file. */
#ifndef VTI_BENCH_PROGRESS_H
#define VTI_BENCH_PROGRESS_H

#include <stdbool.h>

#include "voltron.h"

/* A line on stderr, if that is a terminal and it takes longer than a second. */
typedef struct bench_progress {
    double start, shown;
    bool anything;
} bench_progress;

vt_progress bench_progress_begin(bench_progress *progress);
double bench_progress_end(bench_progress *progress); /* seconds since the beginning */

/* From now on SIGINT and SIGTERM only set the number returned, and a file that may not grow further
 * is an error of write: an interrupted or failed run can leave no file behind. */
const volatile int *bench_catch_signals(void);

#endif
