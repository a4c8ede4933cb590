#include "memory.h"

#include <unistd.h>

enum { WATCH_INTERVAL_MS = 1000 };

/* A connection's queues, for devices with plenty of memory; a third of it is for sending. */
enum { QUEUES_BYTES = 48 << 20, QUEUES_PART = 16, QUEUES_LEAST = 3 << 10 };

static uint64_t less_a_tenth(uint64_t bytes) { return bytes - bytes / 10; }

/* Where the system does not say what is available. */
static uint64_t half_of_all(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return 0;
    return (uint64_t)pages * (uint64_t)page / 2;
}

/* What the budget may grow to: what it holds and what is available, less a tenth. Of what it holds
 * only that counts which is resident; the rest is part of what is available. */
static uint64_t limit_of(const vti_memory_sample *s, uint64_t held_bytes)
{
    if (!s->total_bytes) return half_of_all();
    uint64_t resident = held_bytes < s->own_bytes ? held_bytes : s->own_bytes;
    uint64_t limit = less_a_tenth(resident + s->available_bytes);
    return limit ? limit : 1;
}

uint64_t vti_memory_spare_bytes(void)
{
    vti_memory_watch *watch = vti_memory_watch_open("", 0);
    vti_memory_sample s = {0};
    if (watch) s = vti_memory_watch_sample(watch);
    vti_memory_watch_close(watch);
    return limit_of(&s, 0);
}

vt_status vti_device_memory_open(vti_device_memory *memory, uint64_t limit_bytes,
                                 const vt_log *log, vt_error *err)
{
    vti_budget_init(&memory->budget, limit_bytes);
    memory->is_limited = limit_bytes != 0;
    memory->watch = vti_memory_watch_open("", WATCH_INTERVAL_MS);
    if (!memory->watch) return vti_fail(err, VT_ERR_MEMORY, "no memory for a budget");
    vti_device_memory_refresh(memory);
    vti_memory_sample s = vti_memory_watch_sample(memory->watch);
    if (s.total_bytes && limit_bytes > limit_of(&s, 0))
        vti_log(log, VT_LOG_WARNING,
                "the memory limit of %.1f MiB is more than this device has to spare now: %.1f MiB",
                (double)limit_bytes / 1048576, (double)limit_of(&s, 0) / 1048576);
    return VT_OK;
}

void vti_device_memory_close(vti_device_memory *memory)
{
    vti_memory_watch_close(memory->watch);
    memory->watch = NULL;
}

void vti_device_memory_refresh(vti_device_memory *memory)
{
    if (memory->is_limited) return;
    vti_memory_sample s = vti_memory_watch_sample_now(memory->watch);
    vti_budget_set_limit(&memory->budget,
                         limit_of(&s, vti_budget_get(&memory->budget).total_bytes));
}

/* Bytes for each peer's. */
static uint64_t queues_of_peer(uint64_t limit_bytes, size_t peers)
{
    uint64_t each = QUEUES_BYTES;
    if (limit_bytes && peers && limit_bytes / QUEUES_PART / peers < each)
        each = limit_bytes / QUEUES_PART / peers;
    return each < QUEUES_LEAST ? QUEUES_LEAST : each;
}

uint64_t vti_device_memory_limit_for(uint64_t bytes, size_t peers)
{
    uint64_t limit = bytes, before;
    do {
        before = limit;
        limit = bytes + peers * queues_of_peer(before, peers);
    } while (limit > before);
    return limit;
}

vt_status vti_device_memory_take_queues(vti_device_memory *memory, size_t peers,
                                        size_t *send_bytes, size_t *receive_bytes,
                                        uint64_t *taken_bytes, vt_error *err)
{
    uint64_t each = queues_of_peer(vti_budget_get(&memory->budget).limit_bytes, peers);
    *send_bytes = (size_t)(each / 3);
    *receive_bytes = (size_t)(each - each / 3);
    *taken_bytes = 0;
    VTI_TRY(vti_budget_take(&memory->budget, VTI_BUDGET_WIRE, peers * each,
                            "talking to other devices", err));
    *taken_bytes = peers * each;
    return VT_OK;
}

void vti_device_memory_look(vti_device_memory *memory, const vt_log *log)
{
    vti_memory_watch_warn(memory->watch, log);
}

void vti_device_memory_get(vti_device_memory *memory, vt_memory_usage *out)
{
    vti_budget_usage u = vti_budget_get(&memory->budget);
    vti_memory_sample s = {0};
    if (memory->watch) s = vti_memory_watch_sample(memory->watch);
    *out = (vt_memory_usage){
        .limit_bytes = u.limit_bytes,
        .used_bytes = u.total_bytes,
        .peak_bytes = u.peak_bytes,
        .weight_bytes = u.used_bytes[VTI_BUDGET_WEIGHTS],
        .kv_bytes = u.used_bytes[VTI_BUDGET_KV],
        .scratch_bytes = u.used_bytes[VTI_BUDGET_SCRATCH],
        .wire_bytes = u.used_bytes[VTI_BUDGET_WIRE],
        .cache_bytes = u.used_bytes[VTI_BUDGET_CACHE],
        .available_bytes = s.available_bytes,
        .pressure = s.some_pressure,
        .is_short = s.is_short,
    };
}
