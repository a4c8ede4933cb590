#include "terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli.h"

/* --- raw mode --------------------------------------------------------------------------------- */

static struct termios cooked;
static volatile sig_atomic_t is_raw;
static int raw_out;

static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";

static void write_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t written = write(fd, data, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        data += written;
        bytes -= (size_t)written;
    }
}

/* Callable from signal handlers. */
static void leave_raw(void)
{
    if (!is_raw) return;
    is_raw = 0;
    write_all(raw_out, paste_off, sizeof paste_off - 1);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked);
}

static void set_raw(void)
{
    struct termios raw = cooked;
    raw.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INPCK | ISTRIP | IXON | INLCR | IGNCR);
    raw.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_oflag &= ~(tcflag_t)OPOST;
    raw.c_cflag |= CS8;
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

static bool enter_raw(int out)
{
    static bool registered;
    if (!registered) atexit(leave_raw);
    registered = true;
    if (tcgetattr(STDIN_FILENO, &cooked) != 0) return false;
    raw_out = out;
    is_raw = 1;
    set_raw();
    write_all(out, paste_on, sizeof paste_on - 1);
    return true;
}

/* --- signals while raw ------------------------------------------------------------------------ */

static const int deadly[] = {SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGABRT,
                             SIGSEGV, SIGBUS,  SIGILL, SIGFPE,  SIGPIPE};

enum { DEADLY_COUNT = sizeof deadly / sizeof deadly[0] };

static void die(int number)
{
    leave_raw();
    signal(number, SIG_DFL);
    raise(number);
}

/* Only interrupts the read: the size changed, or somebody stopped and continued us. */
static void wake(int number) { (void)number; }

/* As SIGTSTP does where nobody handles it: not at all where nobody could let us go on. */
static void stop_by_default(void)
{
    struct sigaction ours, standard = {.sa_handler = SIG_DFL};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTSTP);
    sigaction(SIGTSTP, &standard, &ours);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    raise(SIGTSTP);
    sigaction(SIGTSTP, &ours, NULL);
}

/* From another program; Ctrl-Z is a byte here. */
static void stop(int number)
{
    (void)number;
    leave_raw(); /* and our workers too, or they would take us for lost */
    cli_pause_workers(true);
    stop_by_default();
    cli_pause_workers(false);
}

typedef struct handlers {
    struct sigaction old[DEADLY_COUNT], winch, cont, stop;
} handlers;

static void set_handlers(handlers *h)
{
    struct sigaction action = {.sa_handler = die};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < DEADLY_COUNT; i++) sigaction(deadly[i], &action, &h->old[i]);
    action.sa_handler = wake;
    sigaction(SIGWINCH, &action, &h->winch);
    sigaction(SIGCONT, &action, &h->cont);
    action.sa_handler = stop;
    sigaction(SIGTSTP, &action, &h->stop);
}

static void restore_handlers(const handlers *h)
{
    for (int i = 0; i < DEADLY_COUNT; i++) sigaction(deadly[i], &h->old[i], NULL);
    sigaction(SIGWINCH, &h->winch, NULL);
    sigaction(SIGCONT, &h->cont, NULL);
    sigaction(SIGTSTP, &h->stop, NULL);
}

static void suspend(const cli_terminal *t)
{
    raise(SIGTSTP);
    enter_raw(t->out);
}

/* --- drawing ---------------------------------------------------------------------------------- */

/* Where things land on a screen of `columns`: rows are broken here, not by the terminal, so that it
 * is known where. */
typedef struct layout {
    FILE *out;            /* NULL: only measures */
    int columns, row, column;
    int first, last;      /* rows that are shown */
} layout;

static void next_row(layout *l)
{
    l->row++;
    l->column = 0;
    if (l->out && l->row > l->first && l->row <= l->last) fputs("\r\n", l->out);
}

static void place(layout *l, const char *text, size_t bytes, int width)
{
    if (l->column + width > l->columns) next_row(l);
    if (l->out && l->row >= l->first && l->row <= l->last) fwrite(text, 1, bytes, l->out);
    l->column += width;
}

/* C0, DEL and C1. */
static bool is_control(const char *text, size_t length)
{
    const unsigned char *c = (const unsigned char *)text;
    return length == 1 ? c[0] < 0x20 || c[0] == 0x7F : length == 2 && c[0] == 0xC2 && c[1] < 0xA0;
}

static void place_text(layout *l, const char *text, size_t bytes)
{
    for (size_t i = 0, length; i < bytes; i += length) {
        int width = edit_width(text + i, bytes - i, &length);
        if (text[i] == '\n')
            next_row(l);
        else if (text[i] == '\t')
            place(l, " ", 1, 1);
        else if (is_control(text + i, length))
            place(l, "?", 1, 1); /* from a history that others wrote to */
        else
            place(l, text + i, length, width);
    }
}

/* Behind the last column is the next row. */
static void settle(layout *l)
{
    if (l->column >= l->columns) next_row(l);
}

static void screen_size(int out, int *columns, int *rows)
{
    struct winsize size = {0};
    *columns = 80;
    *rows = 24;
    if (ioctl(out, TIOCGWINSZ, &size) == 0) {
        if (size.ws_col > 1) *columns = size.ws_col;
        if (size.ws_row > 0) *rows = size.ws_row;
    }
}

/* Shows prompt and line with the cursor at byte `cursor`; a line that is higher than the screen in
 * the part around the cursor. */
