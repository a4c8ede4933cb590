/* How far quantised matrices may move the logits: only as far as INT8 activations explain.
 *
 * For every quantised weight type: the engine's logits on a file of that type, against the same
 * weights dequantised into F32 and multiplied by the scalar kernels, once with activations as they
 * are and once with activations rounded as the format says. docs/numerics.md derives the bounds. */
#include "bench_support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/model.h"

enum { MOST_TOKENS = 64 };

static const char story[] =
    "Once upon a time there was a little fox who lived near a big river. One day she found a red "
    "ball in the grass and wanted to play. \"Who lost this ball?\" she asked. A boy came out of the "
    "house and smiled.";

/* --- activations as kernels for quantised weights see them -------------------------------------- */

/* What happens to activations on their way into a product with F32 weights. Only one model runs
 * at a time, on one thread. */
static struct {
    vti_act_pack_fn *pack;
    size_t block;  /* columns with one scale */
    bool round;    /* to INT8 */
    double square; /* sum over tokens and products of (rounding error / activations)² */
} rounding;

/* By the definition in docs/kernels.md. */
static void round_block(float *out, const float *x, size_t count)
{
    float largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(x[i]));
    float scale = largest / 127, inverse = largest > 0 ? 127 / largest : 0;
    for (size_t i = 0; i < count; i++) out[i] = scale * nearbyintf(x[i] * inverse);
}

static double relative_square(const float *rounded, const float *x, size_t count)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        error += ((double)rounded[i] - x[i]) * ((double)rounded[i] - x[i]);
        size += (double)x[i] * x[i];
    }
    return size > 0 ? error / size : 0;
}

static void pack_rounded(void *dst, const float *x, size_t x_stride, size_t tokens, size_t cols)
{
    float *rounded = malloc(tokens * cols * sizeof *rounded);
    assert_non_null(rounded);
    for (size_t t = 0; t < tokens; t++) {
        for (size_t c = 0; c < cols; c += rounding.block)
            round_block(rounded + t * cols + c, x + t * x_stride + c,
                        cols - c < rounding.block ? cols - c : rounding.block);
        /* Of an input that shards have slices of, each counts by its width. */
        rounding.square += relative_square(rounded + t * cols, x + t * x_stride, cols) *
                           (double)cols / (double)x_stride;
    }
    if (rounding.round)
        rounding.pack(dst, rounded, cols, tokens, cols);
    else
        rounding.pack(dst, x, x_stride, tokens, cols);
    free(rounded);
}

/* --- logits ------------------------------------------------------------------------------------- */

typedef struct run {
    float *logits; /* tokens × vocabulary */
    uint32_t tokens, vocabulary, layers;
    double square; /* of the rounding error of a token's activations, summed over its products */
} run;

static bool keep(void *user, uint32_t position, const float *logits)
{
    run *r = user;
    memcpy(r->logits + (size_t)position * r->vocabulary, logits, r->vocabulary * sizeof *logits);
    return true;
}

static size_t read_tokens(const vt_model *model, const char *ids_path, vt_token *ids)
{
    size_t count;
    if (!ids_path) {
        assert_int_equal(vt_tokenize(model, story, sizeof story - 1, VT_TOKENIZE_BOS, ids,
                                     MOST_TOKENS, &count, NULL),
                         VT_OK);
        return count;
    }
    json_t *array = json_load_file(ids_path, 0, NULL);
    count = json_array_size(array);
    assert_in_range(count, 16, MOST_TOKENS);
    for (size_t i = 0; i < count; i++)
        ids[i] = (vt_token)json_integer_value(json_array_get(array, i));
    json_decref(array);
    return count;
}

/* `features`: of the processor, to be used. `block` 0: the model runs as it is. */
static run run_model(const char *path, const char *ids_path, uint32_t features, size_t block,
                     bool round)
{
    vt_model *model;
    vt_session *session;
    vt_error err;
    vt_model_info info;
    vt_model_params model_params = vt_model_params_default();
    vt_session_params params = vt_session_params_default();
    vt_token ids[MOST_TOKENS];
    model_params.threads = 1;
    if (vt_model_open(path, &model_params, &model, &err) != VT_OK) fail_msg("%s", err.message);
    vti_kernels_init(&model->kernels, features);
    if (block) {
        rounding.pack = model->kernels.act[VTI_ACT_F32].pack;
        rounding.block = block;
        rounding.round = round;
        rounding.square = 0;
        model->kernels.act[VTI_ACT_F32].pack = pack_rounded;
    }
    vt_model_get_info(model, &info);
    uint32_t tokens = (uint32_t)read_tokens(model, ids_path, ids);
    run r = {malloc((size_t)tokens * info.vocabulary_tokens * sizeof(float)), tokens,
             info.vocabulary_tokens, 0, 0};
    params.kv_type = VT_KV_F32;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    if (vt_session_feed_logits(session, ids, tokens, keep, &r, &err) != VT_OK)
        fail_msg("%s", err.message);
    r.square = block ? rounding.square / tokens : 0;
    r.layers = info.layers;
    vt_session_close(session);
    vt_model_close(model);
    return r;
}

