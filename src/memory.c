#include "memory.h"

#include <unistd.h>

#include "memory_watch.h"

uint64_t vti_memory_spare_bytes(void)
{
    vti_memory_watch *watch = vti_memory_watch_open("", 0);
    vti_memory_sample s = {0};
    if (watch) s = vti_memory_watch_sample(watch);
    vti_memory_watch_close(watch);
    if (s.total_bytes) return s.available_bytes ? s.available_bytes - s.available_bytes / 10 : 1;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return 0;
    return (uint64_t)pages * (uint64_t)page / 2;
}
