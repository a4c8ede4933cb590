/* importance_measure.c: vt_importance: what is to be measured, on which text, into which file. */
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "importance_internal.h"
#include "mapped_file.h"
#include "model.h"
#include "output_file.h"
#include "session_internal.h"
#include "store_format.h"

enum { NAME_BYTES = 24 };

vt_importance_params vt_importance_params_default(void) { return (vt_importance_params){0}; }

/* --- opening ---------------------------------------------------------------------------------- */

/* "FFN" is all of that kind, "FFN(3)" the one. */
static bool names_unit(const char *name, size_t bytes, const char *unit)
{
    if (strncasecmp(name, unit, bytes) != 0) return false;
    return unit[bytes] == 0 || unit[bytes] == '(';
}

static vt_status choose_units(vt_importance *m, vt_error *err)
{
    const char *at = m->p.units;
    for (uint32_t unit = 0; !at && unit < m->data->units; unit++) m->wanted[unit] = true;
    while (at && *at) {
        size_t bytes = strcspn(at, ",");
        bool any = false;
        for (uint32_t unit = 0; unit < m->data->units; unit++) {
            char name[NAME_BYTES];
            vti_unit_name(m->g, unit, name, sizeof name);
            if (!bytes || !names_unit(at, bytes, name)) continue;
            m->wanted[unit] = any = true;
        }
        if (!any)
            return vti_fail(err, VT_ERR_ARGUMENT,
                            "units: the model has no unit \"%.*s\" to measure; right are ATTN, "
                            "FFN(%" PRIu32 ") and HEAD", (int)(bytes < 24 ? bytes : 24), at,
                            m->g->hparams.layers - 1);
        at += bytes + (at[bytes] == ',' && at[bytes + 1]);
    }
    return VT_OK;
}

static vt_status check_params(const vt_model *model, const vt_importance_params *p, vt_error *err)
{
    if (model->vocabulary_only)
        return vti_fail(err, VT_ERR_ARGUMENT, "the model was opened without weights");
    if (model->composition.pruned)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "importance is measured on a whole model; this one was opened without some "
                        "of its shards");
    if (!p->task || !*p->task || strlen(p->task) > VTI_TASK_BYTES_MAX)
        return vti_fail(err, VT_ERR_ARGUMENT, "a task needs a name of 1 to %d bytes",
                        (int)VTI_TASK_BYTES_MAX);
    if (!vti_kv_type_known(p->kv_type))
        return vti_fail(err, VT_ERR_ARGUMENT, "unknown KV cache type %d", (int)p->kv_type);
    if (p->context_tokens == 1 || p->context_tokens > VTI_MAX_CONTEXT)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "windows of %" PRIu32 " tokens are not possible; at least 2, at most %d",
                        p->context_tokens, VTI_MAX_CONTEXT);
    if (p->batch_tokens > 65536)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "a batch of %" PRIu32 " tokens is too large; at most 65536",
                        p->batch_tokens);
    return VT_OK;
}

static vt_status allocate(vt_importance *m, vt_error *err)
{
    VTI_TRY(vti_importance_new(m->g, &m->data, err));
    m->runs = m->p.exact ? m->data->channels : m->data->parts;
    m->wanted = calloc(m->data->units, sizeof *m->wanted);
    m->nll = calloc((size_t)m->runs, sizeof *m->nll);
    bool squares = m->p.exact;
    if (!m->p.exact) {
        m->squares = calloc((size_t)m->data->channels, sizeof *m->squares);
        m->fresh = calloc((size_t)m->data->channels, sizeof *m->fresh);
        squares = m->squares && m->fresh;
    }
    if (m->wanted && m->nll && squares) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY, "no memory to measure importance");
}

static vti_precision lowest_precision(const vt_model *model, uint32_t units)
{
    vti_precision lowest = VTI_PRECISION_F16;
    for (uint32_t u = 0; u < units; u++)
        if (model->composition.precision[u] > lowest) lowest = model->composition.precision[u];
    return lowest;
}

