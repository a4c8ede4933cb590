/* answer.c: one answer of the run command, and how it is printed. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

/* --- text ------------------------------------------------------------------------------------- */

typedef struct text_buffer {
    char *data;
    size_t bytes, capacity;
    bool print, terminal, failed; /* to stdout as it comes */
    const vt_model *model;
    json_t *logprobs;             /* NULL: not wanted */
} text_buffer;

/* Control characters must not reach a terminal: they could do anything there. */
static void print_for_terminal(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        bool c1 = c == 0xC2 && i + 1 < bytes && (unsigned char)text[i + 1] < 0xA0;
        if (c1)
            printf("<U+%04X>", (unsigned char)text[++i]);
        else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F)
            printf("^%c", c ^ 0x40);
        else
            putchar(c);
    }
}

static bool on_text(void *user, const char *text, size_t bytes)
{
    text_buffer *b = user;
    if (b->print) {
        if (b->terminal)
            print_for_terminal(text, bytes);
        else
            fwrite(text, 1, bytes, stdout);
        b->failed = fflush(stdout) != 0 || ferror(stdout);
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

/* --- figures ---------------------------------------------------------------------------------- */

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

void run_print_figures(const run_options *o, const run_answer *a)
{
    vt_session_stats s;
    vt_session_get_stats(o->compute.handle, &s);
    double decode = per_second(a->decoded_tokens, a->decode_ns);
    fprintf(stderr, "%sprompt %" PRIu64 " tokens, %.1f tok/s; answer %" PRIu64
                    " tokens, %.1f tok/s (%.2f GB/s of weights); context %" PRIu32 " of %" PRIu32
                    "; ended by %s; seed %" PRIu64 "%s\n",
            cli_dim(), a->prompt_tokens, per_second(a->computed_tokens, a->prefill_ns),
            a->answer_tokens, decode, decode * (double)s.weight_bytes_per_token / 1e9,
            s.used_tokens, s.context_tokens, reason_text(a->reason),
            o->compute.session.sampling.seed, cli_plain());
    if (o->compute.verbose) cli_print_memory(&o->compute);
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
            list, json_pack("{s:s, s:I, s:I, s:I, s:f, s:s*}", "address", info.address,
                            "first_layer", (json_int_t)info.first_layer, "layers", (json_int_t)info.layer_count,
                            "weight_bytes", (json_int_t)info.weight_bytes, "busy_s",
                            (double)info.busy_ns / 1e9, "left_out", info.left_out));
    }
    return list;
}

/* What a plan said about the answer's speed; or NULL. */
static json_t *prediction_json(const cli_compute *c)
{
    vt_cluster_prediction p = {0};
    if (c->cluster) vt_cluster_get_prediction(c->cluster, &p);
    if (!p.is_known) return NULL;
    return json_pack("{s:f, s:f, s:I, s:I, s:b}", "ttft_s", p.ttft_s, "tpot_s", p.tpot_s,
                     "prompt_tokens", (json_int_t)p.prompt_tokens, "context_tokens",
                     (json_int_t)p.context_tokens, "meets_qos", (int)p.meets_qos);
}

/* One object in one line. */
static int print_json(const run_options *o, const text_buffer *text, const run_answer *a)
{
    vt_session_stats s;
    vt_session_get_stats(o->compute.handle, &s);
    json_t *object = json_pack(
        "{s:s%, s:s, s:I, s:I, s:f, s:f, s:I, s:f, s:f, s:I, s:I, s:I, s:o, s:o*}", "text",
        text->data ? text->data : "", text->bytes, "ended_by", reason_text(a->reason),
        "prompt_tokens", (json_int_t)a->prompt_tokens, "computed_tokens",
        (json_int_t)a->computed_tokens, "prefill_s", (double)a->prefill_ns / 1e9, "prefill_tok_s",
        per_second(a->computed_tokens, a->prefill_ns), "answer_tokens",
        (json_int_t)a->answer_tokens, "decode_s", (double)a->decode_ns / 1e9, "decode_tok_s",
        per_second(a->decoded_tokens, a->decode_ns), "context_tokens",
        (json_int_t)s.context_tokens, "used_tokens", (json_int_t)s.used_tokens, "seed",
        (json_int_t)o->compute.session.sampling.seed, "devices", devices_json(&o->compute),
        "predicted", prediction_json(&o->compute));
    if (object && o->chat)
        json_object_set_new(object, "left_out_messages", json_integer((json_int_t)a->left_out));
    if (object && text->logprobs) json_object_set(object, "logprobs", text->logprobs);
    bool written = object && json_dumpf(object, stdout, JSON_REAL_PRECISION(6)) == 0;
    json_decref(object);
    if (!written) return cli_error(VT_ERR_IO, "cannot write the answer");
    putchar('\n');
    fflush(stdout);
    return CLI_OK;
}

/* --- asking ----------------------------------------------------------------------------------- */

