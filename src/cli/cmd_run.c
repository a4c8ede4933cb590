/* cmd_run.c: options of the run command, and which way to run. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

/* --- options ----------------------------------------------------------------------------------- */

static int choose_policy(run_options *o)
{
    o->policy = VT_CONTEXT_STOP;
    if (!o->context_full || strcmp(o->context_full, "stop") == 0) return CLI_OK;
    if (strcmp(o->context_full, "shift") != 0)
        return cli_error(CLI_USAGE, "--context-full: \"%s\" is not right, expected stop or shift",
                         o->context_full);
    o->policy = VT_CONTEXT_SHIFT;
    return CLI_OK;
}

static int check(run_options *o)
{
    if (o->compute.session.sampling.logprobs && !o->json)
        return cli_error(CLI_USAGE, "--logprobs needs --json");
    if (o->prompt && o->file)
        return cli_error(CLI_USAGE, "--prompt and --file exclude each other");
    if (o->no_chat && (o->template_name || o->system || o->no_thinking))
        return cli_error(CLI_USAGE, "--no-chat and %s exclude each other",
                         o->template_name ? "--chat-template"
                         : o->system      ? "--system"
                                          : "--no-thinking");
    if (o->interactive && o->file && strcmp(o->file, "-") == 0)
        return cli_error(CLI_USAGE, "--interactive reads standard input; -f - would too");
    int code = choose_policy(o);
    return code == CLI_OK ? cli_sampling_finish(&o->sampling, &o->compute.session.sampling) : code;
}

static int parse(run_options *o, int argc, char **argv)
{
    vt_sampling *s = &o->compute.session.sampling;
    const cli_option options[] = {
        CLI_COMPUTE_OPTIONS(o->compute),
        {"ttft", 0, CLI_F32, &o->compute.ttft_s, 1e-3, 1e6, "S",
         "warn if a plan takes more seconds to the first token (10)"},
        {"tpot", 0, CLI_F32, &o->compute.tpot_ms, 1, 1e9, "MS",
         "warn if it takes more milliseconds per later token (400)"},
        {NULL, 0, CLI_HEADING, NULL, 0, 0, NULL, "Text"},
        {"prompt", 'p', CLI_STRING, &o->prompt, 0, 0, "TEXT",
         "the question, or the text to go on from"},
        {"file", 'f', CLI_STRING, &o->file, 0, 0, "FILE", "the same from a file, without its last line break; - is stdin"},
        {"interactive", 'i', CLI_FLAG, &o->interactive, 0, 0, NULL,
         "line by line also if standard input is no terminal; behind -p too"},
        {"tokens", 'n', CLI_U64, &o->tokens, 0, 0, "N",
         "write at most N tokens (default: until the end)"},
        {"context-full", 0, CLI_STRING, &o->context_full, 0, 0, "stop|shift",
         "a full context ends the answer, or the oldest is left out (stop)"},
        {"json", 0, CLI_FLAG, &o->json, 0, 0, NULL,
         "print an answer as one JSON object with text and figures"},
        {"logprobs", 0, CLI_U32, &s->logprobs, 1, VT_LOGPROBS_MAX, "N",
         "with --json: log probabilities of each token and of the N likeliest"},
        {NULL, 0, CLI_HEADING, NULL, 0, 0, NULL, "Chat"},
        {"system", 0, CLI_STRING, &o->system, 0, 0, "TEXT", "what the model is told first"},
        {"chat-template", 0, CLI_STRING, &o->template_name, 0, 0, "NAME",
         "how a conversation is written (default: as the file says)"},
        {"no-thinking", 0, CLI_FLAG, &o->no_thinking, 0, 0, NULL,
         "ask a model that thinks first, and can be asked so, to answer at once"},
        {"no-chat", 0, CLI_FLAG, &o->no_chat, 0, 0, NULL,
         "go on from texts as they are, without a template"},
        {"no-echo", 0, CLI_FLAG, &o->no_echo, 0, 0, NULL, "then: do not print the prompt"},
        {"special", 0, CLI_FLAG, &o->special, 0, 0, NULL,
         "then: control tokens in the prompt, such as <|im_start|>, have their meaning"},
        CLI_SAMPLING_OPTIONS(*s, o->sampling),
        {0},
    };
    int code = cli_parse(&cli_run, options, argc, argv, NULL, NULL);
    return code == CLI_OK ? check(o) : code;
}

static bool is_interactive(const run_options *o)
{
    return o->interactive || (!o->prompt && !o->file && isatty(STDIN_FILENO));
}

