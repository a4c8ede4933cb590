/* profile.c: this device's profile, measured once and kept in the cache folder. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
    char *path = cli_profile_path(cache, threads);
    /* One that is damaged or of another version is measured anew. */
    if (path && vt_profile_load(path, &profile, NULL) == VT_OK &&
        !vt_profile_is_current(profile, threads)) {
        vt_profile_close(profile);
        profile = NULL;
    }
    free(path);
    return profile;
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
    if (*out || !when) return CLI_OK;
    fprintf(stderr, "%smeasuring how fast this device is, once, %s (--no-profile: never)%s\n",
            cli_dim(), when, cli_plain());
    *out = cli_profile(cache, threads, &code);
    cli_cancel_on_interrupt(NULL); /* Ctrl-C as ever */
    return cli_interrupted() ? code : CLI_OK; /* what went wrong was said; it goes on without */
}
