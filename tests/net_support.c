#include "net_support.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

vti_net *test_net_open(const vti_net_params *params)
{
    vti_net_params standard = vti_net_params_default();
    vti_net_error err = { 0 };
    vti_net *net;
    if (vti_net_open(params ? params : &standard, &net, &err) != VTI_NET_OK)
        fail_msg("vti_net_open: %s", err.message);
    return net;
}

vti_net_key test_net_key(const char *material)
{
    vti_net_key key;
    vti_net_error err = { 0 };
    if (vti_net_key_from_bytes(material, strlen(material), &key, &err) != VTI_NET_OK)
        fail_msg("vti_net_key_from_bytes: %s", err.message);
    return key;
}

vti_net_event test_net_expect(vti_net *net, vti_net_event_type type)
{
    vti_net_event event;
    vti_net_status status = vti_net_wait(net, vti_net_after_ms(TEST_NET_MS), &event);
    if (status != VTI_NET_OK) fail_msg("vti_net_wait: %s", vti_net_status_text(status));
    if (event.type != type)
        fail_msg("event %d instead of %d (%s)", event.type, type, event.reason);
    return event;
}

void test_net_join(vti_net *client, vti_net *server, vti_net_peer *of_client,
                   vti_net_peer *of_server)
{
    char address[VTI_NET_ADDRESS_MAX];
    vti_net_error err = { 0 };
    if (vti_net_listen(server, "127.0.0.1:0", address, &err) != VTI_NET_OK)
        fail_msg("vti_net_listen: %s", err.message);
    if (vti_net_connect(client, address, TEST_NET_MS, of_client, &err) != VTI_NET_OK)
        fail_msg("vti_net_connect: %s", err.message);
    vti_net_event up = test_net_expect(client, VTI_NET_PEER_UP);
    assert_int_equal(up.peer, *of_client);
    assert_false(up.incoming);
    assert_string_equal(up.address, address);
    up = test_net_expect(server, VTI_NET_PEER_UP);
    assert_true(up.incoming);
    *of_server = up.peer;
}

void test_net_send(vti_net *net, vti_net_peer peer, uint32_t step, const void *data, size_t bytes)
{
    vti_frame_header header = { .type = TEST_TYPE, .step = step };
    vti_net_part part = { data, bytes };
    vti_net_status status = vti_net_send(net, peer, &header, &part, 1);
    if (status != VTI_NET_OK) fail_msg("vti_net_send: %s", vti_net_status_text(status));
}

static uint8_t pattern(size_t place, uint32_t seed)
{
    return (uint8_t)((place * 2654435761u + seed * 40503u) >> 7);
}

void test_net_fill(uint8_t *data, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++) data[i] = pattern(i, seed);
}

void test_net_check(const uint8_t *data, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != pattern(i, seed)) fail_msg("byte %zu of %zu is wrong", i, bytes);
}

int test_net_dial(const char *address)
{
    struct sockaddr_in to = { .sin_family = AF_INET };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

int test_net_fork(int (*body)(void *), void *argument)
{
    fflush(NULL);
    int child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(body(argument));
    return child;
}