static vt_status ask_chat(run_options *o, const char *text, size_t bytes,
                          const vt_generation *generation, run_answer *out, vt_error *err)
{
    vt_answer answer = {0};
    vt_status status = vt_chat_add(o->chat, VT_ROLE_USER, text, bytes, err);
    if (status != VT_OK) return status;
    status = vt_chat_answer(o->chat, o->compute.handle, generation, &answer, err);
    /* An interrupt that came too late for the answer before is none for this one. */
    if (status == VT_ERR_CANCELLED && !cli_interrupted())
        status = vt_chat_answer(o->chat, o->compute.handle, generation, &answer, err);
    /* A question without an answer is as if it was not asked. */
    if (vt_chat_count(o->chat) % 2) vt_chat_truncate(o->chat, vt_chat_count(o->chat) - 1);
    out->reason = answer.reason;
    out->prompt_tokens = answer.prompt_tokens;
    out->answer_tokens = answer.answer_tokens;
    out->left_out = answer.left_out;
    return status;
}

/* BOS begins a text: the first one, and one behind a text that has ended. */
static unsigned raw_flags(const run_options *o)
{
    size_t count;
    const vt_token *history = vt_session_history(o->compute.handle, &count);
    const vt_model *model = o->compute.model;
    bool begins = count == 0 || (vt_model_is_stop(model, history[count - 1]) &&
                                 history[count - 1] != vt_model_bos(model));
    return (begins ? VT_TOKENIZE_BOS : 0) | (o->special ? VT_TOKENIZE_SPECIAL : 0);
}

static vt_status feed_raw(run_options *o, const char *text, size_t bytes, vt_error *err)
{
    const vt_model *model = o->compute.model;
    vt_session *session = o->compute.handle;
    size_t capacity = vt_tokenize_bound(model, bytes), count;
    vt_token *tokens = malloc((capacity + 1) * sizeof *tokens);
    vt_session_stats s;
    vt_session_get_stats(session, &s);
    if (!tokens) {
        *err = (vt_error){VT_ERR_MEMORY, "no memory for the prompt's tokens"};
        return VT_ERR_MEMORY;
    }
    vt_status status = vt_tokenize(model, text, bytes, raw_flags(o), tokens, capacity, &count, err);
    bool shift = o->policy == VT_CONTEXT_SHIFT && s.used_tokens &&
                 count + 1 > s.context_tokens - s.used_tokens && count < s.context_tokens;
    if (status == VT_OK && shift) status = vt_session_shift(session, (uint32_t)count, err);
    if (status == VT_OK && count == 0 && s.used_tokens == 0) {
        *err = (vt_error){VT_ERR_ARGUMENT, "the text is empty: there is nothing to go on from"};
        status = VT_ERR_ARGUMENT;
    }
    if (status == VT_OK) status = vt_session_feed(session, tokens, count, err);
    free(tokens);
    return status;
}

static vt_status ask_raw(run_options *o, const char *text, size_t bytes,
                         const vt_generation *generation, run_answer *out, vt_error *err)
{
    vt_session_stats before, after;
    vt_session_get_stats(o->compute.handle, &before);
    vt_status status = feed_raw(o, text, bytes, err);
    vt_session_get_stats(o->compute.handle, &after);
    out->prompt_tokens = after.used_tokens;
    if (status == VT_OK)
        status = vt_session_generate_with(o->compute.handle, generation, &out->reason, err);
    vt_session_get_stats(o->compute.handle, &after);
    out->answer_tokens = after.drawn_tokens - before.drawn_tokens;
    return status;
}

static vt_status ask(run_options *o, const char *text, size_t bytes, text_buffer *buffer,
                     run_answer *out, vt_error *err)
{
    vt_generation generation = {
        .max_tokens = o->tokens,
        .context_policy = o->policy,
        .stop = o->sampling.stop.items,
        .stop_count = o->sampling.stop.count,
        .on_text = on_text,
        .on_token = buffer->logprobs ? on_token : NULL,
        .user = buffer,
    };
    vt_session_stats before, after;
    vt_session_get_stats(o->compute.handle, &before);
    vt_status status = o->chat ? ask_chat(o, text, bytes, &generation, out, err)
                               : ask_raw(o, text, bytes, &generation, out, err);
    vt_session_get_stats(o->compute.handle, &after);
    out->computed_tokens = after.prefill_tokens - before.prefill_tokens;
    out->prefill_ns = after.prefill_ns - before.prefill_ns;
    out->decoded_tokens = after.decode_tokens - before.decode_tokens;
    out->decode_ns = after.decode_ns - before.decode_ns;
    return status;
}

int run_ask(run_options *o, const char *text, size_t bytes, run_answer *out)
{
    vt_error err;
    text_buffer buffer = {.print = !o->json, .model = o->compute.model};
    *out = (run_answer){.reason = VT_STOP_LENGTH};
    buffer.terminal = isatty(STDOUT_FILENO);
    if (o->compute.session.sampling.logprobs) buffer.logprobs = json_array();
    if (buffer.print && !o->chat && !o->no_echo) on_text(&buffer, text, bytes);
    vt_status status = ask(o, text, bytes, &buffer, out, &err);
    int code = CLI_OK;
    if (buffer.print) {
        putchar('\n');
        fflush(stdout); /* before what follows on stderr */
    }
    if (status == VT_ERR_CANCELLED)
        out->reason = VT_STOP_CALLER;
    else if (status != VT_OK)
        code = cli_fail(&err);
    else if (buffer.failed)
        code = cli_error(VT_ERR_IO, "cannot write to standard output");
    if (code == CLI_OK && o->json) code = print_json(o, &buffer, out);
    free(buffer.data);
    json_decref(buffer.logprobs);
    return code;
}
