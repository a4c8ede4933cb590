/* quality.h: how good one link is, from its medium, its signal and what was measured on it. Pure
 * functions: no clock, no I/O; the caller says what time it is (seconds on any clock that does not
 * go back). Bad values (NaN, negative, infinite) are ignored. docs/links.md explains the model. */
#ifndef VTI_NET_QUALITY_H
#define VTI_NET_QUALITY_H

#include "medium.h"

enum { VTI_QUALITY_RTTS = 16 };

/* What a planner wants to know. */
typedef struct vti_link_estimate {
    double latency_s;   /* one way, of a small message */
    double bytes_per_s; /* payload of one transfer alone; 0: the link is lost, or not known */
    double rssi_dbm;    /* VTI_RSSI_UNKNOWN if not known */
    unsigned rtts, transfers; /* how many measurements are behind it; both 0: a guess */
} vti_link_estimate;

/* Holds no pointer that has to be freed; may be copied. */
typedef struct vti_quality {
    const vti_medium *medium; /* NULL: not known, then only measurements count */
    double rssi_dbm, rssi_time_s;
    double heard_time_s;      /* of the last measurement: a sign that the link is not lost */
    double sample_s[VTI_QUALITY_RTTS], sample_time_s[VTI_QUALITY_RTTS]; /* the last RTTs, a ring */
    double rtt_time_s, transfer_time_s;
    double transfer_bytes;    /* what the average is of; older bytes count less */
    /* Averages, relative to what the medium has at the signal of that moment (to 1 s and 1 byte/s
     * if it is not known): what a change of the signal changes is corrected by itself. */
    double latency_ratio, bandwidth_ratio;
    unsigned rtts, transfers;
} vti_quality;

/* `medium` may be NULL, `rssi_dbm` VTI_RSSI_UNKNOWN. */
void vti_quality_init(vti_quality *quality, const vti_medium *medium, double rssi_dbm);

/* A small message and its answer took `rtt_s`. Late answers (of a device that was computing) do no
 * harm as long as an eighth of them is prompt. */
void vti_quality_add_rtt(vti_quality *quality, double now_s, double rtt_s);

/* `bytes` went out and were acknowledged within `seconds`, of which `round_trips` (0 or 1) were
 * spent on waiting for the answer. Large transfers count more. What is too small to tell is a lower
 * bound only. */
void vti_quality_add_transfer(vti_quality *quality, double now_s, double bytes, double seconds,
                              unsigned round_trips);

/* The signal, as the system reports it. */
void vti_quality_set_rssi(vti_quality *quality, double now_s, double rssi_dbm);

/* False: nothing is known, neither a medium nor a measurement of both; *out is what there is. */
bool vti_quality_estimate(const vti_quality *quality, vti_link_estimate *out);

#endif
