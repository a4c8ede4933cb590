/* gguf_split.c: models in several files, NAME-00001-of-00003.gguf and so on.
 *
 * split.count and split.no (from 0) say of a file which part it is; the first one has all metadata, and
 * split.tensors.count the number of tensors of all. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_internal.h"

/* "-00001-of-00003.gguf" */
enum { SUFFIX_BYTES = 20, MOST_PARTS = 65535 /* split.no is of 16 bits */ };

typedef struct split {
    uint32_t number, count; /* number from 0 */
    uint32_t tensors;       /* of all parts; UINT32_MAX: not said */
} split;

static vt_status read_split(const vt_gguf *gguf, split *out, vt_error *err)
{
    *out = (split){0, 1, UINT32_MAX};
    VTI_TRY(vti_gguf_get_u32(gguf, "split.count", false, &out->count, err));
    if (out->count < 2) return VT_OK; /* whole: 0 and 1 are both in use */
    VTI_TRY(vti_gguf_get_u32(gguf, "split.no", true, &out->number, err));
    VTI_TRY(vti_gguf_get_u32(gguf, "split.tensors.count", false, &out->tensors, err));
    if (out->count <= MOST_PARTS && out->number < out->count) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT,
                    "%s: split.no %" PRIu32 " and split.count %" PRIu32
                    " do not fit, expected a number below the count and at most %d parts",
                    gguf->shown_name, out->number, out->count, MOST_PARTS);
}

static void put_suffix(char *out, uint32_t number, uint32_t count)
{
    snprintf(out, SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (number + 1) % 100000, count % 100000);
}

/* Bytes of the path before the suffix. */
static vt_status find_stem(const vt_gguf *gguf, const split *s, size_t *out, vt_error *err)
{
    char suffix[SUFFIX_BYTES + 1];
    size_t bytes = strlen(gguf->name);
    put_suffix(suffix, s->number, s->count);
    *out = bytes - SUFFIX_BYTES;
    if (bytes >= SUFFIX_BYTES && strcmp(gguf->name + *out, suffix) == 0) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT,
                    "%s: this is part %" PRIu32 " of %" PRIu32
                    " of a model; its name must end with %s so that the others are found",
                    gguf->shown_name, s->number + 1, s->count, suffix);
}

/* --- one part --------------------------------------------------------------------------------- */

static vt_status check_part(const vt_gguf *part, const split *wanted, vt_error *err)
{
    split s;
    VTI_TRY(read_split(part, &s, err));
    if (s.count < 2)
        return vti_fail(err, VT_ERR_FORMAT, "%s: this is no part of a model, it has no split.count",
                        part->shown_name);
    if (s.count != wanted->count)
        return vti_fail(err, VT_ERR_FORMAT,
                        "%s: split.count is %" PRIu32 ", in another part it is %" PRIu32,
                        part->shown_name, s.count, wanted->count);
    if (s.number != wanted->number)
        return vti_fail(err, VT_ERR_FORMAT,
                        "%s: split.no is %" PRIu32 ": part %" PRIu32 ", expected part %" PRIu32,
                        part->shown_name, s.number, s.number + 1, wanted->number + 1);
    return VT_OK;
}

/* Part `wanted->number` of the model that `opened` is a part of. */
static vt_status open_part(const vt_gguf *opened, size_t stem, const split *wanted, vt_gguf **out,
                           vt_error *err)
{
    char *path = malloc(stem + SUFFIX_BYTES + 1);
    if (!path) return vti_fail(err, VT_ERR_MEMORY, "no memory for a file name");
    memcpy(path, opened->name, stem);
    put_suffix(path + stem, wanted->number, wanted->count);
    vt_error why = {0};
    vt_status status = vti_gguf_open_file(path, out, &why);
    free(path);
    if (status == VT_OK) status = check_part(*out, wanted, &why);
    if (status == VT_OK) return VT_OK;
    return vti_fail(err, status, "part %" PRIu32 " of %" PRIu32 " of the model: %s",
                    wanted->number + 1, wanted->count, why.message);
}

/* --- all of them ------------------------------------------------------------------------------ */

static int compare_names(const void *left, const void *right)
{
    const vti_gguf_tensor *a = *(vti_gguf_tensor *const *)left;
    const vti_gguf_tensor *b = *(vti_gguf_tensor *const *)right;
    return strcmp(a->name, b->name);
}

