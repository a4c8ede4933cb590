/* merge.h: what all byte-pair encodings share: joining neighbours, best rank first, leftmost first
 * among equals, in O(n log n). */
#ifndef VTI_MERGE_H
#define VTI_MERGE_H

#include "strings.h"

/* A part of the text that is one symbol. Linked, because symbols vanish when they are joined. */
typedef struct vti_symbol {
    uint32_t start, bytes; /* in the text; bytes 0: joined to an earlier one */
    uint32_t id;           /* its token, or VTI_NO_ID */
    uint32_t previous, next;
} vti_symbol;

typedef struct vti_pair {
    uint64_t order; /* rank above, place of the left symbol below */
    uint32_t bytes; /* of both symbols when the pair was found: shows whether it has changed */
    uint32_t id;    /* of the joined symbol */
} vti_pair;

/* Working memory of one encode call. Zero-initialise. */
typedef struct vti_merge_scratch {
    vti_symbol *symbols;
    vti_pair *pairs; /* a heap, smallest order on top */
    size_t capacity; /* symbols; pairs has twice that */
} vti_merge_scratch;

/* Rank (smaller joins earlier) and id of what `left` and `right` become, or false. */
typedef bool (*vti_merge_find)(const void *user, const char *text, const vti_symbol *left,
                               const vti_symbol *right, uint32_t *rank, uint32_t *id);

#define VTI_NO_SYMBOL UINT32_MAX

/* Makes room for `count` symbols; ERR_MEMORY. */
vt_status vti_merge_reserve(vti_merge_scratch *scratch, size_t count, vt_error *err);
void vti_merge_free(vti_merge_scratch *scratch);

/* Joins the first `count` symbols (start, bytes and id are set, links are not) as far as it goes.
 * Symbol 0 then begins the chain of what is left. count > 0. */
void vti_merge(vti_merge_scratch *scratch, const char *text, size_t count, vti_merge_find find,
               const void *user);

#endif
