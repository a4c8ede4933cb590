/* profile_reader.h: how fast memory is read right now, by all threads. */
#ifndef VTI_PROFILE_READER_H
#define VTI_PROFILE_READER_H

#include "pool.h"

typedef struct vti_reader vti_reader;

/* A buffer of `bytes`, more than the cache has. */
vt_status vti_reader_open(vti_pool *pool, uint64_t bytes, vti_reader **out, vt_error *err);
void vti_reader_close(vti_reader *reader);

/* Bytes per second, from reading the next part of the buffer once. */
double vti_reader_rate(vti_reader *reader);

/* Bytes of the last level of cache; a guess where the system does not tell. */
uint64_t vti_cache_bytes(void);

#endif
