/* quantize_lanes.h: the inner loops of the search for scales, eight blocks of 32 weights at a time.
 *
 * Block j is lane j: its weight i is [i][j]. All arithmetic is per lane and in one order, so that
 * the width of a machine's vectors does not change a bit. */
#ifndef VTI_QUANTIZE_LANES_H
#define VTI_QUANTIZE_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VTI_LANES = 8, VTI_LANE = 32, VTI_LANES_MOST = VTI_LANES * VTI_LANE };

typedef float vti_lanes[VTI_LANES];

/* What is to be quantised, as multiples of `unit`, a power of two that makes the largest about 1:
 * squares neither overflow nor vanish. Lanes beyond the columns there are have x = w = 0. */
typedef struct vti_target {
    vti_lanes x[VTI_LANE], w[VTI_LANE]; /* w: what the square of an error counts */
    vti_lanes sw, sx, sxx;              /* sums of w, w x, w x² */
    vti_lanes low, high;                /* least and largest x */
    float unit, inverse_unit;
    bool weighted;                      /* not all w are 1 */
    bool finite;                        /* false: all else is undefined */
} vti_target;

/* x ≈ scale × q - min, and what is lost by that: the weighted sum of squares. */
typedef struct vti_fit {
    vti_lanes scale, min, loss;
} vti_fit;

/* 1 / a; something large, but no infinity, for 0. */
static inline float vti_inverse(float a) { return 1 / (a + 1e-30f); }

/* Nearest integer in [least, most], ties to even: adding 2^23 and a half of it leaves no bit for
 * fractions. */
static inline float vti_round(float place, float least, float most)
{
    place = place > least ? place : least;
    place = place < most ? place : most;
    return (place + 0x1.8p23f) - 0x1.8p23f;
}

/* `columns` floats, a multiple of 32, at most 256; `importance` NULL or all zero: all weigh 1. */
void vti_target_set(vti_target *t, const float *x, size_t columns, const float *importance);

/* The best of s = 0, that is all weights of a lane the same. */
void vti_fit_constant(vti_fit *best, const vti_target *t);

/* Rounds x to the integers 0 … most of the grid scale × q - min, finds the scale and min ≥ 0 with
 * which these integers lose least, and keeps them where that is less than `best` loses. */
void vti_fit_grid(vti_fit *best, const vti_target *t, const float *scale, const float *min,
                  float most);

/* What the grid scale × q - min loses, q from `least` to `most`. */
void vti_lose(float *loss, const vti_target *t, const float *scale, const float *min, float least,
              float most);

/* Weighted sums over the integers 0 … most of a grid. */
typedef struct vti_sums {
    vti_lanes q, qq, qx;
} vti_sums;
void vti_measure(vti_sums *out, const vti_target *t, const float *scale, const float *min,
                 float most);

/* Integers from 0 to `most` below and above what a fit wants, as multiples of `scale` and `min`:
 * the scale's above if `up_scale` is 1, below if it is 0. The min is the one that then keeps the
 * lane's mean. */
void vti_snap(float *scales, float *mins, const vti_fit *wanted, const vti_target *t, float scale,
              float min, float up_scale, float up_min, float most);

/* Where `loss` is less than `best_loss`: replaces that and the two others. */
void vti_keep(float *best_loss, float *best_a, float *best_b, const float *loss, const float *a,
              const float *b);

#endif
