/* arena.h: memory for weights.
 *
 * Decoding reads all of it for every token, so it is made of huge pages where the system has them:
 * with 4 KiB pages one address translation is missed every 64 cache lines (docs/decisions.md). Pages
 * that were not handed out yet are reserved only, not resident. */
#ifndef VTI_ARENA_H
#define VTI_ARENA_H

#include <stddef.h>

typedef struct vti_arena vti_arena;

/* NULL: no memory. */
vti_arena *vti_arena_open(void);
void vti_arena_close(vti_arena *arena);

/* 64-byte aligned, zeros, valid until the arena closes. NULL: no memory. */
void *vti_arena_allocate(vti_arena *arena, size_t bytes);

#endif
