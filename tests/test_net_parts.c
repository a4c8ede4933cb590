/* Keys, addresses and text from elsewhere. */
#include "../net/address.h"
#include "../net/internal.h"
#include "net_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char key_path[] = "/tmp/voltron-key-XXXXXX";

static void write_key(const void *bytes, size_t size, unsigned mode)
{
    FILE *file = fopen(key_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(key_path, mode), 0);
}

static void expect_no_key(const char *part)
{
    vti_net_key key;
    vti_net_error err = { 0 };
    assert_int_equal(vti_net_key_load(key_path, &key, &err), VTI_NET_ERR_KEY);
    assert_int_equal(err.status, VTI_NET_ERR_KEY);
    if (!strstr(err.message, key_path) || !strstr(err.message, part))
        fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void keys_from_files(void **state)
{
    (void)state;
    vti_net_key key, same;
    write_key("sixteen bytes or more\r\n", 23, 0600);
    assert_int_equal(vti_net_key_load(key_path, &key, NULL), VTI_NET_OK);
    same = test_net_key("sixteen bytes or more");
    assert_memory_equal(key.bytes, same.bytes, sizeof key.bytes);
    same = test_net_key("sixteen bytes or mor");
    assert_memory_not_equal(key.bytes, same.bytes, sizeof key.bytes);
    uint8_t *large = calloc(1, VTI_NET_KEY_MAX_BYTES + 3);
    write_key(large, VTI_NET_KEY_MAX_BYTES, 0600);
    assert_int_equal(vti_net_key_load(key_path, &key, NULL), VTI_NET_OK);
    write_key(large, VTI_NET_KEY_MAX_BYTES + 1, 0600);
    expect_no_key("longer than 65536 bytes");
    write_key(large, VTI_NET_KEY_MAX_BYTES + 3, 0600);
    expect_no_key("longer than 65536 bytes");
    free(large);
    write_key("", 0, 0600);
    expect_no_key("is empty");
    write_key("\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", 20, 0600);
    expect_no_key("is empty");
    write_key("fifteen bytes..\n", 16, 0600);
    expect_no_key("only 15 bytes");
    write_key("sixteen bytes or more", 21, 0644);
    expect_no_key("chmod 600");
    write_key("sixteen bytes or more", 21, 0602);
    expect_no_key("chmod 600");
    unlink(key_path);
    expect_no_key("No such file");
    assert_int_equal(mkdir(key_path, 0700), 0);
    expect_no_key("not a file");
    rmdir(key_path);
}

static void addresses_that_are_right(void **state)
{
    (void)state;
    static const struct { const char *text, *host; uint16_t port; } cases[] = {
        { "127.0.0.1:7001", "127.0.0.1", 7001 }, { "[::1]:65535", "::1", 65535 },
        { "tablet.local:0", "tablet.local", 0 },  { "[fe80::1%eth0]:7", "fe80::1%eth0", 7 },
        { "*:00080", "*", 80 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char host[VTI_NET_ADDRESS_MAX];
        uint16_t port = 1;
        assert_int_equal(vti_address_split(cases[i].text, host, &port, NULL), VTI_NET_OK);
        assert_string_equal(host, cases[i].host);
        assert_int_equal(port, cases[i].port);
    }
}

static void addresses_that_are_wrong(void **state)
{
    (void)state;
    static const struct { const char *text, *part; } cases[] = {
        { "", "no port" },         { "tablet", "no port" },       { ":7001", "no host" },
        { "[]:7001", "IPv6" },     { "[::1:7001", "IPv6" },       { "::1:7001", "IPv6" },
        { "a:", "the port" },      { "a:65536", "the port" },     { "a:123456", "the port" },
        { "a:-1", "the port" },    { "a:+1", "the port" },        { "a:7x", "the port" },
        { "a: 7", "the port" },    { "[::1]7001", "IPv6" },
        { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1",
          "longer than 79" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char host[VTI_NET_ADDRESS_MAX];
        uint16_t port;
        vti_net_error err = { 0 };
        vti_net_status status = vti_address_split(cases[i].text, host, &port, &err);
        assert_int_equal(status, VTI_NET_ERR_ARGUMENT);
        if (!strstr(err.message, cases[i].part))
            fail_msg("\"%s\": \"%s\" does not say \"%s\"", cases[i].text, err.message,
                     cases[i].part);
    }
}

static void loopback_or_not(void **state)
{
    (void)state;
    static const struct { const char *host; bool loopback; const char *text; } cases[] = {
        { "127.0.0.1", true, "127.0.0.1:9" },       { "127.9.8.7", true, "127.9.8.7:9" },
        { "::1", true, "[::1]:9" },                 { "0.0.0.0", false, "0.0.0.0:9" },
        { "128.0.0.1", false, "128.0.0.1:9" },      { "::", false, "[::]:9" },
        { "192.168.1.7", false, "192.168.1.7:9" },  { "fe80::1", false, "[fe80::1]:9" },
        { "::ffff:127.0.0.1", true, "[::ffff:127.0.0.1]:9" },
        { "::ffff:10.0.0.1", false, "[::ffff:10.0.0.1]:9" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vti_socket_address address;
        char text[VTI_NET_ADDRESS_MAX];
        assert_true(vti_address_numeric(cases[i].host, 9, &address));
        assert_int_equal(vti_address_is_loopback(&address), cases[i].loopback);
        vti_address_format(&address, text);
        assert_string_equal(text, cases[i].text);
    }
    vti_socket_address address;
    assert_false(vti_address_numeric("localhost", 9, &address));
    assert_false(vti_address_numeric("127.1", 9, &address));
    assert_false(vti_address_numeric("", 9, &address));
}

static void expect_clean(const char *from, size_t bytes, const char *expected)
{
    char text[16];
    memset(text, 'z', sizeof text);
    vti_text_clean(text, sizeof text, from, bytes);
    assert_string_equal(text, expected);
}

static void text_is_made_printable(void **state)
{
    (void)state;
    expect_clean("plain", 5, "plain");
    expect_clean("J\xc3\xb6rg \xe2\x82\xac\xf0\x9f\x98\x80", 13, "J\xc3\xb6rg \xe2\x82\xac"
                 "\xf0\x9f\x98\x80");
    expect_clean("a\0b\n\x1b[m\x7f", 8, "a?b??[m?");
    expect_clean("\x9b" "m \xc2\x9bm", 6, "?m ??m");          /* C1, raw and in UTF-8 */
    expect_clean("\xc0\xaf \xed\xa0\x80", 6, "?? ???");       /* overlong, surrogate */
    expect_clean("\xe2\x82", 2, "??");                        /* cut */
    expect_clean("\xf4\x90\x80\x80", 4, "????");              /* past U+10FFFF */
    expect_clean("0123456789abcdefgh", 18, "0123456789abcde");
    expect_clean("0123456789abcd\xc3\xb6", 16, "0123456789abcd"); /* no room for half of it */
}

static void status_names(void **state)
{
    (void)state;
    assert_string_equal(vti_net_status_name(VTI_NET_ERR_KEY), "VTI_NET_ERR_KEY");
    assert_string_equal(vti_net_status_text(VTI_NET_OK), "success");
    assert_string_equal(vti_net_status_name((vti_net_status)999), "VTI_NET_UNKNOWN");
    assert_string_equal(vti_net_status_text((vti_net_status)999), "unknown status");
}

int main(void)
{
    int fd = mkstemp(key_path);
    if (fd < 0) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_from_files),
        cmocka_unit_test(addresses_that_are_right),
        cmocka_unit_test(addresses_that_are_wrong),
        cmocka_unit_test(loopback_or_not),
        cmocka_unit_test(text_is_made_printable),
        cmocka_unit_test(status_names),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(key_path);
    return failed;
}
