/* net.h: bytes between processes. Knows frames, not models.
 *
 * A vti_net listens, connects, keeps connections alive and carries messages (frame.h). Peers are
 * named by numbers that are never used twice. Everything that happens comes out of vti_net_wait as
 * an event, in order: PEER_UP, then MESSAGEs, then PEER_DOWN with a sentence. A peer's fault is an
 * event, never a failure of the process. docs/wire.md explains bytes, keys and threads.
 *
 * Threads. Every function may be called from any thread, except that only one thread at a time
 * calls vti_net_wait, and nobody calls anything once vti_net_close has begun. The event loop is
 * run by whoever sits in vti_net_wait (a message then needs no hand-over between threads) and by a
 * background thread while nobody does, so that heartbeats go on while the caller computes.
 * Callbacks (admit, release) run on the thread that happens to drive the connection, without locks
 * held; they must be short and must not call vti_net_ functions. */
#ifndef VTI_NET_H
#define VTI_NET_H

#include "frame.h"
#include "quality.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- what went wrong ------------------------------------------------------------------------ */

#define VTI_NET_STATUS_MAP(X)                                                                      \
    X(OK, "success")                                                                               \
    X(ERR_ARGUMENT, "invalid argument")                                                            \
    X(ERR_MEMORY, "not enough memory")                                                             \
    X(ERR_SYSTEM, "the system refused a network operation")                                        \
    X(ERR_ADDRESS, "the address cannot be used")                                                   \
    X(ERR_KEY, "the cluster key is missing, unusable or different")                                \
    X(ERR_UNREACHABLE, "nothing answers at the address")                                           \
    X(ERR_HANDSHAKE, "the other side is not a Voltron of the same version")                        \
    X(ERR_PROTOCOL, "the peer sent something that is not allowed")                                 \
    X(ERR_REMOTE, "the peer reported an error")                                                    \
    X(ERR_LOST, "the peer was lost")                                                               \
    X(ERR_GONE, "the peer is not connected")                                                       \
    X(ERR_FULL, "too much is waiting to be sent")                                                  \
    X(ERR_TIMEOUT, "a deadline passed")                                                            \
    X(ERR_INTERRUPTED, "interrupted")

typedef enum vti_net_status {
#define X(name, text) VTI_NET_##name,
    VTI_NET_STATUS_MAP(X)
#undef X
} vti_net_status;

const char *vti_net_status_name(vti_net_status status); /* "VTI_NET_ERR_KEY" */
const char *vti_net_status_text(vti_net_status status);

#define VTI_NET_TEXT_MAX 512u

/* Filled by a call that fails: lower case first, no full stop. May be NULL wherever it is taken. */
typedef struct vti_net_error {
    vti_net_status status;
    char message[VTI_NET_TEXT_MAX];
} vti_net_error;

/* --- the cluster key ------------------------------------------------------------------------ */

#define VTI_NET_KEY_MIN_BYTES 16u
#define VTI_NET_KEY_MAX_BYTES (64u << 10)

/* What the key material was hashed to. Both sides of a connection need the same. */
typedef struct vti_net_key {
    uint8_t bytes[32];
} vti_net_key;

/* Key material is any 16 to 65536 bytes, text or not; line ends at its end do not count, so that
 * an editor does not change a key. It should be random: `head -c 32 /dev/urandom > cluster.key`.
 * ERR_KEY: not readable, empty, too short, too long, or a file that every user may read. */
vti_net_status vti_net_key_load(const char *path, vti_net_key *out, vti_net_error *err);
vti_net_status vti_net_key_from_bytes(const void *material, size_t bytes, vti_net_key *out,
                                      vti_net_error *err);

/* --- opening and closing -------------------------------------------------------------------- */

typedef struct vti_net vti_net;
typedef uint64_t vti_net_peer; /* 0 is no peer */

/* Whether a peer may send this message: NULL, or why not (a text that stays valid until the next
 * call). Called once per message, before a byte of its payload is accepted or memory is taken for
 * it; header->message_bytes is the payload's size. A refusal goes to the peer as an ERROR frame
 * and takes it down (PEER_DOWN, ERR_PROTOCOL). May run while the caller computes. */
typedef const char *vti_net_admit_fn(void *user, vti_net_peer peer,
                                     const vti_frame_header *header);

