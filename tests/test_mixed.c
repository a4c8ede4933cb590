/* Models computed with a precision per unit and without pruned shards, as a plan says: the same as
 * weights put together by hand; from GGUF files, stores and on several devices; plans that are not
 * right. */
#include "store_support.h"
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/model.h"
#include "../src/plan_json.h"
#include "../src/plan_model.h"
#include "../src/session_internal.h"
#include "cluster_support.h"

enum { IDS = 12, LAYERS = 2, UNITS = 2 * LAYERS + 2 };
static const vt_token ids[IDS] = {1, 70, 3, 200, 9, 9, 41, 128, 5, 77, 210, 30};

/* --- plans --------------------------------------------------------------------------------------- */

typedef struct chosen {
    vti_plan plan; /* of one device */
    vti_geometry geometry;
} chosen;

static chosen *plan_of(const vt_model *model, vti_precision precision)
{
    chosen *c = calloc(1, sizeof *c);
    c->geometry = model->geometry;
    c->plan.units = model->geometry.units;
    c->plan.devices = 1;
    for (unsigned u = 0; u < c->plan.units; u++) {
        c->plan.precision[u] = (uint8_t)precision;
        for (unsigned phase = 0; phase < VTI_PHASES; phase++) c->plan.place[phase][u].shares[0] = 1;
    }
    return c;
}

static void put(chosen *c, uint32_t unit, vti_precision precision)
{
    c->plan.precision[vti_plan_unit_of(&c->geometry, unit)] = (uint8_t)precision;
}

static void prune(chosen *c, uint32_t unit, uint32_t shard)
{
    c->plan.pruned[vti_plan_unit_of(&c->geometry, unit)][shard / 64] |= UINT64_C(1) << shard % 64;
}

/* F16, I8, I4, F16, … in the order of the units, from `from` on. */
static chosen *mixed_plan(const vt_model *model, unsigned from)
{
    chosen *c = plan_of(model, VTI_PRECISION_F16);
    for (uint32_t unit = 0; unit < vti_embed_unit(&model->geometry); unit++)
        put(c, unit, (vti_precision)((unit + from) % VTI_PRECISION_COUNT));
    return c;
}

/* --- models -------------------------------------------------------------------------------------- */

static const char *write_model(const char *arch)
{
    test_model shape = test_model_of(arch);
    char name[32];
    shape.layers = LAYERS;
    shape.matrix_type = 1; /* F16 */
    shape.quantize = vti_quantize_f16;
    snprintf(name, sizeof name, "%s.gguf", arch);
    const char *path = test_store_path(name);
    test_model_write(&shape, path);
    return path;
}

static vt_status try_open(const char *path, const char *precision, const chosen *c, vt_model **out,
                          vt_error *err)
{
    vt_model_params params = vt_model_params_default();
    char *text = c ? vti_plan_write_json(&c->plan) : NULL;
    params.threads = 2;
    params.precision = precision;
    params.plan_json = text;
    vt_status status = vt_model_open(path, &params, out, err);
    free(text);
    return status;
}

static vt_model *open_model(const char *path, const char *precision, const chosen *c)
{
    vt_model *model;
    vt_error err = {.message = ""};
    if (try_open(path, precision, c, &model, &err) != VT_OK) fail_msg("%s", err.message);
    return model;
}

static bool collect(void *user, uint32_t position, const float *logits)
{
    memcpy((float *)user + (size_t)position * TEST_MODEL_TOKENS, logits,
           TEST_MODEL_TOKENS * sizeof *logits);
    return true;
}

typedef struct rows {
    float logits[IDS * TEST_MODEL_TOKENS];
} rows;

static vt_session *open_session(const vt_model *model, vt_cluster *cluster)
{
    vt_session *session;
    vt_error err = {.message = ""};
    vt_session_params params = vt_session_params_default();
    params.context_tokens = 64;
    params.batch_tokens = 5;
    params.cluster = cluster;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    return session;
}

static void feed(vt_session *session, rows *out)
{
    vt_error err = {.message = ""};
    if (vt_session_feed_logits(session, ids, IDS, collect, out->logits, &err) != VT_OK)
        fail_msg("%s", err.message);
}

