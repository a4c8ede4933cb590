/* score.c: a text through a model, window by window. */
#include "score.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char separator[] = "<|endoftext|>";

typedef struct score {
    cli_compute *compute;
    uint32_t vocabulary;
    const vt_token *tokens; /* of the window, BOS first */
    size_t count;
    double nll;             /* sum of -ln p over scored tokens */
    uint64_t scored;
    cli_progress progress;
    const char *what;       /* is in progress */
    const char *text;
    size_t text_bytes;
    /* Of the document: where it is in the text, its tokens, those in windows that are done. */
    size_t begin_bytes, document_bytes, document_tokens, done_tokens;
} score;

static void show_progress(score *s, size_t tokens)
{
    double part = s->document_tokens ? (double)(s->done_tokens + tokens) / s->document_tokens : 0;
    cli_progress_show(&s->progress, s->what,
                      s->begin_bytes + (uint64_t)(part * (double)s->document_bytes), s->text_bytes);
}

/* -ln of the probability that `logits` give to `token`. */
static double negative_log_likelihood(const float *logits, uint32_t count, vt_token token)
{
    float highest = logits[0];
    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > highest) highest = logits[i];
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += exp((double)(logits[i] - highest));
    return log(sum) - (double)(logits[token] - highest);
}

static bool on_logits(void *user, uint32_t position, const float *logits)
{
    score *s = user;
    if (position % 64 == 0) show_progress(s, position);
    if (position + 1 >= s->count) return true;
    s->nll += negative_log_likelihood(logits, s->vocabulary, s->tokens[position + 1]);
    s->scored++;
    return true;
}

static vt_status score_window(score *s, const vt_token *tokens, size_t count, vt_error *err)
{
    s->tokens = tokens;
    s->count = count;
    vt_status status = vt_session_rewind(s->compute->handle, 0, err);
    if (status != VT_OK || count < 2) return status;
    /* The last token has nothing to predict: it need not be computed. */
    return vt_session_feed_logits(s->compute->handle, tokens, count - 1, on_logits, s, err);
}

/* One document: windows of the context's size, each begun with BOS. */
static vt_status score_document(score *s, const char *text, size_t bytes, vt_error *err)
{
    vt_session_stats stats;
    vt_session_get_stats(s->compute->handle, &stats);
    size_t window = stats.context_tokens, count, at = 0;
    size_t capacity = vt_tokenize_bound(s->compute->model, bytes);
    vt_token *tokens = malloc((capacity + 1) * sizeof *tokens);
    if (!tokens) {
        *err = (vt_error){VT_ERR_MEMORY, "no memory for the tokens of a document"};
        return VT_ERR_MEMORY;
    }
    vt_token bos = vt_model_bos(s->compute->model);
    size_t lead = bos != VT_TOKEN_NONE;
    vt_status status = vt_tokenize(s->compute->model, text, bytes, 0, tokens + lead, capacity,
                                   &count, err);
    count += lead;
    s->begin_bytes = (size_t)(text - s->text);
    s->document_bytes = bytes;
    s->document_tokens = count;
    while (status == VT_OK && at + lead < count) {
        size_t size = count - at < window ? count - at : window;
        if (lead) tokens[at] = bos; /* over the last token of the window before */
        s->done_tokens = at;
        status = score_window(s, tokens + at, size, err);
        at += size - lead;
    }
    free(tokens);
    return status;
}

size_t cli_next_document(const char **text, const char *end)
{
    const char *begin = *text, *line = begin, *stop = end, *next = end;
    while (line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((newline ? newline : end) - line);
        const char *after = newline ? newline + 1 : end;
        if (length && line[length - 1] == '\r') length--;
        if (length == sizeof separator - 1 && memcmp(line, separator, length) == 0) {
            stop = line;
            next = after;
            break;
        }
        line = after;
    }
    /* The line end before the separator belongs to it. */
    if (stop > begin && stop < end && stop[-1] == '\n') stop--;
    *text = next;
    return (size_t)(stop - begin);
}

static vt_status score_text(score *s, vt_error *err)
{
    const char *at = s->text, *end = s->text + s->text_bytes;
    vt_status status = VT_OK;
    while (at < end && status == VT_OK && !cli_interrupted()) {
        const char *document = at;
        size_t bytes = cli_next_document(&at, end);
        if (bytes) status = score_document(s, document, bytes, err);
        cli_progress_show(&s->progress, s->what, (uint64_t)(at - s->text), s->text_bytes);
    }
    return status;
}

int cli_score_text(cli_compute *c, const char *text, size_t bytes, const char *what, cli_score *out)
{
    vt_model_info info;
    vt_error err;
    vt_session_stats stats;
    vt_model_get_info(c->model, &info);
    vt_session_get_stats(c->handle, &stats);
    if (stats.context_tokens < 2) /* BOS alone predicts nothing that is scored */
        return cli_error(CLI_USAGE, "--context: windows of at least 2 tokens are needed");
    score s = {.compute = c, .vocabulary = info.vocabulary_tokens, .what = what, .text = text,
               .text_bytes = bytes};
    cli_cancel_on_interrupt(c->handle);
    cli_progress_begin(&s.progress);
    vt_status status = score_text(&s, &err);
    cli_progress_end(&s.progress);
    *out = (cli_score){s.scored ? s.nll / (double)s.scored : 0, s.scored};
    if (status == VT_ERR_CANCELLED || cli_interrupted()) {
        if (s.scored)
            fprintf(stderr, "interrupted; perplexity so far %.4f over %" PRIu64 " tokens\n",
                    exp(out->mean_nll), s.scored);
        return 130;
    }
    if (status != VT_OK) return cli_fail(&err);
    if (!s.scored) return cli_error(VT_ERR_FORMAT, "the text has no token to predict");
    if (isfinite(out->mean_nll)) return CLI_OK;
    return cli_error(VT_ERR_FORMAT,
                     "the model's logits are not finite numbers; its weights are damaged");
}
