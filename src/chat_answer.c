/* chat_answer.c: makes a session's history the conversation, and lets it answer.
 *
 * The conversation is written out as a whole each time, and the session goes back to where its
 * history differs. So the ids are always those of the whole, also where a template changes what it
 * wrote before (Qwen3 drops the thoughts of earlier answers) or where the model spelled its answer
 * in other tokens than the tokenizer does. Where nothing
 * changed only the new turn is computed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "chat_internal.h"
#include "model.h"
#include "text_stream.h"

typedef struct answering {
    vt_chat *chat;
    vt_session *session;
    const vt_generation *generation;
    vt_answer *out;
    vti_text_stream stream;
    uint32_t context;
    size_t prompt; /* tokens of the history before the answer */
    char *text;    /* what of the answer was delivered */
    size_t bytes, room;
    bool no_memory;
} answering;

bool vti_chat_has_tag(const vt_model *model, const char *tag)
{
    vt_token tokens[64];
    size_t count, bytes = strlen(tag);
    if (bytes > 24) return false;
    vt_status status =
        vt_tokenize(model, tag, bytes, VT_TOKENIZE_SPECIAL, tokens, 64, &count, NULL);
    return status == VT_OK && count == 1 && vt_token_is_control(model, tokens[0]);
}

/* --- history ---------------------------------------------------------------------------------- */

/* Makes the session's history `tokens`, keeping what it shares with it. */
static vt_status become(vt_session *session, const vt_token *tokens, size_t count, uint32_t *reused,
                        vt_error *err)
{
    size_t have, same = 0;
    const vt_token *history = vt_session_history(session, &have);
    while (same < have && same < count && history[same] == tokens[same]) same++;
    VTI_TRY(vt_session_rewind(session, (uint32_t)same, err));
    *reused = (uint32_t)same;
    return vt_session_feed(session, tokens + same, count - same, err);
}

/* --- a context that fills up ------------------------------------------------------------------ */

/* Leaves out as many of the oldest turns as it takes to have `room` tokens free behind the
 * conversation, or all but the last question. *tokens is what remains. */
static vt_status leave_out(answering *a, size_t room, size_t *first, vt_token **tokens,
                           size_t *count, vt_error *err)
{
    const vt_chat *chat = a->chat;
    for (;;) {
        VTI_TRY(vti_chat_tokens(chat, *first, tokens, count, err));
        bool fits = *count + room <= a->context;
        if (fits || *first + 2 >= chat->count) return VT_OK;
        free(*tokens);
        *first += 2;
    }
}

static vt_status refuse(const answering *a, size_t count, vt_error *err)
{
    return vti_fail(err, VT_ERR_CONTEXT_FULL,
                    "the conversation has %zu tokens, the context holds %" PRIu32
                    " and the answer needs room as well",
                    count, a->context);
}

/* Computes the conversation. What is shifted out at the beginning of an answer leaves room for some
 * of it, so that it does not happen again at once. */
static vt_status ask(answering *a, vt_error *err)
{
    vt_token *tokens;
    size_t count, first = a->chat->left_out, room = 1;
    bool shift = a->generation->context_policy == VT_CONTEXT_SHIFT;
    VTI_TRY(vti_chat_tokens(a->chat, first, &tokens, &count, err));
    if (count + room > a->context && shift) {
        free(tokens);
        uint64_t wanted = a->generation->max_tokens;
        room = wanted < a->context / 4 ? (size_t)wanted : a->context / 4;
        VTI_TRY(leave_out(a, room, &first, &tokens, &count, err));
    }
    vt_status status = count + 1 > a->context
                           ? refuse(a, count, err)
                           : become(a->session, tokens, count, &a->out->reused_tokens, err);
    free(tokens);
    if (status != VT_OK) return status;
    a->chat->left_out = first;
    a->prompt = count;
    a->out->prompt_tokens = (uint32_t)count;
    return VT_OK;
}

/* In the middle of an answer: the conversation without its oldest turns, then the answer so far.
 * *shifted is false if there is nothing to leave out. */
static vt_status shift(answering *a, bool *shifted, vt_error *err)
{
    size_t have, count, first = a->chat->left_out;
    const vt_token *history = vt_session_history(a->session, &have);
    size_t answer = have - a->prompt, room = answer + a->context / 8;
    *shifted = first + 2 < a->chat->count;
    if (!*shifted) return VT_OK;
    vt_token *tokens;
    first += 2;
    VTI_TRY(leave_out(a, room, &first, &tokens, &count, err));
    *shifted = count + answer < a->context;
    vt_token *all = realloc(tokens, (count + answer + 1) * sizeof *all);
    if (!all) {
        free(tokens);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for %zu tokens", count + answer);
    }
    memcpy(all + count, history + a->prompt, answer * sizeof *all);
    uint32_t reused;
    vt_status status = VT_OK;
    if (*shifted) {
        a->chat->left_out = first;
        a->prompt = count;
        a->out->prompt_tokens = (uint32_t)count;
        status = become(a->session, all, count + answer, &reused, err);
    }
    free(all);
    return status;
}

/* --- the answer -------------------------------------------------------------------------------- */

