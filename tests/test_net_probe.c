/* Probes and passive measurements between real peers, over loopback and over a relay that is slow
 * like a radio; peers that do not answer, answer wrongly, or ask too much. */
#include "../net/bytes.h"
#include "net_shaper.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct pair {
    vti_net *near, *far;
    vti_net_peer near_peer, far_peer; /* the number of the other side */
} pair;

static pair open_pair(const vti_net_params *params)
{
    pair p = { test_net_open(params), test_net_open(params), 0, 0 };
    test_net_join(p.near, p.far, &p.near_peer, &p.far_peer);
    return p;
}

static void close_pair(pair *p)
{
    vti_net_close(p->near);
    vti_net_close(p->far);
}

static vti_link_estimate probe(pair *p, size_t limit_bytes)
{
    vti_link_estimate out;
    vti_net_status status = vti_net_probe(p->near, p->near_peer, limit_bytes,
                                          vti_net_after_ms(TEST_NET_MS), &out);
    if (status != VTI_NET_OK) fail_msg("vti_net_probe: %s", vti_net_status_text(status));
    return out;
}

static vti_net_peer_stats stats(vti_net *net, vti_net_peer peer)
{
    vti_net_peer_stats out;
    assert_int_equal(vti_net_get_stats(net, peer, &out), VTI_NET_OK);
    return out;
}

static void check_loopback(const vti_net_params *params)
{
    pair p = open_pair(params);
    vti_link_estimate first = probe(&p, 0), again;
    printf("loopback: %.0f us, %.0f MB/s\n", first.latency_s * 1e6, first.bytes_per_s / 1e6);
    assert_true(first.latency_s > 0 && first.latency_s < 0.1);
    assert_true(first.bytes_per_s > 1e6 && first.bytes_per_s < 1e12);
    assert_true(first.rtts >= 3 && first.transfers >= 1);
    /* At most a probe's bytes went out, in frames; and nobody heard of it. */
    vti_net_peer_stats sent = stats(p.near, p.near_peer);
    assert_in_range(sent.sent_bytes, 4096, VTI_NET_PROBE_BYTES + 16384);
    assert_int_equal(sent.sent_messages, 0);
    vti_net_event event;
    assert_int_equal(vti_net_wait(p.far, 0, &event), VTI_NET_ERR_TIMEOUT);
    /* The next one is too soon. */
    again = probe(&p, 0);
    assert_int_equal(again.transfers, first.transfers);
    assert_in_range(stats(p.near, p.near_peer).sent_bytes - sent.sent_bytes, 0, 1000);
    assert_int_equal(vti_net_get_quality(p.near, p.near_peer, &again), VTI_NET_OK);
    assert_int_equal(again.transfers, first.transfers);
    /* Messages go on as before. */
    static uint8_t data[200000];
    test_net_fill(data, sizeof data, 7);
    test_net_send(p.near, p.near_peer, 7, data, sizeof data);
    event = test_net_expect(p.far, VTI_NET_MESSAGE);
    test_net_check(event.payload, sizeof data, 7);
    vti_net_event_clear(&event);
    close_pair(&p);
}

static void loopback(void **state)
{
    (void)state;
    vti_net_params params = vti_net_params_default();
    check_loopback(&params);
    vti_net_key key = test_net_key("0123456789abcdef0123456789abcdef");
    params.key = &key;
    check_loopback(&params);
}

static void a_small_limit(void **state)
{
    (void)state;
    pair p = open_pair(NULL);
    probe(&p, 10000);
    assert_in_range(stats(p.near, p.near_peer).sent_bytes, 10000, 12000);
    close_pair(&p);
}

/* The machine may be busy and the relay late: then a link looks slower than it is, never faster, and
 * another try is made. */
