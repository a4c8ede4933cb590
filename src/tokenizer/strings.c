#include "strings.h"

#include <stdlib.h>
#include <string.h>

vt_status vti_strings_init(vti_strings *strings, uint32_t count, size_t bytes, vt_error *err)
{
    *strings = (vti_strings){.data = malloc(bytes + 1),
                             .offsets = calloc((size_t)count + 1, sizeof *strings->offsets)};
    if (strings->data && strings->offsets) return VT_OK;
    vti_strings_free(strings);
    return vti_fail(err, VT_ERR_MEMORY, "no memory for %u strings of %zu bytes", count, bytes);
}

void vti_strings_free(vti_strings *strings)
{
    free(strings->data);
    free(strings->offsets);
    *strings = (vti_strings){0};
}

void vti_strings_add(vti_strings *strings, const char *data, size_t bytes)
{
    uint32_t end = strings->offsets[strings->count];
    memcpy(strings->data + end, data, bytes);
    strings->offsets[++strings->count] = end + (uint32_t)bytes;
}

/* Folds eight bytes at a time through the 128-bit product of a multiplication. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t vti_hash(const char *data, size_t bytes)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ bytes, tail = 0;
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        hash = mix(hash ^ word, 0xD6E8FEB86659FD93u);
    }
    memcpy(&tail, data, bytes);
    return mix(hash ^ tail, 0xA0761D6478BD642Fu);
}

vt_status vti_string_map_init(vti_string_map *map, const vti_strings *strings, vt_error *err)
{
    size_t slots = 16;
    while (slots < 2 * (size_t)strings->count) slots *= 2;
    *map = (vti_string_map){.strings = strings,
                            .slots = calloc(slots, sizeof *map->slots),
                            .mask = (uint32_t)(slots - 1)};
    if (map->slots) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY, "no memory for a table of %u strings", strings->count);
}

void vti_string_map_free(vti_string_map *map)
{
    free(map->slots);
    *map = (vti_string_map){0};
}

/* The slot that holds the string, or the empty one where it would go. */
static uint64_t *find_slot(const vti_string_map *map, const char *data, size_t bytes, uint64_t hash)
{
    uint32_t high = (uint32_t)(hash >> 32);
    for (uint32_t i = (uint32_t)hash & map->mask;; i = (i + 1) & map->mask) {
        uint64_t *slot = &map->slots[i];
        if (*slot == 0) return slot;
        if ((uint32_t)(*slot >> 32) != high) continue;
        size_t length;
        const char *string = vti_strings_get(map->strings, (uint32_t)*slot - 1, &length);
        if (length == bytes && memcmp(string, data, bytes) == 0) return slot;
    }
}

void vti_string_map_add(vti_string_map *map, uint32_t id)
{
    size_t bytes;
    const char *data = vti_strings_get(map->strings, id, &bytes);
    uint64_t hash = vti_hash(data, bytes);
    uint64_t *slot = find_slot(map, data, bytes, hash);
    if (*slot == 0) *slot = (hash >> 32) << 32 | (id + 1);
}

uint32_t vti_string_map_find(const vti_string_map *map, const char *data, size_t bytes)
{
    uint64_t slot = *find_slot(map, data, bytes, vti_hash(data, bytes));
    return slot == 0 ? VTI_NO_ID : (uint32_t)slot - 1;
}