static bool keep(answering *a, const char *text, size_t bytes)
{
    if (a->room - a->bytes < bytes) {
        size_t room = (a->bytes + bytes) * 2;
        char *larger = realloc(a->text, room);
        if (!larger) return false;
        a->text = larger;
        a->room = room;
    }
    memcpy(a->text + a->bytes, text, bytes);
    a->bytes += bytes;
    return true;
}

/* Text that the stream delivers: kept, and passed on. */
static bool on_text(void *user, const char *text, size_t bytes)
{
    answering *a = user;
    const vt_generation *g = a->generation;
    a->no_memory = !keep(a, text, bytes);
    return !a->no_memory && (!g->on_text || g->on_text(g->user, text, bytes));
}

static vt_status no_memory(vt_error *err)
{
    return vti_fail(err, VT_ERR_MEMORY, "no memory for the answer's text");
}

/* What an end of the text means for the answer; false: it goes on. */
static bool ends(answering *a, vti_text_result result)
{
    if (result == VTI_TEXT_STOP_STRING) a->out->reason = VT_STOP_STRING;
    if (result == VTI_TEXT_STOPPED) a->out->reason = VT_STOP_CALLER;
    return result == VTI_TEXT_STOP_STRING || result == VTI_TEXT_STOPPED;
}

static bool report(const answering *a, vt_token token)
{
    const vt_generation *g = a->generation;
    vt_drawn drawn;
    if (!g->on_token) return true;
    if (vt_session_get_drawn(a->session, &drawn, NULL) != VT_OK)
        drawn = (vt_drawn){.drawn = {.token = token}};
    return g->on_token(g->user, &drawn);
}

/* One token; *go_on is false if it was the last one. */
static vt_status next_token(answering *a, bool *go_on, vt_error *err)
{
    vt_token token;
    VTI_TRY(vt_session_next(a->session, &token, err));
    a->out->answer_tokens++;
    *go_on = false;
    bool more = report(a, token);
    if (vt_model_is_stop(a->chat->model, token)) {
        a->out->reason = VT_STOP_TOKEN;
        return VT_OK;
    }
    size_t bytes;
    const char *data = vt_token_bytes(a->chat->model, token, &bytes);
    vti_text_result result = VTI_TEXT_MORE;
    /* A control token that is no stop token has no text. */
    if (data && !vt_token_is_control(a->chat->model, token))
        result = vti_text_push(&a->stream, data, bytes);
    if (result == VTI_TEXT_NO_MEMORY || a->no_memory) return no_memory(err);
    if (ends(a, result)) return VT_OK;
    if (!more) a->out->reason = VT_STOP_CALLER;
    *go_on = more;
    return VT_OK;
}

static vt_status draw(answering *a, vt_error *err)
{
    bool go_on = true;
    a->out->reason = VT_STOP_LENGTH;
    while (go_on && a->out->answer_tokens < a->generation->max_tokens) {
        size_t have;
        vt_session_history(a->session, &have);
        if (have == a->context) {
            bool shifted = false;
            if (a->generation->context_policy == VT_CONTEXT_SHIFT) VTI_TRY(shift(a, &shifted, err));
            if (!shifted) {
                a->out->reason = VT_STOP_CONTEXT;
                return VT_OK;
            }
        }
        VTI_TRY(next_token(a, &go_on, err));
    }
    return VT_OK;
}

/* Whatever ended it, what was delivered becomes a message. */
static vt_status finish(answering *a, vt_status status, vt_error *err)
{
    if (status == VT_ERR_CANCELLED && a->out->answer_tokens) {
        status = VT_OK;
        a->out->reason = VT_STOP_CALLER;
    }
    vti_text_result rest = vti_text_end(&a->stream);
    if (a->out->answer_tokens == 0 && status != VT_OK) return status;
    if (status == VT_OK && (rest == VTI_TEXT_NO_MEMORY || a->no_memory)) status = no_memory(err);
    if (a->out->reason != VT_STOP_CALLER) ends(a, rest);
    vt_error *why = status == VT_OK ? err : NULL;
    vt_status added = vt_chat_add(a->chat, VT_ROLE_ASSISTANT, a->text, a->bytes, why);
    return status == VT_OK ? added : status;
}

vt_status vt_chat_answer(vt_chat *chat, vt_session *session, const vt_generation *generation,
                         vt_answer *out, vt_error *err)
{
    vt_session_stats stats;
    vt_answer ignored;
    vt_generation defaults = vt_generation_default();
    const vt_generation *g = generation ? generation : &defaults;
    if (!chat || !session)
        return vti_fail(err, VT_ERR_ARGUMENT, "vt_chat_answer: an argument is NULL");
    VTI_TRY(vti_stop_strings_check(g->stop, g->stop_count, err));
    vt_session_get_stats(session, &stats);
    answering a = {.chat = chat, .session = session, .generation = g,
                   .out = out ? out : &ignored, .context = stats.context_tokens};
    a.stream = (vti_text_stream){on_text, &a, g->stop, g->stop_count, .held = NULL};
    *a.out = (vt_answer){0};
    vt_status status = ask(&a, err);
    if (status == VT_OK) status = finish(&a, draw(&a, err), err);
    a.out->left_out = chat->left_out;
    free(a.text);
    return status;
}
