/* frame.h: the unit of the wire, as a protocol core without I/O: bytes in, messages out.
 *
 * A message is a header plus up to VTI_FRAME_MESSAGE_MAX bytes. It travels as one frame, or, if it
 * is larger than VTI_FRAME_CHUNK_MAX, as several frames whose headers differ only in chunk_offset
 * and chunk_bytes. One message per direction is under way at a time; only net's own frames (types
 * below VTI_FRAME_USER) may stand between the chunks of another message.
 *
 * On the wire a header is 48 bytes, little-endian, without padding:
 *
 *   0 magic u32   4 version u8   5 type u8      6 flags u16
 *   8 epoch u32  12 step u32    16 unit u32    20 token_begin u32  24 token_count u32
 *  28 message_bytes u32         32 chunk_offset u32                36 chunk_bytes u32
 *  40 reserved u64, zero
 *
 * docs/wire.md describes the bytes around the frames. */
#ifndef VTI_FRAME_H
#define VTI_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VTI_FRAME_MAGIC 0x46544c56u /* "VLTF" */
#define VTI_WIRE_VERSION 4u         /* of all that is sent, messages too; both sides must agree */

/* Every limit of the frame layer. */
#define VTI_FRAME_HEADER_BYTES 48u
#define VTI_FRAME_CHUNK_MAX (64u << 10)   /* payload bytes of one frame */
#define VTI_FRAME_MESSAGE_MAX (64u << 20) /* payload bytes of one message */
#define VTI_FRAME_TEXT_MAX 400u           /* bytes of a HELLO, GOODBYE or ERROR text */
#define VTI_FRAME_PING_BYTES 8u
#define VTI_FRAME_PADDING_MAX (16u << 10) /* payload bytes of a PADDING */

/* Types 1..15 belong to net/; src/ numbers its own from VTI_FRAME_USER up. */
typedef enum vti_frame_type {
    VTI_FRAME_HELLO = 1,     /* first frame of each side; text: what the sender calls itself */
    VTI_FRAME_HEARTBEAT = 2, /* no payload */
    VTI_FRAME_GOODBYE = 3,   /* last frame of a connection that ends as intended; text or empty */
    VTI_FRAME_ERROR = 4,     /* last frame before a side gives up; text: why */
    VTI_FRAME_PING = 5,      /* 8 bytes, which the answer repeats */
    VTI_FRAME_PONG = 6,      /* the answer */
    VTI_FRAME_PADDING = 7,   /* any bytes, to measure with; nobody looks at them */
    VTI_FRAME_USER = 16,
} vti_frame_type;

/* A header in host byte order. Who sends a message fills type, flags, epoch, step, unit and the
 * token range; net/ fills the rest. The meaning of flags and of everything from epoch to
 * token_count is the sender's and receiver's business; all are zero in net's own frames. */
typedef struct vti_frame_header {
    uint32_t magic;
    uint8_t version;
    uint8_t type;
    uint16_t flags;
    uint32_t epoch;
    uint32_t step;
    uint32_t unit;
    uint32_t token_begin;
    uint32_t token_count;
    uint32_t message_bytes; /* whole payload of the message */
    uint32_t chunk_offset;  /* where this frame's part of it begins */
    uint32_t chunk_bytes;   /* and its length */
    uint64_t reserved;
} vti_frame_header;

_Static_assert(sizeof(vti_frame_header) == VTI_FRAME_HEADER_BYTES, "header has padding");
_Static_assert(offsetof(vti_frame_header, reserved) == 40, "header has padding");

void vti_frame_encode(uint8_t wire[VTI_FRAME_HEADER_BYTES], const vti_frame_header *header);
void vti_frame_decode(vti_frame_header *header, const uint8_t wire[VTI_FRAME_HEADER_BYTES]);

/* What is wrong with a header taken by itself ("chunk reaches past the message"), or NULL. */
const char *vti_frame_invalid(const vti_frame_header *header);

/* Sets magic, version, message_bytes and the chunk that begins at `chunk_offset`; the other fields
 * stay. Chunks are full except the last. */
void vti_frame_set_chunk(vti_frame_header *header, uint32_t message_bytes, uint32_t chunk_offset);

/* A whole message. `payload` is malloc'd (64-byte aligned), NULL if message_bytes is 0; who
 * receives the message frees it. */
typedef struct vti_frame_message {
    vti_frame_header header;
    uint8_t *payload;
} vti_frame_message;

/* Asked once per message of a user type, when its first header is complete and valid and before
 * any of its payload is accepted or memory is taken for it. NULL admits; a reason refuses and ends
 * the connection. The text must stay valid until the parser fails. */
typedef const char *vti_frame_admit_fn(void *user, const vti_frame_header *header);

/* Reassembles messages from a byte stream that may be cut anywhere. Zero it, set admit and user,
 * then feed it. */
typedef struct vti_frame_parser {
    vti_frame_admit_fn *admit; /* NULL: everything valid is admitted */
    void *user;
    uint8_t wire[VTI_FRAME_HEADER_BYTES]; /* the header that is being collected */
    uint32_t wire_bytes;
    vti_frame_header chunk;    /* of the frame whose payload is being read */
    uint32_t chunk_done_bytes;
    bool in_chunk;
    vti_frame_message message; /* user message under way: header of its first chunk */
    uint32_t message_done_bytes;
    bool in_message;
    uint8_t text[VTI_FRAME_TEXT_MAX]; /* payload of net's own frames */
    uint64_t padding_bytes;    /* of PADDING that came, headers included */
    const char *reason;        /* why it failed; it then accepts nothing any more */
    bool refused;              /* the reason came from admit */
} vti_frame_parser;

typedef enum vti_frame_result {
    VTI_FRAME_MORE,    /* all bytes used, no message complete */
    VTI_FRAME_MESSAGE, /* *out is filled; feed the rest of the bytes again */
    VTI_FRAME_FAILED,  /* parser->reason says why */
} vti_frame_result;

/* Takes bytes up to the end of the next message; *used says how many. Net's own frames come out as
 * messages too (their payload is malloc'd like any other), but for PADDING, which is forgotten. */
vti_frame_result vti_frame_feed(vti_frame_parser *parser, const uint8_t *bytes, size_t size,
                                size_t *used, vti_frame_message *out);

/* Frees what an unfinished message holds. */
void vti_frame_parser_clear(vti_frame_parser *parser);

#endif
