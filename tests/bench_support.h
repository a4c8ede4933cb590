/* bench_support.h: running voltron-bench in a scratch folder. */
#ifndef VTI_TEST_BENCH_SUPPORT_H
#define VTI_TEST_BENCH_SUPPORT_H

#include "support.h"

typedef struct bench_result {
    int code;   /* exit code, or 128 + signal */
    char *text; /* stdout and stderr; free() */
} bench_result;

/* Runs a shell command line in which BENCH stands for voltron-bench and DIR for the scratch
 * folder. */
bench_result bench_run(const char *line);

/* The scratch folder. */
const char *bench_folder(void);

/* Runs; fails the test unless the exit code is `code` and the output has `text` (NULL: any). */
void bench_expect(const char *line, int code, const char *text);

/* Writes DIR/`file` with voltron-bench synth; returns its path, valid until the next call. */
const char *bench_synth(const char *file, const char *options);

/* Fails the test if a file was left in the scratch folder. */
void bench_expect_empty_folder(void);

/* Fixtures of a group of tests: the scratch folder, which must be empty at the end. */
int bench_make_folder(void **state);
int bench_remove_folder(void **state);

#endif
