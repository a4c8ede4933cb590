/* The sending half on a link that is a buffer in memory and takes as much as the test says. */
#include "../net/sender.h"
#include "net_support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct memory_link {
    vti_link link;
    uint8_t *bytes;
    size_t size, capacity;
    size_t take; /* at most so many bytes per send */
    size_t room; /* until it is full */
    int error;
} memory_link;

static ssize_t memory_send(vti_link *link, const struct iovec *parts, int count)
{
    memory_link *memory = (memory_link *)link;
    size_t limit = memory->take < memory->room ? memory->take : memory->room, taken = 0;
    if (memory->error) return -memory->error;
    if (limit == 0) return -EAGAIN;
    for (int i = 0; i < count && taken < limit; i++) {
        size_t piece = parts[i].iov_len < limit - taken ? parts[i].iov_len : limit - taken;
        assert_true(piece > 0);
        assert_true(memory->size + piece <= memory->capacity);
        memcpy(memory->bytes + memory->size, parts[i].iov_base, piece);
        memory->size += piece;
        taken += piece;
    }
    memory->room -= taken;
    return (ssize_t)taken;
}

static void open_link(memory_link *memory, size_t take, size_t room)
{
    *memory = (memory_link){ .link.send = memory_send, .capacity = 4u << 20, .take = take,
                             .room = room };
    memory->bytes = malloc(memory->capacity);
}

static int released;

static void count_release(void *user)
{
    released++;
    if (user) ++*(int *)user;
}

static vti_out *message(uint8_t type, const vti_net_part *parts, size_t count)
{
    vti_out *out = calloc(1, sizeof *out);
    out->header.type = type;
    for (size_t i = 0; i < count; i++) {
        out->parts[i] = parts[i];
        out->message_bytes += (uint32_t)parts[i].bytes;
    }
    out->part_count = count;
    out->release = count_release;
    return out;
}

static void flush(vti_sender *sender)
{
    vti_out *done = NULL;
    vti_sender_flush(sender, &done);
    vti_out_release(done);
}

/* Parses all the link got; the user message's payload is compared, the types are returned. */
static size_t parse(const memory_link *memory, vti_record_opener *opener, uint8_t *types,
                    const uint8_t *payload)
{
    vti_frame_parser parser = { 0 };
    size_t count = 0;
    const uint8_t *bytes = memory->bytes;
    size_t size = memory->size;
    while (size > 0) {
        const uint8_t *plain = bytes;
        size_t plain_bytes = size, taken = size;
        if (opener) {
            taken = vti_record_open(opener, bytes, size, &plain_bytes);
            assert_null(opener->reason);
            plain = opener->body;
        }
        bytes += taken;
        size -= taken;
        while (plain_bytes > 0) {
            vti_frame_message got;
            size_t used;
            vti_frame_result result = vti_frame_feed(&parser, plain, plain_bytes, &used, &got);
            plain += used;
            plain_bytes -= used;
            if (result == VTI_FRAME_MORE) break;
            assert_int_equal(result, VTI_FRAME_MESSAGE);
            types[count++] = got.header.type;
            if (got.header.type >= VTI_FRAME_USER && payload)
                assert_memory_equal(got.payload, payload, got.header.message_bytes);
            free(got.payload);
        }
    }
    vti_frame_parser_clear(&parser);
    return count;
}

#define LARGE (2 * VTI_FRAME_CHUNK_MAX + 777)

/* A message of four parts (one empty), larger than two chunks, through links that take little. */
static void parts_become_one_payload(void **state)
{
    (void)state;
    static const size_t takes[] = { 1000000, 65536, 4099, 97 };
    static const uint8_t key[32] = "any key does for this test.....";
    static uint8_t data[LARGE];
    test_net_fill(data, LARGE, 5);
    const vti_net_part parts[] = {
        { data, 100 }, { data + 100, 0 }, { data + 100, 70000 }, { data + 70100, LARGE - 70100 },
    };
    for (int keyed = 0; keyed < 2; keyed++) {
        for (size_t i = 0; i < 4; i++) {
            memory_link memory;
            vti_record_sealer sealer = { 0 };
            vti_record_opener opener;
            memcpy(sealer.key, key, 32);
            assert_true(vti_record_opener_init(&opener, key));
            open_link(&memory, takes[i], 1u << 30);
            vti_sender sender = { .link = &memory.link };
            if (keyed) assert_true(vti_sender_encrypt(&sender, &sealer));
            released = 0;
            vti_sender_push(&sender, message(20, parts, 4));
            assert_int_equal(sender.queued_bytes, LARGE + VTI_FRAME_HEADER_BYTES);
            flush(&sender);
            assert_int_equal(released, 1);
            assert_int_equal(sender.queued_bytes, 0);
            assert_true(vti_sender_idle(&sender));
            assert_int_equal(sender.sent_bytes, memory.size);
            uint8_t types[4];
            assert_int_equal(parse(&memory, keyed ? &opener : NULL, types, data), 1);
            vti_out *done = NULL;
            vti_sender_clear(&sender, &done);
            assert_null(done);
            vti_record_opener_clear(&opener);
            free(memory.bytes);
        }
    }
}

