/* session.c: one conversation. History, positions, batches; the arithmetic is in stage.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "session_internal.h"

/* Steps that may be under way at once: while the workers compute one batch of a prefill, the main
 * device computes the next. More would only take memory. */
enum { MAX_STEPS_UNDER_WAY = 4, DEFAULT_BATCH = 128, DEFAULT_CONTEXT = 4096 };

/* Where the logits of a step go. */
typedef struct logits_sink {
    vt_logits_fn on_logits; /* NULL: only the last position's, into session->logits */
    void *user;
} logits_sink;

vt_session_params vt_session_params_default(void)
{
    return (vt_session_params){.sampling = vt_sampling_default()};
}

static vt_status check_params(const vt_model *model, const vt_session_params *p, vt_error *err)
{
    if (model->vocabulary_only)
        return vti_fail(err, VT_ERR_ARGUMENT, "the model was opened without weights");
    if (p->context_tokens > VTI_MAX_CONTEXT)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "a context of %" PRIu32 " tokens is too large; at most %d",
                        p->context_tokens, VTI_MAX_CONTEXT);
    if (!vti_kv_type_known(p->kv_type))
        return vti_fail(err, VT_ERR_ARGUMENT, "unknown KV cache type %d", (int)p->kv_type);
    if (p->batch_tokens > 65536)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "a batch of %" PRIu32 " tokens is too large; at most 65536",
                        p->batch_tokens);
    if (p->cluster && vti_cluster_model(p->cluster) != model)
        return vti_fail(err, VT_ERR_ARGUMENT, "the cluster was opened for another model");
    return VT_OK;
}

void vti_session_sizes(const vti_hparams *hparams, uint32_t *context_tokens, uint32_t *batch_tokens)
{
    uint32_t trained = hparams->context;
    if (!*context_tokens) *context_tokens = trained < DEFAULT_CONTEXT ? trained : DEFAULT_CONTEXT;
    if (!*batch_tokens) *batch_tokens = DEFAULT_BATCH;
    if (*batch_tokens > *context_tokens) *batch_tokens = *context_tokens;
}

static void choose_sizes(vt_session *s, const vt_session_params *p)
{
    s->context = p->context_tokens;
    s->batch = p->batch_tokens;
    vti_session_sizes(&s->model->hparams, &s->context, &s->batch);
    if (s->context > s->model->hparams.context)
        vti_log(&s->model->log, VT_LOG_WARNING,
                "a context of %" PRIu32 " tokens is more than the %" PRIu32
                " this model was trained for; its answers may get worse beyond them",
                s->context, s->model->hparams.context);
}

static vti_stage_params stage_params(const vt_session *s, const vti_weights *weights)
{
    return (vti_stage_params){
        .geometry = &s->model->geometry,
        .kernels = &s->model->kernels,
        .pool = s->model->pool,
        .weights = weights,
        .budget = &s->model->device.budget,
        .table = s->cluster ? NULL : s->model->table,
        .context_tokens = s->context,
        .batch_tokens = s->batch,
        .kv_type = s->kv_type,
    };
}

/* Weights that are not there yet, KV cache and scratch. The cache is used page by page as tokens
 * come: what cannot fit must be refused now, not be killed for in the middle of an answer. */
static vt_status check_memory(const vt_session *s, vt_error *err)
{
    const vti_weights *own = s->cluster ? vti_cluster_main_weights(s->cluster) : NULL;
    vti_stage_params params = stage_params(s, own);
    vti_stage_sizes sizes = vti_stage_size(&params, 0,
                                           own ? own->count / 2 : s->model->hparams.layers);
    const uint64_t need[VTI_BUDGET_CATEGORIES] = {
        [VTI_BUDGET_WEIGHTS] = vti_model_unloaded_bytes(s->model, !own),
        [VTI_BUDGET_KV] = sizes.kv_bytes,
        [VTI_BUDGET_SCRATCH] = sizes.scratch_bytes + vti_head_bytes(s->model) +
                               vti_session_bytes(&s->model->hparams, s->context, s->batch),
    };
    char what[64];
    snprintf(what, sizeof what, "a conversation of %" PRIu32 " tokens", s->context);
    vti_device_memory_refresh(&s->model->device);
    return vti_budget_check(&s->model->device.budget, need, what, err);
}

