/* The calls that act on a peer from any thread. */
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether the arguments make a message; its size in *bytes. */
static bool valid_message(const vti_frame_header *header, const vti_net_part *parts,
                          size_t part_count, size_t *bytes)
{
    if (header->type < VTI_FRAME_USER || part_count > VTI_NET_PARTS_MAX) return false;
    if (header->token_count > UINT32_MAX - header->token_begin) return false;
    *bytes = 0;
    for (size_t i = 0; i < part_count; i++) {
        if (parts[i].bytes > VTI_FRAME_MESSAGE_MAX - *bytes) return false;
        *bytes += parts[i].bytes;
    }
    return true;
}

static vti_out *new_message(const vti_frame_header *header, const vti_net_part *parts,
                            size_t part_count, size_t bytes)
{
    vti_out *out = calloc(1, sizeof *out);
    if (!out) return NULL;
    out->header = *header;
    if (part_count > 0) memcpy(out->parts, parts, part_count * sizeof *parts);
    out->part_count = part_count;
    out->message_bytes = (uint32_t)bytes;
    return out;
}

/* Lock held. Queues the message and sends what the link takes. */
static void start_sending(vti_peer *peer, vti_out *out, bool borrowed, vti_out **done)
{
    vti_sender *sender = &peer->sender;
    bool was_blocked = sender->blocked;
    vti_sender_push(sender, out);
    if (!was_blocked) vti_sender_flush(sender, done);
    bool gone = *done == out; /* the last one pushed is the last one done */
    if (!gone && !borrowed && !vti_out_copy(out)) sender->fault = ENOMEM;
    if (sender->fault || (sender->blocked && !was_blocked)) {
        peer->attention = true;
        vti_loop_kick(peer->net);
    }
}

static vti_net_status send_message(vti_net *net, vti_net_peer id, const vti_frame_header *header,
                                   const vti_net_part *parts, size_t part_count, bool borrowed,
                                   vti_net_release_fn *release, void *user)
{
    size_t bytes;
    if (!valid_message(header, parts, part_count, &bytes)) return VTI_NET_ERR_ARGUMENT;
    vti_out *out = new_message(header, parts, part_count, bytes), *done = NULL;
    if (!out) return VTI_NET_ERR_MEMORY;
    out->release = release;
    out->user = user;
    vti_net_status status = VTI_NET_OK;
    uv_mutex_lock(&net->lock);
    vti_peer *peer = vti_peer_find(net, id);
    if (!peer || peer->state != VTI_PEER_UP || peer->sender.fault)
        status = VTI_NET_ERR_GONE;
    else if (peer->sender.queued_bytes > 0 &&
             peer->sender.queued_bytes + bytes > net->params.send_limit_bytes)
        status = VTI_NET_ERR_FULL;
    else
        start_sending(peer, out, borrowed, &done);
    uv_mutex_unlock(&net->lock);
    if (status != VTI_NET_OK) free(out);
    vti_out_release(done);
    return status;
}

vti_net_status vti_net_send(vti_net *net, vti_net_peer peer, const vti_frame_header *header,
                            const vti_net_part *parts, size_t part_count)
{
    return send_message(net, peer, header, parts, part_count, false, NULL, NULL);
}

vti_net_status vti_net_send_borrowed(vti_net *net, vti_net_peer peer,
                                     const vti_frame_header *header, const vti_net_part *parts,
                                     size_t part_count, vti_net_release_fn *release, void *user)
{
    return send_message(net, peer, header, parts, part_count, true, release, user);
}

void vti_net_disconnect(vti_net *net, vti_net_peer id, const char *reason)
{
    vti_out *done = NULL;
    if (id == 0) return;
    uv_mutex_lock(&net->lock);
    vti_event_purge(net, id);
    vti_peer *peer = vti_peer_find(net, id);
    if (peer) {
        peer->leaving = peer->attention = true;
        if (peer->state == VTI_PEER_UP) {
            vti_sender_leave(&peer->sender, reason ? VTI_FRAME_ERROR : VTI_FRAME_GOODBYE,
                             reason ? reason : "", &done);
            if (!peer->sender.blocked) vti_sender_flush(&peer->sender, &done);
        }
        vti_loop_changed(net);
        vti_loop_kick(net);
    }
    uv_mutex_unlock(&net->lock);
    vti_out_release(done);
}

vti_net_status vti_net_get_stats(vti_net *net, vti_net_peer id, vti_net_peer_stats *out)
{
    uv_mutex_lock(&net->lock);
    const vti_peer *peer = vti_peer_find(net, id);
    bool up = peer && peer->state == VTI_PEER_UP;
    if (up)
        *out = (vti_net_peer_stats){
            .sent_bytes = peer->sender.sent_bytes,
            .received_bytes = peer->received_bytes,
            .sent_messages = peer->sender.sent_messages,
            .received_messages = peer->received_messages,
            .queued_bytes = peer->sender.queued_bytes,
        };
    uv_mutex_unlock(&net->lock);
    return up ? VTI_NET_OK : VTI_NET_ERR_GONE;
}
