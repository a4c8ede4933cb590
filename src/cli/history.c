#include "history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- lines ------------------------------------------------------------------------------------- */

static void push(cli_history *h, char *line)
{
    if (!line) return;
    if (h->count == CLI_HISTORY_MAX) {
        free(h->lines[0]);
        memmove(h->lines, h->lines + 1, --h->count * sizeof h->lines[0]);
    }
    h->lines[h->count++] = line;
}

/* One line per entry: line breaks and backslashes of its own are escaped. */
static char *escape(const char *line)
{
    char *out = malloc(2 * strlen(line) + 2), *to = out;
    if (!out) return NULL;
    for (; *line; line++) {
        if (*line == '\\' || *line == '\n') *to++ = '\\';
        *to++ = *line == '\n' ? 'n' : *line;
    }
    *to++ = '\n';
    *to = 0;
    return out;
}

static void unescape(char *line)
{
    char *to = line;
    for (; *line; line++) {
        if (*line == '\\' && line[1])
            *to++ = *++line == 'n' ? '\n' : *line;
        else if (*line != '\n')
            *to++ = *line;
    }
    *to = 0;
}

/* --- file -------------------------------------------------------------------------------------- */

/* Makes every folder of the path but the last part. */
static void make_folders(char *path)
{
    for (char *slash = path + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
}

static char *file_path(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    int made = -1;
    if (state && *state == '/')
        made = asprintf(&path, "%s/voltron/history", state);
    else if (home && *home == '/')
        made = asprintf(&path, "%s/.local/state/voltron/history", home);
    return made < 0 ? NULL : path;
}

/* Written beside and renamed, when it has grown to twice what is kept. */
static void shorten_file(const cli_history *h)
{
    char *part = NULL;
    if (asprintf(&part, "%s.%ld", h->path, (long)getpid()) < 0) return;
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    for (size_t i = 0; file && i < h->count; i++) {
        char *line = escape(h->lines[i]);
        if (line) fputs(line, file);
        free(line);
    }
    bool fine = file && fflush(file) == 0 && !ferror(file);
    if (file) fclose(file);
    if (!fine || rename(part, h->path) != 0) unlink(part);
    free(part);
}

static void read_file(cli_history *h)
{
    FILE *file = fopen(h->path, "re");
    char *line = NULL;
    size_t room = 0, lines = 0;
    if (!file) return;
    while (getline(&line, &room, file) > 0) {
        unescape(line);
        if (*line) push(h, strdup(line));
        lines++;
    }
    free(line);
    fclose(file);
    if (lines >= (size_t)2 * CLI_HISTORY_MAX) shorten_file(h);
}

void cli_history_open(cli_history *h)
{
    memset(h, 0, sizeof *h);
    h->path = file_path();
    if (h->path) read_file(h);
}

void cli_history_close(cli_history *h)
{
    while (h->count) free(h->lines[--h->count]);
    free(h->path);
    h->path = NULL;
}

void cli_history_add(cli_history *h, const char *line)
{
    if (!*line || (h->count && strcmp(h->lines[h->count - 1], line) == 0)) return;
    push(h, strdup(line));
    char *text = h->path ? escape(line) : NULL;
    if (!text) return;
    make_folders(h->path);
    /* One write: lines of several programs do not mix. */
    int fd = open(h->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        ssize_t written = write(fd, text, strlen(text));
        (void)written; /* a full disk costs the history, not the chat */
        close(fd);
    }
    free(text);
}
