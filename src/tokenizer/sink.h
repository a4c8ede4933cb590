/* sink.h: where encoders put tokens. Counts on when the caller's room is full. */
#ifndef VTI_SINK_H
#define VTI_SINK_H

#include "../error.h"

typedef struct vti_sink {
    vt_token *tokens;
    size_t capacity;
    size_t count; /* tokens put, stored or not */
} vti_sink;

static inline void vti_sink_put(vti_sink *sink, uint32_t id)
{
    if (sink->count < sink->capacity) sink->tokens[sink->count] = (vt_token)id;
    sink->count++;
}

#endif
