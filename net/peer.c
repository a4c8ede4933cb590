/* The life of one connection, from the loop's point of view. */
#include "state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

vti_peer *vti_peer_new(vti_net *net, bool incoming)
{
    vti_peer *peer = calloc(1, sizeof *peer);
    if (!peer) return NULL;
    peer->net = net;
    peer->id = net->last_id + 1;
    peer->last_event = vti_event_new(peer, VTI_NET_PEER_DOWN);
    if (!peer->last_event) {
        free(peer);
        return NULL;
    }
    net->last_id++;
    peer->incoming = incoming;
    peer->link.fd = -1;
    peer->sender.link = &peer->link;
    vti_quality_init(&peer->sender.meter.quality, NULL, VTI_RSSI_UNKNOWN);
    peer->next = net->peers;
    net->peers = peer;
    net->peer_count++;
    return peer;
}

vti_peer *vti_peer_find(vti_net *net, vti_net_peer id)
{
    for (vti_peer *peer = net->peers; peer; peer = peer->next)
        if (peer->id == id) return peer->state <= VTI_PEER_UP && !peer->leaving ? peer : NULL;
    return NULL;
}

static void open_timer(vti_peer *peer)
{
    if (peer->timer_open) return;
    uv_timer_init(&peer->net->loop, &peer->timer);
    peer->timer.data = peer;
    peer->timer_open = true;
}

static void on_timer(uv_timer_t *timer)
{
    vti_peer *peer = timer->data;
    switch (peer->state) {
    case VTI_PEER_RESOLVING:
        vti_peer_fail(peer, VTI_NET_ERR_TIMEOUT, "the name could not be looked up within %u ms",
                      peer->timeout_ms);
        break;
    case VTI_PEER_CONNECTING: vti_dial_next(peer); break;
    case VTI_PEER_HANDSHAKE:
        if (peer->incoming)
            vti_peer_fail(peer, VTI_NET_ERR_TIMEOUT, "it did not say what it is within %u ms",
                          peer->timeout_ms);
        else
            vti_peer_fail(peer, VTI_NET_ERR_TIMEOUT, "something accepts connections there but did "
                          "not answer as Voltron within %u ms", peer->timeout_ms);
        break;
    case VTI_PEER_LINGER: vti_peer_close(peer); break;
    case VTI_PEER_NEW:
    case VTI_PEER_UP:
    case VTI_PEER_CLOSING: break;
    }
}

void vti_peer_timer(vti_peer *peer, uint64_t ms)
{
    open_timer(peer);
    uv_update_time(&peer->net->loop);
    uv_timer_start(&peer->timer, on_timer, ms, 0);
}

static void free_poll(uv_handle_t *handle) { free(handle); }

bool vti_peer_poll(vti_peer *peer)
{
    vti_poll *poll = calloc(1, sizeof *poll);
    if (!poll) return false;
    if (uv_poll_init(&peer->net->loop, &poll->handle, peer->link.fd) != 0) {
        free(poll);
        return false;
    }
    poll->handle.data = peer;
    peer->poll = poll;
    return true;
}

void vti_peer_drop_socket(vti_peer *peer)
{
    if (peer->poll) uv_close((uv_handle_t *)&peer->poll->handle, free_poll);
    peer->poll = NULL;
    if (peer->link.fd >= 0) close(peer->link.fd);
    peer->link.fd = -1;
}

static void push_last_event(vti_peer *peer, vti_net_status status, const char *reason)
{
    vti_event *event = peer->last_event;
    peer->last_event = NULL;
    if (!event) return;
    if (peer->leaving) {
        free(event);
        return;
    }
    bool rejected = peer->incoming && !peer->announced;
    event->event.type = rejected ? VTI_NET_PEER_REJECTED : VTI_NET_PEER_DOWN;
    if (rejected) event->event.peer = 0;
    event->event.incoming = peer->incoming;
    event->event.status = status;
    memcpy(event->event.address, peer->address, sizeof peer->address);
    vti_text_clean(event->event.reason, sizeof event->event.reason, reason, strlen(reason));
    vti_event_push(peer->net, event);
}

/* Whether the other side is there and should be told why. */
static bool worth_telling(const vti_peer *peer, vti_net_status status)
{
    switch (status) {
    case VTI_NET_ERR_PROTOCOL:
    case VTI_NET_ERR_MEMORY: return peer->channel.ready;
    case VTI_NET_ERR_HANDSHAKE:
    case VTI_NET_ERR_KEY: return !vti_sender_idle(&peer->sender) || peer->sender.sent_bytes > 0;
    default: return false;
    }
}

