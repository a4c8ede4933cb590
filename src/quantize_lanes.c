/* Loops over lanes become vector code: no branches, no aliases, and bounds that are arguments, as a
 * compiler that knows them turns comparisons into branches. */
#include "quantize_lanes.h"

#include <string.h>

#include "../kernels/half.h"

/* `a` where `condition` is true; never a branch. */
static inline float pick(bool condition, float a, float b)
{
    return float_from_bits(choose(-(uint32_t)condition, bits_of_float(a), bits_of_float(b)));
}

/* --- targets ---------------------------------------------------------------------------------- */

/* Bits of the largest magnitude. */
static uint32_t largest_bits(const float *x, size_t count)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = bits_of_float(x[i]) & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* Exponent of a power of two whose inverse is a normal number, too. */
static uint32_t unit_exponent(uint32_t bits)
{
    uint32_t exponent = bits >> 23;
    return exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
}

static float power(uint32_t exponent) { return float_from_bits(exponent << 23); }

static void set_weights(vti_target *t, size_t columns, const float *importance)
{
    uint32_t largest = importance ? largest_bits(importance, columns) : 0;
    float inverse = power(254 - unit_exponent(largest));
    t->weighted = largest;
    for (size_t j = 0; j < columns / VTI_LANE; j++)
        for (size_t i = 0; i < VTI_LANE; i++)
            t->w[i][j] = largest ? importance[j * VTI_LANE + i] * inverse : 1;
}

static void add_up(vti_target *restrict t)
{
    for (size_t j = 0; j < VTI_LANES; j++) {
        float sw = 0, sx = 0, sxx = 0, low = 8, high = -8; /* of units: |x| < 4 */
        for (size_t i = 0; i < VTI_LANE; i++) {
            float x = t->x[i][j], wx = t->w[i][j] * x;
            sw += t->w[i][j];
            sx += wx;
            sxx += wx * x;
            low = low < x ? low : x;
            high = high > x ? high : x;
        }
        t->sw[j] = sw;
        t->sx[j] = sx;
        t->sxx[j] = sxx;
        t->low[j] = low;
        t->high[j] = high;
    }
}

void vti_target_set(vti_target *t, const float *x, size_t columns, const float *importance)
{
    uint32_t largest = largest_bits(x, columns);
    t->finite = largest < 0x7f800000;
    t->unit = power(unit_exponent(largest));
    t->inverse_unit = power(254 - unit_exponent(largest));
    if (columns < VTI_LANES_MOST) {
        memset(t->x, 0, sizeof t->x);
        memset(t->w, 0, sizeof t->w);
    }
    for (size_t j = 0; j < columns / VTI_LANE; j++)
        for (size_t i = 0; i < VTI_LANE; i++) t->x[i][j] = x[j * VTI_LANE + i] * t->inverse_unit;
    set_weights(t, columns, importance);
    add_up(t);
}

/* --- fits ------------------------------------------------------------------------------------- */

void vti_fit_constant(vti_fit *restrict best, const vti_target *restrict t)
{
    for (size_t j = 0; j < VTI_LANES; j++) {
        float min = -t->sx[j] * vti_inverse(t->sw[j]);
        min = min > 0 ? min : 0;
        best->scale[j] = 0;
        best->min[j] = min;
        best->loss[j] = t->sxx[j] + 2 * min * t->sx[j] + min * min * t->sw[j];
    }
}

void vti_measure(vti_sums *restrict out, const vti_target *restrict t, const float *restrict scale,
                 const float *restrict min, float most)
{
    vti_lanes inverse;
    for (size_t j = 0; j < VTI_LANES; j++) inverse[j] = vti_inverse(scale[j]);
    for (size_t j = 0; j < VTI_LANES; j++) {
        float q1 = 0, q2 = 0, qx = 0;
        for (size_t i = 0; i < VTI_LANE; i++) {
            float x = t->x[i][j];
            float q = vti_round((x + min[j]) * inverse[j], 0, most);
            float wq = t->w[i][j] * q;
            q1 += wq;
            q2 += wq * q;
            qx += wq * x;
        }
        out->q[j] = q1;
        out->qq[j] = q2;
        out->qx[j] = qx;
    }
}

/* Least squares: both unknowns, or the scale alone where the integers are all the same or the min
 * would be negative. */
static void solve(vti_fit *restrict out, const vti_target *restrict t, const vti_sums *restrict s)
{
    for (size_t j = 0; j < VTI_LANES; j++) {
        float sw = t->sw[j], sx = t->sx[j], q = s->q[j], qq = s->qq[j], qx = s->qx[j];
        float determinant = sw * qq - q * q;
        float both = (sw * qx - q * sx) * vti_inverse(determinant);
        float min = (both * q - sx) * vti_inverse(sw);
        bool valid = (determinant > 1e-6f * sw * qq) & (min >= 0) & (both > 0);
        float alone = qx * vti_inverse(qq);
        alone = alone > 0 ? alone : 0;
        float scale = pick(valid, both, alone);
        min = pick(valid, min, 0);
        out->scale[j] = scale;
        out->min[j] = min;
        out->loss[j] = t->sxx[j] - 2 * (scale * qx - min * sx) + scale * scale * qq -
                       2 * scale * min * q + min * min * sw;
    }
}

void vti_keep(float *restrict best_loss, float *restrict best_a, float *restrict best_b,
              const float *restrict loss, const float *restrict a, const float *restrict b)
{
    for (size_t j = 0; j < VTI_LANES; j++) {
        bool better = loss[j] < best_loss[j];
        best_loss[j] = pick(better, loss[j], best_loss[j]);
        best_a[j] = pick(better, a[j], best_a[j]);
        best_b[j] = pick(better, b[j], best_b[j]);
    }
}

void vti_fit_grid(vti_fit *best, const vti_target *t, const float *scale, const float *min,
                  float most)
{
    vti_sums sums;
    vti_fit fit;
    vti_measure(&sums, t, scale, min, most);
    solve(&fit, t, &sums);
    vti_keep(best->loss, best->scale, best->min, fit.loss, fit.scale, fit.min);
}

void vti_lose(float *restrict loss, const vti_target *restrict t, const float *restrict scale,
              const float *restrict min, float least, float most)
{
    vti_lanes inverse;
    for (size_t j = 0; j < VTI_LANES; j++) inverse[j] = vti_inverse(scale[j]);
    for (size_t j = 0; j < VTI_LANES; j++) {
        float sum = 0;
        for (size_t i = 0; i < VTI_LANE; i++) {
            float x = t->x[i][j] + min[j];
            float off = x - scale[j] * vti_round(x * inverse[j], least, most);
            sum += t->w[i][j] * off * off;
        }
        loss[j] = sum;
    }
}

void vti_snap(float *restrict scales, float *restrict mins, const vti_fit *restrict wanted,
              const vti_target *restrict t, float scale, float min, float up_scale, float up_min,
              float most)
{
    float per_scale = vti_inverse(scale), per_min = vti_inverse(min);
    for (size_t j = 0; j < VTI_LANES; j++) {
        float s = vti_round(wanted->scale[j] * per_scale - 0.5f + up_scale, 0, most);
        float mean = t->sx[j] * vti_inverse(t->sw[j]);
        float ratio = s * scale * vti_inverse(wanted->scale[j]);
        float shifted = (mean + wanted->min[j]) * ratio - mean;
        scales[j] = s;
        mins[j] = vti_round(shifted * per_min - 0.5f + up_min, 0, most);
    }
}
