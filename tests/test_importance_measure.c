/* Measured importances against the same without any short cut; what stops and goes on. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/importance.h"
#include "../src/session_internal.h"
#include "model_builder.h"

enum { CONTEXT = 24, BATCH = 9 };

static const char *const families[] = {"qwen2", "qwen2moe", "gemma3", "llama", "qwen3"};
enum { FAMILIES = sizeof families / sizeof families[0] };

/* Two documents; the first has two windows. */
static const char *const documents[] = {"The fox ran over the hill and home.", "A cat sat."};

static char folder[] = "/tmp/voltron-importance-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[4][96];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static vt_model *open_model(const test_model *shape, uint32_t threads, unsigned char **file)
{
    size_t bytes;
    vt_model *model;
    vt_error err;
    vt_model_params params = vt_model_params_default();
    params.threads = threads;
    *file = test_model_build(shape, &bytes);
    if (vt_model_open_memory(*file, bytes, &params, &model, &err) != VT_OK)
        fail_msg("%s: %s", shape->arch, err.message);
    return model;
}

/* A small one: 2 layers. */
static test_model shape_of(const char *family)
{
    test_model shape = test_model_of(family);
    shape.layers = 2;
    return shape;
}

/* --- measuring -------------------------------------------------------------------------------- */

static vt_importance_params usual(void)
{
    vt_importance_params params = vt_importance_params_default();
    params.task = "tales";
    params.context_tokens = CONTEXT;
    params.batch_tokens = BATCH;
    params.kv_type = VT_KV_F32;
    return params;
}

static vt_status try_measure(const vt_model *model, const vt_importance_params *params,
                             const char *path, vt_importance_stats *stats, vt_error *err)
{
    vt_importance *im;
    if (vt_importance_open(model, params, &im, err) != VT_OK) fail_msg("%s", err->message);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(vt_importance_add(im, documents[i], strlen(documents[i]), err), VT_OK);
    vt_status status = vt_importance_measure(im, path, err);
    if (stats) vt_importance_get_stats(im, stats);
    vt_importance_close(im);
    return status;
}

static vti_importance *load(const vt_model *model, const char *path)
{
    vti_importance *out;
    vti_model_identity identity;
    vt_error err;
    vti_model_get_identity(model, &identity);
    if (vti_importance_load(path, &model->geometry, &identity, &out, &err) != VT_OK)
        fail_msg("%s", err.message);
    return out;
}

static vti_importance *measured(const vt_model *model, const vt_importance_params *params)
{
    const char *path = in_folder("measured");
    vt_error err;
    if (try_measure(model, params, path, NULL, &err) != VT_OK) fail_msg("%s", err.message);
    vti_importance *im = load(model, path);
    unlink(path);
    return im;
}

/* --- the same by sessions --------------------------------------------------------------------- */

typedef struct window {
    const vt_token *tokens;
    uint32_t count, vocab;
    double nll;
} window;

static bool add_row(void *user, uint32_t position, const float *logits)
{
    window *w = user;
    double sum = 0;
    for (uint32_t i = 0; i < w->vocab; i++) sum += exp((double)logits[i]);
    w->nll += log(sum) - (double)logits[w->tokens[position + 1]];
    return true;
}

/* Perplexity of the text, as the session computes. */
static double perplexity(vt_session *session)
{
    double nll = 0;
    uint64_t predicted = 0;
    vt_error err;
    vt_token bos = vt_model_bos(session->model), tokens[256], cut[CONTEXT];
    size_t lead = bos != VT_TOKEN_NONE, count;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(vt_tokenize(session->model, documents[i], strlen(documents[i]), 0, tokens,
                                     256, &count, &err), VT_OK);
        for (size_t at = 0; at < count; at += CONTEXT - lead) {
            size_t take = count - at < CONTEXT - lead ? count - at : CONTEXT - lead;
            cut[0] = bos;
            memcpy(cut + lead, tokens + at, take * sizeof *cut);
            if (take + lead < 2) continue;
            window w = {cut, (uint32_t)(take + lead), session->model->hparams.vocab, 0};
            assert_int_equal(vt_session_rewind(session, 0, &err), VT_OK);
            if (vt_session_feed_logits(session, cut, w.count - 1, add_row, &w, &err) != VT_OK)
                fail_msg("%s", err.message);
            nll += w.nll;
            predicted += w.count - 1;
        }
    }
    return exp(nll / (double)predicted);
}

