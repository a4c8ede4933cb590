/* The precision of a model's units changed while it is open: the same as if it had been opened so,
 * also while tokens are drawn; and what happens when loading fails. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/model_shards.h"
#include "model_builder.h"

static const char default_model[] = "src/assets/stories-4m-f16.gguf";
enum { PROMPT = 7 };
static const vt_token prompt[PROMPT] = {11, 42, 7, 100, 3, 200, 99};

static vt_model *open_default(const char *precision)
{
    vt_model *model;
    vt_error err;
    vt_model_params params = vt_model_params_default();
    params.threads = 2;
    params.precision = precision;
    if (vt_model_open(default_model, &params, &model, &err) != VT_OK) fail_msg("%s", err.message);
    return model;
}

static vt_session *open_session(const vt_model *model)
{
    vt_session *session;
    vt_error err;
    vt_session_params params = vt_session_params_default();
    params.context_tokens = 256;
    params.batch_tokens = 4;
    params.sampling.temperature = 0;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    return session;
}

/* Logits after the prompt, computed anew; for free(). */
static float *logits_of(const vt_model *model, vt_session *session)
{
    vt_model_info info;
    const float *logits;
    vt_model_get_info(model, &info);
    assert_int_equal(vt_session_rewind(session, 0, NULL), VT_OK);
    assert_int_equal(vt_session_feed(session, prompt, PROMPT, NULL), VT_OK);
    assert_int_equal(vt_session_logits(session, &logits, NULL), VT_OK);
    float *copy = malloc(info.vocabulary_tokens * sizeof *copy);
    memcpy(copy, logits, info.vocabulary_tokens * sizeof *copy);
    return copy;
}

static bool alike(const vt_model *model, const float *a, const float *b)
{
    vt_model_info info;
    vt_model_get_info(model, &info);
    return memcmp(a, b, info.vocabulary_tokens * sizeof *a) == 0;
}

typedef struct endings {
    _Atomic int fine, cancelled, failed;
    char sentence[256]; /* of the last that failed */
} endings;

static void note_end(void *user, uint32_t unit, vti_precision precision, vt_status status,
                     const char *sentence)
{
    endings *e = user;
    (void)unit;
    (void)precision;
    if (status == VT_OK) {
        e->fine++;
    } else if (status == VT_ERR_CANCELLED) {
        e->cancelled++;
    } else {
        e->failed++;
        snprintf(e->sentence, sizeof e->sentence, "%s", sentence);
    }
}

static uint32_t changing_units(const vt_model *model) { return vti_head_unit(&model->geometry) + 1; }

static void change_all(vt_model *model, vti_precision precision, endings *e)
{
    vt_error err;
    for (uint32_t unit = 0; unit < changing_units(model); unit++)
        if (vti_model_set_precision(model, unit, precision, 0, note_end, e, &err) != VT_OK)
            fail_msg("%s", err.message);
}

static void check_all_at(const vt_model *model, vti_precision precision)
{
    for (uint32_t unit = 0; unit < changing_units(model); unit++) {
        uint32_t at[VTI_PRECISION_COUNT];
        assert_int_equal(vti_model_count_precisions(model, unit, at, NULL), VT_OK);
        assert_int_equal(at[precision], vti_unit_shards(&model->geometry, unit));
    }
}

static void as_if_opened_so(vt_model *model, vt_model *other, vti_precision precision)
{
    endings e = {0};
    vt_session *session = open_session(model), *expected = open_session(other);
    float *before = logits_of(model, session), *wanted = logits_of(other, expected);
    assert_false(alike(model, before, wanted));
    change_all(model, precision, &e);
    vti_shard_loader_wait(model->loader);
    assert_int_equal(e.fine, changing_units(model));
    check_all_at(model, precision);
    float *after = logits_of(model, session);
    assert_true(alike(model, after, wanted));
    free(after);

    change_all(model, model->composition.precision[0], &e); /* and back, at once */
    vti_shard_loader_finish(model->loader);
    after = logits_of(model, session);
    assert_true(alike(model, after, before));
    free(after);
    free(before);
    free(wanted);
    vt_session_close(session);
    vt_session_close(expected);
}

