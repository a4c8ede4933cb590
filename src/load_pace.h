/* load_pace.h: what share of the cores a thread gets. */
#ifndef VTI_LOAD_PACE_H
#define VTI_LOAD_PACE_H

#include "shard_loader.h"

/* For the calling thread, as far as the system allows. */
void vti_load_pace_apply(vti_load_pace pace);

#endif