static void compute(const vt_model *model, vt_cluster *cluster, rows *out)
{
    vt_session *session = open_session(model, cluster);
    feed(session, out);
    vt_session_close(session);
}

static bool alike(const rows *a, const rows *b) { return memcmp(a, b, sizeof *a) == 0; }

/* --- put together by hand ------------------------------------------------------------------------- */

static vti_weights *weights_of(vt_model *m, uint32_t unit)
{
    const vti_weights *ignored;
    assert_int_equal(vti_model_layers(m, &ignored, NULL), VT_OK);
    assert_int_equal(vti_model_head(m, &ignored, NULL), VT_OK);
    return unit == vti_head_unit(&m->geometry) ? m->head : m->all_layers;
}

/* The model's weights at one precision, but a unit's. */
static void exchange_unit(vt_model *m, uint32_t unit, vti_precision precision)
{
    vti_weights *w = weights_of(m, unit);
    vti_unit *u = &w->units[unit - w->first];
    for (uint32_t shard = 0; shard < u->shards; shard++) {
        vti_shard_id id = {unit, shard, precision};
        vti_shard_layout layout;
        vti_shard_free(m->memory, u->shard[shard]);
        assert_true(vti_shard_source_lay_out(m->shards, id, &layout));
        assert_int_equal(vti_shard_new(m->memory, id, &layout, &u->shard[shard], NULL), VT_OK);
        assert_int_equal(m->shards->load(m->shards->self, id, u->shard[shard]->memory, NULL),
                         VT_OK);
    }
}

static void each_unit_has_its_own(void **state)
{
    (void)state;
    static rows plain, expected, got;
    const char *path = write_model("qwen2");
    vt_model *model = open_model(path, "I8", NULL);
    chosen *c = plan_of(model, VTI_PRECISION_I8);
    compute(model, NULL, &plain);
    vt_model_close(model);
    for (uint32_t unit = 0; unit + 1 < UNITS; unit++) {
        vti_precision other = unit % 2 ? VTI_PRECISION_I4 : VTI_PRECISION_F16;
        model = open_model(path, "I8", NULL);
        exchange_unit(model, unit, other);
        compute(model, NULL, &expected);
        vt_model_close(model);
        assert_false(alike(&plain, &expected));
        put(c, unit, other);
        model = open_model(path, NULL, c);
        compute(model, NULL, &got);
        vt_model_close(model);
        assert_true(alike(&expected, &got));
        put(c, unit, VTI_PRECISION_I8);
    }
    free(c);
}

static void all_the_same_is_as_without_a_plan(void **state)
{
    (void)state;
    static rows expected, got;
    const char *path = write_model("llama");
    for (unsigned p = 0; p < VTI_PRECISION_COUNT; p++) {
        vt_model *model = open_model(path, vti_precision_name(p), NULL);
        chosen *c = plan_of(model, p);
        compute(model, NULL, &expected);
        vt_model_close(model);
        model = open_model(path, NULL, c);
        compute(model, NULL, &got);
        assert_true(alike(&expected, &got));
        vt_model_close(model);
        free(c);
    }
}

/* --- stores, memory ------------------------------------------------------------------------------- */

static void stores_compute_the_same(void **state)
{
    (void)state;
    static rows expected, got;
    static const char *const archs[] = {"gemma3", "qwen2moe"};
    for (unsigned i = 0; i < 2; i++) {
        const char *path = write_model(archs[i]), *store = test_store_path("mixed.vts");
        vt_model *model = open_model(path, NULL, NULL);
        vt_error err = {.message = ""};
        chosen *c = mixed_plan(model, i);
        prune(c, 1, 1);
        if (vt_pack(model, store, NULL, &err) != VT_OK) fail_msg("%s", err.message);
        vt_model_close(model);
        model = open_model(path, NULL, c);
        compute(model, NULL, &expected);
        vt_model_close(model);
        model = open_model(store, NULL, c);
        compute(model, NULL, &got);
        vt_model_close(model);
        assert_true(alike(&expected, &got));
        free(c);
    }
}