/* Root of the mean square of a - b, as a share of b's deviation from its mean per position. */
static double apart(const run *a, const run *b)
{
    double error = 0, size = 0;
    for (uint32_t t = 0; t < a->tokens; t++) {
        const float *x = a->logits + (size_t)t * a->vocabulary;
        const float *y = b->logits + (size_t)t * b->vocabulary;
        double sum = 0, square = 0;
        for (uint32_t i = 0; i < a->vocabulary; i++) {
            error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
            sum += y[i];
            square += (double)y[i] * y[i];
        }
        size += square - sum * sum / a->vocabulary;
    }
    return sqrt(error / size);
}

/* --- files -------------------------------------------------------------------------------------- */

typedef struct files {
    char typed[64], exact[64]; /* the type, and the same weights in F32 */
} files;

static void remake(const char *from, const char *type, const char *to)
{
    char line[512];
    snprintf(line, sizeof line, "BENCH requantize -m %s --type %s -o %s", from, type, to);
    bench_expect(line, 0, type);
}

static files make_files(const char *model_path, const char *type)
{
    files f;
    snprintf(f.typed, sizeof f.typed, "%s/typed.gguf", bench_folder());
    snprintf(f.exact, sizeof f.exact, "%s/exact.gguf", bench_folder());
    remake(model_path, type, f.typed);
    remake(f.typed, "F32", f.exact);
    return f;
}

static void remove_files(const files *f)
{
    unlink(f->typed);
    unlink(f->exact);
}

/* --- checks ------------------------------------------------------------------------------------- */

/* What a type moves the logits by, and what it may. */
typedef struct outcome {
    double off;     /* engine against exact activations */
    double rounded; /* rounded activations, by definition, against exact ones */
    double bound;
} outcome;

static outcome compare(const files *f, const char *ids_path, size_t block)
{
    run engine = run_model(f->typed, ids_path, VTI_CPU_EXACT, 0, false);
    run exact = run_model(f->exact, ids_path, 0, block, false);
    run rounded = run_model(f->exact, ids_path, 0, block, true);
    outcome o = {apart(&engine, &exact), apart(&rounded, &exact), sqrt(2.5 * exact.square)};
    free(engine.logits);
    free(exact.logits);
    free(rounded.logits);
    return o;
}

/* The engine's error is of the size that rounding the activations has by itself: two such errors
 * agree in size, not in their bits, as one rounding that falls the other way changes those after
 * it. */
static bool is_explained(const outcome *o)
{
    return o->off <= o->bound && o->off > 0.75 * o->rounded && o->off < 1.33 * o->rounded;
}

/* `lossy`: the type is rounded once more as it loads, by about as much as activations are. Where a
 * router chooses, a small error may mean another expert for a token: only a wider bound holds. */
static void check_quantised(const char *model_path, const char *ids_path, const char *type,
                            size_t block, bool lossy)
{
    bool routed = strstr(model_path, "moe") != NULL;
    files f = make_files(model_path, type);
    outcome o = compare(&f, ids_path, block);
    printf("%s, %s: logits off by %.2f %%, by definition %.2f %%, bound %.2f %%\n", model_path,
           type, 100 * o.off, 100 * o.rounded, 100 * o.bound);
    if (lossy) o.bound *= sqrt(2);
    if (routed) o.bound *= 1.5;
    bool fine = lossy || routed ? o.off <= o.bound && o.off > 0.3 * o.rounded : is_explained(&o);
    if (!fine) fail_msg("INT8 activations do not explain that");
    remove_files(&f);
}

/* Float weights meet float activations: only sums are rounded. */
static void check_floats(const char *model_path, const char *ids_path, const char *type)
{
    files f = make_files(model_path, type);
    run engine = run_model(f.typed, ids_path, VTI_CPU_EXACT, 0, false);
    run exact = run_model(f.exact, ids_path, 0, 0, false);
    double off = apart(&engine, &exact);
    double bound = sqrt(2.5 * (4 * exact.layers + 1) * 1024) * 0x1p-24;
    printf("%s, %s: logits off by %.1e, bound %.1e\n", model_path, type, off, bound);
    if (!(off <= bound)) fail_msg("rounding of sums does not explain that");
    free(engine.logits);
    free(exact.logits);
    remove_files(&f);
}

