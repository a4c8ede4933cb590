/* The frame codec and parser on literal bytes. */
#include "../net/frame.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

/* Type 17, flags 0x0201, epoch 3, step 4, unit 5, tokens 6..13, then "Hello, world". */
static const char hello_wire[] = "VLTF\x04\x11\x01\x02"
                                 "\x03\0\0\0\x04\0\0\0\x05\0\0\0\x06\0\0\0\x07\0\0\0"
                                 "\x0c\0\0\0\0\0\0\0\x0c\0\0\0"
                                 "\0\0\0\0\0\0\0\0"
                                 "Hello, world";
static const char heartbeat_wire[] = "VLTF\x04\x02\0\0"
                                     "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                     "\0\0\0\0\0\0\0\0\0\0\0\0"
                                     "\0\0\0\0\0\0\0\0";
/* Type 255, no payload, all other fields at their largest. */
static const char empty_wire[] = "VLTF\x04\xff\xff\xff"
                                 "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                                 "\0\0\0\0\xff\xff\xff\xff"
                                 "\0\0\0\0\0\0\0\0\0\0\0\0"
                                 "\0\0\0\0\0\0\0\0";

static void codec_matches_literal_bytes(void **state)
{
    (void)state;
    vti_frame_header header = { .type = 17, .flags = 0x0201, .epoch = 3, .step = 4, .unit = 5,
                                .token_begin = 6, .token_count = 7 };
    vti_frame_set_chunk(&header, 12, 0);
    assert_null(vti_frame_invalid(&header));
    uint8_t wire[VTI_FRAME_HEADER_BYTES];
    vti_frame_encode(wire, &header);
    assert_memory_equal(wire, hello_wire, sizeof wire);
    vti_frame_header back;
    vti_frame_decode(&back, wire);
    assert_memory_equal(&back, &header, sizeof header);
}

static void chunks_cover_a_message(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 0, 1, VTI_FRAME_CHUNK_MAX - 1, VTI_FRAME_CHUNK_MAX,
                                      VTI_FRAME_CHUNK_MAX + 1, 3 * VTI_FRAME_CHUNK_MAX,
                                      VTI_FRAME_MESSAGE_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t covered = 0;
        do {
            vti_frame_header header = { .type = VTI_FRAME_USER };
            vti_frame_set_chunk(&header, sizes[i], covered);
            assert_null(vti_frame_invalid(&header));
            covered += header.chunk_bytes;
        } while (covered < sizes[i]);
        assert_int_equal(covered, sizes[i]);
    }
}

typedef struct wrong_field {
    vti_frame_header header;
    const char *reason;
} wrong_field;

#define TYPED(number, ...)                                                                         \
    { .magic = VTI_FRAME_MAGIC, .version = VTI_WIRE_VERSION, .type = (number), __VA_ARGS__ }
#define HEADER(...) TYPED(VTI_FRAME_USER, __VA_ARGS__)