/* What the shards of a plan take, added up shard by shard. */
static uint64_t bytes_of(const vt_model *m, const chosen *c)
{
    uint64_t bytes = 0;
    for (uint32_t unit = 0; unit < vti_embed_unit(&m->geometry); unit++) {
        unsigned of_plan = vti_plan_unit_of(&m->geometry, unit);
        for (uint32_t shard = 0; shard <= vti_unit_shards(&m->geometry, unit); shard++) {
            vti_shard_id id = {unit, shard, (vti_precision)c->plan.precision[of_plan]};
            vti_shard_layout layout;
            assert_true(vti_shard_source_lay_out(m->shards, id, &layout));
            if (shard > 255 || !(c->plan.pruned[of_plan][shard / 64] >> shard % 64 & 1))
                bytes += layout.bytes;
        }
    }
    return bytes;
}

static void memory_follows_the_plan(void **state)
{
    (void)state;
    static rows logits;
    const char *path = write_model("qwen2moe");
    vt_model *model = open_model(path, NULL, NULL);
    chosen *c = mixed_plan(model, 1);
    prune(c, 0, 0);
    prune(c, 3, 5);
    vt_model_close(model);
    model = open_model(path, NULL, c);
    vt_memory_need need;
    vt_model_memory(model, NULL, &need);
    uint64_t expected = bytes_of(model, c);
    assert_int_equal(need.weight_bytes, expected);
    compute(model, NULL, &logits);
    assert_int_equal(model->all_layers->bytes + model->head->bytes, expected);
    vt_model_close(model);
    free(c);
}

/* --- pruned shards ---------------------------------------------------------------------------------- */

/* The same as leaving them out of a session on the whole model; nothing of them is in memory. */
static void without_pruned_shards(void **state)
{
    (void)state;
    static rows all, expected, got;
    static const char *const archs[] = {"qwen2", "gemma3", "qwen2moe"};
    static const uint32_t pruned[][2] = {{0, 1}, {1, 0}, {3, 1}};
    for (unsigned i = 0; i < 3; i++) {
        const char *path = write_model(archs[i]);
        vt_model *model = open_model(path, "F16", NULL);
        chosen *c = plan_of(model, VTI_PRECISION_F16);
        vt_session *session = open_session(model, NULL);
        feed(session, &all);
        for (unsigned j = 0; j < 3; j++) {
            assert_int_equal(vti_stage_prune(session->stage, pruned[j][0], pruned[j][1], true, NULL),
                             VT_OK);
            prune(c, pruned[j][0], pruned[j][1]);
        }
        assert_int_equal(vt_session_rewind(session, 0, NULL), VT_OK);
        feed(session, &expected);
        vt_session_close(session);
        vt_model_close(model);
        assert_false(alike(&all, &expected));
        model = open_model(path, NULL, c);
        compute(model, NULL, &got);
        assert_true(alike(&expected, &got));
        for (unsigned j = 0; j < 3; j++)
            assert_null(weights_of(model, 0)->units[pruned[j][0]].shard[pruned[j][1]]);
        vt_model_close(model);
        free(c);
    }
}

/* --- devices ---------------------------------------------------------------------------------------- */

/* `own`: the workers read a file of their own, which is the same or a store of it. */
static void check_devices(const char *path, const char *own)
{
    static rows here, there;
    test_worker worker[2];
    vt_worker_params params = vt_worker_params_default();
    vt_error err = {.message = ""};
    vt_cluster *cluster;
    params.model_path = own;
    for (int i = 0; i < 2; i++) worker[i] = test_worker_start_with(&params, NULL);
    vt_model *model = open_model(path, NULL, NULL);
    chosen *c = mixed_plan(model, 2);
    prune(c, 1, 1);
    prune(c, 2, 0);
    vt_model_close(model);
    model = open_model(path, NULL, c);
    compute(model, NULL, &here);
    if (test_cluster_open(model, worker, 2, (const uint32_t[]){0, 1, 1}, 3, &cluster, &err) !=
        VT_OK)
        fail_msg("%s", err.message);
    uint64_t remote = 0;
    for (size_t i = 1; i <= 2; i++) {
        vt_device_info info;
        assert_int_equal(vt_cluster_get_device(cluster, i, &info), VT_OK);
        remote += info.weight_bytes;
    }
    assert_int_equal(remote, model->layer_bytes);
    compute(model, cluster, &there);
    assert_true(alike(&here, &there));
    vt_cluster_close(cluster);
    for (int i = 0; i < 2; i++) test_worker_end(&worker[i], SIGTERM);
    vt_model_close(model);
    free(c);
}

