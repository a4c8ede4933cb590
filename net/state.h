/* state.h: what a vti_net consists of; for the files that implement net.h.
 *
 * Two kinds of code touch it:
 *   - loop code runs inside uv_run, on whichever thread owns the loop at that moment. Only it
 *     touches uv handles, channels and sockets' lifetimes, and frees peers.
 *   - calls run on any thread.
 * `lock` guards what both touch: the lists, peer state, senders, the event queue, loop ownership.
 * It is never held during uv_run, callbacks to the user, or release functions. */
#ifndef VTI_NET_STATE_H
#define VTI_NET_STATE_H

#include "address.h"
#include "channel.h"
#include "internal.h"
#include "sender.h"

#include <stdatomic.h>
#include <uv.h>

#define VTI_LINGER_MS 250u          /* for a farewell to be read by the other side */
#define VTI_READ_BYTES (64u << 10)  /* one read from a socket */
#define VTI_REJECTIONS_MAX 64u      /* PEER_REJECTED events kept for the caller */
#define VTI_EVENTS_MAX 4096u        /* events in the queue past which nobody new is let in */
#define VTI_PADDING_MAX (4u << 20)  /* from one peer between two ticks */
#define VTI_ADDRESSES_MAX 8u        /* of one name that are tried */

typedef struct vti_peer vti_peer;
typedef struct vti_event vti_event;
typedef struct vti_listener vti_listener;

struct vti_event {
    vti_event *next;
    vti_net_event event;
};

typedef enum vti_peer_state {
    VTI_PEER_NEW,       /* vti_net_connect made it, the loop has not seen it yet */
    VTI_PEER_RESOLVING,
    VTI_PEER_CONNECTING,
    VTI_PEER_HANDSHAKE, /* until the other side's HELLO */
    VTI_PEER_UP,
    VTI_PEER_LINGER,    /* ended for the caller; the farewell is on its way */
    VTI_PEER_CLOSING,   /* waits for the close callbacks */
} vti_peer_state;

/* A uv handle that outlives the socket by its close callback. */
typedef struct vti_poll {
    uv_poll_t handle;
    int events; /* that it was started for */
} vti_poll;

struct vti_peer {
    vti_peer *next;
    vti_net *net;
    vti_net_peer id;
    vti_peer_state state;
    bool incoming;
    bool announced;     /* PEER_UP was queued */
    bool leaving;       /* vti_net_disconnect: the caller wants to hear no more of it */
    bool attention;     /* a call changed something that the loop has to act on */
    char address[VTI_NET_ADDRESS_MAX];
    vti_event *last_event; /* for PEER_DOWN or PEER_REJECTED, so that it cannot fail */

    /* Connecting. */
    char host[VTI_NET_ADDRESS_MAX];
    uint16_t port;
    uint32_t timeout_ms;
    uint64_t deadline_ns;
    uv_getaddrinfo_t resolve;
    bool resolving;
    vti_socket_address targets[VTI_ADDRESSES_MAX];
    size_t target_count, target_next;

    uv_timer_t timer;   /* deadline of the state it is in */
    bool timer_open;
    vti_poll *poll;
    vti_link link;
    bool shut;          /* nothing more will be sent, and the other side was told so */
    vti_channel channel;
    vti_sender sender;

    /* Signs of life. */
    bool heard;             /* a byte since the last tick */
    uint32_t missed;        /* ticks in a row without one */
    uint32_t ticks;
    bool answer_due;        /* loop code: a PING came, or another is to be sent */
    bool broken;            /* nothing can be sent; what came before that is still read */
    uint64_t padding_bytes; /* that had come by the last tick */

    bool probing;           /* a call of vti_net_probe is at it */
    uint64_t probed_ns;     /* when the last one began; 0: never */

    bool paused;            /* not read from until the caller takes messages */
    size_t waiting_bytes;   /* in the event queue */
    uint64_t received_bytes, received_messages;
};

struct vti_listener {
    vti_listener *next;
    vti_net *net;
    int fd;
    bool open;   /* the handle is initialised */
    bool paused; /* out of descriptors: accepts again from the next tick on */
    uv_poll_t handle;
};

typedef enum vti_loop_owner {
    VTI_OWNER_NONE,
    VTI_OWNER_CALLER,
    VTI_OWNER_BACKGROUND,
} vti_loop_owner;