void vti_peer_fail(vti_peer *peer, vti_net_status status, const char *format, ...)
{
    if (peer->state >= VTI_PEER_LINGER) return;
    char reason[VTI_NET_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    uv_mutex_lock(&peer->net->lock);
    push_last_event(peer, status, reason);
    uv_mutex_unlock(&peer->net->lock);
    if (worth_telling(peer, status))
        vti_peer_linger(peer, peer->channel.ready ? VTI_FRAME_ERROR : 0, reason);
    else
        vti_peer_close(peer);
}

void vti_peer_linger(vti_peer *peer, uint8_t type, const char *text)
{
    if (peer->state >= VTI_PEER_LINGER) return;
    if (peer->state < VTI_PEER_HANDSHAKE) {
        vti_peer_close(peer);
        return;
    }
    vti_out *done = NULL;
    uv_mutex_lock(&peer->net->lock);
    peer->state = VTI_PEER_LINGER;
    if (!peer->sender.farewell && type) vti_sender_leave(&peer->sender, type, text, &done);
    if (!peer->sender.farewell) peer->sender.finished = true;
    uv_mutex_unlock(&peer->net->lock);
    vti_out_release(done);
    vti_peer_timer(peer, VTI_LINGER_MS);
    vti_stream_flush(peer);
}

static void free_peer(vti_peer *peer)
{
    vti_net *net = peer->net;
    uv_mutex_lock(&net->lock);
    vti_peer **link = &net->peers;
    while (*link != peer) link = &(*link)->next;
    *link = peer->next;
    vti_loop_changed(net);
    uv_mutex_unlock(&net->lock);
    free(peer->last_event);
    free(peer);
}

static void on_timer_closed(uv_handle_t *handle)
{
    vti_peer *peer = handle->data;
    peer->timer_open = false;
    vti_peer_gone(peer);
}

void vti_peer_gone(vti_peer *peer)
{
    if (peer->state == VTI_PEER_CLOSING && !peer->timer_open && !peer->resolving) free_peer(peer);
}

void vti_peer_close(vti_peer *peer)
{
    if (peer->state == VTI_PEER_CLOSING) return;
    vti_out *done = NULL;
    uv_mutex_lock(&peer->net->lock);
    peer->state = VTI_PEER_CLOSING;
    peer->net->peer_count--;
    vti_sender_clear(&peer->sender, &done);
    vti_peer_drop_socket(peer);
    vti_loop_changed(peer->net);
    uv_mutex_unlock(&peer->net->lock);
    vti_out_release(done);
    vti_channel_clear(&peer->channel);
    if (peer->resolving) uv_cancel((uv_req_t *)&peer->resolve);
    open_timer(peer);
    uv_close((uv_handle_t *)&peer->timer, on_timer_closed);
}

void vti_peer_attend(vti_peer *peer)
{
    uv_mutex_lock(&peer->net->lock);
    bool leaving = peer->leaving;
    uv_mutex_unlock(&peer->net->lock);
    if (leaving)
        vti_peer_linger(peer, peer->channel.ready ? VTI_FRAME_GOODBYE : 0, "");
    else if (peer->state == VTI_PEER_NEW)
        vti_dial_start(peer);
    if (peer->state == VTI_PEER_UP || peer->state == VTI_PEER_LINGER) vti_stream_flush(peer);
}

/* Lock held. Every second sign of life is a PING, so that the round trip stays known. */
static void give_sign(vti_peer *peer)
{
    vti_sender *sender = &peer->sender;
    if (peer->ticks++ % 2 == 0 && !sender->meter.waiting && !peer->probing)
        sender->ping_due = true;
    else
        sender->heartbeat_due = true;
    peer->padding_bytes = peer->channel.parser.padding_bytes;
}

static void tick(vti_peer *peer)
{
    const vti_net_params *params = &peer->net->params;
    if (peer->state != VTI_PEER_UP) return;
    uv_mutex_lock(&peer->net->lock);
    bool listening = !peer->paused;
    give_sign(peer);
    uv_mutex_unlock(&peer->net->lock);
    peer->missed = listening && !peer->heard ? peer->missed + 1 : 0;
    peer->heard = false;
    if (peer->missed >= params->heartbeat_misses) {
        vti_peer_fail(peer, VTI_NET_ERR_LOST, "no sign of life for %u ms",
                      peer->missed * params->heartbeat_ms);
        return;
    }
    vti_stream_flush(peer);
}

void vti_peer_tick(uv_timer_t *timer)
{
    vti_net *net = timer->data;
    uv_mutex_lock(&net->lock);
    vti_listener *listener = net->listeners;
    vti_peer *peer = net->peers;
    uv_mutex_unlock(&net->lock);
    for (; listener; listener = listener->next)
        if (listener->paused) vti_listener_attend(listener);
    for (; peer; peer = peer->next) tick(peer);
}
