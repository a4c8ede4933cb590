/* The tokenizer as a whole: golden ids, round trips, special tokens, limits, threads. */
#include "support.h"
#include "vocabulary.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define STORIES "src/assets/stories-4m-f16.gguf"

/* --- golden ids ------------------------------------------------------------------------------ */

static char *normal_form(const char *text, size_t bytes, size_t *out_bytes)
{
    utf8proc_uint8_t *out;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes,
                                           &out, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(length >= 0);
    *out_bytes = (size_t)length;
    return (char *)out;
}

static void test_golden_qwen(void **state)
{
    (void)state;
    const char *model = test_shared_path("golden/vocab-qwen.gguf");
    const char *lines = test_shared_path("golden/tok-qwen.jsonl");
    if (!model || !lines) skip();
    vti_tokenizer *tokenizer = test_tokenizer_of_file(model);
    assert_int_equal(vti_tokenizer_size(tokenizer), 151936);
    assert_int_equal(test_check_golden(tokenizer, lines, normal_form), 125);
    vti_tokenizer_close(tokenizer);
}

static void test_golden_stories(void **state)
{
    (void)state;
    vti_tokenizer *tokenizer = test_tokenizer_of_file(STORIES);
    assert_int_equal(vti_tokenizer_size(tokenizer), 2048);
    assert_int_equal(vti_tokenizer_bos(tokenizer), 2045);
    assert_int_equal(vti_tokenizer_eos(tokenizer), 2045);
    assert_int_equal(test_check_golden(tokenizer, "tests/data/tok-stories.jsonl", normal_form), 85);
    vti_tokenizer_close(tokenizer);
}

/* --- round trips ----------------------------------------------------------------------------- */

/* Without normalisation any bytes come back as they were. */
static void test_any_bytes_come_back(void **state)
{
    (void)state;
    static test_vocabulary vocabulary;
    vt_error err;
    vti_tokenizer *tokenizer;
    test_vocabulary_bytes(&vocabulary, "gpt-2");
    test_vocabulary_merge(&vocabulary, "a", "b");
    test_vocabulary_merge(&vocabulary, "\xC3\x83", "\xC2\xA9"); /* the two bytes of an e acute */
    assert_int_equal(test_tokenizer_open(test_vocabulary_builder(&vocabulary), &tokenizer, &err),
                     VT_OK);
    test_random random = {.state = 5};
    for (int round = 0; round < 3000; round++) {
        char text[200];
        size_t bytes = test_random_u64(&random) % sizeof text, count, decoded_bytes;
        for (size_t i = 0; i < bytes; i++) {
            static const char frequent[] = "ab \n\xC3\xA9";
            uint64_t r = test_random_u64(&random);
            text[i] = r & 1 ? (char)(r >> 8) : frequent[(r >> 8) % 6];
        }
        vt_token *tokens = test_encode(tokenizer, text, bytes, 0, &count);
        char *decoded = test_decode(tokenizer, tokens, count, &decoded_bytes);
        if (decoded_bytes != bytes || memcmp(text, decoded, bytes) != 0)
            fail_msg("round %d", round);
        free(tokens);
        free(decoded);
    }
    vti_tokenizer_close(tokenizer);
}

/* Bytes that are not UTF-8 split the text; what is between them is encoded as ever. */
static void test_invalid_bytes_stay(void **state)
{
    (void)state;
    vti_tokenizer *tokenizer = test_tokenizer_of_file(STORIES);
    const char text[] = "Once\xFF upon\xC3 a\xE2\x82 time\xED\xA0\x80";
    size_t count, bytes;
    vt_token *tokens = test_encode(tokenizer, text, sizeof text - 1, 0, &count);
    char *decoded = test_decode(tokenizer, tokens, count, &bytes);
    assert_int_equal(bytes, sizeof text - 1);
    assert_memory_equal(decoded, text, bytes);
    test_assert_tokens(tokenizer, "\xFF", 0, (vt_token[]){0xFF}, 1);
    assert_int_equal(tokens[1], 0xFF);
    assert_int_equal(count, 4 + 7); /* Once, upon, a, time are one token each */
    free(tokens);
    free(decoded);
    vti_tokenizer_close(tokenizer);
}