struct vti_net {
    vti_net_params params;
    vti_net_key key;
    char name[VTI_NET_NAME_MAX];

    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t tick;     /* heartbeats */
    uv_timer_t deadline; /* of the call that owns the loop */
    uint8_t *scratch;    /* VTI_READ_BYTES, loop code */

    uv_mutex_t lock;
    vti_loop_owner owner;
    bool urgent;           /* the loop is needed now, do not wait for the takeover time */
    uint32_t callers;      /* calls that want the background thread to hand the loop over */
    uint32_t followers;    /* calls that sleep on `changed` */
    uv_cond_t changed;     /* loop free, an event, a queue shrank, interrupted */
    uv_cond_t background;  /* for the background thread */
    bool parked;           /* it sleeps until somebody signals */
    uint64_t used_ns;      /* when the loop last ran */
    uint32_t spin_credit, spins_skipped; /* of the caller that owns the loop */
    bool stop, orphan;     /* background thread: end; end and free everything */
    uv_thread_t thread;
    atomic_bool interrupted;

    vti_peer *peers;
    uint32_t peer_count;   /* that are not closing */
    uint64_t last_id;
    vti_listener *listeners;
    bool closing;
    vti_event *first_event, *last_event;
    uint32_t event_count, rejections; /* in the queue; the second is part of the first */
};

/* loop.c */
vti_net_status vti_loop_start(vti_net *net, vti_net_error *err);
/* Lock held. Makes loop code look at peers with `attention`, listeners and closing. */
void vti_loop_kick(vti_net *net);
/* Lock held; it is released meanwhile. Runs the loop for one round, or waits for the thread that
 * does; returns when something may have changed or the deadline passed. `eager`: takes the loop
 * over from the background thread. `spin`: polls for a while before it blocks. */
void vti_loop_turn(vti_net *net, uint64_t deadline_ns, bool eager, bool spin);
/* Lock held: wakes calls that sleep on `changed`. */
void vti_loop_changed(vti_net *net);
/* Ends the background thread. If uv handles or requests are left that cannot be hurried, it stays,
 * waits for them and frees the net; then false. */
bool vti_loop_finish(vti_net *net);

/* net.c */
void vti_net_free(vti_net *net);

/* event.c; lock held */
vti_event *vti_event_new(vti_peer *peer, vti_net_event_type type);
void vti_event_push(vti_net *net, vti_event *event);
/* False: no memory. The payload belongs to the event from then on. */
bool vti_event_push_message(vti_peer *peer, vti_frame_message *message);
bool vti_event_pop(vti_net *net, vti_net_event *out);
void vti_event_purge(vti_net *net, vti_net_peer id); /* 0: all */

/* peer.c */
/* Lock held. A peer with a number, in the list; NULL: no memory. */
vti_peer *vti_peer_new(vti_net *net, bool incoming);
/* Lock held. One that the caller may still talk about; NULL if there is none. */
vti_peer *vti_peer_find(vti_net *net, vti_net_peer id);
/* The rest is loop code, without the lock. */
void vti_peer_timer(vti_peer *peer, uint64_t ms);
bool vti_peer_poll(vti_peer *peer); /* a handle for its socket, not started */
void vti_peer_drop_socket(vti_peer *peer);
void vti_peer_fail(vti_peer *peer, vti_net_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sends a farewell (type 0: none but a queued one), waits for the stream to end, closes. */
void vti_peer_linger(vti_peer *peer, uint8_t type, const char *text);
void vti_peer_close(vti_peer *peer);
void vti_peer_gone(vti_peer *peer); /* frees it if nothing of it is open any more */
void vti_peer_attend(vti_peer *peer);
void vti_peer_tick(uv_timer_t *timer);

/* dial.c, listen.c; loop code */
void vti_dial_start(vti_peer *peer);
void vti_dial_next(vti_peer *peer); /* the next address, or failure */
void vti_listener_attend(vti_listener *listener);
void vti_listener_close(vti_listener *listener);

/* stream.c; loop code */
void vti_stream_start(vti_peer *peer); /* connected: handshake begins */
void vti_stream_update(vti_peer *peer);
void vti_stream_flush(vti_peer *peer); /* sends what is due */

#endif
