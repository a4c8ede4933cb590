#include "vocabulary.h"
#include "support.h"

#include "../src/tokenizer/vocabulary.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

vt_token test_vocabulary_add(test_vocabulary *vocabulary, const char *text, int32_t type)
{
    uint32_t id = vocabulary->token_count++;
    if (id >= TEST_TOKENS_MAX || strlen(text) >= sizeof vocabulary->tokens[0]) abort();
    strcpy(vocabulary->tokens[id], text);
    vocabulary->types[id] = type;
    return (vt_token)id;
}

void test_vocabulary_bytes(test_vocabulary *vocabulary, const char *pre)
{
    memset(vocabulary, 0, sizeof *vocabulary);
    vocabulary->model = "gpt2";
    vocabulary->pre = pre;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[3] = "";
        vti_alphabet_spell((unsigned char)byte, text);
        test_vocabulary_add(vocabulary, text, 1);
    }
}

vt_token test_vocabulary_merge(test_vocabulary *vocabulary, const char *left, const char *right)
{
    char text[64];
    snprintf(text, sizeof text, "%s %s", left, right);
    if (vocabulary->merge_count == TEST_MERGES_MAX || strlen(text) >= 32) abort();
    strcpy(vocabulary->merges[vocabulary->merge_count++], text);
    snprintf(text, sizeof text, "%s%s", left, right);
    return test_vocabulary_add(vocabulary, text, 1);
}

gguf_builder *test_vocabulary_builder(const test_vocabulary *vocabulary)
{
    const char *tokens[TEST_TOKENS_MAX], *merges[TEST_MERGES_MAX];
    for (uint32_t i = 0; i < vocabulary->token_count; i++) tokens[i] = vocabulary->tokens[i];
    for (uint32_t i = 0; i < vocabulary->merge_count; i++) merges[i] = vocabulary->merges[i];
    gguf_builder *builder = gguf_builder_new(3);
    if (vocabulary->model) gguf_put_string(builder, "tokenizer.ggml.model", vocabulary->model);
    if (vocabulary->pre) gguf_put_string(builder, "tokenizer.ggml.pre", vocabulary->pre);
    gguf_put_strings(builder, "tokenizer.ggml.tokens", vocabulary->token_count, tokens);
    gguf_put_array(builder, "tokenizer.ggml.token_type", VTI_GGUF_I32, vocabulary->token_count,
                   vocabulary->types);
    if (vocabulary->model && strcmp(vocabulary->model, "llama") == 0)
        gguf_put_array(builder, "tokenizer.ggml.scores", VTI_GGUF_F32, vocabulary->token_count,
                       vocabulary->scores);
    else
        gguf_put_strings(builder, "tokenizer.ggml.merges", vocabulary->merge_count, merges);
    return builder;
}

vt_status test_tokenizer_open(gguf_builder *builder, vti_tokenizer **out, vt_error *err)
{
    size_t bytes;
    unsigned char *file = gguf_builder_finish(builder, &bytes);
    vt_gguf *gguf;
    vt_status status = vti_gguf_open_memory(file, bytes, "test", &gguf, err);
    if (status != VT_OK) fail_msg("%s", err->message);
    status = vti_tokenizer_open(gguf, NULL, out, err);
    vt_gguf_close(gguf);
    free(file);
    return status;
}

vti_tokenizer *test_tokenizer_of_file(const char *path)
{
    vt_error err;
    vt_gguf *gguf;
    vti_tokenizer *tokenizer;
    if (vt_gguf_open(path, &gguf, &err) != VT_OK) fail_msg("%s", err.message);
    if (vti_tokenizer_open(gguf, NULL, &tokenizer, &err) != VT_OK) fail_msg("%s", err.message);
    vt_gguf_close(gguf);
    return tokenizer;
}

vt_token *test_encode(const vti_tokenizer *tokenizer, const char *text, size_t bytes,
                      unsigned flags, size_t *count)
{
    vt_error err;
    size_t bound = vti_tokenizer_bound(tokenizer, bytes);
    vt_token *tokens = malloc(bound * sizeof *tokens + 1);
    if (!tokens) abort();
    vt_status status = vti_tokenizer_encode(tokenizer, text, bytes, flags, tokens, bound, count,
                                            &err);
    if (status != VT_OK) fail_msg("%s", err.message);
    return tokens;
}

char *test_decode(const vti_tokenizer *tokenizer, const vt_token *tokens, size_t count,
                  size_t *bytes)
{
    size_t total = 0, length;
    for (size_t i = 0; i < count; i++) {
        if (!vti_tokenizer_bytes(tokenizer, tokens[i], &length)) fail_msg("no token %d", tokens[i]);
        total += length;
    }
    char *text = malloc(total + 1);
    if (!text) abort();
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const char *piece = vti_tokenizer_bytes(tokenizer, tokens[i], &length);
        memcpy(text + *bytes, piece, length);
        *bytes += length;
    }
    text[total] = 0;
    return text;
}

static void print_tokens(const char *what, const vt_token *tokens, size_t count)
{
    printf("%s", what);
    for (size_t i = 0; i < count; i++) printf(" %d", tokens[i]);
    printf("\n");
}

void test_assert_tokens(const vti_tokenizer *tokenizer, const char *text, unsigned flags,
                        const vt_token *expected, size_t count)
{
    size_t found_count;
    vt_token *found = test_encode(tokenizer, text, strlen(text), flags, &found_count);
    bool same = found_count == count;
    for (size_t i = 0; same && i < count; i++) same = found[i] == expected[i];
    if (!same) {
        print_tokens("expected", expected, count);
        print_tokens("found   ", found, found_count);
    }
    free(found);
    if (!same) fail_msg("tokens of \"%s\"", text);
}

static void check_ids(const vti_tokenizer *tokenizer, json_t *line, const char *key, unsigned flags,
                      test_spelling spelling, size_t number)
{
    const json_t *text = json_object_get(line, "text"), *ids = json_object_get(line, key);
    size_t count, bytes = json_string_length(text), decoded_bytes, expected_bytes;
    vt_token *tokens = test_encode(tokenizer, json_string_value(text), bytes, flags, &count);
    if (count != json_array_size(ids)) fail_msg("line %zu: %zu tokens", number, count);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] != json_integer_value(json_array_get(ids, i)))
            fail_msg("line %zu: token %zu is %d", number, i, tokens[i]);
    char *decoded = test_decode(tokenizer, tokens, count, &decoded_bytes);
    char *expected = spelling(json_string_value(text), bytes, &expected_bytes);
    if (decoded_bytes != expected_bytes || memcmp(decoded, expected, expected_bytes) != 0)
        fail_msg("line %zu: its tokens spell another text", number);
    free(decoded);
    free(expected);
    free(tokens);
}

size_t test_check_golden(const vti_tokenizer *tokenizer, const char *path, test_spelling spelling)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    char *text = NULL;
    size_t capacity = 0, number = 0;
    for (ssize_t bytes; (bytes = getline(&text, &capacity, file)) > 0;) {
        json_t *line = json_loadb(text, (size_t)bytes, JSON_ALLOW_NUL, NULL);
        if (!line) fail_msg("%s: line %zu is no JSON", path, number + 1);
        number++;
        check_ids(tokenizer, line, "ids", 0, spelling, number);
        if (json_object_get(line, "special_ids"))
            check_ids(tokenizer, line, "special_ids", VT_TOKENIZE_SPECIAL, spelling, number);
        json_decref(line);
    }
    free(text);
    fclose(file);
    return number;
}
