/* An open connection: bytes in from the link through the channel, bytes out through the sender. */
#include "bytes.h"
#include "state.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define READS_PER_ROUND 8
#define LAST_READS 256 /* more than a socket buffers */

static void on_ready(uv_poll_t *handle, int status, int events);

static const char *admit(void *user, const vti_frame_header *header)
{
    const vti_peer *peer = user;
    const vti_net_params *params = &peer->net->params;
    return params->admit ? params->admit(params->user, peer->id, header) : NULL;
}

static bool is_open(const vti_peer *peer)
{
    return peer->state >= VTI_PEER_HANDSHAKE && peer->state <= VTI_PEER_LINGER;
}

void vti_stream_update(vti_peer *peer)
{
    if (!is_open(peer)) return;
    uv_mutex_lock(&peer->net->lock);
    int events = peer->sender.blocked ? UV_WRITABLE : 0;
    if (!peer->paused || peer->state == VTI_PEER_LINGER) events |= UV_READABLE;
    uv_mutex_unlock(&peer->net->lock);
    if (events == peer->poll->events) return;
    peer->poll->events = events;
    if (events)
        uv_poll_start(&peer->poll->handle, events, on_ready);
    else
        uv_poll_stop(&peer->poll->handle);
}

/* Handshake output goes ahead of everything else. */
static void queue_handshake(vti_peer *peer)
{
    vti_handshake *handshake = &peer->channel.handshake;
    vti_sender *sender = &peer->sender;
    if (handshake->output_bytes == 0) return;
    uv_mutex_lock(&peer->net->lock);
    if (sender->raw_bytes + handshake->output_bytes <= sizeof sender->raw) {
        memcpy(sender->raw + sender->raw_bytes, handshake->output, handshake->output_bytes);
        sender->raw_bytes += handshake->output_bytes;
    }
    uv_mutex_unlock(&peer->net->lock);
    handshake->output_bytes = 0;
}

static void greet(vti_peer *peer)
{
    bool memory = true;
    uv_mutex_lock(&peer->net->lock);
    if (peer->channel.keyed) memory = vti_sender_encrypt(&peer->sender, &peer->channel.sealer);
    peer->sender.hello = peer->net->name;
    uv_mutex_unlock(&peer->net->lock);
    if (!memory) vti_peer_fail(peer, VTI_NET_ERR_MEMORY, "no memory for a connection");
}

static void out_of_memory(vti_peer *peer)
{
    vti_peer_fail(peer, VTI_NET_ERR_MEMORY, "no memory for what it sent");
}

static void come_up(vti_peer *peer, const vti_frame_message *hello)
{
    uv_timer_stop(&peer->timer);
    uv_mutex_lock(&peer->net->lock);
    vti_event *event = vti_event_new(peer, VTI_NET_PEER_UP);
    if (event && !peer->leaving) {
        event->event.incoming = peer->incoming;
        memcpy(event->event.address, peer->address, sizeof peer->address);
        vti_text_clean(event->event.name, sizeof event->event.name, hello->payload,
                       hello->header.message_bytes);
        peer->announced = true;
        peer->state = VTI_PEER_UP;
        peer->heard = true;
        vti_event_push(peer->net, event);
        uv_mutex_unlock(&peer->net->lock);
        return;
    }
    uv_mutex_unlock(&peer->net->lock);
    free(event);
    if (!event) out_of_memory(peer);
}

static void deliver(vti_peer *peer, vti_frame_message *message)
{
    uv_mutex_lock(&peer->net->lock);
    bool memory = true;
    if (peer->leaving)
        free(message->payload);
    else
        memory = vti_event_push_message(peer, message);
    uv_mutex_unlock(&peer->net->lock);
    if (memory) return;
    free(message->payload);
    out_of_memory(peer);
}

/* The other side said farewell. */
static void depart(vti_peer *peer, const vti_frame_message *message)
{
    char text[VTI_NET_TEXT_MAX];
    vti_text_clean(text, sizeof text, message->payload, message->header.message_bytes);
    if (message->header.type == VTI_FRAME_ERROR)
        vti_peer_fail(peer, VTI_NET_ERR_REMOTE, "%s", text[0] ? text : "it gave no reason");
    else
        vti_peer_fail(peer, VTI_NET_OK, "%s", text[0] ? text : "it said goodbye");
}

static void take_ping(vti_peer *peer, const vti_frame_message *message)
{
    uv_mutex_lock(&peer->net->lock);
    vti_sender_answer(&peer->sender, message->payload);
    uv_mutex_unlock(&peer->net->lock);
    peer->answer_due = true;
}

static void take_pong(vti_peer *peer, const vti_frame_message *message)
{
    vti_meter *meter = &peer->sender.meter;
    uv_mutex_lock(&peer->net->lock);
    vti_meter_pong(meter, get_u64(message->payload), vti_net_now_ns());
    if (vti_meter_wants_ping(meter)) peer->answer_due = true;
    vti_loop_changed(peer->net);
    uv_mutex_unlock(&peer->net->lock);
}

static void take_message(vti_peer *peer, vti_frame_message *message)
{
    switch (message->header.type) {
    case VTI_FRAME_HELLO: come_up(peer, message); break;
    case VTI_FRAME_HEARTBEAT: break;
    case VTI_FRAME_PING: take_ping(peer, message); break;
    case VTI_FRAME_PONG: take_pong(peer, message); break;
    case VTI_FRAME_GOODBYE:
    case VTI_FRAME_ERROR: depart(peer, message); break;
    default: deliver(peer, message); return;
    }
    free(message->payload);
}

