#include "gguf_internal.h"
#include "weight_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Alignment of data in memory; tensor data is at least as aligned. */
#define DATA_ALIGNMENT VTI_GGUF_MIN_ALIGNMENT

static void shorten_name(char *shown, size_t capacity, const char *name)
{
    size_t bytes = strlen(name);
    if (bytes < capacity) {
        memcpy(shown, name, bytes + 1);
        return;
    }
    const char *end = name + bytes - (capacity - sizeof "...");
    while ((*end & 0xc0) == 0x80) end++; /* not from the middle of a character */
    snprintf(shown, capacity, "...%s", end);
}

static vt_status create(const char *name, vt_gguf **out, vt_error *err)
{
    vt_gguf *gguf = calloc(1, sizeof *gguf);
    if (gguf) gguf->name = strdup(name);
    if (!gguf || !gguf->name) {
        free(gguf);
        return vti_fail(err, VT_ERR_MEMORY, "%s: no memory to open the file", name);
    }
    shorten_name(gguf->shown_name, sizeof gguf->shown_name, name);
    *out = gguf;
    return VT_OK;
}

static vt_status parse_or_close(vt_gguf *gguf, const void *data, size_t data_bytes, vt_gguf **out,
                                vt_error *err)
{
    gguf->data = data;
    gguf->data_bytes = data_bytes;
    vt_status status = vti_gguf_parse(gguf, err);
    if (status == VT_OK)
        *out = gguf;
    else
        vt_gguf_close(gguf);
    return status;
}

vt_status vti_gguf_open_file(const char *path, vt_gguf **out, vt_error *err)
{
    vti_mapped_file file;
    VTI_TRY(vti_mapped_file_open(path, &file, err));
    vt_gguf *gguf;
    vt_status status = create(path, &gguf, err);
    if (status != VT_OK) {
        vti_mapped_file_close(&file);
        return status;
    }
    gguf->file = file;
    gguf->facts = file.facts;
    return parse_or_close(gguf, file.data, file.bytes, out, err);
}

vt_status vt_gguf_open(const char *path, vt_gguf **out, vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_gguf_open: out is NULL");
    *out = NULL;
    vt_gguf *opened;
    VTI_TRY(vti_gguf_open_file(path, &opened, err));
    return vti_gguf_join_parts(opened, out, err);
}

static vt_status open_memory(const void *data, size_t data_bytes, const char *name,
                             bool directory_only, vt_gguf **out, vt_error *err)
{
    *out = NULL;
    if (!data) return vti_fail(err, VT_ERR_ARGUMENT, "%s: no data was given", name);
    if ((uintptr_t)data % DATA_ALIGNMENT != 0)
        return vti_fail(err, VT_ERR_ARGUMENT, "%s: data at address %p, expected a multiple of %u",
                        name, data, DATA_ALIGNMENT);
    vt_gguf *gguf;
    VTI_TRY(create(name, &gguf, err));
    gguf->directory_only = directory_only;
    VTI_TRY(parse_or_close(gguf, data, data_bytes, &gguf, err));
    vt_status status = vti_gguf_refuse_part(gguf, err);
    if (status == VT_OK)
        *out = gguf;
    else
        vt_gguf_close(gguf);
    return status;
}

vt_status vti_gguf_open_memory(const void *data, size_t data_bytes, const char *name, vt_gguf **out,
                               vt_error *err)
{
    return open_memory(data, data_bytes, name, false, out, err);
}

vt_status vti_gguf_open_directory(const void *data, size_t data_bytes, const char *name,
                                  vt_gguf **out, vt_error *err)
{
    return open_memory(data, data_bytes, name, true, out, err);
}

void vti_gguf_place(vt_gguf *gguf, const char *tensor, const void *data)
{
    vti_gguf_tensor *found = (vti_gguf_tensor *)vti_gguf_find_tensor(gguf, tensor);
    if (found) found->data = data;
}

