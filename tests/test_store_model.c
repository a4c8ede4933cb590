/* A shard store run as a model computes what the GGUF file does at the same precision, bit for
 * bit. */
#include "store_support.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "voltron.h"

#define DEFAULT_MODEL "src/assets/stories-4m-f16.gguf"

static const vt_token ids[] = {1, 70, 3, 200, 9, 9, 41, 128, 5, 77, 210, 30};

enum { IDS = sizeof ids / sizeof ids[0] };

static vt_model *open_model(const char *path, const char *precision)
{
    vt_model *model;
    vt_error err = {.message = ""};
    vt_model_params params = vt_model_params_default();
    params.threads = 1;
    params.precision = precision;
    if (vt_model_open(path, &params, &model, &err) != VT_OK) fail_msg("%s", err.message);
    return model;
}

static vt_session *open_session(const vt_model *model)
{
    vt_session *session;
    vt_error err = {.message = ""};
    vt_session_params params = vt_session_params_default();
    params.context_tokens = 64;
    params.batch_tokens = 8;
    params.sampling.temperature = 0;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    return session;
}

static void pack(const char *from, const char *to, uint32_t precisions)
{
    vt_error err = {.message = ""};
    vt_pack_params params = vt_pack_params_default();
    vt_model *model = open_model(from, NULL);
    params.threads = 2;
    params.precisions = precisions;
    if (vt_pack(model, to, &params, &err) != VT_OK) fail_msg("%s", err.message);
    vt_model_close(model);
}

/* --- logits ------------------------------------------------------------------------------------ */

typedef struct collected {
    float *logits;
    uint32_t vocabulary;
} collected;

static bool collect(void *user, uint32_t position, const float *logits)
{
    collected *c = user;
    memcpy(c->logits + (size_t)position * c->vocabulary, logits, c->vocabulary * sizeof *logits);
    return true;
}

static collected logits_of(const vt_model *model)
{
    vt_model_info info;
    vt_error err = {.message = ""};
    vt_model_get_info(model, &info);
    collected c = {calloc((size_t)IDS * info.vocabulary_tokens, sizeof(float)),
                   info.vocabulary_tokens};
    vt_session *session = open_session(model);
    if (vt_session_feed_logits(session, ids, IDS, collect, &c, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_session_close(session);
    return c;
}

/* At every precision that both have. */
static void compare_models(const char *gguf, const char *store, unsigned expected)
{
    unsigned compared = 0;
    for (int p = 0; p < VT_PRECISION_COUNT; p++) {
        vt_model *model;
        vt_model_params params = vt_model_params_default();
        params.threads = 1;
        params.precision = vt_precision_name((vt_precision)p);
        if (vt_model_open(gguf, &params, &model, NULL) != VT_OK) continue;
        collected a = logits_of(model);
        vt_model_close(model);
        model = open_model(store, params.precision);
        collected b = logits_of(model);
        vt_model_close(model);
        assert_int_equal(a.vocabulary, b.vocabulary);
        assert_memory_equal(a.logits, b.logits, (size_t)IDS * a.vocabulary * sizeof(float));
        free(a.logits);
        free(b.logits);
        compared++;
    }
    assert_int_equal(compared, expected);
}

static void check_file(const char *gguf, unsigned precisions)
{
    pack(gguf, test_store_path("m.vts"), 0);
    vt_store *store;
    vt_error err = {.message = ""};
    assert_int_equal(vt_store_open(test_store_path("m.vts"), &store, NULL), VT_OK);
    if (vt_store_verify(store, NULL, &err) != VT_OK) fail_msg("%s", err.message);
    vt_store_close(store);
    compare_models(gguf, test_store_path("m.vts"), precisions);
}

static void the_default_model(void **state)
{
    (void)state;
    check_file(DEFAULT_MODEL, 3);
}

/* Emulated it would take minutes, of which the first file of each kind tells the most. */
static size_t files_of(size_t all)
{
    return test_is_emulated() ? 1 : all;
}

static void every_family(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen2-odd", "gemma3", "llama", "qwen2", "qwen2moe",
                                        "qwen3"};
    for (size_t i = 0; i < files_of(sizeof names / sizeof names[0]); i++) {
        char relative[64];
        snprintf(relative, sizeof relative, "golden/t-%s.gguf", names[i]);
        const char *path = test_shared_path(relative);
        if (!path) skip();
        check_file(path, 3);
    }
}

/* Files that are quantised already offer their own types and what lies below. */
static void quantised_files(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        unsigned precisions;
    } files[] = {{"q6_k", 2}, {"q4_k", 1}, {"q8_0", 2}, {"q5_0", 2}, {"q4_1", 2}, {"bf16", 3}};
    for (size_t i = 0; i < files_of(sizeof files / sizeof files[0]); i++) {
        char line[2048];
        const char *path = test_store_path("q.gguf");
        snprintf(line, sizeof line,
                 "%s %s/voltron-bench requantize -m %s --type %s -o %s >/dev/null",
                 test_runner(), test_bin_folder(), DEFAULT_MODEL, files[i].type, path);
        assert_int_equal(system(line), 0);
        check_file(path, files[i].precisions);
    }
}

