/* net_shaper.h: a relay between two ends of a TCP connection that is as slow as a radio. */
#ifndef VTI_TEST_NET_SHAPER_H
#define VTI_TEST_NET_SHAPER_H

#include "net_support.h"

typedef struct net_shaper net_shaper;

/* Listens, and relays one connection to `target`: each way with `delay_ms` of latency and so many
 * bytes per second. `address` is where to connect to. */
net_shaper *net_shaper_start(const char *target, unsigned delay_ms, double bytes_per_s,
                             char address[VTI_NET_ADDRESS_MAX]);
void net_shaper_stop(net_shaper *shaper);

#endif
