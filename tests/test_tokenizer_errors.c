/* Vocabularies that are wrong give an error that names the key; odd published ones work. */
#include "support.h"
#include "vocabulary.h"

#include <stdlib.h>
#include <string.h>

typedef struct wrong_case {
    const char *what;
    void (*change)(test_vocabulary *vocabulary);
    void (*put)(gguf_builder *builder);
    vt_status status;
    const char *message; /* a part of it */
} wrong_case;

static void no_model(test_vocabulary *v) { v->model = NULL; }
static void bert(test_vocabulary *v) { v->model = "bert"; }
static void no_pre(test_vocabulary *v) { v->pre = NULL; }
static void strange_pre(test_vocabulary *v) { v->pre = "strange"; }
static void no_tokens(test_vocabulary *v) { v->token_count = 0; }
static void type_zero(test_vocabulary *v) { v->types[7] = 0; }
static void type_seven(test_vocabulary *v) { v->types[7] = 7; }
static void type_negative(test_vocabulary *v) { v->types[7] = -3; }
static void merge_without_space(test_vocabulary *v) { strcpy(v->merges[v->merge_count++], "ab"); }
static void merge_without_left(test_vocabulary *v) { strcpy(v->merges[v->merge_count++], " b"); }
static void merge_without_right(test_vocabulary *v) { strcpy(v->merges[v->merge_count++], "a "); }
static void merge_empty(test_vocabulary *v) { strcpy(v->merges[v->merge_count++], ""); }
static void merge_strange_left(test_vocabulary *v) { strcpy(v->merges[v->merge_count++], "xy b"); }
static void merge_strange_right(test_vocabulary *v) { strcpy(v->merges[v->merge_count++], "b xy"); }
static void merge_to_nothing(test_vocabulary *v) { strcpy(v->merges[v->merge_count++], "b c"); }

static void merge_to_control(test_vocabulary *v)
{
    v->types[test_vocabulary_merge(v, "b", "c")] = 3;
}

static void byte_negative(test_vocabulary *v) { test_vocabulary_add(v, "<0x-1>", 6); }
static void byte_short(test_vocabulary *v) { test_vocabulary_add(v, "<0x1>", 6); }
static void byte_no_hex(test_vocabulary *v) { test_vocabulary_add(v, "<0x0G>", 6); }
static void byte_open(test_vocabulary *v) { test_vocabulary_add(v, "<0x0AA", 6); }

static void model_number(gguf_builder *b) { gguf_put_u32(b, "tokenizer.ggml.model", 1); }
static void llama(gguf_builder *b) { gguf_put_string(b, "general.architecture", "llama"); }
static void pre_number(gguf_builder *b) { gguf_put_u32(b, "tokenizer.ggml.pre", 1); }
static void bos_beyond(gguf_builder *b) { gguf_put_u32(b, "tokenizer.ggml.bos_token_id", 258); }

static void eos_beyond(gguf_builder *b)
{
    gguf_put_u32(b, "tokenizer.ggml.eos_token_id", UINT32_MAX);
}

static void eot_beyond(gguf_builder *b)
{
    gguf_put_u32(b, "tokenizer.ggml.eot_token_id", 1u << 31);
}

static void eom_beyond(gguf_builder *b) { gguf_put_u32(b, "tokenizer.ggml.eom_token_id", 9999); }

static void unknown_beyond(gguf_builder *b)
{
    gguf_put_u32(b, "tokenizer.ggml.unknown_token_id", 300);
}

static void bos_negative(gguf_builder *b) { gguf_put_i32(b, "tokenizer.ggml.bos_token_id", -1); }
static void bos_text(gguf_builder *b) { gguf_put_string(b, "tokenizer.ggml.bos_token_id", "<s>"); }
static void add_no_bos(gguf_builder *b) { gguf_put_bool(b, "tokenizer.ggml.add_bos_token", true); }
static void add_bos_number(gguf_builder *b) { gguf_put_u32(b, "tokenizer.ggml.add_bos_token", 1); }

