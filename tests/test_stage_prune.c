/* Units one by one, and shards and channels that are left out of them. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/model.h"
#include "../src/stage.h"
#include "model_builder.h"

enum { TOKENS = 21, BATCH = 13 };

static const char *const families[] = {"qwen2", "qwen2moe", "gemma3", "llama", "qwen3"};
enum { FAMILIES = sizeof families / sizeof families[0] };

typedef struct rig {
    unsigned char *file;
    vt_model *model;
    vti_stage *stage;
    const vti_geometry *g;
    size_t floats; /* of a residual stream */
} rig;

static rig open_rig(const test_model *shape)
{
    rig r = {0};
    size_t bytes;
    vt_error err;
    const vti_weights *layers = NULL;
    r.file = test_model_build(shape, &bytes);
    vt_model_params params = vt_model_params_default();
    params.threads = 2;
    if (vt_model_open_memory(r.file, bytes, &params, &r.model, &err) != VT_OK ||
        vti_model_layers(r.model, &layers, &err) != VT_OK)
        fail_msg("%s: %s", shape->arch, err.message);
    r.g = &r.model->geometry;
    r.floats = (size_t)TOKENS * r.g->hparams.d;
    vti_stage_params stage = {
        .kernels = &r.model->kernels, .pool = r.model->pool, .geometry = r.g, .weights = layers,
        .table = r.model->table, .context_tokens = TOKENS, .batch_tokens = BATCH,
        .kv_type = VT_KV_F32,
    };
    if (vti_stage_open(&stage, &r.stage, &err) != VT_OK) fail_msg("%s", err.message);
    return r;
}

static void close_rig(rig *r)
{
    vti_stage_close(r->stage);
    vt_model_close(r->model);
    free(r->file);
}

static float *random_stream(const rig *r)
{
    test_random random = {77};
    float *h = malloc(r->floats * sizeof *h);
    for (size_t i = 0; i < r->floats; i++) h[i] = test_random_float(&random, -1, 1);
    return h;
}

/* The stream after those units, of one before them. For free(). */
static float *after(const rig *r, const float *before, uint32_t first, uint32_t count)
{
    uint32_t d = r->g->hparams.d;
    float *h = malloc(r->floats * sizeof *h);
    memcpy(h, before, r->floats * sizeof *h);
    for (uint32_t at = 0; at < TOKENS; at += BATCH)
        vti_stage_forward_units(r->stage, first, count, h + (size_t)at * d, at,
                                TOKENS - at < BATCH ? TOKENS - at : BATCH);
    return h;
}

/* What the unit adds. For free(). */
static float *added(const rig *r, const float *before, uint32_t unit)
{
    float *h = after(r, before, unit, 1);
    for (size_t i = 0; i < r->floats; i++) h[i] -= before[i];
    return h;
}

static void prune(const rig *r, uint32_t unit, uint32_t shard, bool pruned)
{
    assert_int_equal(vti_stage_prune(r->stage, unit, shard, pruned, NULL), VT_OK);
}

static void prune_all(const rig *r, uint32_t unit, bool pruned)
{
    for (uint32_t i = 0; i < vti_unit_shards(r->g, unit); i++) prune(r, unit, i, pruned);
}

static void assert_near(const float *a, const float *b, size_t floats, const char *what)
{
    for (size_t i = 0; i < floats; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= 2e-5 * (1 + fabs((double)b[i]))))
            fail_msg("%s: %g is not %g at %zu", what, (double)a[i], (double)b[i], i);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void one_unit_after_the_other_is_all(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        test_model shape = test_model_of(families[f]);
        rig r = open_rig(&shape);
        uint32_t units = vti_head_unit(r.g);
        float *h = random_stream(&r), *all = after(&r, h, 0, units);
        for (uint32_t u = 0; u < units; u++) {
            float *next = after(&r, h, u, 1);
            free(h);
            h = next;
        }
        assert_memory_equal(h, all, r.floats * sizeof *h);
        free(h);
        free(all);
        close_rig(&r);
    }
}

/* A unit without post-norm adds the sum over its shards, so what each adds is what is missing without
 * it; without any, the stream stays as it is. */
