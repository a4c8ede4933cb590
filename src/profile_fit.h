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

/* Sets the accuracies by samples that were not fitted; of kinds that are not among them, they stay. */
void vti_profile_judge(vti_profile *profile, const vti_profile_samples *samples);

#endif
