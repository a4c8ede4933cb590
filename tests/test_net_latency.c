/* Round trips and a stream between two processes: every byte arrives; prints how long that takes. */
#include "net_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 2000u
#define BLOCK_BYTES (1u << 20)
#define BLOCKS 64u
#define WITHOUT_ECHO 1u /* header flag: check and drop the payload */

typedef struct echo_setup {
    vti_net_params params;
    int address_fd; /* the child writes its address here */
} echo_setup;

/* Blocks of the stream have a word of their own at either end. */
static bool right_block(const vti_net_event *event)
{
    uint32_t first, last;
    if (event->header.message_bytes != BLOCK_BYTES) return false;
    memcpy(&first, event->payload, sizeof first);
    memcpy(&last, event->payload + BLOCK_BYTES - sizeof last, sizeof last);
    return first == event->header.step && last == event->header.step;
}

/* Sends every message back until the other side leaves. */
static int echo(void *argument)
{
    const echo_setup *setup = argument;
    char address[VTI_NET_ADDRESS_MAX] = { 0 };
    vti_net *net;
    vti_net_event event;
    if (vti_net_open(&setup->params, &net, NULL) != VTI_NET_OK) return 1;
    if (vti_net_listen(net, "127.0.0.1:0", address, NULL) != VTI_NET_OK) return 2;
    if (write(setup->address_fd, address, sizeof address) != sizeof address) return 3;
    while (vti_net_wait(net, vti_net_after_ms(TEST_NET_MS), &event) == VTI_NET_OK) {
        if (event.type == VTI_NET_PEER_DOWN) break;
        if (event.type != VTI_NET_MESSAGE) continue;
        vti_net_part part = { event.payload, event.header.message_bytes };
        if (event.header.flags & WITHOUT_ECHO) {
            if (!right_block(&event)) return 6;
            vti_net_event_clear(&event);
            continue;
        }
        if (vti_net_send(net, event.peer, &event.header, &part, 1) != VTI_NET_OK) return 4;
        vti_net_event_clear(&event);
    }
    vti_net_close(net);
    return event.type == VTI_NET_PEER_DOWN && event.status == VTI_NET_OK ? 0 : 5;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void round_trips(vti_net *net, vti_net_peer peer, size_t bytes, const char *what)
{
    static uint64_t took[ROUNDS];
    uint32_t rounds = bytes > 100000 ? ROUNDS / 10 : ROUNDS;
    uint8_t *data = malloc(bytes);
    for (uint32_t i = 0; i < rounds; i++) {
        test_net_fill(data, bytes < 64 ? bytes : 64, i);
        uint64_t begin = vti_net_now_ns();
        test_net_send(net, peer, i, data, bytes);
        vti_net_event event = test_net_expect(net, VTI_NET_MESSAGE);
        took[i] = vti_net_now_ns() - begin;
        assert_int_equal(event.header.step, i);
        assert_int_equal(event.header.message_bytes, bytes);
        assert_memory_equal(event.payload, data, bytes);
        vti_net_event_clear(&event);
    }
    free(data);
    qsort(took, rounds, sizeof *took, by_value);
    printf("%-12s %8zu bytes: round trip median %.1f us, 10th percentile %.1f, 99th %.1f\n", what,
           bytes, (double)took[rounds / 2] / 1e3, (double)took[rounds / 10] / 1e3,
           (double)took[rounds * 99 / 100] / 1e3);
}

static void count_down(void *user) { __atomic_sub_fetch((int *)user, 1, __ATOMIC_SEQ_CST); }

/* As weights are sent: borrowed blocks, as many as a queue of 4 MiB allows. */
static void stream(vti_net *net, vti_net_peer peer, const char *what)
{
    uint8_t *data = calloc(BLOCKS, BLOCK_BYTES);
    int borrowed = BLOCKS;
    uint64_t begin = vti_net_now_ns();
    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint8_t *block = data + (size_t)i * BLOCK_BYTES;
        vti_frame_header header = { .type = TEST_TYPE, .flags = WITHOUT_ECHO, .step = i };
        vti_net_part part = { block, BLOCK_BYTES };
        memcpy(block, &i, sizeof i);
        memcpy(block + BLOCK_BYTES - sizeof i, &i, sizeof i);
        assert_int_equal(vti_net_drain(net, peer, 3 * BLOCK_BYTES, vti_net_after_ms(TEST_NET_MS)),
                         VTI_NET_OK);
        assert_int_equal(vti_net_send_borrowed(net, peer, &header, &part, 1, count_down,
                                               &borrowed), VTI_NET_OK);
    }
    test_net_send(net, peer, 0, "done", 4);
    vti_net_event event = test_net_expect(net, VTI_NET_MESSAGE);
    double seconds = (double)(vti_net_now_ns() - begin) / 1e9;
    vti_net_event_clear(&event);
    printf("%-12s %8u MiB streamed: %.0f MB/s\n", what, BLOCKS, BLOCKS * 1.048576 / seconds);
    for (int i = 0; i < 1000 && __atomic_load_n(&borrowed, __ATOMIC_SEQ_CST) > 0; i++)
        usleep(1000);
    assert_int_equal(__atomic_load_n(&borrowed, __ATOMIC_SEQ_CST), 0);
    free(data);
}

static void measure(const vti_net_params *params, const char *what)
{
    int pipe_fds[2], exit_status;
    assert_int_equal(pipe(pipe_fds), 0);
    echo_setup setup = { *params, pipe_fds[1] };
    int child = test_net_fork(echo, &setup);
    char address[VTI_NET_ADDRESS_MAX];
    assert_int_equal(read(pipe_fds[0], address, sizeof address), sizeof address);
    vti_net *net = test_net_open(params);
    vti_net_peer peer;
    assert_int_equal(vti_net_connect(net, address, TEST_NET_MS, &peer, NULL), VTI_NET_OK);
    test_net_expect(net, VTI_NET_PEER_UP);
    round_trips(net, peer, 1024, what);
    round_trips(net, peer, 4096, what);
    round_trips(net, peer, 1 << 20, what);
    stream(net, peer, what);
    vti_net_close(net);
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_int_equal(exit_status, 0);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void plain(void **state)
{
    (void)state;
    vti_net_params params = vti_net_params_default();
    measure(&params, "plain");
}

static void without_spin(void **state)
{
    (void)state;
    vti_net_params params = vti_net_params_default();
    params.spin_us = 0;
    measure(&params, "no spin");
}

static void encrypted(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("0123456789abcdef0123456789abcdef");
    vti_net_params params = vti_net_params_default();
    params.key = &key;
    measure(&params, "encrypted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(without_spin),
        cmocka_unit_test(encrypted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
