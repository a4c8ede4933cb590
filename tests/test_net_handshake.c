/* Handshake, records and channel between two state machines in memory. */
#include "../net/channel.h"
#include "net_support.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_OF(text) (const uint8_t *)(text), sizeof(text) - 1

static const vti_handshake_secret secret_a = { "initiator secret initiator secr" };
static const vti_handshake_secret secret_b = { "responder secret responder secr" };

static void start_pair(vti_handshake *a, const vti_net_key *key_a, vti_handshake *b,
                       const vti_net_key *key_b)
{
    vti_handshake_start(a, true, key_a, &secret_a);
    vti_handshake_start(b, false, key_b, &secret_b);
}

/* Moves what one has to say to the other, `piece` bytes at a time. */
static bool carry(vti_handshake *from, vti_handshake *to, size_t piece)
{
    if (from->output_bytes == 0) return false;
    uint8_t bytes[sizeof from->output];
    size_t size = from->output_bytes, used = 0;
    memcpy(bytes, from->output, size);
    from->output_bytes = 0;
    while (used < size && to->state < VTI_HANDSHAKE_DONE) {
        size_t count = size - used < piece ? size - used : piece;
        size_t taken = vti_handshake_feed(to, bytes + used, count);
        if (to->state < VTI_HANDSHAKE_DONE) assert_int_equal(taken, count);
        used += count;
    }
    return true;
}

static void run_pair(vti_handshake *a, vti_handshake *b, size_t piece)
{
    while (carry(a, b, piece) || carry(b, a, piece)) continue;
}

static void without_a_key(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= VTI_PREAMBLE_BYTES; piece++) {
        vti_handshake a, b;
        start_pair(&a, NULL, &b, NULL);
        assert_int_equal(b.output_bytes, 0); /* a listener says nothing before it is spoken to */
        run_pair(&a, &b, piece);
        assert_int_equal(a.state, VTI_HANDSHAKE_DONE);
        assert_int_equal(b.state, VTI_HANDSHAKE_DONE);
    }
}

static void preamble_on_the_wire(void **state)
{
    (void)state;
    static const char expected[VTI_PREAMBLE_BYTES] = "VLTN\x04\0\x02\0";
    vti_handshake a;
    vti_handshake_start(&a, true, NULL, NULL);
    assert_int_equal(a.output_bytes, VTI_PREAMBLE_BYTES);
    assert_memory_equal(a.output, expected, VTI_PREAMBLE_BYTES);
    vti_net_key key = test_net_key("sixteen bytes or more");
    vti_handshake_start(&a, true, &key, &secret_a);
    assert_memory_equal(a.output, "VLTN\x04\0\x03\0\0\0\0\0\0\0\0\0", 16);
}

static void with_the_same_key(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("sixteen bytes or more");
    for (size_t piece = 1; piece <= VTI_PREAMBLE_BYTES + VTI_CONFIRM_BYTES; piece++) {
        vti_handshake a, b;
        start_pair(&a, &key, &b, &key);
        run_pair(&a, &b, piece);
        assert_int_equal(a.state, VTI_HANDSHAKE_DONE);
        assert_int_equal(b.state, VTI_HANDSHAKE_DONE);
        assert_memory_equal(a.send_key, b.receive_key, sizeof a.send_key);
        assert_memory_equal(a.receive_key, b.send_key, sizeof a.send_key);
        assert_memory_not_equal(a.send_key, a.receive_key, sizeof a.send_key);
    }
}

static void keys_depend_on_everything(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("sixteen bytes or more");
    vti_net_key other = test_net_key("another key....!");
    vti_handshake a, b, c, d;
    start_pair(&a, &key, &b, &key);
    run_pair(&a, &b, 80);
    start_pair(&c, &other, &d, &other);
    run_pair(&c, &d, 80);
    assert_memory_not_equal(a.send_key, c.send_key, sizeof a.send_key);
    vti_handshake_start(&c, true, &key, &secret_a);
    vti_handshake_start(&d, false, &key, &secret_a); /* another ephemeral key */
    run_pair(&c, &d, 80);
    assert_int_equal(c.state, VTI_HANDSHAKE_DONE);
    assert_memory_not_equal(a.send_key, c.send_key, sizeof a.send_key);
}