static const wrong_case wrong[] = {
    {"no model", no_model, NULL, VT_ERR_FORMAT, "tokenizer.ggml.model"},
    {"model a number", no_model, model_number, VT_ERR_FORMAT, "tokenizer.ggml.model"},
    {"model bert", bert, NULL, VT_ERR_UNSUPPORTED, "\"bert\" is not known; known: gpt2"},
    {"no pre", no_pre, NULL, VT_ERR_FORMAT, "tokenizer.ggml.pre is missing"},
    {"no pre, llama", no_pre, llama, VT_ERR_FORMAT, "tokenizer.ggml.pre is missing"},
    {"pre a number", no_pre, pre_number, VT_ERR_FORMAT, "tokenizer.ggml.pre"},
    {"strange pre", strange_pre, NULL, VT_ERR_UNSUPPORTED,
     "\"strange\" is not known; known, to be chosen with --pre: qwen2"},
    {"no tokens", no_tokens, NULL, VT_ERR_FORMAT, "tokenizer.ggml.tokens has 0 tokens"},
    {"type 0", type_zero, NULL, VT_ERR_FORMAT, "tokenizer.ggml.token_type 7 is 0"},
    {"type 7", type_seven, NULL, VT_ERR_FORMAT, "tokenizer.ggml.token_type 7 is 7"},
    {"type -3", type_negative, NULL, VT_ERR_FORMAT, "tokenizer.ggml.token_type 7 is -3"},
    {"merge without space", merge_without_space, NULL, VT_ERR_FORMAT,
     "tokenizer.ggml.merges 1 is \"ab\""},
    {"merge without left", merge_without_left, NULL, VT_ERR_FORMAT, "tokenizer.ggml.merges 1"},
    {"merge without right", merge_without_right, NULL, VT_ERR_FORMAT, "tokenizer.ggml.merges 1"},
    {"merge empty", merge_empty, NULL, VT_ERR_FORMAT, "tokenizer.ggml.merges 1"},
    {"merge left", merge_strange_left, NULL, VT_ERR_FORMAT, "\"xy b\": its left piece"},
    {"merge right", merge_strange_right, NULL, VT_ERR_FORMAT, "\"b xy\": its right piece"},
    {"merge result", merge_to_nothing, NULL, VT_ERR_FORMAT, "\"b c\": what it joins to"},
    {"merge to control", merge_to_control, NULL, VT_ERR_FORMAT, "\"b c\": what it joins to"},
    {"byte -1", byte_negative, NULL, VT_ERR_FORMAT, "\"<0x-1>\""},
    {"byte 1", byte_short, NULL, VT_ERR_FORMAT, "\"<0x1>\""},
    {"byte 0G", byte_no_hex, NULL, VT_ERR_FORMAT, "tokenizer.ggml.tokens 257"},
    {"byte open", byte_open, NULL, VT_ERR_FORMAT, "\"<0x0AA\""},
    {"bos beyond", NULL, bos_beyond, VT_ERR_FORMAT, "tokenizer.ggml.bos_token_id is 258"},
    {"bos -1", NULL, bos_negative, VT_ERR_FORMAT, "tokenizer.ggml.bos_token_id"},
    {"bos a text", NULL, bos_text, VT_ERR_FORMAT, "tokenizer.ggml.bos_token_id"},
    {"eos beyond", NULL, eos_beyond, VT_ERR_FORMAT, "tokenizer.ggml.eos_token_id is 4294967295"},
    {"eot beyond", NULL, eot_beyond, VT_ERR_FORMAT, "tokenizer.ggml.eot_token_id"},
    {"eom beyond", NULL, eom_beyond, VT_ERR_FORMAT, "tokenizer.ggml.eom_token_id"},
    {"unknown beyond", NULL, unknown_beyond, VT_ERR_FORMAT, "tokenizer.ggml.unknown_token_id"},
    {"add no bos", NULL, add_no_bos, VT_ERR_FORMAT, "tokenizer.ggml.bos_token_id is missing"},
    {"add_bos 1", NULL, add_bos_number, VT_ERR_FORMAT, "tokenizer.ggml.add_bos_token"},
};

static void test_wrong_vocabularies(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        static test_vocabulary vocabulary;
        vt_error err = {.message = ""};
        vti_tokenizer *tokenizer = (vti_tokenizer *)&vocabulary;
        test_vocabulary_bytes(&vocabulary, "qwen2");
        test_vocabulary_merge(&vocabulary, "a", "b");
        if (wrong[i].change) wrong[i].change(&vocabulary);
        gguf_builder *builder = test_vocabulary_builder(&vocabulary);
        if (wrong[i].put) wrong[i].put(builder);
        vt_status status = test_tokenizer_open(builder, &tokenizer, &err);
        if (status != wrong[i].status || tokenizer || !strstr(err.message, wrong[i].message))
            fail_msg("%s: %s, \"%s\"", wrong[i].what, vt_status_name(status), err.message);
    }
}

