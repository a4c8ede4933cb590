#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL /* macOS: SO_NOSIGPIPE does it */
#define MSG_NOSIGNAL 0
#endif

static ssize_t socket_send(vti_link *link, const struct iovec *parts, int count)
{
    struct msghdr message = { .msg_iov = (struct iovec *)parts,
                              .msg_iovlen = (unsigned)count };
    ssize_t bytes;
    do bytes = sendmsg(link->fd, &message, MSG_NOSIGNAL);
    while (bytes < 0 && errno == EINTR);
    if (bytes >= 0) return bytes;
    return errno == EWOULDBLOCK || errno == ENOBUFS ? -EAGAIN : -errno;
}

static ssize_t socket_receive(vti_link *link, void *buffer, size_t bytes)
{
    ssize_t count;
    do count = recv(link->fd, buffer, bytes, 0);
    while (count < 0 && errno == EINTR);
    if (count >= 0) return count;
    return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

static void socket_finish(vti_link *link) { shutdown(link->fd, SHUT_WR); }

void vti_link_socket(vti_link *link, int fd)
{
    *link = (vti_link){ .send = socket_send, .receive = socket_receive, .finish = socket_finish,
                        .fd = fd };
}

static int prepare(int fd)
{
    int on = 1, flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    return fd;
}

int vti_socket_open(int family)
{
    int fd = socket(family, SOCK_STREAM, 0);
    return fd < 0 ? -errno : prepare(fd);
}

int vti_socket_accept(int listener, void *address, unsigned *address_bytes)
{
    socklen_t bytes = *address_bytes;
    int fd;
    do fd = accept(listener, address, &bytes);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    *address_bytes = bytes;
    return prepare(fd);
}
