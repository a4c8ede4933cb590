/* SentencePiece vocabularies: golden ids, scores, byte fallback, space prefix. */
#include "support.h"
#include "vocabulary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK "\xE2\x96\x81" /* U+2581 */

static char *as_it_is(const char *text, size_t bytes, size_t *out_bytes)
{
    char *copy = malloc(bytes + 1);
    memcpy(copy, text, bytes);
    *out_bytes = bytes;
    return copy;
}

static char *with_a_space(const char *text, size_t bytes, size_t *out_bytes)
{
    if (bytes == 0) return as_it_is(text, bytes, out_bytes);
    char *copy = malloc(bytes + 1);
    copy[0] = ' ';
    memcpy(copy + 1, text, bytes);
    *out_bytes = bytes + 1;
    return copy;
}

static void test_golden_gemma3(void **state)
{
    (void)state;
    const char *model = test_shared_path("golden/vocab-gemma3.gguf");
    const char *lines = test_shared_path("golden/tok-gemma3.jsonl");
    if (!model || !lines) skip();
    vti_tokenizer *tokenizer = test_tokenizer_of_file(model);
    assert_int_equal(test_check_golden(tokenizer, lines, as_it_is), 125);
    assert_true(vti_tokenizer_is_stop(tokenizer, 1));   /* <eos> */
    assert_true(vti_tokenizer_is_stop(tokenizer, 106)); /* <end_of_turn> */
    test_assert_tokens(tokenizer, "<start_of_turn>user\nHi<end_of_turn>\n",
                       VT_TOKENIZE_BOS | VT_TOKENIZE_SPECIAL,
                       (vt_token[]){2, 105, 2364, 107, 10979, 106, 107}, 7);
    char spaces[41] = "";
    memset(spaces, ' ', 40); /* as the published tokenizer splits them, not 31 and 9 */
    test_assert_tokens(tokenizer, spaces, 0, (vt_token[]){152, 160}, 2);
    vti_tokenizer_close(tokenizer);
}

static void test_golden_llama(void **state)
{
    (void)state;
    const char *model = test_shared_path("golden/vocab-llama-spm.gguf");
    const char *lines = test_shared_path("golden/tok-llama-spm.jsonl");
    if (!model || !lines) skip();
    vti_tokenizer *tokenizer = test_tokenizer_of_file(model);
    assert_int_equal(test_check_golden(tokenizer, lines, with_a_space), 124);
    test_assert_tokens(tokenizer, "Hello", VT_TOKENIZE_BOS, (vt_token[]){1, 15043}, 2);
    vti_tokenizer_close(tokenizer);
}

/* --- a vocabulary of its own ----------------------------------------------------------------- */

static vt_token add_piece(test_vocabulary *vocabulary, const char *text, int32_t type, float score)
{
    vt_token id = test_vocabulary_add(vocabulary, text, type);
    vocabulary->scores[id] = score;
    return id;
}

/* Ids: 0 <unk>, 1 <s>, 2 </s>, 3 to 258 the bytes. */
static void begin_spm(test_vocabulary *vocabulary, bool byte_tokens)
{
    memset(vocabulary, 0, sizeof *vocabulary);
    vocabulary->model = "llama";
    add_piece(vocabulary, "<unk>", 2, 0);
    add_piece(vocabulary, "<s>", 3, 0);
    add_piece(vocabulary, "</s>", 3, 0);
    for (unsigned byte = 0; byte_tokens && byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        add_piece(vocabulary, text, 6, 0);
    }
}

