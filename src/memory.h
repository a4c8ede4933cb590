/* memory.h: how much memory this machine has to spare. */
#ifndef VTI_MEMORY_H
#define VTI_MEMORY_H

#include <stdint.h>

/* What is available (MemAvailable, the limits of control groups) less a tenth, so that the rest of
 * the device goes on breathing; half of the physical memory where the system does not tell; 0 if
 * that is unknown too. If nothing is available, it is 1. */
uint64_t vti_memory_spare_bytes(void);

#endif
