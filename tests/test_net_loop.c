/* Two vti_nets in one process, over loopback: what works. */
#include "net_support.h"

#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef struct pair {
    vti_net *a, *b; /* a connects to b */
    vti_net_peer b_of_a, a_of_b;
} pair;

static pair open_pair(const vti_net_params *params)
{
    pair two = { .a = test_net_open(params), .b = test_net_open(params) };
    test_net_join(two.a, two.b, &two.b_of_a, &two.a_of_b);
    return two;
}

static void close_pair(pair *two)
{
    vti_net_close(two->a);
    vti_net_close(two->b);
}

static void pause_ms(long ms)
{
    struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&time, &time) != 0) continue;
}

static void expect_message(vti_net *net, vti_net_peer peer, uint32_t step, size_t bytes)
{
    vti_net_event event = test_net_expect(net, VTI_NET_MESSAGE);
    assert_int_equal(event.peer, peer);
    assert_int_equal(event.header.type, TEST_TYPE);
    assert_int_equal(event.header.step, step);
    assert_int_equal(event.header.message_bytes, bytes);
    test_net_check(event.payload, bytes, step);
    vti_net_event_clear(&event);
}

static void exchange(const vti_net_params *params)
{
    static const size_t sizes[] = { 0, 1, 48, 4096, VTI_FRAME_CHUNK_MAX - 1, VTI_FRAME_CHUNK_MAX,
                                    VTI_FRAME_CHUNK_MAX + 1, 1 << 20, 5000000 };
    uint8_t *data = malloc(5000000);
    pair two = open_pair(params);
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        test_net_fill(data, sizes[i], i);
        test_net_send(two.a, two.b_of_a, i, data, sizes[i]);
        memset(data, 0, sizes[i]); /* it was copied if it had to be */
        expect_message(two.b, two.a_of_b, i, sizes[i]);
        test_net_fill(data, sizes[i], i + 100);
        test_net_send(two.b, two.a_of_b, i + 100, data, sizes[i]);
        expect_message(two.a, two.b_of_a, i + 100, sizes[i]);
    }
    vti_net_peer_stats stats;
    assert_int_equal(vti_net_get_stats(two.a, two.b_of_a, &stats), VTI_NET_OK);
    assert_int_equal(stats.sent_messages, sizeof sizes / sizeof *sizes);
    assert_int_equal(stats.received_messages, stats.sent_messages);
    assert_in_range(stats.sent_bytes, 6000000, 7000000);
    assert_in_range(stats.received_bytes, 6000000, 7000000);
    assert_int_equal(stats.queued_bytes, 0);
    close_pair(&two);
    free(data);
}

static void messages_both_ways(void **state)
{
    (void)state;
    exchange(NULL);
}

static void messages_both_ways_encrypted(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("sixteen bytes or more");
    vti_net_params params = vti_net_params_default();
    params.key = &key;
    exchange(&params);
}

static void header_fields_and_parts_arrive(void **state)
{
    (void)state;
    pair two = open_pair(NULL);
    vti_frame_header header = { .type = 200, .flags = 0xabcd, .epoch = 1, .step = 2, .unit = 3,
                                .token_begin = 4, .token_count = 5,
                                /* Not the sender's business, overwritten: */
                                .magic = 6, .version = 7, .message_bytes = 8, .chunk_offset = 9,
                                .chunk_bytes = 10, .reserved = 11 };
    const vti_net_part parts[] = { { "one ", 4 }, { "", 0 }, { "two ", 4 }, { "three", 5 } };
    assert_int_equal(vti_net_send(two.a, two.b_of_a, &header, parts, 4), VTI_NET_OK);
    vti_net_event event = test_net_expect(two.b, VTI_NET_MESSAGE);
    assert_int_equal(event.header.type, 200);
    assert_int_equal(event.header.flags, 0xabcd);
    assert_int_equal(event.header.epoch, 1);
    assert_int_equal(event.header.unit, 3);
    assert_int_equal(event.header.token_begin, 4);
    assert_int_equal(event.header.token_count, 5);
    assert_int_equal(event.header.message_bytes, 13);
    assert_memory_equal(event.payload, "one two three", 13);
    assert_int_equal((uintptr_t)event.payload % 64, 0);
    vti_net_event_clear(&event);
    assert_null(event.payload);
    close_pair(&two);
}

