#include "cores.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#ifdef __linux__

/* Relative speed of a core: the scheduler's capacity, else its highest clock; 0 if unknown. */
static long speed_of(int cpu)
{
    static const char *const files[] = {
        "/sys/devices/system/cpu/cpu%d/cpu_capacity",
        "/sys/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[96];
        long value = 0;
        snprintf(path, sizeof path, files[i], cpu);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        int got = fscanf(file, "%ld", &value);
        fclose(file);
        if (got == 1 && value > 0) return value;
    }
    return 0;
}

/* A core counts as big from 60 % of the fastest one's speed: keeps the middle cores of three-level
 * phones, drops the little ones, which would hold up every barrier. */
static void usable_cores(cpu_set_t *out)
{
    cpu_set_t allowed;
    long speed[CPU_SETSIZE] = {0}, fastest = 0;
    CPU_ZERO(out);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        speed[cpu] = speed_of(cpu);
        if (speed[cpu] > fastest) fastest = speed[cpu];
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && speed[cpu] * 10 >= fastest * 6) CPU_SET(cpu, out);
}

uint32_t vti_cores_count(void)
{
    cpu_set_t set;
    usable_cores(&set);
    int count = CPU_COUNT(&set);
    return count > 0 ? (uint32_t)count : 1;
}

uint32_t vti_cores_all(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    return count > 0 ? (uint32_t)count : 1;
}

void vti_cores_pin(pthread_t thread)
{
    cpu_set_t set;
    usable_cores(&set);
    if (CPU_COUNT(&set) > 0) pthread_setaffinity_np(thread, sizeof set, &set);
}

#else

uint32_t vti_cores_count(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (uint32_t)count : 1;
}

uint32_t vti_cores_all(void) { return vti_cores_count(); }

void vti_cores_pin(pthread_t thread) { (void)thread; }

#endif
