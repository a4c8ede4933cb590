/* memory_watch.h: how much memory the system has left, and whether it is short of it.
 *
 * What counts is the least of MemAvailable and of what the limits of the process's control groups
 * (a container's) leave. Nothing runs by itself: whoever has a good moment, say between two tokens,
 * asks for a sample; it is read from /proc and /sys at most once in an interval, earlier if the
 * kernel reported a stall meanwhile. Safe to use from several threads. */
#ifndef VTI_MEMORY_WATCH_H
#define VTI_MEMORY_WATCH_H

#include "error.h"

typedef struct vti_memory_watch vti_memory_watch;

typedef struct vti_memory_sample {
    uint64_t total_bytes;     /* the system's, or the least limit of a group; 0: not known */
    uint64_t available_bytes; /* that could be taken beside what this process has */
    uint64_t own_bytes;       /* resident in this process and no file's */
    bool in_group;            /* a group's limit is what leaves least */
    /* Per cent of the last ten seconds in which some task, or all, waited for memory: of the system
     * or of the own group, whichever is more. 0 where the kernel does not tell. */
    double some_pressure, full_pressure;
    bool is_short;            /* pressure is high, or little is available */
    /* What this process should hold at most: what it has and what is available, less a tenth. 0:
     * not known. */
    uint64_t suggested_limit_bytes;
} vti_memory_sample;

/* `root` is put before "/proc/…" and "/sys/…"; "" is this system. interval_ms 0: every sample is a
 * new one. NULL: no memory. */
vti_memory_watch *vti_memory_watch_open(const char *root, uint32_t interval_ms);
void vti_memory_watch_close(vti_memory_watch *watch);

/* The newest sample, a new one if the last is older than the interval. */
vti_memory_sample vti_memory_watch_sample(vti_memory_watch *watch);

/* A new one in any case. */
vti_memory_sample vti_memory_watch_sample_now(vti_memory_watch *watch);

/* Samples, and logs one warning when memory becomes short; the next one only after it was plentiful
 * again in between. */
void vti_memory_watch_warn(vti_memory_watch *watch, const vt_log *log);

#endif
