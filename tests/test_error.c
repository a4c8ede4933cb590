/* Messages: codes, formatting, and that they are fit for a terminal. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#include "../src/error.h"

static void codes(void **state)
{
    (void)state;
    assert_string_equal(vt_status_name(VT_ERR_IO), "VT_ERR_IO");
    assert_string_equal(vt_status_text(VT_OK), "success");
    assert_string_equal(vt_status_name((vt_status)77), "VT_UNKNOWN");
    assert_string_equal(vt_version(), VT_VERSION);
}

static void printable(const char *in, const char *out)
{
    char text[128];
    snprintf(text, sizeof text, "%s", in);
    vti_make_printable(text);
    assert_string_equal(text, out);
}

static void terminal_safe(void **state)
{
    (void)state;
    printable("plain text, löve, 日本, 🦊", "plain text, löve, 日本, 🦊");
    printable("\x1b]0;pwn\x07", "?]0;pwn?");
    printable("a\nb\tc\x7f", "a?b?c?");
    printable("\xc2\x9b" "31m", "??31m"); /* CSI as one C1 character */
    printable("\xff\xfe", "??");
    printable("\xc0\x80", "??");           /* overlong */
    printable("ok \xe6\x97", "ok ");       /* cut at the end */
    printable("\xe6\x97x", "??x");
    printable("", "");
}

static void failing(void **state)
{
    (void)state;
    vt_error err;
    assert_int_equal(vti_fail(NULL, VT_ERR_IO, "x"), VT_ERR_IO);
    assert_int_equal(vti_fail(&err, VT_ERR_FORMAT, "key %s", "\x1b[2J"), VT_ERR_FORMAT);
    assert_string_equal(err.message, "key ?[2J");
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    vti_fail(&err, VT_ERR_IO, "%s", longer);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes),
        cmocka_unit_test(terminal_safe),
        cmocka_unit_test(failing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
