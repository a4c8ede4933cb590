/* A model as the planner sees it has the bytes and the work that the runtime has. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/model.h"
#include "../src/plan_model.h"
#include "../src/stage.h"
#include "model_builder.h"

static const char *const families[] = {"qwen2", "llama", "qwen3", "gemma3", "qwen2moe"};
enum { FAMILIES = sizeof families / sizeof families[0], CONTEXT = 40, BATCH = 4 };

typedef struct opened {
    unsigned char *data;
    vt_model *model;
    vti_plan_model plan;
    vti_plan_model_params params;
} opened;

static void open_model(opened *o, const test_model *shape, vt_kv_type kv_type)
{
    size_t bytes;
    vt_error err = {0};
    vt_model_params params = vt_model_params_default();
    params.threads = 1;
    o->data = test_model_build(shape, &bytes);
    if (vt_model_open_memory(o->data, bytes, &params, &o->model, &err)) fail_msg("%s", err.message);
    o->params = (vti_plan_model_params){CONTEXT, BATCH, kv_type};
    if (vti_plan_model_of(o->model->shards, &o->params, &o->plan, &err))
        fail_msg("%s", err.message);
}

static void close_model(opened *o)
{
    vt_model_close(o->model);
    free(o->data);
}

static const vti_plan_class *class_of(const opened *o, unsigned plan_unit)
{
    return &o->plan.class_[o->plan.unit_class[plan_unit]];
}

/* As the planner reckons. */
static double unit_bytes(const vti_plan_class *c, vti_precision p, double context)
{
    double rows = c->window > 0 && c->window < context ? c->window : context;
    return c->shards * (c->weight_bytes[p] + c->always_bytes[p] + c->kv_bytes * rows) +
           c->shared_bytes;
}

static double weight_bytes(const vti_shard_source *source, uint32_t unit, vti_precision p)
{
    vti_composition composition;
    assert_int_equal(vti_composition_open(source, p, &composition, NULL), VT_OK);
    uint64_t bytes = vti_weights_bytes(source, &composition, unit, 1);
    vti_composition_close(&composition);
    return (double)bytes;
}

/* The bytes of every unit with its KV rows, not less than what is taken, and hardly more. */
static void bytes_are_those_of_the_runtime(void **state)
{
    (void)state;
    static const vt_kv_type types[] = {VT_KV_F16, VT_KV_F32, VT_KV_Q8};
    for (int f = 0; f < FAMILIES; f++)
        for (int t = 0; t < 3; t++) {
            opened o;
            test_model shape = test_model_of(families[f]);
            shape.ff = 2112; /* its last shard is narrower: bytes per shard are no whole number */
            open_model(&o, &shape, types[t]);
            const vti_geometry *g = &o.model->geometry;
            vti_stage_params stage = {.kernels = &o.model->kernels, .geometry = g,
                                      .context_tokens = CONTEXT, .batch_tokens = BATCH,
                                      .kv_type = types[t]};
            for (uint32_t u = 0; u < vti_embed_unit(g); u++) {
                const vti_plan_class *c = class_of(&o, vti_plan_unit_of(g, u));
                for (unsigned p = 0; p < VTI_PRECISION_COUNT; p++) {
                    double taken = weight_bytes(o.model->shards, u, p);
                    if (vti_unit_kind_of(g, u) == VTI_UNIT_ATTN)
                        taken += (double)vti_stage_size(&stage, vti_unit_layer(u), 1).kv_bytes;
                    double planned = unit_bytes(c, p, CONTEXT);
                    if (planned < taken || planned > taken + 3.0 * c->shards * (1 + CONTEXT))
                        fail_msg("%s unit %u at %s: %.0f planned, %.0f taken", families[f], u,
                                 vti_precision_name(p), planned, taken);
                }
            }
            close_model(&o);
        }
}

/* Multiply-accumulates of a token: all shards', of experts the active ones'. */
static void work_is_that_of_the_shards(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        opened o;
        test_model shape = test_model_of(families[f]);
        open_model(&o, &shape, VT_KV_F16);
        const vti_geometry *g = &o.model->geometry;
        for (uint32_t u = 0; u < vti_embed_unit(g); u++) {
            const vti_plan_class *c = class_of(&o, vti_plan_unit_of(g, u));
            double macs = 0, planned = c->shards * (c->macs + c->always_macs);
            for (uint32_t s = 0; s < vti_unit_shards(g, u); s++)
                macs += (double)vti_shard_macs(g, u, s);
            assert_true(planned > 0.999999 * macs && planned < 1.000001 * macs);
            assert_true(c->input_width == g->hparams.d);
            /* Of HEAD, candidates come back: number and logit of 64. */
            bool head = vti_unit_kind_of(g, u) == VTI_UNIT_HEAD;
            assert_true(c->output_width == (head ? 128 : g->hparams.d));
        }
        const vti_plan_class *attention = class_of(&o, 1), *ffn = class_of(&o, 2);
        assert_true(attention->kv_macs * attention->shards ==
                    2.0 * g->hparams.heads * g->hparams.head_dim);
        assert_int_equal(ffn->active_shards, g->hparams.experts ? g->hparams.experts_used : 0);
        assert_int_equal(ffn->kind, g->hparams.experts ? VTI_PLAN_MOE : VTI_PLAN_FFN);
        close_model(&o);
    }
}