static vt_status open_stage(vt_session *s, vt_error *err)
{
    const vti_weights *weights;
    if (s->cluster)
        weights = vti_cluster_main_weights(s->cluster);
    else
        VTI_TRY(vti_model_layers(s->model, &weights, err));
    vti_stage_params params = stage_params(s, weights);
    return vti_stage_open(&params, &s->stage, err);
}

uint64_t vti_session_bytes(const vti_hparams *hparams, uint32_t context_tokens,
                           uint32_t batch_tokens)
{
    return context_tokens * sizeof(vt_token) + (uint64_t)batch_tokens * hparams->d * sizeof(float) +
           hparams->vocab * sizeof(float) + vti_sampler_bytes(hparams->vocab);
}

static vt_status take_scratch(vt_session *s, uint64_t bytes, const char *what, vt_error *err)
{
    VTI_TRY(vti_budget_take(&s->model->device.budget, VTI_BUDGET_SCRATCH, bytes, what, err));
    s->scratch_bytes += bytes;
    return VT_OK;
}

static vt_status allocate_buffers(vt_session *s, vt_error *err)
{
    const vti_hparams *p = &s->model->hparams;
    VTI_TRY(take_scratch(s, vti_session_bytes(p, s->context, s->batch), "a session", err));
    s->history = malloc(s->context * sizeof *s->history);
    s->h = malloc((size_t)s->batch * p->d * sizeof *s->h);
    s->head_rows = 1;
    s->logits = malloc((size_t)p->vocab * sizeof *s->logits);
    if (s->history && s->h && s->logits) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY, "no memory for a session");
}

vt_status vti_session_begin_devices(vt_session *s, vt_error *err)
{
    VTI_TRY(vti_cluster_begin_session(s->cluster, s->context, s->batch, s->kv_type, err));
    s->cluster_begun = true;
    return VT_OK;
}

static vt_status open_parts(vt_session *s, const vt_session_params *p, vt_error *err)
{
    VTI_TRY(check_memory(s, err));
    VTI_TRY(vti_head_open(&s->head, s->model, err));
    VTI_TRY(allocate_buffers(s, err));
    VTI_TRY(vti_sampler_open(&s->sampler, &p->sampling, &s->model->kernels,
                             s->model->hparams.vocab, err));
    VTI_TRY(open_stage(s, err));
    if (!s->cluster) return VT_OK;
    return vti_session_begin_devices(s, err);
}

vt_status vt_session_open(const vt_model *model, const vt_session_params *params, vt_session **out,
                          vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_session_open: out is NULL");
    *out = NULL;
    if (!model) return vti_fail(err, VT_ERR_ARGUMENT, "vt_session_open: model is NULL");
    vt_session_params defaults = vt_session_params_default();
    const vt_session_params *p = params ? params : &defaults;
    VTI_TRY(check_params(model, p, err));
    vt_session *s = calloc(1, sizeof *s);
    if (!s) return vti_fail(err, VT_ERR_MEMORY, "no memory for a session");
    /* Weights are loaded on first use, under the model's lock: the model looks const outside. */
    s->model = (vt_model *)(uintptr_t)model;
    s->cluster = p->cluster;
    s->kv_type = p->kv_type;
    atomic_init(&s->cancelled, false);
    choose_sizes(s, p);
    vt_status status = open_parts(s, p, err);
    if (status != VT_OK) {
        vt_session_close(s);
        return status;
    }
    *out = s;
    return VT_OK;
}

