/* cores.h: which cores this process may use, and which of them are big. */
#ifndef VTI_CORES_H
#define VTI_CORES_H

#include <pthread.h>
#include <stdint.h>

/* Cores in the process's affinity mask, of a big.LITTLE machine only the big ones. At least 1. */
uint32_t vti_cores_count(void);

/* All of them, little ones too. At least 1. */
uint32_t vti_cores_all(void);

/* Lets a thread run on those cores only. Best effort: some systems (phones) forbid it. */
void vti_cores_pin(pthread_t thread);

#endif