/* --- long texts ------------------------------------------------------------------------------ */

/* A million bytes without a word boundary: quadratic merging would take hours. */
static void test_a_megabyte_of_one_letter(void **state)
{
    (void)state;
    enum { BYTES = 1000003 };
    static test_vocabulary vocabulary;
    vt_error err;
    vti_tokenizer *tokenizer;
    test_vocabulary_bytes(&vocabulary, "qwen2");
    vt_token two = test_vocabulary_merge(&vocabulary, "a", "a");
    test_vocabulary_merge(&vocabulary, "aa", "aa");
    vt_token eight = test_vocabulary_merge(&vocabulary, "aaaa", "aaaa");
    assert_int_equal(test_tokenizer_open(test_vocabulary_builder(&vocabulary), &tokenizer, &err),
                     VT_OK);
    char *text = malloc(BYTES);
    memset(text, 'a', BYTES);
    size_t count;
    vt_token *tokens = test_encode(tokenizer, text, BYTES, 0, &count);
    assert_int_equal(count, 125000 + 2); /* 3 letters are left: "aa" and "a" */
    for (size_t i = 0; i < 125000; i++)
        if (tokens[i] != eight) fail_msg("token %zu is %d", i, tokens[i]);
    assert_int_equal(tokens[125000], two);
    assert_int_equal(tokens[125001], 'a');
    free(tokens);
    memset(text, ' ', BYTES);
    tokens = test_encode(tokenizer, text, BYTES, 0, &count);
    assert_int_equal(count, BYTES);
    free(tokens);
    free(text);
    vti_tokenizer_close(tokenizer);
}

/* Long texts take the word cache; it must not change a token. */
static void test_repeated_words_are_the_same(void **state)
{
    (void)state;
    vti_tokenizer *tokenizer = test_tokenizer_of_file(STORIES);
    static const char *const words[] = {" unbelievable", " Lily", " it's",
                                        "\n\nThe",       " 12",   " caf\xC3\xA9"};
    test_random random = {.state = 9};
    char *text = calloc(1, 300000);
    size_t bytes = 0, expected_count = 0, count;
    vt_token *expected = malloc(300000 * sizeof *expected);
    for (int i = 0; i < 15000; i++) {
        const char *word = words[test_random_u64(&random) % 6];
        vt_token *tokens = test_encode(tokenizer, word, strlen(word), 0, &count);
        memcpy(expected + expected_count, tokens, count * sizeof *tokens);
        memcpy(text + bytes, word, strlen(word));
        expected_count += count;
        bytes += strlen(word);
        free(tokens);
    }
    vt_token *tokens = test_encode(tokenizer, text, bytes, 0, &count);
    assert_int_equal(count, expected_count);
    assert_memory_equal(tokens, expected, count * sizeof *tokens);
    free(tokens);
    free(expected);
    free(text);
    vti_tokenizer_close(tokenizer);
}

/* --- named tokens ---------------------------------------------------------------------------- */

typedef struct named_tokens {
    vti_tokenizer *tokenizer;
    vt_token start, end, end_long, think, tool;
} named_tokens;

