#include "memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static uint64_t available_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    if (!file) return 0;
    char line[128];
    uint64_t kib = 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1) break;
    fclose(file);
    return kib * 1024;
}

uint64_t vti_memory_spare_bytes(void)
{
    uint64_t available = available_bytes();
    if (available) return available - available / 10;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return 0;
    return (uint64_t)pages * (uint64_t)page / 2;
}
