/* channel.h: the receiving half of a connection, without I/O: handshake, then records (with a
 * key), then frames. Bytes in, messages out. The sending half of the encryption is the sealer. */
#ifndef VTI_NET_CHANNEL_H
#define VTI_NET_CHANNEL_H

#include "handshake.h"
#include "record.h"

typedef struct vti_channel {
    vti_handshake handshake; /* its output is sent by the caller, after every feed */
    bool keyed;
    bool ready;              /* handshake done: own frames may be sent */
    bool greeted;            /* the other side's HELLO came */
    vti_record_sealer sealer;
    vti_record_opener opener;
    size_t plain_bytes;      /* of opener.body */
    size_t plain_done_bytes; /* given to the parser */
    vti_frame_parser parser;
    vti_frame_admit_fn *admit;
    void *user;
    vti_net_status status;   /* why it failed */
    char reason[VTI_NET_TEXT_MAX];
} vti_channel;

typedef enum vti_channel_result {
    VTI_CHANNEL_MORE,    /* all bytes used */
    VTI_CHANNEL_READY,   /* once: handshake done, feed the rest again */
    VTI_CHANNEL_MESSAGE, /* *out is filled, feed the rest again. The first message is the HELLO */
    VTI_CHANNEL_FAILED,  /* status and reason say why */
} vti_channel_result;

void vti_channel_start(vti_channel *channel, bool initiator, const vti_net_key *key,
                       const vti_handshake_secret *secret, vti_frame_admit_fn *admit, void *user);
void vti_channel_clear(vti_channel *channel);

/* Feed until it says MORE, even with no bytes left: a record may hold several messages. */
vti_channel_result vti_channel_feed(vti_channel *channel, const uint8_t *bytes, size_t size,
                                    size_t *used, vti_frame_message *out);

#endif
