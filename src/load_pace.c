#include "load_pace.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include "cores.h"

enum { PAUSES_PER_WORK = 7 };

void vti_load_pace_apply(vti_load_pace pace)
{
    if (pace != VTI_PACE_IDLE) return;
#ifdef SCHED_IDLE
    struct sched_param none = {0};
    if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &none) == 0) return;
#endif
#ifdef __linux__ /* where threads have a weight of their own */
    setpriority(PRIO_PROCESS, 0, 19);
#endif
}

uint64_t vti_load_worked_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

uint64_t vti_load_pause_ns(vti_load_pace pace, uint64_t worked_ns)
{
    return pace == VTI_PACE_SHARED ? PAUSES_PER_WORK * worked_ns : 0;
}

vti_load_pace vti_load_pace_beside(uint32_t threads)
{
    return vti_cores_all() > threads ? VTI_PACE_EQUAL : VTI_PACE_SHARED;
}
