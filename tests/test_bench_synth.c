/* voltron-bench synth: the files it writes are sound, are what their names say, and run. */
#include "bench_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../kernels/kernels.h"
#include "../src/gguf.h"

static vt_gguf *open_gguf(const char *path)
{
    vt_gguf *gguf;
    vt_error err;
    if (vt_gguf_open(path, &gguf, &err) != VT_OK) fail_msg("%s", err.message);
    return gguf;
}

/* --- shapes ----------------------------------------------------------------------------------- */

static const struct family {
    const char *shape, *golden;
    bool runs; /* else it may be unsupported still */
} families[] = {
    {"qwen2.5-0.5b --layers 1", "golden/t-qwen2.gguf", true},
    {"qwen1.5-0.5b --layers 2", "golden/t-qwen2.gguf", true},
    {"llama3.2-1b --layers 1", "golden/t-llama.gguf", true},
    {"qwen3-0.6b --layers 1", "golden/t-qwen3.gguf", false},
    {"gemma3-1b --layers 1", "golden/t-gemma3.gguf", false},
    {"qwen1.5-moe-a2.7b --layers 1 --experts 2", "golden/t-qwen2moe.gguf", false},
};

static void check_run(const char *shape, const char *path, bool must)
{
    vt_model *model;
    vt_session *session;
    vt_error err;
    vt_status status = vt_model_open(path, NULL, &model, &err);
    if (!must && status == VT_ERR_UNSUPPORTED) return;
    if (status != VT_OK) fail_msg("%s: %s", shape, err.message);
    if (vt_session_open(model, NULL, &session, &err) != VT_OK) fail_msg("%s", err.message);
    static const vt_token tokens[] = {300, 5, 299, 17};
    const float *logits;
    vt_token next;
    assert_int_equal(vt_session_feed(session, tokens, 4, &err), VT_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(vt_session_next(session, &next, &err), VT_OK);
    assert_int_equal(vt_session_logits(session, &logits, &err), VT_OK);
    double square = 0;
    for (int i = 0; i < 512; i++) square += (double)logits[i] * logits[i];
    /* Weights are scaled so that logits have a standard deviation around 1. */
    if (!(square > 512 * 0.1 && square < 512 * 10.0))
        fail_msg("%s: logits of mean square %g", shape, square / 512);
    vt_session_close(session);
    vt_model_close(model);
}

static void check_text(const char *shape, const char *path)
{
    static const char text[] = "The thing: \xC3\xA9\xE2\x82\xAC <|im_end|>\n";
    vt_model_params params = vt_model_params_default();
    vt_model *model;
    vt_error err;
    params.vocabulary_only = true;
    if (vt_model_open(path, &params, &model, &err) != VT_OK) fail_msg("%s: %s", shape, err.message);
    vt_token tokens[256];
    size_t count, bytes, at = 0;
    char back[256];
    assert_int_equal(vt_tokenize(model, text, strlen(text), 0, tokens, 256, &count, &err), VT_OK);
    for (size_t i = 0; i < count; i++) {
        const char *part = vt_token_bytes(model, tokens[i], &bytes);
        memcpy(back + at, part, bytes);
        at += bytes;
    }
    back[at] = 0;
    assert_string_equal(back, text);
    vt_model_close(model);
}

/* Tensors of the first layer and outside of layers: the same names and numbers of dimensions as in
 * the golden file; `output.weight` and `rope_freqs.weight` some models of a family do not have. */
static void check_names(const vt_gguf *ours, const vt_gguf *golden)
{
    const vt_gguf *sides[] = {ours, golden};
    for (int side = 0; side < 2; side++) {
        for (uint64_t i = 0; i < vt_gguf_tensor_count(sides[side]); i++) {
            vt_gguf_tensor tensor;
            vt_gguf_get_tensor(sides[side], i, &tensor);
            const char *name = tensor.name;
            bool later = strncmp(name, "blk.", 4) == 0 && strncmp(name, "blk.0.", 6) != 0;
            if (later || strncmp(name, "output.", 7) == 0) continue;
            if (strncmp(name, "rope_", 5) == 0) continue;
            const vti_gguf_tensor *twin = vti_gguf_find_tensor(sides[!side], name);
            if (!twin) fail_msg("%s is only in %s", name, vti_gguf_name(sides[side]));
            assert_int_equal(twin->dimension_count, tensor.dimension_count);
            bool floats = strcmp(tensor.type, "F32") == 0;
            if (floats != (twin->type == 0)) fail_msg("%s is F32 in one file only", name);
        }
    }
}

static void shapes_load_and_run(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *f = &families[i];
        char options[128];
        snprintf(options, sizeof options, "--vocab 512 --type q4_0 --shape %s", f->shape);
        const char *path = bench_synth("shape.gguf", options);
        vt_gguf *ours = open_gguf(path);
        const char *golden_path = test_shared_path(f->golden);
        if (golden_path) {
            vt_gguf *golden = open_gguf(golden_path);
            check_names(ours, golden);
            vt_gguf_close(golden);
        }
        vt_gguf_close(ours);
        check_text(f->shape, path);
        check_run(f->shape, path, f->runs);
        unlink(path);
    }
}