static void every_precision(void **state)
{
    (void)state;
    static const char *const names[] = {"I8", "I4"};
    for (int i = 0; i < 2; i++) {
        vt_model *model = open_default(NULL), *other = open_default(names[i]);
        as_if_opened_so(model, other, (vti_precision)(VTI_PRECISION_I8 + i));
        vt_model_close(model);
        vt_model_close(other);
    }
}

static void experts(void **state)
{
    (void)state;
    vt_model *model, *other;
    size_t bytes;
    test_model description = test_model_of("qwen2moe");
    unsigned char *file = test_model_build(&description, &bytes);
    vt_model_params params = vt_model_params_default();
    assert_int_equal(vt_model_open_memory(file, bytes, &params, &model, NULL), VT_OK);
    params.precision = "I4";
    assert_int_equal(vt_model_open_memory(file, bytes, &params, &other, NULL), VT_OK);
    as_if_opened_so(model, other, VTI_PRECISION_I4);
    vt_model_close(model);
    vt_model_close(other);
    free(file);
}

/* --- while tokens are drawn -------------------------------------------------------------------- */

typedef struct writer {
    vt_session *session;
    _Atomic bool stop;
    _Atomic int drawn;
    bool fine;
} writer;

static void *draw(void *argument)
{
    writer *w = argument;
    w->fine = true;
    while (!w->stop && w->fine) {
        vt_token token;
        w->fine = vt_session_rewind(w->session, 0, NULL) == VT_OK &&
                  vt_session_feed(w->session, prompt, PROMPT, NULL) == VT_OK;
        for (int i = 0; i < 20 && w->fine && !w->stop; i++, w->drawn++)
            w->fine = vt_session_next(w->session, &token, NULL) == VT_OK;
    }
    return NULL;
}

/* Two sessions draw, plans come faster than they can be carried out, the last one stands. */
static void beside_computing(void **state)
{
    (void)state;
    vt_model *model = open_default(NULL), *other = open_default("I8");
    endings e = {0};
    writer w[2] = {{open_session(model), false, 0, false}, {open_session(model), false, 0, false}};
    pthread_t thread[2];
    int changes = 0;
    assert_int_equal(vti_model_open_loader(model, VTI_PACE_EQUAL, 0, NULL), VT_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, draw, &w[i]), 0);
    for (int i = 0; i < 7; i++, changes++) {
        change_all(model, (vti_precision)(i % 3), &e);
        if (i == 3) vti_model_cancel_precision(model, 2);
        if (i % 2) vti_shard_loader_wait(model->loader);
    }
    change_all(model, VTI_PRECISION_I8, &e);
    changes++;
    vti_shard_loader_wait(model->loader);
    for (int i = 0; i < 2; i++) {
        w[i].stop = true;
        pthread_join(thread[i], NULL);
        assert_true(w[i].fine && w[i].drawn > 0);
    }
    assert_int_equal(e.fine + e.cancelled, changes * (int)changing_units(model));
    assert_int_equal(e.failed, 0);
    check_all_at(model, VTI_PRECISION_I8);
    vt_session *expected = open_session(other);
    float *is = logits_of(model, w[0].session), *should = logits_of(other, expected);
    assert_true(alike(model, is, should));
    free(is);
    free(should);
    vt_session_close(expected);
    for (int i = 0; i < 2; i++) vt_session_close(w[i].session);
    vt_model_close(model);
    vt_model_close(other);
}

/* --- failures ---------------------------------------------------------------------------------- */

/* A source with one damaged shard. */
typedef struct damaged_source {
    vti_shard_source source;
    const vti_shard_source *whole;
} damaged_source;

static bool damaged_form(void *self, vti_shard_id id, vti_shard_form *out)
{
    const damaged_source *d = self;
    return d->whole->form(d->whole->self, id, out);
}