static void several_devices(void **state)
{
    (void)state;
    check_devices(write_model("qwen2"), NULL);
    check_devices(write_model("qwen2moe"), NULL);
}

static void several_devices_with_files(void **state)
{
    (void)state;
    const char *path = write_model("qwen2"), *store = test_store_path("own.vts");
    vt_model *model = open_model(path, NULL, NULL);
    assert_int_equal(vt_pack(model, store, NULL, NULL), VT_OK);
    vt_model_close(model);
    check_devices(path, path);
    check_devices(path, store);
    check_devices(store, NULL);
}

/* --- plans that are not right ------------------------------------------------------------------------ */

static void expect_refused(const char *path, const char *precision, const chosen *c,
                           const char *wanted)
{
    vt_model *model;
    vt_error err = {.message = ""};
    assert_int_equal(try_open(path, precision, c, &model, &err), VT_ERR_ARGUMENT);
    if (!strstr(err.message, wanted)) fail_msg("no \"%s\" in: %s", wanted, err.message);
}

static void wrong_plans(void **state)
{
    (void)state;
    const char *path = write_model("llama"), *store = test_store_path("two.vts");
    vt_model *model = open_model(path, NULL, NULL);
    vt_pack_params pack = vt_pack_params_default();
    pack.precisions = 1 << VT_PRECISION_F16 | 1 << VT_PRECISION_I4;
    assert_int_equal(vt_pack(model, store, &pack, NULL), VT_OK);
    chosen *c = plan_of(model, VTI_PRECISION_F16);
    vt_model_close(model);
    expect_refused(path, "I8", c, "exclude each other");
    put(c, 3, VTI_PRECISION_I8);
    expect_refused(store, NULL, c, "FFN(1) at I8");
    expect_refused(store, NULL, c, "only at F16 I4");
    put(c, 3, VTI_PRECISION_I4);
    prune(c, 4, 0);
    expect_refused(path, NULL, c, "shard 0 of HEAD");
    memset(c->plan.pruned, 0, sizeof c->plan.pruned);
    prune(c, 2, 2);
    expect_refused(path, NULL, c, "shard 2 of ATTN(1)");
    prune(c, 2, 0);
    prune(c, 2, 1);
    expect_refused(path, NULL, c, "shard 1 of ATTN(1), of whose 2 shards 1 can");
    c->plan.units -= 2;
    expect_refused(path, NULL, c, "of 4 units");
    free(c);
}

static void text_that_is_no_plan(void **state)
{
    (void)state;
    vt_model *model;
    vt_error err = {.message = ""};
    vt_model_params params = vt_model_params_default();
    params.plan_json = "{\"format\": \"voltron-plan\"}";
    assert_int_equal(vt_model_open(write_model("llama"), &params, &model, &err), VT_ERR_FORMAT);
    assert_null(model);
    assert_non_null(strstr(err.message, "version"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_devices), /* first: they fork */
        cmocka_unit_test(several_devices_with_files),
        cmocka_unit_test(each_unit_has_its_own),
        cmocka_unit_test(all_the_same_is_as_without_a_plan),
        cmocka_unit_test(stores_compute_the_same),
        cmocka_unit_test(memory_follows_the_plan),
        cmocka_unit_test(without_pruned_shards),
        cmocka_unit_test(wrong_plans),
        cmocka_unit_test(text_that_is_no_plan),
    };
    return cmocka_run_group_tests(tests, test_store_set_up, test_store_tear_down);
}