void vt_session_close(vt_session *s)
{
    if (!s) return;
    if (s->cluster_begun) vti_cluster_end_session(s->cluster);
    vti_stage_close(s->stage);
    vti_head_close(&s->head);
    vti_sampler_close(&s->sampler);
    free(s->history);
    free(s->h);
    free(s->logits);
    free(s->blob);
    vti_budget_give(&s->model->device.budget, VTI_BUDGET_SCRATCH, s->scratch_bytes);
    free(s);
}


/* --- computing ------------------------------------------------------------------------------- */

/* A batch of the history that is being computed. */
typedef struct step {
    uint32_t position, tokens;
} step;

/* Runs one batch through this device's layers, leaving the residual stream in s->h. */
static void run_own_layers(vt_session *s, step batch)
{
    uint32_t d = s->model->hparams.d;
    uint64_t start = vti_now_ns();
    for (uint32_t i = 0; i < batch.tokens; i++)
        vti_model_embed(s->model, s->history[batch.position + i], s->h + (size_t)i * d);
    vti_stage_forward(s->stage, s->h, batch.position, batch.tokens);
    if (s->cluster) vti_cluster_count_busy(s->cluster, vti_now_ns() - start);
}

/* Hands out the logits of every position of a batch whose final residual stream is in s->h. */
static vt_status report_all(vt_session *s, step batch, const logits_sink *sink, vt_error *err)
{
    uint32_t d = s->model->hparams.d, vocab = s->model->hparams.vocab;
    for (uint32_t first = 0; first < batch.tokens; first += s->head_rows) {
        uint32_t rows = batch.tokens - first < s->head_rows ? batch.tokens - first : s->head_rows;
        vti_head_logits(&s->head, s->h + (size_t)first * d, rows, s->logits);
        for (uint32_t row = 0; row < rows; row++) {
            if (!sink->on_logits(sink->user, batch.position + first + row,
                                 s->logits + (size_t)row * vocab))
                return vti_fail(err, VT_ERR_CANCELLED, "stopped by the caller");
        }
        if (rows > 1)
            memcpy(s->logits, s->logits + (size_t)(rows - 1) * vocab, vocab * sizeof *s->logits);
    }
    return VT_OK;
}

/* The residual stream of `batch` (all rows, or only its last one) is in s->h: on to the logits. */
static vt_status finish_step(vt_session *s, step batch, bool newest, const logits_sink *sink,
                             const float *last_row, vt_error *err)
{
    if (sink->on_logits)
        VTI_TRY(report_all(s, batch, sink, err));
    else if (newest)
        vti_head_logits(&s->head, last_row, 1, s->logits);
    s->computed = batch.position + batch.tokens;
    return VT_OK;
}

static vt_status check_cancelled(vt_session *s, vt_error *err)
{
    if (!atomic_load(&s->cancelled)) return VT_OK;
    return vti_fail(err, VT_ERR_CANCELLED, "cancelled");
}

static step batch_at(const vt_session *s, uint32_t position)
{
    uint32_t left = s->history_count - position;
    return (step){position, left < s->batch ? left : s->batch};
}

static vt_status compute_here(vt_session *s, const logits_sink *sink, vt_error *err)
{
    while (s->computed < s->history_count) {
        VTI_TRY(check_cancelled(s, err));
        step batch = batch_at(s, s->computed);
        run_own_layers(s, batch);
        bool newest = batch.position + batch.tokens == s->history_count;
        const float *last = s->h + (size_t)(batch.tokens - 1) * s->model->hparams.d;
        VTI_TRY(finish_step(s, batch, newest, sink, last, err));
    }
    return VT_OK;
}

static vt_status receive_step(vt_session *s, step batch, const logits_sink *sink, vt_error *err)
{
    bool all = sink->on_logits != NULL;
    VTI_TRY(vti_cluster_receive(s->cluster, s->h, all ? batch.tokens : 1, &s->cancelled, err));
    return finish_step(s, batch, batch.position + batch.tokens == s->history_count, sink, s->h,
                       err);
}

