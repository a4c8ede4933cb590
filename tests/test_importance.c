/* Importances: parts of every family, files whole and wrong, what the planner gets. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/importance.h"
#include "../src/plan_model.h"
#include "model_builder.h"

static const char *const families[] = {"qwen2", "qwen2moe", "gemma3", "llama", "qwen3"};
enum { FAMILIES = sizeof families / sizeof families[0] };

static vti_geometry geometry_of(const test_model *shape)
{
    size_t bytes;
    unsigned char *file = test_model_build(shape, &bytes);
    vt_gguf *gguf;
    vti_hparams hparams;
    vti_geometry g;
    vt_error err;
    char path[] = "/tmp/voltron-importance-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, file, bytes), (ssize_t)bytes);
    close(fd);
    if (vt_gguf_open(path, &gguf, &err) != VT_OK || vti_hparams_read(gguf, &hparams, &err) != VT_OK)
        fail_msg("%s", err.message);
    vti_geometry_init(&g, &hparams, false);
    vt_gguf_close(gguf);
    unlink(path);
    free(file);
    return g;
}

static vti_importance *new_importance(const vti_geometry *g)
{
    vti_importance *im;
    assert_int_equal(vti_importance_new(g, &im, NULL), VT_OK);
    return im;
}

/* As if it had been measured, but for one unit. */
static vti_importance *invented(const vti_geometry *g, uint32_t without)
{
    test_random random = {5};
    vti_importance *im = new_importance(g);
    strcpy(im->task, "tales \"and\" more");
    for (unsigned i = 0; i < VTI_IDENTITY_BYTES; i++) {
        im->identity.shape[i] = (uint8_t)(i * 7);
        im->identity.weights[i] = (uint8_t)(255 - i);
        im->text[i] = (uint8_t)(i * i);
    }
    im->precision = VTI_PRECISION_I8;
    im->tokens = 1234567;
    im->context_tokens = 256;
    im->perplexity = 7.25;
    for (uint32_t unit = 0; unit < im->units; unit++) {
        im->measured[unit] = unit != without;
        for (uint32_t p = im->first_part[unit]; p < im->first_part[unit + 1]; p++) {
            const vti_importance_part *part = &im->part_at[p];
            if (unit == without) continue;
            im->part[p] = (double)test_random_float(&random, -0.01f, 1);
            im->unit[unit] += im->part[p];
            for (uint32_t c = 0; c < part->channels; c++)
                im->channel[part->first_channel + c] = im->part[p] / part->channels;
        }
    }
    return im;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void parts_cover_the_model(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        test_model shape = test_model_of(families[f]);
        vti_geometry g = geometry_of(&shape);
        const vti_hparams *p = &g.hparams;
        vti_importance *im = new_importance(&g);
        assert_int_equal(im->units, 2 * p->layers + 1);
        uint64_t channel = 0;
        for (uint32_t unit = 0; unit < im->units; unit++) {
            uint32_t parts = im->first_part[unit + 1] - im->first_part[unit];
            uint64_t before = channel;
            for (uint32_t i = 0; i < parts; i++) {
                const vti_importance_part *part = &im->part_at[im->first_part[unit] + i];
                assert_int_equal(part->unit, unit);
                assert_int_equal(part->part, i);
                assert_int_equal(part->first_channel, channel);
                channel += part->channels;
            }
            if (unit != vti_head_unit(&g)) assert_int_equal(parts, vti_unit_shards(&g, unit));
            uint64_t expected = unit == vti_head_unit(&g) ? p->d
                                : unit % 2 ? (uint64_t)p->experts * p->expert_ff + p->ff
                                           : (uint64_t)p->heads * p->head_dim;
            assert_int_equal(channel - before, expected);
        }
        assert_int_equal(channel, im->channels);
        vti_importance_free(im);
    }
}

static void files_keep_everything(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        test_model shape = test_model_of(families[f]);
        vti_geometry g = geometry_of(&shape);
        vti_importance *im = invented(&g, 3), *back = new_importance(&g);
        char *text = vti_importance_write_json(im, &g);
        vt_error err = {.message = ""};
        if (vti_importance_read_json(text, strlen(text), &g, &im->identity, back, &err) != VT_OK)
            fail_msg("%s", err.message);
        assert_string_equal(back->task, im->task);
        assert_memory_equal(&back->identity, &im->identity, sizeof im->identity);
        assert_memory_equal(back->text, im->text, sizeof im->text);
        assert_memory_equal(back->measured, im->measured, im->units);
        assert_int_equal(back->precision, im->precision);
        assert_int_equal(back->tokens, im->tokens);
        assert_int_equal(back->context_tokens, im->context_tokens);
        assert_true(back->perplexity == im->perplexity && !back->exact);
        for (uint32_t u = 0; u < im->units; u++)
            assert_true(fabs(back->unit[u] - im->unit[u]) <= 1e-8 * fabs(im->unit[u]));
        for (uint32_t p = 0; p < im->parts; p++)
            assert_true(fabs(back->part[p] - im->part[p]) <= 1e-8 * fabs(im->part[p]));
        for (uint64_t c = 0; c < im->channels; c++)
            assert_true(fabs(back->channel[c] - im->channel[c]) <= 1e-3 * fabs(im->channel[c]));
        char *again = vti_importance_write_json(back, &g);
        assert_string_equal(again, text);
        free(again);
        free(text);
        vti_importance_free(back);
        vti_importance_free(im);
    }
}

