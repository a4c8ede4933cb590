/* wire.h: what devices say to each other: message types and their payloads, byte by byte.
 *
 * net/ carries messages; this file gives them meaning. Every payload is little-endian and is read
 * through vti_reader, which never reads past the end. docs/cluster.md shows who sends what when. */
#ifndef VTI_WIRE_H
#define VTI_WIRE_H

#include "../net/net.h"
#include "kv_transfer.h"
#include "model_identity.h"
#include "profile.h"
#include "shard.h"

typedef enum vti_message {
    VTI_MSG_CLAIM = VTI_FRAME_USER, /* main → worker: be mine. cluster id */
    VTI_MSG_OFFER,       /* worker → main: vti_offer */
    VTI_MSG_REFUSE,      /* worker → main: status u32, text: why this cannot go on */
    VTI_MSG_ASSIGN,      /* main → worker: vti_assignment */
    VTI_MSG_ASSIGNED,    /* worker → main: send the manifest. u32, 1: it has the very same file */
    VTI_MSG_MANIFEST,    /* main → worker: manifest.h */
    VTI_MSG_WANT,        /* worker → main: u32 × n: entries of the manifest it lacks, to be sent in
                            this order, after those wanted before */
    VTI_MSG_BLOCK,       /* main → worker: unit = entry, step = part: up to VTI_WIRE_BLOCK_MAX bytes */
    VTI_MSG_LOADED,      /* worker → main: bytes u64 of the shards that are there by now */
    VTI_MSG_READY,       /* worker → main: bytes u64 of all shards */
    VTI_MSG_LINK,        /* worker → next worker: cluster id */
    VTI_MSG_LINKED,      /* and back: accepted */
    VTI_MSG_SESSION,     /* main → worker: vti_session_request */
    VTI_MSG_SESSION_OK,  /* worker → main */
    VTI_MSG_SESSION_END, /* main → worker */
    VTI_MSG_STEP,        /* device → next device: unit = first layer to run; residual stream */
    VTI_MSG_KV_GET,      /* main → worker: unit = layer, token_count = end: send me its rows */
    VTI_MSG_KV_PUT,      /* main → worker: token_count = end: rows of all your layers follow */
    VTI_MSG_KV,          /* both ways: unit = layer, token range; slot u32, rows of one head */
    VTI_MSG_KV_OK,       /* worker → main: all rows are there */
} vti_message;

enum {
    VTI_CLUSTER_ID_BYTES = 16,
    VTI_WIRE_ADDRESS_MAX = VTI_NET_ADDRESS_MAX - 1,
    VTI_WIRE_BLOCK_MAX = 1 << 20,   /* bytes of a block in one BLOCK message; the last has the rest */
    VTI_WIRE_SMALL_MAX = 512, /* any message but OFFER, MANIFEST, WANT, BLOCK, STEP and KV */
    VTI_WIRE_OFFER_MAX = 8 + 4 + 4 + VTI_PROFILE_WIRE_BYTES,
    VTI_WIRE_PAGE_MAX = 2 << 20,
    VTI_WIRE_WANT_BYTES = 4,
    VTI_WIRE_BUSY_BYTES = 8,        /* one busy time in a STEP */
    VTI_WIRE_SLOT_BYTES = 4,        /* before the rows of a KV: keys or values (0, 1) × KV heads
                                       + KV head */
};

/* Flags of a STEP. */
enum { VTI_STEP_ALL_ROWS = 1 }; /* the main device wants the result of every token, not the last */

/* One cluster of one main device: workers link only with their like. */
typedef struct vti_cluster_id {
    uint8_t bytes[VTI_CLUSTER_ID_BYTES];
} vti_cluster_id;

/* What a worker lends. */
typedef struct vti_offer {
    uint64_t memory_bytes; /* 0: no limit */
    uint32_t page_bytes;   /* that a shard's memory is a multiple of */
    bool has_profile;      /* it knows how fast it is */
    vti_profile profile;
} vti_offer;

/* Layers [first, first + count) of a model, and where the result goes. */
typedef struct vti_assignment {
    vti_hparams hparams;
    vti_model_identity identity;
    vti_file_stamp stamp;  /* zeros: of no file */
    uint32_t first, count;
    uint32_t hop;          /* 0: receives from the main device; else from a worker */
    bool quantised;        /* vti_geometry_init's */
    char next[VTI_NET_ADDRESS_MAX]; /* address of the next device; "": the main device */
} vti_assignment;

typedef struct vti_session_request {
    uint32_t context_tokens, batch_tokens;
    vt_kv_type kv_type;
} vti_session_request;

typedef struct vti_writer {
    uint8_t *data;
    size_t capacity, bytes;
    bool failed; /* it did not fit */
} vti_writer;

typedef struct vti_reader {
    const uint8_t *data;
    size_t bytes, at;
    bool failed; /* it was too short, or something was out of range */
} vti_reader;

void vti_write_u32(vti_writer *w, uint32_t value);
void vti_write_u64(vti_writer *w, uint64_t value);
void vti_write_bytes(vti_writer *w, const void *data, size_t bytes);
uint32_t vti_read_u32(vti_reader *r);
uint64_t vti_read_u64(vti_reader *r);
void vti_read_bytes(vti_reader *r, void *out, size_t bytes);

/* Encoders return false if the capacity did not suffice (a bug); decoders if the payload is not
 * exactly such a thing. A decoded value is in range by itself: enums are members, strings are
 * terminated. What it means for a model is checked by who uses it. */
bool vti_encode_offer(vti_writer *w, const vti_offer *offer);
bool vti_decode_offer(const uint8_t *data, size_t bytes, vti_offer *out);
bool vti_encode_assignment(vti_writer *w, const vti_assignment *a);
bool vti_decode_assignment(const uint8_t *data, size_t bytes, vti_assignment *out);
bool vti_encode_session(vti_writer *w, const vti_session_request *s);
bool vti_decode_session(const uint8_t *data, size_t bytes, vti_session_request *out);
bool vti_encode_refusal(vti_writer *w, vt_status status, const char *text);
/* Text into out->message, made printable. */
bool vti_decode_refusal(const uint8_t *data, size_t bytes, vt_error *out);

/* Bytes of part `part` of a block of `block_bytes`; 0: it has no such part. */
uint32_t vti_block_part_bytes(uint64_t block_bytes, uint32_t part);

/* Payload bytes of a STEP that has passed `hops` workers. */
uint64_t vti_step_bytes(uint32_t rows, uint32_t d, uint32_t hops);

/* A KV message for a piece of a cache: its header but for type and epoch, and its slot. */
void vti_kv_message(const vti_hparams *hparams, const vti_kv_chunk *chunk, vti_frame_header *header,
                    uint8_t slot[VTI_WIRE_SLOT_BYTES]);

/* Is this KV message the piece `expected`? */
bool vti_kv_message_is(const vti_kv_shape *shape, const vti_kv_chunk *expected,
                       const vti_frame_header *header, const uint8_t *payload);

/* Payload bytes of all KV messages for a shape. */
uint64_t vti_kv_message_bytes(const vti_kv_shape *shape);

/* NULL, or why the header of a KV message is not acceptable when `left` payload bytes of them are
 * still expected. */
const char *vti_kv_message_admit(const vti_frame_header *header, size_t row_bytes, uint64_t left);

/* Status of the library for one of the transport. */
vt_status vti_from_net_status(vti_net_status status);

#endif
