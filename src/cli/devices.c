/* devices.c: which devices run a model with this one, and what each of them runs. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

struct cli_devices {
    const char *names[CLI_LOCAL_MAX];
    int count;
    uint32_t split[CLI_LOCAL_MAX];
    int split_count;
    bool evenly;
    char *devices_text, *split_text;
    char local[CLI_LOCAL_MAX][64];
};

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

static int parse_devices(const cli_compute *c, cli_devices *d)
{
    if (c->devices) {
        d->devices_text = strdup(c->devices);
        d->count = d->devices_text ? cut(d->devices_text, d->names, CLI_LOCAL_MAX) : -1;
        if (d->count < 0)
            return cli_error(CLI_USAGE,
                             "--devices: \"%s\" is not right, expected HOST:PORT,HOST:PORT,…",
                             c->devices);
    }
    d->evenly = c->split && strcmp(c->split, "even") == 0;
    if (c->split && !d->evenly) {
        d->split_text = strdup(c->split);
        d->split_count = d->split_text ? parse_split(d->split_text, d->split) : -1;
        if (d->split_count < 0)
            return cli_error(CLI_USAGE, "--split: \"%s\" is not right, expected numbers of layers "
                                        "such as 3,2,1, or even", c->split);
    }
    return CLI_OK;
}

/* --- opening ----------------------------------------------------------------------------------- */

/* Local devices share this machine's cores, and are all alike. */
static int start_local(cli_compute *c, cli_devices *d)
{
    if (!c->local) return CLI_OK;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (!c->threads) c->threads = cores > (long)c->local ? (uint32_t)cores / c->local : 1;
    if (c->devices) return cli_error(CLI_USAGE, "--local and --devices exclude each other");
    int code = cli_start_workers(c->local - 1, c->threads, c->model_path, d->local);
    if (code != CLI_OK) return code;
    for (uint32_t i = 0; i + 1 < c->local; i++) d->names[d->count++] = d->local[i];
    d->evenly = !d->split_count && !c->plan_path;
    return CLI_OK;
}

int cli_start_devices(cli_compute *c)
{
    cli_devices *d = c->wanted = calloc(1, sizeof *d);
    if (!d) return cli_error(VT_ERR_MEMORY, "no memory");
    if (c->save_plan_path && !c->devices && !c->local)
        return cli_error(CLI_USAGE, "--save-plan needs --devices: alone, everything runs here");
    if ((c->ttft_s > 0 || c->tpot_ms > 0) && (!c->devices || c->split))
        return cli_error(CLI_USAGE, "--ttft and --tpot are for plans: they need --devices, without "
                                    "--split");
    int code = parse_devices(c, d);
    return code == CLI_OK ? start_local(c, d) : code;
}

void cli_free_devices(cli_compute *c)
{
    if (!c->wanted) return;
    free(c->wanted->devices_text);
    free(c->wanted->split_text);
    free(c->wanted);
    c->wanted = NULL;
}

/* Only a plan needs to know how fast this device is; one that is given already only to predict. */
static int get_profile(cli_compute *c, bool has_plan, vt_profile **out)
{
    const cli_devices *d = c->wanted;
    bool none = c->no_profile || c->local || d->evenly || d->split_count ||
                d->count >= VT_PLAN_DEVICES_MAX;
    return cli_profile_to_plan(&c->cache, c->threads, none, has_plan ? NULL : "to plan with", out);
}

/* 0 is not asked for: what is shorter than one is one. */
static uint32_t milliseconds(double ms)
{
    return ms > 0 && ms < 1 ? 1 : (uint32_t)(ms + 0.5);
}

int cli_open_devices(cli_compute *c, const char *plan_json)
{
    const cli_devices *d = c->wanted;
    if (!d->count && !d->split_count) return CLI_OK;
    cli_progress progress;
    vt_error err;
    vt_profile *profile;
    int code = get_profile(c, plan_json != NULL, &profile);
    if (code != CLI_OK) return code;
    vt_cluster_params params = vt_cluster_params_default();
    params.devices = d->names;
    params.device_count = (size_t)d->count;
    params.split = d->split_count ? d->split : NULL;
    params.split_count = (size_t)d->split_count;
    params.split_evenly = d->evenly;
    params.plan_json = d->split_count || d->evenly ? NULL : plan_json;
    params.profile = profile;
    params.ttft_ms = milliseconds(1e3 * (double)c->ttft_s);
    params.tpot_ms = milliseconds((double)c->tpot_ms);
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
    vt_profile_close(profile);
    return status == VT_OK ? CLI_OK : cli_fail(&err);
}

/* --- the plan ---------------------------------------------------------------------------------- */

int cli_save_plan(const cli_compute *c)
{
    if (!c->save_plan_path || !c->cluster) return CLI_OK;
    size_t bytes = vt_cluster_plan_text(c->cluster, NULL, 0);
    char *text = bytes ? malloc(bytes + 1) : NULL;
    if (!text)
        return cli_error(VT_ERR_UNSUPPORTED, "--save-plan: there is no plan for so many devices");
    vt_cluster_plan_text(c->cluster, text, bytes + 1);
    int code = cli_save_text(c->save_plan_path, text);
    free(text);
    return code;
}

/* --- telling ----------------------------------------------------------------------------------- */

static void print_layers(const vt_device_info *info)
{
    if (info->layer_count == 0)
        fprintf(stderr, "  %-12s", "no layers");
    else
        fprintf(stderr, "  %3" PRIu32 " … %-6" PRIu32, info->first_layer,
                info->first_layer + info->layer_count - 1);
}

static void print_device(const vt_device_info *info, bool is_main, uint64_t total_ns)
{
    fprintf(stderr, "%-22s", is_main ? "this one (main)" : info->address);
    if (info->left_out) {
        fprintf(stderr, "  left out: %s\n", info->left_out);
        return;
    }
    print_layers(info);
    fprintf(stderr, "  %10s", cli_bytes(info->weight_bytes));
    if (total_ns)
        fprintf(stderr, "  %7.2f s, %2.0f %%", (double)info->busy_ns / 1e9,
                100.0 * (double)info->busy_ns / (double)total_ns);
    fputs(is_main ? "  + embedding, output\n" : "\n", stderr);
}

void cli_print_devices(const cli_compute *c, bool busy)
{
    if (!c->cluster) return;
    size_t count = vt_cluster_device_count(c->cluster);
    uint64_t total_ns = 0;
    vt_device_info info;
    for (size_t i = 0; i < count && busy; i++)
        if (vt_cluster_get_device(c->cluster, i, &info) == VT_OK) total_ns += info.busy_ns;
    fprintf(stderr, "%s%-22s  %-12s  %10s%s%s\n", cli_dim(), "device", "layers", "weights",
            busy ? "   computing" : "", cli_plain());
    for (size_t i = 0; i < count; i++)
        if (vt_cluster_get_device(c->cluster, i, &info) == VT_OK)
            print_device(&info, i == 0, total_ns);
}
