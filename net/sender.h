/* sender.h: the sending half of a connection: turns queued messages into frames (and records) and
 * puts them into a link as far as it takes them. No locks, no loop: its owner has both. It looks at
 * the clock, for the meter. */
#ifndef VTI_NET_SENDER_H
#define VTI_NET_SENDER_H

#include "channel.h"
#include "link.h"
#include "meter.h"

/* A message on its way out. */
typedef struct vti_out vti_out;
struct vti_out {
    vti_out *next;
    vti_frame_header header;
    vti_net_part parts[VTI_NET_PARTS_MAX];
    size_t part_count;
    uint32_t message_bytes;
    uint32_t framed_bytes; /* payload in the frames that were begun */
    bool framed;           /* its last frame was begun */
    void *copy;            /* malloc'd payload, or NULL while the parts are the caller's */
    vti_net_release_fn *release;
    void *user;
};

typedef struct vti_sender {
    vti_link *link;
    vti_record_sealer *sealer; /* NULL: not encrypted */
    vti_out *first, *last;
    size_t queued_bytes;       /* payload not yet taken by the link, and one header a message */

    /* What goes out before the next chunk of a message. */
    uint8_t raw[VTI_PREAMBLE_BYTES + VTI_CONFIRM_BYTES]; /* of the handshake */
    uint32_t raw_bytes;
    const char *hello;         /* due if not NULL */
    bool heartbeat_due, ping_due, pong_due;
    uint8_t pong[VTI_FRAME_PING_BYTES]; /* the last one asked for; others before it are forgotten */
    uint32_t padding_bytes;    /* due when there is nothing else; a PING waits for it */
    uint8_t farewell;          /* frame type, 0: not leaving */
    char farewell_text[VTI_FRAME_TEXT_MAX + 1];
    bool finished;             /* the farewell was begun: nothing follows it */

    /* The frame that is going into the link: `wire`, then, if it is not encrypted, a chunk
     * straight from the message's parts. */
    uint8_t own[VTI_FRAME_HEADER_BYTES + VTI_FRAME_TEXT_MAX];
    uint8_t *sealed;           /* malloc'd, VTI_RECORD_MAX; NULL: not encrypted */
    const uint8_t *wire;
    size_t wire_bytes;
    vti_out *chunk_of;         /* the message it is of, NULL for net's own frames */
    uint32_t chunk_begin, chunk_bytes; /* of a message, or of padding */
    size_t done_bytes;         /* of wire and chunk together */
    bool busy;                 /* such a frame exists */

    bool blocked;              /* the link is full: flush again when it is writable */
    int fault;                 /* errno of the link; nothing is sent any more */
    uint64_t sent_bytes, sent_messages;
    vti_meter meter;
} vti_sender;

/* From the end of the handshake on everything is sealed. False: no memory. */
bool vti_sender_encrypt(vti_sender *sender, vti_record_sealer *sealer);

void vti_sender_push(vti_sender *sender, vti_out *out);

/* Lets `bytes` of padding and a PING go out, if the link is quiet, else only the PING. The one
 * before must have been answered. */
void vti_sender_probe(vti_sender *sender, uint32_t bytes);

/* A PING came. */
void vti_sender_answer(vti_sender *sender, const uint8_t ping[VTI_FRAME_PING_BYTES]);

/* Gives the link what it takes. Messages that are completely gone are put in front of *done. */
void vti_sender_flush(vti_sender *sender, vti_out **done);

/* Makes the farewell (type, text) the last frame and drops what was queued to *done, but for the
 * frame under way. */
void vti_sender_leave(vti_sender *sender, uint8_t type, const char *text, vti_out **done);

/* Everything is with the link. */
bool vti_sender_idle(const vti_sender *sender);

/* Copies a message's payload, so that the caller's memory is not needed any more. False: no
 * memory. */
bool vti_out_copy(vti_out *out);

/* Moves all messages to *done and frees the buffers. */
void vti_sender_clear(vti_sender *sender, vti_out **done);

/* Calls the release functions of a *done list and frees it. Hold no lock. */
void vti_out_release(vti_out *done);

#endif
