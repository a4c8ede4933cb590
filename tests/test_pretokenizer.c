/* How text falls into words, per pre-tokenizer. The expected words follow from the published
 * expressions; Hugging Face's tokenizers 0.22.2 gives the same on all of them. */
#include "support.h"

#include "../src/tokenizer/pretokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct word_list {
    char *text; /* words with '|' between them */
    size_t bytes, capacity;
} word_list;

static vt_status add_word(void *user, const char *word, size_t bytes, vt_error *err)
{
    (void)err;
    word_list *list = user;
    assert_true(bytes > 0);
    assert_true(list->bytes + bytes + 2 <= list->capacity);
    if (list->bytes > 0) list->text[list->bytes++] = '|';
    memcpy(list->text + list->bytes, word, bytes);
    list->bytes += bytes;
    list->text[list->bytes] = 0;
    return VT_OK;
}

static void split_words(const char *pre, const char *text, char *out, size_t capacity)
{
    vt_error err;
    vti_pretokenizer *pretokenizer;
    vti_splitter *splitter;
    if (vti_pretokenizer_open(pre, strlen(pre), &pretokenizer, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(vti_splitter_open(pretokenizer, &splitter, &err), VT_OK);
    word_list list = {.text = out, .capacity = capacity};
    out[0] = 0;
    assert_int_equal(vti_splitter_run(splitter, text, strlen(text), add_word, &list, &err), VT_OK);
    vti_splitter_close(splitter);
    vti_pretokenizer_close(pretokenizer);
}

typedef struct split_case {
    const char *pre, *text, *words;
} split_case;

static const split_case cases[] = {
    /* contractions: qwen2 and llama-3 in any case, the long s included; gpt-2 in lower case only */
    {"qwen2", "I'm IT'S we'Ve", "I|'m| IT|'S| we|'Ve"},
    {"gpt-2", "I'm IT'S we'Ve", "I|'m| IT|'|S| we|'|Ve"},
    {"qwen2", "x'\xC5\xBF", "x|'\xC5\xBF"},
    {"qwen2", "'tis 'quoted'", "'t|is| '|quoted|'"},
    {"gpt-2", "'tis 'quoted'", "'t|is| '|quoted|'"},
    {"llama-bpe", "they'll", "they|'ll"},
    /* digits */
    {"qwen2", "in 1234", "in| |1|2|3|4"},
    {"llama-bpe", "in 12345", "in| |123|45"},
    {"smaug-bpe", "12345", "123|45"},
    {"gpt-2", "in 12345", "in| 12345"},
    {"smollm", "in 12345", "in| |1|2|3|4|5"},
    {"default", "in 12345", "in| |123|45"},
    {"qwen2", "\xD9\xA1\xD9\xA2", "\xD9\xA1|\xD9\xA2"}, /* Arabic digits */
    {"llama-bpe", "\xC2\xBD\xC2\xB2\xE2\x85\xA7", "\xC2\xBD\xC2\xB2\xE2\x85\xA7"},
    /* spaces: the last one goes with the word that follows, never at the end of the text */
    {"qwen2", "a  b   c", "a| | b|  | c"},
    {"gpt-2", "a  b   c", "a| | b|  | c"},
    {"qwen2", "a   ", "a|   "},
    {"qwen2", "   ", "   "},
    {"qwen2", "a \t b", "a| \t| b"},
    {"qwen2", "a\tb", "a|\tb"},
    {"gpt-2", "a\tb", "a|\t|b"},
    {"qwen2", "a\xC2\xA0" "b", "a|\xC2\xA0" "b"},
    {"gpt-2", "a\xC2\xA0" "b", "a|\xC2\xA0|b"},
    {"gpt-2", "a\xC2\x85" "b", "a|\xC2\x85|b"}, /* U+0085 is a space */
    {"gpt-2", "a\xE1\xA0\x8E.b", "a|\xE1\xA0\x8E.|b"}, /* U+180E is none, but PCRE2's \s has it */
    /* line ends */
    {"qwen2", "a\r\n\r\nb", "a|\r\n\r\n|b"},
    {"qwen2", "a  \n  b", "a|  \n| | b"},
    {"qwen2", "end.\n\nNext", "end|.\n\n|Next"},
    {"gpt-2", "end.\n\nNext", "end|.|\n|\n|Next"},
    {"qwen2", "\n \n x", "\n \n| x"},
    {"seed-coder", "end.\nNext", "end|.|\n|Next"},
    {"tekken", "a//\nb", "a|//\n|b"},
    /* letters, marks, scripts */
    {"qwen2", "(word) -x", "(word|)| -|x"},
    {"qwen2", "e\xCC\x81x", "e|\xCC\x81x"}, /* a mark is no letter: it leads the next word */
    {"qwen2", "na\xC3\xAFve caf\xC3\xA9", "na\xC3\xAFve| caf\xC3\xA9"},
    {"qwen2", "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4 \xEB\xAC\xB8",
     "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4| \xEB\xAC\xB8"},
    {"qwen2", "\xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7 \xD8\xA8",
     "\xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7| \xD8\xA8"},
    {"qwen2", "\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA4", "\xE0\xA4\xA8|\xE0\xA5\x8D\xE0\xA4\xA4"},
    {"tekken", "\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA4", "\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA4"},
    {"tekken", "camelCase HTMLPage", "camel|Case| HTMLPage"},
    {"qwen2", "camelCase", "camelCase"},
    /* emoji: woman, joiner, girl are one run of symbols */
    {"qwen2", "hi \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7!",
     "hi| \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7!"},
    {"deepseek-coder", "a, b\n\xE4\xB8\xAD 12", "a|,| b|\n|\xE4\xB8\xAD| |1|2"},
    {"default", "a+b, c", "a|+|b|,| c"},
};

static void test_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[256];
        split_words(cases[i].pre, cases[i].text, words, sizeof words);
        if (strcmp(words, cases[i].words) != 0)
            fail_msg("%s splits \"%s\" into \"%s\", expected \"%s\"", cases[i].pre, cases[i].text,
                     words, cases[i].words);
    }
}

