#include "quantize_search.h"

#include <math.h>
#include <string.h>

#include "../kernels/half.h"
#include "quantize.h"
#include "quantize_lanes.h"

static const uint16_t largest_half = 0x7bff, nan_half = 0x7e00;

static inline float larger(float a, float b) { return a > b ? a : b; }
static inline float smaller(float a, float b) { return a < b ? a : b; }

/* In one order. */
static float total(const vti_lanes v)
{
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

/* A length in units → the nearest half, and what that is in units. */
static uint16_t half_of(const vti_target *t, float length)
{
    uint16_t half = f16_from_f32(length * t->unit);
    return half < largest_half ? half : largest_half;
}

static float in_units(const vti_target *t, uint16_t half)
{
    return f32_from_f16(half) * t->inverse_unit;
}

/* --- I4 --------------------------------------------------------------------------------------- */

enum { MOST_I4 = 15, MOST_SCALE = 63 };

/* A block: weight = d × scale × q - dmin × min, scale and min integers of a lane. */
typedef struct answer {
    uint16_t d, dmin;
    float step, min_step; /* d and dmin in units */
    vti_lanes scales, mins, losses;
    float loss;
} answer;

/* Grids to begin with: from `cut` of the lane's range above its least weight to `cut` below its
 * largest, all pairs. With importance a few weights may matter so much that the others are better
 * cut off. */
static const float cuts[] = {-0.02f, 0.01f, 0.04f, 0.07f};
static const float wide_cuts[] = {-0.02f, 0.02f, 0.06f, 0.1f, 0.15f};

static void fit_cut(vti_fit *best, const vti_target *t, float low_cut, float high_cut)
{
    vti_lanes scale, min;
    for (size_t j = 0; j < VTI_LANES; j++) {
        float low = smaller(t->low[j], 0), range = larger(t->high[j], low) - low;
        min[j] = larger(-low - low_cut * range, 0);
        scale[j] = range * (1 - low_cut - high_cut) * (1.0f / MOST_I4);
    }
    vti_fit_grid(best, t, scale, min, MOST_I4);
}

/* Every lane by itself, scale and min any floats. */
static void fit_lanes(vti_fit *best, const vti_target *t)
{
    bool wide = t->weighted;
    const float *cut = wide ? wide_cuts : cuts;
    size_t count = wide ? sizeof wide_cuts / sizeof *cut : sizeof cuts / sizeof *cut;
    vti_fit_constant(best, t);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++) fit_cut(best, t, cut[i], cut[k]);
    for (int again = 0; again < 2; again++) {
        vti_fit found = *best;
        vti_fit_grid(best, t, found.scale, found.min, MOST_I4);
    }
}

static void set_steps(answer *a, const vti_target *t, float step, float min_step)
{
    a->d = half_of(t, step);
    a->dmin = half_of(t, min_step);
    a->step = in_units(t, a->d);
    a->min_step = in_units(t, a->dmin);
}

static void lose(vti_lanes losses, const answer *a, const vti_target *t, const vti_lanes scales,
                 const vti_lanes mins)
{
    vti_lanes scale, min;
    for (size_t j = 0; j < VTI_LANES; j++) {
        scale[j] = scales[j] * a->step;
        min[j] = mins[j] * a->min_step;
    }
    vti_lose(losses, t, scale, min, 0, MOST_I4);
}

/* Takes the steps if lanes have integers with which the block loses less. Of every lane the
 * integers below and above what it wants are tried. */
static void try_steps(answer *best, const vti_target *t, const vti_fit *wanted, float step,
                      float min_step)
{
    answer a;
    set_steps(&a, t, step, min_step);
    for (size_t j = 0; j < VTI_LANES; j++) a.losses[j] = INFINITY;
    memset(a.scales, 0, sizeof a.scales);
    memset(a.mins, 0, sizeof a.mins);
    for (int up = 0; up < 4; up++) {
        vti_lanes scales, mins, losses;
        vti_snap(scales, mins, wanted, t, a.step, a.min_step, (float)(up & 1), (float)(up >> 1),
                 MOST_SCALE);
        lose(losses, &a, t, scales, mins);
        vti_keep(a.losses, a.scales, a.mins, losses, scales, mins);
    }
    a.loss = total(a.losses);
    if (a.loss < best->loss) *best = a;
}

