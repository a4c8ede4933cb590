#include "net_shaper.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE_BYTES 2048u
#define PIECES 64u /* on their way; more is not read, and TCP waits */

typedef struct piece {
    uint64_t due_ns;
    size_t bytes, done;
    uint8_t data[PIECE_BYTES];
} piece;

typedef struct direction {
    int from, to;
    uint64_t free_ns; /* when the last piece has gone out */
    piece pieces[PIECES];
    unsigned first, count;
    bool ended;
} direction;

struct net_shaper {
    int listener;
    char target[VTI_NET_ADDRESS_MAX];
    uint64_t delay_ns;
    double bytes_per_s;
    atomic_bool stop;
    pthread_t thread;
    direction way[2];
};

/* False: the connection ended. */
static bool take_in(const net_shaper *shaper, direction *way)
{
    while (way->count < PIECES && !way->ended) {
        piece *p = &way->pieces[(way->first + way->count) % PIECES];
        ssize_t got = recv(way->from, p->data, sizeof p->data, MSG_DONTWAIT);
        if (got < 0) return errno == EAGAIN;
        if (got == 0) {
            way->ended = true;
            return true;
        }
        uint64_t now = vti_net_now_ns();
        if (way->free_ns < now) way->free_ns = now;
        way->free_ns += (uint64_t)((double)got / shaper->bytes_per_s * 1e9);
        p->due_ns = way->free_ns + shaper->delay_ns;
        p->bytes = (size_t)got;
        p->done = 0;
        way->count++;
    }
    return true;
}

static bool give_out(direction *way)
{
    while (way->count > 0) {
        piece *p = &way->pieces[way->first];
        if (p->due_ns > vti_net_now_ns()) return true;
        ssize_t sent = send(way->to, p->data + p->done, p->bytes - p->done,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) return errno == EAGAIN;
        p->done += (size_t)sent;
        if (p->done < p->bytes) return true;
        way->first = (way->first + 1) % PIECES;
        way->count--;
    }
    return !way->ended;
}

static void *run(void *argument)
{
    net_shaper *shaper = argument;
    struct pollfd ready = { shaper->listener, POLLIN, 0 };
    while (!atomic_load(&shaper->stop) && poll(&ready, 1, 20) == 0) continue;
    if (atomic_load(&shaper->stop)) return NULL;
    int near = accept(shaper->listener, NULL, NULL), far = test_net_dial(shaper->target);
    int on = 1; /* pieces are small: nothing should wait for more */
    setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    shaper->way[0].from = shaper->way[1].to = near;
    shaper->way[0].to = shaper->way[1].from = far;
    bool open = near >= 0;
    while (open && !atomic_load(&shaper->stop)) {
        for (int i = 0; i < 2 && open; i++)
            open = take_in(shaper, &shaper->way[i]) && give_out(&shaper->way[i]);
        struct timespec pause = { 0, 200000 };
        nanosleep(&pause, NULL);
    }
    close(near);
    close(far);
    return NULL;
}

net_shaper *net_shaper_start(const char *target, unsigned delay_ms, double bytes_per_s,
                             char address[VTI_NET_ADDRESS_MAX])
{
    net_shaper *shaper = calloc(1, sizeof *shaper);
    assert_non_null(shaper);
    snprintf(shaper->target, sizeof shaper->target, "%s", target);
    shaper->delay_ns = delay_ms * 1000000ull;
    shaper->bytes_per_s = bytes_per_s;
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t bytes = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    shaper->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(shaper->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(shaper->listener, 1), 0);
    assert_int_equal(getsockname(shaper->listener, (struct sockaddr *)&at, &bytes), 0);
    snprintf(address, VTI_NET_ADDRESS_MAX, "127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&shaper->thread, NULL, run, shaper), 0);
    return shaper;
}

void net_shaper_stop(net_shaper *shaper)
{
    atomic_store(&shaper->stop, true);
    pthread_join(shaper->thread, NULL);
    close(shaper->listener);
    free(shaper);
}
