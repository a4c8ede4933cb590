#include "merge.h"

#include <stdlib.h>

vt_status vti_merge_reserve(vti_merge_scratch *scratch, size_t count, vt_error *err)
{
    if (count <= scratch->capacity) return VT_OK;
    size_t capacity = 64;
    while (capacity < count) capacity *= 2;
    vti_merge_free(scratch);
    scratch->symbols = malloc(capacity * sizeof *scratch->symbols);
    scratch->pairs = malloc(2 * capacity * sizeof *scratch->pairs);
    if (!scratch->symbols || !scratch->pairs) {
        vti_merge_free(scratch);
        return vti_fail(err, VT_ERR_MEMORY, "no memory to encode a word of %zu characters", count);
    }
    scratch->capacity = capacity;
    return VT_OK;
}

void vti_merge_free(vti_merge_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->pairs);
    *scratch = (vti_merge_scratch){0};
}

/* Children of a pair: half as many levels as with two, and children share a cache line. */
enum { ARITY = 4 };

static void sift_up(vti_pair *heap, size_t i)
{
    vti_pair pair = heap[i];
    while (i > 0 && heap[(i - 1) / ARITY].order > pair.order) {
        heap[i] = heap[(i - 1) / ARITY];
        i = (i - 1) / ARITY;
    }
    heap[i] = pair;
}

static size_t least_child(const vti_pair *heap, size_t count, size_t first)
{
    size_t least = first, end = first + ARITY < count ? first + ARITY : count;
    for (size_t i = first + 1; i < end; i++)
        if (heap[i].order < heap[least].order) least = i;
    return least;
}

static void sift_down(vti_pair *heap, size_t count, size_t i)
{
    vti_pair pair = heap[i];
    while (ARITY * i + 1 < count) {
        size_t child = least_child(heap, count, ARITY * i + 1);
        if (heap[child].order >= pair.order) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = pair;
}

typedef struct merge_run {
    vti_symbol *symbols;
    vti_pair *heap;
    size_t pairs;
    const char *text;
    vti_merge_find find;
    const void *user;
} merge_run;

/* Adds the pair that begins with symbol `left` at the end of the heap, if it can be joined. */
static bool add_pair(merge_run *run, uint32_t left)
{
    const vti_symbol *a = &run->symbols[left];
    if (a->next == VTI_NO_SYMBOL) return false;
    const vti_symbol *b = &run->symbols[a->next];
    uint32_t rank, id;
    if (!run->find(run->user, run->text, a, b, &rank, &id)) return false;
    run->heap[run->pairs++] = (vti_pair){
        .order = (uint64_t)rank << 32 | left, .bytes = a->bytes + b->bytes, .id = id};
    return true;
}

static void join(merge_run *run, uint32_t left, uint32_t id)
{
    vti_symbol *a = &run->symbols[left];
    vti_symbol *b = &run->symbols[a->next];
    a->bytes += b->bytes;
    a->id = id;
    b->bytes = 0;
    a->next = b->next;
    if (b->next != VTI_NO_SYMBOL) run->symbols[b->next].previous = left;
    if (add_pair(run, left)) sift_up(run->heap, run->pairs - 1);
    if (a->previous != VTI_NO_SYMBOL && add_pair(run, a->previous))
        sift_up(run->heap, run->pairs - 1);
}

static void link_symbols(vti_symbol *symbols, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        symbols[i].previous = i == 0 ? VTI_NO_SYMBOL : (uint32_t)(i - 1);
        symbols[i].next = i + 1 == count ? VTI_NO_SYMBOL : (uint32_t)(i + 1);
    }
}

/* A pair's length only ever grows, so a pair whose length is still the same has not changed. */
static bool is_current(const vti_symbol *symbols, uint32_t left, uint32_t bytes)
{
    const vti_symbol *a = &symbols[left];
    return a->bytes > 0 && a->next != VTI_NO_SYMBOL &&
           a->bytes + symbols[a->next].bytes == bytes;
}

void vti_merge(vti_merge_scratch *scratch, const char *text, size_t count, vti_merge_find find,
               const void *user)
{
    merge_run run = {.symbols = scratch->symbols, .heap = scratch->pairs, .text = text,
                     .find = find, .user = user};
    link_symbols(run.symbols, count);
    for (size_t i = 0; i + 1 < count; i++) add_pair(&run, (uint32_t)i);
    for (size_t i = (run.pairs + ARITY - 2) / ARITY; i-- > 0;) sift_down(run.heap, run.pairs, i);
    /* Each join takes one pair out and brings at most two: there are never 2 * count of them. */
    while (run.pairs > 0) {
        vti_pair best = run.heap[0];
        run.heap[0] = run.heap[--run.pairs];
        if (run.pairs > 0) sift_down(run.heap, run.pairs, 0);
        uint32_t left = (uint32_t)best.order;
        if (is_current(run.symbols, left, best.bytes)) join(&run, left, best.id);
    }
}
