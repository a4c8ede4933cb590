/* Measurements: the model itself, in this process and in workers. */
#include "predict.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../net/net.h"
#include "bench.h"
#include "options.h"

/* --- workers ----------------------------------------------------------------------------------- */

/* Writes the address it listens on, or nothing, into `out`; ends by a signal. */
static void serve(int out, uint32_t threads, const char *model_path)
{
    vt_error err;
    vt_worker *worker;
    vt_worker_params params = vt_worker_params_default();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    params.listen = "127.0.0.1:0";
    params.threads = threads;
    params.model_path = model_path;
    if (vt_worker_open(&params, &worker, &err) != VT_OK) {
        bench_error(err.status, "worker: %s", err.message);
        _exit(1);
    }
    const char *address = vt_worker_address(worker);
    if (write(out, address, strlen(address) + 1) < 0) _exit(1);
    close(out);
    vt_worker_run(worker, &err);
    _exit(0);
}

bool predict_workers_start(predict_workers *workers, unsigned count, uint32_t threads,
                           const char *model_path)
{
    memset(workers, 0, sizeof *workers);
    for (unsigned i = 0; i < count; i++) {
        int ends[2];
        if (pipe(ends) != 0) return false;
        pid_t pid = fork();
        if (pid == 0) {
            close(ends[0]);
            serve(ends[1], threads, model_path);
        }
        close(ends[1]);
        if (pid > 0) workers->pids[workers->count++] = pid;
        ssize_t got = pid > 0 ? read(ends[0], workers->addresses[i], 63) : -1;
        close(ends[0]);
        if (got > 1) continue;
        predict_workers_stop(workers);
        bench_error(VT_ERR_NETWORK, "a worker process does not start");
        return false;
    }
    return true;
}

void predict_workers_stop(predict_workers *workers)
{
    for (unsigned i = 0; i < workers->count; i++) kill(workers->pids[i], SIGTERM);
    for (unsigned i = 0; i < workers->count; i++)
        while (waitpid(workers->pids[i], NULL, 0) < 0 && errno == EINTR) continue;
    workers->count = 0;
}

/* --- the link ---------------------------------------------------------------------------------- */

static vti_net_status probe(vti_net *net, const char *address, vti_link_estimate *out)
{
    vti_net_peer peer;
    vti_net_event event;
    vti_net_status status = vti_net_connect(net, address, 2000, &peer, NULL);
    if (status != VTI_NET_OK) return status;
    status = vti_net_wait(net, vti_net_after_ms(3000), &event);
    if (status != VTI_NET_OK) return status;
    bool up = event.type == VTI_NET_PEER_UP;
    vti_net_event_clear(&event);
    if (!up) return VTI_NET_ERR_UNREACHABLE;
    return vti_net_probe(net, peer, 0, vti_net_after_ms(1000), out);
}

bool predict_measure_link(const predict_workers *workers, vti_plan_link *out)
{
    vti_net *net;
    vti_link_estimate estimate = {0};
    vti_net_params params = vti_net_params_default();
    vti_net_status status = vti_net_open(&params, &net, NULL);
    if (status == VTI_NET_OK) {
        status = probe(net, workers->addresses[0], &estimate);
        vti_net_close(net);
    }
    *out = (vti_plan_link){estimate.latency_s, estimate.bytes_per_s, 0};
    if (status == VTI_NET_OK && estimate.bytes_per_s > 0) return true;
    bench_error(VT_ERR_NETWORK, "the link to a worker cannot be measured: %s",
                vti_net_status_text(status));
    return false;
}

/* --- measuring --------------------------------------------------------------------------------- */

static vt_status once(vt_session *session, const vt_token *prompt, const predict_case *c,
                      uint32_t context, double *ttft, double *tpot, vt_error *err)
{
    vt_token drawn;
    VTI_TRY(vt_session_rewind(session, 0, err));
    double start = bench_now();
    VTI_TRY(vt_session_feed(session, prompt, context, err));
    VTI_TRY(vt_session_next(session, &drawn, err));
    *ttft = bench_now() - start;
    start = bench_now();
    for (uint32_t i = 0; i < c->decode_tokens; i++) VTI_TRY(vt_session_next(session, &drawn, err));
    *tpot = (bench_now() - start) / c->decode_tokens;
    return VT_OK;
}

/* Words that any model has; what they are does not matter. */
static void make_prompt(const predict_case *c, vt_token *prompt, uint32_t count)
{
    vt_model_info info;
    vt_model_get_info(c->model, &info);
    for (uint32_t i = 0, at = 7; i < count; at += 13) {
        vt_token token = (vt_token)(at % info.vocabulary_tokens);
        if (!vt_token_is_control(c->model, token)) prompt[i++] = token;
    }
}

static vt_status measure(const predict_case *c, vt_cluster *cluster, predict_row *row,
                         vt_error *err)
{
    vt_session *session;
    double ttft[PREDICT_REPEATS], tpot[PREDICT_REPEATS], warm_ttft, warm_tpot;
    vt_session_params params = vt_session_params_default();
    params.context_tokens = row->context + c->decode_tokens + 2;
    params.sampling.temperature = 0;
    params.cluster = cluster;
    vt_token *prompt = malloc(row->context * sizeof *prompt);
    if (!prompt) return vti_fail(err, VT_ERR_MEMORY, "no memory for a prompt");
    make_prompt(c, prompt, row->context);
    vt_status status = vt_session_open(c->model, &params, &session, err);
    if (status == VT_OK) {
        uint32_t little = row->context < 16 ? row->context : 16;
        status = once(session, prompt, c, little, &warm_ttft, &warm_tpot, err);
        for (uint32_t i = 0; i < c->repeats && status == VT_OK; i++)
            status = once(session, prompt, c, row->context, &ttft[i], &tpot[i], err);
        vt_session_close(session);
    }
    free(prompt);
    if (status != VT_OK) return status;
    row->ttft = bench_median(ttft, c->repeats);
    row->tpot = bench_median(tpot, c->repeats);
    return VT_OK;
}

vt_status predict_by_running(const predict_case *c, const predict_workers *workers,
                             predict_row *row, vt_error *err)
{
    const char *devices[PREDICT_PROCESSES];
    vt_cluster *cluster;
    if (row->processes == 1) return measure(c, NULL, row, err);
    vt_cluster_params params = vt_cluster_params_default();
    params.device_count = row->processes - 1;
    for (unsigned i = 0; i + 1 < row->processes; i++) devices[i] = workers->addresses[i];
    params.devices = devices;
    params.split = row->layers;
    params.split_count = row->processes;
    params.context_tokens = row->context + c->decode_tokens + 2;
    VTI_TRY(vt_cluster_open(c->model, &params, &cluster, err));
    vt_status status = measure(c, cluster, row, err);
    vt_cluster_close(cluster);
    return status;
}