/* Numbers of parameters as published; llama's has the 32 frequency factors of its GGUF files. */
static void shapes_are_published_ones(void **state)
{
    (void)state;
    static const char *const parameters[] = {
        "494032768",   "1543714304", "3085938688", "619570176",  "1836828672",
        "14315784192", "999885952",  "3880099328", "1235814432", "596049920",
    };
    bench_result r = bench_run("BENCH synth --list");
    assert_int_equal(r.code, 0);
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        if (!strstr(r.text, parameters[i])) fail_msg("no %s in:\n%s", parameters[i], r.text);
    free(r.text);
}

/* --- types ------------------------------------------------------------------------------------ */

/* Which tensors get which type: as llama.cpp's quantiser decides. */
static void mixes_are_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *options, *name, *type;
    } cases[] = {
        {"qwen3-0.6b --type q4_0", "token_embd.weight", "Q6_K  1024 x 151936"},
        {"qwen3-0.6b --type q4_0", "blk.0.ffn_down.weight", "Q4_0  3072 x 1024"},
        {"qwen3-0.6b --type q4_k", "token_embd.weight", "Q4_K"},
        {"qwen3-0.6b --type q4_k_m", "token_embd.weight", "Q6_K"},
        {"qwen3-0.6b --type q4_k_m", "blk.2.attn_v.weight", "Q6_K  1024 x 1024"},
        {"qwen3-0.6b --type q4_k_m", "blk.2.attn_k.weight", "Q4_K"},
        {"qwen3-0.6b --type q4_k_m", "blk.3.ffn_down.weight", "Q4_K"},
        {"qwen3-0.6b --type q4_k_m", "blk.5.ffn_down.weight", "Q6_K"},
        {"qwen3-0.6b --type q4_k_m", "blk.23.ffn_down.weight", "Q6_K"},
        {"qwen3-0.6b --type q4_k_m", "blk.22.ffn_down.weight", "Q4_K"},
        {"qwen3-0.6b --type q5_k_m", "blk.27.ffn_down.weight", "Q6_K"},
        {"qwen3-0.6b --type q5_k_m", "blk.27.ffn_gate.weight", "Q5_K"},
        {"qwen1.5-0.5b --type q4_k_m", "output.weight", "Q6_K"},
        {"qwen1.5-0.5b --type q4_k_m", "token_embd.weight", "Q4_K"},
        {"qwen1.5-moe-a2.7b --type q4_k", "blk.3.ffn_down_exps.weight", "Q5_0  1408 x 2048 x 60"},
        {"qwen1.5-moe-a2.7b --type q4_k", "blk.3.ffn_gate_inp.weight", "F32   2048 x 60"},
        {"qwen2.5-0.5b --type q4_k_m", "blk.0.ffn_gate.weight", "Q5_0"},
        {"qwen2.5-0.5b --type q4_k_m", "blk.0.attn_v.weight", "Q8_0"},
        {"qwen2.5-0.5b --type q4_k_m", "token_embd.weight", "Q8_0"},
        {"qwen2.5-0.5b --type q5_k", "blk.0.ffn_gate.weight", "Q5_1"},
        {"qwen2.5-0.5b --type q6_k", "blk.0.ffn_gate.weight", "Q8_0"},
        {"qwen2.5-0.5b --type q6_k", "blk.0.ffn_down.weight", "Q6_K"},
        {"qwen2.5-0.5b --type q6_k", "blk.0.attn_q.bias", "F32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256], wanted[128];
        snprintf(line, sizeof line, "BENCH synth --tensors --shape %s", cases[i].options);
        snprintf(wanted, sizeof wanted, "%-36s %s", cases[i].name, cases[i].type);
        bench_expect(line, 0, wanted);
    }
}

