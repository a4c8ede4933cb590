#include "state.h"

#include <stdlib.h>

vti_event *vti_event_new(vti_peer *peer, vti_net_event_type type)
{
    vti_event *event = calloc(1, sizeof *event);
    if (!event) return NULL;
    event->event.type = type;
    event->event.peer = peer->id;
    return event;
}

static void append(vti_net *net, vti_event *event)
{
    event->next = NULL;
    if (net->last_event)
        net->last_event->next = event;
    else
        net->first_event = event;
    net->last_event = event;
    net->event_count++;
}

void vti_event_push(vti_net *net, vti_event *event)
{
    bool rejection = event->event.type == VTI_NET_PEER_REJECTED;
    if (net->closing || (rejection && net->rejections >= VTI_REJECTIONS_MAX)) {
        vti_net_event_clear(&event->event);
        free(event);
        return;
    }
    net->rejections += rejection;
    append(net, event);
    vti_loop_changed(net);
}

/* What a queued message costs. */
static size_t message_cost(const vti_net_event *event)
{
    return sizeof(vti_event) + event->header.message_bytes;
}

/* The caller took a message: its peer may be read from again once half the limit is free. */
static void give_credit(vti_net *net, const vti_net_event *event)
{
    vti_peer *peer = vti_peer_find(net, event->peer);
    if (!peer) return;
    peer->waiting_bytes -= message_cost(event);
    if (!peer->paused || peer->waiting_bytes > net->params.receive_limit_bytes / 2) return;
    peer->paused = false;
    peer->attention = true;
    vti_loop_kick(net);
}

bool vti_event_pop(vti_net *net, vti_net_event *out)
{
    vti_event *event = net->first_event;
    if (!event) return false;
    net->first_event = event->next;
    if (!net->first_event) net->last_event = NULL;
    net->event_count--;
    *out = event->event;
    free(event);
    if (out->type == VTI_NET_MESSAGE) give_credit(net, out);
    if (out->type == VTI_NET_PEER_REJECTED) net->rejections--;
    return true;
}

bool vti_event_push_message(vti_peer *peer, vti_frame_message *message)
{
    vti_event *event = vti_event_new(peer, VTI_NET_MESSAGE);
    if (!event) return false;
    event->event.header = message->header;
    event->event.payload = message->payload;
    peer->waiting_bytes += message_cost(&event->event);
    peer->received_messages++;
    if (peer->waiting_bytes > peer->net->params.receive_limit_bytes) peer->paused = true;
    vti_event_push(peer->net, event);
    return true;
}

void vti_event_purge(vti_net *net, vti_net_peer id)
{
    vti_event *event = net->first_event;
    net->first_event = net->last_event = NULL;
    net->event_count = 0;
    while (event) {
        vti_event *next = event->next;
        if (id == 0 || event->event.peer == id) {
            vti_net_event_clear(&event->event);
            free(event);
        } else {
            append(net, event);
        }
        event = next;
    }
}

void vti_net_event_clear(vti_net_event *event)
{
    free(event->payload);
    event->payload = NULL;
}
