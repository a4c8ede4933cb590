/* compute.c: opens what the computing commands need, and tells what runs where. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

extern const char cli_default_model[], cli_default_model_end[];

vt_model *cli_open_model(const char *path, const vt_model_params *params, int *code)
{
    size_t bytes = (size_t)(cli_default_model_end - cli_default_model);
    vt_model *model;
    vt_error err;
    vt_status status = path ? vt_model_open(path, params, &model, &err)
                            : vt_model_open_memory(cli_default_model, bytes, params, &model, &err);
    *code = status == VT_OK ? CLI_OK : cli_fail(&err);
    return model;
}

void cli_compute_init(cli_compute *compute)
{
    memset(compute, 0, sizeof *compute);
    compute->session = vt_session_params_default();
    compute->cache.max_bytes = CLI_CACHE_USUAL;
    const char *key = getenv("VOLTRON_KEY");
    if (key && *key) compute->key_path = key;
}

static int open_session(cli_compute *c)
{
    vt_error err;
    c->session.cluster = c->cluster;
    if (vt_session_open(c->model, &c->session, &c->handle, &err) != VT_OK) return cli_fail(&err);
    return CLI_OK;
}

static int open_model(cli_compute *c, const char *plan_json)
{
    int code;
    vt_model_params params = vt_model_params_default();
    params.threads = c->threads;
    params.memory_bytes = c->memory_bytes;
    params.pre_tokenizer = c->pre;
    params.precision = c->precision;
    params.plan_json = plan_json;
    params.log = cli_log(c->verbose);
    params.progress = cli_progress_callback(&c->loading);
    c->model = cli_open_model(c->model_path, &params, &code);
    return code;
}

static int read_plan(const cli_compute *c, char **out)
{
    size_t bytes;
    if (!c->plan_path) return CLI_OK;
    if (c->precision) return cli_error(CLI_USAGE, "--precision and --plan exclude each other");
    *out = cli_read_file(c->plan_path, CLI_PLAN_MAX, &bytes);
    return *out ? CLI_OK : VT_ERR_IO;
}

int cli_open_compute(cli_compute *c)
{
    char *plan_json = NULL;
    /* Children first: they must not inherit threads or sockets. */
    int code = cli_start_devices(c);
    if (code == CLI_OK) code = read_plan(c, &plan_json);
    if (code == CLI_OK) code = open_model(c, plan_json);
    if (code == CLI_OK) code = cli_open_devices(c, plan_json);
    cli_progress_begin(&c->loading);
    if (code == CLI_OK) code = open_session(c);
    cli_progress_end(&c->loading);
    free(plan_json);
    if (code == CLI_OK) code = cli_save_plan(c);
    if (code != CLI_OK) cli_close_compute(c);
    return code;
}

void cli_close_compute(cli_compute *c)
{
    cli_cancel_on_interrupt(NULL);
    vt_session_close(c->handle);
    vt_cluster_close(c->cluster);
    vt_model_close(c->model);
    c->handle = NULL;
    c->cluster = NULL;
    c->model = NULL;
    cli_cache_free(&c->cache);
    cli_free_devices(c);
    cli_stop_workers();
}

/* --- Ctrl-C ------------------------------------------------------------------------------------ */

static vt_session *interruptible;
static volatile sig_atomic_t interrupts, patience = 1, terminated;

static void on_interrupt(int number)
{
    if (number == SIGTERM) terminated = 1;
    if (interrupts++ >= patience) {
        signal(number, SIG_DFL);
        raise(number);
    }
    if (interruptible) vt_session_cancel(interruptible);
}

static void handle_interrupts(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void cli_cancel_on_interrupt(vt_session *session)
{
    interruptible = session;
    handle_interrupts(session ? on_interrupt : SIG_DFL);
}

void cli_catch_interrupts(void)
{
    interruptible = NULL;
    patience = 3; /* what is stopped cleans up, which takes a moment */
    handle_interrupts(on_interrupt);
}

bool cli_interrupted(void) { return interrupts != 0; }

bool cli_terminated(void) { return terminated != 0; }

void cli_interrupts_reset(int allowed)
{
    interrupts = 0;
    patience = allowed;
}

/* --- memory ------------------------------------------------------------------------------------ */

void cli_print_memory(const cli_compute *c)
{
    vt_memory_usage m;
    vt_model_get_memory(c->model, &m);
    fprintf(stderr, "%smemory %s of %s: weights %s, KV cache %s, scratch %s", cli_dim(),
            cli_bytes(m.used_bytes), cli_bytes(m.limit_bytes), cli_bytes(m.weight_bytes),
            cli_bytes(m.kv_bytes), cli_bytes(m.scratch_bytes));
    if (m.wire_bytes) fprintf(stderr, ", wire %s", cli_bytes(m.wire_bytes));
    if (m.cache_bytes) fprintf(stderr, ", cache %s", cli_bytes(m.cache_bytes));
    if (m.available_bytes) fprintf(stderr, "; %s more available", cli_bytes(m.available_bytes));
    fprintf(stderr, "%s%s\n", m.is_short ? ", the device runs short" : "", cli_plain());
}