vt_status vt_importance_open(const vt_model *model, const vt_importance_params *params,
                             vt_importance **out, vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_importance_open: out is NULL");
    *out = NULL;
    if (!model || !params)
        return vti_fail(err, VT_ERR_ARGUMENT, "vt_importance_open: model or params is NULL");
    VTI_TRY(check_params(model, params, err));
    vt_importance *m = calloc(1, sizeof *m);
    if (!m) return vti_fail(err, VT_ERR_MEMORY, "no memory to measure importance");
    m->model = (vt_model *)(uintptr_t)model; /* its weights are loaded on first use */
    m->g = &model->geometry;
    m->p = *params;
    m->context = params->context_tokens;
    m->batch = params->batch_tokens;
    vti_session_sizes(&model->hparams, &m->context, &m->batch);
    vt_status status = allocate(m, err);
    if (status == VT_OK) status = choose_units(m, err);
    if (status != VT_OK) {
        vt_importance_close(m);
        return status;
    }
    strcpy(m->data->task, params->task);
    m->p.task = m->p.units = NULL; /* the caller's */
    m->data->exact = params->exact;
    m->data->context_tokens = m->context;
    m->data->precision = lowest_precision(model, m->data->units);
    vti_model_get_identity(model, &m->data->identity);
    *out = m;
    return VT_OK;
}

void vt_importance_close(vt_importance *m)
{
    if (!m) return;
    vti_importance_close_compute(m);
    vti_importance_free(m->data);
    free(m->wanted);
    free(m->tokens);
    free(m->windows);
    free(m->nll);
    free(m->squares);
    free(m->fresh);
    free(m);
}

/* --- the text --------------------------------------------------------------------------------- */

static vt_status make_room(void **list, size_t *room, size_t wanted, size_t bytes, vt_error *err)
{
    if (wanted <= *room) return VT_OK;
    size_t more = wanted + wanted / 2 + 64;
    void *grown = realloc(*list, more * bytes);
    if (!grown) return vti_fail(err, VT_ERR_MEMORY, "no memory for %zu tokens", wanted);
    *list = grown;
    *room = more;
    return VT_OK;
}

static vt_status add_window(vt_importance *m, const vt_token *tokens, uint32_t count,
                            vt_error *err)
{
    vt_token bos = vt_model_bos(m->model);
    uint32_t lead = bos != VT_TOKEN_NONE;
    size_t room = m->window_room;
    if (m->p.max_tokens && m->p.max_tokens - m->data->tokens < count - 1 + lead)
        count = (uint32_t)(m->p.max_tokens - m->data->tokens) + 1 - lead;
    if (lead + count < 2) return VT_OK;
    VTI_TRY(make_room((void **)&m->tokens, &m->token_room, m->token_count + lead + count,
                      sizeof *m->tokens, err));
    VTI_TRY(make_room((void **)&m->windows, &room, m->window_count + 1, sizeof *m->windows, err));
    m->window_room = (uint32_t)room;
    m->windows[m->window_count++] = (vti_window){m->token_count, lead + count};
    if (lead) m->tokens[m->token_count++] = bos;
    memcpy(m->tokens + m->token_count, tokens, count * sizeof *tokens);
    m->token_count += count;
    m->data->tokens += lead + count - 1;
    return VT_OK;
}

vt_status vt_importance_add(vt_importance *m, const char *text, size_t bytes, vt_error *err)
{
    if (!text && bytes) return vti_fail(err, VT_ERR_ARGUMENT, "text is NULL");
    if (m->p.max_tokens && m->data->tokens >= m->p.max_tokens) return VT_OK;
    uint32_t lead = vt_model_bos(m->model) != VT_TOKEN_NONE, most = m->context - lead;
    size_t capacity = vt_tokenize_bound(m->model, bytes), count;
    vt_token *tokens = malloc((capacity + 1) * sizeof *tokens);
    if (!tokens) return vti_fail(err, VT_ERR_MEMORY, "no memory for %zu tokens", capacity);
    vt_status status = vt_tokenize(m->model, text, bytes, 0, tokens, capacity, &count, err);
    for (size_t at = 0; status == VT_OK && at < count; at += most)
        status = add_window(m, tokens + at,
                            count - at < most ? (uint32_t)(count - at) : most, err);
    free(tokens);
    return status;
}

