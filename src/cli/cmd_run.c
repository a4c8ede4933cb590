/* cmd_run.c: continue a text. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

typedef struct run_options {
    cli_compute compute;
    cli_sampling sampling;
    const char *prompt, *file;
    uint64_t tokens;
    bool json, no_echo, special;
} run_options;

/* --- options ----------------------------------------------------------------------------------- */

static int parse(run_options *o, int argc, char **argv)
{
    vt_sampling *s = &o->compute.session.sampling;
    const cli_option options[] = {
        CLI_COMPUTE_OPTIONS(o->compute),
        {NULL, 0, CLI_HEADING, NULL, 0, 0, NULL, "Text"},
        {"prompt", 'p', CLI_STRING, &o->prompt, 0, 0, "TEXT", "the text to go on from"},
        {"file", 'f', CLI_STRING, &o->file, 0, 0, "FILE", "the same from a file; - is stdin"},
        {"tokens", 'n', CLI_U64, &o->tokens, 0, 0, "N",
         "write at most N tokens (default: until the end)"},
        {"special", 0, CLI_FLAG, &o->special, 0, 0, NULL,
         "control tokens in the prompt, such as <|im_start|>, have their meaning"},
        {"no-echo", 0, CLI_FLAG, &o->no_echo, 0, 0, NULL, "do not print the prompt"},
        {"json", 0, CLI_FLAG, &o->json, 0, 0, NULL, "print one JSON object with text and figures"},
        {"logprobs", 0, CLI_U32, &s->logprobs, 1, VT_LOGPROBS_MAX, "N",
         "with --json: log probabilities of each token and of the N likeliest"},
        CLI_SAMPLING_OPTIONS(*s, o->sampling),
        {0},
    };
    int code = cli_parse(&cli_run, options, argc, argv, NULL, NULL);
    if (code == CLI_OK && s->logprobs && !o->json)
        return cli_error(CLI_USAGE, "--logprobs needs --json");
    return code == CLI_OK ? cli_sampling_finish(&o->sampling, s) : code;
}

static char *read_prompt(const run_options *o, size_t *bytes, int *code)
{
    *code = CLI_OK;
    if (o->prompt && o->file) {
        *code = cli_error(CLI_USAGE, "--prompt and --file exclude each other");
        return NULL;
    }
    char *text = NULL;
    if (o->prompt)
        text = strdup(o->prompt);
    else if (o->file || !isatty(STDIN_FILENO))
        text = cli_read_file(o->file ? o->file : "-", bytes);
    else
        *code = cli_error(CLI_USAGE, "no prompt; give one with -p \"Once upon a time\"");
    if (!text && *code == CLI_OK) *code = VT_ERR_IO;
    if (text && o->prompt) *bytes = strlen(text);
    return text;
}

/* --- output ------------------------------------------------------------------------------------ */

typedef struct text_buffer {
    char *data;
    size_t bytes, capacity;
    bool print, failed; /* to stdout as it comes */
    const vt_model *model;
    json_t *logprobs;   /* NULL: not wanted */
} text_buffer;

static bool on_text(void *user, const char *text, size_t bytes)
{
    text_buffer *b = user;
    if (b->print) {
        if (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0) b->failed = true;
        return !b->failed;
    }
    if (b->capacity - b->bytes < bytes) {
        size_t capacity = (b->capacity + bytes) * 2;
        char *larger = realloc(b->data, capacity);
        if (!larger) return false;
        b->data = larger;
        b->capacity = capacity;
    }
    memcpy(b->data + b->bytes, text, bytes);
    b->bytes += bytes;
    return true;
}

/* {"id", "token", "logprob"}; a part of a character has "bytes" instead of "token". */
static json_t *logprob_json(const vt_model *model, const vt_logprob *item)
{
    size_t bytes;
    const char *text = vt_token_bytes(model, item->token, &bytes);
    json_t *object = json_pack("{s:i, s:f}", "id", (int)item->token, "logprob",
                               (double)item->logprob);
    json_t *string = json_stringn(text, bytes);
    if (string) {
        json_object_set_new(object, "token", string);
        return object;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < bytes; i++)
        json_array_append_new(list, json_integer((unsigned char)text[i]));
    json_object_set_new(object, "bytes", list);
    return object;
}

static bool on_token(void *user, const vt_drawn *token)
{
    text_buffer *b = user;
    json_t *object = logprob_json(b->model, &token->drawn), *top = json_array();
    for (size_t i = 0; i < token->top_count; i++)
        json_array_append_new(top, logprob_json(b->model, &token->top[i]));
    json_object_set_new(object, "top", top);
    return json_array_append_new(b->logprobs, object) == 0;
}

static double per_second(uint64_t count, uint64_t ns)
{
    return ns ? (double)count * 1e9 / (double)ns : 0;
}

static const char *reason_text(vt_stop_reason reason)
{
    switch (reason) {
    case VT_STOP_LENGTH: return "length";
    case VT_STOP_TOKEN: return "stop";
    case VT_STOP_CONTEXT: return "context";
    case VT_STOP_CALLER: return "interrupted";
    case VT_STOP_STRING: return "stop_string";
    }
    return "?";
}