/* --- quantisation ----------------------------------------------------------------------------- */

static float highest(const float *x, size_t count, float sign)
{
    float most = sign * x[0];
    for (size_t i = 1; i < count; i++) most = fmaxf(most, sign * x[i]);
    return most;
}

static float largest(const float *x, size_t count)
{
    return fmaxf(highest(x, count, 1), highest(x, count, -1));
}

/* Largest error that rounding to the nearest step can make for the weights of x[at …], in a block
 * (of 32 or 256) that begins at x. Halves may make steps a little larger. */
static float bound_symmetric(const float *x, size_t width, float levels)
{
    return largest(x, width) / levels * (1 + 0x1p-10f);
}

/* Steps of a sub-block are whole numbers of 1/63 or 1/127 of the largest one. */
static float bound_affine(const float *x, size_t at, float levels)
{
    float widest = 0, lowest = 0;
    for (size_t j = 0; j < 256; j += 32) {
        lowest = fmaxf(lowest, highest(x + j, 32, -1));
        widest = fmaxf(widest, highest(x + j, 32, 1) + fmaxf(highest(x + j, 32, -1), 0));
    }
    const float *block = x + at / 32 * 32;
    float span = highest(block, 32, 1) + fmaxf(highest(block, 32, -1), 0) + lowest / 63;
    return (span / levels + (widest + lowest / 63) / levels / 63) / 2 * (1 + 0x1p-9f);
}

static float bound_q6(const float *x, size_t at)
{
    float widest = 0;
    for (size_t j = 0; j < 256; j += 16) widest = fmaxf(widest, largest(x + j, 16));
    float step = largest(x + at / 16 * 16, 16) / 31 + widest / 31 / 127;
    return step / 2 * (1 + 0x1p-9f);
}

static float bound_at(const char *type, const float *x, size_t at)
{
    const float *block = x + at / 32 * 32, *super = x + at / 256 * 256;
    if (strcmp(type, "F16") == 0) return fabsf(x[at]) * 0x1p-11f + 0x1p-25f;
    if (strcmp(type, "BF16") == 0) return fabsf(x[at]) * 0x1p-8f;
    if (strcmp(type, "Q8_0") == 0) return bound_symmetric(block, 32, 254);
    if (strcmp(type, "Q4_0") == 0) return bound_symmetric(block, 32, 8);
    if (strcmp(type, "Q5_0") == 0) return bound_symmetric(block, 32, 16);
    if (strcmp(type, "Q5_1") == 0)
        return (highest(block, 32, 1) + highest(block, 32, -1)) / 62 * (1 + 0x1p-9f) +
               largest(block, 32) * 0x1p-10f;
    if (strcmp(type, "Q4_K") == 0) return bound_affine(super, at % 256, 15);
    if (strcmp(type, "Q5_K") == 0) return bound_affine(super, at % 256, 31);
    if (strcmp(type, "Q6_K") == 0) return bound_q6(super, at % 256);
    return 0;
}

static float half(const unsigned char *bytes)
{
    unsigned bits = bytes[0] | (unsigned)bytes[1] << 8, exponent = bits >> 10 & 31;
    float fraction = (float)(bits & 1023) / 1024;
    float size = exponent ? ldexpf(1 + fraction, (int)exponent - 15) : ldexpf(fraction, -14);
    return bits & 0x8000 ? -size : size;
}

