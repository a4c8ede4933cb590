#include "special.h"

#include <stdlib.h>
#include <string.h>

static int compare_texts(const vti_strings *texts, uint32_t a, uint32_t b)
{
    size_t a_bytes, b_bytes;
    const char *a_text = vti_strings_get(texts, a, &a_bytes);
    const char *b_text = vti_strings_get(texts, b, &b_bytes);
    int order = memcmp(a_text, b_text, a_bytes < b_bytes ? a_bytes : b_bytes);
    if (order != 0) return order;
    if (a_bytes != b_bytes) return a_bytes < b_bytes ? -1 : 1;
    return a < b ? -1 : a > b; /* of equal texts the lowest id comes first */
}

static int compare_ids(const void *a, const void *b, void *texts)
{
    return compare_texts(texts, *(const uint32_t *)a, *(const uint32_t *)b);
}

vt_status vti_special_init(vti_special_set *set, const vti_strings *texts, const uint32_t *ids,
                           uint32_t count, vt_error *err)
{
    *set = (vti_special_set){.texts = texts};
    set->ids = malloc((count + (size_t)1) * sizeof *set->ids);
    if (!set->ids) return vti_fail(err, VT_ERR_MEMORY, "no memory for %u special tokens", count);
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes;
        const char *text = vti_strings_get(texts, ids[i], &bytes);
        if (bytes == 0) continue;
        set->ids[set->count++] = ids[i];
        set->first[(unsigned char)text[0] + 1]++;
    }
    for (size_t i = 1; i < 257; i++) set->first[i] += set->first[i - 1];
    qsort_r(set->ids, set->count, sizeof *set->ids, compare_ids, (void *)texts);
    return VT_OK;
}

void vti_special_free(vti_special_set *set)
{
    free(set->ids);
    *set = (vti_special_set){0};
}

/* First index in [low, high) whose text has more than `depth` bytes and byte `depth` >= `byte`;
 * texts in the range agree in their first `depth` bytes. */
static uint32_t lower_bound(const vti_special_set *set, uint32_t low, uint32_t high, size_t depth,
                            unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        size_t bytes;
        const char *text = vti_strings_get(set->texts, set->ids[middle], &bytes);
        if (bytes > depth && (unsigned char)text[depth] >= byte)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Longest token of ids[low, high), which all begin with text[0], that begins `text`. */
static uint32_t longest_match(const vti_special_set *set, uint32_t low, uint32_t high,
                              const char *text, size_t bytes, size_t *match_bytes)
{
    uint32_t best = VTI_NO_ID;
    for (size_t depth = 1; low < high; depth++) {
        size_t length;
        vti_strings_get(set->texts, set->ids[low], &length);
        if (length == depth) { /* the shortest of a range comes first */
            best = set->ids[low];
            *match_bytes = depth;
        }
        if (depth == bytes) break;
        unsigned byte = (unsigned char)text[depth];
        uint32_t start = lower_bound(set, low, high, depth, byte);
        high = lower_bound(set, start, high, depth, byte + 1);
        low = start;
    }
    return best;
}

vti_special_match vti_special_find(const vti_special_set *set, const char *text, size_t bytes,
                                   size_t from)
{
    vti_special_match match = {.start = bytes, .id = VTI_NO_ID};
    for (size_t i = from; i < bytes && set->count > 0; i++) {
        const uint32_t *range = &set->first[(unsigned char)text[i]];
        if (range[0] == range[1]) continue;
        match.id = longest_match(set, range[0], range[1], text + i, bytes - i, &match.bytes);
        if (match.id == VTI_NO_ID) continue;
        match.start = i;
        break;
    }
    return match;
}
