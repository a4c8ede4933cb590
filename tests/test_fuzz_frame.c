/* Runs the fuzz target over its corpus.
 *   test_fuzz_frame FILE …                 runs these files instead (a crash the fuzzer found)
 *   test_fuzz_frame --write-seeds FOLDER   writes sessions of each kind there */
#define FUZZ_NAME "frame"
#include "fuzz/fuzz_frame.c"
#include "fuzz/replay.h"

static size_t put_frame(uint8_t *wire, uint8_t type, uint32_t bytes, uint32_t offset)
{
    vti_frame_header header = { .type = type };
    if (type >= VTI_FRAME_USER) header.step = 7;
    vti_frame_set_chunk(&header, bytes, offset);
    vti_frame_encode(wire, &header);
    memset(wire + VTI_FRAME_HEADER_BYTES, 'a' + type % 26, header.chunk_bytes);
    return VTI_FRAME_HEADER_BYTES + header.chunk_bytes;
}

/* A session as a good peer sends it in this mode: HELLO, messages, a heartbeat and a probe between
 * the chunks of a large one, GOODBYE. */
static size_t session(uint8_t *out, fuzz_mode mode, bool large)
{
    size_t size = 2;
    out[0] = (uint8_t)mode;
    out[1] = 13;
    if (mode >= FUZZ_CONNECTED && mode <= FUZZ_KEYED) {
        vti_handshake handshake;
        static const vti_net_key key = { "one cluster key for the fuzzers" };
        static const vti_handshake_secret secret = { "initiator secret initiator secr" };
        vti_handshake_start(&handshake, mode != FUZZ_CONNECTED, mode == FUZZ_KEYED ? &key : NULL,
                            &secret);
        memcpy(out + size, handshake.mine, VTI_PREAMBLE_BYTES);
        size += VTI_PREAMBLE_BYTES;
    }
    size += put_frame(out + size, VTI_FRAME_HELLO, 6, 0);
    size += put_frame(out + size, 20, 30, 0);
    if (large) {
        size += put_frame(out + size, 21, VTI_FRAME_CHUNK_MAX + 9, 0);
        size += put_frame(out + size, VTI_FRAME_HEARTBEAT, 0, 0);
        size += put_frame(out + size, VTI_FRAME_PADDING, 700, 0);
        size += put_frame(out + size, VTI_FRAME_PING, VTI_FRAME_PING_BYTES, 0);
        size += put_frame(out + size, 21, VTI_FRAME_CHUNK_MAX + 9, VTI_FRAME_CHUNK_MAX);
    }
    size += put_frame(out + size, 255, 0, 0);
    return size + put_frame(out + size, VTI_FRAME_GOODBYE, 4, 0);
}

static int write_seeds(const char *folder)
{
    static uint8_t seed[VTI_FRAME_CHUNK_MAX + 4096];
    static const char *const names[FUZZ_MODES] = { "frames", "connected", "listening", "keyed",
                                                   "sealed", "records" };
    for (int i = 0; i <= FUZZ_MODES; i++) {
        bool large = i == FUZZ_MODES;
        size_t size = session(seed, large ? FUZZ_FRAMES : (fuzz_mode)i, large);
        if (fuzz_write_seed(folder, large ? "chunks" : names[i], -1, seed, size) != 0) return 1;
    }
    return 0;
}

/* The seeds do get where they are meant to get. */
static void good_sessions_are_understood(void **state)
{
    (void)state;
    static uint8_t seed[VTI_FRAME_CHUNK_MAX + 4096];
    assert_true(sodium_init() >= 0);
    for (int mode = 0; mode < FUZZ_MODES; mode++) {
        size_t size = session(seed, (fuzz_mode)mode, mode == FUZZ_FRAMES);
        fuzz_trace trace = fuzz_run((fuzz_mode)mode, seed + 2, size - 2, 1);
        bool stranger = mode == FUZZ_KEYED || mode == FUZZ_RECORDS;
        assert_int_equal(trace.failed, stranger);
        assert_int_equal(trace.messages, stranger ? 0 : mode == FUZZ_FRAMES ? 7 : 4);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus_runs_through_the_target),
        cmocka_unit_test(good_sessions_are_understood),
    };
    return fuzz_run_main(argc, argv, write_seeds, tests, sizeof tests / sizeof tests[0]);
}
