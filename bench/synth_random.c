/* Random weights, fast: 16 pairs of xorshift generators run side by side, which compilers turn into
 * vector code, and a sum of four uniform numbers stands for a gaussian one (it ends at 3.5 standard
 * deviations). Only integer arithmetic, one subtraction-free product and one sum per weight: the
 * same bits on every machine. */
#include "synth.h"

#include <string.h>

/* splitmix64 */
static uint64_t mix(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

void synth_random_seed(synth_random *random, uint64_t seed, const char *name)
{
    uint64_t state = mix(&seed);
    for (const char *c = name; *c; c++) state = (state ^ (unsigned char)*c) * 0x100000001B3u;
    for (size_t i = 0; i < SYNTH_LANES; i++) {
        /* An xorshift generator never leaves 0. */
        random->a[i] = (uint32_t)mix(&state) | 1;
        random->b[i] = (uint32_t)mix(&state) | 1;
    }
}

static inline uint32_t step(uint32_t x)
{
    x ^= x << 13;
    x ^= x >> 17;
    return x ^ x << 5;
}

/* Sums of four 16-bit numbers have this mean and standard deviation. */
#define SUM_MEAN 131070
#define SUM_DEVIATION 37837.22f

static void gauss_lanes(synth_random *random, float *out, size_t count, float mean, float scale)
{
    uint32_t a[SYNTH_LANES], b[SYNTH_LANES];
    memcpy(a, random->a, sizeof a);
    memcpy(b, random->b, sizeof b);
    for (size_t i = 0; i < count; i += SYNTH_LANES) {
        for (size_t j = 0; j < SYNTH_LANES; j++) {
            a[j] = step(a[j]);
            b[j] = step(b[j]);
            uint32_t sum = (a[j] & 0xFFFF) + (a[j] >> 16) + (b[j] & 0xFFFF) + (b[j] >> 16);
            out[i + j] = (float)((int32_t)sum - SUM_MEAN) * scale + mean;
        }
    }
    memcpy(random->a, a, sizeof a);
    memcpy(random->b, b, sizeof b);
}

void synth_random_gauss(synth_random *random, float *out, size_t count, float mean,
                        float deviation)
{
    size_t whole = count / SYNTH_LANES * SYNTH_LANES;
    float scale = deviation / SUM_DEVIATION, rest[SYNTH_LANES];
    gauss_lanes(random, out, whole, mean, scale);
    if (whole == count) return;
    gauss_lanes(random, rest, SYNTH_LANES, mean, scale);
    memcpy(out + whole, rest, (count - whole) * sizeof *out);
}