static void heartbeats_go_between_chunks(void **state)
{
    (void)state;
    static uint8_t data[LARGE];
    test_net_fill(data, LARGE, 6);
    const vti_net_part part = { data, LARGE };
    memory_link memory;
    open_link(&memory, SIZE_MAX, 1000);
    vti_sender sender = { .link = &memory.link, .hello = "" };
    vti_sender_push(&sender, message(20, &part, 1));
    flush(&sender);
    assert_true(sender.blocked);
    for (int i = 0; i < 2; i++) {
        sender.heartbeat_due = true; /* twice while a chunk is stuck: one is enough */
        flush(&sender);
        assert_true(sender.blocked);
    }
    memory.room = SIZE_MAX;
    flush(&sender);
    uint8_t types[4];
    assert_int_equal(parse(&memory, NULL, types, data), 3);
    assert_memory_equal(types, "\x01\x02\x14", 3); /* HELLO, HEARTBEAT, the message */
    vti_out *done = NULL;
    vti_sender_clear(&sender, &done);
    free(memory.bytes);
}

static void farewell_drops_what_is_queued(void **state)
{
    (void)state;
    static uint8_t data[LARGE];
    test_net_fill(data, LARGE, 7);
    const vti_net_part part = { data, LARGE };
    memory_link memory;
    open_link(&memory, SIZE_MAX, VTI_FRAME_CHUNK_MAX + 1000); /* in the middle of chunk 2 */
    vti_sender sender = { .link = &memory.link };
    int freed[3] = { 0 };
    for (int i = 0; i < 3; i++) {
        vti_out *out = message((uint8_t)(20 + i), &part, 1);
        out->user = &freed[i];
        vti_sender_push(&sender, out);
    }
    flush(&sender);
    vti_out *done = NULL;
    vti_sender_leave(&sender, VTI_FRAME_ERROR, "had enough", &done);
    vti_out_release(done);
    assert_int_equal(freed[0], 0); /* its chunk is still being sent from that memory */
    assert_int_equal(freed[1] + freed[2], 2);
    memory.room = SIZE_MAX;
    flush(&sender);
    assert_int_equal(freed[0], 1);
    assert_true(vti_sender_idle(&sender));
    assert_int_equal(sender.queued_bytes, 0);
    sender.heartbeat_due = true;
    flush(&sender); /* nothing follows a farewell */
    uint8_t types[4];
    assert_int_equal(parse(&memory, NULL, types, NULL), 1);
    assert_int_equal(types[0], VTI_FRAME_ERROR);
    done = NULL;
    vti_sender_clear(&sender, &done);
    free(memory.bytes);
}

static void copies_do_not_need_the_callers_memory(void **state)
{
    (void)state;
    static uint8_t data[LARGE], before[LARGE];
    test_net_fill(data, LARGE, 8);
    memcpy(before, data, LARGE);
    const vti_net_part parts[] = { { data, 10 }, { data + 10, LARGE - 10 } };
    memory_link memory;
    open_link(&memory, SIZE_MAX, VTI_FRAME_CHUNK_MAX + 12345);
    vti_sender sender = { .link = &memory.link };
    vti_out *out = message(20, parts, 2);
    vti_sender_push(&sender, out);
    flush(&sender);
    assert_true(vti_out_copy(out));
    memset(data, 0, LARGE);
    memory.room = SIZE_MAX;
    flush(&sender);
    uint8_t types[4];
    assert_int_equal(parse(&memory, NULL, types, before), 1);
    vti_out *done = NULL;
    vti_sender_clear(&sender, &done);
    free(memory.bytes);
}

static void a_failed_link_takes_nothing_any_more(void **state)
{
    (void)state;
    const vti_net_part part = { "x", 1 };
    memory_link memory;
    open_link(&memory, 10, 1000);
    vti_sender sender = { .link = &memory.link };
    memory.error = EPIPE;
    released = 0;
    vti_sender_push(&sender, message(20, &part, 1));
    flush(&sender);
    assert_int_equal(sender.fault, EPIPE);
    memory.error = 0;
    flush(&sender);
    assert_int_equal(memory.size, 0);
    assert_int_equal(released, 0);
    vti_out *done = NULL;
    vti_sender_clear(&sender, &done);
    vti_out_release(done);
    assert_int_equal(released, 1);
    free(memory.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_become_one_payload),
        cmocka_unit_test(heartbeats_go_between_chunks),
        cmocka_unit_test(farewell_drops_what_is_queued),
        cmocka_unit_test(copies_do_not_need_the_callers_memory),
        cmocka_unit_test(a_failed_link_takes_nothing_any_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
