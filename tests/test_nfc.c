/* Normalisation piece by piece against utf8proc's normalisation of the whole text. */
#include "support.h"

#include "../src/tokenizer/nfc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Fails the test unless vti_nfc agrees with utf8proc_map. Returns whether the text changed. */
static bool check(const char *text, size_t bytes)
{
    vt_error err;
    char *found;
    size_t found_bytes;
    if (vti_nfc(text, bytes, &found, &found_bytes, &err) != VT_OK) fail_msg("%s", err.message);
    utf8proc_uint8_t *expected;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes,
                                           &expected, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(length >= 0);
    const char *shown = found ? found : text;
    size_t shown_bytes = found ? found_bytes : bytes;
    if (shown_bytes != (size_t)length || memcmp(shown, expected, shown_bytes) != 0) {
        for (size_t i = 0; i < bytes; i++) printf("%02X ", (unsigned char)text[i]);
        fail_msg("is normalised to another text than utf8proc's");
    }
    bool changed = found != NULL;
    if (changed) assert_false(found_bytes == bytes && memcmp(found, text, bytes) == 0);
    assert_true(!changed || found_bytes <= bytes * VTI_NFC_EXPANSION);
    free(found);
    free(expected);
    return changed;
}

static size_t put(char *text, uint32_t point)
{
    return (size_t)utf8proc_encode_char((int32_t)point, (utf8proc_uint8_t *)text);
}

/* Each code point alone and between a letter and marks. */
static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t point = 0; point <= 0x10FFFF; point++) {
        if (point >= 0xD800 && point <= 0xDFFF) continue;
        char text[32];
        check(text, put(text, point));
        if (point >= 0x20000 && point < 0xE0000 && point % 64) continue; /* all alike */
        size_t bytes = put(text, 'e');
        bytes += put(text + bytes, point);
        bytes += put(text + bytes, 0x301);
        bytes += put(text + bytes, 0x323);
        check(text, bytes);
    }
}

static void test_what_is_normal_costs_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "plain ASCII, long enough for words of eight bytes", "Übergröße, naïve café",
        "Привет, Ёжик", "日本語 한국어", "😀👩‍👩‍👧", "Tiếng Việt"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_false(check(texts[i], strlen(texts[i])));
}

static void test_what_is_not(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "cafe\xCC\x81", "plain text and then e\xCC\x81 and on",
        "\xE2\x84\xAB",                         /* Angstrom sign */
        "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", /* Hangul letters */
        "\xED\x95\x98\xE1\x86\xAB",             /* a syllable and a final consonant */
        "q\xCC\x87\xCC\xA3",                    /* marks out of order */
        "\xCC\xA3\xCC\x87 at the start", "\xF0\x9D\x85\xA0"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (i != 6) assert_true(check(texts[i], strlen(texts[i])));
    assert_false(check(texts[6], strlen(texts[6])));
}

/* U+11A7 is no final consonant; utf8proc 2.8 swallows it behind a syllable. */
static void test_not_a_final_consonant(void **state)
{
    (void)state;
    char *normal;
    size_t bytes;
    vt_error err;
    assert_int_equal(vti_nfc("\xEA\xB0\x80\xE1\x86\xA7", 6, &normal, &bytes, &err), VT_OK);
    assert_null(normal);
}

/* Random texts of characters that decompose, compose, reorder or do none of it. */
static void test_random_texts(void **state)
{
    (void)state;
    static const uint32_t points[] = {
        'a', 'e', 'q', ' ', 0xE9, 0xC5, 0x300, 0x301, 0x307, 0x323, 0x327, 0x338, 0x344, 0x345,
        0x387, 0x3B1, 0x439, 0x915, 0x93C, 0x958, 0x9C7, 0x9BE, 0xB92, 0xBD7, 0x1100, 0x1112,
        0x1161, 0x1175, 0x11A8, 0x11C2, 0x1EA4, 0x1F71, 0x212B, 0x3042, 0x304B, 0x3099, 0x4E00,
        0xAC00, 0xAC01, 0xF900, 0xFB2C, 0x110BA, 0x11099, 0x1D15F, 0x1D160, 0x1F600, 0x2F800};
    test_random random = {.state = 11};
    int changed = 0;
    for (int round = 0; round < 30000; round++) {
        char text[128];
        size_t bytes = 0, count = 1 + test_random_u64(&random) % 20;
        for (size_t i = 0; i < count; i++)
            bytes += put(text + bytes, points[test_random_u64(&random) %
                                              (sizeof points / sizeof points[0])]);
        changed += check(text, bytes);
    }
    assert_in_range(changed, 10000, 29999);
}

/* A million marks that all want to move; quadratic ordering would take hours. */
static void test_many_marks(void **state)
{
    (void)state;
    enum { PAIRS = 500000 };
    char *text = malloc(1 + 4 * PAIRS), *normal;
    size_t bytes = put(text, 'x'), normal_bytes;
    for (int i = 0; i < PAIRS; i++) {
        bytes += put(text + bytes, 0x301); /* class 230 */
        bytes += put(text + bytes, 0x323); /* class 220 */
    }
    vt_error err;
    assert_int_equal(vti_nfc(text, bytes, &normal, &normal_bytes, &err), VT_OK);
    assert_int_equal(normal_bytes, bytes); /* x takes no mark: only the order changes */
    for (int i = 0; i < 2 * PAIRS; i++)
        if (memcmp(normal + 1 + 2 * i, i < PAIRS ? "\xCC\xA3" : "\xCC\x81", 2) != 0)
            fail_msg("mark %d is out of order", i);
    free(text);
    free(normal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_what_is_normal_costs_nothing),
        cmocka_unit_test(test_what_is_not),
        cmocka_unit_test(test_not_a_final_consonant),
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_many_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