/* Arrays the builder of vocabularies cannot get wrong. */
static void test_wrong_arrays(void **state)
{
    (void)state;
    static const int32_t types[] = {1, 1, 1};
    static const char *const tokens[] = {"a", "b"}, *const merges[] = {"a b"};
    for (int i = 0; i < 5; i++) {
        vt_error err = {.message = ""};
        vti_tokenizer *tokenizer;
        gguf_builder *builder = gguf_builder_new(3);
        gguf_put_string(builder, "tokenizer.ggml.model", "gpt2");
        gguf_put_string(builder, "tokenizer.ggml.pre", "qwen2");
        if (i == 1) gguf_put_array(builder, "tokenizer.ggml.tokens", VTI_GGUF_I32, 3, types);
        if (i > 1) gguf_put_strings(builder, "tokenizer.ggml.tokens", 2, tokens);
        if (i == 2) gguf_put_array(builder, "tokenizer.ggml.token_type", VTI_GGUF_I32, 3, types);
        if (i == 3) gguf_put_strings(builder, "tokenizer.ggml.token_type", 2, tokens);
        if (i == 4) gguf_put_string(builder, "tokenizer.ggml.merges", merges[0]);
        static const char *const expected[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.tokens",
                                               "token_type has 3", "token_type", "merges"};
        if (test_tokenizer_open(builder, &tokenizer, &err) != VT_ERR_FORMAT ||
            !strstr(err.message, expected[i]))
            fail_msg("case %d: \"%s\"", i, err.message);
    }
}

static vti_tokenizer *open_or_fail(gguf_builder *builder)
{
    vt_error err;
    vti_tokenizer *tokenizer;
    if (test_tokenizer_open(builder, &tokenizer, &err) != VT_OK) fail_msg("%s", err.message);
    return tokenizer;
}

static void test_missing_pre_of_a_qwen_file(void **state)
{
    (void)state;
    static test_vocabulary vocabulary;
    test_vocabulary_bytes(&vocabulary, NULL);
    gguf_builder *builder = test_vocabulary_builder(&vocabulary);
    gguf_put_string(builder, "general.architecture", "qwen2moe");
    vti_tokenizer *tokenizer = open_or_fail(builder);
    test_assert_tokens(tokenizer, "e\xCC\x81", 0, (vt_token[]){0xC3, 0xA9}, 2); /* NFC: qwen2 */
    vti_tokenizer_close(tokenizer);
}

static void test_no_token_types(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "b", "ab"}, *const merges[] = {"a b"};
    gguf_builder *builder = gguf_builder_new(3);
    gguf_put_string(builder, "tokenizer.ggml.model", "gpt2");
    gguf_put_string(builder, "tokenizer.ggml.pre", "gpt-2");
    gguf_put_strings(builder, "tokenizer.ggml.tokens", 3, tokens);
    gguf_put_strings(builder, "tokenizer.ggml.merges", 1, merges);
    vti_tokenizer *tokenizer = open_or_fail(builder);
    test_assert_tokens(tokenizer, "aabb", 0, (vt_token[]){0, 2, 1}, 3);
    vti_tokenizer_close(tokenizer);
}

/* Equal, empty and unspellable texts; a merge that comes twice. */
static void test_odd_vocabulary(void **state)
{
    (void)state;
    static test_vocabulary vocabulary;
    test_vocabulary_bytes(&vocabulary, "gpt-2");
    vt_token user = test_vocabulary_add(&vocabulary, "ab", 4);
    vt_token ab = test_vocabulary_merge(&vocabulary, "a", "b");
    test_vocabulary_merge(&vocabulary, "b", "c");
    vt_token again = test_vocabulary_merge(&vocabulary, "a", "b");
    vt_token empty = test_vocabulary_add(&vocabulary, "", 4);
    vt_token raw = test_vocabulary_add(&vocabulary, "two words", 1);
    vt_token byte = test_vocabulary_add(&vocabulary, "<0x0A>", 6);
    vti_tokenizer *tokenizer = open_or_fail(test_vocabulary_builder(&vocabulary));
    test_assert_tokens(tokenizer, "ab", 0, &user, 1); /* before any merge */
    assert_true(ab < again);
    size_t bytes;
    assert_memory_equal(vti_tokenizer_bytes(tokenizer, raw, &bytes), "two words", 9);
    assert_int_equal(bytes, 9);
    assert_memory_equal(vti_tokenizer_bytes(tokenizer, byte, &bytes), "\n", 1);
    assert_int_equal(bytes, 1);
    assert_non_null(vti_tokenizer_bytes(tokenizer, empty, &bytes));
    assert_int_equal(bytes, 0);
    vti_tokenizer_close(tokenizer);

    vocabulary.types[user] = 1;
    vocabulary.types[empty] = 1;
    tokenizer = open_or_fail(test_vocabulary_builder(&vocabulary));
    test_assert_tokens(tokenizer, "ab", 0, &user, 1); /* of equal texts the lowest id */
    test_assert_tokens(tokenizer, "abc", 0, (vt_token[]){user, 'c'}, 2); /* the first rank counts */
    vti_tokenizer_close(tokenizer);
}

