/* edit.h: a line of text that is being typed. No I/O: bytes in, a line and what happened out. */
#ifndef CLI_EDIT_H
#define CLI_EDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "history.h"

typedef enum edit_event {
    EDIT_MORE,      /* nothing but the line changed */
    EDIT_ENTER,     /* the line is complete */
    EDIT_INTERRUPT, /* Ctrl-C */
    EDIT_END,       /* Ctrl-D in an empty line */
    EDIT_SUSPEND,   /* Ctrl-Z */
    EDIT_CLEAR,     /* Ctrl-L: clear the screen */
} edit_event;

typedef struct edit {
    char *text; /* valid UTF-8; a pasted text may have line breaks */
    size_t bytes, room;
    size_t cursor;     /* a byte offset, at the beginning of a character */
    cli_history *history;
    size_t place;      /* in the history; its count: the line that is being typed … */
    char *typed;       /* … which is kept here meanwhile */
    char pending[32];  /* of an escape sequence or a character */
    size_t pending_bytes;
    bool pasting;
    bool failed;       /* no memory for something typed: it was dropped */
} edit;

/* `history` may be NULL. */
void edit_init(edit *e, cli_history *history);
void edit_free(edit *e);
void edit_reset(edit *e); /* an empty line */

/* Takes one byte from the terminal. */
edit_event edit_push(edit *e, unsigned char byte);

/* Columns that the character at `text` takes (0 to 2), and its bytes. */
int edit_width(const char *text, size_t bytes, size_t *length);

#endif