static void every_wrong_field_has_its_reason(void **state)
{
    (void)state;
    const uint32_t chunk = VTI_FRAME_CHUNK_MAX;
    const wrong_field cases[] = {
        { { .magic = 1, .version = VTI_WIRE_VERSION, .type = VTI_FRAME_USER },
          "wrong magic number" },
        { { .magic = VTI_FRAME_MAGIC, .version = 1, .type = VTI_FRAME_USER }, "wrong version" },
        { TYPED(0, .flags = 0), "unknown frame type" },
        { TYPED(8, .flags = 0), "unknown frame type" },
        { TYPED(15, .flags = 0), "unknown frame type" },
        { HEADER(.reserved = 1), "reserved bytes are not zero" },
        { HEADER(.reserved = 1ull << 63), "reserved bytes are not zero" },
        { HEADER(.message_bytes = VTI_FRAME_MESSAGE_MAX + 1), "message is too large" },
        { HEADER(.message_bytes = UINT32_MAX), "message is too large" },
        { HEADER(.chunk_offset = chunk), "chunk begins past the message" },
        { HEADER(.message_bytes = chunk, .chunk_offset = UINT32_MAX),
          "chunk begins past the message" },
        { HEADER(.message_bytes = chunk, .chunk_offset = chunk),
          "chunk begins at the end of the message" },
        { HEADER(.message_bytes = 9, .chunk_offset = 5, .chunk_bytes = 4),
          "chunk offset is not a whole chunk" },
        { HEADER(.message_bytes = 9, .chunk_bytes = 8), "chunk is not as long as it should be" },
        { HEADER(.message_bytes = 9, .chunk_bytes = 10), "chunk is not as long as it should be" },
        { HEADER(.message_bytes = 2 * chunk, .chunk_bytes = 2 * chunk),
          "chunk is not as long as it should be" },
        { HEADER(.chunk_bytes = 1), "chunk is not as long as it should be" },
        { HEADER(.token_begin = 1, .token_count = UINT32_MAX), "token range overflows" },
        { TYPED(VTI_FRAME_HEARTBEAT, .message_bytes = 1, .chunk_bytes = 1),
          "text is too long" },
        { TYPED(VTI_FRAME_PING, .flags = 0), "ping is not 8 bytes" },
        { TYPED(VTI_FRAME_PONG, .message_bytes = 9, .chunk_bytes = 9), "ping is not 8 bytes" },
        { TYPED(VTI_FRAME_PADDING, .message_bytes = VTI_FRAME_PADDING_MAX + 1,
                .chunk_bytes = VTI_FRAME_PADDING_MAX + 1), "padding is too long" },
        { TYPED(VTI_FRAME_PADDING, .step = 1),
          "a field is set that this frame type does not have" },
        { TYPED(VTI_FRAME_ERROR, .message_bytes = VTI_FRAME_TEXT_MAX + 1,
                .chunk_bytes = VTI_FRAME_TEXT_MAX + 1), "text is too long" },
        { TYPED(VTI_FRAME_HELLO, .unit = 1),
          "a field is set that this frame type does not have" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *reason = vti_frame_invalid(&cases[i].header);
        assert_non_null(reason);
        assert_string_equal(reason, cases[i].reason);
    }
}

/* Each byte of a valid header changed in each bit: either the parser fails, or it delivers a
 * message that has that change, or it waits for more payload. Nothing else. */
static void every_header_bit_flipped(void **state)
{
    (void)state;
    size_t failed = 0, delivered = 0;
    for (size_t bit = 0; bit < 8 * VTI_FRAME_HEADER_BYTES; bit++) {
        uint8_t wire[sizeof hello_wire - 1];
        memcpy(wire, hello_wire, sizeof wire);
        wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
        vti_frame_parser parser = { 0 };
        vti_frame_message message;
        size_t used;
        vti_frame_result result = vti_frame_feed(&parser, wire, sizeof wire, &used, &message);
        if (result == VTI_FRAME_MESSAGE) {
            uint8_t again[VTI_FRAME_HEADER_BYTES];
            vti_frame_encode(again, &message.header);
            assert_memory_equal(again, wire, sizeof again);
            assert_memory_equal(message.payload, "Hello, world", 12);
            free(message.payload);
            delivered++;
        } else {
            assert_int_equal(result, VTI_FRAME_FAILED);
            assert_non_null(parser.reason);
            failed++;
        }
        vti_frame_parser_clear(&parser);
    }
    /* flags, epoch, step, unit, token_begin, token_count (176 bits) and the three high type bits
     * that keep it a user type are free, but for the two ways to overflow the token range. */
    assert_int_equal(failed + delivered, 384);
    assert_in_range(delivered, 170, 184);
}

typedef struct expected_message {
    uint8_t type;
    const char *payload;
} expected_message;

/* Feeds `wire` in pieces of the given sizes (cyclic) and checks what comes out. */
static void feed_in_pieces(const uint8_t *wire, size_t size, const size_t *pieces, size_t count,
                           const expected_message *expected, size_t expected_count)
{
    vti_frame_parser parser = { 0 };
    size_t at = 0, got = 0;
    for (size_t i = 0; at < size; i++) {
        size_t piece = pieces[i % count] < size - at ? pieces[i % count] : size - at;
        while (piece > 0) {
            vti_frame_message message;
            size_t used;
            uint8_t *exact = malloc(piece); /* so that ASan sees a read past it */
            memcpy(exact, wire + at, piece);
            vti_frame_result result = vti_frame_feed(&parser, exact, piece, &used, &message);
            free(exact);
            at += used;
            piece -= used;
            if (result == VTI_FRAME_MORE) {
                assert_int_equal(piece, 0);
                break;
            }
            assert_int_equal(result, VTI_FRAME_MESSAGE);
            assert_true(got < expected_count);
            assert_int_equal(message.header.type, expected[got].type);
            assert_int_equal(message.header.message_bytes, strlen(expected[got].payload));
            if (message.header.message_bytes > 0)
                assert_memory_equal(message.payload, expected[got].payload,
                                    message.header.message_bytes);
            free(message.payload);
            got++;
        }
    }
    assert_int_equal(got, expected_count);
    vti_frame_parser_clear(&parser);
}

static void any_fragmentation(void **state)
{
    (void)state;
    uint8_t wire[512];
    size_t size = 0;
    static const struct { const char *bytes; size_t size; } frames[] = {
        { hello_wire, sizeof hello_wire - 1 },         { empty_wire, sizeof empty_wire - 1 },
        { heartbeat_wire, sizeof heartbeat_wire - 1 }, { hello_wire, sizeof hello_wire - 1 },
    };
    static const expected_message expected[] = {
        { 17, "Hello, world" }, { 255, "" }, { VTI_FRAME_HEARTBEAT, "" }, { 17, "Hello, world" },
    };
    for (size_t i = 0; i < 4; i++) {
        memcpy(wire + size, frames[i].bytes, frames[i].size);
        size += frames[i].size;
    }
    for (size_t cut = 1; cut <= size; cut++) {
        feed_in_pieces(wire, size, &cut, 1, expected, 4);
        size_t two[] = { cut, size };
        feed_in_pieces(wire, size, two, 2, expected, 4);
    }
    test_random random = { .state = 88172645463325252u };
    for (int round = 0; round < 200; round++) {
        size_t pieces[7];
        for (size_t i = 0; i < 7; i++) pieces[i] = 1 + test_random_u64(&random) % 60;
        feed_in_pieces(wire, size, pieces, 7, expected, 4);
    }
}

/* Appends one frame of the message of `bytes` payload (byte i is i mod 251). */
static size_t put_chunk(uint8_t *wire, uint32_t bytes, uint32_t offset, uint32_t step)
{
    vti_frame_header header = { .type = VTI_FRAME_USER, .step = step };
    vti_frame_set_chunk(&header, bytes, offset);
    vti_frame_encode(wire, &header);
    for (uint32_t i = 0; i < header.chunk_bytes; i++)
        wire[VTI_FRAME_HEADER_BYTES + i] = (uint8_t)((offset + i) % 251);
    return VTI_FRAME_HEADER_BYTES + header.chunk_bytes;
}

#define LARGE (2 * VTI_FRAME_CHUNK_MAX + 1000)

/* Chunks with a heartbeat and an ERROR text between them, in random pieces. */
static void large_message_with_frames_between(void **state)
{
    (void)state;
    static uint8_t wire[LARGE + 1024];
    size_t size = put_chunk(wire, LARGE, 0, 9);
    memcpy(wire + size, heartbeat_wire, sizeof heartbeat_wire - 1);
    size += sizeof heartbeat_wire - 1;
    size += put_chunk(wire + size, LARGE, VTI_FRAME_CHUNK_MAX, 9);
    vti_frame_header error = { .type = VTI_FRAME_ERROR };
    vti_frame_set_chunk(&error, 4, 0);
    vti_frame_encode(wire + size, &error);
    memcpy(wire + size + VTI_FRAME_HEADER_BYTES, "oops", 4);
    size += VTI_FRAME_HEADER_BYTES + 4;
    size += put_chunk(wire + size, LARGE, 2 * VTI_FRAME_CHUNK_MAX, 9);

    test_random random = { .state = 362436069 };
    for (int round = 0; round < 20; round++) {
        vti_frame_parser parser = { 0 };
        vti_frame_message message = { 0 };
        uint8_t types[4] = { 0 };
        size_t count = 0, used;
        for (size_t at = 0; at < size; at += used) {
            size_t piece = 1 + test_random_u64(&random) % (round < 10 ? 5000 : 150000);
            if (piece > size - at) piece = size - at;
            vti_frame_result result = vti_frame_feed(&parser, wire + at, piece, &used, &message);
            assert_int_not_equal(result, VTI_FRAME_FAILED);
            if (result == VTI_FRAME_MORE) continue;
            assert_true(count < 3);
            types[count++] = message.header.type;
            if (message.header.type == VTI_FRAME_ERROR)
                assert_memory_equal(message.payload, "oops", 4);
            if (message.header.type != VTI_FRAME_USER) free(message.payload);
        }
        assert_memory_equal(types, "\x02\x04\x10", 3);
        assert_int_equal(message.header.step, 9);
        assert_int_equal((uintptr_t)message.payload % 64, 0);
        for (uint32_t i = 0; i < LARGE; i++) assert_int_equal(message.payload[i], i % 251);
        free(message.payload);
        vti_frame_parser_clear(&parser);
    }
}

static void expect_failure(const uint8_t *wire, size_t size, const char *reason)
{
    vti_frame_parser parser = { 0 };
    vti_frame_message message;
    size_t used;
    vti_frame_result result = vti_frame_feed(&parser, wire, size, &used, &message);
    assert_int_equal(result, VTI_FRAME_FAILED);
    assert_string_equal(parser.reason, reason);
    assert_int_equal(vti_frame_feed(&parser, BYTES(heartbeat_wire), &used, &message),
                     VTI_FRAME_FAILED);
    vti_frame_parser_clear(&parser);
}

static size_t put_own(uint8_t *wire, uint8_t type, uint32_t bytes)
{
    vti_frame_header header = { .type = type };
    vti_frame_set_chunk(&header, bytes, 0);
    vti_frame_encode(wire, &header);
    for (uint32_t i = 0; i < bytes; i++) wire[VTI_FRAME_HEADER_BYTES + i] = (uint8_t)i;
    return VTI_FRAME_HEADER_BYTES + bytes;
}

/* Padding between chunks and before a ping: the ping and the message come out, it does not. */
static void padding_is_forgotten(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 0, 1, 400, 401, VTI_FRAME_PADDING_MAX };
    static uint8_t wire[LARGE + 65536];
    size_t size = put_chunk(wire, LARGE, 0, 9);
    uint64_t padding = 0;
    for (size_t i = 0; i < 5; i++) {
        size_t bytes = put_own(wire + size, VTI_FRAME_PADDING, sizes[i]);
        size += bytes;
        padding += bytes;
    }
    size += put_own(wire + size, VTI_FRAME_PING, VTI_FRAME_PING_BYTES);
    size += put_chunk(wire + size, LARGE, VTI_FRAME_CHUNK_MAX, 9);
    size += put_chunk(wire + size, LARGE, 2 * VTI_FRAME_CHUNK_MAX, 9);
    for (size_t piece = 1; piece < 2 * size; piece *= 7) {
        vti_frame_parser parser = { 0 };
        uint8_t types[3];
        size_t count = 0, used;
        for (size_t at = 0; at < size; at += used) {
            vti_frame_message message;
            size_t here = piece < size - at ? piece : size - at;
            vti_frame_result result = vti_frame_feed(&parser, wire + at, here, &used, &message);
            if (result == VTI_FRAME_MORE) continue;
            assert_int_equal(result, VTI_FRAME_MESSAGE);
            assert_true(count < 2);
            types[count++] = message.header.type;
            if (message.header.type == VTI_FRAME_PING)
                assert_memory_equal(message.payload, "\0\1\2\3\4\5\6\7", 8);
            else
                for (uint32_t i = 0; i < LARGE; i++)
                    if (message.payload[i] != i % 251) fail_msg("byte %u", i);
            free(message.payload);
        }
        assert_memory_equal(types, "\x05\x10", 2);
        assert_int_equal(count, 2);
        assert_int_equal(parser.padding_bytes, padding);
        vti_frame_parser_clear(&parser);
    }
}