static vt_status damaged_load(void *self, vti_shard_id id, void *memory, vt_error *err)
{
    const damaged_source *d = self;
    if (id.unit == 3 && id.shard == 1) return vti_fail(err, VT_ERR_FORMAT, "a wrong checksum");
    return d->whole->load(d->whole->self, id, memory, err);
}

static void a_damaged_shard(void **state)
{
    (void)state;
    vt_model *model = open_default(NULL);
    vt_session *session = open_session(model);
    endings e = {0};
    damaged_source d = {*model->shards, model->shards};
    d.source.self = &d;
    d.source.form = damaged_form;
    d.source.load = damaged_load;
    model->shards = &d.source;
    change_all(model, VTI_PRECISION_I8, &e);
    vti_shard_loader_wait(model->loader);
    assert_int_equal(e.failed, 1);
    assert_int_equal(e.fine, changing_units(model) - 1);
    assert_string_equal(e.sentence,
                        "FFN(1) shard 1 at precision I8 was not loaded: a wrong checksum");
    uint32_t at[VTI_PRECISION_COUNT];
    assert_int_equal(vti_model_count_precisions(model, 3, at, NULL), VT_OK);
    assert_int_equal(at[VTI_PRECISION_F16], 1);
    assert_int_equal(at[VTI_PRECISION_I8], vti_unit_shards(&model->geometry, 3) - 1);
    free(logits_of(model, session)); /* it goes on */
    vt_session_close(session);
    vt_model_close(model);
}

static void note_status(void *user, vti_shard_id id, vt_status status, const char *sentence)
{
    endings *e = user;
    (void)id;
    if (status == VT_ERR_MEMORY) e->failed++;
    snprintf(e->sentence, sizeof e->sentence, "%s", sentence);
}

static void over_budget(void **state)
{
    (void)state;
    vt_model *model = open_default(NULL);
    vt_session *session = open_session(model);
    vti_budget budget;
    endings e = {0};
    vti_shard_loader *loader;
    vti_budget_init(&budget, 4096);
    vti_shard_supplier supplier = {model->shards,
                                   vti_shard_memory_open(&budget, VTI_BUDGET_WEIGHTS)};
    vti_shard_loader_params params = {model->table, vti_shard_supply_of(&supplier), VTI_PACE_EQUAL,
                                      0};
    vti_load_request request = {.id = {1, 0, VTI_PRECISION_I8}, .done = note_status, .user = &e};
    assert_int_equal(vti_shard_loader_open(&params, &loader, NULL), VT_OK);
    assert_int_equal(vti_shard_loader_request(loader, &request, NULL, NULL), VT_OK);
    vti_shard_loader_wait(loader);
    assert_int_equal(e.failed, 1);
    assert_memory_equal(e.sentence, "FFN(0) shard 0 at precision I8 was not loaded: ", 47);
    assert_int_equal(vti_shard_table_get(model->table, 1, 0)->id.precision, VTI_PRECISION_F16);
    assert_int_equal(vti_budget_get(&budget).total_bytes, 0);
    vti_shard_loader_close(loader);
    vti_shard_memory_close(supplier.memory);
    vt_session_close(session);
    vt_model_close(model);
}

static void refused(vt_model *model, uint32_t unit, vti_precision precision, const char *sentence)
{
    vt_error err;
    assert_int_equal(vti_model_set_precision(model, unit, precision, 0, NULL, NULL, &err),
                     VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, sentence));
}

static void what_cannot_be(void **state)
{
    (void)state;
    vt_model *model = open_default("I8");
    uint32_t units = model->geometry.units;
    refused(model, 0, VTI_PRECISION_I8, "unit 0 is not loaded");
    vt_session *session = open_session(model);
    refused(model, units, VTI_PRECISION_I8, "of a model of");
    refused(model, vti_embed_unit(&model->geometry), VTI_PRECISION_I8, "is not loaded");
    refused(model, 0, VTI_PRECISION_COUNT, "there is no precision 3");
    vt_session_close(session);
    vt_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_precision),  cmocka_unit_test(experts),
        cmocka_unit_test(beside_computing), cmocka_unit_test(a_damaged_shard),
        cmocka_unit_test(over_budget),      cmocka_unit_test(what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
