/* What PINGs measure, in virtual time: a link of known latency and rate that delivers in order. */
#include "../net/meter.h"

#include <stdlib.h>

#include "support.h"

#define MS 1000000ull

/* A link: what was sent is there when everything before it is, at its rate, plus the latency. */
typedef struct pipe_link {
    vti_meter meter;
    uint64_t now_ns, free_ns, latency_ns;
    double bytes_per_s;
    uint64_t ping, answer_ns;
} pipe_link;

static pipe_link open_pipe(double latency_s, double bytes_per_s)
{
    pipe_link pipe = {.now_ns = 5 * MS, .latency_ns = (uint64_t)(latency_s * 1e9),
                      .bytes_per_s = bytes_per_s};
    vti_quality_init(&pipe.meter.quality, NULL, VTI_RSSI_UNKNOWN);
    return pipe;
}

static void put(pipe_link *pipe, uint64_t bytes)
{
    if (pipe->free_ns < pipe->now_ns) pipe->free_ns = pipe->now_ns;
    pipe->free_ns += (uint64_t)((double)bytes / pipe->bytes_per_s * 1e9);
    vti_meter_sent(&pipe->meter, bytes);
}

static void ping(pipe_link *pipe)
{
    pipe->ping = vti_meter_ping(&pipe->meter, pipe->now_ns);
    uint64_t left_ns = pipe->free_ns > pipe->now_ns ? pipe->free_ns : pipe->now_ns;
    pipe->answer_ns = left_ns + 2 * pipe->latency_ns;
}

static void pong(pipe_link *pipe)
{
    pipe->now_ns = pipe->answer_ns;
    assert_true(vti_meter_pong(&pipe->meter, pipe->ping, pipe->now_ns));
}

static vti_link_estimate known(const pipe_link *pipe)
{
    vti_link_estimate out;
    vti_quality_estimate(&pipe->meter.quality, &out);
    return out;
}

static void assert_near(double x, double wanted)
{
    if (!(x <= wanted * 1.02 && x >= wanted / 1.02)) fail_msg("%g, not %g", x, wanted);
}

static void quiet_pings_measure_the_round_trip(void **state)
{
    (void)state;
    pipe_link pipe = open_pipe(2e-3, 10e6);
    for (int i = 0; i < 5; i++, pipe.now_ns += 500 * MS) {
        ping(&pipe);
        pong(&pipe);
    }
    assert_near(known(&pipe).latency_s, 2e-3);
    assert_int_equal(known(&pipe).rtts, 5);
    assert_int_equal(known(&pipe).transfers, 0);
}

static void only_the_right_answer_counts(void **state)
{
    (void)state;
    pipe_link pipe = open_pipe(2e-3, 10e6);
    assert_false(vti_meter_pong(&pipe.meter, 0, pipe.now_ns));
    assert_false(vti_meter_pong(&pipe.meter, 1, pipe.now_ns));
    ping(&pipe);
    assert_false(vti_meter_pong(&pipe.meter, pipe.ping + 1, pipe.answer_ns));
    assert_false(vti_meter_pong(&pipe.meter, pipe.ping - 1, pipe.answer_ns));
    assert_false(vti_meter_pong(&pipe.meter, pipe.ping, pipe.now_ns - 1));
    assert_int_equal(known(&pipe).rtts, 0);
    pong(&pipe);
    assert_false(vti_meter_pong(&pipe.meter, pipe.ping, pipe.now_ns));
    assert_int_equal(known(&pipe).rtts, 1);
    assert_int_equal(pipe.meter.answers, 1);
}

/* 1 MiB, with the PING in front of the last 64 KiB, as the sender does it. */
static void a_large_message_is_measured(void **state)
{
    (void)state;
    pipe_link pipe = open_pipe(2e-3, 10e6);
    ping(&pipe);
    pong(&pipe);
    for (int round = 0; round < 3; round++) {
        vti_meter_begin(&pipe.meter, pipe.now_ns, false);
        for (unsigned sent = 0; sent < 15; sent++) {
            assert_int_equal(vti_meter_wants_ping(&pipe.meter), sent >= 4);
            put(&pipe, 65536);
        }
        assert_true(vti_meter_wants_ping(&pipe.meter));
        ping(&pipe);
        assert_false(vti_meter_wants_ping(&pipe.meter));
        put(&pipe, 65536);
        vti_meter_end(&pipe.meter);
        pong(&pipe);
        assert_near(known(&pipe).bytes_per_s, 10e6);
        assert_int_equal(known(&pipe).transfers, round + 1);
        assert_false(vti_meter_wants_ping(&pipe.meter));
        pipe.now_ns += 1000 * MS;
    }
    assert_int_equal(known(&pipe).rtts, 1); /* those PINGs had to wait for the bytes before them */
}