/* Q5_0 and Q5_1, by their definition: the fifth bits are one number, nibbles in halves. */
static void dequantize_q5(bool with_min, float *out, const unsigned char *from, size_t count)
{
    for (size_t i = 0; i < count; i += 32, from += with_min ? 24 : 22) {
        const unsigned char *high = from + (with_min ? 4 : 2), *low = high + 4;
        for (unsigned j = 0; j < 32; j++) {
            int q = (j < 16 ? low[j] & 15 : low[j - 16] >> 4) | (high[j / 8] >> j % 8 & 1) << 4;
            out[i + j] = with_min ? half(from) * (float)q + half(from + 2)
                                  : half(from) * (float)(q - 16);
        }
    }
}

static void dequantize(const char *type, float *out, const void *from, size_t count)
{
    static const struct {
        const char *name;
        vti_weight_type type;
    } native[] = {
        {"F32", VTI_F32},   {"F16", VTI_F16},   {"BF16", VTI_BF16}, {"Q8_0", VTI_Q8_0},
        {"Q4_0", VTI_Q4_0}, {"Q4_K", VTI_Q4_K}, {"Q5_K", VTI_Q5_K}, {"Q6_K", VTI_Q6_K},
    };
    vti_kernels kernels;
    vti_kernels_init(&kernels, 0);
    for (size_t i = 0; i < sizeof native / sizeof *native; i++)
        if (strcmp(native[i].name, type) == 0)
            return kernels.matmul[native[i].type].dequantize(out, from, count);
    dequantize_q5(strcmp(type, "Q5_1") == 0, out, from, count);
}

/* The first 32 rows of one tensor in a file of floats and in a file of `type`. */
static void check_rows(const vt_gguf *exact, const vt_gguf *gguf, const char *name,
                       const char *type)
{
    const vti_gguf_tensor *a = vti_gguf_find_tensor(exact, name);
    const vti_gguf_tensor *b = vti_gguf_find_tensor(gguf, name);
    assert_string_equal(vti_ggml_type_find(b->type)->name, type);
    size_t count = 32 * (size_t)a->dimensions[0];
    float *back = malloc(count * sizeof *back);
    assert_non_null(back);
    const float *x = a->data;
    dequantize(type, back, b->data, count);
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        float error = fabsf(back[i] - x[i]), bound = bound_at(type, x, i);
        if (!(error <= bound))
            fail_msg("%s %s: weight %zu is %g for %g, off by %g, bound %g", type, name, i,
                     (double)back[i], (double)x[i], (double)error, (double)bound);
        if (bound > 0) worst = fmax(worst, (double)(error / bound));
    }
    free(back);
    /* A bound that nothing comes near would prove nothing. */
    if (strcmp(type, "F32") != 0 && worst < 0.8) fail_msg("%s: the bound is too wide", type);
}

static void quantisation_rounds_to_the_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *options, *type, *name;
    } cases[] = {
        {"f32", "F32", "blk.0.attn_k.weight"},    {"f16", "F16", "blk.0.attn_k.weight"},
        {"bf16", "BF16", "blk.0.attn_k.weight"},  {"q8_0", "Q8_0", "blk.0.attn_k.weight"},
        {"q4_0", "Q4_0", "blk.0.ffn_up.weight"},  {"q4_k", "Q4_K", "blk.0.ffn_down.weight"},
        {"q5_k", "Q5_K", "blk.0.ffn_down.weight"}, {"q6_k", "Q6_K", "blk.0.ffn_down.weight"},
        {"q4_k", "Q5_0", "blk.0.attn_k.weight"},
        {"q5_k", "Q5_1", "blk.0.attn_k.weight"},
    };
    char exact_path[128], options[128];
    static const char common[] = "--shape qwen2.5-0.5b --layers 1 --vocab 320";
    snprintf(options, sizeof options, "%s --type f32", common);
    snprintf(exact_path, sizeof exact_path, "%s", bench_synth("exact.gguf", options));
    vt_gguf *exact = open_gguf(exact_path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(options, sizeof options, "%s --type %s", common, cases[i].options);
        const char *path = bench_synth("type.gguf", options);
        vt_gguf *gguf = open_gguf(path);
        check_rows(exact, gguf, cases[i].name, cases[i].type);
        vt_gguf_close(gguf);
        unlink(path);
    }
    vt_gguf_close(exact);
    unlink(exact_path);
}