static void chunks_out_of_order(void **state)
{
    (void)state;
    static uint8_t wire[2 * LARGE];
    size_t size = put_chunk(wire, LARGE, VTI_FRAME_CHUNK_MAX, 9);
    expect_failure(wire, size, "a chunk without the beginning of its message");

    static const struct { uint32_t bytes, offset, step; } second[] = {
        { LARGE, 2 * VTI_FRAME_CHUNK_MAX, 9 },    /* one left out */
        { LARGE, 0, 9 },                          /* from the start again */
        { LARGE, VTI_FRAME_CHUNK_MAX, 8 },        /* another step */
        { LARGE + 1, VTI_FRAME_CHUNK_MAX, 9 },    /* another size */
        { 5, 0, 9 },                              /* another message */
    };
    size_t first = put_chunk(wire, LARGE, 0, 9);
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        size = first + put_chunk(wire + first, second[i].bytes, second[i].offset, second[i].step);
        expect_failure(wire, size, "a chunk that does not continue the message under way");
    }
}

typedef struct gate {
    int asked;
    const char *answer;
    vti_frame_header header;
} gate;

static const char *ask(void *user, const vti_frame_header *header)
{
    gate *guard = user;
    guard->asked++;
    guard->header = *header;
    return guard->answer;
}

static void admit_is_asked_once_and_before_the_payload(void **state)
{
    (void)state;
    static uint8_t wire[LARGE + 1024];
    gate guard = { 0 };
    vti_frame_parser parser = { .admit = ask, .user = &guard };
    vti_frame_message message;
    size_t used, size = put_chunk(wire, LARGE, 0, 9);
    size += put_chunk(wire + size, LARGE, VTI_FRAME_CHUNK_MAX, 9);
    size += put_chunk(wire + size, LARGE, 2 * VTI_FRAME_CHUNK_MAX, 9);
    vti_frame_feed(&parser, wire, VTI_FRAME_HEADER_BYTES - 1, &used, &message);
    assert_int_equal(guard.asked, 0);
    vti_frame_feed(&parser, wire + used, 1, &used, &message);
    assert_int_equal(guard.asked, 1);
    assert_int_equal(guard.header.message_bytes, LARGE);
    assert_int_equal(guard.header.step, 9);
    assert_int_equal(vti_frame_feed(&parser, wire + VTI_FRAME_HEADER_BYTES,
                                    size - VTI_FRAME_HEADER_BYTES, &used, &message),
                     VTI_FRAME_MESSAGE);
    assert_int_equal(guard.asked, 1);
    free(message.payload);
    /* Net's own frames are not the user's business. */
    vti_frame_feed(&parser, BYTES(heartbeat_wire), &used, &message);
    assert_int_equal(guard.asked, 1);
    vti_frame_parser_clear(&parser);
}