static vt_session *open_session(const vt_model *model)
{
    vt_session *session;
    vt_error err;
    vt_session_params params = vt_session_params_default();
    params.context_tokens = CONTEXT;
    params.batch_tokens = BATCH;
    params.kv_type = VT_KV_F32;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    return session;
}

/* By how much the perplexity rises without a part, or, channel >= 0, one of its channels. */
static double rise(vt_session *session, const vti_importance *im, const vti_importance_part *part,
                   int channel, double whole)
{
    const vti_geometry *g = &session->model->geometry;
    if (part->unit == vti_head_unit(g)) {
        uint64_t first = part->first_channel -
                         im->part_at[im->first_part[part->unit]].first_channel;
        vti_head_prune_columns(&session->head, (uint32_t)first + (channel < 0 ? 0 : channel),
                               channel < 0 ? part->channels : 1);
    } else if (channel < 0) {
        vti_stage_prune(session->stage, part->unit, part->part, true, NULL);
    } else {
        const vti_channel without = {part->unit, part->part, (uint32_t)channel};
        vti_stage_prune_channel(session->stage, &without);
    }
    double without = perplexity(session);
    vti_head_prune_columns(&session->head, 0, 0);
    vti_stage_prune(session->stage, 0, 0, false, NULL);
    if (part->unit != vti_head_unit(g))
        vti_stage_prune(session->stage, part->unit, part->part, false, NULL);
    vti_stage_prune_channel(session->stage, NULL);
    return without - whole;
}

static void assert_score(double found, double expected, double whole, const char *what,
                         const vti_importance_part *part)
{
    if (!(fabs(found - expected) <= 2e-6 * whole))
        fail_msg("%s: unit %u part %u: %.9g is not %.9g", what, part->unit, part->part, found,
                 expected);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void parts_as_by_sessions(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        unsigned char *file;
        test_model shape = shape_of(families[f]);
        vt_model *model = open_model(&shape, 1, &file);
        vt_importance_params params = usual();
        vti_importance *im = measured(model, &params);
        vt_session *session = open_session(model);
        double whole = perplexity(session), largest = 0;
        assert_true(fabs(im->perplexity - whole) <= 1e-6 * whole);
        for (uint32_t unit = 0; unit < im->units; unit++) {
            double sum = 0;
            assert_true(im->measured[unit]);
            for (uint32_t p = im->first_part[unit]; p < im->first_part[unit + 1]; p++) {
                double expected = rise(session, im, &im->part_at[p], -1, whole);
                assert_score(im->part[p], expected, whole, families[f], &im->part_at[p]);
                sum += im->part[p];
                if (fabs(expected) > largest) largest = fabs(expected);
            }
            assert_true(fabs(sum - im->unit[unit]) <= 1e-6 * (1 + fabs(sum)));
        }
        assert_true(largest > 1e-3 * whole); /* or there was nothing to measure */
        vt_session_close(session);
        vti_importance_free(im);
        vt_model_close(model);
        free(file);
    }
}

static void channels_as_by_sessions(void **state)
{
    (void)state;
    static const char *const some[] = {"qwen2moe", "gemma3"};
    for (size_t f = 0; f < 2; f++) {
        unsigned char *file;
        test_model shape = shape_of(some[f]);
        shape.experts = shape.experts ? 4 : 0;
        vt_model *model = open_model(&shape, 1, &file);
        vt_importance_params params = usual();
        params.exact = true;
        params.units = f ? "attn(1),FFN(0),HEAD" : "ATTN(1),FFN(1)";
        vti_importance *im = measured(model, &params);
        vt_session *session = open_session(model);
        double whole = perplexity(session);
        assert_true(im->exact && !im->measured[0]);
        for (uint32_t p = 0; p < im->parts; p++) {
            const vti_importance_part *part = &im->part_at[p];
            double sum = 0;
            if (!im->measured[part->unit]) continue;
            for (uint32_t c = 0; c < part->channels; c++) {
                double score = im->channel[part->first_channel + c];
                if (c % 13 == 5) { /* channels are written with four digits */
                    double expected = rise(session, im, part, (int)c, whole);
                    if (!(fabs(score - expected) <= 1e-3 * fabs(expected) + 2e-6 * whole))
                        fail_msg("%s: unit %u part %u channel %u: %.9g is not %.9g", some[f],
                                 part->unit, part->part, c, score, expected);
                }
                sum += score;
            }
            assert_true(fabs(sum - im->part[p]) <= 1e-3 * whole);
        }
        vt_session_close(session);
        vti_importance_free(im);
        vt_model_close(model);
        free(file);
    }
}

