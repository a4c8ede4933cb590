/* bits.h: sets of small numbers, one bit each. */
#ifndef VTI_BITS_H
#define VTI_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool vti_get_bit(const uint64_t *bits, size_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

static inline void vti_set_bit(uint64_t *bits, size_t i) { bits[i / 64] |= (uint64_t)1 << i % 64; }

/* The first i in [from, end) whose bit is `value`, else `end`. */
static inline size_t vti_find_bit(const uint64_t *bits, size_t from, size_t end, bool value)
{
    for (size_t i = from; i < end; i = (i / 64 + 1) * 64) {
        uint64_t word = (value ? bits[i / 64] : ~bits[i / 64]) >> i % 64;
        if (!word) continue;
        i += (size_t)__builtin_ctzll(word);
        return i < end ? i : end;
    }
    return end;
}

/* Bits [from, end) of the words: a mask for word `w`. */
static inline uint64_t vti_bit_mask(size_t w, size_t from, size_t end)
{
    uint64_t mask = UINT64_MAX;
    if (from > w * 64) mask &= UINT64_MAX << (from - w * 64);
    if (end < (w + 1) * 64) mask &= UINT64_MAX >> ((w + 1) * 64 - end);
    return mask;
}

static inline void vti_fill_bits(uint64_t *bits, size_t from, size_t end, bool value)
{
    for (size_t w = from / 64; w * 64 < end; w++) {
        uint64_t mask = vti_bit_mask(w, from, end);
        bits[w] = value ? bits[w] | mask : bits[w] & ~mask;
    }
}

static inline size_t vti_count_bits(const uint64_t *bits, size_t from, size_t end)
{
    size_t count = 0;
    for (size_t w = from / 64; w * 64 < end; w++)
        count += (size_t)__builtin_popcountll(bits[w] & vti_bit_mask(w, from, end));
    return count;
}

#endif