static void search_steps(answer *best, const vti_target *t, const vti_fit *wanted)
{
    float step = 0, min_step = 0;
    for (size_t j = 0; j < VTI_LANES; j++) {
        step = larger(step, wanted->scale[j]);
        min_step = larger(min_step, wanted->min[j]);
    }
    step /= MOST_SCALE;
    min_step /= MOST_SCALE;
    try_steps(best, t, wanted, step, min_step);
    try_steps(best, t, wanted, step * 0.99f, min_step);
    try_steps(best, t, wanted, step * 1.01f, min_step);
    float found = best->step;
    try_steps(best, t, wanted, found, min_step * 0.99f);
    try_steps(best, t, wanted, found, min_step * 1.01f);
}

/* Least squares for d and dmin, with all integers as they are. */
static void refit_steps(answer *best, const vti_target *t)
{
    vti_lanes scale, min, ss, sm, mm, sx, mx;
    vti_sums sums;
    for (size_t j = 0; j < VTI_LANES; j++) {
        scale[j] = best->scales[j] * best->step;
        min[j] = best->mins[j] * best->min_step;
    }
    vti_measure(&sums, t, scale, min, MOST_I4);
    for (size_t j = 0; j < VTI_LANES; j++) {
        float s = best->scales[j], m = best->mins[j];
        ss[j] = s * s * sums.qq[j];
        sm[j] = s * m * sums.q[j];
        mm[j] = m * m * t->sw[j];
        sx[j] = s * sums.qx[j];
        mx[j] = m * t->sx[j];
    }
    float a = total(ss), b = total(sm), c = total(mm), d = total(sx), e = total(mx);
    float determinant = a * c - b * b;
    if (!(determinant > 1e-6f * a * c)) return;
    answer next = *best;
    set_steps(&next, t, larger((d * c - e * b) / determinant, 0),
              larger((b * d - a * e) / determinant, 0));
    lose(next.losses, &next, t, next.scales, next.mins);
    next.loss = total(next.losses);
    if (next.loss < best->loss) *best = next;
}

/* What rounding to the nearest step would choose. */
static void try_plain(answer *best, const vti_target *t, const float *x, size_t columns)
{
    vti_affine plain = {0};
    answer a;
    vti_affine_choose(&plain, x, columns, MOST_I4);
    a.d = plain.d;
    a.dmin = plain.dmin;
    a.step = in_units(t, a.d);
    a.min_step = in_units(t, a.dmin);
    for (size_t j = 0; j < VTI_LANES; j++) {
        a.scales[j] = plain.scale[j];
        a.mins[j] = plain.min[j];
    }
    lose(a.losses, &a, t, a.scales, a.mins);
    a.loss = total(a.losses);
    if (a.loss < best->loss) *best = a;
}

static void put_i4(unsigned char *to, const answer *a, const vti_target *t, const float *x,
                   size_t columns)
{
    vti_affine block = {.d = a->d, .dmin = a->dmin};
    for (size_t j = 0; j < columns / VTI_LANE; j++) {
        float scale = a->scales[j] * a->step, min = a->mins[j] * a->min_step;
        float inverse = vti_inverse(scale);
        block.scale[j] = (uint8_t)a->scales[j];
        block.min[j] = (uint8_t)a->mins[j];
        for (size_t i = j * VTI_LANE; i < (j + 1) * VTI_LANE; i++)
            block.q[i] = (uint8_t)(int)vti_round((x[i] * t->inverse_unit + min) * inverse, 0,
                                                 MOST_I4);
    }
    vti_affine_put_q4_k(to, &block, columns);
}