/* Some vocabularies lack bytes. */
static void test_byte_without_token(void **state)
{
    (void)state;
    for (int with_unknown = 0; with_unknown < 2; with_unknown++) {
        static test_vocabulary vocabulary;
        test_vocabulary_bytes(&vocabulary, "gpt-2");
        vocabulary.types['z'] = 4; /* now the letter, not the byte */
        strcpy(vocabulary.tokens['y'], "other");
        vt_token unknown = test_vocabulary_add(&vocabulary, "<unk>", 2);
        gguf_builder *builder = test_vocabulary_builder(&vocabulary);
        if (with_unknown)
            gguf_put_u32(builder, "tokenizer.ggml.unknown_token_id", (uint32_t)unknown);
        vti_tokenizer *tokenizer = open_or_fail(builder);
        test_assert_tokens(tokenizer, "z", 0, (vt_token[]){'z'}, 1);
        vt_token tokens[8];
        size_t count;
        vt_error err = {.message = ""};
        if (with_unknown) {
            test_assert_tokens(tokenizer, "xyx", 0, (vt_token[]){'x', unknown, 'x'}, 3);
            assert_true(vti_tokenizer_is_control(tokenizer, unknown));
        } else {
            assert_int_equal(vti_tokenizer_encode(tokenizer, "xyx", 3, 0, tokens, 8, &count, &err),
                             VT_ERR_FORMAT);
            assert_non_null(strstr(err.message, "0x79"));
        }
        vti_tokenizer_close(tokenizer);
    }
}

/* Programs print the name of a model: nothing in it may steer a terminal. */
static void test_printable_name(void **state)
{
    (void)state;
    static test_vocabulary vocabulary;
    size_t bytes;
    vt_model *model;
    vt_model_info info;
    vt_error err;
    vt_model_params params = vt_model_params_default();
    params.vocabulary_only = true;
    test_vocabulary_bytes(&vocabulary, "gpt-2");
    gguf_builder *builder = test_vocabulary_builder(&vocabulary);
    gguf_put_string(builder, "general.name", "a\x1b]0;b\x07\xc2\x9bm\xff");
    unsigned char *file = gguf_builder_finish(builder, &bytes);
    assert_int_equal(vt_model_open_memory(file, bytes, &params, &model, &err), VT_OK);
    vt_model_get_info(model, &info);
    assert_string_equal(info.name, "a?]0;b???m?");
    vt_model_close(model);
    free(file);
}

/* --- the pre-tokenizer of choice ------------------------------------------------------------------ */

static vt_status open_with(const test_vocabulary *vocabulary, const char *pre, vt_model **out,
                           vt_error *err)
{
    size_t bytes;
    unsigned char *file = gguf_builder_finish(test_vocabulary_builder(vocabulary), &bytes);
    vt_model_params params = vt_model_params_default();
    params.vocabulary_only = true;
    params.pre_tokenizer = pre;
    vt_status status = vt_model_open_memory(file, bytes, &params, out, err);
    if (status == VT_OK) {
        vt_token tokens[16];
        size_t count;
        assert_int_equal(vt_tokenize(*out, "12", 2, 0, tokens, 16, &count, err), VT_OK);
        /* "1 2" is a merge: GPT-2 joins digits, Qwen takes them one by one. */
        assert_int_equal(count, strcmp(pre ? pre : vocabulary->pre, "gpt-2") == 0 ? 1 : 2);
        vt_model_close(*out);
    } else {
        assert_null(*out);
    }
    free(file);
    return status;
}

static void test_chosen_pre(void **state)
{
    (void)state;
    static test_vocabulary vocabulary;
    static const char *const names[] = {"strange", "qwen2", "gpt-2", NULL};
    vt_model *model;
    for (int i = 0; i < 4; i++) {
        vt_error err = {.message = ""};
        bool known = i == 1 || i == 2;
        test_vocabulary_bytes(&vocabulary, names[i]);
        test_vocabulary_merge(&vocabulary, "1", "2");
        assert_int_equal(open_with(&vocabulary, "gpt-2", &model, &err), VT_OK);
        assert_int_equal(open_with(&vocabulary, "qwen2", &model, &err), VT_OK);
        assert_int_equal(open_with(&vocabulary, NULL, &model, &err) == VT_OK, known);
        if (!known) assert_non_null(strstr(err.message, "--pre"));
        assert_int_equal(open_with(&vocabulary, "odd", &model, &err), VT_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "\"odd\" is not known; known, to be chosen with --pre: "
                                            "qwen2 "));
    }
    vt_error err;
    vocabulary.model = "llama";
    assert_int_equal(open_with(&vocabulary, "qwen2", &model, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "\"qwen2\" was chosen"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_vocabularies),
        cmocka_unit_test(test_wrong_arrays),
        cmocka_unit_test(test_missing_pre_of_a_qwen_file),
        cmocka_unit_test(test_no_token_types),
        cmocka_unit_test(test_odd_vocabulary),
        cmocka_unit_test(test_byte_without_token),
        cmocka_unit_test(test_chosen_pre),
        cmocka_unit_test(test_printable_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