static void the_planner_gets_experts_in_its_numbering(void **state)
{
    (void)state;
    static float shard[VTI_PLAN_UNITS_MAX][VTI_PLAN_PRUNABLE_MAX];
    test_model shape = test_model_of("qwen2moe");
    vti_geometry g = geometry_of(&shape);
    vti_importance *im = invented(&g, UINT32_MAX);
    vti_plan_importance plan;
    vt_error err;
    assert_int_equal(vti_importance_for_plan(im, &g, shard, &plan, &err), VT_OK);
    assert_true(plan.unit[0] == 0); /* EMBED */
    for (uint32_t unit = 0; unit < im->units; unit++) {
        unsigned u = vti_plan_unit_of(&g, unit);
        assert_true(plan.unit[u] == im->unit[unit]);
        for (uint32_t i = 0; i < im->first_part[unit + 1] - im->first_part[unit]; i++)
            assert_true(plan.shard[u][i] == (float)im->part[im->first_part[unit] + i]);
    }
    im->part[0] = 1e300;
    im->part[1] = -1e300;
    assert_int_equal(vti_importance_for_plan(im, &g, shard, &plan, &err), VT_OK);
    assert_true(isfinite(plan.shard[1][0]) && isfinite(plan.shard[1][1]));
    im->measured[4] = false;
    assert_int_equal(vti_importance_for_plan(im, &g, shard, &plan, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "ATTN(2)"));
    vti_importance_free(im);
}

typedef struct change {
    const char *from, *to; /* of the text, the first such place */
    const char *complaint;
} change;

static const change changes[] = {
    {"{\"format\"", "{\"form\"", "not a file of importances"},
    {"voltron-importance", "voltron-plan", "not a file of importances"},
    {"\"version\":1", "\"version\":2", "another version"},
    {"\"task\":\"tales", "\"task\":7,\"x\":\"tales", "\"task\" must be a text"},
    {"\"task\":\"tales \\\"and\\\" more\"", "\"task\":\"\"", "1 to 64 bytes"},
    {"\"I8\"", "\"I5\"", "\"precision\" must be F16, I8 or I4"},
    {"\"shards\"", "\"guess\"", "\"method\" must be shards or channels"},
    {"1234567", "0", "\"tokens\" must be a whole number above 0"},
    {"1234567", "12.5", "\"tokens\" must be a whole number above 0"},
    {"\"context\":256", "\"context\":5000000000", "\"context\" must be"},
    {"7.25", "0.5", "\"perplexity\" must be"},
    {"7.25", "null", "\"perplexity\" must be"},
    {"\"model_shape\":\"00", "\"model_shape\":\"0", "\"model_shape\" must be 64"},
    {"\"model_weights\":\"ff", "\"model_weights\":\"fg", "\"model_weights\" must be 64"},
    {"\"units\"", "\"unit\"", "\"units\" must be a list"},
    {"\"ATTN(1)\"", "\"ATTN(0)\"", "ATTN(0) is there twice"},
    {"\"ATTN(1)\"", "\"EMBED\"", "no unit \"EMBED\" to prune"},
    {"\"ATTN(1)\"", "\"ATTN(6)\"", "no unit \"ATTN(6)\""},
    {"\"unit\":\"ATTN(1)\"", "\"unit\":null", "\"unit\" must be the name of a unit"},
    {"\"score\":", "\"score\":null,\"x\":", "ATTN(0): \"score\" must be a number"},
    {"\"parts\":[", "\"parts\":[1,", "ATTN(0): \"parts\" must be a list of 2 numbers"},
    {"\"parts\":[", "\"parts\":[\"1\"],\"x\":[", "ATTN(0): \"parts\" must be a list of 2 numbers"},
    {"\"channels\":[[", "\"channels\":[[],[", "ATTN(0): \"channels\" must be a list of numbers"},
    {"\"channels\":[[", "\"channels\":[[1e3,", "ATTN(0): \"channels\" must be a list of 32"},
    {"\"score\":", "\"score\":1e101,\"x\":", "ATTN(0): \"score\" must be a number"},
    {"\"score\":", "\"score\":1e999,\"x\":", "this is no JSON"},
    {"]}\n", "]", "this is no JSON"},
};

