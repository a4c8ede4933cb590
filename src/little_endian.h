/* little_endian.h: numbers out of bytes and into them, at any address, on any host. */
#ifndef VTI_LITTLE_ENDIAN_H
#define VTI_LITTLE_ENDIAN_H

#include <stdint.h>
#include <string.h>

static inline uint16_t vti_load_u16(const unsigned char *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static inline uint32_t vti_load_u32(const unsigned char *bytes)
{
    return vti_load_u16(bytes) | (uint32_t)vti_load_u16(bytes + 2) << 16;
}

static inline uint64_t vti_load_u64(const unsigned char *bytes)
{
    return vti_load_u32(bytes) | (uint64_t)vti_load_u32(bytes + 4) << 32;
}

static inline float vti_load_f32(const unsigned char *bytes)
{
    uint32_t bits = vti_load_u32(bytes);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double vti_load_f64(const unsigned char *bytes)
{
    uint64_t bits = vti_load_u64(bytes);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void vti_put_u32(unsigned char *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(value >> 8 * i);
}

static inline void vti_put_u64(unsigned char *bytes, uint64_t value)
{
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(value >> 8 * i);
}

#endif
