#include "address.h"

#include "internal.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_port(const char *text, uint16_t *port)
{
    unsigned value = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits] != '\0') return false;
    for (; *text; text++) value = value * 10 + (unsigned)(*text - '0');
    *port = (uint16_t)value;
    return value <= UINT16_MAX;
}

vti_net_status vti_address_split(const char *address, char host[VTI_NET_ADDRESS_MAX],
                                 uint16_t *port, vti_net_error *err)
{
    const char *colon = strrchr(address, ':');
    if (!colon)
        return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "address \"%.80s\" has no port; write "
                            "HOST:PORT", address);
    const char *begin = address, *end = colon;
    if (*begin == '[') {
        begin++;
        end--;
        if (end <= begin || *end != ']')
            return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "address \"%.80s\": write an IPv6 "
                                "address as [ADDRESS]:PORT", address);
    } else if (memchr(begin, ':', (size_t)(end - begin))) {
        return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "address \"%.80s\": write an IPv6 address "
                            "as [ADDRESS]:PORT", address);
    }
    size_t bytes = (size_t)(end - begin);
    if (bytes == 0)
        return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "address \"%.80s\" has no host; write "
                            "HOST:PORT", address);
    if (strlen(address) >= VTI_NET_ADDRESS_MAX)
        return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "address \"%.40s...\" is longer than %u "
                            "bytes", address, VTI_NET_ADDRESS_MAX - 1);
    if (!parse_port(colon + 1, port))
        return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "address \"%s\": the port is a number from "
                            "0 to 65535", address);
    memcpy(host, begin, bytes);
    host[bytes] = '\0';
    return VTI_NET_OK;
}

static bool numeric_v6(const char *host, uint16_t port, vti_socket_address *out)
{
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    char plain[VTI_NET_ADDRESS_MAX];
    snprintf(plain, sizeof plain, "%s", host);
    char *scope = strchr(plain, '%');
    if (scope) {
        *scope++ = '\0';
        v6.sin6_scope_id = if_nametoindex(scope);
        if (v6.sin6_scope_id == 0) v6.sin6_scope_id = (uint32_t)strtoul(scope, NULL, 10);
    }
    if (inet_pton(AF_INET6, plain, &v6.sin6_addr) != 1) return false;
    memcpy(&out->storage, &v6, sizeof v6);
    out->bytes = sizeof v6;
    return true;
}

bool vti_address_numeric(const char *host, uint16_t port, vti_socket_address *out)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    *out = (vti_socket_address){ .bytes = sizeof v4 };
    if (inet_pton(AF_INET, host, &v4.sin_addr) != 1) return numeric_v6(host, port, out);
    memcpy(&out->storage, &v4, sizeof v4);
    return true;
}

void vti_address_format(const vti_socket_address *address, char text[VTI_NET_ADDRESS_MAX])
{
    char host[64], port[8];
    int flags = NI_NUMERICHOST | NI_NUMERICSERV;
    if (getnameinfo((const struct sockaddr *)&address->storage, address->bytes, host, sizeof host,
                    port, sizeof port, flags) != 0) {
        snprintf(text, VTI_NET_ADDRESS_MAX, "?");
        return;
    }
    bool v6 = address->storage.ss_family == AF_INET6;
    snprintf(text, VTI_NET_ADDRESS_MAX, v6 ? "[%s]:%s" : "%s:%s", host, port);
}

bool vti_address_is_loopback(const vti_socket_address *address)
{
    if (address->storage.ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, &address->storage, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 v6;
    memcpy(&v6, &address->storage, sizeof v6);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return v6.sin6_addr.s6_addr[12] == 127;
    return address->storage.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}