static char *changed(const char *text, const change *c)
{
    const char *at = strstr(text, c->from);
    if (!at) fail_msg("\"%s\" is not in the file", c->from);
    char *out = malloc(strlen(text) + strlen(c->to) + 1);
    size_t before = (size_t)(at - text);
    memcpy(out, text, before);
    strcpy(out + before, c->to);
    strcat(out, at + strlen(c->from));
    return out;
}

static void wrong_files_are_told_why(void **state)
{
    (void)state;
    test_model shape = test_model_of("qwen2");
    vti_geometry g = geometry_of(&shape);
    vti_importance *im = invented(&g, UINT32_MAX), *back = new_importance(&g);
    char *text = vti_importance_write_json(im, &g);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        vt_error err = {.message = ""};
        char *wrong = changed(text, &changes[i]);
        vt_status status = vti_importance_read_json(wrong, strlen(wrong), &g, NULL, back, &err);
        if (status == VT_OK || !strstr(err.message, changes[i].complaint))
            fail_msg("%s → %s: \"%s\", not \"%s\"", changes[i].from, changes[i].to, err.message,
                     changes[i].complaint);
        free(wrong);
    }
    free(text);
    vti_importance_free(back);
    vti_importance_free(im);
}

static void files_are_of_one_model(void **state)
{
    (void)state;
    char path[] = "/tmp/voltron-importance-XXXXXX";
    test_model shape = test_model_of("qwen2"), other = test_model_of("qwen3");
    vti_geometry g = geometry_of(&shape), other_g = geometry_of(&other);
    vti_importance *im = invented(&g, UINT32_MAX), *back;
    char *text = vti_importance_write_json(im, &g);
    vt_error err;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(vti_importance_load(path, &g, &im->identity, &back, &err), VT_OK);
    vti_importance_free(back);
    vti_model_identity identity = im->identity;
    identity.weights[3] ^= 1;
    assert_int_equal(vti_importance_load(path, &g, &identity, &back, &err), VT_ERR_ARGUMENT);
    assert_null(back);
    assert_non_null(strstr(err.message, "another model: its weights differ"));
    identity.shape[3] ^= 1;
    assert_int_equal(vti_importance_load(path, &other_g, &identity, &back, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "hyperparameters or tokenizer differ"));
    assert_non_null(strstr(err.message, path));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(vti_importance_load(path, &g, &identity, &back, &err), VT_ERR_FORMAT);
    close(fd);
    unlink(path);
    assert_int_equal(vti_importance_load(path, &g, &identity, &back, &err), VT_ERR_IO);
    free(text);
    vti_importance_free(im);
}

static void the_default_models_file(void **state)
{
    (void)state;
    static float shard[VTI_PLAN_UNITS_MAX][VTI_PLAN_PRUNABLE_MAX];
    vt_gguf *gguf;
    vti_hparams hparams;
    vti_geometry g;
    vti_model_identity identity;
    vti_importance *im;
    vti_plan_importance plan;
    vt_error err;
    assert_int_equal(vt_gguf_open("src/assets/stories-4m-f16.gguf", &gguf, &err), VT_OK);
    assert_int_equal(vti_hparams_read(gguf, &hparams, &err), VT_OK);
    vti_geometry_init(&g, &hparams, false);
    vti_model_identity_of(gguf, &identity);
    vt_gguf_close(gguf);
    if (vti_importance_load("tests/data/default.importance", &g, &identity, &im, &err) != VT_OK ||
        vti_importance_for_plan(im, &g, shard, &plan, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_true(!im->exact && im->precision == VTI_PRECISION_F16);
    assert_true(im->perplexity > 4 && im->perplexity < 8);
    for (uint32_t p = 0; p < im->parts; p++) {
        double sum = 0;
        for (uint32_t c = 0; c < im->part_at[p].channels; c++)
            sum += im->channel[im->part_at[p].first_channel + c];
        assert_true(fabs(sum - im->part[p]) < 1e-3 * fabs(im->part[p]) + 1e-6);
    }
    vti_importance_free(im);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_the_model),
        cmocka_unit_test(files_keep_everything),
        cmocka_unit_test(the_planner_gets_experts_in_its_numbering),
        cmocka_unit_test(wrong_files_are_told_why),
        cmocka_unit_test(files_are_of_one_model),
        cmocka_unit_test(the_default_models_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