static void names_are_shown(void **state)
{
    (void)state;
    vti_net_params params = vti_net_params_default();
    char address[VTI_NET_ADDRESS_MAX];
    params.name = "tablet \x1b[31m";
    vti_net *a = test_net_open(&params);
    params.name = NULL;
    vti_net *b = test_net_open(&params);
    vti_net_peer peer;
    assert_int_equal(vti_net_listen(b, "localhost:0", address, NULL), VTI_NET_OK);
    assert_int_equal(vti_net_connect(a, address, TEST_NET_MS, &peer, NULL), VTI_NET_OK);
    vti_net_event event = test_net_expect(b, VTI_NET_PEER_UP);
    assert_string_equal(event.name, "tablet ?[31m");
    assert_memory_equal(event.address, "127.0.0.1:", 10);
    event = test_net_expect(a, VTI_NET_PEER_UP);
    assert_string_equal(event.name, "");
    vti_net_close(a);
    event = test_net_expect(b, VTI_NET_PEER_DOWN);
    assert_int_equal(event.status, VTI_NET_OK);
    assert_string_equal(event.reason, "it said goodbye");
    vti_net_close(b);
}

static void count_release(void *user) { __atomic_add_fetch((int *)user, 1, __ATOMIC_SEQ_CST); }

static int released(int *count) { return __atomic_load_n(count, __ATOMIC_SEQ_CST); }

static void borrowed_memory_comes_back_once(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20 };
    int count = 0;
    uint8_t *data = malloc(BYTES);
    test_net_fill(data, BYTES, 1);
    vti_net_params params = vti_net_params_default();
    params.send_limit_bytes = BYTES;
    pair two = open_pair(&params);
    vti_frame_header header = { .type = TEST_TYPE, .step = 1 };
    vti_net_part part = { data, BYTES };
    assert_int_equal(vti_net_send_borrowed(two.a, two.b_of_a, &header, &part, 1, count_release,
                                           &count), VTI_NET_OK);
    expect_message(two.b, two.a_of_b, 1, BYTES);
    assert_int_equal(vti_net_drain(two.a, two.b_of_a, 0, vti_net_after_ms(TEST_NET_MS)),
                     VTI_NET_OK);
    /* The queue is empty before the callbacks run; closing waits for them. */
    assert_int_equal(vti_net_send_borrowed(two.a, two.b_of_a, &header, &part, 1, count_release,
                                           &count), VTI_NET_OK);
    assert_int_equal(vti_net_send_borrowed(two.a, two.b_of_a, &header, &part, 1, count_release,
                                           &count), VTI_NET_ERR_FULL);
    vti_net_close(two.a);
    assert_int_equal(released(&count), 2);
    vti_net_close(two.b);
    free(data);
}

/* A receiver that takes nothing: the sender is told, its memory and the receiver's stay bounded,
 * and in the end every message arrives, in order. */
static void back_pressure(void **state)
{
    (void)state;
    enum { BYTES = 100000 };
    static uint8_t data[BYTES];
    vti_net_params params = vti_net_params_default();
    params.send_limit_bytes = 1 << 20;
    params.receive_limit_bytes = 1 << 20;
    pair two = open_pair(&params);
    vti_frame_header header = { .type = TEST_TYPE };
    vti_net_part part = { data, BYTES };
    uint32_t sent = 0, full = 0;
    while (full < 6) { /* in a row: by then all buffers are full */
        header.step = sent;
        test_net_fill(data, BYTES, sent);
        vti_net_status status = vti_net_send(two.a, two.b_of_a, &header, &part, 1);
        if (status == VTI_NET_OK) {
            sent++;
            full = 0;
            continue;
        }
        assert_int_equal(status, VTI_NET_ERR_FULL);
        full++;
        pause_ms(50); /* the background threads move what they may */
    }
    vti_net_peer_stats stats;
    assert_int_equal(vti_net_get_stats(two.a, two.b_of_a, &stats), VTI_NET_OK);
    assert_in_range(stats.queued_bytes, 1, 1 << 20);
    assert_in_range(sent, 20, 300); /* 2 MiB of queues and what the sockets buffer */
    assert_int_equal(vti_net_drain(two.a, two.b_of_a, 0, vti_net_after_ms(20)),
                     VTI_NET_ERR_TIMEOUT);
    for (uint32_t i = 0; i < sent; i++) expect_message(two.b, two.a_of_b, i, BYTES);
    assert_int_equal(vti_net_drain(two.a, two.b_of_a, 0, vti_net_after_ms(TEST_NET_MS)),
                     VTI_NET_OK);
    test_net_fill(data, BYTES, sent);
    test_net_send(two.a, two.b_of_a, sent, data, BYTES);
    expect_message(two.b, two.a_of_b, sent, BYTES);
    close_pair(&two);
}

