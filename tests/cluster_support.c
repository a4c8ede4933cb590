#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster_support.h"

static vt_worker *serving;

static void on_terminate(int number)
{
    (void)number;
    vt_worker_stop(serving);
}

static void serve(int pipe_end, vt_worker_params params, void (*prepare)(void))
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    vt_error err;
    params.listen = "127.0.0.1:0";
    if (prepare) prepare();
    vt_status status = vt_worker_open(&params, &serving, &err);
    if (status == VT_OK) {
        signal(SIGTERM, on_terminate);
        const char *address = vt_worker_address(serving);
        if (write(pipe_end, address, strlen(address) + 1) < 0) _exit(100);
        status = vt_worker_run(serving, &err);
        vt_worker_close(serving);
    }
    if (status != VT_OK) fprintf(stderr, "worker: %s\n", err.message);
    fflush(NULL);
    exit((int)status); /* runs LeakSanitizer where there is one */
}

test_worker test_worker_start(uint64_t memory_bytes, const char *key_path)
{
    vt_worker_params params = vt_worker_params_default();
    params.memory_bytes = memory_bytes;
    params.key_path = key_path;
    return test_worker_start_with(&params, NULL);
}

test_worker test_worker_start_with(const vt_worker_params *params, void (*prepare)(void))
{
    int ends[2];
    test_worker worker = {0};
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    worker.pid = fork();
    assert_true(worker.pid >= 0);
    if (worker.pid == 0) {
        close(ends[0]);
        serve(ends[1], *params, prepare);
    }
    close(ends[1]);
    size_t at = 0;
    ssize_t got;
    while (at < sizeof worker.address - 1 &&
           (got = read(ends[0], worker.address + at, sizeof worker.address - 1 - at)) > 0) {
        at += (size_t)got;
        if (worker.address[at - 1] == 0) break;
    }
    close(ends[0]);
    if (!worker.address[0]) fail_msg("a worker process did not start");
    return worker;
}

int test_worker_end(test_worker *worker, int signal_number)
{
    int status = 0;
    /* First: a SIGCONT later could undo the SIGSTOP by which LeakSanitizer holds an ending process. */
    kill(worker->pid, SIGCONT);
    kill(worker->pid, signal_number);
    waitpid(worker->pid, &status, 0);
    worker->pid = 0;
    return status;
}

vt_status test_cluster_open(const vt_model *model, const test_worker *workers, size_t count,
                            const uint32_t *split, size_t split_count, vt_cluster **out,
                            vt_error *err)
{
    const char *addresses[8];
    for (size_t i = 0; i < count; i++) addresses[i] = workers[i].address;
    vt_cluster_params params = vt_cluster_params_default();
    params.devices = addresses;
    params.device_count = count;
    params.split = split;
    params.split_count = split_count;
    params.split_evenly = split == NULL;
    return vt_cluster_open(model, &params, out, err);
}

void test_change_weights(const char *path)
{
    enum { BYTES = 2 << 20 };
    unsigned char *data = malloc(BYTES);
    int file = open(path, O_RDWR);
    off_t at = lseek(file, 0, SEEK_END) - BYTES;
    assert_int_equal(pread(file, data, BYTES, at), BYTES);
    for (size_t i = 1; i < BYTES; i += 2) data[i] ^= 0x80;
    assert_int_equal(pwrite(file, data, BYTES, at), BYTES);
    close(file);
    free(data);
}