/* What a unit adds to the stream of its window, which begins as the tokens' embeddings. */
static double *added(const vt_model *model, vti_stage *stage, uint32_t unit, const vt_token *tokens,
                     uint32_t count)
{
    uint32_t d = model->hparams.d;
    float *h = malloc((size_t)count * d * sizeof *h);
    double *out = malloc((size_t)count * d * sizeof *out);
    for (uint32_t t = 0; t < count; t++) vti_model_embed(model, tokens[t], h + (size_t)t * d);
    for (size_t i = 0; i < (size_t)count * d; i++) out[i] = -(double)h[i];
    vti_stage_forward_units(stage, unit, 1, h, 0, count);
    for (size_t i = 0; i < (size_t)count * d; i++) out[i] += (double)h[i];
    free(h);
    return out;
}

/* Of two channels of the first unit, the one that adds twice as much has twice the score. */
static void a_part_is_shared_by_contribution(void **state)
{
    (void)state;
    unsigned char *file;
    test_model shape = shape_of("qwen2");
    vt_model *model = open_model(&shape, 1, &file);
    vt_importance_params params = usual();
    params.units = "ATTN(0)";
    params.max_tokens = 8;
    vti_importance *im = measured(model, &params);
    assert_int_equal(im->tokens, 8);
    vt_session *session = open_session(model);
    vt_token tokens[64];
    size_t count, lead = vt_model_bos(model) != VT_TOKEN_NONE;
    tokens[0] = vt_model_bos(model);
    assert_int_equal(vt_tokenize(model, documents[0], strlen(documents[0]), 0, tokens + lead,
                                 64 - lead, &count, NULL), VT_OK);
    double *whole = added(model, session->stage, 0, tokens, 8);
    for (uint32_t p = 0; p < im->first_part[1]; p++) {
        const vti_importance_part *part = &im->part_at[p];
        double size[VTI_MAX_HEAD_DIM], sum = 0;
        for (uint32_t c = 0; c < part->channels; c++) {
            vti_stage_prune_channel(session->stage, &(vti_channel){0, p, c});
            double *rest = added(model, session->stage, 0, tokens, 8);
            size[c] = 0;
            for (size_t i = 0; i < 8 * (size_t)model->hparams.d; i++)
                size[c] += (whole[i] - rest[i]) * (whole[i] - rest[i]);
            sum += size[c] = sqrt(size[c]);
            free(rest);
        }
        for (uint32_t c = 0; c < part->channels; c++) {
            double expected = im->part[p] * size[c] / sum;
            double found = im->channel[part->first_channel + c];
            if (!(fabs(found - expected) <= 2e-3 * fabs(expected)))
                fail_msg("part %u channel %u: %g is not %g", p, c, found, expected);
        }
    }
    free(whole);
    vt_session_close(session);
    vti_importance_free(im);
    vt_model_close(model);
    free(file);
}

/* --- stopping and going on -------------------------------------------------------------------- */

static bool count_down(void *user)
{
    return (*(int *)user)-- <= 0;
}

static void going_on_gives_the_same_file(void **state)
{
    (void)state;
    unsigned char *file, *other_file;
    test_model shape = shape_of("qwen2moe");
    vt_model *model = open_model(&shape, 1, &file), *other = open_model(&shape, 3, &other_file);
    vt_importance_params params = usual();
    vt_importance_stats stats;
    vt_error err;
    int patience;
    size_t bytes, again_bytes;
    const char *straight = in_folder("straight"), *broken = in_folder("broken");
    assert_int_equal(try_measure(model, &params, straight, &stats, &err), VT_OK);
    assert_int_equal(stats.resumed_runs, 0);
    unsigned char *expected = test_read_file(straight, &bytes);
    static const int steps[] = {0, 1, 5, 80};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        uint64_t resumed = 0;
        vt_status status = VT_ERR_CANCELLED;
        params.cancelled = count_down;
        params.user = &patience;
        for (int calls = 0; calls < 4 && status == VT_ERR_CANCELLED; calls++) {
            patience = steps[i];
            status = try_measure(calls % 2 ? other : model, &params, broken, &stats, &err);
            assert_true(stats.resumed_runs >= resumed);
            resumed = stats.resumed_runs;
        }
        assert_int_equal(status, VT_ERR_CANCELLED);
        params.cancelled = NULL;
        assert_int_equal(access(broken, F_OK), -1);
        assert_int_equal(try_measure(other, &params, broken, &stats, &err), VT_OK);
        if (steps[i] >= 50) assert_true(stats.resumed_runs > 0 && stats.resumed_runs < stats.runs);
        unsigned char *again = test_read_file(broken, &again_bytes);
        assert_int_equal(again_bytes, bytes);
        assert_memory_equal(again, expected, bytes);
        free(again);
        unlink(broken);
    }
    assert_int_equal(access(in_folder("broken.progress"), F_OK), -1);
    unlink(straight);
    free(expected);
    vt_model_close(model);
    vt_model_close(other);
    free(file);
    free(other_file);
}