/* The derivation docs/wire.md states, written down a second time. */
static void keys_follow_the_document(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("sixteen bytes or more");
    vti_handshake a, b;
    start_pair(&a, &key, &b, &key);
    run_pair(&a, &b, 80);
    uint8_t input[32 + 2 * VTI_PREAMBLE_BYTES], root[32], data_key[32];
    assert_int_equal(crypto_scalarmult(input, secret_a.bytes, b.mine + 16), 0);
    memcpy(input + 32, a.mine, VTI_PREAMBLE_BYTES);
    memcpy(input + 32 + VTI_PREAMBLE_BYTES, b.mine, VTI_PREAMBLE_BYTES);
    crypto_generichash(root, 32, input, sizeof input, key.bytes, 32);
    crypto_generichash(data_key, 32, (const uint8_t *)"initiator data", 14, root, 32);
    assert_memory_equal(a.send_key, data_key, 32);
    crypto_generichash(data_key, 32, (const uint8_t *)"responder data", 14, root, 32);
    assert_memory_equal(a.receive_key, data_key, 32);
}

static void different_keys(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("sixteen bytes or more");
    vti_net_key other = test_net_key("another key....!");
    vti_handshake a, b;
    static const uint8_t nothing[VTI_CONFIRM_BYTES];
    start_pair(&a, &key, &b, &other);
    carry(&a, &b, 80);
    carry(&b, &a, 80);
    carry(&a, &b, 80);
    /* The answer to a wrong confirmation must not help anybody to guess our key. */
    assert_int_equal(b.output_bytes, sizeof nothing);
    assert_memory_equal(b.output, nothing, sizeof nothing);
    carry(&b, &a, 80);
    const vti_handshake *sides[] = { &a, &b };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sides[i]->state, VTI_HANDSHAKE_FAILED);
        assert_int_equal(sides[i]->status, VTI_NET_ERR_KEY);
        assert_string_equal(sides[i]->reason, "the other side has a different cluster key");
    }
}

static void only_one_side_has_a_key(void **state)
{
    (void)state;
    static const char mine[] = "this side has a cluster key, the other side has none: give both "
                               "the same key, or none on either side";
    static const char theirs[] = "the other side has a cluster key, this side has none: give both "
                                 "the same key, or none on either side";
    vti_net_key key = test_net_key("sixteen bytes or more");
    for (int i = 0; i < 2; i++) {
        vti_handshake a, b;
        start_pair(&a, i ? &key : NULL, &b, i ? NULL : &key);
        run_pair(&a, &b, 80);
        assert_int_equal(a.state, VTI_HANDSHAKE_FAILED);
        assert_int_equal(b.state, VTI_HANDSHAKE_FAILED);
        assert_int_equal(a.status, VTI_NET_ERR_KEY);
        assert_string_equal(a.reason, i ? mine : theirs);
        assert_string_equal(b.reason, i ? theirs : mine);
    }
}

static void versions_differ(void **state)
{
    (void)state;
    for (int flipped = 0; flipped < 2; flipped++) {
        vti_handshake a, b;
        start_pair(&a, NULL, &b, NULL);
        /* One of them is from the future: its preamble says version 7, and is longer. */
        uint8_t future[VTI_PREAMBLE_BYTES] = "VLTN\x07\0\x02\0 who knows what follows";
        vti_handshake *us = flipped ? &b : &a;
        vti_handshake_feed(us, future, 7);
        assert_int_equal(us->state, VTI_HANDSHAKE_PREAMBLE);
        vti_handshake_feed(us, future + 7, sizeof future - 7);
        assert_int_equal(us->state, VTI_HANDSHAKE_FAILED);
        assert_int_equal(us->status, VTI_NET_ERR_HANDSHAKE);
        assert_string_equal(us->reason, "this side speaks wire version 4, the other side version "
                            "7: run the same Voltron release on both");
        /* Either way our preamble is there to be sent, so that the other side can say the same. */
        assert_int_equal(us->output_bytes, VTI_PREAMBLE_BYTES);
    }
}

static void strangers(void **state)
{
    (void)state;
    vti_handshake b;
    vti_handshake_start(&b, false, NULL, NULL);
    vti_handshake_feed(&b, (const uint8_t *)"GET / HTTP/1.1\r\n", 16);
    assert_int_equal(b.state, VTI_HANDSHAKE_FAILED);
    assert_string_equal(b.reason, "it does not speak Voltron's protocol (it sent \"GET / HT\")");
    assert_int_equal(b.output_bytes, 0);
    vti_handshake_start(&b, false, NULL, NULL);
    vti_handshake_feed(&b, (const uint8_t *)"\x16\x03\x01\0\xff\x1b[2J", 9);
    assert_string_equal(b.reason, "it does not speak Voltron's protocol (it sent \"????\?\?[2\")");
}