static void refused_message_takes_no_memory(void **state)
{
    (void)state;
    gate guard = { .answer = "step 4 is not expected" };
    vti_frame_parser parser = { .admit = ask, .user = &guard };
    vti_frame_message message;
    size_t used;
    vti_frame_result result = vti_frame_feed(&parser, BYTES(hello_wire), &used, &message);
    assert_int_equal(result, VTI_FRAME_FAILED);
    assert_int_equal(used, VTI_FRAME_HEADER_BYTES);
    assert_true(parser.refused);
    assert_string_equal(parser.reason, guard.answer);
    assert_null(parser.message.payload);
}

static void unfinished_message_is_freed(void **state)
{
    (void)state;
    vti_frame_parser parser = { 0 };
    vti_frame_message message;
    size_t used;
    vti_frame_feed(&parser, (const uint8_t *)hello_wire, sizeof hello_wire - 2, &used, &message);
    assert_non_null(parser.message.payload); /* LeakSanitizer watches the rest */
    vti_frame_parser_clear(&parser);
    assert_int_equal(vti_frame_feed(&parser, BYTES(hello_wire), &used, &message),
                     VTI_FRAME_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codec_matches_literal_bytes),
        cmocka_unit_test(chunks_cover_a_message),
        cmocka_unit_test(every_wrong_field_has_its_reason),
        cmocka_unit_test(every_header_bit_flipped),
        cmocka_unit_test(any_fragmentation),
        cmocka_unit_test(large_message_with_frames_between),
        cmocka_unit_test(padding_is_forgotten),
        cmocka_unit_test(chunks_out_of_order),
        cmocka_unit_test(admit_is_asked_once_and_before_the_payload),
        cmocka_unit_test(refused_message_takes_no_memory),
        cmocka_unit_test(unfinished_message_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