typedef struct vti_net_params {
    const vti_net_key *key;        /* copied; NULL: no encryption, listen on loopback only */
    const char *name;              /* what this side calls itself, at most 63 bytes; NULL: "" */
    uint32_t heartbeat_ms;         /* 250: sign of life this often; alike on all devices */
    uint32_t heartbeat_misses;     /* 3: lost after that many intervals without one */
    uint32_t handshake_timeout_ms; /* 2000: for incoming peers */
    uint32_t handshakes_max;       /* 16: incoming peers that have not proved themselves; one more
                                      pushes the oldest out */
    uint32_t peers_max;            /* 64: connections in all */
    size_t send_limit_bytes;       /* 16 MiB: queued per peer before ERR_FULL */
    size_t receive_limit_bytes;    /* 32 MiB: messages nobody waited for yet, per peer; past it the
                                      peer is not read from until they are taken */
    uint32_t spin_us;              /* 30: how long vti_net_wait polls before it blocks, while
                                      that pays; 0: never */
    vti_net_admit_fn *admit;       /* NULL: every valid message is admitted */
    void *user;                    /* for admit */
} vti_net_params;

vti_net_params vti_net_params_default(void);

/* ERR_ARGUMENT (a parameter that is 0 or out of range, by name), ERR_MEMORY, ERR_SYSTEM. */
vti_net_status vti_net_open(const vti_net_params *params, vti_net **out, vti_net_error *err);

/* Disconnects every peer with a GOODBYE (what is still queued is dropped), gives that a quarter of
 * a second to arrive, calls outstanding release functions and frees. NULL is fine. */
void vti_net_close(vti_net *net);

/* --- peers ---------------------------------------------------------------------------------- */

#define VTI_NET_ADDRESS_MAX 80u /* "[fe80::…%eth0]:65535" or "name.example:7001", with the NUL */
#define VTI_NET_NAME_MAX 64u

/* Listens on "IP:PORT", "[IPv6]:PORT", "localhost:PORT" or "*:PORT" (every IPv4 interface); port 0
 * takes a free one. `bound` (may be NULL) receives the address with the port that was taken. May
 * be called several times. ERR_ARGUMENT (not an address), ERR_KEY (not loopback, and no key),
 * ERR_ADDRESS (in use, not ours). */
vti_net_status vti_net_listen(vti_net *net, const char *address, char bound[VTI_NET_ADDRESS_MAX],
                              vti_net_error *err);

/* Starts to connect to "HOST:PORT" or "[IPv6]:PORT" (HOST may be a name; all its addresses are
 * tried in turn) and puts the new peer's number in *out. The outcome is an event: PEER_UP, or
 * PEER_DOWN with the reason (refused: at once; otherwise after at most `timeout_ms` for name, TCP
 * and handshake together). ERR_ARGUMENT, ERR_FULL (peers_max). */
vti_net_status vti_net_connect(vti_net *net, const char *address, uint32_t timeout_ms,
                               vti_net_peer *out, vti_net_error *err);

/* Ends a connection. With a reason (cut at VTI_FRAME_TEXT_MAX bytes) the other side gets it as the
 * text of its PEER_DOWN (ERR_REMOTE); NULL is a plain goodbye (VTI_NET_OK there). What is still
 * queued for the peer is dropped (vti_net_drain first to have it delivered). No event names the
 * peer any more afterwards. An unknown or lost peer is fine. */
void vti_net_disconnect(vti_net *net, vti_net_peer peer, const char *reason);

typedef struct vti_net_peer_stats {
    uint64_t sent_bytes, received_bytes; /* on the wire, with headers */
    uint64_t sent_messages, received_messages;
    size_t queued_bytes;                 /* accepted by vti_net_send, not yet given to the system */
} vti_net_peer_stats;

/* ERR_GONE if it is not connected. */
vti_net_status vti_net_get_stats(vti_net *net, vti_net_peer peer, vti_net_peer_stats *out);

/* --- links ---------------------------------------------------------------------------------- */

/* How good the link to the peer is, by what happened on it so far: the round trip is measured twice
 * a second, the bandwidth (from here to there) whenever 256 KiB or more are sent in a row; it is 0
 * as long as it is not known. docs/links.md explains it. ERR_GONE. */
vti_net_status vti_net_get_quality(vti_net *net, vti_net_peer peer, vti_link_estimate *out);

/* What the link is and how strong its signal, if the caller knows; may be said again and again.
 * NULL and VTI_RSSI_UNKNOWN: not known. A new medium makes measurements begin anew. ERR_GONE. */
vti_net_status vti_net_set_medium(vti_net *net, vti_net_peer peer, const vti_medium *medium,
                                  double rssi_dbm);

#define VTI_NET_PROBE_BYTES (1u << 20)   /* a probe sends at most so many */
#define VTI_NET_PROBE_MS 100u            /* and, once something is known, begins nothing that will
                                            end later than this; */
#define VTI_NET_PROBE_EVERY_MS 1000u     /* one peer is probed at most this often */