static const char *const names[] = {
    "qwen2",     "deepseek-r1-qwen", "megrez", "llama-bpe", "llama-v3", "llama3",   "falcon3",
    "pixtral",   "midm-2.0",  "smaug-bpe", "dbrx",   "gpt-2",     "phi-2",    "olmo",     "jais",
    "mellum",    "trillion",  "a.x-4.0",   "smollm", "starcoder", "refact",   "codeshell",
    "minerva-7b", "command-r", "tekken",   "seed-coder", "deepseek-coder", "default"};

#define NAME_COUNT (sizeof names / sizeof names[0])

static vt_status measure_word(void *user, const char *word, size_t bytes, vt_error *err)
{
    (void)err;
    const char **expected = user;
    if (word != *expected || bytes == 0) fail_msg("words leave a gap or are empty");
    *expected += bytes;
    return VT_OK;
}

/* With every name: the words of a random text are that text again. */
static void test_words_cover_the_text(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "word", "Upper", "'s", "'LL", "12", "7", " ", "  ", "\t", "\n", "\r\n", ".", "!?", "/",
        "\xC3\xA9", "\xCC\x81", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xE2\x80\x8D", "\xC2\xA0",
        "\xE1\xA0\x8E"};
    test_random random = {.state = 3};
    for (size_t n = 0; n < NAME_COUNT; n++) {
        vt_error err;
        vti_pretokenizer *pretokenizer;
        vti_splitter *splitter;
        if (vti_pretokenizer_open(names[n], strlen(names[n]), &pretokenizer, &err) != VT_OK)
            fail_msg("%s", err.message);
        assert_int_equal(vti_splitter_open(pretokenizer, &splitter, &err), VT_OK);
        for (int round = 0; round < 300; round++) {
            char text[256] = "";
            for (uint64_t i = test_random_u64(&random) % 30; i > 0; i--)
                strcat(text, parts[test_random_u64(&random) % (sizeof parts / sizeof parts[0])]);
            const char *end = text;
            vt_status status =
                vti_splitter_run(splitter, text, strlen(text), measure_word, &end, &err);
            assert_int_equal(status, VT_OK);
            if (end != text + strlen(text)) fail_msg("%s leaves out text", names[n]);
        }
        vti_splitter_close(splitter);
        vti_pretokenizer_close(pretokenizer);
    }
}

static void test_unknown_name(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "qwen", "qwen22", "gpt-2 phi-2", " ", "no\nname"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        vt_error err = {.message = ""};
        vti_pretokenizer *pretokenizer;
        assert_int_equal(
            vti_pretokenizer_open(wrong[i], strlen(wrong[i]), &pretokenizer, &err),
            VT_ERR_UNSUPPORTED);
        assert_null(pretokenizer);
        assert_non_null(strstr(err.message, "tokenizer.ggml.pre"));
        assert_null(strchr(err.message, '\n'));
        for (size_t n = 0; n < NAME_COUNT; n++)
            if (!strstr(err.message, names[n])) fail_msg("%s is not listed", names[n]);
    }
}

static vt_status refuse_second(void *user, const char *word, size_t bytes, vt_error *err)
{
    (void)word;
    (void)bytes;
    int *count = user;
    return ++*count == 2 ? vti_fail(err, VT_ERR_CANCELLED, "enough") : VT_OK;
}

static void test_the_callback_ends_the_split(void **state)
{
    (void)state;
    vt_error err;
    vti_pretokenizer *pretokenizer;
    vti_splitter *splitter;
    int count = 0;
    assert_int_equal(vti_pretokenizer_open("qwen2", 5, &pretokenizer, &err), VT_OK);
    assert_int_equal(vti_splitter_open(pretokenizer, &splitter, &err), VT_OK);
    assert_int_equal(vti_splitter_run(splitter, "a b c", 5, refuse_second, &count, &err),
                     VT_ERR_CANCELLED);
    assert_int_equal(count, 2);
    vti_splitter_close(splitter);
    vti_pretokenizer_close(pretokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_words_cover_the_text),
        cmocka_unit_test(test_unknown_name),
        cmocka_unit_test(test_the_callback_ends_the_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
