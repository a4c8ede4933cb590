/* record.h: encryption of the byte stream after a keyed handshake, without I/O.
 *
 * A record is: length u32 of what follows (little-endian, also authenticated), ciphertext, 16-byte
 * tag; ChaCha20-Poly1305 with the record's number in its direction as nonce. A record that was
 * changed, repeated, left out, reordered or sent back does not open, and ends the connection. */
#ifndef VTI_NET_RECORD_H
#define VTI_NET_RECORD_H

#include "frame.h"

#define VTI_RECORD_PREFIX_BYTES 4u
#define VTI_RECORD_TAG_BYTES 16u
#define VTI_RECORD_PLAIN_MAX (VTI_FRAME_HEADER_BYTES + VTI_FRAME_CHUNK_MAX) /* one frame */
#define VTI_RECORD_MAX (VTI_RECORD_PREFIX_BYTES + VTI_RECORD_PLAIN_MAX + VTI_RECORD_TAG_BYTES)

typedef struct vti_record_sealer {
    uint8_t key[32];
    uint64_t number;
} vti_record_sealer;

/* Encrypts, in place, the `plain_bytes` (1..VTI_RECORD_PLAIN_MAX) that begin at record +
 * VTI_RECORD_PREFIX_BYTES, and writes prefix and tag around them. Returns the record's length. */
size_t vti_record_seal(vti_record_sealer *sealer, uint8_t *record, size_t plain_bytes);

typedef struct vti_record_opener {
    uint8_t key[32];
    uint64_t number;
    uint8_t prefix[VTI_RECORD_PREFIX_BYTES];
    uint32_t prefix_bytes;
    uint32_t body_bytes; /* collected ciphertext of the record under way */
    uint8_t *body;       /* malloc'd, VTI_RECORD_MAX; plaintext after a record was opened */
    const char *reason;  /* why it failed; it then accepts nothing any more */
} vti_record_opener;

/* False: no memory. */
bool vti_record_opener_init(vti_record_opener *opener, const uint8_t key[32]);
void vti_record_opener_clear(vti_record_opener *opener);

/* Takes bytes up to the end of the next record; returns how many. *plain_bytes is 0 while it is
 * not complete or when opener->reason is set; otherwise opener->body holds that much plaintext
 * until the next call. */
size_t vti_record_open(vti_record_opener *opener, const uint8_t *bytes, size_t size,
                       size_t *plain_bytes);

#endif
