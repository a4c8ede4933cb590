#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Big, so that few tensors meet an end: what is left there of a huge page is lost. */
enum { ALIGNMENT = 64, HUGE_PAGE_BYTES = 2 << 20, CHUNK_BYTES = 256 << 20 };

typedef struct chunk {
    struct chunk *next;
    unsigned char *mapped, *begin; /* begin: the first huge page of it */
    size_t mapped_bytes, bytes, used;
} chunk;

struct vti_arena {
    chunk *chunks; /* newest first */
};

vti_arena *vti_arena_open(void) { return calloc(1, sizeof(vti_arena)); }

void vti_arena_close(vti_arena *arena)
{
    if (!arena) return;
    for (chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        munmap(c->mapped, c->mapped_bytes);
        free(c);
    }
    free(arena);
}

static size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

static chunk *new_chunk(size_t bytes)
{
    chunk *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->bytes = rounded_up(bytes, HUGE_PAGE_BYTES);
    c->mapped_bytes = c->bytes + HUGE_PAGE_BYTES;
    void *mapped = mmap(NULL, c->mapped_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        free(c);
        return NULL;
    }
    c->mapped = mapped;
    c->begin = c->mapped + (HUGE_PAGE_BYTES - (uintptr_t)mapped % HUGE_PAGE_BYTES);
#ifdef MADV_HUGEPAGE
    madvise(c->begin, c->bytes, MADV_HUGEPAGE); /* refused: small pages do */
#endif
    return c;
}

static chunk *chunk_with(vti_arena *arena, size_t bytes)
{
    for (chunk *c = arena->chunks; c; c = c->next)
        if (c->bytes - c->used >= bytes) return c;
    chunk *c = new_chunk(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
    if (!c) return NULL;
    c->next = arena->chunks;
    arena->chunks = c;
    return c;
}

void *vti_arena_allocate(vti_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - 2 * (size_t)HUGE_PAGE_BYTES) return NULL;
    bytes = rounded_up(bytes ? bytes : 1, ALIGNMENT);
    chunk *c = chunk_with(arena, bytes);
    if (!c) return NULL;
    void *data = c->begin + c->used;
    c->used += bytes;
    return data;
}