/* `k_types`: rows are whole blocks of 256. Emulated, one model has all types and the others a few. */
static void check_model(const char *model_path, const char *ids_path, bool k_types)
{
    static const struct {
        const char *type;
        size_t block; /* of activations */
        bool k_type, lossy;
    } types[] = {
        {"Q8_0", 32, false, false}, {"Q5_0", 32, false, false},   {"Q4_0", 32, false, false},
        {"Q6_K", 256, true, false}, {"Q5_K", 256, true, false},   {"Q4_K", 256, true, false},
        {"Q4_1", 32, false, true},  {"Q5_1", 32, false, true},    {"Q2_K", 256, true, true},
        {"Q3_K", 256, true, false}, {"IQ4_NL", 32, false, false}, {"IQ4_XS", 32, true, false},
    };
    bool whole = !test_is_emulated() || strstr(model_path, "t-qwen2.gguf");
    check_floats(model_path, ids_path, "F32");
    check_floats(model_path, ids_path, "F16");
    if (whole) check_floats(model_path, ids_path, "BF16");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if ((k_types || !types[i].k_type) && (whole || i % 4 == 0))
            check_quantised(model_path, ids_path, types[i].type, types[i].block, types[i].lossy);
}

static const char default_path[] = "src/assets/stories-4m-f16.gguf";

/* The models of ../shared/golden are small enough, and the arithmetic is the same. */
static void skip_if_emulated(void)
{
    if (!test_is_emulated()) return;
    printf("NOTICE skipped: the default model takes minutes emulated\n");
    skip();
}

static void default_model(void **state)
{
    (void)state;
    skip_if_emulated();
    check_model(default_path, NULL, true);
}

static void check_golden(const char *name, bool k_types)
{
    const char *model_path = test_shared_path(name);
    if (!model_path) skip();
    check_model(model_path, test_shared_path("golden/ids.json"), k_types);
}

static void qwen2(void **state)
{
    (void)state;
    check_golden("golden/t-qwen2.gguf", true);
}

static void qwen2_odd(void **state)
{
    (void)state;
    check_golden("golden/t-qwen2-odd.gguf", false);
}

static void llama(void **state)
{
    (void)state;
    check_golden("golden/t-llama.gguf", true);
}

static void qwen3(void **state)
{
    (void)state;
    check_golden("golden/t-qwen3.gguf", true);
}

static void gemma3(void **state)
{
    (void)state;
    check_golden("golden/t-gemma3.gguf", true);
}

static void qwen2moe(void **state)
{
    (void)state;
    check_golden("golden/t-qwen2moe.gguf", true);
}

/* --- perplexity --------------------------------------------------------------------------------- */

static double perplexity(const char *model_path)
{
    char line[1024];
    snprintf(line, sizeof line,
             "head -c 40000 ../shared/text/heldout.txt | %s/voltron-run ppl -m %s -f - "
             "--context 256 --json",
             test_bin_folder(), model_path);
    bench_result r = bench_run(line);
    const char *number = strstr(r.text, "\"perplexity\": ");
    if (r.code != 0 || !number) fail_msg("%s: %s", line, r.text);
    double value = strtod(strchr(number, ' '), NULL);
    free(r.text);
    return value;
}

/* Of a part of the text; bench/results/accuracy.md has all of it. */
static void q8_0_predicts_as_well(void **state)
{
    (void)state;
    if (!test_shared_path("text/heldout.txt")) skip();
    skip_if_emulated();
    files f = make_files(default_path, "Q8_0");
    double halves = perplexity(default_path), bytes = perplexity(f.typed);
    printf("perplexity %.4f, with Q8_0 %.4f (%+.3f %%)\n", halves, bytes,
           100 * (bytes / halves - 1));
    assert_true(halves > 5 && halves < 10);
    assert_true(bytes != halves); /* they are two models */
    assert_true(fabs(bytes / halves - 1) < 1e-3);
    remove_files(&f);
}

/* Weights of another type than the reference has must not pass. */
static void wrong_weights_are_noticed(void **state)
{
    (void)state;
    skip_if_emulated();
    files f = make_files(default_path, "Q4_0");
    remake(default_path, "Q8_0", f.typed);
    outcome o = compare(&f, NULL, 32);
    assert_false(is_explained(&o));
    assert_true(o.off > o.bound);
    remove_files(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_weights_are_noticed), cmocka_unit_test(default_model),
        cmocka_unit_test(qwen2), cmocka_unit_test(qwen2_odd), cmocka_unit_test(llama),
        cmocka_unit_test(qwen3), cmocka_unit_test(gemma3), cmocka_unit_test(qwen2moe),
        cmocka_unit_test(q8_0_predicts_as_well),
    };
    return cmocka_run_group_tests(tests, bench_make_folder, bench_remove_folder);
}
