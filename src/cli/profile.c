/* profile.c: this device's profile, measured once and kept in the cache folder. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

enum { NAME_MAX_BYTES = 160 };

char *cli_profile_path(cli_cache *cache, uint32_t threads)
{
    char name[NAME_MAX_BYTES];
    const char *folder = cli_cache_path(cache);
    if (!folder || vt_profile_cache_name(threads, name, sizeof name) >= sizeof name) return NULL;
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

vt_profile *cli_profile_cached(cli_cache *cache, uint32_t threads)
{
    vt_profile *profile = NULL;
    vt_error err;
    char *path = cli_profile_path(cache, threads);
    if (!path || access(path, F_OK) != 0) {
        free(path);
        return NULL;
    }
    vt_status status = vt_profile_load(path, &profile, &err);
    if (status == VT_OK) status = vt_profile_compare(profile, threads, &err);
    if (status != VT_OK) {
        fprintf(stderr, "voltron-run: what the cache keeps is not used: %s\n", err.message);
        vt_profile_close(profile);
        profile = NULL;
    }
    free(path);
    return profile;
}

void cli_profile_warn(const vt_profile *profile)
{
    vt_profile_info info;
    vt_profile_get_info(profile, &info);
    if (info.disturbance > 0)
        fprintf(stderr,
                "voltron-run: this device was busy while it was measured: predictions may be off "
                "by %.0f %%, and the profile is not kept; voltron-run profile --force when it is "
                "idle\n",
                100 * info.disturbance);
    else if (info.accuracy > 0 && info.accuracy < CLI_LEAST_ACCURACY)
        fprintf(stderr,
                "voltron-run: predictions of this device's profile were off by %.0f %% when it was "
                "checked; voltron-run profile --force --check when it is idle\n",
                100 - 100 * info.accuracy);
}

/* The folder of `path`, and those above it. */
static void make_folders(const char *path)
{
    char *copy = strdup(path);
    for (char *slash = copy ? strchr(copy + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(copy, 0700);
        *slash = '/';
    }
    free(copy);
}

void cli_profile_keep(cli_cache *cache, uint32_t threads, const vt_profile *profile)
{
    vt_error err;
    vt_profile_info info;
    vt_profile_get_info(profile, &info);
    if (info.disturbance > 0) return;
    char *path = cli_profile_path(cache, threads);
    if (path) {
        make_folders(path);
        remove(path); /* it may be damaged: saving replaces only what is a profile */
        if (vt_profile_save(profile, path, &err) != VT_OK)
            fprintf(stderr, "voltron-run: the profile is not kept: %s\n", err.message);
    }
    free(path);
}

static bool cancelled(void *user)
{
    (void)user;
    return cli_interrupted();
}

void cli_profile_params(vt_profile_params *params, uint32_t threads, cli_progress *progress)
{
    *params = vt_profile_params_default();
    params->threads = threads;
    params->cancelled = cancelled;
    params->progress = cli_progress_callback(progress);
}

vt_profile *cli_profile(cli_cache *cache, uint32_t threads, int *code)
{
    vt_profile *profile = cli_profile_cached(cache, threads);
    vt_profile_params params;
    cli_progress progress;
    vt_error err;
    *code = CLI_OK;
    if (profile) return profile;
    cli_profile_params(&params, threads, &progress);
    cli_catch_interrupts();
    cli_progress_begin(&progress);
    vt_status status = vt_profile_measure(&params, &profile, &err);
    cli_progress_end(&progress);
    if (status == VT_OK)
        cli_profile_keep(cache, threads, profile);
    else
        *code = status == VT_ERR_CANCELLED ? 130 : cli_fail(&err);
    return profile;
}

int cli_profile_to_plan(cli_cache *cache, uint32_t threads, bool none, const char *when,
                        vt_profile **out)
{
    const char *off = getenv("VOLTRON_NO_PROFILE");
    int code = CLI_OK;
    *out = NULL;
    if (none || (off && *off)) return CLI_OK;
    *out = cli_profile_cached(cache, threads);
    if (*out) cli_profile_warn(*out);
    if (*out || !when) return CLI_OK;
    fprintf(stderr, "%smeasuring how fast this device is, once, %s (--no-profile: never)%s\n",
            cli_dim(), when, cli_plain());
    *out = cli_profile(cache, threads, &code);
    if (*out) cli_profile_warn(*out);
    cli_cancel_on_interrupt(NULL); /* Ctrl-C as ever */
    return cli_interrupted() ? code : CLI_OK; /* what went wrong was said; it goes on without */
}
