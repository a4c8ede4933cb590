/* The line editor's keys, on bytes of any kind. */
#include "support.h"

#include "../src/cli/edit.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static edit_event type(edit *e, const char *bytes)
{
    edit_event event = EDIT_MORE;
    for (; *bytes; bytes++) event = edit_push(e, (unsigned char)*bytes);
    return event;
}

static void expect_line(edit *e, const char *keys, const char *text, size_t cursor)
{
    edit_reset(e);
    type(e, keys);
    assert_string_equal(e->text, text);
    assert_int_equal(e->cursor, cursor);
}

#define LEFT "\033[D"
#define RIGHT "\033[C"

static void test_keys(void **state)
{
    (void)state;
    edit e;
    edit_init(&e, NULL);
    expect_line(&e, "abc" LEFT LEFT "x", "axbc", 2);
    expect_line(&e, "abc" LEFT LEFT LEFT LEFT RIGHT "x", "axbc", 2);
    expect_line(&e, "\xC3\xA4\xE4\xBD\xA0" LEFT LEFT RIGHT, "\xC3\xA4\xE4\xBD\xA0", 2);
    expect_line(&e, "e\xCC\x81x" LEFT "\177y", "yx", 1); /* a mark goes with its letter */
    expect_line(&e, "abc\033[H\033[3~\004", "c", 0);
    expect_line(&e, "abc\033OH\033OFd", "abcd", 4);
    expect_line(&e, "one two\027", "one ", 4);
    expect_line(&e, "one two\033b\033b!\033[1;5C!", "!one! two", 5);
    expect_line(&e, "one two\025x", "x", 1);
    expect_line(&e, "one" LEFT "\013", "on", 2);
    expect_line(&e, "a\tb", "a b", 3);
    expect_line(&e, "\033[200~a\tb\nc\033[201~", "a\tb\nc", 5);
    expect_line(&e, "\033[200~\003\004\032\033[A\033[201~x", "x", 1);
    expect_line(&e, "\xC0\x80\xED\xA0\x80\xF5z\xC2\x9Bq\xE4\xBDy", "zqy", 3);
    expect_line(&e, "\033[9999999999999999999999999999999999999999~x", "x", 1);
    edit_reset(&e);
    assert_int_equal(type(&e, "\004"), EDIT_END);
    assert_int_equal(type(&e, "x\004"), EDIT_MORE);
    assert_int_equal(type(&e, "\003"), EDIT_INTERRUPT);
    assert_int_equal(type(&e, "\r"), EDIT_ENTER);
    assert_int_equal(type(&e, "\032"), EDIT_SUSPEND);
    assert_int_equal(type(&e, "\014"), EDIT_CLEAR);
    edit_free(&e);
}

static void test_browsing(void **state)
{
    (void)state;
    cli_history history = {.lines = {"first", "second"}, .count = 2};
    edit e;
    edit_init(&e, &history);
    expect_line(&e, "new\033[A", "second", 6);
    expect_line(&e, "new\020\020\020", "first", 5);
    expect_line(&e, "new\033[A\033[A\033[B\033[B\033[B", "new", 3); /* nothing typed is lost */
    expect_line(&e, "\033[Ax\033[B\033[A", "second", 6); /* and nothing that was entered changed */
    edit_free(&e);
}

static void check_state(const edit *e)
{
    utf8proc_int32_t point;
    assert_int_equal(strlen(e->text), e->bytes);
    assert_true(e->cursor <= e->bytes);
    assert_true((e->text[e->cursor] & 0xC0) != 0x80);
    for (size_t i = 0; i < e->bytes;) {
        utf8proc_ssize_t got = utf8proc_iterate((const utf8proc_uint8_t *)e->text + i,
                                                (utf8proc_ssize_t)(e->bytes - i), &point);
        assert_true(got > 0);
        assert_true(point >= 0xA0 || (point >= 0x20 && point < 0x7F) || point == '\n' ||
                    point == '\t');
        i += (size_t)got;
    }
}

/* Whatever comes, the line is text without control characters and the cursor between two. */
static void test_any_bytes(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "\033[A", "\033[B", LEFT, RIGHT, "\033[200~", "\033[201~", "\033", "\033[", "\xC3",
        "\xC3\xA4",
        "\xE4\xBD\xA0", "\xCC\x81", "\177", "\027", "\033b", "\033f", "\001", "\005", "word ", "\n",
    };
    cli_history history = {.lines = {"first", "\xE4\xBD\xA0\xCC\x81", "a\nb"}, .count = 3};
    test_random random = {.state = 17};
    edit e;
    edit_init(&e, &history);
    for (int round = 0; round < 60000; round++) {
        uint64_t r = test_random_u64(&random);
        if (r % 100 == 0) edit_reset(&e);
        if (r & 1)
            edit_push(&e, (unsigned char)(r >> 8));
        else
            type(&e, pieces[(r >> 8) % (sizeof pieces / sizeof pieces[0])]);
        check_state(&e);
    }
    edit_free(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_browsing),
        cmocka_unit_test(test_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
