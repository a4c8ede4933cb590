#include "load_pace.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

static void be_nice(void)
{
#ifdef __linux__ /* where threads have a weight of their own */
    setpriority(PRIO_PROCESS, 0, 19);
#endif
}

void vti_load_pace_apply(vti_load_pace pace)
{
    struct sched_param none = {0};
    (void)none;
    if (pace == VTI_PACE_LOW) be_nice();
    if (pace != VTI_PACE_IDLE) return;
#ifdef SCHED_IDLE
    if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &none) == 0) return;
#endif
    be_nice();
}