/* Every bit of every handshake byte changed on the way: never do both sides end up DONE with a key,
 * and nobody is left DONE with keys that differ. */
static void tampered_handshake(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("sixteen bytes or more");
    for (size_t bit = 0; bit < 8 * (VTI_PREAMBLE_BYTES + VTI_CONFIRM_BYTES); bit++) {
        for (int direction = 0; direction < 2; direction++) {
            vti_handshake a, b;
            start_pair(&a, &key, &b, &key);
            size_t seen[2] = { 0, 0 };
            for (bool moved = true; moved;) {
                moved = false;
                for (int d = 0; d < 2; d++) {
                    vti_handshake *from = d ? &b : &a, *to = d ? &a : &b;
                    size_t at = seen[d], size = from->output_bytes;
                    if (d == direction && bit / 8 >= at && bit / 8 < at + size)
                        from->output[bit / 8 - at] ^= (uint8_t)(1u << bit % 8);
                    seen[d] += size;
                    moved |= carry(from, to, 80);
                }
            }
            bool done_a = a.state == VTI_HANDSHAKE_DONE, done_b = b.state == VTI_HANDSHAKE_DONE;
            if (done_a && done_b) {
                /* An unknown feature bit is ignored, but it is part of what the keys come from;
                 * X25519 ignores the top bit of a public key, the transcript does not. */
                fail_msg("bit %zu of direction %d went unnoticed", bit, direction);
            }
            if (direction == 0) assert_false(done_b);
            if (direction == 1) assert_false(done_a);
        }
    }
}

/* A preamble with a public key of small order would make the shared secret known to all. */
static void small_order_public_key(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("sixteen bytes or more");
    uint8_t preamble[VTI_PREAMBLE_BYTES] = "VLTN\x04\0\x03\0";
    for (int i = 0; i < 2; i++) {
        vti_handshake b;
        preamble[16] = (uint8_t)i;
        vti_handshake_start(&b, false, &key, &secret_b);
        vti_handshake_feed(&b, preamble, sizeof preamble);
        assert_int_equal(b.state, VTI_HANDSHAKE_FAILED);
        assert_string_equal(b.reason, "its public key is not a valid one");
    }
}

/* An initiator gets its own bytes back; `disguised`: changed to look like an answer. */
static vti_net_status reflect(const vti_net_key *key, bool disguised)
{
    vti_handshake a;
    vti_handshake_start(&a, true, key, &secret_a);
    for (int i = 0; i < 2 && a.output_bytes > 0; i++) {
        uint8_t bytes[sizeof a.output];
        size_t size = a.output_bytes;
        memcpy(bytes, a.output, size);
        a.output_bytes = 0;
        if (disguised && i == 0) bytes[6] ^= VTI_FEATURE_INITIATOR;
        vti_handshake_feed(&a, bytes, size);
    }
    assert_int_equal(a.state, VTI_HANDSHAKE_FAILED);
    return a.status;
}

static void reflected_handshake(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("sixteen bytes or more");
    assert_int_equal(reflect(NULL, false), VTI_NET_ERR_HANDSHAKE);
    assert_int_equal(reflect(&key, false), VTI_NET_ERR_HANDSHAKE);
    assert_int_equal(reflect(&key, true), VTI_NET_ERR_KEY);
}

/* --- records ------------------------------------------------------------------------------ */

typedef struct sealed {
    uint8_t bytes[VTI_RECORD_MAX];
    size_t size;
} sealed;

static const uint8_t record_key[32] = "records are sealed with this one";

static void seal(vti_record_sealer *sealer, sealed *record, const char *text)
{
    memcpy(record->bytes + VTI_RECORD_PREFIX_BYTES, text, strlen(text));
    record->size = vti_record_seal(sealer, record->bytes, strlen(text));
}

static void records_open_in_order(void **state)
{
    (void)state;
    static sealed records[3];
    vti_record_sealer sealer = { 0 };
    memcpy(sealer.key, record_key, 32);
    static const char *const texts[] = { "one", "two, a longer one", "3" };
    uint8_t stream[256];
    size_t size = 0, at = 0;
    for (int i = 0; i < 3; i++) {
        seal(&sealer, &records[i], texts[i]);
        memcpy(stream + size, records[i].bytes, records[i].size);
        size += records[i].size;
    }
    for (size_t piece = 1; piece < size; piece++) {
        vti_record_opener opener;
        assert_true(vti_record_opener_init(&opener, record_key));
        int opened = 0;
        for (at = 0; at < size;) {
            size_t plain, count = size - at < piece ? size - at : piece;
            at += vti_record_open(&opener, stream + at, count, &plain);
            assert_null(opener.reason);
            if (plain == 0) continue;
            assert_int_equal(plain, strlen(texts[opened]));
            assert_memory_equal(opener.body, texts[opened++], plain);
        }
        assert_int_equal(opened, 3);
        vti_record_opener_clear(&opener);
    }
}