static void quantize_i4_block(unsigned char *to, const float *x, size_t columns,
                              const float *importance)
{
    vti_target t;
    vti_fit wanted;
    answer best = {.loss = INFINITY};
    vti_target_set(&t, x, columns, importance);
    if (!t.finite) {
        vti_affine nothing = {.d = nan_half};
        vti_affine_put_q4_k(to, &nothing, columns);
        return;
    }
    fit_lanes(&wanted, &t);
    search_steps(&best, &t, &wanted);
    for (int again = 0; again < 2; again++) refit_steps(&best, &t);
    try_plain(&best, &t, x, columns);
    put_i4(to, &best, &t, x, columns);
}

void vti_quantize_i4(void *out, const float *x, size_t columns, const float *importance)
{
    unsigned char *to = out;
    for (size_t c = 0; c < columns; c += VTI_LANES_MOST) {
        size_t count = columns - c < VTI_LANES_MOST ? columns - c : VTI_LANES_MOST;
        quantize_i4_block(to, x + c, count, importance ? importance + c : NULL);
        to += vti_affine_q4_k_bytes(count);
    }
}

/* --- I8 --------------------------------------------------------------------------------------- */

enum { MOST_I8 = 127, STEPS_I8 = 16, I8_BYTES = 2 + VTI_LANE };

/* Steps larger than the one that makes the largest weight 127: each has its own luck with 32
 * roundings, which is worth more than the precision lost. */
static float step_factor(int k) { return 1.06f - 0.004f * (float)k; }

static void search_i8(vti_lanes best, const vti_target *t)
{
    static const vti_lanes none;
    vti_lanes least, loss, ignored = {0};
    for (size_t j = 0; j < VTI_LANES; j++) {
        least[j] = larger(-t->low[j], t->high[j]) * (1.0f / MOST_I8);
        best[j] = in_units(t, vti_half_above(least[j] * t->unit));
    }
    vti_lose(loss, t, best, none, -MOST_I8, MOST_I8);
    for (int k = 0; k < STEPS_I8; k++) {
        vti_lanes step, now;
        for (size_t j = 0; j < VTI_LANES; j++)
            step[j] = in_units(t, half_of(t, least[j] * step_factor(k)));
        vti_lose(now, t, step, none, -MOST_I8, MOST_I8);
        vti_keep(loss, best, ignored, now, step, none);
    }
}

static void put_i8(unsigned char *to, uint16_t d, const vti_target *t, const float *x)
{
    float inverse = vti_inverse(in_units(t, d));
    memcpy(to, &d, sizeof d);
    for (size_t i = 0; i < VTI_LANE; i++)
        to[2 + i] = (unsigned char)(int)vti_round(x[i] * t->inverse_unit * inverse, -MOST_I8,
                                                  MOST_I8);
}

static void quantize_i8_blocks(unsigned char *to, const float *x, size_t columns,
                               const float *importance)
{
    vti_target t;
    vti_lanes step;
    vti_target_set(&t, x, columns, importance);
    if (t.finite) search_i8(step, &t);
    for (size_t j = 0; j < columns / VTI_LANE; j++, to += I8_BYTES) {
        memset(to, 0, I8_BYTES);
        if (t.finite)
            put_i8(to, half_of(&t, step[j]), &t, x + j * VTI_LANE);
        else
            memcpy(to, &nan_half, sizeof nan_half);
    }
}

void vti_quantize_i8(void *out, const float *x, size_t columns, const float *importance)
{
    unsigned char *to = out;
    for (size_t c = 0; c < columns; c += VTI_LANES_MOST) {
        size_t count = columns - c < VTI_LANES_MOST ? columns - c : VTI_LANES_MOST;
        quantize_i8_blocks(to, x + c, count, importance ? importance + c : NULL);
        to += count / VTI_LANE * I8_BYTES;
    }
}