/* Of the windows and their tokens. */
static void hash_text(vt_importance *m)
{
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, NULL, 0, VTI_TEXT_HASH_BYTES);
    for (uint32_t w = 0; w < m->window_count; w++) {
        const vti_window *window = &m->windows[w];
        crypto_generichash_update(&hash, (const void *)&window->count, sizeof window->count);
        crypto_generichash_update(&hash, (const void *)(m->tokens + window->first),
                                  window->count * sizeof *m->tokens);
    }
    crypto_generichash_final(&hash, m->data->text, VTI_TEXT_HASH_BYTES);
}

/* --- what computes ---------------------------------------------------------------------------- */

static uint32_t longest_window(const vt_importance *m)
{
    uint32_t longest = 2;
    for (uint32_t w = 0; w < m->window_count; w++)
        if (m->windows[w].count > longest) longest = m->windows[w].count;
    return longest;
}

static vt_status check_memory(const vt_importance *m, const vti_stage_params *stage,
                              uint64_t buffers, vt_error *err)
{
    vti_stage_sizes sizes = vti_stage_size(stage, 0, m->g->hparams.layers);
    const uint64_t need[VTI_BUDGET_CATEGORIES] = {
        [VTI_BUDGET_WEIGHTS] = vti_model_unloaded_bytes(m->model, true),
        [VTI_BUDGET_KV] = sizes.kv_bytes,
        [VTI_BUDGET_SCRATCH] = sizes.scratch_bytes + vti_head_bytes(m->model) + buffers,
    };
    char what[64];
    snprintf(what, sizeof what, "importance on windows of %" PRIu32 " tokens",
             stage->context_tokens);
    vti_device_memory_refresh(&m->model->device);
    return vti_budget_check(&m->model->device.budget, need, what, err);
}

vt_status vti_importance_open_compute(vt_importance *m, vt_error *err)
{
    const vti_hparams *p = &m->g->hparams;
    uint32_t window = longest_window(m) - 1;
    size_t stream = (size_t)window * p->d, logits = (size_t)VTI_HEAD_ROWS * p->vocab;
    uint64_t buffers = (2 * stream + logits) * sizeof(float);
    vti_stage_params stage = {
        .geometry = m->g,
        .kernels = &m->model->kernels,
        .pool = m->model->pool,
        .budget = &m->model->device.budget,
        .table = m->model->table,
        .context_tokens = window,
        .batch_tokens = m->batch < window ? m->batch : window,
        .kv_type = m->p.kv_type,
    };
    VTI_TRY(check_memory(m, &stage, buffers, err));
    VTI_TRY(vti_model_layers(m->model, &stage.weights, err));
    VTI_TRY(vti_head_open(&m->head, m->model, err));
    VTI_TRY(vti_stage_open(&stage, &m->stage, err));
    VTI_TRY(vti_budget_take(stage.budget, VTI_BUDGET_SCRATCH, buffers, "measuring importance",
                            err));
    m->scratch_bytes = buffers;
    m->h = malloc(stream * sizeof *m->h);
    m->work = malloc(stream * sizeof *m->work);
    m->logits = malloc(logits * sizeof *m->logits);
    if (m->h && m->work && m->logits) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY, "no memory to measure importance");
}

void vti_importance_close_compute(vt_importance *m)
{
    vti_stage_close(m->stage);
    vti_head_close(&m->head);
    free(m->h);
    free(m->work);
    free(m->logits);
    vti_budget_give(&m->model->device.budget, VTI_BUDGET_SCRATCH, m->scratch_bytes);
    m->stage = NULL;
    m->h = m->work = m->logits = NULL;
    m->scratch_bytes = 0;
}

/* --- the file --------------------------------------------------------------------------------- */

