#include "sender.h"

#include "bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool vti_sender_encrypt(vti_sender *sender, vti_record_sealer *sealer)
{
    sender->sealer = sealer;
    sender->sealed = malloc(VTI_RECORD_MAX);
    return sender->sealed != NULL;
}

void vti_sender_push(vti_sender *sender, vti_out *out)
{
    vti_meter_begin(&sender->meter, vti_net_now_ns(), false);
    out->next = NULL;
    if (sender->last)
        sender->last->next = out;
    else
        sender->first = out;
    sender->last = out;
    sender->queued_bytes += VTI_FRAME_HEADER_BYTES + out->message_bytes;
}

static void pop_first(vti_sender *sender, vti_out **done)
{
    vti_out *out = sender->first;
    sender->first = out->next;
    if (!sender->first) sender->last = NULL;
    out->next = *done;
    *done = out;
}

/* Up to `capacity` pieces of memory that hold bytes [begin, begin + bytes) of the payload. */
static int payload_pieces(const vti_out *out, size_t begin, size_t bytes, struct iovec *pieces)
{
    int count = 0;
    for (size_t i = 0; i < out->part_count && bytes > 0; i++) {
        const vti_net_part *part = &out->parts[i];
        if (begin >= part->bytes) {
            begin -= part->bytes;
            continue;
        }
        size_t here = part->bytes - begin < bytes ? part->bytes - begin : bytes;
        pieces[count++] = (struct iovec){ (uint8_t *)part->data + begin, here };
        begin = 0;
        bytes -= here;
    }
    return count;
}

static void copy_payload(uint8_t *to, const vti_out *out, size_t begin, size_t bytes)
{
    struct iovec pieces[VTI_NET_PARTS_MAX];
    int count = payload_pieces(out, begin, bytes, pieces);
    for (int i = 0; i < count; i++) {
        memcpy(to, pieces[i].iov_base, pieces[i].iov_len);
        to += pieces[i].iov_len;
    }
}

bool vti_out_copy(vti_out *out)
{
    uint8_t *copy = malloc(out->message_bytes ? out->message_bytes : 1);
    if (!copy) return false;
    copy_payload(copy, out, 0, out->message_bytes);
    out->copy = copy;
    out->parts[0] = (vti_net_part){ copy, out->message_bytes };
    out->part_count = 1;
    return true;
}

/* `plain_bytes` are in place; puts them on their way. */
static void begin_wire(vti_sender *sender, size_t plain_bytes)
{
    sender->wire = sender->sealer ? sender->sealed : sender->own;
    sender->wire_bytes =
        sender->sealer ? vti_record_seal(sender->sealer, sender->sealed, plain_bytes) : plain_bytes;
    sender->chunk_of = NULL;
    sender->chunk_bytes = 0;
    sender->done_bytes = 0;
    sender->busy = true;
}

static uint8_t *plain_room(vti_sender *sender)
{
    return sender->sealer ? sender->sealed + VTI_RECORD_PREFIX_BYTES : sender->own;
}

static void encode_own_header(vti_sender *sender, uint8_t type, size_t payload_bytes)
{
    vti_frame_header header = { .type = type };
    vti_frame_set_chunk(&header, (uint32_t)payload_bytes, 0);
    vti_frame_encode(plain_room(sender), &header);
}

static void begin_own_frame(vti_sender *sender, uint8_t type, const void *payload, size_t bytes)
{
    encode_own_header(sender, type, bytes);
    memcpy(plain_room(sender) + VTI_FRAME_HEADER_BYTES, payload, bytes);
    begin_wire(sender, VTI_FRAME_HEADER_BYTES + bytes);
}

static void begin_text(vti_sender *sender, uint8_t type, const char *text)
{
    begin_own_frame(sender, type, text, strlen(text));
}

static void begin_ping(vti_sender *sender)
{
    uint8_t number[VTI_FRAME_PING_BYTES];
    sender->ping_due = false;
    put_u64(number, vti_meter_ping(&sender->meter, vti_net_now_ns()));
    begin_own_frame(sender, VTI_FRAME_PING, number, sizeof number);
}

