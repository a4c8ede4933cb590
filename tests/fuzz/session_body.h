/* session_body.h: the inside of a session file, out of it and into one, for tests. */
#ifndef VTI_FUZZ_SESSION_BODY_H
#define VTI_FUZZ_SESSION_BODY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { SESSION_PREFIX_BYTES = 8, SESSION_IDENTITY_BYTES = 64 };

/* Everything after the prefix, decompressed; malloc'd. NULL if that fails. */
static inline uint8_t *session_body_unpack(const uint8_t *file, size_t bytes, size_t *body_bytes)
{
    size_t capacity = 1 << 24;
    uint8_t *body = malloc(capacity);
    if (!body || bytes < SESSION_PREFIX_BYTES) abort();
    ZSTD_DCtx *zstd = ZSTD_createDCtx();
    *body_bytes = ZSTD_decompressDCtx(zstd, body, capacity, file + SESSION_PREFIX_BYTES,
                                      bytes - SESSION_PREFIX_BYTES);
    ZSTD_freeDCtx(zstd);
    if (!ZSTD_isError(*body_bytes)) return body;
    free(body);
    return NULL;
}

/* A file with a right checksum around any body; malloc'd. */
static inline uint8_t *session_body_pack(const uint8_t *body, size_t body_bytes, size_t *bytes)
{
    size_t capacity = SESSION_PREFIX_BYTES + ZSTD_compressBound(body_bytes);
    uint8_t *file = malloc(capacity);
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    if (!file || !zstd) abort();
    memcpy(file, "VTSS\1\0\0\0", SESSION_PREFIX_BYTES);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, 1);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_windowLog, 20);
    size_t packed = ZSTD_compress2(zstd, file + SESSION_PREFIX_BYTES,
                                   capacity - SESSION_PREFIX_BYTES, body, body_bytes);
    if (ZSTD_isError(packed)) abort();
    ZSTD_freeCCtx(zstd);
    *bytes = SESSION_PREFIX_BYTES + packed;
    return file;
}

#endif
