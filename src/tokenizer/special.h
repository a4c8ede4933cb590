/* special.h: finds tokens that stand in the text by their own name. */
#ifndef VTI_SPECIAL_H
#define VTI_SPECIAL_H

#include "strings.h"

/* A set of tokens, sorted by their bytes; find narrows the range byte by byte. */
typedef struct vti_special_set {
    const vti_strings *texts;
    uint32_t *ids;
    uint32_t count;
    uint32_t first[257]; /* ids[first[b], first[b + 1]) begin with byte b */
} vti_special_set;

typedef struct vti_special_match {
    size_t start, bytes; /* start is the end of the text if nothing was found */
    uint32_t id;
} vti_special_match;

/* Makes a set of the `count` given tokens; copies `ids`. Empty texts never match. */
vt_status vti_special_init(vti_special_set *set, const vti_strings *texts, const uint32_t *ids,
                           uint32_t count, vt_error *err);
void vti_special_free(vti_special_set *set);

/* The first place at or after `from` where a token of the set stands, and the longest one there. */
vti_special_match vti_special_find(const vti_special_set *set, const char *text, size_t bytes,
                                   size_t from);

#endif