static void draw(cli_terminal *t, const char *prompt, size_t cursor)
{
    int rows;
    char *data = NULL;
    size_t bytes = 0;
    layout at = {.columns = 80}, end;
    screen_size(t->out, &at.columns, &rows);
    place_text(&at, prompt, strlen(prompt));
    end = at;
    place_text(&at, t->line.text, cursor);
    settle(&at);
    place_text(&end, t->line.text, t->line.bytes);
    settle(&end);
    layout show = {.columns = at.columns, .first = at.row - rows + 1, .last = end.row};
    if (show.first < 0) show.first = 0;
    if (show.last > show.first + rows - 1) show.last = show.first + rows - 1;
    show.out = open_memstream(&data, &bytes);
    if (!show.out) return;
    if (t->row > 0) fprintf(show.out, "\033[%dA", t->row);
    fputs("\r\033[J", show.out);
    if (show.first == 0) fputs(cli_bold(), show.out);
    place_text(&show, prompt, strlen(prompt));
    if (show.first == 0) fputs(cli_plain(), show.out);
    place_text(&show, t->line.text, t->line.bytes);
    settle(&show);
    bool there = at.row == end.row && at.column == end.column;
    if (!there && show.last > at.row) fprintf(show.out, "\033[%dA", show.last - at.row);
    if (!there) fputc('\r', show.out);
    if (!there && at.column > 0) fprintf(show.out, "\033[%dC", at.column);
    fclose(show.out);
    write_all(t->out, data, bytes);
    free(data);
    t->row = at.row - show.first;
}

/* --- reading ---------------------------------------------------------------------------------- */

void cli_terminal_open(cli_terminal *t, bool show)
{
    memset(t, 0, sizeof *t);
    const char *term = getenv("TERM");
    bool capable = term && *term && strcmp(term, "dumb") != 0;
    t->out = isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO;
    t->edits = show && capable && isatty(STDIN_FILENO) && isatty(t->out);
    if (t->edits) cli_history_open(&t->history);
    edit_init(&t->line, t->edits ? &t->history : NULL);
}

void cli_terminal_close(cli_terminal *t)
{
    edit_free(&t->line);
    if (t->edits) cli_history_close(&t->history);
    free(t->buffer);
}

/* More was typed, or pasted, than was read: no need to show what comes before it. */
static bool input_waits(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 0) > 0;
}

/* Handles what was typed, up to an event. */
static edit_event take_input(cli_terminal *t)
{
    edit_event event = EDIT_MORE;
    size_t used = 0;
    while (used < t->input_bytes && event == EDIT_MORE)
        event = edit_push(&t->line, t->input[used++]);
    memmove(t->input, t->input + used, t->input_bytes - used);
    t->input_bytes -= used;
    return event;
}

static bool read_input(cli_terminal *t)
{
    ssize_t got = read(STDIN_FILENO, t->input, sizeof t->input);
    if (got < 0 && errno == EINTR) {
        is_raw = 1; /* SIGTSTP has left it */
        set_raw();
        return true;
    }
    if (got > 0) t->input_bytes = (size_t)got;
    return got > 0;
}

static cli_line edit_line(cli_terminal *t, const char *prompt)
{
    for (;;) {
        edit_event event = take_input(t);
        if (event == EDIT_CLEAR) {
            write_all(t->out, "\033[H\033[2J", 7);
            t->row = 0;
        }
        if (event == EDIT_SUSPEND) {
            suspend(t);
            t->row = 0;
        }
        bool ended = event == EDIT_ENTER || event == EDIT_INTERRUPT || event == EDIT_END;
        if (ended || (t->input_bytes == 0 && !input_waits()))
            draw(t, prompt, ended ? t->line.bytes : t->line.cursor);
        if (ended) write_all(t->out, event == EDIT_INTERRUPT ? "^C\r\n" : "\r\n",
                             event == EDIT_INTERRUPT ? 4 : 2);
        if (event == EDIT_ENTER) return CLI_LINE_READ;
        if (event == EDIT_END) return CLI_LINE_END;
        if (event == EDIT_INTERRUPT)
            return t->line.bytes ? CLI_LINE_INTERRUPT : CLI_LINE_EMPTY_INTERRUPT;
        if (t->input_bytes == 0 && !read_input(t)) return CLI_LINE_END;
    }
}

static cli_line read_plain(cli_terminal *t, const char *prompt, const char **line, size_t *bytes)
{
    if (isatty(STDIN_FILENO)) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    ssize_t got = getline(&t->buffer, &t->buffer_room, stdin);
    if (got < 0) return CLI_LINE_END;
    if (got > 0 && t->buffer[got - 1] == '\n') t->buffer[--got] = 0;
    if (got > 0 && t->buffer[got - 1] == '\r') t->buffer[--got] = 0;
    *line = t->buffer;
    *bytes = (size_t)got;
    return CLI_LINE_READ;
}

cli_line cli_terminal_read(cli_terminal *t, const char *prompt, const char **line, size_t *bytes)
{
    handlers old;
    fflush(stdout);
    fflush(stderr);
    *line = "";
    *bytes = 0;
    if (!t->edits || !enter_raw(t->out)) return read_plain(t, prompt, line, bytes);
    set_handlers(&old);
    edit_reset(&t->line);
    t->row = 0;
    cli_line result = edit_line(t, prompt);
    leave_raw();
    restore_handlers(&old);
    if (result == CLI_LINE_READ) cli_history_add(&t->history, t->line.text);
    *line = t->line.text;
    *bytes = t->line.bytes;
    return result;
}