static void expect_closed(const uint8_t *stream, size_t size, int good, const char *reason)
{
    vti_record_opener opener;
    assert_true(vti_record_opener_init(&opener, record_key));
    for (size_t at = 0, plain; at < size && !opener.reason;) {
        at += vti_record_open(&opener, stream + at, size - at, &plain);
        good -= plain > 0;
    }
    assert_non_null(opener.reason);
    assert_string_equal(opener.reason, reason);
    assert_int_equal(good, 0);
    vti_record_opener_clear(&opener);
}

static void changed_repeated_or_missing_records(void **state)
{
    (void)state;
    static const char forged[] = "an encrypted record was damaged or forged";
    static sealed one, two;
    vti_record_sealer sealer = { 0 };
    memcpy(sealer.key, record_key, 32);
    seal(&sealer, &one, "first");
    seal(&sealer, &two, "second");
    uint8_t stream[256];
    for (size_t bit = 8 * VTI_RECORD_PREFIX_BYTES; bit < 8 * one.size; bit++) {
        memcpy(stream, one.bytes, one.size);
        stream[bit / 8] ^= (uint8_t)(1u << bit % 8);
        expect_closed(stream, one.size, 0, forged);
    }
    memcpy(stream, one.bytes, one.size); /* a shorter length: the tag is in another place */
    stream[0]--;
    expect_closed(stream, one.size, 0, forged);
    memcpy(stream, one.bytes, one.size);
    memcpy(stream + one.size, one.bytes, one.size);
    expect_closed(stream, 2 * one.size, 1, forged);       /* repeated */
    expect_closed(two.bytes, two.size, 0, forged);        /* the first left out */
    expect_closed(BYTES_OF("\x10\0\0\0"), 0, "an encrypted record has an impossible length");
    expect_closed(BYTES_OF("\xff\xff\xff\xff"), 0, "an encrypted record has an impossible length");
    expect_closed(BYTES_OF("\x41\0\x01\0"), 0, "an encrypted record has an impossible length");
}

/* --- the whole receiving side ------------------------------------------------------------- */

static const char *admit_small(void *user, const vti_frame_header *header)
{
    (void)user;
    return header->message_bytes > 100 ? "larger than what was agreed" : NULL;
}

/* Two channels after their handshake. */
static void join(vti_channel *a, vti_channel *b, const vti_net_key *key)
{
    vti_channel_start(a, true, key, &secret_a, admit_small, NULL);
    vti_channel_start(b, false, key, &secret_b, admit_small, NULL);
    for (int i = 0; i < 4; i++) {
        vti_channel *from = i % 2 ? b : a, *to = i % 2 ? a : b;
        size_t used, size = from->handshake.output_bytes;
        vti_frame_message message;
        from->handshake.output_bytes = 0;
        vti_channel_feed(to, from->handshake.output, size, &used, &message);
        assert_int_equal(used, size);
    }
    assert_true(a->ready);
    assert_true(b->ready);
}

/* One frame as `from` would send it. */
static size_t frame(vti_channel *from, uint8_t *wire, uint8_t type, const char *text)
{
    vti_frame_header header = { .type = type };
    size_t begin = from->keyed ? VTI_RECORD_PREFIX_BYTES : 0, bytes = strlen(text);
    vti_frame_set_chunk(&header, (uint32_t)bytes, 0);
    vti_frame_encode(wire + begin, &header);
    memcpy(wire + begin + VTI_FRAME_HEADER_BYTES, text, bytes);
    bytes += VTI_FRAME_HEADER_BYTES;
    return from->keyed ? vti_record_seal(&from->sealer, wire, bytes) : bytes;
}