static void progress_of_something_else(void **state)
{
    (void)state;
    unsigned char *file;
    test_model shape = shape_of("llama");
    vt_model *model = open_model(&shape, 1, &file);
    vt_error err;
    int patience = 60;
    const char *path = in_folder("p"), *progress = in_folder("p.progress");
    vt_importance_params params = usual(), other = usual();
    params.cancelled = count_down;
    params.user = &patience;
    assert_int_equal(try_measure(model, &params, path, NULL, &err), VT_ERR_CANCELLED);
    for (int i = 0; i < 5; i++) {
        other = usual();
        if (i == 0) other.task = "songs";
        if (i == 1) other.exact = true;
        if (i == 2) other.units = "FFN";
        if (i == 3) other.max_tokens = 20;
        if (i == 4) other.batch_tokens = 8;
        assert_int_equal(try_measure(model, &other, path, NULL, &err), VT_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "p.progress is the progress of another measurement"));
    }
    size_t bytes;
    unsigned char *whole = test_read_file(progress, &bytes);
    for (size_t cut = 0; cut < bytes; cut += bytes / 7) {
        FILE *f = fopen(progress, "wb");
        assert_int_equal(fwrite(whole, 1, cut, f), cut);
        fclose(f);
        other = usual();
        assert_int_equal(try_measure(model, &other, path, NULL, &err), VT_ERR_FORMAT);
        assert_non_null(strstr(err.message, "p.progress"));
    }
    for (size_t at = 0; at < bytes; at += bytes / 23 + 1) {
        FILE *f = fopen(progress, "wb");
        whole[at] ^= 0x10;
        assert_int_equal(fwrite(whole, 1, bytes, f), bytes);
        whole[at] ^= 0x10;
        fclose(f);
        other = usual();
        assert_int_equal(try_measure(model, &other, path, NULL, &err), VT_ERR_FORMAT);
    }
    free(whole);
    unlink(progress);
    vt_model_close(model);
    free(file);
}

/* --- what is refused -------------------------------------------------------------------------- */

static void assert_refused(const vt_model *model, vt_importance_params params, const char *why)
{
    vt_importance *im;
    vt_error err = {.message = ""};
    assert_int_equal(vt_importance_open(model, &params, &im, &err), VT_ERR_ARGUMENT);
    assert_null(im);
    if (!strstr(err.message, why)) fail_msg("\"%s\" does not say \"%s\"", err.message, why);
}

static void wrong_parameters(void **state)
{
    (void)state;
    unsigned char *file;
    test_model shape = shape_of("qwen2");
    vt_model *model = open_model(&shape, 1, &file);
    vt_importance *im;
    vt_error err;
    vt_importance_params params = usual();
    params.task = NULL;
    assert_refused(model, params, "a task needs a name");
    params.task = "a name of more than sixty-four bytes is a story and not a name at all";
    assert_refused(model, params, "a task needs a name");
    static const char *const units[] = {"EMBED", "ATTN(2)", "FFN(0),,HEAD", "F", "HEAD(0)"};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        params = usual();
        params.units = units[i];
        assert_refused(model, params, "the model has no unit");
    }
    params = usual();
    params.context_tokens = 1;
    assert_refused(model, params, "at least 2");
    params = usual();
    assert_int_equal(vt_importance_open(model, &params, &im, &err), VT_OK);
    assert_int_equal(vt_importance_measure(im, in_folder("none"), &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "no token to predict"));
    assert_int_equal(vt_importance_add(im, documents[0], strlen(documents[0]), &err), VT_OK);
    assert_int_equal(vt_importance_measure(im, "/nowhere/at/all", &err), VT_ERR_IO);
    assert_int_equal(vt_importance_measure(im, "README.md", &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "README.md exists and is not"));
    vt_importance_close(im);
    vt_model_close(model);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_as_by_sessions),
        cmocka_unit_test(channels_as_by_sessions),
        cmocka_unit_test(a_part_is_shared_by_contribution),
        cmocka_unit_test(going_on_gives_the_same_file),
        cmocka_unit_test(progress_of_something_else),
        cmocka_unit_test(wrong_parameters),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