/* Nobody waits for events for several times the time after which a silent peer is lost. */
static void heartbeats_while_the_caller_computes(void **state)
{
    (void)state;
    vti_net_params params = vti_net_params_default();
    params.heartbeat_ms = 100;
    params.heartbeat_misses = 4;
    pair two = open_pair(&params);
    vti_net_peer_stats before, after;
    assert_int_equal(vti_net_get_stats(two.a, two.b_of_a, &before), VTI_NET_OK);
    pause_ms(1500);
    assert_int_equal(vti_net_get_stats(two.a, two.b_of_a, &after), VTI_NET_OK);
    assert_true(after.received_bytes > before.received_bytes);
    uint8_t data[100];
    test_net_fill(data, sizeof data, 3);
    test_net_send(two.a, two.b_of_a, 3, data, sizeof data);
    expect_message(two.b, two.a_of_b, 3, sizeof data);
    close_pair(&two);
}

static void *interrupt_later(void *net)
{
    pause_ms(50);
    vti_net_interrupt(net);
    return NULL;
}

static vti_net *signalled;

static void on_signal(int number)
{
    (void)number;
    vti_net_interrupt(signalled);
}

static void interrupts(void **state)
{
    (void)state;
    vti_net_params params = vti_net_params_default();
    params.heartbeat_ms = 600000; /* its timer shall not be what wakes us */
    vti_net *net = test_net_open(&params);
    vti_net_event event;
    pthread_t thread;
    uint64_t deadline = vti_net_after_ms(TEST_NET_MS);
    assert_int_equal(pthread_create(&thread, NULL, interrupt_later, net), 0);
    assert_int_equal(vti_net_wait(net, deadline, &event), VTI_NET_ERR_INTERRUPTED);
    pthread_join(thread, NULL);

    vti_net_interrupt(net); /* nobody waits: the next one is interrupted, once */
    assert_int_equal(vti_net_wait(net, deadline, &event), VTI_NET_ERR_INTERRUPTED);
    assert_int_equal(vti_net_wait(net, vti_net_after_ms(5), &event), VTI_NET_ERR_TIMEOUT);
    assert_int_equal(vti_net_wait(net, 0, &event), VTI_NET_ERR_TIMEOUT);

    signalled = net;
    signal(SIGALRM, on_signal);
    struct itimerval soon = { .it_value.tv_usec = 30000 };
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    assert_int_equal(vti_net_wait(net, deadline, &event), VTI_NET_ERR_INTERRUPTED);
    assert_true(vti_net_now_ns() < deadline);
    signal(SIGALRM, SIG_DFL);
    vti_net_close(net);
}

static void disconnect_with_a_reason(void **state)
{
    (void)state;
    pair two = open_pair(NULL);
    test_net_send(two.b, two.a_of_b, 1, "x", 1);
    pause_ms(150); /* its event is queued by now */
    vti_net_disconnect(two.a, two.b_of_a, "the model changed");
    vti_net_event event = test_net_expect(two.b, VTI_NET_PEER_DOWN);
    assert_int_equal(event.peer, two.a_of_b);
    assert_int_equal(event.status, VTI_NET_ERR_REMOTE);
    assert_string_equal(event.reason, "the model changed");
    assert_true(event.incoming);
    /* On our side it is not mentioned any more. */
    assert_int_equal(vti_net_wait(two.a, vti_net_after_ms(50), &event), VTI_NET_ERR_TIMEOUT);
    vti_frame_header header = { .type = TEST_TYPE };
    assert_int_equal(vti_net_send(two.a, two.b_of_a, &header, NULL, 0), VTI_NET_ERR_GONE);
    assert_int_equal(vti_net_drain(two.a, two.b_of_a, 0, 0), VTI_NET_ERR_GONE);
    vti_net_peer_stats stats;
    assert_int_equal(vti_net_get_stats(two.a, two.b_of_a, &stats), VTI_NET_ERR_GONE);
    vti_net_disconnect(two.a, two.b_of_a, "again");
    vti_net_disconnect(two.a, 0, "nobody");
    close_pair(&two);
}

