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

/* --- lists ------------------------------------------------------------------------------------- */

/* Cuts "a,b,c" (which it changes) into parts; -1 if there are more than `most` or an empty one. */
static int cut(char *list, const char **parts, int most)
{
    int count = 0;
    for (char *at = list, *comma; at; at = comma) {
        comma = strchr(at, ',');
        if (comma) *comma++ = 0;
        if (!*at || count == most) return -1;
        parts[count++] = at;
    }
    return count;
}

static int parse_split(char *list, uint32_t *out)
{
    const char *parts[CLI_LOCAL_MAX];
    int count = cut(list, parts, CLI_LOCAL_MAX);
    for (int i = 0; i < count; i++) {
        char *end;
        errno = 0;
        unsigned long value = strtoul(parts[i], &end, 10);
        if (*parts[i] < '0' || *parts[i] > '9' || *end || errno || value > 100000) return -1;
        out[i] = (uint32_t)value;
    }
    return count;
}

/* --- cluster ----------------------------------------------------------------------------------- */

typedef struct wanted_devices {
    const char *names[CLI_LOCAL_MAX];
    int count;
    uint32_t split[CLI_LOCAL_MAX];
    int split_count;
    char *devices_text, *split_text;
    char local[CLI_LOCAL_MAX][64];
} wanted_devices;

static int parse_devices(const cli_compute *c, wanted_devices *w)
{
    if (c->devices) {
        w->devices_text = strdup(c->devices);
        w->count = w->devices_text ? cut(w->devices_text, w->names, CLI_LOCAL_MAX) : -1;
        if (w->count < 0)
            return cli_error(CLI_USAGE,
                             "--devices: \"%s\" is not right, expected HOST:PORT,HOST:PORT,…",
                             c->devices);
    }
    if (c->split) {
        w->split_text = strdup(c->split);
        w->split_count = w->split_text ? parse_split(w->split_text, w->split) : -1;
        if (w->split_count < 0)
            return cli_error(CLI_USAGE, "--split: \"%s\" is not right, expected numbers of layers "
                                        "such as 3,2,1", c->split);
    }
    return CLI_OK;
}

/* Local devices share this machine's cores. */
static int start_local(cli_compute *c, wanted_devices *w)
{
    if (!c->local) return CLI_OK;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (!c->threads) c->threads = cores > (long)c->local ? (uint32_t)cores / c->local : 1;
    if (c->devices) return cli_error(CLI_USAGE, "--local and --devices exclude each other");
    int code = cli_start_workers(c->local - 1, c->threads, c->model_path, w->local);
    if (code != CLI_OK) return code;
    for (uint32_t i = 0; i + 1 < c->local; i++) w->names[w->count++] = w->local[i];
    return CLI_OK;
}

static int open_cluster(cli_compute *c, const wanted_devices *w)
{
    if (!w->count && !w->split_count) return CLI_OK;
    cli_progress progress;
    vt_error err;
    vt_cluster_params params = vt_cluster_params_default();
    params.devices = w->names;
    params.device_count = (size_t)w->count;
    params.split = w->split_count ? w->split : NULL;
    params.split_count = (size_t)w->split_count;
    params.key_path = c->local ? NULL : c->key_path;
    params.context_tokens = c->session.context_tokens;
    params.batch_tokens = c->session.batch_tokens;
    params.kv_type = c->session.kv_type;
    params.cache_path = cli_cache_path(&c->cache);
    params.cache_max_bytes = cli_cache_max_bytes(&c->cache);
    params.log = cli_log(c->verbose);
    params.progress = cli_progress_callback(&progress);
    cli_progress_begin(&progress);
    cli_progress_begin(&c->loading);
    vt_status status = vt_cluster_open(c->model, &params, &c->cluster, &err);
    cli_progress_end(&progress);
    return status == VT_OK ? CLI_OK : cli_fail(&err);
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
    *out = cli_read_file(c->plan_path, &bytes);
    return *out ? CLI_OK : VT_ERR_IO;
}

int cli_open_compute(cli_compute *c)
{
    wanted_devices *w = calloc(1, sizeof *w);
    char *plan_json = NULL;
    if (!w) return cli_error(VT_ERR_MEMORY, "no memory");
    int code = parse_devices(c, w);
    if (code == CLI_OK) code = read_plan(c, &plan_json);
    /* Children first: they must not inherit threads or sockets. */
    if (code == CLI_OK) code = start_local(c, w);
    if (code == CLI_OK) code = open_model(c, plan_json);
    if (code == CLI_OK) code = open_cluster(c, w);
    cli_progress_begin(&c->loading);
    if (code == CLI_OK) code = open_session(c);
    cli_progress_end(&c->loading);
    free(plan_json);
    free(w->devices_text);
    free(w->split_text);
    free(w);
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

/* --- devices ----------------------------------------------------------------------------------- */

static void print_layers(const vt_device_info *info)
{
    if (info->layer_count == 0)
        fprintf(stderr, "  %-12s", "no layers");
    else
        fprintf(stderr, "  %3" PRIu32 " … %-6" PRIu32, info->first_layer,
                info->first_layer + info->layer_count - 1);
}

void cli_print_devices(const cli_compute *c, bool busy)
{
    if (!c->cluster) return;
    size_t count = vt_cluster_device_count(c->cluster);
    uint64_t total_ns = 0;
    vt_device_info info;
    for (size_t i = 0; i < count; i++)
        if (vt_cluster_get_device(c->cluster, i, &info) == VT_OK) total_ns += info.busy_ns;
    fprintf(stderr, "%s%-22s  %-12s  %10s%s%s\n", cli_dim(), "device", "layers", "weights",
            busy ? "   computing" : "", cli_plain());
    for (size_t i = 0; i < count; i++) {
        if (vt_cluster_get_device(c->cluster, i, &info) != VT_OK) continue;
        fprintf(stderr, "%-22s", i ? info.address : "this one (main)");
        print_layers(&info);
        fprintf(stderr, "  %10s", cli_bytes(info.weight_bytes));
        if (busy && total_ns)
            fprintf(stderr, "  %7.2f s, %2.0f %%", (double)info.busy_ns / 1e9,
                    100.0 * (double)info.busy_ns / (double)total_ns);
        fputs(i ? "\n" : "  + embedding, output\n", stderr);
    }
}
