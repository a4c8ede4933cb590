#include "edit.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void edit_init(edit *e, cli_history *history)
{
    *e = (edit){.history = history};
    edit_reset(e);
}

void edit_free(edit *e)
{
    free(e->text);
    free(e->typed);
    *e = (edit){0};
}

static void set_text(edit *e, const char *text);

void edit_reset(edit *e)
{
    free(e->typed);
    e->typed = NULL;
    e->pending_bytes = 0;
    e->pasting = false;
    e->place = e->history ? e->history->count : 0;
    set_text(e, "");
}

/* --- characters ------------------------------------------------------------------------------- */

int edit_width(const char *text, size_t bytes, size_t *length)
{
    utf8proc_int32_t point;
    utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)text,
                                            (utf8proc_ssize_t)bytes, &point);
    *length = got > 0 ? (size_t)got : 1;
    return got > 0 && point >= 0x20 ? utf8proc_charwidth(point) : 1;
}

static bool continues(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

static size_t next_place(const edit *e, size_t at)
{
    size_t length;
    if (at >= e->bytes) return e->bytes;
    edit_width(e->text + at, e->bytes - at, &length);
    at += length;
    /* Marks that stand over the character go with it. */
    while (at < e->bytes && (unsigned char)e->text[at] >= 0x80 &&
           edit_width(e->text + at, e->bytes - at, &length) == 0)
        at += length;
    return at;
}

static size_t previous_place(const edit *e, size_t at)
{
    size_t length;
    while (at > 0) {
        do at--;
        while (at > 0 && continues(e->text[at]));
        bool mark = (unsigned char)e->text[at] >= 0x80 &&
                    edit_width(e->text + at, e->bytes - at, &length) == 0;
        if (!mark) break;
    }
    return at;
}

static bool is_word(char c)
{
    return (unsigned char)c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || c == '_';
}

static size_t next_word(const edit *e, size_t at)
{
    while (at < e->bytes && !is_word(e->text[at])) at++;
    while (at < e->bytes && is_word(e->text[at])) at++;
    return at;
}

static size_t previous_word(const edit *e, size_t at)
{
    while (at > 0 && !is_word(e->text[at - 1])) at--;
    while (at > 0 && is_word(e->text[at - 1])) at--;
    return at;
}

/* --- changing --------------------------------------------------------------------------------- */

static bool reserve(edit *e, size_t bytes)
{
    if (e->room > bytes) return true;
    size_t room = bytes * 2 + 64;
    char *larger = realloc(e->text, room);
    if (!larger) {
        e->failed = true;
        return false;
    }
    e->text = larger;
    e->room = room;
    return true;
}

static void set_text(edit *e, const char *text)
{
    size_t bytes = strlen(text);
    if (!reserve(e, bytes)) return;
    memcpy(e->text, text, bytes + 1);
    e->bytes = e->cursor = bytes;
}

static void insert(edit *e, const char *text, size_t bytes)
{
    if (!reserve(e, e->bytes + bytes)) return;
    memmove(e->text + e->cursor + bytes, e->text + e->cursor, e->bytes - e->cursor + 1);
    memcpy(e->text + e->cursor, text, bytes);
    e->bytes += bytes;
    e->cursor += bytes;
}

static void delete_between(edit *e, size_t from, size_t to)
{
    memmove(e->text + from, e->text + to, e->bytes - to + 1);
    e->bytes -= to - from;
    e->cursor = from;
}

/* Goes `step` lines through the history; the line being typed is the last one. */
static void browse(edit *e, int step)
{
    if (!e->history) return;
    size_t count = e->history->count;
    if ((step < 0 && e->place == 0) || (step > 0 && e->place >= count)) return;
    if (e->place >= count) {
        free(e->typed);
        e->typed = strdup(e->text);
    }
    e->place += (size_t)step;
    set_text(e, e->place < count ? e->history->lines[e->place] : e->typed ? e->typed : "");
}

/* --- keys ------------------------------------------------------------------------------------- */

enum { CTRL = 0x1F }; /* Ctrl-A is 'A' & CTRL */

static edit_event control(edit *e, unsigned char key)
{
    switch (key) {
    case '\r':
    case '\n': return EDIT_ENTER;
    case 'C' & CTRL: return EDIT_INTERRUPT;
    case 'Z' & CTRL: return EDIT_SUSPEND;
    case 'L' & CTRL: return EDIT_CLEAR;
    case 'D' & CTRL:
        if (e->bytes == 0) return EDIT_END;
        delete_between(e, e->cursor, next_place(e, e->cursor));
        break;
    case 'H' & CTRL:
    case 127: {
        size_t end = e->cursor;
        delete_between(e, previous_place(e, end), end);
        break;
    }
    case 'A' & CTRL: e->cursor = 0; break;
    case 'E' & CTRL: e->cursor = e->bytes; break;
    case 'B' & CTRL: e->cursor = previous_place(e, e->cursor); break;
    case 'F' & CTRL: e->cursor = next_place(e, e->cursor); break;
    case 'K' & CTRL: delete_between(e, e->cursor, e->bytes); break;
    case 'U' & CTRL: delete_between(e, 0, e->cursor); break;
    case 'W' & CTRL: {
        size_t end = e->cursor;
        delete_between(e, previous_word(e, end), end);
        break;
    }
    case 'P' & CTRL: browse(e, -1); break;
    case 'N' & CTRL: browse(e, 1); break;
    case '\t': insert(e, " ", 1); break;
    default: break;
    }
    return EDIT_MORE;
}

typedef enum motion {
    NONE, UP, DOWN, RIGHT, LEFT, HOME, END, DELETE, WORD_RIGHT, WORD_LEFT, PASTE, PASTE_END
} motion;

static void move(edit *e, motion m)
{
    switch (m) {
    case UP: browse(e, -1); break;
    case DOWN: browse(e, 1); break;
    case RIGHT: e->cursor = next_place(e, e->cursor); break;
    case LEFT: e->cursor = previous_place(e, e->cursor); break;
    case HOME: e->cursor = 0; break;
    case END: e->cursor = e->bytes; break;
    case DELETE: delete_between(e, e->cursor, next_place(e, e->cursor)); break;
    case WORD_RIGHT: e->cursor = next_word(e, e->cursor); break;
    case WORD_LEFT: e->cursor = previous_word(e, e->cursor); break;
    case PASTE: e->pasting = true; break;
    case PASTE_END: e->pasting = false; break;
    case NONE: break;
    }
}

/* The sequences that xterm and its like send, without ESC; others do nothing. */
static motion sequence(const char *text)
{
    static const struct {
        const char *text;
        motion motion;
    } known[] = {
        {"[A", UP}, {"[B", DOWN}, {"[C", RIGHT}, {"[D", LEFT}, {"[H", HOME}, {"[F", END},
        {"OA", UP}, {"OB", DOWN}, {"OC", RIGHT}, {"OD", LEFT}, {"OH", HOME}, {"OF", END},
        {"[1~", HOME}, {"[7~", HOME}, {"[4~", END}, {"[8~", END}, {"[3~", DELETE},
        {"[1;5C", WORD_RIGHT}, {"[1;5D", WORD_LEFT}, {"[1;3C", WORD_RIGHT}, {"[1;3D", WORD_LEFT},
        {"f", WORD_RIGHT}, {"b", WORD_LEFT}, {"[200~", PASTE}, {"[201~", PASTE_END},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].text, text) == 0) return known[i].motion;
    return NONE;
}

