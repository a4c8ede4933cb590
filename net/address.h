/* address.h: "HOST:PORT" and socket addresses. */
#ifndef VTI_NET_ADDRESS_H
#define VTI_NET_ADDRESS_H

#include "net.h"

#include <netinet/in.h>
#include <sys/socket.h>

typedef struct vti_socket_address {
    struct sockaddr_storage storage;
    socklen_t bytes;
} vti_socket_address;

/* Splits "HOST:PORT" or "[IPv6]:PORT"; `host` gets the part before the port, without brackets.
 * ERR_ARGUMENT says what is wrong. */
vti_net_status vti_address_split(const char *address, char host[VTI_NET_ADDRESS_MAX],
                                 uint16_t *port, vti_net_error *err);

/* An address in numbers, without asking anyone; false if `host` is a name. */
bool vti_address_numeric(const char *host, uint16_t port, vti_socket_address *out);

/* "127.0.0.1:7001", "[::1]:7001" */
void vti_address_format(const vti_socket_address *address, char text[VTI_NET_ADDRESS_MAX]);

/* Reachable from this machine only. */
bool vti_address_is_loopback(const vti_socket_address *address);

#endif
