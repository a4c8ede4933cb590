#include "sender.h"

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

static void begin_own_frame(vti_sender *sender, uint8_t type, const char *text)
{
    uint8_t *plain = plain_room(sender);
    size_t text_bytes = strlen(text);
    vti_frame_header header = { .type = type };
    vti_frame_set_chunk(&header, (uint32_t)text_bytes, 0);
    vti_frame_encode(plain, &header);
    memcpy(plain + VTI_FRAME_HEADER_BYTES, text, text_bytes);
    begin_wire(sender, VTI_FRAME_HEADER_BYTES + text_bytes);
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

static bool begin_frame(vti_sender *sender)
{
    if (sender->raw_bytes > 0) {
        memcpy(sender->own, sender->raw, sender->raw_bytes);
        sender->wire = sender->own;
        sender->wire_bytes = sender->raw_bytes;
        sender->raw_bytes = 0;
        sender->chunk_of = NULL;
        sender->chunk_bytes = 0;
        sender->done_bytes = 0;
        sender->busy = true;
    } else if (sender->finished) {
        return false;
    } else if (sender->hello) {
        begin_own_frame(sender, VTI_FRAME_HELLO, sender->hello);
        sender->hello = NULL;
    } else if (sender->farewell) {
        begin_own_frame(sender, sender->farewell, sender->farewell_text);
        sender->finished = true;
    } else if (sender->heartbeat_due) {
        begin_own_frame(sender, VTI_FRAME_HEARTBEAT, "");
        sender->heartbeat_due = false;
    } else if (sender->first) {
        begin_chunk(sender, sender->first);
    } else {
        return false;
    }
    return true;
}

/* Payload bytes of the frame under way that are not part of `wire`. */
static size_t loose_bytes(const vti_sender *sender)
{
    return sender->chunk_of && !sender->sealer ? sender->chunk_bytes : 0;
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
    size_t payload_done = done - sender->wire_bytes;
    if (loose_bytes(sender) > payload_done)
        count += payload_pieces(sender->chunk_of, sender->chunk_begin + payload_done,
                                loose_bytes(sender) - payload_done, pieces + count);
    return sender->link->send(sender->link, pieces, count);
}

static void finish_frame(vti_sender *sender, vti_out **done)
{
    vti_out *out = sender->chunk_of;
    sender->busy = false;
    sender->chunk_of = NULL;
    if (!out) return;
    sender->queued_bytes -= sender->chunk_bytes;
    if (!out->framed) return;
    sender->queued_bytes -= VTI_FRAME_HEADER_BYTES;
    sender->sent_messages++;
    pop_first(sender, done);
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
    bool due = sender->hello || sender->heartbeat_due || sender->farewell || sender->first;
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