static const uint8_t zeros[VTI_FRAME_PADDING_MAX];

static void begin_padding(vti_sender *sender)
{
    uint32_t bytes = sender->padding_bytes < sizeof zeros ? sender->padding_bytes : sizeof zeros;
    sender->padding_bytes -= bytes;
    vti_meter_begin(&sender->meter, vti_net_now_ns(), true);
    if (sender->sealer) {
        begin_own_frame(sender, VTI_FRAME_PADDING, zeros, bytes);
    } else {
        encode_own_header(sender, VTI_FRAME_PADDING, bytes);
        begin_wire(sender, VTI_FRAME_HEADER_BYTES);
    }
    sender->chunk_begin = 0;
    sender->chunk_bytes = bytes;
}

static void begin_chunk(vti_sender *sender, vti_out *out)
{
    uint8_t *plain = plain_room(sender);
    vti_frame_set_chunk(&out->header, out->message_bytes, out->framed_bytes);
    vti_frame_encode(plain, &out->header);
    uint32_t bytes = out->header.chunk_bytes;
    if (sender->sealer) {
        copy_payload(plain + VTI_FRAME_HEADER_BYTES, out, out->framed_bytes, bytes);
        begin_wire(sender, VTI_FRAME_HEADER_BYTES + bytes);
    } else {
        begin_wire(sender, VTI_FRAME_HEADER_BYTES);
    }
    sender->chunk_of = out;
    sender->chunk_begin = out->framed_bytes;
    sender->chunk_bytes = bytes;
    out->framed_bytes += bytes;
    out->framed = out->framed_bytes == out->message_bytes;
}

static void begin_raw(vti_sender *sender)
{
    memcpy(sender->own, sender->raw, sender->raw_bytes);
    sender->wire = sender->own;
    sender->wire_bytes = sender->raw_bytes;
    sender->raw_bytes = 0;
    sender->chunk_of = NULL;
    sender->chunk_bytes = 0;
    sender->done_bytes = 0;
    sender->busy = true;
}

/* Net's own small frames that may go in front of everything else. */
static bool begin_sign(vti_sender *sender)
{
    if (sender->heartbeat_due) {
        sender->heartbeat_due = false;
        begin_text(sender, VTI_FRAME_HEARTBEAT, "");
    } else if (sender->pong_due) {
        sender->pong_due = false;
        begin_own_frame(sender, VTI_FRAME_PONG, sender->pong, sizeof sender->pong);
    } else if (sender->ping_due && sender->padding_bytes == 0) {
        begin_ping(sender);
    } else {
        return false;
    }
    return true;
}

/* In front of the last chunk of a message: whoever takes the whole message may then be busy, and
 * answer late. */
static bool is_ping_place(const vti_sender *sender)
{
    const vti_out *out = sender->first;
    bool last = !out || out->message_bytes - out->framed_bytes <= VTI_FRAME_CHUNK_MAX;
    return last && sender->padding_bytes == 0 && vti_meter_wants_ping(&sender->meter);
}

static bool begin_frame(vti_sender *sender)
{
    if (sender->raw_bytes > 0) {
        begin_raw(sender);
    } else if (sender->finished) {
        return false;
    } else if (sender->hello) {
        begin_text(sender, VTI_FRAME_HELLO, sender->hello);
        sender->hello = NULL;
    } else if (sender->farewell) {
        begin_text(sender, sender->farewell, sender->farewell_text);
        sender->finished = true;
    } else if (begin_sign(sender)) {
        return true;
    } else if (is_ping_place(sender)) {
        begin_ping(sender);
    } else if (sender->first) {
        begin_chunk(sender, sender->first);
    } else if (sender->padding_bytes > 0) {
        begin_padding(sender);
    } else {
        vti_meter_end(&sender->meter);
        return false;
    }
    return true;
}

/* Payload bytes of the frame under way that are not part of `wire`. */
static size_t loose_bytes(const vti_sender *sender)
{
    return sender->sealer ? 0 : sender->chunk_bytes;
}