static void shards_add_up(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        test_model shape = test_model_of(families[f]);
        rig r = open_rig(&shape);
        for (uint32_t unit = 0; unit < 2; unit++) {
            float *h = random_stream(&r), *whole = added(&r, h, unit);
            float *sum = calloc(r.floats, sizeof *sum);
            bool linear = !(r.g->hparams.experts && unit == 1) && strcmp(families[f], "gemma3");
            for (uint32_t s = 0; linear && s < vti_unit_shards(r.g, unit); s++) {
                prune(&r, unit, s, true);
                float *rest = added(&r, h, unit);
                prune(&r, unit, s, false);
                for (size_t i = 0; i < r.floats; i++) sum[i] += whole[i] - rest[i];
                free(rest);
            }
            if (linear) assert_near(sum, whole, r.floats, families[f]);
            prune_all(&r, unit, true);
            float *none = after(&r, h, unit, 1);
            assert_memory_equal(none, h, r.floats * sizeof *h);
            prune_all(&r, unit, false);
            float *again = added(&r, h, unit);
            assert_memory_equal(again, whole, r.floats * sizeof *whole);
            free(none);
            free(again);
            free(sum);
            free(whole);
            free(h);
        }
        close_rig(&r);
    }
}

/* A shard is its channels. */
static void channels_add_up(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        test_model shape = test_model_of(families[f]);
        if (strcmp(families[f], "gemma3") == 0) continue; /* its post-norm is not linear */
        rig r = open_rig(&shape);
        for (uint32_t unit = 2; unit < 4; unit++) {
            uint32_t shard = unit == 3 && r.g->hparams.experts ? r.g->hparams.experts : 1;
            float *h = random_stream(&r), *whole = added(&r, h, unit);
            float *sum = calloc(r.floats, sizeof *sum);
            uint32_t channels = vti_shard_channels(r.g, unit, shard);
            for (uint32_t c = 0; c < channels; c++) {
                vti_stage_prune_channel(r.stage, &(vti_channel){unit, shard, c});
                float *rest = added(&r, h, unit);
                for (size_t i = 0; i < r.floats; i++) sum[i] += whole[i] - rest[i];
                free(rest);
            }
            vti_stage_prune_channel(r.stage, NULL);
            prune(&r, unit, shard, true);
            float *rest = added(&r, h, unit);
            for (size_t i = 0; i < r.floats; i++) rest[i] = whole[i] - rest[i];
            assert_near(sum, rest, r.floats, families[f]);
            free(rest);
            free(sum);
            free(whole);
            free(h);
        }
        close_rig(&r);
    }
}

/* What the mixture of layer 0 adds when these experts, one bit each, are left. */
static float *with_experts(const rig *r, const float *h, unsigned left)
{
    uint32_t experts = r->g->hparams.experts;
    for (uint32_t e = 0; e < experts; e++) prune(r, 1, e, !(left >> e & 1));
    float *out = added(r, h, 1);
    for (uint32_t e = 0; e < experts; e++) prune(r, 1, e, false);
    return out;
}

/* A router that finds all experts alike gives 1/n to each of the first three that are left of n. */
static void the_router_chooses_among_the_others(void **state)
{
    (void)state;
    test_model shape = test_model_of("qwen2moe");
    shape.edits[0] = (test_edit){.kind = TEST_TENSOR_FILL, .name = "blk.0.ffn_gate_inp.weight"};
    rig r = open_rig(&shape);
    float *h = random_stream(&r), *shared = with_experts(&r, h, 0);
    static const unsigned sets[] = {0xff, 0xfe, 0xed, 0x84, 0x40};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        float *expected = malloc(r.floats * sizeof *expected);
        memcpy(expected, shared, r.floats * sizeof *expected);
        unsigned left = (unsigned)__builtin_popcount(sets[i]), chosen = 0;
        for (unsigned e = 0; e < 8 && chosen < 3; e++) {
            if (!(sets[i] >> e & 1)) continue;
            float *alone = with_experts(&r, h, 1u << e);
            for (size_t k = 0; k < r.floats; k++)
                expected[k] += (alone[k] - shared[k]) / (float)left;
            free(alone);
            chosen++;
        }
        float *found = with_experts(&r, h, sets[i]);
        assert_near(found, expected, r.floats, "experts");
        free(found);
        free(expected);
    }
    free(shared);
    free(h);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_unit_after_the_other_is_all),
        cmocka_unit_test(shards_add_up),
        cmocka_unit_test(channels_add_up),
        cmocka_unit_test(the_router_chooses_among_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
