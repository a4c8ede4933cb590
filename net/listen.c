/* Incoming connections. */
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 128
#define ACCEPTS_PER_ROUND 16

static void reject(vti_net *net, const vti_socket_address *from)
{
    vti_event *event = calloc(1, sizeof *event);
    if (!event) return;
    event->event.type = VTI_NET_PEER_REJECTED;
    event->event.incoming = true;
    event->event.status = VTI_NET_ERR_FULL;
    vti_address_format(from, event->event.address);
    strcpy(event->event.reason, "there are too many connections already");
    vti_event_push(net, event);
}

/* The incoming connection that has been unproven for the longest time, if there are too many. */
static vti_peer *surplus(const vti_net *net)
{
    vti_peer *oldest = NULL;
    uint32_t count = 0;
    for (vti_peer *peer = net->peers; peer; peer = peer->next) {
        if (!peer->incoming || peer->announced || peer->state == VTI_PEER_CLOSING) continue;
        if (!oldest || peer->id < oldest->id) oldest = peer;
        count++;
    }
    return count >= net->params.handshakes_max ? oldest : NULL;
}

static void make_room(vti_net *net)
{
    uv_mutex_lock(&net->lock);
    vti_peer *oldest = surplus(net);
    uv_mutex_unlock(&net->lock);
    if (!oldest) return;
    vti_peer_fail(oldest, VTI_NET_ERR_FULL, "it had to make room: more than %u connections had not "
                  "said what they are", net->params.handshakes_max);
    vti_peer_close(oldest);
}

static void welcome(vti_net *net, int fd, const vti_socket_address *from)
{
    make_room(net);
    uv_mutex_lock(&net->lock);
    vti_peer *peer = NULL;
    if (net->peer_count < net->params.peers_max && net->event_count < VTI_EVENTS_MAX)
        peer = vti_peer_new(net, true);
    if (!peer) reject(net, from);
    if (peer) peer->state = VTI_PEER_HANDSHAKE;
    uv_mutex_unlock(&net->lock);
    if (!peer) {
        close(fd);
        return;
    }
    vti_link_socket(&peer->link, fd);
    vti_address_format(from, peer->address);
    peer->timeout_ms = net->params.handshake_timeout_ms;
    vti_peer_timer(peer, peer->timeout_ms);
    vti_stream_start(peer);
}

static void on_connection(uv_poll_t *handle, int status, int events)
{
    (void)status, (void)events;
    vti_listener *listener = handle->data;
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        vti_socket_address from = { .bytes = sizeof from.storage };
        int fd = vti_socket_accept(listener->fd, &from.storage, &from.bytes);
        if (fd == -EAGAIN) return;
        if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM) {
            uv_poll_stop(&listener->handle);
            listener->paused = true;
            return;
        }
        if (fd >= 0) welcome(listener->net, fd, &from);
    }
}

void vti_listener_attend(vti_listener *listener)
{
    if (!listener->open) {
        if (uv_poll_init(&listener->net->loop, &listener->handle, listener->fd) != 0) return;
        listener->handle.data = listener;
        listener->open = true;
    }
    listener->paused = uv_poll_start(&listener->handle, UV_READABLE, on_connection) != 0;
}

static void on_listener_closed(uv_handle_t *handle)
{
    vti_listener *listener = handle->data;
    vti_net *net = listener->net;
    uv_mutex_lock(&net->lock);
    vti_listener **link = &net->listeners;
    while (*link != listener) link = &(*link)->next;
    *link = listener->next;
    uv_mutex_unlock(&net->lock);
    free(listener);
}

void vti_listener_close(vti_listener *listener)
{
    if (!listener->open) {
        uv_poll_init(&listener->net->loop, &listener->handle, listener->fd);
        listener->handle.data = listener;
    }
    uv_close((uv_handle_t *)&listener->handle, on_listener_closed);
    close(listener->fd);
}

/* The address to bind, checked against what may be reached without a key. */
static vti_net_status listen_address(const vti_net *net, const char *address,
                                     vti_socket_address *out, vti_net_error *err)
{
    char host[VTI_NET_ADDRESS_MAX];
    uint16_t port;
    vti_net_status status = vti_address_split(address, host, &port, err);
    if (status != VTI_NET_OK) return status;
    const char *number = host;
    if (strcmp(host, "localhost") == 0) number = "127.0.0.1";
    if (strcmp(host, "*") == 0) number = "0.0.0.0";
    if (!vti_address_numeric(number, port, out))
        return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "cannot listen on \"%s\": write an IP "
                            "address of this machine, \"localhost\" or \"*\" before the port",
                            address);
    if (!net->params.key && !vti_address_is_loopback(out))
        return vti_net_fail(err, VTI_NET_ERR_KEY, "cannot listen on \"%s\" without a cluster key: "
                            "other machines could reach it; give every device the same key with "
                            "--key FILE, or listen on 127.0.0.1", address);
    return VTI_NET_OK;
}

static int bind_and_listen(int fd, const vti_socket_address *address)
{
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->storage.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&address->storage, address->bytes) != 0) return errno;
    return listen(fd, BACKLOG) != 0 ? errno : 0;
}

static bool add_listener(vti_net *net, int fd)
{
    vti_listener *listener = calloc(1, sizeof *listener);
    if (!listener) return false;
    listener->net = net;
    listener->fd = fd;
    uv_mutex_lock(&net->lock);
    listener->next = net->listeners;
    net->listeners = listener;
    vti_loop_kick(net);
    uv_mutex_unlock(&net->lock);
    return true;
}

vti_net_status vti_net_listen(vti_net *net, const char *address, char bound[VTI_NET_ADDRESS_MAX],
                              vti_net_error *err)
{
    vti_socket_address where;
    vti_net_status status = listen_address(net, address, &where, err);
    if (status != VTI_NET_OK) return status;
    int fd = vti_socket_open(where.storage.ss_family);
    int error = fd < 0 ? -fd : bind_and_listen(fd, &where);
    if (error) {
        if (fd >= 0) close(fd);
        return vti_net_fail(err, VTI_NET_ERR_ADDRESS, "cannot listen on \"%s\": %s", address,
                            uv_strerror(-error));
    }
    where.bytes = sizeof where.storage;
    getsockname(fd, (struct sockaddr *)&where.storage, &where.bytes);
    if (bound) vti_address_format(&where, bound);
    if (add_listener(net, fd)) return VTI_NET_OK;
    close(fd);
    return vti_net_fail(err, VTI_NET_ERR_MEMORY, "no memory to listen on \"%s\"", address);
}