/* Weights: every answer measures what came since the one before, latency apart. */
static void a_stream_is_measured_again_and_again(void **state)
{
    (void)state;
    pipe_link pipe = open_pipe(20e-3, 10e6);
    ping(&pipe);
    pong(&pipe);
    vti_meter_begin(&pipe.meter, pipe.now_ns, false);
    put(&pipe, 1 << 20);
    for (int i = 0; i < 8; i++) {
        if (i == 4) pipe.bytes_per_s = 5e6;
        assert_true(vti_meter_wants_ping(&pipe.meter));
        ping(&pipe);
        put(&pipe, 1 << 20);
        pong(&pipe);
        assert_int_equal(known(&pipe).transfers, i + 1);
        if (i == 3) assert_near(known(&pipe).bytes_per_s, 10e6);
    }
    assert_true(known(&pipe).bytes_per_s < 8e6);
}

/* Nobody knows how much of what was sent is still on its way: no measurement from there on, until a
 * PING found the link quiet. */
static void what_is_not_clean_is_not_measured(void **state)
{
    (void)state;
    pipe_link pipe = open_pipe(2e-3, 10e6);
    vti_meter_begin(&pipe.meter, pipe.now_ns, false);
    put(&pipe, 100000);
    vti_meter_end(&pipe.meter);
    pipe.now_ns += 1 * MS; /* 9 ms of it are not there yet */
    vti_meter_begin(&pipe.meter, pipe.now_ns, false);
    put(&pipe, 1 << 20);
    assert_false(vti_meter_wants_ping(&pipe.meter));
    ping(&pipe);
    vti_meter_end(&pipe.meter);
    pong(&pipe);
    assert_int_equal(known(&pipe).transfers + known(&pipe).rtts, 0);
    assert_true(vti_meter_wants_ping(&pipe.meter)); /* now it is quiet: once more */
    ping(&pipe);
    pong(&pipe);
    assert_near(known(&pipe).latency_s, 2e-3);
    assert_false(vti_meter_wants_ping(&pipe.meter));
    vti_meter_begin(&pipe.meter, pipe.now_ns, false);
    put(&pipe, 1 << 20);
    ping(&pipe);
    pong(&pipe);
    assert_near(known(&pipe).bytes_per_s, 10e6);
}

/* As decode sends: 10 KB, then a pause. Nothing but the round trip is learnt of that. */
static void small_messages_are_no_run(void **state)
{
    (void)state;
    pipe_link pipe = open_pipe(2e-3, 1e6);
    for (int token = 0; token < 100; token++, pipe.now_ns += 50 * MS) {
        vti_meter_begin(&pipe.meter, pipe.now_ns, false);
        put(&pipe, 10240);
        assert_false(vti_meter_wants_ping(&pipe.meter) && !pipe.meter.again);
        vti_meter_end(&pipe.meter);
        if (token % 10 != 9) continue;
        pipe.now_ns += 20 * MS;
        ping(&pipe);
        pong(&pipe);
        while (vti_meter_wants_ping(&pipe.meter)) {
            ping(&pipe);
            pong(&pipe);
        }
    }
    assert_int_equal(known(&pipe).rtts, 10);
    assert_int_equal(known(&pipe).transfers, 0);
    assert_near(known(&pipe).latency_s, 2e-3);
}

/* A probe on a link of 50 KB/s: even 4 KiB tell. */
static void padding_is_measured_however_short(void **state)
{
    (void)state;
    pipe_link pipe = open_pipe(10e-3, 50e3);
    ping(&pipe);
    pong(&pipe);
    vti_meter_begin(&pipe.meter, pipe.now_ns, true);
    put(&pipe, 4096);
    assert_false(vti_meter_wants_ping(&pipe.meter)); /* whoever probes sends it */
    ping(&pipe);
    vti_meter_end(&pipe.meter);
    pong(&pipe);
    assert_int_equal(known(&pipe).rtts, 1);
    assert_near(known(&pipe).bytes_per_s, 50e3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiet_pings_measure_the_round_trip),
        cmocka_unit_test(only_the_right_answer_counts),
        cmocka_unit_test(a_large_message_is_measured),
        cmocka_unit_test(a_stream_is_measured_again_and_again),
        cmocka_unit_test(what_is_not_clean_is_not_measured),
        cmocka_unit_test(small_messages_are_no_run),
        cmocka_unit_test(padding_is_measured_however_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