static named_tokens open_named(bool add_bos)
{
    static test_vocabulary vocabulary;
    named_tokens named;
    vt_error err;
    test_vocabulary_bytes(&vocabulary, "qwen2");
    named.start = test_vocabulary_add(&vocabulary, "<|im_start|>", 3);
    named.end = test_vocabulary_add(&vocabulary, "<|im_end|>", 3);
    named.end_long = test_vocabulary_add(&vocabulary, "<|im_end|><", 3);
    named.think = test_vocabulary_add(&vocabulary, "<think>", 4);
    named.tool = test_vocabulary_add(&vocabulary, "\n\n", 4);
    gguf_builder *builder = test_vocabulary_builder(&vocabulary);
    gguf_put_u32(builder, "tokenizer.ggml.bos_token_id", (uint32_t)named.start);
    gguf_put_u32(builder, "tokenizer.ggml.eos_token_id", (uint32_t)named.end_long);
    gguf_put_bool(builder, "tokenizer.ggml.add_bos_token", add_bos);
    if (test_tokenizer_open(builder, &named.tokenizer, &err) != VT_OK) fail_msg("%s", err.message);
    return named;
}

static void test_control_tokens_need_the_flag(void **state)
{
    (void)state;
    named_tokens n = open_named(false);
    static const vt_token spelled[] = {'<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>'};
    test_assert_tokens(n.tokenizer, "<|im_end|>", 0, spelled, 10);
    test_assert_tokens(n.tokenizer, "<|im_end|>", VT_TOKENIZE_BOS, spelled, 10);
    test_assert_tokens(n.tokenizer, "<|im_end|>", VT_TOKENIZE_SPECIAL, &n.end, 1);
    test_assert_tokens(n.tokenizer, "a<|im_start|>b<|im_end|>", VT_TOKENIZE_SPECIAL,
                       (vt_token[]){'a', n.start, 'b', n.end}, 4);
    /* the longest of those that begin at the same place; a broken one is text */
    test_assert_tokens(n.tokenizer, "<|im_end|><|im_end|", VT_TOKENIZE_SPECIAL,
                       (vt_token[]){n.end_long, '|', 'i', 'm', '_', 'e', 'n', 'd', '|'}, 9);
    assert_true(vti_tokenizer_is_control(n.tokenizer, n.start));
    assert_false(vti_tokenizer_is_control(n.tokenizer, n.think));
    assert_false(vti_tokenizer_is_control(n.tokenizer, 'a'));
    assert_false(vti_tokenizer_is_control(n.tokenizer, -1));
    assert_false(vti_tokenizer_is_control(n.tokenizer, 100000));
    vti_tokenizer_close(n.tokenizer);
}

static void test_user_defined_tokens_do_not(void **state)
{
    (void)state;
    named_tokens n = open_named(false);
    test_assert_tokens(n.tokenizer, "a<think>\n\n\nb", 0,
                       (vt_token[]){'a', n.think, n.tool, '\n', 'b'}, 5);
    test_assert_tokens(n.tokenizer, "<think>", VT_TOKENIZE_SPECIAL, &n.think, 1);
    size_t bytes;
    const char *name = vti_tokenizer_bytes(n.tokenizer, n.think, &bytes);
    assert_int_equal(bytes, 7);
    assert_memory_equal(name, "<think>", 7);
    assert_null(vti_tokenizer_bytes(n.tokenizer, -1, &bytes));
    assert_int_equal(bytes, 0);
    vt_token past_the_end = (vt_token)vti_tokenizer_size(n.tokenizer);
    assert_null(vti_tokenizer_bytes(n.tokenizer, past_the_end, &bytes));
    vti_tokenizer_close(n.tokenizer);
}

static void test_bos_comes_once(void **state)
{
    (void)state;
    named_tokens n = open_named(true);
    const unsigned both = VT_TOKENIZE_BOS | VT_TOKENIZE_SPECIAL;
    test_assert_tokens(n.tokenizer, "", VT_TOKENIZE_BOS, &n.start, 1);
    test_assert_tokens(n.tokenizer, "", 0, NULL, 0);
    test_assert_tokens(n.tokenizer, "a", VT_TOKENIZE_BOS, (vt_token[]){n.start, 'a'}, 2);
    test_assert_tokens(n.tokenizer, "<|im_start|>a", both, (vt_token[]){n.start, 'a'}, 2);
    test_assert_tokens(n.tokenizer, " <|im_start|>", both, (vt_token[]){n.start, ' ', n.start}, 3);
    test_assert_tokens(n.tokenizer, "<think>", both, (vt_token[]){n.start, n.think}, 2);
    vti_tokenizer_close(n.tokenizer);
    n = open_named(false);
    test_assert_tokens(n.tokenizer, "a", VT_TOKENIZE_BOS, (vt_token[]){'a'}, 1);
    vti_tokenizer_close(n.tokenizer);
}