void vt_gguf_close(vt_gguf *gguf)
{
    if (!gguf) return;
    for (uint32_t i = 1; i < gguf->part_count; i++) vt_gguf_close(gguf->parts[i]);
    free(gguf->parts);
    for (uint64_t i = 0; i < gguf->entry_count; i++) free(gguf->entries[i].key);
    for (uint64_t i = 0; i < gguf->tensor_count; i++) free(gguf->tensors[i].name);
    free(gguf->entries);
    free(gguf->by_key);
    free(gguf->tensors);
    free(gguf->by_name);
    vti_mapped_file_close(&gguf->file);
    free(gguf->name);
    free(gguf);
}

void vti_gguf_set_file(vt_gguf *gguf, const vti_file_facts *facts) { gguf->facts = *facts; }

const vti_file_facts *vti_gguf_part_file(const vt_gguf *gguf, uint32_t index)
{
    return gguf->parts ? &gguf->parts[index]->facts : &gguf->facts;
}

const char *vti_gguf_name(const vt_gguf *gguf) { return gguf->name; }

void vti_gguf_let_go(const vt_gguf *gguf)
{
    if (!gguf->parts) vti_mapped_file_let_go(&gguf->file);
    for (uint32_t i = 0; gguf->parts && i < gguf->part_count; i++)
        vti_mapped_file_let_go(&gguf->parts[i]->file);
}

uint32_t vt_gguf_version(const vt_gguf *gguf) { return gguf->version; }

uint32_t vt_gguf_part_count(const vt_gguf *gguf) { return gguf->parts ? gguf->part_count : 1; }

const char *vt_gguf_part_name(const vt_gguf *gguf, uint32_t index)
{
    if (index >= vt_gguf_part_count(gguf)) return NULL;
    return gguf->parts ? gguf->parts[index]->name : gguf->name;
}

uint64_t vt_gguf_entry_count(const vt_gguf *gguf) { return gguf->entry_count; }

uint64_t vt_gguf_tensor_count(const vt_gguf *gguf) { return gguf->tensor_count; }

vt_status vt_gguf_get_entry(const vt_gguf *gguf, uint64_t index, vt_gguf_entry *out)
{
    if (index >= gguf->entry_count) return VT_ERR_ARGUMENT;
    const vti_gguf_entry *entry = &gguf->entries[index];
    *out = (vt_gguf_entry){entry->key, entry->type_text, entry->value.count};
    return VT_OK;
}

vt_status vt_gguf_get_tensor(const vt_gguf *gguf, uint64_t index, vt_gguf_tensor *out)
{
    if (index >= gguf->tensor_count) return VT_ERR_ARGUMENT;
    const vti_gguf_tensor *tensor = &gguf->tensors[index];
    vti_weight_type type;
    const vti_conversion *conversion;
    bool loads = vti_weight_type_find(tensor->type, &type, &conversion);
    *out = (vt_gguf_tensor){
        .name = tensor->name,
        .type = vti_ggml_type_find(tensor->type)->name,
        .loads_as = loads ? vti_weight_type_name(type) : NULL,
        .dimension_count = tensor->dimension_count,
        .part = tensor->part,
        .offset_bytes = tensor->offset_bytes,
        .size_bytes = tensor->size_bytes,
    };
    memcpy(out->dimensions, tensor->dimensions, sizeof out->dimensions);
    return VT_OK;
}

static int compare_with_key(const void *key, const void *element)
{
    return strcmp(key, (*(vti_gguf_entry *const *)element)->key);
}

const vti_gguf_value *vti_gguf_find(const vt_gguf *gguf, const char *key)
{
    vti_gguf_entry **found = bsearch(key, gguf->by_key, (size_t)gguf->entry_count,
                                     sizeof *gguf->by_key, compare_with_key);
    return found ? &(*found)->value : NULL;
}

static int compare_with_name(const void *name, const void *element)
{
    return strcmp(name, (*(vti_gguf_tensor *const *)element)->name);
}

const vti_gguf_tensor *vti_gguf_find_tensor(const vt_gguf *gguf, const char *name)
{
    vti_gguf_tensor **found = bsearch(name, gguf->by_name, (size_t)gguf->tensor_count,
                                      sizeof *gguf->by_name, compare_with_name);
    return found ? *found : NULL;
}