/* Batches flow through the devices like through a pipe: this device sends the next one before the
 * first has come back. */
static vt_status compute_in_cluster(vt_session *s, const logits_sink *sink, vt_error *err)
{
    step under_way[MAX_STEPS_UNDER_WAY];
    uint32_t count = 0, next = s->computed;
    while (count || next < s->history_count) {
        if (next < s->history_count && count < MAX_STEPS_UNDER_WAY) {
            VTI_TRY(check_cancelled(s, err));
            step batch = batch_at(s, next);
            run_own_layers(s, batch);
            VTI_TRY(vti_cluster_send(s->cluster, s->h, batch.position, batch.tokens,
                                     sink->on_logits != NULL, err));
            under_way[count++] = batch;
            next += batch.tokens;
            continue;
        }
        VTI_TRY(receive_step(s, under_way[0], sink, err));
        memmove(under_way, under_way + 1, --count * sizeof under_way[0]);
    }
    return VT_OK;
}

/* Computes what of the history has not been computed, and the logits after its last token. */
static vt_status compute(vt_session *s, const logits_sink *sink, vt_error *err)
{
    if (s->computed == s->history_count) return VT_OK;
    s->logits_valid = false;
    vti_device_memory_look(&s->model->device, &s->model->log);
    /* After a rewind or a step that was broken off, sliding windows may have moved on too far. */
    s->computed = vti_stage_resume(s->stage, s->computed);
    bool remote = s->cluster && vti_cluster_has_remote(s->cluster);
    if (remote && !s->cluster_begun) VTI_TRY(vti_session_begin_devices(s, err));
    vt_status status = remote ? compute_in_cluster(s, sink, err) : compute_here(s, sink, err);
    if (remote && status != VT_OK) vti_cluster_forget_steps(s->cluster);
    if (status == VT_ERR_CANCELLED) atomic_store(&s->cancelled, false); /* served */
    s->logits_valid = status == VT_OK;
    return status;
}

vt_status vti_session_compute(vt_session *s, vt_error *err)
{
    return compute(s, &(logits_sink){0}, err);
}

/* --- feeding --------------------------------------------------------------------------------- */

static vt_status append(vt_session *s, const vt_token *tokens, size_t count, vt_error *err)
{
    if (count > s->context - s->history_count)
        return vti_fail(err, VT_ERR_CONTEXT_FULL,
                        "%zu tokens do not fit: the context holds %" PRIu32 " and has %" PRIu32
                        " already",
                        count, s->context, s->history_count);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= s->model->hparams.vocab)
            return vti_fail(err, VT_ERR_ARGUMENT,
                            "token %zu is %" PRId32 "; the vocabulary has 0 to %" PRIu32, i,
                            tokens[i], s->model->hparams.vocab - 1);
    memcpy(s->history + s->history_count, tokens, count * sizeof *tokens);
    s->history_count += (uint32_t)count;
    return VT_OK;
}

static vt_status feed(vt_session *s, const vt_token *tokens, size_t count, const logits_sink *sink,
                      vt_error *err)
{
    VTI_TRY(append(s, tokens, count, err));
    uint64_t start = vti_now_ns();
    uint32_t before = s->computed;
    vt_status status = compute(s, sink, err);
    s->stats.prefill_tokens += s->computed - before;
    s->stats.prefill_ns += vti_now_ns() - start;
    return status;
}

vt_status vt_session_feed(vt_session *s, const vt_token *tokens, size_t count, vt_error *err)
{
    return feed(s, tokens, count, &(logits_sink){0}, err);
}

