/* vocabulary.h: small vocabularies for tests, as GGUF metadata. */
#ifndef VTI_TEST_VOCABULARY_H
#define VTI_TEST_VOCABULARY_H

#include "../src/tokenizer/tokenizer.h"
#include "gguf_builder.h"

#define TEST_TOKENS_MAX 512
#define TEST_MERGES_MAX 64

typedef struct test_vocabulary {
    const char *model, *pre; /* NULL: the key is left out */
    char tokens[TEST_TOKENS_MAX][32];
    int32_t types[TEST_TOKENS_MAX];
    float scores[TEST_TOKENS_MAX];
    uint32_t token_count;
    char merges[TEST_MERGES_MAX][32];
    uint32_t merge_count;
} test_vocabulary;

/* Byte-level BPE: ids 0 to 255 are the bytes, no merges, pre-tokenizer `pre`. */
void test_vocabulary_bytes(test_vocabulary *vocabulary, const char *pre);

/* Adds a token, spelled as the file would, of a type as numbered there; returns its id. */
vt_token test_vocabulary_add(test_vocabulary *vocabulary, const char *text, int32_t type);

/* Adds the merge "left right" and the token it makes, whose id is returned. */
vt_token test_vocabulary_merge(test_vocabulary *vocabulary, const char *left, const char *right);

/* The metadata; more keys may be put. */
gguf_builder *test_vocabulary_builder(const test_vocabulary *vocabulary);

/* Finishes the file, opens the tokenizer and frees the file: the tokenizer must not need it. */
vt_status test_tokenizer_open(gguf_builder *builder, vti_tokenizer **out, vt_error *err);

/* Opens the tokenizer of a GGUF file; fails the test if it cannot. */
vti_tokenizer *test_tokenizer_of_file(const char *path);

/* Encodes; malloc'd ids. Fails the test on an error. */
vt_token *test_encode(const vti_tokenizer *tokenizer, const char *text, size_t bytes,
                      unsigned flags, size_t *count);

/* The bytes of all tokens, one behind the other; malloc'd, NUL behind the last. */
char *test_decode(const vti_tokenizer *tokenizer, const vt_token *tokens, size_t count,
                  size_t *bytes);

/* What the tokens of `text` must spell; malloc'd. */
typedef char *(*test_spelling)(const char *text, size_t bytes, size_t *out_bytes);

/* Checks every line of a file of {"text", "ids"} (and "special_ids", with VT_TOKENIZE_SPECIAL) and
 * that the ids spell the text; returns the number of lines. */
size_t test_check_golden(const vti_tokenizer *tokenizer, const char *path, test_spelling spelling);

/* Fails the test unless `text` has exactly these tokens. */
void test_assert_tokens(const vti_tokenizer *tokenizer, const char *text, unsigned flags,
                        const vt_token *expected, size_t count);

#endif
