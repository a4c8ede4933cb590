/* history.h: lines that were typed before, kept in a file. */
#ifndef CLI_HISTORY_H
#define CLI_HISTORY_H

#include <stddef.h>

enum { CLI_HISTORY_MAX = 1000 };

typedef struct cli_history {
    char *lines[CLI_HISTORY_MAX]; /* the oldest first */
    size_t count;
    char *path; /* NULL: only for this run */
} cli_history;

/* Reads $XDG_STATE_HOME/voltron/history (or ~/.local/state/…). A file that is not there or cannot
 * be read is an empty history. */
void cli_history_open(cli_history *history);
void cli_history_close(cli_history *history);

/* Appends a line, here and in the file; not if it is empty or the same as the one before. */
void cli_history_add(cli_history *history, const char *line);

#endif
