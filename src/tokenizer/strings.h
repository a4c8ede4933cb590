/* strings.h: many byte strings in one block, numbered from 0, and a hash table from string to
 * number. */
#ifndef VTI_STRINGS_H
#define VTI_STRINGS_H

#include "../error.h"

#define VTI_NO_ID UINT32_MAX

typedef struct vti_strings {
    char *data;
    uint32_t *offsets; /* count + 1 entries: string i is data[offsets[i], offsets[i + 1]) */
    uint32_t count;
} vti_strings;

/* Makes room for `count` strings of `bytes` bytes in all (< 4 GiB, the caller checks). */
vt_status vti_strings_init(vti_strings *strings, uint32_t count, size_t bytes, vt_error *err);
void vti_strings_free(vti_strings *strings);

/* Adds the next string; the room made by init must suffice. */
void vti_strings_add(vti_strings *strings, const char *data, size_t bytes);

static inline const char *vti_strings_get(const vti_strings *strings, uint32_t id, size_t *bytes)
{
    *bytes = strings->offsets[id + 1] - strings->offsets[id];
    return strings->data + strings->offsets[id];
}

uint64_t vti_hash(const char *data, size_t bytes);

/* Open addressing; a slot is the high half of the hash and id + 1, or 0. */
typedef struct vti_string_map {
    const vti_strings *strings;
    uint64_t *slots;
    uint32_t mask;
} vti_string_map;

/* An empty map for any of the strings' ids. */
vt_status vti_string_map_init(vti_string_map *map, const vti_strings *strings, vt_error *err);
void vti_string_map_free(vti_string_map *map);

/* Adds string `id` unless an equal one is there. */
void vti_string_map_add(vti_string_map *map, uint32_t id);

/* VTI_NO_ID if there is none. */
uint32_t vti_string_map_find(const vti_string_map *map, const char *data, size_t bytes);

#endif
