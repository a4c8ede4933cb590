/* exp.h: the exponential of a vector, in terms of simd_*.h. */
#ifndef VTI_KERNELS_EXP_H
#define VTI_KERNELS_EXP_H

/* e^v, off by less than 2 units in the last place; 0 below, infinity above, NaN stays.
 * e^v = 2^n e^r with |r| <= ln 2 / 2; the polynomial is the minimax one of (e^r - 1 - r) / r². */
static inline vf vf_exp(vf v)
{
    /* The second operand is what a NaN comes out as. */
    vf clamped = vf_min(vf_set1(150), vf_max(vf_set1(-150), v));
    vf n = vf_round(vf_mul(clamped, vf_set1(1.44269504f)));
    vf r = vf_fnma(n, vf_set1(0.693359375f), clamped); /* ln 2 in two parts, the first exact */
    r = vf_fnma(n, vf_set1(-2.12194440e-4f), r);
    vf p = vf_fma(vf_set1(1.38145836e-3f), r, vf_set1(8.36872403e-3f));
    p = vf_fma(p, r, vf_set1(4.16683890e-2f));
    p = vf_fma(p, r, vf_set1(1.66665211e-1f));
    p = vf_fma(p, r, vf_set1(0.499999940f));
    p = vf_fma(vf_mul(r, r), p, vf_add(r, vf_set1(1.0f)));
    return vf_scale2(p, n);
}

#endif
