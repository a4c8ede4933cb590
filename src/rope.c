#include "rope.h"

#include <math.h>

/* The pair (a real number) that turns `turns` times within the original context. */
static double pair_of(const vti_rope_params *p, uint32_t dims, double turns)
{
    const double two_pi = 6.283185307179586;
    return dims * log(p->original_context / (turns * two_pi)) / (2 * log(p->base));
}

/* Share of pair i's frequency that is divided by the factor: 1 for slow pairs, 0 for fast ones. */
static double divided_share(const vti_rope_params *p, uint32_t dims, uint32_t i)
{
    double fast = floor(pair_of(p, dims, p->beta_fast));
    double slow = ceil(pair_of(p, dims, p->beta_slow));
    if (fast < 0) fast = 0;
    if (slow > dims - 1) slow = dims - 1;
    double width = slow - fast > 0.001 ? slow - fast : 0.001;
    double ramp = (i - fast) / width;
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return 1 - (1 - ramp) * p->extrapolation;
}

void vti_rope_init(vti_rope *rope, const vti_rope_params *params, uint32_t dims,
                   const float *divisors)
{
    rope->magnitude = 1;
    if (params->scaling == VTI_ROPE_YARN) {
        rope->magnitude = params->magnitude;
        if (params->factor > 1 && params->extrapolation != 0)
            rope->magnitude *= 1 + 0.1 * log(params->factor);
    }
    for (uint32_t i = 0; i < dims / 2; i++) {
        double share = 0;
        if (params->scaling == VTI_ROPE_LINEAR) share = 1;
        if (params->scaling == VTI_ROPE_YARN) share = divided_share(params, dims, i);
        double frequency = pow(params->base, -2.0 * i / dims) / (divisors ? divisors[i] : 1.0f);
        rope->frequency[i] = frequency * (share / params->factor + (1 - share));
    }
}

void vti_rope_fill(vti_rope *rope, uint32_t dims, uint32_t position, uint32_t tokens)
{
    float *pair = rope->cos_sin;
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t i = 0; i < dims / 2; i++, pair += 2) {
            double angle = (double)(position + t) * rope->frequency[i];
            pair[0] = (float)(cos(angle) * rope->magnitude);
            pair[1] = (float)(sin(angle) * rope->magnitude);
        }
    }
}
