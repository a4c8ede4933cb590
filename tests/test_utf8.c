/* Streams of UTF-8: whole sequences only, whatever the pieces are. */
#include "support.h"

#include "../src/tokenizer/tokenizer.h"
#include "../src/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define FFFD "\xEF\xBF\xBD"

/* Streams `data` in pieces of `piece` bytes and flushes; returns the bytes put into `out`. Every
 * push must keep to its bound and put out whole sequences. */
static size_t stream_in_pieces(const char *data, size_t bytes, size_t piece, char *out)
{
    vti_utf8_stream stream = {0};
    size_t written = 0;
    for (size_t i = 0; i < bytes; i += piece) {
        size_t length = bytes - i < piece ? bytes - i : piece;
        size_t n = vti_utf8_push(&stream, data + i, length, out + written);
        assert_true(n <= vti_utf8_bound(length));
        assert_int_equal(vti_utf8_valid_prefix(out + written, n), n);
        written += n;
    }
    size_t n = vti_utf8_flush(&stream, out + written);
    assert_true(n <= vti_utf8_bound(0));
    assert_int_equal(vti_utf8_flush(&stream, out + written + n), 0);
    return written + n;
}

static const struct {
    const char *in, *out;
} cases[] = {
    {"", ""},
    {"plain", "plain"},
    {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
    /* The Unicode Standard's own example for U+FFFD substitution (table 3-8). */
    {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",
     "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d"},
    {"\xC0\xAF", FFFD FFFD},                 /* overlong */
    {"\xE0\x80\x80", FFFD FFFD FFFD},        /* overlong */
    {"\xF0\x80\x80\x80", FFFD FFFD FFFD FFFD},
    {"\xED\xA0\x80", FFFD FFFD FFFD},        /* surrogate */
    {"\xED\x9F\xBF", "\xED\x9F\xBF"},        /* U+D7FF, the last before them */
    {"\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD}, /* U+110000 */
    {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
    {"\xF5\x80\xFF", FFFD FFFD FFFD},
    {"\xE2\x82", FFFD},                      /* cut at the end */
    {"\xF0\x9F\x98", FFFD},
    {"\xF0\x9F\x98\xF0\x9F\x98\x80", FFFD "\xF0\x9F\x98\x80"}, /* the breaker begins the next */
    {"\xC3\xC3\xA9", FFFD "\xC3\xA9"},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t piece = 1; piece <= 5; piece++) {
            char out[128];
            size_t bytes = stream_in_pieces(cases[i].in, strlen(cases[i].in), piece, out);
            if (bytes != strlen(cases[i].out) || memcmp(out, cases[i].out, bytes) != 0)
                fail_msg("case %zu in pieces of %zu", i, piece);
        }
    }
}

/* Every code point survives byte by byte, and utf8proc reads the same number. */
static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t point = 0; point <= 0x10FFFF; point++) {
        if (point >= 0xD800 && point <= 0xDFFF) continue;
        char text[4], out[16];
        size_t bytes = (size_t)utf8proc_encode_char((int32_t)point, (utf8proc_uint8_t *)text);
        vti_utf8_kind kind;
        size_t length;
        if (vti_utf8_next(text, bytes, &kind) != bytes || kind != VTI_UTF8_VALID ||
            vti_utf8_codepoint(text, &length) != point || length != bytes ||
            stream_in_pieces(text, bytes, 1, out) != bytes || memcmp(text, out, bytes) != 0)
            fail_msg("U+%04X", point);
    }
}

/* All sequences of up to three bytes from a set that has every kind of byte: the same verdict as
 * utf8proc on what is a valid character. */
static void test_against_utf8proc(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                          0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF,
                                          0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
    enum { N = sizeof bytes };
    for (size_t i = 0; i < (size_t)N * N * N * N; i++) {
        unsigned char text[4] = {bytes[i % N], bytes[i / N % N], bytes[i / N / N % N],
                                 bytes[i / N / N / N]};
        utf8proc_int32_t point;
        utf8proc_ssize_t expected = utf8proc_iterate(text, 4, &point);
        vti_utf8_kind kind;
        size_t length = vti_utf8_next((const char *)text, 4, &kind);
        assert_int_equal(kind == VTI_UTF8_VALID, expected > 0);
        if (expected > 0) assert_int_equal(length, expected);
        else assert_int_equal(kind, VTI_UTF8_INVALID);
    }
}

static void test_random_bytes_in_any_pieces(void **state)
{
    (void)state;
    test_random random = {.state = 7};
    for (int round = 0; round < 2000; round++) {
        char data[64], whole[256], pieces[256];
        size_t bytes = test_random_u64(&random) % sizeof data;
        for (size_t i = 0; i < bytes; i++) {
            uint64_t r = test_random_u64(&random);
            data[i] = (char)(r & 1 ? r >> 8 : 0x80 | (r >> 8 & 0x3F));
        }
        size_t expected = stream_in_pieces(data, bytes, sizeof data, whole);
        size_t piece = 1 + test_random_u64(&random) % 7;
        size_t found = stream_in_pieces(data, bytes, piece, pieces);
        if (found != expected || memcmp(whole, pieces, found) != 0) fail_msg("round %d", round);
    }
}

static void test_prefixes(void **state)
{
    (void)state;
    assert_int_equal(vti_utf8_ascii_prefix("0123456789abcdef\xC3\xA9", 18), 16);
    assert_int_equal(vti_utf8_ascii_prefix("0123\xC3", 5), 4);
    assert_int_equal(vti_utf8_valid_prefix("0123456789\xC3\xA9\xC3", 13), 12);
    assert_int_equal(vti_utf8_valid_prefix("\xE2\x82", 2), 0);
    assert_int_equal(vti_utf8_bound(SIZE_MAX), SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_against_utf8proc),
        cmocka_unit_test(test_random_bytes_in_any_pieces),
        cmocka_unit_test(test_prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
