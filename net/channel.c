#include "channel.h"

#include "internal.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *admit_after_hello(void *user, const vti_frame_header *header)
{
    const vti_channel *channel = user;
    if (!channel->greeted) return "a message came before the HELLO";
    return channel->admit ? channel->admit(channel->user, header) : NULL;
}

void vti_channel_start(vti_channel *channel, bool initiator, const vti_net_key *key,
                       const vti_handshake_secret *secret, vti_frame_admit_fn *admit, void *user)
{
    *channel = (vti_channel){ .keyed = key != NULL, .admit = admit, .user = user };
    channel->parser.admit = admit_after_hello;
    channel->parser.user = channel;
    vti_handshake_start(&channel->handshake, initiator, key, secret);
}

void vti_channel_clear(vti_channel *channel)
{
    vti_handshake_clear(&channel->handshake);
    vti_record_opener_clear(&channel->opener);
    sodium_memzero(&channel->sealer, sizeof channel->sealer);
    vti_frame_parser_clear(&channel->parser);
}

static vti_channel_result fail(vti_channel *channel, vti_net_status status, const char *reason)
{
    channel->status = status;
    vti_text_clean(channel->reason, sizeof channel->reason, reason, strlen(reason));
    return VTI_CHANNEL_FAILED;
}

static vti_channel_result feed_handshake(vti_channel *channel, const uint8_t *bytes, size_t size,
                                         size_t *used)
{
    vti_handshake *handshake = &channel->handshake;
    *used = vti_handshake_feed(handshake, bytes, size);
    if (handshake->state == VTI_HANDSHAKE_FAILED)
        return fail(channel, handshake->status, handshake->reason);
    if (handshake->state != VTI_HANDSHAKE_DONE) return VTI_CHANNEL_MORE;
    if (channel->keyed) {
        memcpy(channel->sealer.key, handshake->send_key, sizeof channel->sealer.key);
        if (!vti_record_opener_init(&channel->opener, handshake->receive_key))
            return fail(channel, VTI_NET_ERR_MEMORY, "no memory for a record");
        sodium_memzero(handshake->send_key, sizeof handshake->send_key);
        sodium_memzero(handshake->receive_key, sizeof handshake->receive_key);
    }
    channel->ready = true;
    return VTI_CHANNEL_READY;
}

static vti_channel_result not_greeted(vti_channel *channel)
{
    return fail(channel, VTI_NET_ERR_PROTOCOL, "the first frame is not a HELLO");
}

static vti_channel_result take_message(vti_channel *channel, vti_frame_message *out)
{
    bool hello = out->header.type == VTI_FRAME_HELLO;
    bool ending = out->header.type == VTI_FRAME_GOODBYE || out->header.type == VTI_FRAME_ERROR;
    if (hello != channel->greeted || (ending && !channel->greeted)) {
        channel->greeted = channel->greeted || hello;
        return VTI_CHANNEL_MESSAGE;
    }
    free(out->payload);
    return hello ? fail(channel, VTI_NET_ERR_PROTOCOL, "a second HELLO") : not_greeted(channel);
}

static vti_channel_result feed_frames(vti_channel *channel, const uint8_t *bytes, size_t size,
                                      size_t *used, vti_frame_message *out)
{
    vti_frame_result result = vti_frame_feed(&channel->parser, bytes, size, used, out);
    if (channel->parser.padding_bytes > 0 && !channel->greeted) {
        if (result == VTI_FRAME_MESSAGE) free(out->payload);
        return not_greeted(channel);
    }
    if (result == VTI_FRAME_MORE) return VTI_CHANNEL_MORE;
    if (result == VTI_FRAME_MESSAGE) return take_message(channel, out);
    if (channel->parser.refused) return fail(channel, VTI_NET_ERR_PROTOCOL, channel->parser.reason);
    char reason[VTI_NET_TEXT_MAX];
    snprintf(reason, sizeof reason, "a frame is malformed: %s", channel->parser.reason);
    return fail(channel, VTI_NET_ERR_PROTOCOL, reason);
}

/* Plaintext of the last record first, then the next record. */
static vti_channel_result feed_records(vti_channel *channel, const uint8_t *bytes, size_t size,
                                       size_t *used, vti_frame_message *out)
{
    vti_record_opener *opener = &channel->opener;
    *used = 0;
    for (;;) {
        while (channel->plain_done_bytes < channel->plain_bytes) {
            size_t parsed;
            vti_channel_result result =
                feed_frames(channel, opener->body + channel->plain_done_bytes,
                            channel->plain_bytes - channel->plain_done_bytes, &parsed, out);
            channel->plain_done_bytes += parsed;
            if (result != VTI_CHANNEL_MORE) return result;
        }
        if (*used == size) return VTI_CHANNEL_MORE;
        *used += vti_record_open(opener, bytes + *used, size - *used, &channel->plain_bytes);
        channel->plain_done_bytes = 0;
        if (opener->reason) return fail(channel, VTI_NET_ERR_PROTOCOL, opener->reason);
    }
}

vti_channel_result vti_channel_feed(vti_channel *channel, const uint8_t *bytes, size_t size,
                                    size_t *used, vti_frame_message *out)
{
    *used = 0;
    if (channel->status != VTI_NET_OK) return VTI_CHANNEL_FAILED;
    if (!channel->ready) return feed_handshake(channel, bytes, size, used);
    return channel->keyed ? feed_records(channel, bytes, size, used, out)
                          : feed_frames(channel, bytes, size, used, out);
}
