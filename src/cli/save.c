/* save.c: texts that are written to files. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

/* A wrong output name must not cost a model, or a profile: only what begins alike is replaced. */
static bool may_replace(const char *path, const char *text)
{
    enum { BEGINNING = 25 }; /* {"format": "voltron-plan" */
    char there[BEGINNING];
    struct stat facts;
    if (stat(path, &facts) != 0 || !S_ISREG(facts.st_mode)) return true;
    FILE *file = fopen(path, "rb");
    if (!file) return true;
    size_t bytes = fread(there, 1, BEGINNING, file);
    fclose(file);
    return bytes == 0 || (bytes == BEGINNING && memcmp(there, text, BEGINNING) == 0);
}

int cli_save_text(const char *path, const char *text)
{
    bool is_output = strcmp(path, "-") == 0;
    if (!is_output && !may_replace(path, text))
        return cli_error(CLI_USAGE, "%s exists and is something else; it is not replaced", path);
    FILE *file = is_output ? stdout : fopen(path, "w");
    bool written = file && fputs(text, file) >= 0;
    int reason = errno;
    if (file && !is_output && fclose(file) != 0) written = false, reason = errno;
    if (written) return CLI_OK;
    return cli_error(VT_ERR_IO, "cannot write %s: %s", path, strerror(reason));
}
