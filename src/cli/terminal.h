/* terminal.h: asks for a line, on a terminal with editing and history. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "edit.h"

typedef enum cli_line {
    CLI_LINE_READ,
    CLI_LINE_INTERRUPT, /* Ctrl-C; what was typed is gone */
    CLI_LINE_EMPTY_INTERRUPT, /* Ctrl-C where nothing was typed */
    CLI_LINE_END,       /* Ctrl-D, end of the input */
} cli_line;

typedef struct cli_terminal {
    bool edits;         /* standard input is a terminal that can do more than print */
    int out;            /* where the line is shown */
    cli_history history;
    edit line;
    unsigned char input[256]; /* bytes read but not handled: typed ahead */
    size_t input_bytes;
    int row;            /* of the cursor, counted from the first row shown */
    char *buffer;       /* of the last line read without editing */
    size_t buffer_room;
} cli_terminal;

/* `show`: ask with a prompt at all, if standard input is a terminal. */
void cli_terminal_open(cli_terminal *t, bool show);
void cli_terminal_close(cli_terminal *t);

/* Reads a line, without its line break; valid until the next call. The terminal is as it was when
 * this returns, and whatever ends the program meanwhile. */
cli_line cli_terminal_read(cli_terminal *t, const char *prompt, const char **line, size_t *bytes);

#endif
