#include "handshake.h"

#include "bytes.h"
#include "internal.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PREAMBLE_MAGIC 0x4e544c56u /* "VLTN" */
#define FIXED_BYTES 8u             /* magic, version, features */
#define HASH_BYTES 32u

static void send_bytes(vti_handshake *handshake, const uint8_t *bytes, uint32_t size)
{
    memcpy(handshake->output + handshake->output_bytes, bytes, size);
    handshake->output_bytes += size;
}

__attribute__((format(printf, 3, 4)))
static void fail(vti_handshake *handshake, vti_net_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(handshake->reason, sizeof handshake->reason, format, args);
    va_end(args);
    handshake->status = status;
    handshake->state = VTI_HANDSHAKE_FAILED;
}

void vti_handshake_start(vti_handshake *handshake, bool initiator, const vti_net_key *key,
                         const vti_handshake_secret *secret)
{
    *handshake = (vti_handshake){ .initiator = initiator, .keyed = key != NULL };
    put_u32(handshake->mine, PREAMBLE_MAGIC);
    put_u16(handshake->mine + 4, VTI_WIRE_VERSION);
    unsigned features = (key ? VTI_FEATURE_KEY : 0) | (initiator ? VTI_FEATURE_INITIATOR : 0);
    put_u16(handshake->mine + 6, (uint16_t)features);
    if (key) {
        handshake->key = *key;
        handshake->secret = *secret;
        crypto_scalarmult_base(handshake->mine + 16, handshake->secret.bytes);
    }
    if (initiator) send_bytes(handshake, handshake->mine, VTI_PREAMBLE_BYTES);
}

/* One 32-byte key or confirmation per label, from the secret that both sides have by now. */
static void expand(uint8_t out[HASH_BYTES], const uint8_t root[HASH_BYTES], const char *label)
{
    crypto_generichash(out, HASH_BYTES, (const uint8_t *)label, strlen(label), root, HASH_BYTES);
}

/* root = BLAKE2b(key: cluster key; X25519 secret, preamble of the initiator, of the responder) */
static bool derive_keys(vti_handshake *handshake)
{
    const uint8_t *first = handshake->initiator ? handshake->mine : handshake->theirs;
    const uint8_t *second = handshake->initiator ? handshake->theirs : handshake->mine;
    uint8_t shared[crypto_scalarmult_BYTES], root[HASH_BYTES];
    if (crypto_scalarmult(shared, handshake->secret.bytes, handshake->theirs + 16) != 0)
        return false;
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, handshake->key.bytes, sizeof handshake->key.bytes, HASH_BYTES);
    crypto_generichash_update(&hash, shared, sizeof shared);
    crypto_generichash_update(&hash, first, VTI_PREAMBLE_BYTES);
    crypto_generichash_update(&hash, second, VTI_PREAMBLE_BYTES);
    crypto_generichash_final(&hash, root, sizeof root);
    bool initiator = handshake->initiator;
    expand(initiator ? handshake->send_key : handshake->receive_key, root, "initiator data");
    expand(initiator ? handshake->receive_key : handshake->send_key, root, "responder data");
    expand(initiator ? handshake->confirm_mine : handshake->confirm_theirs, root,
           "initiator confirmation");
    expand(initiator ? handshake->confirm_theirs : handshake->confirm_mine, root,
           "responder confirmation");
    sodium_memzero(shared, sizeof shared);
    sodium_memzero(root, sizeof root);
    sodium_memzero(&hash, sizeof hash);
    sodium_memzero(handshake->secret.bytes, sizeof handshake->secret.bytes);
    sodium_memzero(handshake->key.bytes, sizeof handshake->key.bytes);
    return true;
}