static void messages_through_channels(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("sixteen bytes or more");
    for (int keyed = 0; keyed < 2; keyed++) {
        vti_channel a, b;
        static uint8_t wire[1024];
        join(&a, &b, keyed ? &key : NULL);
        size_t size = frame(&a, wire, VTI_FRAME_HELLO, "tablet");
        size += frame(&a, wire + size, VTI_FRAME_HEARTBEAT, "");
        size += frame(&a, wire + size, 20, "data");
        static const uint8_t types[] = { VTI_FRAME_HELLO, VTI_FRAME_HEARTBEAT, 20 };
        int got = 0;
        for (size_t at = 0, used; at < size; at += used) {
            vti_frame_message message;
            vti_channel_result result = vti_channel_feed(&b, wire + at, 1, &used, &message);
            if (result == VTI_CHANNEL_MORE) continue;
            assert_int_equal(result, VTI_CHANNEL_MESSAGE);
            assert_int_equal(message.header.type, types[got++]);
            free(message.payload);
        }
        assert_int_equal(got, 3);
        vti_channel_clear(&a);
        vti_channel_clear(&b);
    }
}

static void expect_refused(int keyed, uint8_t first, uint8_t second, const char *text,
                           vti_net_status status, const char *reason)
{
    vti_net_key key = test_net_key("sixteen bytes or more");
    vti_channel a, b;
    static uint8_t wire[2048];
    join(&a, &b, keyed ? &key : NULL);
    size_t size = first ? frame(&a, wire, first, "x") : 0, used;
    size += frame(&a, wire + size, second, text);
    vti_frame_message message;
    vti_channel_result result;
    for (size_t at = 0;; at += used) {
        result = vti_channel_feed(&b, wire + at, size - at, &used, &message);
        if (result != VTI_CHANNEL_MESSAGE) break;
        free(message.payload);
    }
    assert_int_equal(result, VTI_CHANNEL_FAILED);
    assert_int_equal(b.status, status);
    assert_string_equal(b.reason, reason);
    vti_channel_clear(&a);
    vti_channel_clear(&b);
}

static void refusals_of_the_channel(void **state)
{
    (void)state;
    static char large[300];
    memset(large, 'x', sizeof large - 1);
    for (int keyed = 0; keyed < 2; keyed++) {
        expect_refused(keyed, 0, 20, "early", VTI_NET_ERR_PROTOCOL,
                       "a message came before the HELLO");
        expect_refused(keyed, 0, VTI_FRAME_HEARTBEAT, "", VTI_NET_ERR_PROTOCOL,
                       "the first frame is not a HELLO");
        expect_refused(keyed, VTI_FRAME_HELLO, VTI_FRAME_HELLO, "again", VTI_NET_ERR_PROTOCOL,
                       "a second HELLO");
        expect_refused(keyed, VTI_FRAME_HELLO, 20, large, VTI_NET_ERR_PROTOCOL,
                       "larger than what was agreed");
        expect_refused(keyed, 0, VTI_FRAME_PADDING, "", VTI_NET_ERR_PROTOCOL,
                       "the first frame is not a HELLO");
        expect_refused(keyed, VTI_FRAME_HELLO, 8, "?", VTI_NET_ERR_PROTOCOL,
                       "a frame is malformed: unknown frame type");
    }
}

/* Without encryption of its own, a plain frame after a keyed handshake is not one of ours. */
static void plaintext_after_a_keyed_handshake(void **state)
{
    (void)state;
    vti_net_key key = test_net_key("sixteen bytes or more");
    vti_channel a, b, plain = { 0 };
    uint8_t wire[256];
    join(&a, &b, &key);
    size_t used, size = frame(&plain, wire, VTI_FRAME_HELLO, "stranger");
    vti_frame_message message;
    assert_int_equal(vti_channel_feed(&b, wire, size, &used, &message), VTI_CHANNEL_FAILED);
    assert_int_equal(b.status, VTI_NET_ERR_PROTOCOL);
    vti_channel_clear(&a);
    vti_channel_clear(&b);
}

int main(void)
{
    if (sodium_init() < 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_key),
        cmocka_unit_test(preamble_on_the_wire),
        cmocka_unit_test(with_the_same_key),
        cmocka_unit_test(keys_depend_on_everything),
        cmocka_unit_test(keys_follow_the_document),
        cmocka_unit_test(different_keys),
        cmocka_unit_test(only_one_side_has_a_key),
        cmocka_unit_test(versions_differ),
        cmocka_unit_test(strangers),
        cmocka_unit_test(tampered_handshake),
        cmocka_unit_test(small_order_public_key),
        cmocka_unit_test(reflected_handshake),
        cmocka_unit_test(records_open_in_order),
        cmocka_unit_test(changed_repeated_or_missing_records),
        cmocka_unit_test(messages_through_channels),
        cmocka_unit_test(refusals_of_the_channel),
        cmocka_unit_test(plaintext_after_a_keyed_handshake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