static void print_figures(const run_options *o, vt_stop_reason reason)
{
    vt_session_stats s;
    vt_session_get_stats(o->compute.handle, &s);
    double decode = per_second(s.decode_tokens, s.decode_ns);
    fprintf(stderr, "\n%sprompt %" PRIu64 " tokens, %.1f tok/s; answer %" PRIu64
                    " tokens, %.1f tok/s (%.2f GB/s of weights); context %" PRIu32 " of %" PRIu32
                    "; ended by %s; seed %" PRIu64 "%s\n",
            cli_dim(), s.prefill_tokens, per_second(s.prefill_tokens, s.prefill_ns),
            s.drawn_tokens, decode, decode * (double)s.weight_bytes_per_token / 1e9,
            s.used_tokens, s.context_tokens, reason_text(reason),
            o->compute.session.sampling.seed, cli_plain());
    cli_print_devices(&o->compute, true);
}

static json_t *devices_json(const cli_compute *c)
{
    json_t *list = json_array();
    vt_device_info info;
    size_t count = c->cluster ? vt_cluster_device_count(c->cluster) : 0;
    for (size_t i = 0; i < count; i++) {
        if (vt_cluster_get_device(c->cluster, i, &info) != VT_OK) continue;
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:I, s:f}", "address", info.address, "first_layer",
                            (json_int_t)info.first_layer, "layers", (json_int_t)info.layer_count,
                            "weight_bytes", (json_int_t)info.weight_bytes, "busy_s",
                            (double)info.busy_ns / 1e9));
    }
    return list;
}

static int print_json(const run_options *o, const text_buffer *text, vt_stop_reason reason)
{
    vt_session_stats s;
    vt_session_get_stats(o->compute.handle, &s);
    json_t *object = json_pack(
        "{s:s%, s:s, s:I, s:f, s:I, s:f, s:I, s:I, s:I, s:o}", "text", text->data ? text->data : "",
        text->bytes, "ended_by", reason_text(reason), "prompt_tokens",
        (json_int_t)s.prefill_tokens, "prefill_tok_s", per_second(s.prefill_tokens, s.prefill_ns),
        "answer_tokens", (json_int_t)s.drawn_tokens, "decode_tok_s",
        per_second(s.decode_tokens, s.decode_ns), "context_tokens", (json_int_t)s.context_tokens,
        "used_tokens", (json_int_t)s.used_tokens, "seed",
        (json_int_t)o->compute.session.sampling.seed, "devices", devices_json(&o->compute));
    if (object && text->logprobs) json_object_set(object, "logprobs", text->logprobs);
    if (!object || json_dumpf(object, stdout, JSON_REAL_PRECISION(6)) != 0)
        return cli_error(VT_ERR_IO, "cannot write the answer");
    json_decref(object);
    putchar('\n');
    return CLI_OK;
}

/* --- running ----------------------------------------------------------------------------------- */

static int answer(run_options *o, const char *prompt, size_t bytes)
{
    vt_error err;
    vt_stop_reason reason = VT_STOP_LENGTH;
    text_buffer text = {.print = !o->json, .model = o->compute.model};
    if (o->compute.session.sampling.logprobs) text.logprobs = json_array();
    vt_generation generation = {
        .max_tokens = o->tokens,
        .stop = o->sampling.stop.items,
        .stop_count = o->sampling.stop.count,
        .on_text = on_text,
        .on_token = text.logprobs ? on_token : NULL,
        .user = &text,
    };
    unsigned flags = VT_TOKENIZE_BOS | (o->special ? VT_TOKENIZE_SPECIAL : 0);
    cli_cancel_on_interrupt(o->compute.handle);
    if (!o->json) cli_print_devices(&o->compute, false);
    if (text.print && !o->no_echo) on_text(&text, prompt, bytes);
    vt_status status = vt_session_feed_text(o->compute.handle, prompt, bytes, flags, &err);
    if (status == VT_OK)
        status = vt_session_generate_with(o->compute.handle, &generation, &reason, &err);
    int code = CLI_OK;
    if (text.print) {
        putchar('\n');
        fflush(stdout); /* before what follows on stderr */
    }
    if (status == VT_ERR_CANCELLED)
        reason = VT_STOP_CALLER;
    else if (status != VT_OK)
        code = cli_fail(&err);
    else if (text.failed)
        code = cli_error(VT_ERR_IO, "cannot write to standard output");
    if (code == CLI_OK && o->json) code = print_json(o, &text, reason);
    if (code == CLI_OK && !o->json) print_figures(o, reason);
    free(text.data);
    json_decref(text.logprobs);
    return code == CLI_OK && cli_interrupted() ? 130 : code;
}

static int run(int argc, char **argv)
{
    run_options o = {.tokens = UINT64_MAX};
    cli_compute_init(&o.compute);
    o.compute.session.sampling.seed = cli_now_ns() % 1000000007;
    int code = parse(&o, argc, argv);
    size_t bytes = 0;
    char *prompt = code == CLI_OK ? read_prompt(&o, &bytes, &code) : NULL;
    if (prompt) code = cli_open_compute(&o.compute);
    if (prompt && code == CLI_OK) {
        code = answer(&o, prompt, bytes);
        cli_close_compute(&o.compute);
    }
    free(prompt);
    cli_sampling_free(&o.sampling);
    return code == CLI_DONE ? CLI_OK : code;
}

const cli_command cli_run = {
    "run",
    "Continue a text, here or on several devices together.",
    "[run] [-m FILE] -p TEXT [--devices HOST:PORT,…] [OPTIONS]",
    run,
    "The text goes to standard output, everything else to standard error. Without -m a small\n"
    "model that writes children's stories is used; it is part of this program.",
    "  voltron-run -p \"Once upon a time\"\n"
    "  voltron-run --local 3 -p \"The little fox\"         three processes on this machine\n"
    "  voltron-run -m model.gguf --devices 192.0.2.7:7001 --key cluster.key -p \"Dear diary\"\n",
};
