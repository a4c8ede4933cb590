/* voltron-bench link: what a probe says of loopback, against plain sockets, in turns. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../net/net.h"
#include "bench.h"

enum { ROUNDS = 15, PINGS = 200, PING_BYTES = 56, STREAM_BYTES = 16 << 20, CHUNK_BYTES = 64 << 10 };

/* --- the other process ------------------------------------------------------------------------ */

static bool receive_all(int fd, void *to, size_t bytes)
{
    return recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* Answers PINGS times, then takes a stream and answers once. */
static void answer_plainly(int listener)
{
    static char chunk[CHUNK_BYTES];
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd)) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        for (int i = 0; i < PINGS && receive_all(fd, chunk, PING_BYTES); i++)
            if (send(fd, chunk, PING_BYTES, MSG_NOSIGNAL) < 0) break;
        for (size_t left = STREAM_BYTES; left > 0;) {
            ssize_t got = recv(fd, chunk, left < sizeof chunk ? left : sizeof chunk, 0);
            if (got <= 0) break;
            left -= (size_t)got;
        }
        send(fd, chunk, PING_BYTES, MSG_NOSIGNAL);
    }
}

static int listen_plainly(struct sockaddr_in *at)
{
    socklen_t bytes = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)at, sizeof *at) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)at, &bytes) != 0)
        return -1;
    return fd;
}

/* A worker that waits, until the pipe ends. */
static int be_peer(int address_fd)
{
    vti_net_params params = vti_net_params_default();
    vti_net *net;
    vti_net_event event;
    char address[VTI_NET_ADDRESS_MAX] = {0};
    if (vti_net_open(&params, &net, NULL) != VTI_NET_OK ||
        vti_net_listen(net, "127.0.0.1:0", address, NULL) != VTI_NET_OK ||
        write(address_fd, address, sizeof address) != sizeof address)
        return 1;
    while (vti_net_wait(net, VTI_NET_NEVER, &event) == VTI_NET_OK) vti_net_event_clear(&event);
    return 0;
}

/* --- measuring -------------------------------------------------------------------------------- */

typedef struct measured {
    double latency_us[ROUNDS], mb_per_s[ROUNDS], took_ms[ROUNDS];
} measured;

static bool measure_plainly(const struct sockaddr_in *at, measured *m, int round)
{
    static char chunk[CHUNK_BYTES];
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    double begin = bench_now(), best = 1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)at, sizeof *at) != 0) return false;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (int i = 0; i < PINGS; i++) {
        double sent = bench_now();
        if (send(fd, chunk, PING_BYTES, MSG_NOSIGNAL) < 0) return false;
        if (!receive_all(fd, chunk, PING_BYTES)) return false;
        double took = bench_now() - sent;
        if (took < best) best = took;
    }
    m->latency_us[round] = best / 2 * 1e6;
    double sent = bench_now();
    for (size_t left = STREAM_BYTES; left > 0; left -= CHUNK_BYTES)
        if (send(fd, chunk, CHUNK_BYTES, MSG_NOSIGNAL) != CHUNK_BYTES) return false;
    if (!receive_all(fd, chunk, PING_BYTES)) return false;
    m->mb_per_s[round] = STREAM_BYTES / (bench_now() - sent) / 1e6;
    m->took_ms[round] = (bench_now() - begin) * 1e3;
    close(fd);
    return true;
}

static bool measure_by_probe(vti_net *net, const char *address, measured *m, int round)
{
    vti_net_peer peer;
    vti_net_event event;
    vti_link_estimate found;
    if (vti_net_connect(net, address, 2000, &peer, NULL) != VTI_NET_OK) return false;
    if (vti_net_wait(net, vti_net_after_ms(3000), &event) != VTI_NET_OK) return false;
    if (event.type != VTI_NET_PEER_UP) return false;
    double begin = bench_now();
    if (vti_net_probe(net, peer, 0, vti_net_after_ms(3000), &found) != VTI_NET_OK) return false;
    m->took_ms[round] = (bench_now() - begin) * 1e3;
    m->latency_us[round] = found.latency_s * 1e6;
    m->mb_per_s[round] = found.bytes_per_s / 1e6;
    vti_net_disconnect(net, peer, NULL);
    return true;
}

static void print(const char *what, measured *m)
{
    double low = m->mb_per_s[0], high = low;
    for (int i = 1; i < ROUNDS; i++) {
        if (m->mb_per_s[i] < low) low = m->mb_per_s[i];
        if (m->mb_per_s[i] > high) high = m->mb_per_s[i];
    }
    printf("| %s | %.1f | %.0f | %.0f to %.0f | %.1f |\n", what,
           bench_median(m->latency_us, ROUNDS), bench_median(m->mb_per_s, ROUNDS), low, high,
           bench_median(m->took_ms, ROUNDS));
}

static int measure(vti_net *net, const char *address, const struct sockaddr_in *plain)
{
    static measured by_probe, plainly;
    for (int round = 0; round < ROUNDS; round++)
        if (!measure_plainly(plain, &plainly, round) ||
            !measure_by_probe(net, address, &by_probe, round)) {
            fprintf(stderr, "voltron-bench link: loopback connections do not work here\n");
            return 1;
        }
    printf("| loopback | one way, us | MB/s, median | range | took, ms |\n");
    printf("|---|---:|---:|---:|---:|\n");
    print("plain sockets, 16 MiB", &plainly);
    print("probe, at most 1 MiB", &by_probe);
    return 0;
}

int bench_link(int argc, char **argv)
{
    if (argc > 1) {
        bool help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        fprintf(help ? stdout : stderr,
                "voltron-bench link     latency and bandwidth of loopback: by a probe as it is made\n"
                "                       of every link, and by plain sockets\n");
        return help ? 0 : 2;
    }
    struct sockaddr_in at;
    char address[VTI_NET_ADDRESS_MAX];
    int fds[2], listener = listen_plainly(&at), result = 1;
    if (listener < 0 || pipe(fds) != 0) {
        perror("voltron-bench link");
        return 1;
    }
    fflush(NULL);
    pid_t plain = fork();
    if (plain == 0) {
        answer_plainly(listener);
        _exit(0);
    }
    pid_t other = fork();
    if (other == 0) _exit(be_peer(fds[1]));
    close(listener);
    close(fds[1]);
    vti_net_params params = vti_net_params_default();
    vti_net *net = NULL;
    if (read(fds[0], address, sizeof address) == sizeof address &&
        vti_net_open(&params, &net, NULL) == VTI_NET_OK)
        result = measure(net, address, &at);
    vti_net_close(net);
    close(fds[0]);
    pid_t children[] = {plain, other};
    for (int i = 0; i < 2; i++)
        if (children[i] > 0) {
            kill(children[i], SIGTERM);
            waitpid(children[i], NULL, 0);
        }
    return result;
}