static vt_status sort_names(vt_gguf *model, vt_gguf **parts, vt_error *err)
{
    for (uint64_t i = 0; i < model->tensor_count; i++) model->by_name[i] = &model->tensors[i];
    qsort(model->by_name, (size_t)model->tensor_count, sizeof *model->by_name, compare_names);
    for (uint64_t i = 1; i < model->tensor_count; i++) {
        const vti_gguf_tensor *a = model->by_name[i - 1], *b = model->by_name[i];
        if (strcmp(a->name, b->name) == 0)
            return vti_fail(err, VT_ERR_FORMAT, "tensor '%s' is in %s and in %s", a->name,
                            parts[a->part]->shown_name, parts[b->part]->shown_name);
    }
    return VT_OK;
}

/* The first part takes over the tensors of all. */
static vt_status merge_tensors(vt_gguf **parts, const split *s, vt_error *err)
{
    vt_gguf *model = parts[0];
    uint64_t total = 0;
    for (uint32_t i = 0; i < s->count; i++) total += parts[i]->tensor_count;
    if (s->tensors != UINT32_MAX && s->tensors != total)
        return vti_fail(err, VT_ERR_FORMAT,
                        "%s: split.tensors.count is %" PRIu32 ", but the parts have %" PRIu64
                        " tensors",
                        model->shown_name, s->tensors, total);
    vti_gguf_tensor *tensors = realloc(model->tensors, ((size_t)total + 1) * sizeof *tensors);
    if (tensors) model->tensors = tensors;
    vti_gguf_tensor **by_name = realloc(model->by_name, ((size_t)total + 1) * sizeof *by_name);
    if (by_name) model->by_name = by_name;
    if (!tensors || !by_name)
        return vti_fail(err, VT_ERR_MEMORY, "%s: no memory for %" PRIu64 " tensors",
                        model->shown_name, total);
    for (uint32_t i = 1; i < s->count; i++) {
        for (uint64_t j = 0; j < parts[i]->tensor_count; j++) {
            vti_gguf_tensor *to = &model->tensors[model->tensor_count++];
            *to = parts[i]->tensors[j];
            to->part = i;
        }
        parts[i]->tensor_count = 0; /* their names are the model's now */
    }
    return sort_names(model, parts, err);
}

static vt_status open_parts(vt_gguf *opened, vt_gguf **parts, const split *s, vt_error *err)
{
    size_t stem;
    split first, wanted = *s;
    VTI_TRY(find_stem(opened, s, &stem, err));
    for (wanted.number = 0; wanted.number < s->count; wanted.number++)
        if (!parts[wanted.number])
            VTI_TRY(open_part(opened, stem, &wanted, &parts[wanted.number], err));
    VTI_TRY(read_split(parts[0], &first, err));
    return merge_tensors(parts, &first, err);
}

vt_status vti_gguf_join_parts(vt_gguf *opened, vt_gguf **out, vt_error *err)
{
    split s;
    vt_status status = read_split(opened, &s, err);
    if (status == VT_OK && s.count < 2) {
        *out = opened;
        return VT_OK;
    }
    vt_gguf **parts = status == VT_OK ? calloc(s.count, sizeof *parts) : NULL;
    if (!parts) {
        vt_gguf_close(opened);
        return status != VT_OK ? status : vti_fail(err, VT_ERR_MEMORY, "no memory for the parts");
    }
    parts[s.number] = opened;
    status = open_parts(opened, parts, &s, err);
    if (status == VT_OK) {
        *out = parts[0];
        (*out)->parts = parts;
        (*out)->part_count = s.count;
        return VT_OK;
    }
    for (uint32_t i = 0; i < s.count; i++) vt_gguf_close(parts[i]);
    free(parts);
    return status;
}

vt_status vti_gguf_refuse_part(const vt_gguf *gguf, vt_error *err)
{
    split s;
    VTI_TRY(read_split(gguf, &s, err));
    if (s.count < 2) return VT_OK;
    return vti_fail(err, VT_ERR_UNSUPPORTED,
                    "%s: this is part %" PRIu32 " of %" PRIu32
                    " of a model; only from files can the others be read too",
                    gguf->shown_name, s.number + 1, s.count);
}
