/* handshake.h: who is there, as a protocol core without I/O.
 *
 * The connecting side (initiator) sends a preamble, the other answers with its own: 48 bytes each,
 * of which the first 8 keep their meaning in all versions, so that a mismatch can be named:
 *
 *   0 magic "VLTN"   4 version u16   6 features u16   8 reserved u64, zero
 *  16 ephemeral X25519 public key (zero without a key)
 *
 * Feature bit 0: has a key; bit 1: is the initiator; others are ignored.
 *
 * With a key each side then proves that it has the same one by a 32-byte confirmation, the
 * initiator first, so that a stranger learns nothing from a listener. All keys come from the
 * cluster key, the Diffie-Hellman secret and both preambles together; every direction has its own.
 * docs/wire.md gives the derivation. */
#ifndef VTI_NET_HANDSHAKE_H
#define VTI_NET_HANDSHAKE_H

#include "net.h"

#define VTI_PREAMBLE_BYTES 48u
#define VTI_CONFIRM_BYTES 32u
#define VTI_FEATURE_KEY 1u
#define VTI_FEATURE_INITIATOR 2u

typedef struct vti_handshake_secret {
    uint8_t bytes[32];
} vti_handshake_secret;

typedef enum vti_handshake_state {
    VTI_HANDSHAKE_PREAMBLE, /* waits for the other side's preamble */
    VTI_HANDSHAKE_CONFIRM,  /* waits for its confirmation */
    VTI_HANDSHAKE_DONE,
    VTI_HANDSHAKE_FAILED,
} vti_handshake_state;

typedef struct vti_handshake {
    vti_handshake_state state;
    bool initiator;
    bool keyed;
    vti_net_key key;
    vti_handshake_secret secret;             /* X25519, of this connection only */
    uint8_t mine[VTI_PREAMBLE_BYTES];
    uint8_t theirs[VTI_PREAMBLE_BYTES];
    uint8_t confirm_mine[VTI_CONFIRM_BYTES]; /* the confirmations that are right */
    uint8_t confirm_theirs[VTI_CONFIRM_BYTES];
    uint8_t input[VTI_PREAMBLE_BYTES];       /* what is being collected */
    uint32_t input_bytes;
    uint8_t send_key[32];                    /* valid when DONE and keyed */
    uint8_t receive_key[32];
    uint8_t output[VTI_PREAMBLE_BYTES + VTI_CONFIRM_BYTES]; /* to be sent, then output_bytes = 0;
                                                               also after FAILED */
    uint32_t output_bytes;
    vti_net_status status;                   /* FAILED: why */
    char reason[VTI_NET_TEXT_MAX];
} vti_handshake;

/* `key` NULL: none. `secret` is 32 fresh random bytes (ignored without a key). */
void vti_handshake_start(vti_handshake *handshake, bool initiator, const vti_net_key *key,
                         const vti_handshake_secret *secret);

/* Takes bytes until the state is DONE or FAILED or there are no more; returns how many. What
 * follows the handshake is not touched. */
size_t vti_handshake_feed(vti_handshake *handshake, const uint8_t *bytes, size_t size);

/* Overwrites all secrets. */
void vti_handshake_clear(vti_handshake *handshake);

#endif