static gguf_builder *spm_builder(const test_vocabulary *vocabulary, bool space_prefix)
{
    gguf_builder *builder = test_vocabulary_builder(vocabulary);
    gguf_put_bool(builder, "tokenizer.ggml.add_space_prefix", space_prefix);
    gguf_put_u32(builder, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_u32(builder, "tokenizer.ggml.eos_token_id", 2);
    return builder;
}

static vti_tokenizer *open_spm(const test_vocabulary *vocabulary, bool space_prefix)
{
    vt_error err;
    vti_tokenizer *tokenizer;
    gguf_builder *builder = spm_builder(vocabulary, space_prefix);
    gguf_put_u32(builder, "tokenizer.ggml.unknown_token_id", 0);
    if (test_tokenizer_open(builder, &tokenizer, &err) != VT_OK) fail_msg("%s", err.message);
    return tokenizer;
}

static vt_token byte_token(unsigned byte) { return (vt_token)(3 + byte); }

static void test_scores_and_prefix(void **state)
{
    (void)state;
    static test_vocabulary vocabulary;
    begin_spm(&vocabulary, true);
    vt_token space = add_piece(&vocabulary, MARK, 1, -9), a = add_piece(&vocabulary, "a", 1, -9);
    vt_token b = add_piece(&vocabulary, "b", 1, -9), ab = add_piece(&vocabulary, "ab", 1, -2);
    vt_token space_a = add_piece(&vocabulary, MARK "a", 1, -3);
    vt_token bb = add_piece(&vocabulary, "bb", 1, -1), aa = add_piece(&vocabulary, "aa", 1, -2);
    vti_tokenizer *t = open_spm(&vocabulary, false);
    test_assert_tokens(t, "abb", 0, (vt_token[]){a, bb}, 2);       /* the better score */
    test_assert_tokens(t, "aab", 0, (vt_token[]){aa, b}, 2);       /* equal: leftmost */
    test_assert_tokens(t, " ab", 0, (vt_token[]){space, ab}, 2);
    test_assert_tokens(t, " a b", 0, (vt_token[]){space_a, space, b}, 3);
    test_assert_tokens(t, "<s>a", VT_TOKENIZE_BOS | VT_TOKENIZE_SPECIAL, (vt_token[]){1, a}, 2);
    test_assert_tokens(t, MARK "a", 0, &space_a, 1); /* the mark itself reads as a space */
    size_t bytes;
    assert_memory_equal(vti_tokenizer_bytes(t, space_a, &bytes), " a", 2);
    assert_int_equal(bytes, 2);
    assert_memory_equal(vti_tokenizer_bytes(t, byte_token(0xE9), &bytes), "\xE9", 1);
    assert_int_equal(bytes, 1);
    vti_tokenizer_close(t);

    t = open_spm(&vocabulary, true);
    test_assert_tokens(t, "a", 0, &space_a, 1);
    test_assert_tokens(t, "", 0, NULL, 0);
    test_assert_tokens(t, "", VT_TOKENIZE_BOS, (vt_token[]){1}, 1); /* add_bos_token is not there */
    test_assert_tokens(t, "a</s>a", VT_TOKENIZE_SPECIAL, (vt_token[]){space_a, 2, space_a}, 3);
    vti_tokenizer_close(t);
}

static void test_bytes_and_unknown(void **state)
{
    (void)state;
    static test_vocabulary vocabulary;
    begin_spm(&vocabulary, true);
    vt_token a = add_piece(&vocabulary, "a", 1, -9);
    vti_tokenizer *t = open_spm(&vocabulary, false);
    test_assert_tokens(t, "a\xC3\xA9", 0, (vt_token[]){a, byte_token(0xC3), byte_token(0xA9)}, 3);
    test_assert_tokens(t, "\xFF" "a", 0, (vt_token[]){byte_token(0xFF), a}, 2);
    test_assert_tokens(t, "\n", 0, (vt_token[]){byte_token('\n')}, 1);
    vti_tokenizer_close(t);

    begin_spm(&vocabulary, false);
    a = add_piece(&vocabulary, "a", 1, -9);
    t = open_spm(&vocabulary, false);
    test_assert_tokens(t, "a\xC3\xA9" "a", 0, (vt_token[]){a, 0, a}, 3); /* one per character */
    vti_tokenizer_close(t);
    vt_error err = {.message = ""};
    vt_token tokens[8];
    size_t count;
    assert_int_equal(test_tokenizer_open(spm_builder(&vocabulary, false), &t, &err), VT_OK);
    assert_int_equal(vti_tokenizer_encode(t, "\xC3\xA9", 2, 0, tokens, 8, &count, &err),
                     VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "0xC3"));
    vti_tokenizer_close(t);
}

static void test_control_tokens_do_not_merge(void **state)
{
    (void)state;
    static test_vocabulary vocabulary;
    begin_spm(&vocabulary, true);
    vt_token less = add_piece(&vocabulary, "<", 1, -9), s = add_piece(&vocabulary, "s", 1, -9);
    vt_token more = add_piece(&vocabulary, ">", 1, -9);
    vt_token less_s = add_piece(&vocabulary, "<s", 1, -1);
    vt_token html = add_piece(&vocabulary, "<p>", 4, -1);
    vt_token spaces = add_piece(&vocabulary, MARK MARK, 4, -1);
    vt_token space = add_piece(&vocabulary, MARK, 1, -9);
    vti_tokenizer *t = open_spm(&vocabulary, false);
    test_assert_tokens(t, "<s>", 0, (vt_token[]){less_s, more}, 2); /* "<s>" has the best score */
    test_assert_tokens(t, "<s>", VT_TOKENIZE_SPECIAL, (vt_token[]){1}, 1);
    test_assert_tokens(t, "s<p><", 0, (vt_token[]){s, html, less}, 3);
    test_assert_tokens(t, "<0x0A>", 0,
                       (vt_token[]){less, byte_token('0'), byte_token('x'), byte_token('0'),
                                    byte_token('A'), more}, 6);
    test_assert_tokens(t, "   ", 0, (vt_token[]){spaces, space}, 2);
    size_t bytes;
    assert_memory_equal(vti_tokenizer_bytes(t, spaces, &bytes), "  ", 2);
    assert_int_equal(bytes, 2);
    vti_tokenizer_close(t);
}

/* --- against the plain way ------------------------------------------------------------------- */

