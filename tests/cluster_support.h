/* cluster_support.h: worker processes for tests. */
#ifndef VTI_TEST_CLUSTER_SUPPORT_H
#define VTI_TEST_CLUSTER_SUPPORT_H

#include <sys/types.h>

#include "voltron.h"

typedef struct test_worker {
    pid_t pid;
    char address[64];
} test_worker;

/* Starts a worker in a child process on a free loopback port; fails the test if it cannot. Call
 * before anything in this process has made threads. `key_path` may be NULL. */
test_worker test_worker_start(uint64_t memory_bytes, const char *key_path);

/* The same with all that can be chosen (but the address), as far as it is not NULL: `prepare` runs in
 * the child first. */
test_worker test_worker_start_with(const vt_worker_params *params, void (*prepare)(void));

/* Sends a signal and waits for the end of the process; returns waitpid's status. */
int test_worker_end(test_worker *worker, int signal_number);

/* Opens a cluster of these workers; `split` NULL: even shares. */
vt_status test_cluster_open(const vt_model *model, const test_worker *workers, size_t count,
                            const uint32_t *split, size_t split_count, vt_cluster **out,
                            vt_error *err);

/* Makes a file's model another one of the same shape: the signs of many weights. */
void test_change_weights(const char *path);

#endif
