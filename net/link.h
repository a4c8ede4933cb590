/* link.h: where a connection's bytes go to and come from. Everything above sees only this, so that
 * another link (emulated latency, loss or bandwidth) can stand in front of the socket. */
#ifndef VTI_NET_LINK_H
#define VTI_NET_LINK_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef struct vti_link vti_link;
struct vti_link {
    /* Bytes taken, in order from the parts (≥ 1), or -errno; -EAGAIN: none now, ask again when
     * the link is writable. Never blocks. */
    ssize_t (*send)(vti_link *link, const struct iovec *parts, int count);
    /* Bytes received, 0 at the end of the stream, or -errno; -EAGAIN: none now. Never blocks. */
    ssize_t (*receive)(vti_link *link, void *buffer, size_t bytes);
    /* Nothing more will be sent: the other side sees the end of the stream after the last byte. */
    void (*finish)(vti_link *link);
    int fd; /* polled for readiness */
};

/* A connected or connecting TCP socket: non-blocking, no delay, no SIGPIPE, closed on exec. */
void vti_link_socket(vti_link *link, int fd);

/* socket() and accept() with the flags a link needs; the descriptor or -errno. */
int vti_socket_open(int family);
int vti_socket_accept(int listener, void *address, unsigned *address_bytes);

#endif