vt_status vt_importance_check_path(const char *path, vt_error *err)
{
    static const char begin[] = "{\"format\":\"voltron-importance\"";
    vti_mapped_file file;
    struct stat facts;
    if (!path) return vti_fail(err, VT_ERR_ARGUMENT, "vt_importance_check_path: path is NULL");
    if (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode))
        return vti_fail(err, VT_ERR_IO, "cannot write %s: it is not a regular file", path);
    if (vti_mapped_file_open(path, &file, NULL) != VT_OK) return VT_OK; /* there is none */
    bool fine = file.bytes == 0 || (file.bytes >= sizeof begin - 1 &&
                                    memcmp(file.data, begin, sizeof begin - 1) == 0);
    vti_mapped_file_close(&file);
    if (fine) return VT_OK;
    return vti_fail(err, VT_ERR_ARGUMENT,
                    "%s exists and is not a file of importances; it is not replaced, choose "
                    "another name", path);
}

static vt_status write_file(const vt_importance *m, const char *path, vt_error *err)
{
    vti_output_file file;
    char *text = vti_importance_write_json(m->data, m->g);
    if (!text) return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    vt_status status = vti_output_open(&file, path, 0666, err);
    if (status == VT_OK) status = vti_output_write(&file, text, strlen(text), err);
    if (status == VT_OK)
        status = vti_output_commit(&file, err);
    else
        vti_output_discard(&file);
    free(text);
    return status;
}

static vt_status measure(vt_importance *m, const char *path, vt_error *err)
{
    hash_text(m);
    VTI_TRY(vti_importance_resume(m, path, err));
    VTI_TRY(vti_importance_open_compute(m, err));
    VTI_TRY(vti_importance_save_progress(m, path, err)); /* if that is not possible, say so now */
    vt_status status = vti_importance_run(m, path, err);
    if (status == VT_OK || status == VT_ERR_CANCELLED) {
        vt_status saved = vti_importance_save_progress(m, path, status == VT_OK ? err : NULL);
        if (status == VT_OK) status = saved;
    }
    VTI_TRY(status);
    VTI_TRY(vti_importance_finish(m, err));
    VTI_TRY(write_file(m, path, err));
    vti_importance_remove_progress(path);
    return VT_OK;
}

vt_status vt_importance_measure(vt_importance *m, const char *path, vt_error *err)
{
    VTI_TRY(vt_importance_check_path(path, err));
    if (m->window_count == 0)
        return vti_fail(err, VT_ERR_ARGUMENT, "the text has no token to predict");
    if (m->data->perplexity > 0)
        return vti_fail(err, VT_ERR_ARGUMENT, "this importance was measured already");
    vt_status status = measure(m, path, err);
    vti_importance_close_compute(m);
    return status;
}

/* --- what came out ---------------------------------------------------------------------------- */

void vt_importance_get_stats(const vt_importance *m, vt_importance_stats *out)
{
    *out = (vt_importance_stats){
        .tokens = m->data->tokens,
        .windows = m->window_count,
        .resumed_runs = m->resumed,
        .perplexity = m->data->perplexity,
    };
    for (uint32_t unit = 0; unit < m->data->units; unit++) {
        vti_run_range runs = vti_importance_runs_of(m, unit);
        if (!m->wanted[unit]) continue;
        out->units++;
        out->runs += (runs.end - runs.first) * m->window_count;
    }
}

vt_status vt_importance_get_unit(const vt_importance *m, uint32_t index, vt_importance_unit *out)
{
    const vti_importance *im = m->data;
    uint32_t unit = 0;
    for (uint32_t left = index; unit < im->units && (!im->measured[unit] || left > 0); unit++)
        left -= im->measured[unit];
    *out = (vt_importance_unit){.name = ""};
    if (unit == im->units) return VT_ERR_ARGUMENT;
    const double *part = im->part + im->first_part[unit];
    vti_unit_name(m->g, unit, out->name, sizeof out->name);
    out->score = im->unit[unit];
    out->parts = im->first_part[unit + 1] - im->first_part[unit];
    out->least = out->most = part[0];
    for (uint32_t i = 1; i < out->parts; i++) {
        if (part[i] < part[out->least_part]) out->least_part = i;
        if (part[i] > part[out->most_part]) out->most_part = i;
    }
    out->least = part[out->least_part];
    out->most = part[out->most_part];
    return VT_OK;
}
