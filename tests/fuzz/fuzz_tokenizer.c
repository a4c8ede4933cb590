/* fuzz_tokenizer.c: any text, and any vocabulary. The first byte says which:
 *   even: the rest is text for the tokenizer of the default model (run from the repository's root);
 *   odd:  a length byte, so many bytes of text, and a GGUF file with the vocabulary.
 * Bits 1 and 2 are the tokenize flags. Ends the process where the tokenizer breaks a promise. */
#include "../../src/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MODEL "src/assets/stories-4m-f16.gguf"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_tokenizer: broken promise: %s\n", what);
    abort();
}

static void check_stream(const vti_tokenizer *tokenizer, const vt_token *tokens, size_t count)
{
    vti_utf8_stream stream = {0};
    for (size_t i = 0; i <= count; i++) {
        size_t length = 0;
        const char *piece = i < count ? vti_tokenizer_bytes(tokenizer, tokens[i], &length) : "";
        require(piece != NULL, "a token has bytes");
        size_t bound = vti_utf8_bound(length);
        char *out = malloc(bound);
        if (!out) abort();
        size_t written = i < count ? vti_utf8_push(&stream, piece, length, out)
                                   : vti_utf8_flush(&stream, out);
        require(written <= bound, "the stream keeps to its bound");
        free(out);
    }
}

static void check_tokens(const vti_tokenizer *tokenizer, const vt_token *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        require(tokens[i] >= 0 && (uint32_t)tokens[i] < vti_tokenizer_size(tokenizer),
                "ids are in the vocabulary");
        (void)vti_tokenizer_is_stop(tokenizer, tokens[i]);
        (void)vti_tokenizer_is_control(tokenizer, tokens[i]);
    }
    check_stream(tokenizer, tokens, count);
}

/* In the default model no control token stands for anything but itself. */
static void check_user_text(const vti_tokenizer *tokenizer, const char *text, size_t bytes)
{
    size_t bound = vti_tokenizer_bound(tokenizer, bytes), count = 0;
    vt_token *tokens = malloc(bound * sizeof *tokens);
    if (!tokens) abort();
    require(vti_tokenizer_encode(tokenizer, text, bytes, 0, tokens, bound, &count, NULL) == VT_OK,
            "any text has tokens");
    for (size_t i = 0; i < count; i++)
        require(!vti_tokenizer_is_control(tokenizer, tokens[i]), "text gives no control token");
    free(tokens);
}

static void exercise(const vti_tokenizer *tokenizer, const char *text, size_t bytes, unsigned flags)
{
    size_t bound = vti_tokenizer_bound(tokenizer, bytes), count = 0, counted = 0;
    vt_token *tokens = malloc(bound * sizeof *tokens);
    vt_error err;
    if (!tokens) abort();
    vt_status status = vti_tokenizer_encode(tokenizer, text, bytes, flags, tokens, bound, &count,
                                            &err);
    require(status != VT_ERR_ARGUMENT && status != VT_ERR_INTERNAL, "the bound suffices");
    if (status == VT_OK) {
        require(count <= bound, "the bound holds");
        check_tokens(tokenizer, tokens, count);
        status = vti_tokenizer_encode(tokenizer, text, bytes, flags, NULL, 0, &counted, NULL);
        require(status == (count > 0 ? VT_ERR_ARGUMENT : VT_OK), "no room is an error");
        require(counted == count, "counting gives the same number");
    }
    free(tokens);
}

static vti_tokenizer *default_tokenizer(void)
{
    static vti_tokenizer *tokenizer;
    vt_gguf *gguf;
    if (tokenizer) return tokenizer;
    require(vt_gguf_open(DEFAULT_MODEL, &gguf, NULL) == VT_OK, "the default model opens");
    require(vti_tokenizer_open(gguf, NULL, &tokenizer, NULL) == VT_OK, "its tokenizer opens");
    vt_gguf_close(gguf);
    return tokenizer;
}

static void exercise_vocabulary(const uint8_t *file, size_t file_bytes, const char *text,
                                size_t bytes, unsigned flags)
{
    void *copy = NULL;
    vt_gguf *gguf;
    vti_tokenizer *tokenizer;
    if (file_bytes == 0 || posix_memalign(&copy, 32, file_bytes) != 0) return;
    memcpy(copy, file, file_bytes);
    if (vti_gguf_open_memory(copy, file_bytes, "fuzz", &gguf, NULL) == VT_OK) {
        vt_error err = {.message = ""};
        vt_status status = vti_tokenizer_open(gguf, NULL, &tokenizer, &err);
        require(status == VT_OK || err.message[0], "an error has a message");
        vt_gguf_close(gguf);
        memset(copy, 0xA5, file_bytes); /* the tokenizer keeps nothing of the file */
        if (status == VT_OK) exercise(tokenizer, text, bytes, flags);
        vti_tokenizer_close(tokenizer);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2) return 0;
    unsigned flags = data[0] >> 1 & 3;
    if (data[0] % 2 == 0) {
        exercise(default_tokenizer(), (const char *)data + 1, bytes - 1, flags);
        check_user_text(default_tokenizer(), (const char *)data + 1, bytes - 1);
        return 0;
    }
    size_t text_bytes = data[1] < bytes - 2 ? data[1] : bytes - 2;
    exercise_vocabulary(data + 2 + text_bytes, bytes - 2 - text_bytes, (const char *)data + 2,
                        text_bytes, flags);
    return 0;
}
