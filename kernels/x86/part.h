/* part.h: vectors at the end of a row, in terms of simd_*.h, which include it. */
#ifndef VTI_KERNELS_PART_H
#define VTI_KERNELS_PART_H

/* Vector v of the `count` floats at p, of which it may have a part or nothing. */
static inline vf load_part(const float *p, size_t count, size_t v)
{
    size_t n = count > v * LANES ? count - v * LANES : 0;
    return n >= LANES ? vf_load(p + v * LANES) : n ? vf_load_n(p + v * LANES, n) : vf_zero();
}

static inline void store_part(float *p, vf value, size_t count, size_t v)
{
    size_t n = count > v * LANES ? count - v * LANES : 0;
    if (n >= LANES)
        vf_store(p + v * LANES, value);
    else if (n)
        vf_store_n(p + v * LANES, value, n);
}

#endif
