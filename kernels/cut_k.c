/* cut_k.c: a part of a K block as a block of its own. Shards of a matrix may begin where its blocks
 * do not; a block's columns can be parted between sub-blocks of 32, since all parts may keep its
 * scales. The parts have the very weights of the whole. */
#include "block.h"
#include "cut.h"

enum { SUB = 32, Q45_K_SCALES = 4, Q45_K_FIFTHS = 16, Q6_K_HIGH = 128, Q6_K_SCALES = 192 };

/* Per 64 columns 32 bytes: the first 32 columns in the lower nibbles. */
static void put_nibbles(unsigned char *to, const uint8_t *q, size_t columns)
{
    for (size_t c = 0; c < columns; c += 64, to += 32, q += 64)
        for (size_t i = 0; i < SUB; i++)
            to[i] = (unsigned char)((q[i] & 15) | (q[SUB + i] & 15) << 4);
}

/* Pairs of 6-bit scale and min: those of sub-blocks `first` … become 0 … */
static void cut_scales(unsigned char *to, const unsigned char *from, size_t first, size_t count)
{
    unsigned scale[8] = {0}, min[8] = {0};
    for (size_t sub = 0; sub < count; sub++) {
        size_t s = first + sub;
        if (s < 4) {
            scale[sub] = from[s] & 63u;
            min[sub] = from[s + 4] & 63u;
        } else {
            scale[sub] = (from[s + 4] & 15u) | (unsigned)(from[s - 4] >> 6) << 4;
            min[sub] = (unsigned)from[s + 4] >> 4 | (unsigned)(from[s] >> 6) << 4;
        }
    }
    for (size_t sub = 0; sub < 4; sub++) {
        to[sub] = (unsigned char)(scale[sub] | scale[sub + 4] >> 4 << 6);
        to[sub + 4] = (unsigned char)(min[sub] | min[sub + 4] >> 4 << 6);
        to[sub + 8] = (unsigned char)((scale[sub + 4] & 15) | (min[sub + 4] & 15) << 4);
    }
}

/* Integers of the columns from `first` on; zeros behind them. */
static void decode_part(const vti_block_type *type, uint8_t q[VTI_K_BLOCK],
                        const unsigned char *from, size_t first, size_t columns)
{
    uint8_t all[VTI_K_BLOCK];
    type->decode(all, from, VTI_K_BLOCK);
    memset(q, 0, VTI_K_BLOCK);
    memcpy(q, all + first, columns);
}

void vti_cut_q4_k(void *out, const void *block, size_t first, size_t columns)
{
    unsigned char *to = out;
    uint8_t q[VTI_K_BLOCK];
    decode_part(&vti_block_q4_k, q, block, first, columns);
    memcpy(to, block, Q45_K_SCALES);
    cut_scales(to + Q45_K_SCALES, (const unsigned char *)block + Q45_K_SCALES, first / SUB,
               columns / SUB);
    put_nibbles(to + Q45_K_FIFTHS, q, columns);
}

void vti_cut_q5_k(void *out, const void *block, size_t first, size_t columns)
{
    unsigned char *to = out, *fifths = to + Q45_K_FIFTHS;
    uint8_t q[VTI_K_BLOCK];
    decode_part(&vti_block_q5_k, q, block, first, columns);
    memcpy(to, block, Q45_K_SCALES);
    cut_scales(to + Q45_K_SCALES, (const unsigned char *)block + Q45_K_SCALES, first / SUB,
               columns / SUB);
    memset(fifths, 0, SUB);
    for (size_t c = 0; c < columns; c++)
        fifths[c % SUB] |= (unsigned char)(q[c] >> 4 << c / SUB);
    put_nibbles(fifths + SUB, q, columns);
}

void vti_cut_q6_k(void *out, const void *block, size_t first, size_t columns)
{
    unsigned char *low = out, *high = low + Q6_K_HIGH;
    const unsigned char *scales = (const unsigned char *)block + Q6_K_SCALES;
    uint8_t all[VTI_K_BLOCK], *q = all;
    decode_part(&vti_block_q6_k, q, block, first, columns);
    memset(low + Q6_K_SCALES, 0, 16);
    memcpy(low + Q6_K_SCALES, scales + first / 16, columns / 16);
    memcpy(low + Q6_K_SCALES + 16, scales + 16, 2);
    for (size_t c = 0; c < VTI_K_BLOCK; c += 128, low += 64, high += 32, q += 128) {
        for (size_t l = 0; l < 32; l++) {
            low[l] = (unsigned char)((q[l] & 15) | (q[64 + l] & 15) << 4);
            low[32 + l] = (unsigned char)((q[32 + l] & 15) | (q[96 + l] & 15) << 4);
            high[l] = (unsigned char)(q[l] >> 4 | q[32 + l] >> 4 << 2 | q[64 + l] >> 4 << 4 |
                                      q[96 + l] >> 4 << 6);
        }
    }
}