static void test_stop_set(void **state)
{
    (void)state;
    static test_vocabulary vocabulary;
    vt_error err;
    vti_tokenizer *tokenizer;
    test_vocabulary_bytes(&vocabulary, "llama-bpe");
    vt_token plain = test_vocabulary_add(&vocabulary, "<|endoftext|>", 1);
    vt_token eot = test_vocabulary_add(&vocabulary, "<|eot_id|>", 3);
    vt_token eom = test_vocabulary_add(&vocabulary, "my_eom", 3);
    vt_token eos = test_vocabulary_add(&vocabulary, "my_eos", 3);
    vt_token turn = test_vocabulary_add(&vocabulary, "<|im_end|>", 4);
    vt_token other = test_vocabulary_add(&vocabulary, "<|start_header_id|>", 3);
    gguf_builder *builder = test_vocabulary_builder(&vocabulary);
    gguf_put_u32(builder, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    gguf_put_u32(builder, "tokenizer.ggml.eom_token_id", (uint32_t)eom);
    assert_int_equal(test_tokenizer_open(builder, &tokenizer, &err), VT_OK);
    assert_true(vti_tokenizer_is_stop(tokenizer, eos));
    assert_true(vti_tokenizer_is_stop(tokenizer, eom));
    assert_true(vti_tokenizer_is_stop(tokenizer, eot));
    assert_true(vti_tokenizer_is_stop(tokenizer, turn));
    assert_false(vti_tokenizer_is_stop(tokenizer, other));
    assert_false(vti_tokenizer_is_stop(tokenizer, plain));
    assert_false(vti_tokenizer_is_stop(tokenizer, 'a'));
    assert_false(vti_tokenizer_is_stop(tokenizer, VT_TOKEN_NONE));
    assert_true(vti_tokenizer_is_control(tokenizer, turn)); /* it must not come from user text */
    assert_int_equal(vti_tokenizer_bos(tokenizer), VT_TOKEN_NONE);
    assert_int_equal(vti_tokenizer_eos(tokenizer), eos);
    vti_tokenizer_close(tokenizer);
}

/* llama-3 takes a word that is in the vocabulary whole, whatever the merges would make of it. */
static void test_words_before_merges(void **state)
{
    (void)state;
    static const char *const pres[] = {"llama-bpe", "smaug-bpe"};
    for (int i = 0; i < 2; i++) {
        static test_vocabulary vocabulary;
        vt_error err;
        vti_tokenizer *tokenizer;
        test_vocabulary_bytes(&vocabulary, pres[i]);
        vt_token ab = test_vocabulary_merge(&vocabulary, "a", "b");
        vt_token bc = test_vocabulary_merge(&vocabulary, "b", "c");
        vt_token abc = test_vocabulary_add(&vocabulary, "abc", 1);
        assert_int_equal(
            test_tokenizer_open(test_vocabulary_builder(&vocabulary), &tokenizer, &err), VT_OK);
        if (i == 0) test_assert_tokens(tokenizer, "abc", 0, &abc, 1);
        else test_assert_tokens(tokenizer, "abc", 0, (vt_token[]){ab, 'c'}, 2);
        test_assert_tokens(tokenizer, "abcbc", 0, (vt_token[]){ab, 'c', bc}, 3);
        vti_tokenizer_close(tokenizer);
    }
}

/* --- limits and threads ---------------------------------------------------------------------- */

static void test_room(void **state)
{
    (void)state;
    vti_tokenizer *tokenizer = test_tokenizer_of_file(STORIES);
    const char text[] = "Once upon a time";
    vt_token tokens[5] = {0};
    size_t count = 0;
    vt_error err;
    assert_int_equal(vti_tokenizer_encode(tokenizer, text, 16, VT_TOKENIZE_BOS, tokens, 5, &count,
                                          &err), VT_OK);
    assert_int_equal(count, 5);
    tokens[4] = 77;
    assert_int_equal(vti_tokenizer_encode(tokenizer, text, 16, VT_TOKENIZE_BOS, tokens, 4, &count,
                                          &err), VT_ERR_ARGUMENT);
    assert_int_equal(count, 5);
    assert_int_equal(tokens[4], 77);
    assert_non_null(strstr(err.message, "5 tokens"));
    assert_int_equal(vti_tokenizer_encode(tokenizer, text, 16, 0, NULL, 0, &count, NULL),
                     VT_ERR_ARGUMENT);
    assert_int_equal(count, 4);
    assert_int_equal(vti_tokenizer_encode(tokenizer, text, 16, 64, tokens, 5, &count, &err),
                     VT_ERR_ARGUMENT);
    assert_int_equal(vti_tokenizer_encode(tokenizer, text, (size_t)1 << 40, 0, tokens, 5, &count,
                                          &err), VT_ERR_ARGUMENT);
    assert_int_equal(vti_tokenizer_bound(tokenizer, SIZE_MAX), SIZE_MAX);
    vti_tokenizer_close(tokenizer);
}

typedef struct thread_task {
    const vti_tokenizer *tokenizer;
    const char *text;
    size_t bytes, count;
    vt_token *tokens;
} thread_task;

static void *encode_thread(void *user)
{
    thread_task *task = user;
    size_t bound = vti_tokenizer_bound(task->tokenizer, task->bytes);
    task->tokens = malloc(bound * sizeof *task->tokens);
    for (int i = 0; i < 20; i++)
        if (vti_tokenizer_encode(task->tokenizer, task->text, task->bytes, 0, task->tokens, bound,
                                 &task->count, NULL) != VT_OK)
            task->count = 0;
    return NULL;
}

static void test_threads_share_one(void **state)
{
    (void)state;
    vti_tokenizer *tokenizer = test_tokenizer_of_file(STORIES);
    char *text = calloc(1, 40000);
    for (int i = 0; i < 500; i++)
        strcat(text, i % 2 ? "Lily saw e\xCC\x81 12 birds.\n" : " It's unbelievable!\xFF  ");
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    thread_task tasks[THREADS];
    for (int i = 0; i < THREADS; i++) {
        tasks[i] = (thread_task){.tokenizer = tokenizer, .text = text, .bytes = strlen(text)};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_thread, &tasks[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_true(tasks[0].count > 1000);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(tasks[i].count, tasks[0].count);
        assert_memory_equal(tasks[i].tokens, tasks[0].tokens, tasks[0].count * sizeof(vt_token));
    }
    for (int i = 0; i < THREADS; i++) free(tasks[i].tokens);
    free(text);
    vti_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_qwen),
        cmocka_unit_test(test_golden_stories),
        cmocka_unit_test(test_any_bytes_come_back),
        cmocka_unit_test(test_invalid_bytes_stay),
        cmocka_unit_test(test_a_megabyte_of_one_letter),
        cmocka_unit_test(test_repeated_words_are_the_same),
        cmocka_unit_test(test_control_tokens_need_the_flag),
        cmocka_unit_test(test_user_defined_tokens_do_not),
        cmocka_unit_test(test_bos_comes_once),
        cmocka_unit_test(test_stop_set),
        cmocka_unit_test(test_words_before_merges),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_threads_share_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