/* Joins the best neighbours of the whole text until nothing joins; `pieces` by their text. */
static size_t encode_plainly(const test_vocabulary *vocabulary, const char *text, vt_token *out)
{
    size_t starts[128], count = 0, length = strlen(text);
    for (size_t i = 0; i <= length; i++) starts[count++] = i;
    count--;
    for (;;) {
        size_t best = count;
        float best_score = -INFINITY;
        for (size_t i = 0; i + 1 < count; i++) {
            for (uint32_t id = 259; id < vocabulary->token_count; id++) {
                size_t bytes = starts[i + 2] - starts[i];
                if (strlen(vocabulary->tokens[id]) != bytes ||
                    memcmp(vocabulary->tokens[id], text + starts[i], bytes) != 0) continue;
                if (vocabulary->scores[id] > best_score) {
                    best_score = vocabulary->scores[id];
                    best = i;
                }
                break; /* the first of equal pieces counts */
            }
        }
        if (best == count) break;
        memmove(starts + best + 1, starts + best + 2, (count - best - 1) * sizeof *starts);
        count--;
    }
    for (size_t i = 0; i < count; i++) {
        size_t bytes = starts[i + 1] - starts[i];
        out[i] = byte_token((unsigned char)text[starts[i]]);
        for (uint32_t id = 259; id < vocabulary->token_count; id++) {
            if (strlen(vocabulary->tokens[id]) != bytes ||
                memcmp(vocabulary->tokens[id], text + starts[i], bytes) != 0) continue;
            out[i] = (vt_token)id;
            break;
        }
    }
    return count;
}

/* Random pieces of few letters; a '.' stands where a space might, both are only bytes here. */
static void test_random_vocabularies(void **state)
{
    (void)state;
    static test_vocabulary vocabulary;
    test_random random = {.state = 17};
    for (int round = 0; round < 150; round++) {
        begin_spm(&vocabulary, true);
        for (int i = 0; i < 40; i++) {
            char piece[8] = "";
            size_t bytes = 1 + test_random_u64(&random) % 4;
            for (size_t j = 0; j < bytes; j++) piece[j] = "abc."[test_random_u64(&random) % 4];
            add_piece(&vocabulary, piece, 1, -(float)(test_random_u64(&random) % 12));
        }
        vti_tokenizer *t = open_spm(&vocabulary, false);
        for (int text = 0; text < 20; text++) {
            char letters[60] = "";
            size_t bytes = test_random_u64(&random) % 59;
            for (size_t j = 0; j < bytes; j++) letters[j] = "abcd."[test_random_u64(&random) % 5];
            vt_token expected[64];
            size_t count = encode_plainly(&vocabulary, letters, expected);
            test_assert_tokens(t, letters, 0, expected, count);
        }
        vti_tokenizer_close(t);
    }
}

/* No word boundary in a million bytes; every neighbour joins. */
static void test_a_megabyte_of_one_letter(void **state)
{
    (void)state;
    enum { BYTES = 1000001 };
    static test_vocabulary vocabulary;
    begin_spm(&vocabulary, true);
    vt_token a = add_piece(&vocabulary, "a", 1, -9);
    add_piece(&vocabulary, "aa", 1, -1);
    vt_token four = add_piece(&vocabulary, "aaaa", 1, -2);
    vti_tokenizer *t = open_spm(&vocabulary, false);
    char *text = malloc(BYTES);
    memset(text, 'a', BYTES);
    size_t count;
    vt_token *tokens = test_encode(t, text, BYTES, 0, &count);
    assert_int_equal(count, 250001);
    for (size_t i = 0; i < count; i++) assert_int_equal(tokens[i], i < 250000 ? four : a);
    free(tokens);
    free(text);
    vti_tokenizer_close(t);
}

static void test_wrong_scores(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        static const char *const tokens[] = {"a", "b"};
        float scores[3] = {0, i == 2 ? NAN : INFINITY, 0};
        gguf_builder *builder = gguf_builder_new(3);
        gguf_put_string(builder, "tokenizer.ggml.model", "llama");
        gguf_put_strings(builder, "tokenizer.ggml.tokens", 2, tokens);
        if (i > 0)
            gguf_put_array(builder, "tokenizer.ggml.scores", VTI_GGUF_F32, i == 1 ? 3 : 2, scores);
        vt_error err = {.message = ""};
        vti_tokenizer *t;
        assert_int_equal(test_tokenizer_open(builder, &t, &err), VT_ERR_FORMAT);
        static const char *const expected[] = {"tokenizer.ggml.scores", "scores has 3 entries",
                                               "scores 1 is not", "scores 1 is not"};
        if (!strstr(err.message, expected[i])) fail_msg("case %d: \"%s\"", i, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_gemma3),
        cmocka_unit_test(test_golden_llama),
        cmocka_unit_test(test_scores_and_prefix),
        cmocka_unit_test(test_bytes_and_unknown),
        cmocka_unit_test(test_control_tokens_do_not_merge),
        cmocka_unit_test(test_random_vocabularies),
        cmocka_unit_test(test_a_megabyte_of_one_letter),
        cmocka_unit_test(test_wrong_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
