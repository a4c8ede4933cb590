#include "load_queue.h"

#include <stdlib.h>

static bool before(const vti_load_item *a, const vti_load_item *b)
{
    if (a->cancelled != b->cancelled) return a->cancelled;
    if (a->request.priority != b->request.priority)
        return a->request.priority < b->request.priority;
    return a->ticket < b->ticket;
}

static void swap(vti_load_item *a, vti_load_item *b)
{
    vti_load_item item = *a;
    *a = *b;
    *b = item;
}

static void sift_down(vti_load_queue *q, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < q->count; child++)
            if (before(&q->heap[child], &q->heap[least])) least = child;
        if (least == at) return;
        swap(&q->heap[at], &q->heap[least]);
        at = least;
    }
}

bool vti_load_queue_push(vti_load_queue *q, const vti_load_item *item)
{
    if (q->count == q->capacity) {
        size_t capacity = q->capacity ? 2 * q->capacity : 64;
        vti_load_item *heap = realloc(q->heap, capacity * sizeof *heap);
        if (!heap) return false;
        q->heap = heap;
        q->capacity = capacity;
    }
    size_t at = q->count++;
    q->heap[at] = *item;
    for (; at && before(&q->heap[at], &q->heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&q->heap[at], &q->heap[(at - 1) / 2]);
    return true;
}

vti_load_item vti_load_queue_pop(vti_load_queue *q)
{
    vti_load_item first = q->heap[0];
    q->heap[0] = q->heap[--q->count];
    sift_down(q, 0);
    return first;
}

void vti_load_queue_cancel(vti_load_queue *q, bool (*matches)(const vti_load_item *, uint64_t),
                           uint64_t key)
{
    for (size_t i = 0; i < q->count; i++)
        if (matches(&q->heap[i], key)) q->heap[i].cancelled = true;
    for (size_t i = q->count / 2; i-- > 0;) sift_down(q, i);
}

void vti_load_queue_free(vti_load_queue *q) { free(q->heap); }