static const char *no_unit_7(void *user, vti_net_peer peer, const vti_frame_header *header)
{
    vti_net_peer *asked = user;
    *asked = peer;
    return header->unit == 7 ? "unit 7 is not part of the plan" : NULL;
}

static void refused_by_admit(void **state)
{
    (void)state;
    vti_net_peer asked = 0;
    vti_net_params params = vti_net_params_default();
    params.admit = no_unit_7;
    params.user = &asked;
    pair two = open_pair(&params);
    vti_frame_header header = { .type = TEST_TYPE, .unit = 6 };
    assert_int_equal(vti_net_send(two.a, two.b_of_a, &header, NULL, 0), VTI_NET_OK);
    vti_net_event event = test_net_expect(two.b, VTI_NET_MESSAGE);
    assert_int_equal(event.header.unit, 6);
    header.unit = 7;
    assert_int_equal(vti_net_send(two.a, two.b_of_a, &header, NULL, 0), VTI_NET_OK);
    event = test_net_expect(two.b, VTI_NET_PEER_DOWN);
    assert_int_equal(asked, two.a_of_b);
    assert_int_equal(event.status, VTI_NET_ERR_PROTOCOL);
    assert_string_equal(event.reason, "unit 7 is not part of the plan");
    event = test_net_expect(two.a, VTI_NET_PEER_DOWN);
    assert_int_equal(event.status, VTI_NET_ERR_REMOTE);
    assert_string_equal(event.reason, "unit 7 is not part of the plan");
    close_pair(&two);
}

static void wrong_arguments(void **state)
{
    (void)state;
    pair two = open_pair(NULL);
    static const uint8_t byte;
    const vti_net_part part = { &byte, 1 }, huge = { &byte, VTI_FRAME_MESSAGE_MAX },
                       parts[] = { part, part, part, part, part }, most[] = { huge, part },
                       wraps[] = { part, { &byte, SIZE_MAX } };
    vti_frame_header header = { .type = VTI_FRAME_HEARTBEAT };
    assert_int_equal(vti_net_send(two.a, two.b_of_a, &header, &part, 1), VTI_NET_ERR_ARGUMENT);
    header.type = TEST_TYPE;
    assert_int_equal(vti_net_send(two.a, two.b_of_a, &header, parts, 5), VTI_NET_ERR_ARGUMENT);
    assert_int_equal(vti_net_send(two.a, two.b_of_a, &header, most, 2), VTI_NET_ERR_ARGUMENT);
    assert_int_equal(vti_net_send(two.a, two.b_of_a, &header, wraps, 2), VTI_NET_ERR_ARGUMENT);
    header.token_begin = UINT32_MAX;
    header.token_count = 1;
    assert_int_equal(vti_net_send(two.a, two.b_of_a, &header, &part, 1), VTI_NET_ERR_ARGUMENT);
    header.token_count = 0;
    assert_int_equal(vti_net_send(two.a, 99, &header, &part, 1), VTI_NET_ERR_GONE);
    close_pair(&two);

    vti_net *net;
    vti_net_error err;
    vti_net_params params = vti_net_params_default();
    params.heartbeat_ms = 0;
    assert_int_equal(vti_net_open(&params, &net, &err), VTI_NET_ERR_ARGUMENT);
    assert_string_equal(err.message, "heartbeat_ms is 0");
    assert_null(net);
}

typedef struct stream_job {
    vti_net *net;
    vti_net_peer peer;
    uint32_t count;
} stream_job;