/* Before the model is opened: a file that is not there should not cost a minute first. NULL is no
 * failure if *code is CLI_OK. */
static char *read_prompt(const run_options *o, size_t *bytes, int *code)
{
    *code = CLI_OK;
    if (!o->file && (o->prompt || is_interactive(o))) return NULL;
    char *text = cli_read_file(o->file ? o->file : "-", CLI_TEXT_MAX, bytes);
    if (!text) *code = VT_ERR_IO;
    if (text && *bytes && text[*bytes - 1] == '\n') --*bytes; /* it ends the line, not the text */
    return text;
}

/* --- running ----------------------------------------------------------------------------------- */

/* A model with a template is for chats, any other for texts. A template that is not recognised is
 * an error: a guess would give answers that look almost right. */
static int open_chat(run_options *o)
{
    const vt_model *model = o->compute.model;
    if (!o->template_name && (o->no_chat || !vt_model_has_chat_template(model))) {
        if (o->system || o->no_thinking)
            return cli_error(CLI_USAGE, "--%s needs a chat template, and the model's file has "
                                        "none; --chat-template NAME chooses one",
                             o->system ? "system" : "no-thinking");
        return CLI_OK;
    }
    if (o->special) return cli_error(CLI_USAGE, "--special is for texts; --no-chat makes it one");
    char date[32];
    time_t now = time(NULL);
    struct tm local;
    strftime(date, sizeof date, "%d %b %Y", localtime_r(&now, &local));
    vt_chat_params params = {.template_name = o->template_name, .date = date,
                             .skip_thoughts = o->no_thinking};
    vt_error err;
    if (vt_chat_open(model, &params, &o->chat, &err) != VT_OK) {
        int code = cli_fail(&err);
        if (!o->template_name)
            cli_error(code, "--chat-template NAME chooses one of them, --no-chat goes on from "
                            "texts as they are");
        return code;
    }
    if (o->system && vt_chat_set_system(o->chat, o->system, strlen(o->system), &err) != VT_OK)
        return cli_fail(&err);
    return CLI_OK;
}

static int answer_once(run_options *o)
{
    run_answer answer;
    cli_cancel_on_interrupt(o->compute.handle);
    if (!o->json) cli_print_devices(&o->compute, false);
    int code = run_ask(o, o->prompt, o->prompt_bytes, &answer);
    if (code == CLI_OK && !o->json) {
        fputc('\n', stderr);
        run_print_figures(o, &answer);
    }
    return code == CLI_OK && cli_interrupted() ? 130 : code;
}

static int run_opened(run_options *o, const char *text, size_t bytes)
{
    int code = open_chat(o);
    if (code != CLI_OK) return code;
    if (text) {
        o->prompt = text;
        o->prompt_bytes = bytes;
    } else if (o->prompt) {
        o->prompt_bytes = strlen(o->prompt);
    }
    return is_interactive(o) ? run_talk(o) : answer_once(o);
}

static int run(int argc, char **argv)
{
    run_options o = {.tokens = UINT64_MAX};
    cli_compute_init(&o.compute);
    o.compute.session.sampling.seed = cli_now_ns() % 1000000007;
    int code = parse(&o, argc, argv);
    size_t bytes = 0;
    char *text = code == CLI_OK ? read_prompt(&o, &bytes, &code) : NULL;
    if (code == CLI_OK) code = cli_open_compute(&o.compute);
    if (code == CLI_OK) {
        code = run_opened(&o, text, bytes);
        vt_chat_close(o.chat);
        cli_close_compute(&o.compute);
    }
    free(text);
    cli_sampling_free(&o.sampling);
    return code == CLI_DONE ? CLI_OK : code;
}

const cli_command cli_run = {
    "run",
    "Answer questions or continue a text, here or on several devices together.",
    "[run] [-m FILE] [-p TEXT] [--devices HOST:PORT,…] [OPTIONS]",
    run,
    "With -p or -f (or text on standard input) one answer, else a conversation on the terminal. "
    "A model with a chat template answers questions, any other goes on with the text. The answer "
    "goes to standard output, everything else to standard error. Without -m a small model that "
    "writes children's stories is used; it is part of this program.",
    "  voltron-run -m model.gguf                          a conversation\n"
    "  voltron-run -m model.gguf -p \"Why is the sky blue?\"\n"
    "  voltron-run -p \"Once upon a time\"\n"
    "  voltron-run --local 3 -p \"The little fox\"         three processes here\n"
    "  voltron-run --devices 192.0.2.7:7001 --key cluster.key -p \"Dear diary\"\n",
};
