/* cmd_worker.c: lend this device to a main device. */
#include <signal.h>

#include "cli.h"

static vt_worker *running;

static void on_signal(int number)
{
    static volatile sig_atomic_t count;
    if (count++) {
        signal(number, SIG_DFL);
        raise(number);
        return; /* it ends us when this handler has returned */
    }
    vt_worker_stop(running);
}

static void say(void *user, vt_log_level level, const char *message)
{
    (void)user;
    if (level > VT_LOG_DEBUG) fprintf(stderr, "%s\n", message);
}

/* A line of its own for each arrival of weights. */
static void show(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes)
{
    static uint64_t before;
    cli_progress *progress = user;
    if (done_bytes < before || !progress->start_ns) cli_progress_begin(progress);
    before = done_bytes;
    cli_progress_show(progress, what, done_bytes, total_bytes);
    if (done_bytes == total_bytes) cli_progress_end(progress);
}

static int serve(const vt_worker_params *params)
{
    vt_error err;
    if (vt_worker_open(params, &running, &err) != VT_OK) return cli_fail(&err);
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* On stdout, so that a script can wait for the line and read the port. */
    printf("listening on %s\n", vt_worker_address(running));
    fflush(stdout);
    vt_status status = vt_worker_run(running, &err);
    signal(SIGINT, SIG_DFL); /* there will soon be nothing to stop */
    signal(SIGTERM, SIG_DFL);
    vt_worker_close(running);
    return status == VT_OK ? CLI_OK : cli_fail(&err);
}

static int run(int argc, char **argv)
{
    bool no_profile = false;
    vt_profile *profile;
    cli_compute defaults;
    cli_cache cache = {.max_bytes = CLI_CACHE_USUAL};
    cli_progress progress = {0};
    cli_compute_init(&defaults);
    vt_worker_params params = vt_worker_params_default();
    params.listen = "127.0.0.1:7001";
    params.key_path = defaults.key_path;
    params.log.write = say;
    params.progress = (vt_progress){show, &progress};
    const cli_option options[] = {
        {"listen", 'l', CLI_STRING, &params.listen, 0, 0, "HOST:PORT",
         "address to listen on (127.0.0.1:7001); port 0: any"},
        {"memory", 0, CLI_SIZE, &params.memory_bytes, 0, 0, "SIZE",
         "lend at most this much, e.g. 1.5G (default: what is free)"},
        {"model", 'm', CLI_STRING, &params.model_path, 0, 0, "FILE",
         "a model on this device: its weights need not be sent"},
        {"no-profile", 0, CLI_FLAG, &no_profile, 0, 0, NULL,
         "do not tell how fast this device is (else it is measured, once, for some "
         "seconds before it listens): main devices then take it to be like themselves"},
        CLI_CACHE_OPTIONS(cache),
        {"threads", 'T', CLI_U32, &params.threads, 1, 1024, "N",
         "threads that compute (default: one per big core)"},
        {"key", 0, CLI_STRING, &params.key_path, 0, 0, "FILE",
         "cluster key, for devices beyond this machine (also VOLTRON_KEY)"},
        {0},
    };
    int code = cli_parse(&cli_worker, options, argc, argv, NULL, NULL);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    params.cache_path = cli_cache_path(&cache);
    params.cache_max_bytes = cli_cache_max_bytes(&cache);
    code = cli_profile_to_plan(&cache, params.threads, no_profile, "before it listens",
                               &profile);
    params.profile = profile;
    if (code == CLI_OK) code = serve(&params);
    vt_profile_close(profile);
    cli_cache_free(&cache);
    return code;
}

const cli_command cli_worker = {
    "worker",
    "Lend this device's memory and cores to a main device.",
    "worker [--listen HOST:PORT] [--memory SIZE] [--key FILE]",
    run,
    "Waits for a main device, gets the weights of some layers from it, computes, and is free for "
    "the next one when that one leaves. Weights stay in a cache, so that they are sent only once. "
    "Without a key only programs on this machine may connect.",
    "  voltron-run worker --listen 127.0.0.1:7001\n"
    "  head -c 32 /dev/urandom > cluster.key; chmod 600 cluster.key\n"
    "  # then copy cluster.key to every device\n"
    "  voltron-run worker --listen 0.0.0.0:7001 --memory 2G --key cluster.key\n",
};