/* Measures the link to the peer now: small frames back and forth, then growing bursts until one is
 * long enough to tell, at most `limit_bytes` in all (0: VTI_NET_PROBE_BYTES). If there was a probe
 * just before, or one is under way, *out is what is known without another. The same if messages
 * fill the link anyway: then these are what is measured. ERR_GONE, ERR_TIMEOUT (no answer by then;
 * *out is what is known), ERR_INTERRUPTED. Events stay queued for vti_net_wait. */
vti_net_status vti_net_probe(vti_net *net, vti_net_peer peer, size_t limit_bytes,
                             uint64_t deadline_ns, vti_link_estimate *out);

/* --- sending -------------------------------------------------------------------------------- */

#define VTI_NET_PARTS_MAX 4u

/* A payload is its parts one after the other. */
typedef struct vti_net_part {
    const void *data;
    size_t bytes;
} vti_net_part;

/* Queues a message and sends at once what the socket takes, from the calling thread. Of `header`
 * type (≥ VTI_FRAME_USER), flags, epoch, step, unit and token range are used. The payload may be
 * reused when the call returns; it is copied only if the socket does not take it all.
 * ERR_GONE: not up, or no longer. ERR_FULL: send_limit_bytes would be passed and something is
 * queued already (a single larger message is accepted). ERR_ARGUMENT: type, part count, size. On
 * an error nothing was queued. */
vti_net_status vti_net_send(vti_net *net, vti_net_peer peer, const vti_frame_header *header,
                            const vti_net_part *parts, size_t part_count);

typedef void vti_net_release_fn(void *user);

/* The same without ever copying: the parts stay untouched until `release` was called, exactly
 * once, on whatever thread, possibly before this call returns; also when the peer is lost. On an
 * error release is not called. */
vti_net_status vti_net_send_borrowed(vti_net *net, vti_net_peer peer,
                                     const vti_frame_header *header, const vti_net_part *parts,
                                     size_t part_count, vti_net_release_fn *release, void *user);

/* Monotonic clock, in nanoseconds, that deadlines are given in. */
uint64_t vti_net_now_ns(void);
uint64_t vti_net_after_ms(uint32_t ms); /* now + ms */
#define VTI_NET_NEVER UINT64_MAX        /* a deadline that does not pass */

/* Waits until at most `limit_bytes` are queued for the peer. ERR_GONE, ERR_TIMEOUT,
 * ERR_INTERRUPTED. Events stay queued for vti_net_wait; release functions of what left the queue
 * may be just about to be called by another thread. */
vti_net_status vti_net_drain(vti_net *net, vti_net_peer peer, size_t limit_bytes,
                             uint64_t deadline_ns);

/* --- events --------------------------------------------------------------------------------- */

typedef enum vti_net_event_type {
    VTI_NET_PEER_UP,       /* connected, keys and versions agree: messages may flow */
    VTI_NET_MESSAGE,
    VTI_NET_PEER_DOWN,     /* last event of a peer that was up or was connected to by us */
    VTI_NET_PEER_REJECTED, /* somebody connected and did not become a peer; for the log */
} vti_net_event_type;

/* Only the fields of its type are set, the others are zero. */
typedef struct vti_net_event {
    vti_net_event_type type;
    vti_net_peer peer;               /* all but PEER_REJECTED */
    vti_frame_header header;         /* MESSAGE; message_bytes is the payload's size */
    uint8_t *payload;                /* MESSAGE: 64-byte aligned, NULL if empty; freed by
                                        vti_net_event_clear, or taken (set NULL, free() later) */
    bool incoming;                   /* UP, DOWN: the other side connected */
    char address[VTI_NET_ADDRESS_MAX]; /* UP, DOWN, REJECTED: what vti_net_connect was given, or
                                        where an incoming peer comes from */
    char name[VTI_NET_NAME_MAX];     /* UP: what it calls itself; printable UTF-8, not trusted */
    vti_net_status status;           /* DOWN, REJECTED: OK for a goodbye */
    char reason[VTI_NET_TEXT_MAX];   /* DOWN, REJECTED: a sentence without address and full stop,
                                        "no sign of life for 750 ms"; printable */
} vti_net_event;

/* Next event into *out, which needs no clearing before. Events come first, then
 * ERR_INTERRUPTED, then ERR_TIMEOUT (a deadline in the past only looks). */
vti_net_status vti_net_wait(vti_net *net, uint64_t deadline_ns, vti_net_event *out);

/* Frees the payload if it is still there. */
void vti_net_event_clear(vti_net_event *event);

/* Makes the vti_net_wait, vti_net_drain or vti_net_probe that runs now, or else the next, return
 * ERR_INTERRUPTED. Async-signal-safe. */
void vti_net_interrupt(vti_net *net);

#endif