static void weights_are_gaussian(void **state)
{
    (void)state;
    const char *path =
        bench_synth("f32.gguf", "--shape qwen2.5-0.5b --layers 1 --vocab 320 --type f32 --seed 7");
    vt_gguf *gguf = open_gguf(path);
    const vti_gguf_tensor *tensor = vti_gguf_find_tensor(gguf, "blk.0.attn_q.weight");
    const float *x = tensor->data;
    size_t count = 896 * 896, inside = 0;
    double sum = 0, square = 0, neighbours = 0;
    for (size_t i = 0; i < count; i++) {
        double v = x[i] * sqrt(896);
        sum += v;
        square += v * v;
        neighbours += i ? v * x[i - 1] * sqrt(896) : 0;
        inside += fabs(v) < 1;
    }
    double n = (double)count;
    assert_true(fabs(sum / n) < 0.01);
    assert_true(fabs(square / n - 1) < 0.01);
    assert_true(fabs(neighbours / n) < 0.01);
    assert_true(fabs((double)inside / n - 0.68) < 0.02);
    vt_gguf_close(gguf);
    unlink(path);
}

static void a_seed_is_a_file(void **state)
{
    (void)state;
    bench_expect("for s in 3 3 4; do n=$((n + 1)); BENCH synth --shape qwen2.5-0.5b --layers 1 "
           "--vocab 320 --type q4_k_m --seed $s -o DIR/$n.gguf || exit 1; done; cd DIR; "
           "cmp 1.gguf 2.gguf && ! cmp -s 1.gguf 3.gguf && cmp -n 1000 1.gguf 3.gguf && "
           "rm [123].gguf",
           0, NULL);
}

/* --- what can go wrong ---------------------------------------------------------------------- */

static void wrong_usage(void **state)
{
    (void)state;
    bench_expect("BENCH synth --help", 0, "--shape");
    bench_expect("BENCH synth", 2, "--shape");
    bench_expect("BENCH synth --shape gpt-9 --type f16 -o DIR/x", 2,
                 "gpt-9\" is not known; known: qwen");
    bench_expect("BENCH synth --shape qwen2.5-3b --type q9 -o DIR/x", 2,
                 "q9\" is not known; known: f32");
    bench_expect("BENCH synth --shape qwen2.5-3b --type f16", 2, "-o");
    bench_expect("BENCH synth --shape", 2, "--shape needs a value");
    bench_expect("BENCH synth --wings 2", 2, "--wings");
    bench_expect("BENCH synth --vocab 3", 2, "from 320 to");
    bench_expect("BENCH synth --layers x", 2, "\"x\"");
    bench_expect("BENCH synth --shape qwen2.5-3b --type f16 --experts 4 -o DIR/x", 2, "no experts");
    bench_expect_empty_folder();
}

static void nothing_is_left_behind(void **state)
{
    (void)state;
    static const char shape[] = "--shape qwen2.5-3b --type q8_0";
    char line[512];
    snprintf(line, sizeof line, "BENCH synth %s -o DIR/none/x.gguf", shape);
    bench_expect(line, 3, "none/x.gguf");
    snprintf(line, sizeof line, "BENCH synth %s -o DIR", shape);
    bench_expect(line, 3, "no ordinary file");
    /* A limit on the size of files stands for a full disk. */
    snprintf(line, sizeof line, "ulimit -f 1000; BENCH synth %s -o DIR/x.gguf", shape);
    bench_expect(line, 3, "x.gguf: ");
    bench_expect_empty_folder();
    snprintf(line, sizeof line,
             "BENCH synth %s -o DIR/x.gguf & until ls DIR/x.gguf.* 2>/dev/null; do sleep 0.01; "
             "done; kill -TERM $!; wait $!", shape);
    bench_expect(line, VT_ERR_CANCELLED, "interrupted");
    bench_expect_empty_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_published_ones),
        cmocka_unit_test(shapes_load_and_run),
        cmocka_unit_test(mixes_are_published_ones),
        cmocka_unit_test(quantisation_rounds_to_the_nearest),
        cmocka_unit_test(weights_are_gaussian),
        cmocka_unit_test(a_seed_is_a_file),
        cmocka_unit_test(wrong_usage),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, bench_make_folder, bench_remove_folder);
}