/* --- it is the same model ---------------------------------------------------------------------- */

static void tokens_and_facts_are_the_same(void **state)
{
    (void)state;
    static const char text[] = "Once upon a time, żółw said 42 times: <|im_start|>!";
    vt_token a[128], b[128];
    size_t a_count, b_count;
    vt_model_info of_gguf, of_store;
    pack(DEFAULT_MODEL, test_store_path("t.vts"), 1u << VT_PRECISION_I8);
    vt_model *gguf = open_model(DEFAULT_MODEL, NULL);
    vt_model *store = open_model(test_store_path("t.vts"), NULL);
    assert_int_equal(vt_tokenize(gguf, text, sizeof text - 1, 3, a, 128, &a_count, NULL), VT_OK);
    assert_int_equal(vt_tokenize(store, text, sizeof text - 1, 3, b, 128, &b_count, NULL), VT_OK);
    assert_int_equal(a_count, b_count);
    assert_memory_equal(a, b, a_count * sizeof *a);
    vt_model_get_info(gguf, &of_gguf);
    vt_model_get_info(store, &of_store);
    assert_string_equal(of_gguf.name, of_store.name);
    assert_string_equal(of_gguf.architecture, of_store.architecture);
    assert_int_equal(of_gguf.parameters, of_store.parameters);
    assert_int_equal(of_gguf.context_tokens, of_store.context_tokens);
    assert_true(of_store.weight_bytes < of_gguf.weight_bytes);
    vt_memory_need need_gguf, need_store;
    vt_model_memory(gguf, NULL, &need_gguf);
    vt_model_memory(store, NULL, &need_store);
    assert_int_equal(need_gguf.kv_bytes, need_store.kv_bytes);
    assert_true(need_store.weight_bytes < need_gguf.weight_bytes * 6 / 10);
    vt_model_close(gguf);
    vt_model_close(store);
}

static void a_session_moves_from_gguf_to_store(void **state)
{
    (void)state;
    const char *saved = test_store_path("talk.vtss");
    vt_token expected[8], got[8];
    vt_error err = {.message = ""};
    pack(DEFAULT_MODEL, test_store_path("s.vts"), 1u << VT_PRECISION_F16);
    vt_model *gguf = open_model(DEFAULT_MODEL, NULL);
    vt_model *store = open_model(test_store_path("s.vts"), NULL);
    vt_session *a = open_session(gguf), *b = open_session(store);
    assert_int_equal(vt_session_feed(a, ids, IDS, NULL), VT_OK);
    assert_int_equal(vt_session_save(a, saved, NULL, 0, NULL), VT_OK);
    for (int i = 0; i < 8; i++) assert_int_equal(vt_session_next(a, &expected[i], NULL), VT_OK);
    if (vt_session_load(b, saved, NULL, NULL, &err) != VT_OK) fail_msg("%s", err.message);
    for (int i = 0; i < 8; i++) assert_int_equal(vt_session_next(b, &got[i], NULL), VT_OK);
    assert_memory_equal(expected, got, sizeof got);
    vt_session_close(a);
    vt_session_close(b);
    vt_model_close(gguf);
    vt_model_close(store);
}

static void a_precision_that_is_not_there(void **state)
{
    (void)state;
    vt_model *model;
    vt_error err = {.message = ""};
    vt_model_params params = vt_model_params_default();
    pack(DEFAULT_MODEL, test_store_path("p.vts"), 1u << VT_PRECISION_F16 | 1u << VT_PRECISION_I4);
    params.precision = "I8";
    assert_int_equal(vt_model_open(test_store_path("p.vts"), &params, &model, &err),
                     VT_ERR_ARGUMENT);
    assert_null(model);
    assert_non_null(strstr(err.message, "no weights at precision I8, only at F16 I4"));
    params.precision = "I7";
    assert_int_equal(vt_model_open(DEFAULT_MODEL, &params, &model, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "\"I7\" is not one of F16, I8, I4"));
}

/* Leaving out precisions of a store gives the store that was packed without them. */
static void a_store_can_be_packed_again(void **state)
{
    (void)state;
    size_t a_bytes, b_bytes;
    pack(DEFAULT_MODEL, test_store_path("all.vts"), 0);
    pack(test_store_path("all.vts"), test_store_path("again.vts"), 1u << VT_PRECISION_I4);
    pack(DEFAULT_MODEL, test_store_path("direct.vts"), 1u << VT_PRECISION_I4);
    unsigned char *a = test_read_file(test_store_path("again.vts"), &a_bytes);
    unsigned char *b = test_read_file(test_store_path("direct.vts"), &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_model),
        cmocka_unit_test(every_family),
        cmocka_unit_test(quantised_files),
        cmocka_unit_test(tokens_and_facts_are_the_same),
        cmocka_unit_test(a_session_moves_from_gguf_to_store),
        cmocka_unit_test(a_precision_that_is_not_there),
        cmocka_unit_test(a_store_can_be_packed_again),
    };
    return cmocka_run_group_tests(tests, test_store_set_up, test_store_tear_down);
}