/* A thread that streams with drain while another one waits for events. */
static void *stream_out(void *argument)
{
    stream_job *job = argument;
    enum { BYTES = 200000 };
    uint8_t *data = malloc(BYTES);
    for (uint32_t i = 0; i < job->count; i++) {
        if (vti_net_drain(job->net, job->peer, 300000, vti_net_after_ms(TEST_NET_MS)) != VTI_NET_OK)
            break;
        vti_frame_header header = { .type = TEST_TYPE, .step = i };
        vti_net_part part = { data, BYTES };
        test_net_fill(data, BYTES, i);
        if (vti_net_send(job->net, job->peer, &header, &part, 1) != VTI_NET_OK) break;
    }
    free(data);
    return NULL;
}

/* Both sides stream to each other and receive at the same time, with four threads. */
static void *take_in(void *argument)
{
    stream_job *job = argument;
    uint32_t next = 0;
    vti_net_event event;
    while (next < job->count &&
           vti_net_wait(job->net, vti_net_after_ms(TEST_NET_MS), &event) == VTI_NET_OK) {
        bool right = event.type == VTI_NET_MESSAGE && event.header.step == next;
        vti_net_event_clear(&event);
        if (!right) break;
        next++;
    }
    return (void *)(uintptr_t)next;
}

static void four_threads(void **state)
{
    (void)state;
    vti_net_params params = vti_net_params_default();
    params.send_limit_bytes = 1 << 20;
    pair two = open_pair(&params);
    stream_job jobs[] = { { two.a, two.b_of_a, 150 }, { two.b, two.a_of_b, 150 } };
    pthread_t out[2], in[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&in[i], NULL, take_in, &jobs[i]), 0);
        assert_int_equal(pthread_create(&out[i], NULL, stream_out, &jobs[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        void *got;
        pthread_join(out[i], NULL);
        pthread_join(in[i], &got);
        assert_int_equal((uintptr_t)got, 150);
    }
    close_pair(&two);
}

static void over_ipv6(void **state)
{
    (void)state;
    vti_net *a = test_net_open(NULL), *b = test_net_open(NULL);
    char address[VTI_NET_ADDRESS_MAX];
    vti_net_peer peer;
    if (vti_net_listen(b, "[::1]:0", address, NULL) != VTI_NET_OK) {
        vti_net_close(a);
        vti_net_close(b);
        printf("NOTICE no IPv6 loopback here\n");
        skip();
    }
    assert_memory_equal(address, "[::1]:", 6);
    assert_int_equal(vti_net_connect(a, address, TEST_NET_MS, &peer, NULL), VTI_NET_OK);
    test_net_expect(a, VTI_NET_PEER_UP);
    test_net_expect(b, VTI_NET_PEER_UP);
    vti_net_close(a);
    vti_net_close(b);
}

static void by_name(void **state)
{
    (void)state;
    struct addrinfo *found;
    if (getaddrinfo("localhost", NULL, NULL, &found) != 0) {
        printf("NOTICE skipped: this system does not know the name localhost\n");
        skip();
    }
    freeaddrinfo(found);
    vti_net *a = test_net_open(NULL), *b = test_net_open(NULL);
    char address[VTI_NET_ADDRESS_MAX], named[VTI_NET_ADDRESS_MAX];
    vti_net_peer peer;
    assert_int_equal(vti_net_listen(b, "127.0.0.1:0", address, NULL), VTI_NET_OK);
    /* localhost may be ::1 first, where nothing listens: the next address is tried. */
    snprintf(named, sizeof named, "localhost%s", strrchr(address, ':'));
    assert_int_equal(vti_net_connect(a, named, TEST_NET_MS, &peer, NULL), VTI_NET_OK);
    vti_net_event event = test_net_expect(a, VTI_NET_PEER_UP);
    assert_string_equal(event.address, named);
    vti_net_close(a);
    vti_net_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_both_ways),
        cmocka_unit_test(messages_both_ways_encrypted),
        cmocka_unit_test(header_fields_and_parts_arrive),
        cmocka_unit_test(names_are_shown),
        cmocka_unit_test(borrowed_memory_comes_back_once),
        cmocka_unit_test(back_pressure),
        cmocka_unit_test(heartbeats_while_the_caller_computes),
        cmocka_unit_test(interrupts),
        cmocka_unit_test(disconnect_with_a_reason),
        cmocka_unit_test(refused_by_admit),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(four_threads),
        cmocka_unit_test(over_ipv6),
        cmocka_unit_test(by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
