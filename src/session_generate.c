/* session_generate.c: drawing tokens and streaming their text. */
#include <inttypes.h>

#include "clock.h"
#include "session_internal.h"
#include "text_stream.h"

/* Computes a token that was drawn but not computed yet; that is what decoding costs. */
vt_status vti_session_compute_drawn(vt_session *s, vt_error *err)
{
    if (s->history_count == 0)
        return vti_fail(err, VT_ERR_ARGUMENT, "the session has no tokens yet: feed some first");
    if (s->logits_valid && s->computed == s->history_count) return VT_OK;
    /* After a rewind or a failed step the newest token's logits are gone: compute it again. */
    if (s->computed == s->history_count) s->computed--;
    uint64_t start = vti_now_ns();
    uint32_t before = s->computed;
    vt_status status = vti_session_compute(s, err);
    s->stats.decode_tokens += s->computed - before;
    s->stats.decode_ns += vti_now_ns() - start;
    return status;
}

static vt_status next_token(vt_session *s, vt_token *out, vt_error *err)
{
    if (s->history_count == s->context)
        return vti_fail(err, VT_ERR_CONTEXT_FULL, "the context of %" PRIu32 " tokens is full",
                        s->context);
    VTI_TRY(vti_session_compute_drawn(s, err));
    VTI_TRY(vti_sampler_draw(&s->sampler, s->logits, s->history, s->history_count, out, err));
    s->history[s->history_count++] = *out;
    s->stats.drawn_tokens++;
    return VT_OK;
}

vt_status vt_session_next(vt_session *s, vt_token *out, vt_error *err)
{
    return next_token(s, out, err);
}

vt_status vt_session_set_sampling(vt_session *s, const vt_sampling *sampling, vt_error *err)
{
    if (!sampling) return vti_fail(err, VT_ERR_ARGUMENT, "sampling is NULL");
    return vti_sampler_set(&s->sampler, sampling, err);
}

vt_status vt_session_get_drawn(const vt_session *s, vt_drawn *out, vt_error *err)
{
    if (s->sampler.params.logprobs == 0)
        return vti_fail(err, VT_ERR_ARGUMENT, "logprobs is 0: nobody asked for log probabilities");
    if (s->sampler.drawn.drawn.token == VT_TOKEN_NONE)
        return vti_fail(err, VT_ERR_ARGUMENT, "no token was drawn yet");
    *out = s->sampler.drawn;
    return VT_OK;
}

/* Streams a token's text. A control token that is no stop token has no text. */
static vti_text_result emit(const vt_session *s, vti_text_stream *text, vt_token token)
{
    size_t bytes;
    const char *data = vt_token_bytes(s->model, token, &bytes);
    if (!data || vt_token_is_control(s->model, token)) return VTI_TEXT_MORE;
    return vti_text_push(text, data, bytes);
}

/* What an end of the text means for the generation; false: it goes on. */
static bool ends(vti_text_result result, vt_stop_reason *reason)
{
    if (result == VTI_TEXT_STOP_STRING) *reason = VT_STOP_STRING;
    if (result == VTI_TEXT_STOPPED) *reason = VT_STOP_CALLER;
    return result == VTI_TEXT_STOP_STRING || result == VTI_TEXT_STOPPED;
}

static vt_status no_memory(vt_error *err)
{
    return vti_fail(err, VT_ERR_MEMORY, "no memory for the answer's text");
}

/* One token: drawn, reported, its text delivered. *done: it was the last one. */
static vt_status generate_token(vt_session *s, const vt_generation *g, vti_text_stream *text,
                                vt_stop_reason *reason, bool *done, vt_error *err)
{
    vt_token token;
    VTI_TRY(next_token(s, &token, err));
    *done = true;
    bool more = !g->on_token || g->on_token(g->user, &s->sampler.drawn);
    if (vt_model_is_stop(s->model, token)) {
        *reason = VT_STOP_TOKEN;
        return VT_OK;
    }
    vti_text_result result = emit(s, text, token);
    if (result == VTI_TEXT_NO_MEMORY) return no_memory(err);
    if (ends(result, reason)) return VT_OK;
    *done = !more || atomic_exchange(&s->cancelled, false);
    if (*done) *reason = VT_STOP_CALLER;
    return VT_OK;
}

static vt_status generate(vt_session *s, const vt_generation *g, vti_text_stream *text,
                          vt_stop_reason *reason, vt_error *err)
{
    bool done = false;
    for (uint64_t i = 0; i < g->max_tokens && !done; i++) {
        if (s->history_count == s->context && g->context_policy == VT_CONTEXT_SHIFT)
            VTI_TRY(vt_session_shift(s, s->context / 2, err));
        if (s->history_count == s->context) {
            *reason = VT_STOP_CONTEXT;
            return VT_OK;
        }
        VTI_TRY(generate_token(s, g, text, reason, &done, err));
    }
    return VT_OK;
}

vt_generation vt_generation_default(void) { return (vt_generation){.max_tokens = UINT64_MAX}; }

vt_status vt_session_generate_with(vt_session *s, const vt_generation *g, vt_stop_reason *reason,
                                   vt_error *err)
{
    vt_stop_reason why = VT_STOP_LENGTH;
    if (!g) return vti_fail(err, VT_ERR_ARGUMENT, "generation is NULL");
    VTI_TRY(vti_stop_strings_check(g->stop, g->stop_count, err));
    vti_text_stream text = {g->on_text, g->user, g->stop, g->stop_count, .held = NULL};
    vt_status status = generate(s, g, &text, &why, err);
    if (status == VT_ERR_CANCELLED) {
        status = VT_OK;
        why = VT_STOP_CALLER;
    }
    vti_text_result rest = vti_text_end(&text);
    if (status == VT_OK && rest == VTI_TEXT_NO_MEMORY) status = no_memory(err);
    if (why != VT_STOP_CALLER) ends(rest, &why);
    if (reason) *reason = why;
    return status;
}

vt_status vt_session_generate(vt_session *s, uint64_t max_tokens, vt_text_fn on_text, void *user,
                              vt_stop_reason *reason, vt_error *err)
{
    vt_generation g = {.max_tokens = max_tokens, .on_text = on_text, .user = user};
    return vt_session_generate_with(s, &g, reason, err);
}
