/* Outgoing connections: name, addresses in turn, TCP. */
#include "state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The time that is left is shared among the addresses that are left. */
static void start_attempt_timer(vti_peer *peer)
{
    uint64_t now = vti_net_now_ns();
    uint64_t left = peer->deadline_ns > now ? peer->deadline_ns - now : 0;
    size_t attempts = 1 + peer->target_count - peer->target_next;
    vti_peer_timer(peer, left / attempts / 1000000u);
}

static void connected(vti_peer *peer)
{
    uint64_t now = vti_net_now_ns();
    vti_peer_timer(peer, peer->deadline_ns > now ? (peer->deadline_ns - now) / 1000000u : 0);
    vti_stream_start(peer);
}

/* What the attempt ended with: 0 or an errno. */
static int attempt_error(vti_peer *peer)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(peer->link.fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
    return error;
}

static void attempt_failed(vti_peer *peer, int error)
{
    vti_peer_drop_socket(peer);
    if (peer->target_next < peer->target_count)
        vti_dial_next(peer);
    else
        vti_peer_fail(peer, VTI_NET_ERR_UNREACHABLE, "%s", uv_strerror(-error));
}

static void on_writable(uv_poll_t *handle, int status, int events)
{
    (void)status, (void)events;
    vti_peer *peer = handle->data;
    int error = attempt_error(peer);
    if (error) {
        attempt_failed(peer, error);
        return;
    }
    connected(peer);
}

static int try_target(vti_peer *peer, const vti_socket_address *target)
{
    int fd = vti_socket_open(target->storage.ss_family);
    if (fd < 0) return -fd;
    vti_link_socket(&peer->link, fd);
    if (connect(fd, (const struct sockaddr *)&target->storage, target->bytes) != 0 &&
        errno != EINPROGRESS && errno != EINTR)
        return errno;
    if (!vti_peer_poll(peer)) return ENOMEM;
    return -uv_poll_start(&peer->poll->handle, UV_WRITABLE, on_writable);
}

/* Also called when the time for the last attempt is over. */
void vti_dial_next(vti_peer *peer)
{
    vti_peer_drop_socket(peer);
    if (peer->target_next >= peer->target_count) {
        vti_peer_fail(peer, VTI_NET_ERR_TIMEOUT, "no answer within %u ms", peer->timeout_ms);
        return;
    }
    const vti_socket_address *target = &peer->targets[peer->target_next++];
    start_attempt_timer(peer);
    int error = try_target(peer, target);
    if (error) attempt_failed(peer, error);
}

static void begin_connecting(vti_peer *peer)
{
    uv_mutex_lock(&peer->net->lock);
    peer->state = VTI_PEER_CONNECTING;
    uv_mutex_unlock(&peer->net->lock);
    vti_dial_next(peer);
}

static void take_addresses(vti_peer *peer, const struct addrinfo *list)
{
    for (; list && peer->target_count < VTI_ADDRESSES_MAX; list = list->ai_next) {
        if (list->ai_family != AF_INET && list->ai_family != AF_INET6) continue;
        vti_socket_address *target = &peer->targets[peer->target_count++];
        memcpy(&target->storage, list->ai_addr, list->ai_addrlen);
        target->bytes = list->ai_addrlen;
    }
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    vti_peer *peer = request->data;
    peer->resolving = false;
    if (peer->state == VTI_PEER_RESOLVING) {
        take_addresses(peer, list);
        if (peer->target_count > 0)
            begin_connecting(peer);
        else
            vti_peer_fail(peer, VTI_NET_ERR_UNREACHABLE, "the name \"%s\" is not known: %s",
                          peer->host, status ? uv_strerror(status) : "it has no IP address");
    } else {
        vti_peer_gone(peer);
    }
    uv_freeaddrinfo(list);
}

static void resolve(vti_peer *peer)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    char service[8];
    snprintf(service, sizeof service, "%u", peer->port);
    peer->resolve.data = peer;
    uv_mutex_lock(&peer->net->lock);
    peer->state = VTI_PEER_RESOLVING;
    uv_mutex_unlock(&peer->net->lock);
    vti_peer_timer(peer, peer->timeout_ms);
    int error = uv_getaddrinfo(&peer->net->loop, &peer->resolve, on_resolved, peer->host, service,
                               &hints);
    peer->resolving = error == 0;
    if (error) vti_peer_fail(peer, VTI_NET_ERR_SYSTEM, "the name \"%s\" cannot be looked up: %s",
                             peer->host, uv_strerror(error));
}

void vti_dial_start(vti_peer *peer)
{
    if (!vti_address_numeric(peer->host, peer->port, &peer->targets[0])) {
        resolve(peer);
        return;
    }
    peer->target_count = 1;
    begin_connecting(peer);
}

vti_net_status vti_net_connect(vti_net *net, const char *address, uint32_t timeout_ms,
                               vti_net_peer *out, vti_net_error *err)
{
    char host[VTI_NET_ADDRESS_MAX];
    uint16_t port;
    vti_net_status status = vti_address_split(address, host, &port, err);
    if (status != VTI_NET_OK) return status;
    if (port == 0 || timeout_ms == 0)
        return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "address \"%s\": %s", address,
                            port == 0 ? "port 0 is only for listening" : "no time to connect");
    uv_mutex_lock(&net->lock);
    if (net->peer_count >= net->params.peers_max) {
        uv_mutex_unlock(&net->lock);
        return vti_net_fail(err, VTI_NET_ERR_FULL, "there are already %u connections",
                            net->params.peers_max);
    }
    vti_peer *peer = vti_peer_new(net, false);
    if (peer) {
        memcpy(peer->host, host, sizeof host);
        snprintf(peer->address, sizeof peer->address, "%s", address);
        peer->port = port;
        peer->timeout_ms = timeout_ms;
        peer->deadline_ns = vti_net_after_ms(timeout_ms);
        peer->attention = true;
        *out = peer->id;
        vti_loop_kick(net);
    }
    uv_mutex_unlock(&net->lock);
    return peer ? VTI_NET_OK : vti_net_fail(err, VTI_NET_ERR_MEMORY, "no memory for a connection");
}
