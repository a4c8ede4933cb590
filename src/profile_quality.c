/* profile_quality.c: was the device idle while it was measured? docs/profile.md says where the
 * limits come from. */
#include <math.h>
#include <string.h>

#include "profile_fit.h"

/* Of an idle device, the mean over all samples is below both. */
#define MOST_FIT_ERROR 0.10
#define MOST_SPREAD 0.05

/* Of a sample; on an idle device one in twenty is worse. */
#define POINT_ERROR 0.25
#define POINT_SPREAD 0.10

static double error_of(const vti_profile *profile, const vti_profile_sample *s)
{
    return s->seconds > 0 ? fabs(vti_profile_predict(profile, s) / s->seconds - 1) : 0;
}

double vti_profile_fit_error(const vti_profile *profile, const vti_profile_samples *samples)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = 0; i < samples->count; i++) {
        sum += error_of(profile, &samples->sample[i]);
        count += samples->sample[i].seconds > 0;
    }
    return count ? sum / (double)count : 0;
}

double vti_profile_spread(const vti_profile_samples *samples)
{
    double sum = 0;
    for (size_t i = 0; i < samples->count; i++) sum += samples->sample[i].spread;
    return samples->count ? sum / (double)samples->count : 0;
}

double vti_profile_disturbance(const vti_profile *profile, const vti_profile_samples *samples)
{
    double error = vti_profile_fit_error(profile, samples), spread = vti_profile_spread(samples);
    return error > MOST_FIT_ERROR || spread > MOST_SPREAD ? fmax(error, spread) : 0;
}

size_t vti_profile_points(const vti_profile_samples *samples)
{
    size_t points = 0;
    for (size_t i = 0; i < samples->count; i++)
        if (samples->sample[i].point >= points) points = (size_t)samples->sample[i].point + 1;
    return points;
}

size_t vti_profile_mark(const vti_profile *profile, const vti_profile_samples *samples,
                        bool *only)
{
    size_t marked = 0;
    memset(only, 0, vti_profile_points(samples) * sizeof *only);
    for (size_t i = 0; i < samples->count; i++) {
        const vti_profile_sample *s = &samples->sample[i];
        bool bad = s->spread > POINT_SPREAD || error_of(profile, s) > POINT_ERROR;
        marked += bad && !only[s->point];
        only[s->point] |= bad;
    }
    return marked;
}

void vti_profile_improve(vti_profile_samples *samples, const vti_profile_samples *again)
{
    for (size_t i = 0; i < again->count; i++) {
        const vti_profile_sample *new = &again->sample[i];
        for (size_t k = 0; k < samples->count; k++) {
            vti_profile_sample *old = &samples->sample[k];
            if (old->point != new->point || old->kind != new->kind) continue;
            if (new->seconds < old->seconds)
                *old = *new;
            else if (new->seconds < old->seconds * (1 + POINT_SPREAD))
                old->spread = fmin(old->spread, new->spread);
        }
    }
}
