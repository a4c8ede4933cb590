/* Mixtures of experts: routing, and that experts nobody chose are not touched. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_builder.h"

enum { TOKENS = 40, V = TEST_MODEL_TOKENS };

static float logits[TOKENS * V];

static bool keep(void *user, uint32_t position, const float *row)
{
    memcpy((float *)user + (size_t)position * V, row, V * sizeof *row);
    return true;
}

static vt_model *open_model(const test_model *shape, unsigned char **file)
{
    vt_model *model;
    vt_error err;
    size_t bytes;
    *file = test_model_build(shape, &bytes);
    if (vt_model_open_memory(*file, bytes, NULL, &model, &err) != VT_OK)
        fail_msg("%s", err.message);
    return model;
}

static void run(const test_model *shape, float *out, vt_session_stats *stats)
{
    unsigned char *file;
    vt_model *model = open_model(shape, &file);
    vt_session *session;
    vt_error err;
    vt_token ids[TOKENS];
    test_random random = {9};
    for (int i = 0; i < TOKENS; i++) ids[i] = (vt_token)(test_random_u64(&random) % V);
    vt_session_params params = vt_session_params_default();
    params.batch_tokens = 13;
    params.context_tokens = TOKENS;
    params.kv_type = VT_KV_F32;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    if (vt_session_feed_logits(session, ids, TOKENS, keep, out, &err) != VT_OK)
        fail_msg("%s", err.message);
    if (stats) vt_session_get_stats(session, stats);
    vt_session_close(session);
    vt_model_close(model);
    free(file);
}

static double apart(const float *a, const float *b)
{
    double most = 0;
    for (size_t i = 0; i < TOKENS * V; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= most)) most = difference;
    }
    return most;
}

/* One layer whose router finds all experts alike chooses the first ones: weights of others may be
 * anything. */
static test_model one_layer(uint32_t used)
{
    test_model shape = test_model_of("qwen2moe");
    shape.layers = 1;
    shape.experts_used = used;
    shape.edits[0] = (test_edit){.kind = TEST_TENSOR_FILL, .name = "blk.0.ffn_gate_inp.weight"};
    return shape;
}

/* The file with expert `expert` of all three matrices filled with NaN: found by their sizes. */
static void poison(unsigned char *file, size_t bytes, uint32_t expert)
{
    static const char *const names[] = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
                                        "blk.0.ffn_down_exps.weight"};
    vt_gguf *gguf;
    vt_error err;
    assert_int_equal(vti_gguf_open_memory(file, bytes, "test", &gguf, &err), VT_OK);
    for (int i = 0; i < 3; i++) {
        const vti_gguf_tensor *tensor = vti_gguf_find_tensor(gguf, names[i]);
        assert_non_null(tensor);
        size_t slice = (size_t)tensor->size_bytes / 8;
        memset(file + tensor->offset_bytes + expert * slice, 0xff, slice);
    }
    vt_gguf_close(gguf);
}

static bool finite_with_poison(uint32_t used, uint32_t expert)
{
    test_model shape = one_layer(used);
    size_t bytes;
    unsigned char *file = test_model_build(&shape, &bytes);
    vt_model *model;
    vt_session *session;
    vt_error err;
    const float *row;
    bool finite = true;
    poison(file, bytes, expert);
    assert_int_equal(vt_model_open_memory(file, bytes, NULL, &model, &err), VT_OK);
    assert_int_equal(vt_session_open(model, NULL, &session, &err), VT_OK);
    assert_int_equal(vt_session_feed(session, (const vt_token[]){1, 2, 3}, 3, &err), VT_OK);
    assert_int_equal(vt_session_logits(session, &row, &err), VT_OK);
    for (int i = 0; i < V; i++) finite = finite && isfinite(row[i]);
    vt_session_close(session);
    vt_model_close(model);
    free(file);
    return finite;
}

static void only_chosen_experts_count(void **state)
{
    (void)state;
    for (uint32_t used = 1; used < 8; used += 3)
        for (uint32_t expert = 0; expert < 8; expert++)
            assert_true(finite_with_poison(used, expert) == (expert >= used));
}

/* Of equal shares each counts an eighth; renormalised, a third. */
static void renormalised_only_if_asked(void **state)
{
    (void)state;
    static float scaled[TOKENS * V], normed[TOKENS * V];
    test_model shape = one_layer(3);
    run(&shape, logits, NULL);
    shape.edits[1] = (test_edit){.kind = TEST_KEY_BOOL, .name = "expert_weights_norm", .number = 1};
    run(&shape, normed, NULL);
    assert_true(apart(logits, normed) > 1e-2);
    shape.edits[1] = (test_edit){.kind = TEST_KEY_F32, .name = "expert_weights_scale",
                                 .number = 8.0 / 3};
    run(&shape, scaled, NULL);
    assert_true(apart(scaled, normed) < 1e-4);
}

/* All experts together, the order in which they are chosen aside, are a weighted sum: renormalising
 * does nothing, as a softmax sums to one. */
static void all_experts(void **state)
{
    (void)state;
    static float normed[TOKENS * V], fewer[TOKENS * V];
    test_model shape = test_model_of("qwen2moe");
    shape.experts_used = 8;
    run(&shape, logits, NULL);
    shape.edits[0] = (test_edit){.kind = TEST_KEY_BOOL, .name = "expert_weights_norm", .number = 1};
    run(&shape, normed, NULL);
    assert_true(apart(logits, normed) < 1e-4);
    shape.edits[0].kind = TEST_EDIT_END;
    shape.experts_used = 7;
    run(&shape, fewer, NULL);
    assert_true(apart(logits, fewer) > 1e-3);
}

/* The shared expert is behind a gate, which with weights of zero is half open. Without output
 * of the shared expert the gate has nothing to let through. */
static void shared_expert_is_gated(void **state)
{
    (void)state;
    static const char gate[] = "blk.0.ffn_gate_inp_shexp.weight";
    static float half[TOKENS * V], nothing[TOKENS * V];
    test_model shape = one_layer(3);
    run(&shape, logits, NULL);
    shape.edits[1] = (test_edit){.kind = TEST_TENSOR_FILL, .name = gate};
    run(&shape, half, NULL);
    assert_true(apart(logits, half) > 1e-3);
    shape.edits[2] = (test_edit){.kind = TEST_TENSOR_FILL, .name = "blk.0.ffn_down_shexp.weight"};
    run(&shape, nothing, NULL);
    assert_true(apart(nothing, half) > 1e-3);
    shape.edits[1].number = 3;
    run(&shape, logits, NULL);
    assert_true(apart(logits, nothing) == 0);
}

/* Decoding reads 3 of 8 experts. */
static void bytes_of_a_token(void **state)
{
    (void)state;
    test_model shape = test_model_of("qwen2moe");
    vt_session_stats three, eight;
    run(&shape, logits, &three);
    shape.experts_used = 8;
    run(&shape, logits, &eight);
    uint64_t expert = 3 * 64 * 32 * sizeof(float);
    assert_int_equal(eight.weight_bytes_per_token - three.weight_bytes_per_token,
                     (uint64_t)shape.layers * 5 * expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_chosen_experts_count), cmocka_unit_test(renormalised_only_if_asked),
        cmocka_unit_test(all_experts), cmocka_unit_test(shared_expert_is_gated),
        cmocka_unit_test(bytes_of_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
