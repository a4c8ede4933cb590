/* repl.c: a conversation, line by line, with commands. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"
#include "terminal.h"

typedef struct repl {
    run_options *o;
    cli_terminal terminal;
    run_answer last;
    uint64_t answers, answer_tokens; /* of the whole conversation */
    bool leave;
    int code; /* of the last failure */
} repl;

/* --- commands --------------------------------------------------------------------------------- */

static int no_argument(const char *name, const char *argument)
{
    if (!*argument) return CLI_OK;
    return cli_error(CLI_USAGE, "/%s takes no argument", name);
}

static int do_exit(repl *r, const char *argument)
{
    (void)argument;
    r->leave = true;
    return CLI_OK;
}

static int do_reset(repl *r, const char *argument)
{
    vt_error err;
    (void)argument;
    if (r->o->chat) vt_chat_truncate(r->o->chat, 0);
    if (vt_session_rewind(r->o->compute.handle, 0, &err) != VT_OK) return cli_fail(&err);
    r->last.left_out = 0;
    fputs("forgotten\n", stderr);
    return CLI_OK;
}

static int do_system(repl *r, const char *argument)
{
    vt_error err;
    if (!r->o->chat)
        return cli_error(CLI_USAGE, "/system needs a chat template; texts are continued as they "
                                    "are here");
    const char *text = *argument ? argument : NULL;
    if (vt_chat_set_system(r->o->chat, text, strlen(argument), &err) != VT_OK)
        return cli_fail(&err);
    fputs(text ? "system text set\n" : "system text back to the template's own\n", stderr);
    return CLI_OK;
}

static int do_save(repl *r, const char *argument)
{
    if (!*argument) return cli_error(CLI_USAGE, "/save needs a file: /save FILE");
    int code = run_save(r->o, argument);
    if (code == CLI_OK) fprintf(stderr, "saved to %s\n", argument);
    return code;
}

static int do_load(repl *r, const char *argument)
{
    if (!*argument) return cli_error(CLI_USAGE, "/load needs a file: /load FILE");
    int code = run_load(r->o, argument);
    if (code != CLI_OK) return code;
    r->last.left_out = r->o->chat ? vt_chat_left_out(r->o->chat) : 0;
    vt_session_stats s;
    vt_session_get_stats(r->o->compute.handle, &s);
    if (r->o->chat)
        fprintf(stderr, "%zu messages, ", vt_chat_count(r->o->chat));
    fprintf(stderr, "%" PRIu32 " tokens loaded from %s\n", s.used_tokens, argument);
    return CLI_OK;
}

static int do_stats(repl *r, const char *argument)
{
    vt_session_stats s;
    (void)argument;
    vt_session_get_stats(r->o->compute.handle, &s);
    fprintf(stderr, "%" PRIu64 " answer%s, %" PRIu64 " tokens; %" PRIu64
                    " tokens computed; KV cache %s here\n",
            r->answers, r->answers == 1 ? "" : "s", r->answer_tokens,
            s.prefill_tokens + s.decode_tokens,
            cli_bytes(s.kv_bytes));
    cli_print_memory(&r->o->compute);
    if (r->answers) {
        fputs("last one: ", stderr);
        run_print_figures(r->o, &r->last);
    } else {
        cli_print_devices(&r->o->compute, false);
    }
    return CLI_OK;
}

static int do_help(repl *r, const char *argument);

typedef struct repl_command {
    const char *name, *argument, *help;
    int (*run)(repl *r, const char *argument);
} repl_command;

static const repl_command commands[] = {
    {"help", NULL, "this list", do_help},
    {"system", "TEXT", "what the model is told first; without TEXT the template's own", do_system},
    {"reset", NULL, "forget the conversation; the system text stays", do_reset},
    {"save", "FILE", "keep the conversation in a file", do_save},
    {"load", "FILE", "go on with a kept conversation", do_load},
    {"stats", NULL, "figures: speed, context, devices", do_stats},
    {"exit", NULL, "leave (also Ctrl-D)", do_exit},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static int do_help(repl *r, const char *argument)
{
    (void)r;
    (void)argument;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const char *name = commands[i].name, *takes = commands[i].argument;
        fprintf(stderr, "  /%s %-*s  %s\n", name, (int)(12 - strlen(name)), takes ? takes : "",
                commands[i].help);
    }
    fputs("  //TEXT          a text that begins with a slash\n"
          "Ctrl-C stops an answer, arrows and Ctrl-P, Ctrl-N bring earlier lines back.\n", stderr);
    return CLI_OK;
}