/* Feeds what was read to the channel; stops when the connection ends by it. */
static void consume(vti_peer *peer, const uint8_t *bytes, size_t size)
{
    bool shaking = !peer->channel.ready;
    while (peer->state == VTI_PEER_HANDSHAKE || peer->state == VTI_PEER_UP) {
        vti_frame_message message;
        size_t used;
        vti_channel_result result = vti_channel_feed(&peer->channel, bytes, size, &used, &message);
        bytes += used;
        size -= used;
        queue_handshake(peer);
        if (result == VTI_CHANNEL_MORE) break;
        if (result == VTI_CHANNEL_READY)
            greet(peer);
        else if (result == VTI_CHANNEL_MESSAGE)
            take_message(peer, &message);
        else
            vti_peer_fail(peer, peer->channel.status, "%s", peer->channel.reason);
    }
    if (peer->channel.parser.padding_bytes - peer->padding_bytes > VTI_PADDING_MAX)
        vti_peer_fail(peer, VTI_NET_ERR_PROTOCOL, "it sends more padding than a probe needs");
    /* Not before everything is consumed: flushing may read what comes before a fault. */
    bool answer = peer->answer_due && peer->state == VTI_PEER_UP;
    peer->answer_due = false;
    if ((shaking || answer) && !peer->broken) vti_stream_flush(peer);
}

static void end_of_stream(vti_peer *peer, int error)
{
    if (peer->state == VTI_PEER_LINGER)
        vti_peer_close(peer);
    else if (peer->state == VTI_PEER_HANDSHAKE)
        vti_peer_fail(peer, VTI_NET_ERR_HANDSHAKE, "it closed the connection before it said what "
                      "it is");
    else
        vti_peer_fail(peer, VTI_NET_ERR_LOST, "the connection broke%s%s", error ? ": " : "",
                      error ? uv_strerror(-error) : " (its process ended, or it gave us up)");
}

/* One read. False: there is nothing more now, or the stream ended. */
static bool receive(vti_peer *peer)
{
    vti_net *net = peer->net;
    ssize_t count = peer->link.receive(&peer->link, net->scratch, VTI_READ_BYTES);
    if (count == -EAGAIN) return false;
    if (count <= 0) {
        end_of_stream(peer, (int)-count);
        return false;
    }
    uv_mutex_lock(&net->lock);
    peer->received_bytes += (uint64_t)count;
    uv_mutex_unlock(&net->lock);
    peer->heard = true;
    consume(peer, net->scratch, (size_t)count);
    return is_open(peer);
}

static bool is_paused(vti_peer *peer)
{
    uv_mutex_lock(&peer->net->lock);
    bool paused = peer->paused && peer->state == VTI_PEER_UP;
    uv_mutex_unlock(&peer->net->lock);
    return paused;
}

/* Reads for a while, but not so long that other peers would notice. A read that did not fill the
 * buffer emptied the socket: no need to ask once more. */
static void receive_round(vti_peer *peer)
{
    for (int reads = 0; reads < READS_PER_ROUND; reads++) {
        uint64_t before = peer->received_bytes;
        if (!receive(peer) || peer->received_bytes - before < VTI_READ_BYTES) return;
        if (is_paused(peer)) return;
    }
}

/* Sending failed, or the system reports an error. What the other side sent before that, perhaps
 * the reason, still counts. */
static void finish_reading(vti_peer *peer, int error)
{
    peer->broken = true;
    for (int reads = 0; reads < LAST_READS && is_open(peer) && receive(peer);) reads++;
    if (is_open(peer)) end_of_stream(peer, error);
}

void vti_stream_flush(vti_peer *peer)
{
    if (!is_open(peer)) return;
    vti_net *net = peer->net;
    vti_out *done = NULL;
    uv_mutex_lock(&net->lock);
    vti_sender_flush(&peer->sender, &done);
    int fault = peer->sender.fault;
    bool ended = peer->state == VTI_PEER_LINGER && vti_sender_idle(&peer->sender);
    vti_loop_changed(net);
    uv_mutex_unlock(&net->lock);
    vti_out_release(done);
    if (fault) {
        finish_reading(peer, fault);
        return;
    }
    if (ended && !peer->shut) {
        peer->shut = true;
        peer->link.finish(&peer->link);
    }
    vti_stream_update(peer);
}

static void on_ready(uv_poll_t *handle, int status, int events)
{
    vti_peer *peer = handle->data;
    if (status < 0) {
        int error = 0;
        socklen_t bytes = sizeof error;
        getsockopt(peer->link.fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        peer->poll->events = 0;
        finish_reading(peer, error);
        return;
    }
    if (events & UV_READABLE) receive_round(peer);
    if (events & UV_WRITABLE)
        vti_stream_flush(peer);
    else
        vti_stream_update(peer);
}

void vti_stream_start(vti_peer *peer)
{
    vti_handshake_secret secret;
    randombytes_buf(secret.bytes, sizeof secret.bytes);
    vti_channel_start(&peer->channel, !peer->incoming, peer->net->params.key, &secret, admit, peer);
    sodium_memzero(&secret, sizeof secret);
    uv_mutex_lock(&peer->net->lock);
    peer->state = VTI_PEER_HANDSHAKE;
    uv_mutex_unlock(&peer->net->lock);
    if (!peer->poll && !vti_peer_poll(peer)) {
        vti_peer_fail(peer, VTI_NET_ERR_MEMORY, "no memory for a connection");
        return;
    }
    uv_poll_stop(&peer->poll->handle);
    peer->poll->events = 0;
    queue_handshake(peer);
    vti_stream_flush(peer);
}