/* The part of a preamble that all versions share. */
static void check_fixed(vti_handshake *handshake)
{
    const uint8_t *input = handshake->input;
    if (get_u32(input) != PREAMBLE_MAGIC) {
        char begin[4 * FIXED_BYTES];
        vti_text_clean(begin, sizeof begin, input, FIXED_BYTES);
        fail(handshake, VTI_NET_ERR_HANDSHAKE, "it does not speak Voltron's protocol (it sent "
             "\"%s\")", begin);
        return;
    }
    /* From here on the other side is one of us and shall be able to say what is wrong as well. */
    if (!handshake->initiator) send_bytes(handshake, handshake->mine, VTI_PREAMBLE_BYTES);
    unsigned version = get_u16(input + 4);
    bool has_key = get_u16(input + 6) & VTI_FEATURE_KEY;
    bool is_initiator = get_u16(input + 6) & VTI_FEATURE_INITIATOR;
    if (version != VTI_WIRE_VERSION) {
        fail(handshake, VTI_NET_ERR_HANDSHAKE, "this side speaks wire version %u, the other side "
             "version %u: run the same Voltron release on both", VTI_WIRE_VERSION, version);
    } else if (has_key != handshake->keyed) {
        fail(handshake, VTI_NET_ERR_KEY, "%s has a cluster key, %s has none: give both the same "
             "key, or none on either side", has_key ? "the other side" : "this side",
             has_key ? "this side" : "the other side");
    } else if (is_initiator == handshake->initiator) {
        /* TCP may connect a port to itself where nothing listens. */
        fail(handshake, VTI_NET_ERR_HANDSHAKE, "the connection leads back to where it came from");
    }
}

static void take_preamble(vti_handshake *handshake)
{
    memcpy(handshake->theirs, handshake->input, VTI_PREAMBLE_BYTES);
    if (get_u64(handshake->theirs + 8) != 0) {
        fail(handshake, VTI_NET_ERR_HANDSHAKE, "its preamble has reserved bytes set");
    } else if (!handshake->keyed) {
        handshake->state = VTI_HANDSHAKE_DONE;
    } else if (!derive_keys(handshake)) {
        fail(handshake, VTI_NET_ERR_KEY, "its public key is not a valid one");
    } else {
        handshake->state = VTI_HANDSHAKE_CONFIRM;
        if (handshake->initiator)
            send_bytes(handshake, handshake->confirm_mine, VTI_CONFIRM_BYTES);
    }
}

static void take_confirmation(vti_handshake *handshake)
{
    static const uint8_t refusal[VTI_CONFIRM_BYTES];
    bool same = sodium_memcmp(handshake->input, handshake->confirm_theirs, VTI_CONFIRM_BYTES) == 0;
    if (!handshake->initiator)
        send_bytes(handshake, same ? handshake->confirm_mine : refusal, VTI_CONFIRM_BYTES);
    if (same) {
        handshake->state = VTI_HANDSHAKE_DONE;
    } else {
        fail(handshake, VTI_NET_ERR_KEY, "the other side has a different cluster key");
    }
}

/* Collects until `want` bytes of input are there. */
static size_t collect(vti_handshake *handshake, uint32_t want, const uint8_t *bytes, size_t size)
{
    size_t count = want - handshake->input_bytes;
    if (count > size) count = size;
    if (count > 0) memcpy(handshake->input + handshake->input_bytes, bytes, count);
    handshake->input_bytes += (uint32_t)count;
    return count;
}

size_t vti_handshake_feed(vti_handshake *handshake, const uint8_t *bytes, size_t size)
{
    size_t used = 0;
    while (handshake->state < VTI_HANDSHAKE_DONE) {
        bool preamble = handshake->state == VTI_HANDSHAKE_PREAMBLE;
        bool fixed = preamble && handshake->input_bytes < FIXED_BYTES;
        uint32_t want = fixed ? FIXED_BYTES : preamble ? VTI_PREAMBLE_BYTES : VTI_CONFIRM_BYTES;
        used += collect(handshake, want, bytes + used, size - used);
        if (handshake->input_bytes < want) break;
        if (fixed) {
            check_fixed(handshake);
            continue;
        }
        handshake->input_bytes = 0;
        if (preamble)
            take_preamble(handshake);
        else
            take_confirmation(handshake);
    }
    return used;
}

void vti_handshake_clear(vti_handshake *handshake)
{
    sodium_memzero(handshake, sizeof *handshake);
    handshake->state = VTI_HANDSHAKE_FAILED;
}
