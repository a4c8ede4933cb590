/* memory_parse.h: what Linux says about memory, as numbers. Text in, numbers out; nothing is read
 * here. A text that is not what it should be gives false and leaves *out as it was. */
#ifndef VTI_MEMORY_PARSE_H
#define VTI_MEMORY_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* /proc/meminfo */
typedef struct vti_meminfo {
    uint64_t total_bytes, available_bytes;
} vti_meminfo;

bool vti_parse_meminfo(const char *text, vti_meminfo *out);

/* /proc/pressure/memory, or a control group's memory.pressure: of the last ten seconds, per cent of
 * the time in which some task, or all tasks, waited for memory. */
typedef struct vti_pressure {
    double some, full;
} vti_pressure;

bool vti_parse_pressure(const char *text, vti_pressure *out);

/* A control group's file of one number of bytes. "max", and what a version 1 group has instead of
 * it, is UINT64_MAX. */
bool vti_parse_cgroup_bytes(const char *text, uint64_t *out);

/* A control group's memory.stat: bytes of file pages, which go away when memory is needed. */
bool vti_parse_cgroup_file_bytes(const char *text, uint64_t *out);

/* /proc/self/statm: resident bytes that are no file's. */
bool vti_parse_statm(const char *text, uint64_t page_bytes, uint64_t *out);

enum { VTI_CGROUP_PATH_MAX = 1024 };

/* The control group that limits this process's memory. */
typedef struct vti_cgroup {
    int version;                      /* 1 or 2 */
    char folder[VTI_CGROUP_PATH_MAX]; /* "/sys/fs/cgroup/user.slice" */
    size_t top_bytes; /* of `folder`: the topmost group that is seen; it may have a limit too */
} vti_cgroup;

/* From /proc/self/cgroup and /proc/self/mountinfo. */
bool vti_parse_cgroup(const char *cgroup, const char *mountinfo, vti_cgroup *out);

#endif
