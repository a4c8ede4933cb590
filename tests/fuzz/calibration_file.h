/* calibration_file.h: the inside of a calibration file, out of it and into one, for tests. Such
 * files are wrapped as session files are. */
#ifndef VTI_FUZZ_CALIBRATION_FILE_H
#define VTI_FUZZ_CALIBRATION_FILE_H

#include "session_body.h"

static inline uint8_t *calibration_file_unpack(const uint8_t *file, size_t bytes,
                                               size_t *body_bytes)
{
    return session_body_unpack(file, bytes, body_bytes);
}

static inline uint8_t *calibration_file_pack(const uint8_t *body, size_t body_bytes, size_t *bytes)
{
    uint8_t *file = session_body_pack(body, body_bytes, bytes);
    memcpy(file, "VTIM", 4);
    return file;
}

#endif
