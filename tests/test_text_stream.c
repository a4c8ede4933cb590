/* Streaming text: whole characters, stop strings wherever the borders of the tokens lie. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/text_stream.h"
#include "../src/tokenizer/utf8.h"

typedef struct delivered {
    char text[4096];
    size_t bytes;
    int pieces, stop_after; /* pieces; 0: never */
} delivered;

static bool on_text(void *user, const char *text, size_t bytes)
{
    delivered *d = user;
    assert_true(bytes > 0);
    assert_int_equal(vti_utf8_valid_prefix(text, bytes), bytes);
    assert_true(d->bytes + bytes < sizeof d->text);
    memcpy(d->text + d->bytes, text, bytes);
    d->bytes += bytes;
    d->text[d->bytes] = 0;
    return ++d->pieces != d->stop_after;
}

/* Pushes `text` in pieces of `piece` bytes; returns whether a stop string ended it. */
static bool stream(const char *text, size_t piece, const char *const *stop, size_t count,
                   delivered *out)
{
    vti_text_stream s = {on_text, out, stop, count, .held = NULL};
    vti_text_result result = VTI_TEXT_MORE;
    size_t bytes = strlen(text);
    memset(out, 0, sizeof *out);
    for (size_t at = 0; at < bytes && result == VTI_TEXT_MORE; at += piece)
        result = vti_text_push(&s, text + at, bytes - at < piece ? bytes - at : piece);
    vti_text_result end = vti_text_end(&s);
    if (result == VTI_TEXT_STOP_STRING) assert_int_equal(end, VTI_TEXT_MORE);
    return result == VTI_TEXT_STOP_STRING || end == VTI_TEXT_STOP_STRING;
}

/* The same with any size of the pieces. */
static void expect(const char *text, const char *const *stop, size_t count, const char *expected,
                   bool stops)
{
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
        delivered d;
        bool stopped = stream(text, piece, stop, count, &d);
        if (strcmp(d.text, expected) != 0 || stopped != stops)
            fail_msg("\"%s\" in pieces of %zu: \"%s\", expected \"%s\"", text, piece, d.text,
                     expected);
    }
}

static void stops_across_borders(void **state)
{
    (void)state;
    const char *const end[] = {"END"};
    expect("one two ENDthree", end, 1, "one two ", true);
    expect("one EN two END", end, 1, "one EN two ", true);
    expect("one EEND", end, 1, "one E", true);
    expect("one EN", end, 1, "one EN", false); /* held back, then delivered */
    expect("END", end, 1, "", true);
    expect("", end, 1, "", false);
    const char *const overlapping[] = {"aab", "aa!"};
    expect("aaaab", overlapping, 2, "aa", true);
    expect("xaaa!", overlapping, 2, "xa", true);
    /* What is complete first ends the text; of those that end together the longest. */
    const char *const inside[] = {"abcd", "bc", "c"};
    expect("xabcd", inside, 3, "xa", true);
    const char *const none[] = {NULL};
    expect("no stops \xF0\x9F\x98\x80", none, 0, "no stops \xF0\x9F\x98\x80", false);
}

static void characters_stay_whole(void **state)
{
    (void)state;
    const char *const euro[] = {"\xE2\x82\xAC"};
    /* U+20AB begins with the same two bytes as the stop string. */
    expect("a\xE2\x82\xAB z\xE2\x82\xACq", euro, 1, "a\xE2\x82\xAB z", true);
    expect("cut \xE2\x82", euro, 1, "cut \xEF\xBF\xBD", false);
    /* Behind a stop string nothing comes, not even for the beginning of a character. */
    const char *const end[] = {"END"};
    expect("aEND\xE2\x82", end, 1, "a", true);
    /* What is not UTF-8 becomes U+FFFD, and a stop string may say so. */
    const char *const bad[] = {"\xEF\xBF\xBD!"};
    expect("a\xFF?\xFF!b", bad, 1, "a\xEF\xBF\xBD?", true);
}

/* Where a stop string ends first in the whole text, by trying every end. */
static size_t first_stop(const char *text, const char *const *stop, size_t count)
{
    for (size_t end = 1; end <= strlen(text); end++) {
        size_t longest = 0;
        for (size_t i = 0; i < count; i++) {
            size_t bytes = strlen(stop[i]);
            if (bytes <= end && bytes > longest && memcmp(text + end - bytes, stop[i], bytes) == 0)
                longest = bytes;
        }
        if (longest) return end - longest;
    }
    return SIZE_MAX;
}

static void random_texts(void **state)
{
    (void)state;
    test_random random = {31};
    int stopped = 0;
    for (int round = 0; round < 3000; round++) {
        char text[41], stops[3][8], expected[41];
        const char *stop[3];
        size_t count = 1 + test_random_u64(&random) % 3, length = test_random_u64(&random) % 40;
        for (size_t i = 0; i < length; i++) text[i] = "abc"[test_random_u64(&random) % 3];
        text[length] = 0;
        for (size_t i = 0; i < count; i++) {
            size_t bytes = 1 + test_random_u64(&random) % 6;
            for (size_t j = 0; j < bytes; j++) stops[i][j] = "abc"[test_random_u64(&random) % 3];
            stops[i][bytes] = 0;
            stop[i] = stops[i];
        }
        size_t at = first_stop(text, stop, count);
        strcpy(expected, text);
        if (at != SIZE_MAX) expected[at] = 0;
        stopped += at != SIZE_MAX;
        expect(text, stop, count, expected, at != SIZE_MAX);
    }
    assert_true(stopped > 500 && stopped < 2900);
}

static void caller_stops(void **state)
{
    (void)state;
    delivered d = {.stop_after = 2};
    vti_text_stream s = {on_text, &d, NULL, 0, .held = NULL};
    assert_int_equal(vti_text_push(&s, "a", 1), VTI_TEXT_MORE);
    assert_int_equal(vti_text_push(&s, "b\xE2", 2), VTI_TEXT_STOPPED);
    assert_int_equal(vti_text_end(&s), VTI_TEXT_MORE);
    assert_string_equal(d.text, "ab"); /* nothing after that */
}

static void refuses(const char *const *stop, size_t count, const char *word)
{
    vt_error err;
    assert_int_equal(vti_stop_strings_check(stop, count, &err), VT_ERR_ARGUMENT);
    if (!strstr(err.message, word)) fail_msg("no \"%s\" in: %s", word, err.message);
}

static void bad_stop_strings(void **state)
{
    (void)state;
    static char longest[VT_STOP_STRING_BYTES_MAX + 2];
    const char *many[VT_STOP_STRINGS_MAX + 1];
    for (int i = 0; i <= VT_STOP_STRINGS_MAX; i++) many[i] = "x";
    refuses(many, VT_STOP_STRINGS_MAX + 1, "at most 64");
    assert_int_equal(vti_stop_strings_check(many, VT_STOP_STRINGS_MAX, NULL), VT_OK);
    refuses((const char *const[]){"a", ""}, 2, "stop string 1 has 0 bytes, expected 1 to 1024");
    refuses((const char *const[]){NULL}, 1, "stop string 0");
    memset(longest, 'a', VT_STOP_STRING_BYTES_MAX + 1);
    refuses((const char *const[]){longest}, 1, "1025 bytes");
    refuses((const char *const[]){"a\xE2\x82"}, 1, "not UTF-8");
    refuses(NULL, 1, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_across_borders), cmocka_unit_test(characters_stay_whole),
        cmocka_unit_test(random_texts), cmocka_unit_test(caller_stops),
        cmocka_unit_test(bad_stop_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