static void check_radio(unsigned delay_ms, double bytes_per_s)
{
    double latency = 1e9, rate = 0;
    uint64_t deadline = vti_net_after_ms(TEST_NET_MS);
    while (vti_net_now_ns() < deadline && (latency > delay_ms * 2e-3 || rate < bytes_per_s / 3)) {
        char address[VTI_NET_ADDRESS_MAX], relay[VTI_NET_ADDRESS_MAX];
        pair p = { test_net_open(NULL), test_net_open(NULL), 0, 0 };
        assert_int_equal(vti_net_listen(p.far, "127.0.0.1:0", address, NULL), VTI_NET_OK);
        net_shaper *shaper = net_shaper_start(address, delay_ms, bytes_per_s, relay);
        assert_int_equal(vti_net_connect(p.near, relay, TEST_NET_MS, &p.near_peer, NULL),
                         VTI_NET_OK);
        test_net_expect(p.near, VTI_NET_PEER_UP);
        vti_link_estimate e = probe(&p, 0);
        printf("%u ms, %.1f MB/s: measured %.2f ms, %.2f MB/s\n", delay_ms, bytes_per_s / 1e6,
               e.latency_s * 1e3, e.bytes_per_s / 1e6);
        assert_true(e.latency_s > delay_ms * 0.95e-3);
        assert_true(e.bytes_per_s < bytes_per_s * 2.5);
        latency = e.latency_s < latency ? e.latency_s : latency;
        rate = e.bytes_per_s > rate ? e.bytes_per_s : rate;
        close_pair(&p);
        net_shaper_stop(shaper);
    }
    assert_true(latency <= delay_ms * 2e-3 && rate >= bytes_per_s / 3);
}

static void slow_links(void **state)
{
    (void)state;
    check_radio(2, 8e6);    /* Wi-Fi */
    check_radio(10, 200e3); /* Bluetooth */
}

/* Without any probe: round trips come with the signs of life, the bandwidth with large messages. */
static void passive(void **state)
{
    (void)state;
    vti_net_params params = vti_net_params_default();
    params.heartbeat_ms = 20;
    params.heartbeat_misses = 500;
    pair p = open_pair(&params);
    static uint8_t data[1 << 20];
    vti_link_estimate out = { 0 };
    vti_net_event event;
    uint64_t deadline = vti_net_after_ms(TEST_NET_MS);
    for (uint32_t i = 0; out.rtts < 5 || out.transfers < 5; i++) {
        assert_true(vti_net_now_ns() < deadline);
        test_net_send(p.near, p.near_peer, i, data, sizeof data);
        event = test_net_expect(p.far, VTI_NET_MESSAGE);
        vti_net_event_clear(&event);
        vti_net_wait(p.near, vti_net_after_ms(30), &event);
        assert_int_equal(vti_net_get_quality(p.near, p.near_peer, &out), VTI_NET_OK);
    }
    printf("passive: %.0f us, %.0f MB/s\n", out.latency_s * 1e6, out.bytes_per_s / 1e6);
    assert_true(out.latency_s > 0 && out.latency_s < 0.1 && out.bytes_per_s > 1e6);
    close_pair(&p);
}

static void media_are_priors(void **state)
{
    (void)state;
    pair p = open_pair(NULL);
    const vti_medium *medium = vti_medium_find("wifi-direct");
    vti_link_estimate out;
    assert_int_equal(vti_net_get_quality(p.near, p.near_peer, &out), VTI_NET_OK);
    assert_true(out.bytes_per_s == 0);
    assert_int_equal(vti_net_set_medium(p.near, p.near_peer, medium, -60), VTI_NET_OK);
    assert_int_equal(vti_net_get_quality(p.near, p.near_peer, &out), VTI_NET_OK);
    assert_true(out.bytes_per_s == vti_medium_bytes_per_s(medium, -60));
    assert_int_equal(vti_net_set_medium(p.near, p.near_peer, medium, -70), VTI_NET_OK);
    assert_int_equal(vti_net_get_quality(p.near, p.near_peer, &out), VTI_NET_OK);
    assert_true(out.rssi_dbm < -60);
    assert_int_equal(vti_net_set_medium(p.near, 999, medium, -70), VTI_NET_ERR_GONE);
    close_pair(&p);
}

