/* load_queue.h: requests for shards in the order in which they are served. */
#ifndef VTI_LOAD_QUEUE_H
#define VTI_LOAD_QUEUE_H

#include "shard_loader.h"

typedef struct vti_load_item {
    vti_load_request request;
    uint64_t ticket; /* in the order of their making */
    bool cancelled;  /* comes first: it only has to be reported */
} vti_load_item;

/* All zero: empty. */
typedef struct vti_load_queue {
    vti_load_item *heap;
    size_t count, capacity;
} vti_load_queue;

bool vti_load_queue_push(vti_load_queue *queue, const vti_load_item *item); /* false: no memory */
vti_load_item vti_load_queue_pop(vti_load_queue *queue); /* count > 0 */

/* Marks what `matches` as cancelled. */
void vti_load_queue_cancel(vti_load_queue *queue,
                           bool (*matches)(const vti_load_item *item, uint64_t key), uint64_t key);

void vti_load_queue_free(vti_load_queue *queue);

#endif
