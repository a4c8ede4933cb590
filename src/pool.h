/* pool.h: the threads that compute.
 *
 * Threads are made once and wait for work: they look for it for some tens of microseconds (the next
 * matrix of a token usually comes sooner), then sleep. The caller works along. Work is cut into
 * chunks that are taken one by one, so that a slow core takes fewer of them. */
#ifndef VTI_POOL_H
#define VTI_POOL_H

#include "error.h"

typedef struct vti_pool vti_pool;

/* Does units [begin, end) of a job. */
typedef void vti_work_fn(void *context, size_t begin, size_t end);

/* Threads that it makes sense to use: the cores this process may run on, of a big.LITTLE machine
 * only the big ones. At least 1. */
uint32_t vti_pool_default_threads(void);

/* A pool of `threads` (0: the default) including the caller: threads - 1 are made. */
vt_status vti_pool_open(uint32_t threads, vti_pool **out, vt_error *err);
void vti_pool_close(vti_pool *pool);

/* 1 for NULL. */
uint32_t vti_pool_threads(const vti_pool *pool);

/* Calls work for all of [0, units) in pieces of at least `grain` units and returns when all is done.
 * A pool that is busy with another caller's job, or NULL: everything is done by the caller. */
void vti_pool_run(vti_pool *pool, size_t units, size_t grain, vti_work_fn *work, void *context);

#endif
