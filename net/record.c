#include "record.h"

#include "bytes.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(VTI_RECORD_TAG_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES, "tag");
_Static_assert(sizeof((vti_record_sealer){ 0 }.key) == crypto_aead_chacha20poly1305_ietf_KEYBYTES,
               "key");

static void nonce_of(uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES], uint64_t number)
{
    put_u32(nonce, 0);
    put_u64(nonce + 4, number);
}

size_t vti_record_seal(vti_record_sealer *sealer, uint8_t *record, size_t plain_bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    nonce_of(nonce, sealer->number++);
    uint8_t *body = record + VTI_RECORD_PREFIX_BYTES;
    put_u32(record, (uint32_t)(plain_bytes + VTI_RECORD_TAG_BYTES));
    crypto_aead_chacha20poly1305_ietf_encrypt(body, NULL, body, plain_bytes, record,
                                              VTI_RECORD_PREFIX_BYTES, NULL, nonce, sealer->key);
    return VTI_RECORD_PREFIX_BYTES + plain_bytes + VTI_RECORD_TAG_BYTES;
}

bool vti_record_opener_init(vti_record_opener *opener, const uint8_t key[32])
{
    *opener = (vti_record_opener){ .body = malloc(VTI_RECORD_MAX) };
    memcpy(opener->key, key, sizeof opener->key);
    return opener->body != NULL;
}

void vti_record_opener_clear(vti_record_opener *opener)
{
    free(opener->body);
    sodium_memzero(opener, sizeof *opener);
    opener->reason = "closed";
}

static size_t take(uint8_t *to, uint32_t *have, size_t want, const uint8_t *bytes, size_t size)
{
    size_t count = want - *have;
    if (count > size) count = size;
    if (count > 0) memcpy(to + *have, bytes, count);
    *have += (uint32_t)count;
    return count;
}

size_t vti_record_open(vti_record_opener *opener, const uint8_t *bytes, size_t size,
                       size_t *plain_bytes)
{
    *plain_bytes = 0;
    if (opener->reason) return size;
    size_t used = take(opener->prefix, &opener->prefix_bytes, VTI_RECORD_PREFIX_BYTES, bytes, size);
    if (opener->prefix_bytes < VTI_RECORD_PREFIX_BYTES) return used;
    uint32_t length = get_u32(opener->prefix);
    if (length <= VTI_RECORD_TAG_BYTES || length > VTI_RECORD_PLAIN_MAX + VTI_RECORD_TAG_BYTES) {
        opener->reason = "an encrypted record has an impossible length";
        return size;
    }
    used += take(opener->body, &opener->body_bytes, length, bytes + used, size - used);
    if (opener->body_bytes < length) return used;

    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    nonce_of(nonce, opener->number++);
    opener->prefix_bytes = 0;
    opener->body_bytes = 0;
    if (crypto_aead_chacha20poly1305_ietf_decrypt(opener->body, NULL, NULL, opener->body, length,
                                                  opener->prefix, VTI_RECORD_PREFIX_BYTES, nonce,
                                                  opener->key) != 0) {
        opener->reason = "an encrypted record was damaged or forged";
        return size;
    }
    *plain_bytes = length - VTI_RECORD_TAG_BYTES;
    return used;
}
