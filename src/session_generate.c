/* session_generate.c: drawing tokens and streaming their text. */
#include <inttypes.h>
#include <stdlib.h>

#include "clock.h"
#include "session_internal.h"

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

/* Streams a token's text. A control token that is no stop token has no text. */
static bool emit(vt_session *s, vti_utf8_stream *utf8, vt_token token, vt_text_fn on_text,
                 void *user)
{
    size_t bytes;
    const char *data = vt_token_bytes(s->model, token, &bytes);
    if (!on_text || !data || vt_token_is_control(s->model, token)) return true;
    char small[256], *text = small;
    if (vti_utf8_bound(bytes) > sizeof small && !(text = malloc(vti_utf8_bound(bytes)))) return false;
    size_t ready = vti_utf8_push(utf8, data, bytes, text);
    bool go_on = ready == 0 || on_text(user, text, ready);
    if (text != small) free(text);
    return go_on;
}

static vt_status generate(vt_session *s, uint64_t max_tokens, vti_utf8_stream *utf8,
                          vt_text_fn on_text, void *user, vt_stop_reason *reason, vt_error *err)
{
    *reason = VT_STOP_LENGTH;
    for (uint64_t i = 0; i < max_tokens; i++) {
        vt_token token;
        if (s->history_count == s->context) {
            *reason = VT_STOP_CONTEXT;
            return VT_OK;
        }
        VTI_TRY(next_token(s, &token, err));
        if (vt_model_is_stop(s->model, token)) {
            *reason = VT_STOP_TOKEN;
            return VT_OK;
        }
        if (!emit(s, utf8, token, on_text, user) || atomic_exchange(&s->cancelled, false)) {
            *reason = VT_STOP_CALLER;
            return VT_OK;
        }
    }
    return VT_OK;
}

vt_status vt_session_generate(vt_session *s, uint64_t max_tokens, vt_text_fn on_text, void *user,
                              vt_stop_reason *reason, vt_error *err)
{
    vti_utf8_stream utf8 = {0};
    vt_stop_reason why = VT_STOP_LENGTH;
    vt_status status = generate(s, max_tokens, &utf8, on_text, user, &why, err);
    if (status == VT_ERR_CANCELLED) {
        status = VT_OK;
        why = VT_STOP_CALLER;
    }
    char rest[16];
    size_t left = vti_utf8_flush(&utf8, rest);
    if (left && on_text) on_text(user, rest, left);
    if (reason) *reason = why;
    return status;
}

