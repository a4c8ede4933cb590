/* meter.h: what the frames of one connection say about its link, in the time of its owner. No I/O,
 * no locks. Two kinds of measurement come from PINGs and their answers: the round trip of a PING
 * that found the connection quiet; and the throughput of a run, which is what was sent from a quiet
 * connection on without a pause: all its bytes were there when the PING behind it was answered. */
#ifndef VTI_NET_METER_H
#define VTI_NET_METER_H

#include "quality.h"

#include <stdint.h>

#define VTI_METER_RUN_BYTES (256u << 10)   /* a run that is worth a PING */
#define VTI_METER_QUIET_BYTES (64u << 10)  /* so little on its way delays a PING only a little */

typedef struct vti_meter {
    vti_quality quality;
    uint64_t sent_bytes;     /* messages and padding */
    uint64_t arrived_bytes;  /* of them, at least so many */

    bool in_run, run_counts; /* it began when the connection was quiet */
    uint64_t run_ns, run_bytes; /* time and sent_bytes at its beginning; or of the last answer */
    bool run_answered;       /* the latter */
    bool run_probes;         /* padding is in it: however short, it is meant to measure */

    bool waiting;            /* for the answer to a PING: */
    uint64_t ping;           /* its number */
    uint64_t ping_ns, ping_bytes; /* when it was sent, and what had been sent before it */
    bool ping_quiet;         /* it measures the round trip */
    bool again;              /* it did not, but the next one will */
    bool ping_marks;         /* it measures the run that began at: */
    uint64_t mark_ns, mark_bytes;
    bool mark_answered;
    uint64_t answers;        /* that came; who waits for one sees it change */
} vti_meter;

/* Sending begins, and ends: nothing is left to send. */
void vti_meter_begin(vti_meter *meter, uint64_t now_ns, bool probes);
void vti_meter_end(vti_meter *meter);

void vti_meter_sent(vti_meter *meter, uint64_t bytes);

/* A PING is worth sending now: in the middle of a run, or because the last one said too little. */
bool vti_meter_wants_ping(const vti_meter *meter);

/* A PING goes out; the number that it carries. The last one must have been answered. */
uint64_t vti_meter_ping(vti_meter *meter, uint64_t now_ns);

/* An answer came. False: to nothing that was asked. */
bool vti_meter_pong(vti_meter *meter, uint64_t number, uint64_t now_ns);

#endif
