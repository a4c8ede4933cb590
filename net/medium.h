/* medium.h: what a kind of link can do at a given signal, before anything was measured. Pure
 * functions of constants. docs/links.md has the tables and their sources. */
#ifndef VTI_NET_MEDIUM_H
#define VTI_NET_MEDIUM_H

#include <stdbool.h>
#include <stddef.h>

enum { VTI_MEDIUM_RUNGS_MAX = 10 };

/* From this signal on a radio uses this rate, until the next rung. */
typedef struct vti_medium_rung {
    double rssi_dbm, bits_per_s;
} vti_medium_rung;

typedef struct vti_medium {
    const char *name;  /* "wifi-ac-80": 802.11ac, 80 MHz, one stream; "wifi-ac-80x2": two */
    bool radio;        /* has a signal, and its links share airtime */
    double latency_s;  /* one way, of a small message, where the signal is good */
    double efficiency; /* payload of TCP per bit of the rate */
    double bits_per_s; /* the rate of what is not Wi-Fi; of Bluetooth the highest */
    /* Wi-Fi: data subcarriers of the channel, spatial streams, modulation and coding schemes. */
    unsigned subcarriers, streams, schemes;
    vti_medium_rung rung[2]; /* Bluetooth */
} vti_medium;

/* By name; NULL: there is none. By number from 0; NULL: past the last. */
const vti_medium *vti_medium_find(const char *name);
const vti_medium *vti_medium_at(size_t number);

/* The rungs upwards; how many there are. What is no radio has none. */
unsigned vti_medium_ladder(const vti_medium *medium, vti_medium_rung rung[VTI_MEDIUM_RUNGS_MAX]);

/* A signal of VTI_RSSI_UNKNOWN is taken for a good one. */
#define VTI_RSSI_UNKNOWN 0.0

/* Whether the signal is below the last rung. */
bool vti_medium_is_lost(const vti_medium *medium, double rssi_dbm);

/* Payload per second that one transfer gets if it is alone. Never less with more signal; 0 if the
 * link is lost. */
double vti_medium_bytes_per_s(const vti_medium *medium, double rssi_dbm);

/* One way, of a small message; grows with retransmissions. Never more with more signal; finite
 * below the last rung, too, where it is that of the last rung. */
double vti_medium_latency_s(const vti_medium *medium, double rssi_dbm);

#endif
