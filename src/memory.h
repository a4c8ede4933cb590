/* memory.h: the memory of the device that this process is part of. */
#ifndef VTI_MEMORY_H
#define VTI_MEMORY_H

#include "budget.h"
#include "memory_watch.h"

/* What is available (MemAvailable, the limits of control groups) less a tenth, so that the rest of
 * the device goes on breathing; half of the physical memory where the system does not tell; 0 if
 * that is unknown too. If nothing is available, it is 1. */
uint64_t vti_memory_spare_bytes(void);

/* A model's or a worker's: everything large in it is taken from the budget. */
typedef struct vti_device_memory {
    vti_budget budget;
    bool is_limited; /* by the user; otherwise the limit is what the system has */
    vti_memory_watch *watch;
} vti_device_memory;

/* limit_bytes 0: what the system has to spare. */
vt_status vti_device_memory_open(vti_device_memory *memory, uint64_t limit_bytes,
                                 const vt_log *log, vt_error *err);
void vti_device_memory_close(vti_device_memory *memory); /* all zero is fine */

/* Before something large begins: a limit that is not the user's follows the system. */
void vti_device_memory_refresh(vti_device_memory *memory);

/* What the queues of connections to `peers` devices may hold, each: at most a sixteenth of the
 * budget for all of them together. Taken from it; *taken_bytes is to be given back. */
vt_status vti_device_memory_take_queues(vti_device_memory *memory, size_t peers,
                                        size_t *send_bytes, size_t *receive_bytes,
                                        uint64_t *taken_bytes, vt_error *err);

/* The limit that leaves `bytes` once the queues of so many peers are taken. */
uint64_t vti_device_memory_limit_for(uint64_t bytes, size_t peers);

/* Whenever there is a moment: one warning if the system runs short. */
void vti_device_memory_look(vti_device_memory *memory, const vt_log *log);

/* For those who ask from outside. */
void vti_device_memory_get(vti_device_memory *memory, vt_memory_usage *out);

#endif