static void units_are_numbered_both_ways(void **state)
{
    (void)state;
    opened o;
    test_model shape = test_model_of("gemma3");
    open_model(&o, &shape, VT_KV_F16);
    const vti_geometry *g = &o.model->geometry;
    assert_int_equal(o.plan.units, g->units);
    assert_int_equal(vti_plan_unit_of(g, vti_embed_unit(g)), 0);
    assert_int_equal(vti_plan_unit_of(g, vti_head_unit(g)), g->units - 1);
    for (unsigned u = 0; u < g->units; u++)
        assert_int_equal(vti_plan_unit_of(g, vti_unit_of_plan(g, u)), u);
    assert_int_equal(class_of(&o, 0)->kind, VTI_PLAN_EMBED);
    assert_int_equal(class_of(&o, g->units - 1)->kind, VTI_PLAN_HEAD);
    for (uint32_t layer = 0; layer < g->hparams.layers; layer++) {
        double window = vti_layer_is_local(&g->hparams, layer) ? g->hparams.window : 0;
        assert_true(class_of(&o, vti_plan_unit_of(g, vti_attn_unit(layer)))->window == window);
    }
    close_model(&o);
}

/* The planner takes it: a search on one device with just enough memory, and with a byte less. */
static void the_planner_takes_it(void **state)
{
    (void)state;
    static vti_plan_cluster cluster;
    static vti_plan plan;
    for (int f = 0; f < FAMILIES; f++) {
        opened o;
        unsigned where;
        test_model shape = test_model_of(families[f]);
        open_model(&o, &shape, VT_KV_F16);
        memset(&cluster, 0, sizeof cluster);
        cluster.devices = 1;
        for (unsigned kind = 0; kind < VTI_PLAN_KINDS; kind++)
            for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
                for (unsigned phase = 0; phase < VTI_PHASES; phase++)
                    cluster.device[0].cost[kind][p][phase].per_mac = 1e-9;
        vti_plan_request request = {.cluster = &cluster, .model = &o.plan, .prompt_tokens = 8,
                                    .context_tokens = CONTEXT, .ttft_s = 10, .tpot_s = 1};
        for (unsigned u = 0; u < o.plan.units; u++)
            cluster.device[0].memory_bytes += unit_bytes(class_of(&o, u), VTI_PRECISION_F16,
                                                         CONTEXT);
        assert_null(vti_plan_check_request(&request, &where));
        void *scratch = malloc(vti_plan_scratch_bytes());
        assert_true(vti_plan_search(&request, VTI_SEARCH_DP, NULL, scratch, &plan));
        assert_null(vti_plan_check(&request, &plan, &where));
        cluster.device[0].memory_bytes -= 1;
        assert_false(vti_plan_search(&request, VTI_SEARCH_DP, NULL, scratch, &plan));
        free(scratch);
        close_model(&o);
    }
}

/* A source whose layers all have other types. */
typedef struct varied {
    vti_shard_source source;
    const vti_shard_source *real;
} varied;

static bool varied_form(void *self, vti_shard_id id, vti_shard_form *out)
{
    const vti_shard_source *real = ((varied *)self)->real;
    if (!real->form(real->self, id, out)) return false;
    uint32_t layer = vti_unit_layer(id.unit), piece = id.unit % 2 ? VTI_PIECE_UP : VTI_PIECE_V;
    bool matrix = id.unit < vti_head_unit(real->geometry) &&
                  id.shard < vti_unit_shards(real->geometry, id.unit);
    for (unsigned i = 0; matrix && i < 5; i++) /* one of 32 mixtures */
        if (layer >> i & 1 && out->type[(piece + i) % 3] != VTI_PIECE_ABSENT)
            out->type[(piece + i) % 3] = i % 2 ? VTI_Q8_0 : VTI_F32;
    return true;
}

/* More kinds of layers than there are classes: none is planned with less than it takes. */
static void many_kinds_of_layers_share_classes(void **state)
{
    (void)state;
    opened o;
    vt_error err = {0};
    test_model shape = test_model_of("gemma3");
    shape.layers = 32;
    open_model(&o, &shape, VT_KV_F16);
    varied v = {.source = *o.model->shards, .real = o.model->shards};
    v.source.self = &v;
    v.source.form = varied_form;
    assert_int_equal(vti_plan_model_of(&v.source, &o.params, &o.plan, &err), VT_OK);
    const vti_geometry *g = &o.model->geometry;
    double least = 1e30, most = 0;
    for (uint32_t u = 0; u < vti_embed_unit(g); u++) {
        double taken = weight_bytes(&v.source, u, VTI_PRECISION_F16);
        double planned = unit_bytes(class_of(&o, vti_plan_unit_of(g, u)), VTI_PRECISION_F16, 0);
        if (planned < taken) fail_msg("unit %u: %.0f planned, %.0f taken", u, planned, taken);
        if (u % 2 == 0 && u < vti_head_unit(g)) {
            least = taken < least ? taken : least;
            most = taken > most ? taken : most;
        }
    }
    assert_true(most > least);
    assert_int_equal(o.plan.classes, VTI_PLAN_CLASSES_MAX);
    close_model(&o);
}

static void too_many_layers_are_refused(void **state)
{
    (void)state;
    opened o;
    vt_error err = {0};
    test_model shape = test_model_of("llama");
    open_model(&o, &shape, VT_KV_F16);
    vti_geometry large = o.model->geometry;
    large.hparams.layers = 200;
    large.units = 2 * large.hparams.layers + 2;
    vti_shard_source source = *o.model->shards;
    source.geometry = &large;
    assert_int_equal(vti_plan_model_of(&source, &o.params, &o.plan, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "128"));
    close_model(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_runtime),
        cmocka_unit_test(work_is_that_of_the_shards),
        cmocka_unit_test(units_are_numbered_both_ways),
        cmocka_unit_test(the_planner_takes_it),
        cmocka_unit_test(many_kinds_of_layers_share_classes),
        cmocka_unit_test(too_many_layers_are_refused),
    };
    return cmocka_run_group_tests_name("plan_model", tests, NULL, NULL);
}
