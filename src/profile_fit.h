/* profile_fit.h: coefficients from measurements, and how well they predict others. */
#ifndef VTI_PROFILE_FIT_H
#define VTI_PROFILE_FIT_H

#include "profile_sweep.h"

/* Fills profile->cost and bytes_per_s: for each kind, precision and phase the coefficients that are
 * not negative and have the least mean relative error. HEAD costs the same in both phases, as it
 * runs for one token; where nothing was measured in the cache, that price is memory's.
 * ERR_INTERNAL: a kind was not measured, or not finite. */
vt_status vti_profile_fit(const vti_profile_samples *samples, vti_profile *profile, vt_error *err);

/* Seconds that the profile predicts. Of weights from memory at the speed that it had meanwhile. */
double vti_profile_predict(const vti_profile *profile, const vti_profile_sample *sample);

/* The mean relative error over these samples. */
double vti_profile_fit_error(const vti_profile *profile, const vti_profile_samples *samples);

/* By how much the shortest repeats differed, in the mean. */
double vti_profile_spread(const vti_profile_samples *samples);

/* How far off predictions may be because other programs ran meanwhile: the larger of both, if
 * either is worse than on an idle device; else 0. */
double vti_profile_disturbance(const vti_profile *profile, const vti_profile_samples *samples);

/* Marks the points whose repeats or predictions disagree; `only` has one entry per point, at least
 * vti_profile_points. How many are marked. */
size_t vti_profile_mark(const vti_profile *profile, const vti_profile_samples *samples,
                        bool *only);
size_t vti_profile_points(const vti_profile_samples *samples);

/* Takes over what took less time in `again`, as other programs only make times longer; what took
 * about as long confirms the first time. */
void vti_profile_improve(vti_profile_samples *samples, const vti_profile_samples *again);

/* Sets the accuracies by samples that were not fitted; of kinds that are not among them, they
 * stay. */
void vti_profile_judge(vti_profile *profile, const vti_profile_samples *samples);

#endif
