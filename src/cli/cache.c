/* cache.c: the folder for weights, of workers and of main devices. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* The usual folder; NULL if the system names none. */
static char *usual_path(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *rest = "/voltron";
    if (!cache || cache[0] != '/') { /* relative ones do not count, by the standard for it */
        cache = home;
        rest = "/.cache/voltron";
    }
    if (!cache || cache[0] != '/') return NULL;
    size_t bytes = strlen(cache) + strlen(rest) + 1;
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s%s", cache, rest);
    return path;
}

const char *cli_cache_path(cli_cache *c)
{
    if (c->none || c->max_bytes == 0) return NULL;
    if (c->path) return c->path;
    if (!c->usual) c->usual = usual_path();
    return c->usual;
}

uint64_t cli_cache_max_bytes(const cli_cache *c)
{
    return c->max_bytes == CLI_CACHE_USUAL ? 0 : c->max_bytes;
}

void cli_cache_free(cli_cache *c)
{
    free(c->usual);
    c->usual = NULL;
}
