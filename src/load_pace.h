/* load_pace.h: what share of the cores a thread gets. */
#ifndef VTI_LOAD_PACE_H
#define VTI_LOAD_PACE_H

#include "shard_loader.h"

/* For the calling thread, as far as the system allows. */
void vti_load_pace_apply(vti_load_pace pace);

/* Processor time of the calling thread. */
uint64_t vti_load_worked_ns(void);

/* How long to pause after `worked_ns` of it. */
uint64_t vti_load_pause_ns(vti_load_pace pace, uint64_t worked_ns);

/* The one for a device on which `threads` compute. */
vti_load_pace vti_load_pace_beside(uint32_t threads);

#endif
