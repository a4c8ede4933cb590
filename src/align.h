/* align.h: whole steps of bytes. */
#ifndef VTI_ALIGN_H
#define VTI_ALIGN_H

#include <stdint.h>

/* The widest load of any kernel, and a cache line: what buffers begin at and are multiples of. */
enum { VTI_ALIGNMENT = 64 };

/* The next multiple of `step`. A size that fits size_t does so afterwards, unless it is within a
 * step of its end. */
static inline uint64_t vti_align_up(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

#endif