/* Hands the rest of the frame under way to the link. */
static ssize_t send_rest(vti_sender *sender)
{
    struct iovec pieces[1 + VTI_NET_PARTS_MAX];
    int count = 0;
    size_t done = sender->done_bytes;
    if (done < sender->wire_bytes) {
        pieces[count++] = (struct iovec){ (uint8_t *)sender->wire + done,
                                          sender->wire_bytes - done };
        done = sender->wire_bytes;
    }
    size_t payload_done = done - sender->wire_bytes, left = loose_bytes(sender) - payload_done;
    if (left > 0 && sender->chunk_of)
        count += payload_pieces(sender->chunk_of, sender->chunk_begin + payload_done, left,
                                pieces + count);
    else if (left > 0)
        pieces[count++] = (struct iovec){ (uint8_t *)zeros, left };
    return sender->link->send(sender->link, pieces, count);
}

static void finish_frame(vti_sender *sender, vti_out **done)
{
    vti_out *out = sender->chunk_of;
    sender->busy = false;
    sender->chunk_of = NULL;
    vti_meter_sent(&sender->meter, sender->chunk_bytes);
    if (!out) return;
    sender->queued_bytes -= sender->chunk_bytes;
    if (!out->framed) return;
    sender->queued_bytes -= VTI_FRAME_HEADER_BYTES;
    sender->sent_messages++;
    pop_first(sender, done);
}

void vti_sender_probe(vti_sender *sender, uint32_t bytes)
{
    sender->padding_bytes = bytes;
    sender->ping_due = true;
}

void vti_sender_answer(vti_sender *sender, const uint8_t ping[VTI_FRAME_PING_BYTES])
{
    memcpy(sender->pong, ping, sizeof sender->pong);
    sender->pong_due = true;
}

void vti_sender_flush(vti_sender *sender, vti_out **done)
{
    sender->blocked = false;
    while (!sender->fault && (sender->busy || begin_frame(sender))) {
        ssize_t sent = send_rest(sender);
        if (sent == -EAGAIN) {
            sender->blocked = true;
            return;
        }
        if (sent < 0) {
            sender->fault = (int)-sent;
            return;
        }
        sender->sent_bytes += (uint64_t)sent;
        sender->done_bytes += (size_t)sent;
        if (sender->done_bytes == sender->wire_bytes + loose_bytes(sender))
            finish_frame(sender, done);
    }
}

void vti_sender_leave(vti_sender *sender, uint8_t type, const char *text, vti_out **done)
{
    vti_out *under_way = sender->chunk_of;
    while (sender->first && sender->first != under_way) pop_first(sender, done);
    if (under_way) {
        vti_out *rest = under_way->next;
        while (rest) {
            vti_out *next = rest->next;
            rest->next = *done;
            *done = rest;
            rest = next;
        }
        under_way->next = NULL;
        under_way->framed = true;
        sender->last = under_way;
    }
    sender->queued_bytes = under_way ? VTI_FRAME_HEADER_BYTES + sender->chunk_bytes : 0;
    sender->farewell = type;
    size_t bytes = strnlen(text, VTI_FRAME_TEXT_MAX);
    memcpy(sender->farewell_text, text, bytes);
    sender->farewell_text[bytes] = '\0';
}

bool vti_sender_idle(const vti_sender *sender)
{
    bool due = sender->hello || sender->heartbeat_due || sender->ping_due || sender->pong_due ||
               sender->farewell || sender->first || sender->padding_bytes > 0;
    return !sender->busy && sender->raw_bytes == 0 && (sender->finished || !due);
}

void vti_sender_clear(vti_sender *sender, vti_out **done)
{
    while (sender->first) pop_first(sender, done);
    free(sender->sealed);
    *sender = (vti_sender){ .fault = EPIPE };
}

void vti_out_release(vti_out *done)
{
    while (done) {
        vti_out *next = done->next;
        if (done->release) done->release(done->user);
        free(done->copy);
        free(done);
        done = next;
    }
}
