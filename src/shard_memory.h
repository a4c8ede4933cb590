/* shard_memory.h: memory for shards, allocated and freed one by one, in any order, by any thread.
 *
 * Decoding reads all weights for every token, so they lie in huge pages (2 MiB) where the system
 * has them: with 4 KiB pages one address translation is missed every 64 cache lines. Shards lie
 * side by side in large regions; the pages of a freed one go back to the system at once and its
 * place is used again. What is held, to the page, is taken from a budget. */
#ifndef VTI_SHARD_MEMORY_H
#define VTI_SHARD_MEMORY_H

#include "budget.h"

typedef struct vti_shard_memory vti_shard_memory;

/* Beyond what is asked for, less than a page is held for every allocation, and less than
 * VTI_SHARD_MEMORY_BLOCK for every region that has been begun. */
enum { VTI_SHARD_MEMORY_BLOCK = 2 << 20, VTI_SHARD_MEMORY_REGION = 256 << 20 };
uint32_t vti_shard_memory_page_bytes(void);

typedef struct vti_shard_memory_usage {
    uint64_t allocated_bytes; /* sum of the allocations, in whole pages */
    uint64_t held_bytes;      /* what is resident once they are written; taken from the budget */
    uint64_t mapped_bytes;    /* address space of the regions */
    uint32_t allocations, regions;
} vti_shard_memory_usage;

/* Memory that counts as `category` of `budget`, which outlives it; budget NULL: not counted. One
 * device has one for its weights; there may be more. NULL: no memory. */
vti_shard_memory *vti_shard_memory_open(vti_budget *budget, vti_budget_category category);

/* Frees everything that is still allocated. NULL is fine. */
void vti_shard_memory_close(vti_shard_memory *memory);

/* `*out` gets a block of `bytes` (0 counts as 1) at the start of a page, hence 64-byte aligned, of
 * undefined content, that is expected to be written whole. `what` begins the message: VT_ERR_MEMORY
 * if the budget does not allow it, or the system has no address space. */
vt_status vti_shard_memory_allocate(vti_shard_memory *memory, uint64_t bytes, const char *what,
                                    void **out, vt_error *err);

/* A block of vti_shard_memory_allocate, that nobody reads any more. NULL is fine. */
void vti_shard_memory_free(vti_shard_memory *memory, void *block);

vti_shard_memory_usage vti_shard_memory_get(vti_shard_memory *memory);

#endif
