/* run.h: what the parts of the run command share. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "cli.h"

typedef struct run_options {
    cli_compute compute;
    cli_sampling sampling;
    const char *prompt, *file, *system, *template_name, *context_full;
    size_t prompt_bytes;
    uint64_t tokens;
    vt_context_policy policy;
    bool json, no_echo, special, no_chat, no_thinking, interactive;
    vt_chat *chat; /* NULL: texts are continued as they are */
} run_options;

/* What one answer was. */
typedef struct run_answer {
    vt_stop_reason reason;
    uint64_t prompt_tokens, computed_tokens, prefill_ns;
    uint64_t answer_tokens, decoded_tokens, decode_ns;
    size_t left_out; /* messages that no longer are in the context */
} run_answer;

/* Has `text` answered (or continued), and prints the answer: as it comes, or as JSON. An exit code
 * after an error line; an interrupted answer is CLI_OK. */
int run_ask(run_options *o, const char *text, size_t bytes, run_answer *out);

/* Figures of an answer and the devices, on stderr. */
void run_print_figures(const run_options *o, const run_answer *a);

/* Line by line, until the input or the user ends. */
int run_talk(run_options *o);

/* A conversation to a file and back. An exit code after an error line. */
int run_save(const run_options *o, const char *path);
int run_load(run_options *o, const char *path);

#endif