vt_status vt_session_feed_text(vt_session *s, const char *text, size_t text_bytes, unsigned flags,
                               vt_error *err)
{
    if (!text && text_bytes) return vti_fail(err, VT_ERR_ARGUMENT, "text is NULL");
    size_t capacity = vt_tokenize_bound(s->model, text_bytes), count;
    vt_token *tokens = malloc((capacity ? capacity : 1) * sizeof *tokens);
    if (!tokens) return vti_fail(err, VT_ERR_MEMORY, "no memory for %zu tokens", capacity);
    vt_status status = vt_tokenize(s->model, text, text_bytes, flags, tokens, capacity, &count,
                                   err);
    if (status == VT_OK) status = vt_session_feed(s, tokens, count, err);
    free(tokens);
    return status;
}

static vt_status widen_logits(vt_session *s, vt_error *err)
{
    if (s->head_rows == VTI_HEAD_ROWS) return VT_OK;
    size_t row = (size_t)s->model->hparams.vocab * sizeof *s->logits;
    VTI_TRY(take_scratch(s, (VTI_HEAD_ROWS - 1) * row, "the logits of all positions", err));
    float *wider = realloc(s->logits, VTI_HEAD_ROWS * row);
    if (!wider) return vti_fail(err, VT_ERR_MEMORY, "no memory for %d rows of logits", VTI_HEAD_ROWS);
    s->logits = wider;
    s->head_rows = VTI_HEAD_ROWS;
    return VT_OK;
}

vt_status vt_session_feed_logits(vt_session *s, const vt_token *tokens, size_t count,
                                 vt_logits_fn on_logits, void *user, vt_error *err)
{
    if (!on_logits) return vti_fail(err, VT_ERR_ARGUMENT, "on_logits is NULL");
    VTI_TRY(widen_logits(s, err));
    return feed(s, tokens, count, &(logits_sink){on_logits, user}, err);
}

/* --- the rest -------------------------------------------------------------------------------- */

vt_status vt_session_rewind(vt_session *s, uint32_t tokens, vt_error *err)
{
    if (tokens > s->history_count)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "cannot rewind to %" PRIu32 " tokens: there are %" PRIu32, tokens,
                        s->history_count);
    if (tokens == s->history_count) return VT_OK;
    s->history_count = tokens;
    s->logits_valid = false;
    if (s->computed > tokens) s->computed = tokens;
    if (tokens == 0) vti_sampler_reset(&s->sampler);
    return VT_OK;
}

vt_status vt_session_shift(vt_session *s, uint32_t free_tokens, vt_error *err)
{
    if (free_tokens >= s->context)
        return vti_fail(err, VT_ERR_CONTEXT_FULL,
                        "%" PRIu32 " tokens do not fit: the context holds %" PRIu32, free_tokens,
                        s->context);
    uint32_t room = s->context - free_tokens;
    if (s->history_count <= room) return VT_OK;
    uint32_t keep = room > 1 && s->history[0] == vt_model_bos(s->model) ? 1 : 0;
    uint32_t newest = room - keep;
    memmove(s->history + keep, s->history + s->history_count - newest,
            newest * sizeof *s->history);
    s->history_count = keep + newest;
    s->logits_valid = false;
    if (s->computed > keep) s->computed = keep;
    return vti_session_compute(s, err);
}

const vt_token *vt_session_history(const vt_session *s, size_t *count)
{
    *count = s->history_count;
    return s->history;
}

vt_status vt_session_logits(vt_session *s, const float **out, vt_error *err)
{
    *out = NULL;
    if (s->history_count == 0) return VT_OK;
    VTI_TRY(vti_session_compute_drawn(s, err));
    *out = s->logits;
    return VT_OK;
}

void vt_session_cancel(vt_session *s) { atomic_store(&s->cancelled, true); }

void vt_session_get_stats(const vt_session *s, vt_session_stats *out)
{
    *out = s->stats;
    out->weight_bytes_per_token = s->model->token_bytes;
    out->context_tokens = s->context;
    out->used_tokens = s->history_count;
    out->kv_bytes = vti_stage_kv_bytes(s->stage);
}