static void nobody_there(void **state)
{
    (void)state;
    pair p = open_pair(NULL);
    vti_link_estimate out;
    assert_int_equal(vti_net_probe(p.near, 999, 0, VTI_NET_NEVER, &out), VTI_NET_ERR_GONE);
    assert_int_equal(vti_net_get_quality(p.near, 999, &out), VTI_NET_ERR_GONE);
    vti_net_interrupt(p.near);
    assert_int_equal(vti_net_probe(p.near, p.near_peer, 0, VTI_NET_NEVER, &out),
                     VTI_NET_ERR_INTERRUPTED);
    vti_net_disconnect(p.near, p.near_peer, NULL);
    assert_int_equal(vti_net_probe(p.near, p.near_peer, 0, VTI_NET_NEVER, &out), VTI_NET_ERR_GONE);
    close_pair(&p);
}

typedef struct prober {
    pair *p;
    vti_net_status status;
    vti_link_estimate out;
} prober;

static void *probe_in_thread(void *argument)
{
    prober *it = argument;
    it->status = vti_net_probe(it->p->near, it->p->near_peer, 0, vti_net_after_ms(TEST_NET_MS),
                               &it->out);
    return NULL;
}

/* One thread waits for messages, several probe, and messages go both ways. */
static void threads_probe_while_another_waits(void **state)
{
    (void)state;
    enum { PROBERS = 3, MESSAGES = 50 };
    pair p = open_pair(NULL);
    prober probers[PROBERS];
    pthread_t threads[PROBERS];
    for (int i = 0; i < PROBERS; i++) {
        probers[i].p = &p;
        assert_int_equal(pthread_create(&threads[i], NULL, probe_in_thread, &probers[i]), 0);
    }
    static uint8_t data[20000];
    for (uint32_t i = 0; i < MESSAGES; i++) {
        test_net_fill(data, sizeof data, i);
        test_net_send(p.near, p.near_peer, i, data, sizeof data);
        vti_net_event event = test_net_expect(p.far, VTI_NET_MESSAGE);
        test_net_check(event.payload, sizeof data, i);
        test_net_send(p.far, p.far_peer, i, event.payload, sizeof data);
        vti_net_event_clear(&event);
        event = test_net_expect(p.near, VTI_NET_MESSAGE);
        assert_int_equal(event.header.step, i);
        vti_net_event_clear(&event);
    }
    for (int i = 0; i < PROBERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(probers[i].status, VTI_NET_OK);
    }
    close_pair(&p);
}

/* --- peers that are not as they should be ----------------------------------------------------- */

static size_t put_frame(uint8_t *wire, uint8_t type, uint64_t number, uint32_t bytes)
{
    vti_frame_header header = { .type = type };
    vti_frame_set_chunk(&header, bytes, 0);
    vti_frame_encode(wire, &header);
    memset(wire + VTI_FRAME_HEADER_BYTES, 0, bytes);
    if (bytes == VTI_FRAME_PING_BYTES) put_u64(wire + VTI_FRAME_HEADER_BYTES, number);
    return VTI_FRAME_HEADER_BYTES + bytes;
}

typedef struct stranger {
    vti_net *net;
    vti_net_peer peer; /* who it is there */
    int fd;
} stranger;

/* Connects by hand and says HELLO. */
static stranger meet(uint32_t heartbeat_ms)
{
    char address[VTI_NET_ADDRESS_MAX];
    vti_net_params params = vti_net_params_default();
    params.heartbeat_ms = heartbeat_ms;
    params.heartbeat_misses = 1000;
    stranger s = { .net = test_net_open(&params) };
    assert_int_equal(vti_net_listen(s.net, "127.0.0.1:0", address, NULL), VTI_NET_OK);
    s.fd = test_net_dial(address);
    uint8_t hello[96 + 48] = "VLTN\x04\0\x02";
    size_t size = 48 + put_frame(hello + 48, VTI_FRAME_HELLO, 0, 0);
    assert_int_equal(send(s.fd, hello, size, 0), (ssize_t)size);
    s.peer = test_net_expect(s.net, VTI_NET_PEER_UP).peer;
    return s;
}

