/* save.c: texts that are written to files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* A wrong output name must not cost a model, or a profile: only what begins alike is replaced. */
static bool may_replace(const char *path, const char *text)
{
    enum { BEGINNING = 25 }; /* {"format": "voltron-plan" */
    char there[BEGINNING];
    FILE *file = fopen(path, "rb");
    if (!file) return true;
    size_t bytes = fread(there, 1, BEGINNING, file);
    fclose(file);
    return bytes == 0 || (bytes == BEGINNING && memcmp(there, text, BEGINNING) == 0);
}

/* False with errno set. */
static bool write_and_close(FILE *file, const char *text)
{
    if (!file) return false;
    bool written = fputs(text, file) >= 0 && fflush(file) == 0;
    int reason = errno;
    if (fclose(file) != 0 && written) return false;
    errno = reason;
    return written;
}

/* Beside its place first: what was there stays until all of it is written. `path` is no link. */
static bool write_beside(const char *path, const char *text)
{
    size_t room = strlen(path) + 32;
    char *temporary = malloc(room);
    if (!temporary) return false;
    snprintf(temporary, room, "%s.%ld.tmp", path, (long)getpid());
    bool written = write_and_close(fopen(temporary, "wx"), text) && rename(temporary, path) == 0;
    int reason = errno;
    if (!written && reason != EEXIST) unlink(temporary);
    free(temporary);
    errno = reason;
    return written;
}

int cli_save_text(const char *path, const char *text)
{
    struct stat facts;
    if (strcmp(path, "-") == 0) {
        if (fputs(text, stdout) >= 0) return CLI_OK;
        return cli_error(VT_ERR_IO, "cannot write to standard output: %s", strerror(errno));
    }
    bool exists = stat(path, &facts) == 0, regular = exists && S_ISREG(facts.st_mode);
    if (regular && !may_replace(path, text))
        return cli_error(CLI_USAGE, "%s exists and is something else; it is not replaced", path);
    /* A symbolic link stays, what it points to is replaced; a device or a pipe is written to. */
    char *target = regular ? realpath(path, NULL) : NULL;
    bool written = exists && !regular ? write_and_close(fopen(path, "w"), text)
                                      : write_beside(target ? target : path, text);
    int reason = errno;
    free(target);
    if (written) return CLI_OK;
    return cli_error(VT_ERR_IO, "cannot write %s: %s", path, strerror(reason));
}