/* "/name argument". What is no command is an error: it might have been meant as one. */
static int run_command(repl *r, char *line)
{
    const char *name = line + 1;
    char *argument = line + 1 + strcspn(line + 1, " \t\n");
    if (*argument) *argument++ = 0;
    argument += strspn(argument, " \t\n");
    for (size_t end = strlen(argument); end && strchr(" \t\n", argument[end - 1]);)
        argument[--end] = 0;
    if (strcmp(name, "quit") == 0) name = "exit";
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) != 0) continue;
        int code = commands[i].argument ? CLI_OK : no_argument(name, argument);
        return code == CLI_OK ? commands[i].run(r, argument) : code;
    }
    return cli_error(CLI_USAGE, "there is no command /%s; /help lists them, //%s says it to the "
                                "model", name, name);
}

/* --- talking ---------------------------------------------------------------------------------- */

/* Ctrl-C stops the answer, not the program; only several in a row end one that does not listen. */
static int answer(repl *r, const char *text, size_t bytes)
{
    size_t left_out = r->last.left_out;
    cli_interrupts_reset(5);
    cli_cancel_on_interrupt(r->o->compute.handle);
    int code = run_ask(r->o, text, bytes, &r->last);
    cli_cancel_on_interrupt(NULL);
    if (code == CLI_OK && r->last.prompt_tokens) r->answers++;
    r->answer_tokens += r->last.answer_tokens;
    if (code == CLI_OK && r->terminal.edits && r->last.left_out > left_out)
        fprintf(stderr, "%s(the context is full: the oldest %zu messages are left out)%s\n",
                cli_dim(), r->last.left_out, cli_plain());
    if (code == CLI_OK && r->terminal.edits && r->last.reason == VT_STOP_CONTEXT)
        fprintf(stderr, "%s(the context is full; /reset begins anew, --context-full shift goes "
                        "on)%s\n", cli_dim(), cli_plain());
    if (cli_terminated()) r->leave = true;
    return code;
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!memchr(" \t\n", line[i], 3)) return false;
    return true;
}

static int handle(repl *r, const char *line, size_t bytes)
{
    bool slash = bytes && line[0] == '/';
    if (slash && line[1] != '/') {
        char *copy = strdup(line);
        int code = copy ? run_command(r, copy) : cli_error(VT_ERR_MEMORY, "no memory");
        free(copy);
        return code;
    }
    if (is_blank(line, bytes)) return CLI_OK;
    return answer(r, line + slash, bytes - slash);
}

/* On a terminal a failure is told and the conversation goes on, if its devices are still there; a
 * script ends with it. */
static bool goes_on(const repl *r, int code)
{
    if (code == CLI_OK) return true;
    bool device_lost = code == VT_ERR_NETWORK || code == VT_ERR_PROTOCOL ||
                       code == VT_ERR_TIMEOUT || code == VT_ERR_REMOTE;
    return isatty(STDIN_FILENO) && !device_lost && r->code != VT_ERR_INTERNAL;
}

static void greet(const repl *r)
{
    vt_model_info info;
    if (!isatty(STDIN_FILENO)) return;
    vt_model_get_info(r->o->compute.model, &info);
    const char *name = *info.name ? info.name : info.architecture;
    if (r->o->chat)
        fprintf(stderr, "%s%s, template %s. /help lists commands, Ctrl-D leaves.%s\n", cli_dim(),
                name, vt_chat_template(r->o->chat), cli_plain());
    else
        fprintf(stderr, "%s%s goes on with any text. /help lists commands, Ctrl-D leaves.%s\n",
                cli_dim(), name, cli_plain());
    if (!r->o->json) cli_print_devices(&r->o->compute, false);
}

static void talk(repl *r)
{
    unsigned interrupts = 0;
    while (!r->leave) {
        const char *line;
        size_t bytes;
        cli_line result = cli_terminal_read(&r->terminal, "> ", &line, &bytes);
        if (result == CLI_LINE_END) break;
        if (result == CLI_LINE_EMPTY_INTERRUPT && ++interrupts == 2) break;
        if (result == CLI_LINE_EMPTY_INTERRUPT)
            fputs("(Ctrl-C again, Ctrl-D or /exit leaves)\n", stderr);
        if (result != CLI_LINE_READ) continue;
        interrupts = 0;
        r->code = handle(r, line, bytes);
        if (!goes_on(r, r->code)) return;
        if (isatty(STDIN_FILENO)) r->code = CLI_OK;
    }
}

int run_talk(run_options *o)
{
    repl r = {.o = o};
    o->no_echo = true;
    greet(&r);
    cli_terminal_open(&r.terminal, true);
    if (o->prompt) r.code = answer(&r, o->prompt, o->prompt_bytes);
    if (goes_on(&r, r.code) && !r.leave) talk(&r);
    cli_terminal_close(&r.terminal);
    return cli_terminated() ? 128 + SIGTERM : r.code;
}