static void part(stranger *s)
{
    close(s->fd);
    vti_net_close(s->net);
}

/* No answer, or answers to what was not asked: the deadline ends it, and nothing is believed. */
static void no_answers(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        stranger s = meet(250);
        if (wrong) {
            uint8_t wire[56 * 200];
            size_t size = 0;
            for (uint64_t i = 0; i < 200; i++)
                size += put_frame(wire + size, VTI_FRAME_PONG, i < 100 ? 1000 + i : -i, 8);
            assert_int_equal(send(s.fd, wire, size, 0), (ssize_t)size);
        }
        vti_link_estimate out;
        assert_int_equal(vti_net_probe(s.net, s.peer, 0, vti_net_after_ms(60), &out),
                         VTI_NET_ERR_TIMEOUT);
        assert_int_equal(out.rtts + out.transfers, 0);
        assert_true(out.bytes_per_s == 0);
        assert_int_equal(vti_net_get_quality(s.net, s.peer, &out), VTI_NET_OK);
        part(&s);
    }
}

/* Thousands of PINGs at once: the last is answered, the others do not pile up. */
static void many_pings(void **state)
{
    (void)state;
    stranger s = meet(10000);
    static uint8_t wire[56 * 1000];
    size_t size = 0;
    for (uint64_t i = 0; i < 1000; i++) size += put_frame(wire + size, VTI_FRAME_PING, i, 8);
    for (int round = 0; round < 2; round++)
        assert_int_equal(send(s.fd, wire, size, MSG_NOSIGNAL), (ssize_t)size);
    vti_net_event event;
    assert_int_equal(vti_net_wait(s.net, vti_net_after_ms(50), &event), VTI_NET_ERR_TIMEOUT);
    /* preamble and HELLO, then PONGs; the last of them has the last number */
    uint8_t answer[56];
    assert_int_equal(recv(s.fd, answer, 48, MSG_WAITALL), 48);
    assert_int_equal(recv(s.fd, answer, 48, MSG_WAITALL), 48);
    unsigned last = 0;
    for (uint64_t number = 0; last < 2; last += number == 999) {
        assert_int_equal(recv(s.fd, answer, 56, MSG_WAITALL), 56);
        assert_int_equal(answer[5], VTI_FRAME_PONG);
        number = get_u64(answer + 48);
        if (number == 999) {
            struct pollfd more = { s.fd, POLLIN, 0 };
            if (poll(&more, 1, 300) == 0) break;
        }
    }
    assert_int_equal(stats(s.net, s.peer).queued_bytes, 0);
    part(&s);
}

static void too_much_padding(void **state)
{
    (void)state;
    stranger s = meet(60000);
    static uint8_t wire[VTI_FRAME_HEADER_BYTES + VTI_FRAME_PADDING_MAX];
    size_t size = put_frame(wire, VTI_FRAME_PADDING, 0, VTI_FRAME_PADDING_MAX);
    vti_net_event event;
    unsigned frames = 0;
    for (; frames < 100000; frames++) {
        if (send(s.fd, wire, size, MSG_NOSIGNAL) != (ssize_t)size) break;
        if (vti_net_wait(s.net, 0, &event) == VTI_NET_OK) break;
    }
    if (frames < 100000 && event.type != VTI_NET_PEER_DOWN)
        event = test_net_expect(s.net, VTI_NET_PEER_DOWN);
    assert_int_equal(event.status, VTI_NET_ERR_PROTOCOL);
    assert_string_equal(event.reason, "it sends more padding than a probe needs");
    assert_in_range(frames, 4 * VTI_NET_PROBE_BYTES / VTI_FRAME_PADDING_MAX - 2, 2000);
    part(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loopback),
        cmocka_unit_test(a_small_limit),
        cmocka_unit_test(slow_links),
        cmocka_unit_test(passive),
        cmocka_unit_test(media_are_priors),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(threads_probe_while_another_waits),
        cmocka_unit_test(no_answers),
        cmocka_unit_test(many_pings),
        cmocka_unit_test(too_much_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
