/* net_support.h: what the tests of net/ share. Every helper fails the test if a step takes longer
 * than TEST_NET_MS, which is far more than it needs. */
#ifndef VTI_TEST_NET_SUPPORT_H
#define VTI_TEST_NET_SUPPORT_H

#include "../net/net.h"
#include "support.h"

#define TEST_NET_MS 20000u
#define TEST_TYPE (VTI_FRAME_USER + 1)

vti_net *test_net_open(const vti_net_params *params); /* NULL: the defaults */
vti_net_key test_net_key(const char *material);

/* The next event, which has to be of this type. */
vti_net_event test_net_expect(vti_net *net, vti_net_event_type type);

/* Connects `client` to `server`, which listens for it; the peer numbers on both sides. */
void test_net_join(vti_net *client, vti_net *server, vti_net_peer *of_client,
                   vti_net_peer *of_server);

/* Sends one part; the status has to be VTI_NET_OK. */
void test_net_send(vti_net *net, vti_net_peer peer, uint32_t step, const void *data, size_t bytes);

/* `bytes` that depend on the seed and on their place. */
void test_net_fill(uint8_t *data, size_t bytes, uint32_t seed);
void test_net_check(const uint8_t *data, size_t bytes, uint32_t seed);

/* A plain blocking TCP connection to "127.0.0.1:PORT". */
int test_net_dial(const char *address);

/* Runs `body` in a forked process, which ends with its return value. */
int test_net_fork(int (*body)(void *), void *argument);

#endif