/* In an escape sequence: `pending` is what came, ESC first. */
static void continue_escape(edit *e)
{
    char last = e->pending[e->pending_bytes - 1];
    size_t bytes = e->pending_bytes;
    bool introduced = bytes >= 2 && (e->pending[1] == '[' || e->pending[1] == 'O');
    bool whole = introduced ? bytes > 2 && last >= 0x40 && last <= 0x7E : bytes >= 2;
    /* Of one that is longer than any known the end still has to come. */
    if (!whole && bytes + 1 >= sizeof e->pending) e->pending_bytes--;
    if (!whole) return;
    e->pending[bytes] = 0;
    e->pending_bytes = 0;
    motion m = sequence(e->pending + 1);
    if (!e->pasting || m == PASTE_END) move(e, m);
}

/* In a character of several bytes. What is not UTF-8 is dropped. */
static void continue_character(edit *e)
{
    utf8proc_int32_t point;
    size_t bytes = e->pending_bytes;
    unsigned char first = (unsigned char)e->pending[0];
    size_t wanted = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4) {
        e->pending_bytes = 0;
    } else if (bytes == wanted) {
        e->pending_bytes = 0;
        bool valid = utf8proc_iterate((const utf8proc_uint8_t *)e->pending,
                                      (utf8proc_ssize_t)bytes, &point) == (utf8proc_ssize_t)bytes;
        if (valid && point >= 0xA0) insert(e, e->pending, bytes);
    }
}

static edit_event plain(edit *e, unsigned char byte)
{
    if (byte >= 0x20 && byte < 0x7F) {
        insert(e, &(char){(char)byte}, 1);
        return EDIT_MORE;
    }
    if (!e->pasting) return control(e, byte);
    /* In a pasted text only line breaks and tabs mean something. */
    if (byte == '\r' || byte == '\n') insert(e, "\n", 1);
    if (byte == '\t') insert(e, "\t", 1);
    return EDIT_MORE;
}

edit_event edit_push(edit *e, unsigned char byte)
{
    bool in_character = e->pending_bytes && e->pending[0] != 27;
    if (in_character && (byte & 0xC0) != 0x80) {
        e->pending_bytes = 0; /* cut off */
        in_character = false;
    }
    if (e->pending_bytes || byte == 27 || byte >= 0x80) {
        if (byte == 27) e->pending_bytes = 0;
        e->pending[e->pending_bytes++] = (char)byte;
        if (e->pending[0] == 27)
            continue_escape(e);
        else
            continue_character(e);
        return EDIT_MORE;
    }
    return plain(e, byte);
}
