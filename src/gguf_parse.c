#include "gguf_internal.h"
#include "little_endian.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Smallest entry: key length, one character, type, one byte. Smallest tensor: name length, one
 * character, number of dimensions (0), type, offset. */
#define MIN_ENTRY_BYTES (8 + 1 + 4 + 1)
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 4 + 8)
#define COUNTS_BYTES 16

/* ---- header ---------------------------------------------------------------------------------- */

static vt_status check_magic(vti_gguf_cursor *cursor)
{
    const unsigned char *magic;
    VTI_TRY(vti_gguf_take(cursor, "magic number", 4, 1, &magic));
    if (memcmp(magic, "GGUF", 4) == 0) return VT_OK;
    if (memcmp(magic, "FUGG", 4) == 0)
        return vti_gguf_fail(cursor, VT_ERR_UNSUPPORTED,
                             "this is a big-endian GGUF file, only little-endian ones can be read");
    if (memcmp(magic, "lmgg", 4) == 0 || memcmp(magic, "fmgg", 4) == 0 ||
        memcmp(magic, "tjgg", 4) == 0)
        return vti_gguf_fail(cursor, VT_ERR_UNSUPPORTED,
                             "this is a GGML file, the format before GGUF; a GGUF file is needed");
    return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                         "this is not a GGUF file: it starts with the bytes %02x %02x %02x %02x, "
                         "expected 47 47 55 46 (\"GGUF\")",
                         magic[0], magic[1], magic[2], magic[3]);
}

static vt_status check_version(vti_gguf_cursor *cursor, uint32_t *version)
{
    VTI_TRY(vti_gguf_take_u32(cursor, "version", version));
    if (*version == 2 || *version == 3) return VT_OK;
    /* No version will ever need the upper half: the bytes are the wrong way round. */
    if (*version != 0 && (*version & 0xffff) == 0)
        return vti_gguf_fail(cursor, VT_ERR_UNSUPPORTED,
                             "this is a big-endian GGUF file, only little-endian ones can be read");
    return vti_gguf_fail(cursor, VT_ERR_UNSUPPORTED,
                         "GGUF version %" PRIu32 " cannot be read, only versions 2 and 3",
                         *version);
}

static vt_status check_count(const vti_gguf_cursor *cursor, const char *what, uint64_t count,
                             uint64_t unit_bytes, uint64_t limit)
{
    VTI_TRY(vti_gguf_need(cursor, what, count, unit_bytes));
    if (count <= limit) return VT_OK;
    return vti_gguf_fail(cursor, VT_ERR_UNSUPPORTED, "%" PRIu64 " %s, at most %" PRIu64 " are read",
                         count, what, limit);
}

static vt_status parse_header(vti_gguf_cursor *cursor, uint32_t *version, uint64_t *tensors,
                              uint64_t *entries)
{
    vti_gguf_set_subject(cursor, "header");
    VTI_TRY(check_magic(cursor));
    VTI_TRY(check_version(cursor, version));
    VTI_TRY(vti_gguf_need(cursor, "counts", COUNTS_BYTES, 1));
    VTI_TRY(vti_gguf_take_u64(cursor, "tensor count", tensors));
    VTI_TRY(vti_gguf_take_u64(cursor, "metadata count", entries));
    VTI_TRY(check_count(cursor, "metadata entries", *entries, MIN_ENTRY_BYTES,
                        VTI_GGUF_MAX_ENTRIES));
    return check_count(cursor, "tensors", *tensors, MIN_TENSOR_BYTES, VTI_GGUF_MAX_TENSORS);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Printable ASCII only: names go to terminals and into messages as they are. */
static vt_status check_characters(const vti_gguf_cursor *cursor, const char *part,
                                  const unsigned char *text, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                                 "the %s has the byte 0x%02x at position %" PRIu64
                                 ", expected printable ASCII",
                                 part, text[i], i);
    return VT_OK;
}

/* Copies a key or tensor name, NUL-terminated. */
static vt_status take_name(vti_gguf_cursor *cursor, const char *part, uint64_t limit_bytes,
                           char **out)
{
    uint64_t bytes;
    const unsigned char *text;
    VTI_TRY(vti_gguf_take_u64(cursor, part, &bytes));
    if (bytes == 0) return vti_gguf_fail(cursor, VT_ERR_FORMAT, "the %s is empty", part);
    if (bytes > limit_bytes)
        return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                             "the %s has %" PRIu64 " bytes, at most %" PRIu64 " are allowed", part,
                             bytes, limit_bytes);
    VTI_TRY(vti_gguf_take(cursor, part, bytes, 1, &text));
    VTI_TRY(check_characters(cursor, part, text, bytes));
    char *name = malloc((size_t)bytes + 1);
    if (!name) return vti_gguf_fail(cursor, VT_ERR_MEMORY, "no memory for the %s", part);
    memcpy(name, text, (size_t)bytes);
    name[bytes] = 0;
    *out = name;
    return VT_OK;
}

/* ---- metadata -------------------------------------------------------------------------------- */

static vt_status take_type(vti_gguf_cursor *cursor, const char *part, vti_gguf_type *out)
{
    uint32_t number;
    VTI_TRY(vti_gguf_take_u32(cursor, part, &number));
    if (number >= VTI_GGUF_TYPE_COUNT)
        return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                             "%s %" PRIu32 " does not exist, expected 0 to %d", part, number,
                             VTI_GGUF_TYPE_COUNT - 1);
    *out = (vti_gguf_type)number;
    return VT_OK;
}

static vt_status check_bools(const vti_gguf_cursor *cursor, const vti_gguf_value *value)
{
    for (uint64_t i = 0; i < value->count; i++)
        if (value->data[i] > 1)
            return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                                 "bool %" PRIu64 " has the value %d, expected 0 or 1", i,
                                 value->data[i]);
    return VT_OK;
}

/* Strings lie one after the other, each behind its length: all are walked once, here. */
static vt_status take_strings(vti_gguf_cursor *cursor, uint64_t count)
{
    VTI_TRY(vti_gguf_need(cursor, "array of strings", count, 8));
    for (uint64_t i = 0; i < count; i++) {
        vti_gguf_string ignored;
        VTI_TRY(vti_gguf_take_string(cursor, "string", &ignored));
    }
    return VT_OK;
}

static vt_status take_elements(vti_gguf_cursor *cursor, vti_gguf_value *value)
{
    value->data = cursor->data + cursor->at;
    if (value->type == VTI_GGUF_STRING) {
        VTI_TRY(take_strings(cursor, value->count));
    } else {
        VTI_TRY(vti_gguf_take(cursor, value->is_array ? "array" : "value", value->count,
                              vti_gguf_type_bytes(value->type), &value->data));
        if (value->type == VTI_GGUF_BOOL) VTI_TRY(check_bools(cursor, value));
    }
    value->end = cursor->data + cursor->at;
    return VT_OK;
}

static vt_status take_value(vti_gguf_cursor *cursor, vti_gguf_value *value)
{
    *value = (vti_gguf_value){.count = 1};
    VTI_TRY(take_type(cursor, "value type", &value->type));
    if (value->type == VTI_GGUF_ARRAY) {
        value->is_array = true;
        VTI_TRY(take_type(cursor, "array element type", &value->type));
        if (value->type == VTI_GGUF_ARRAY)
            return vti_gguf_fail(cursor, VT_ERR_UNSUPPORTED,
                                 "an array of arrays cannot be read, expected numbers or strings");
        VTI_TRY(vti_gguf_take_u64(cursor, "array length", &value->count));
    }
    return take_elements(cursor, value);
}

static vt_status parse_entry(vti_gguf_cursor *cursor, vti_gguf_entry *entry)
{
    VTI_TRY(take_name(cursor, "key", VTI_GGUF_MAX_KEY_BYTES, &entry->key));
    vti_gguf_set_subject(cursor, "key '%.80s'", entry->key);
    VTI_TRY(take_value(cursor, &entry->value));
    const char *type = vti_gguf_type_name(entry->value.type);
    if (entry->value.is_array)
        snprintf(entry->type_text, sizeof entry->type_text, "%s[%" PRIu64 "]", type,
                 entry->value.count);
    else
        snprintf(entry->type_text, sizeof entry->type_text, "%s", type);
    return VT_OK;
}

static int compare_keys(const void *left, const void *right)
{
    const vti_gguf_entry *a = *(vti_gguf_entry *const *)left;
    const vti_gguf_entry *b = *(vti_gguf_entry *const *)right;
    return strcmp(a->key, b->key);
}

static vt_status parse_entries(vt_gguf *gguf, vti_gguf_cursor *cursor, uint64_t count)
{
    /* One more than needed: calloc(0) may give NULL. */
    gguf->entries = calloc((size_t)count + 1, sizeof *gguf->entries);
    gguf->by_key = calloc((size_t)count + 1, sizeof(vti_gguf_entry *));
    if (!gguf->entries || !gguf->by_key)
        return vti_gguf_fail(cursor, VT_ERR_MEMORY, "no memory for %" PRIu64 " metadata entries",
                             count);
    for (uint64_t i = 0; i < count; i++) {
        vti_gguf_set_subject(cursor, "metadata entry %" PRIu64, i);
        gguf->by_key[i] = &gguf->entries[i];
        gguf->entry_count++;
        VTI_TRY(parse_entry(cursor, &gguf->entries[i]));
    }
    qsort(gguf->by_key, (size_t)count, sizeof(vti_gguf_entry *), compare_keys);
    for (uint64_t i = 1; i < count; i++)
        if (strcmp(gguf->by_key[i - 1]->key, gguf->by_key[i]->key) == 0) {
            vti_gguf_set_subject(cursor, "key '%.80s'", gguf->by_key[i]->key);
            return vti_gguf_fail(cursor, VT_ERR_FORMAT, "the key is there twice");
        }
    return VT_OK;
}

static vt_status find_alignment(const vt_gguf *gguf, vti_gguf_cursor *cursor, uint64_t *alignment)
{
    *alignment = VTI_GGUF_DEFAULT_ALIGNMENT;
    const vti_gguf_value *value = vti_gguf_find(gguf, "general.alignment");
    if (!value) return VT_OK;
    vti_gguf_set_subject(cursor, "key 'general.alignment'");
    bool negative = false;
    if (value->is_array || !vti_gguf_integer_at(value, 0, &negative, alignment))
        return vti_gguf_fail(cursor, VT_ERR_FORMAT, "found %s%s, expected u32",
                             vti_gguf_type_name(value->type), value->is_array ? "[]" : "");
    bool power_of_two = *alignment != 0 && (*alignment & (*alignment - 1)) == 0;
    if (negative || !power_of_two || *alignment < VTI_GGUF_MIN_ALIGNMENT ||
        *alignment > VTI_GGUF_MAX_ALIGNMENT)
        return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                             "found %s%" PRIu64 ", expected a power of two from %u to %u",
                             negative ? "-" : "", *alignment, VTI_GGUF_MIN_ALIGNMENT,
                             VTI_GGUF_MAX_ALIGNMENT);
    return VT_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static vt_status take_dimensions(vti_gguf_cursor *cursor, vti_gguf_tensor *tensor)
{
    for (unsigned i = 0; i < VTI_GGUF_MAX_DIMENSIONS; i++) tensor->dimensions[i] = 1;
    VTI_TRY(vti_gguf_take_u32(cursor, "dimension count", &tensor->dimension_count));
    if (tensor->dimension_count > VTI_GGUF_MAX_DIMENSIONS)
        return vti_gguf_fail(cursor, VT_ERR_FORMAT, "%" PRIu32 " dimensions, expected at most %u",
                             tensor->dimension_count, VTI_GGUF_MAX_DIMENSIONS);
    for (uint32_t i = 0; i < tensor->dimension_count; i++) {
        VTI_TRY(vti_gguf_take_u64(cursor, "dimension", &tensor->dimensions[i]));
        if (tensor->dimensions[i] == 0)
            return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                                 "dimension %" PRIu32 " is 0, expected at least 1", i);
    }
    return VT_OK;
}

static vt_status find_size(const vti_gguf_cursor *cursor, vti_gguf_tensor *tensor)
{
    const vti_ggml_type *type = vti_ggml_type_find(tensor->type);
    if (!type)
        return vti_gguf_fail(cursor, VT_ERR_UNSUPPORTED,
                             "weight type %" PRIu32 " is unknown (tensor data at offset %" PRIu64
                             ")",
                             tensor->type, tensor->offset_bytes);
    const uint64_t *dims = tensor->dimensions;
    if (dims[0] % type->block != 0)
        return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                             "rows of %" PRIu64 " elements, %s needs a multiple of %" PRIu32,
                             dims[0], type->name, type->block);
    uint64_t bytes = dims[0] / type->block;
    bool overflow = __builtin_mul_overflow(bytes, (uint64_t)type->block_bytes, &bytes);
    for (unsigned i = 1; i < VTI_GGUF_MAX_DIMENSIONS; i++)
        overflow |= __builtin_mul_overflow(bytes, dims[i], &bytes);
    if (overflow)
        return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                             "%" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                             " elements of %s are more than 64 bits can count",
                             dims[0], dims[1], dims[2], dims[3], type->name);
    tensor->size_bytes = bytes;
    return VT_OK;
}

static vt_status parse_tensor(vti_gguf_cursor *cursor, vti_gguf_tensor *tensor, uint64_t alignment)
{
    VTI_TRY(take_name(cursor, "name", VTI_GGUF_MAX_NAME_BYTES, &tensor->name));
    vti_gguf_set_subject(cursor, "tensor '%s'", tensor->name);
    VTI_TRY(take_dimensions(cursor, tensor));
    VTI_TRY(vti_gguf_take_u32(cursor, "weight type", &tensor->type));
    VTI_TRY(vti_gguf_take_u64(cursor, "data offset", &tensor->offset_bytes));
    VTI_TRY(find_size(cursor, tensor));
    if (tensor->offset_bytes % alignment == 0) return VT_OK;
    return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                         "data offset %" PRIu64 ", expected a multiple of the alignment %" PRIu64,
                         tensor->offset_bytes, alignment);
}

static int compare_names(const void *left, const void *right)
{
    const vti_gguf_tensor *a = *(vti_gguf_tensor *const *)left;
    const vti_gguf_tensor *b = *(vti_gguf_tensor *const *)right;
    return strcmp(a->name, b->name);
}

static int compare_offsets(const void *left, const void *right)
{
    const vti_gguf_tensor *a = *(vti_gguf_tensor *const *)left;
    const vti_gguf_tensor *b = *(vti_gguf_tensor *const *)right;
    return (a->offset_bytes > b->offset_bytes) - (a->offset_bytes < b->offset_bytes);
}

static vt_status parse_tensors(vt_gguf *gguf, vti_gguf_cursor *cursor, uint64_t count,
                               uint64_t alignment)
{
    gguf->tensors = calloc((size_t)count + 1, sizeof *gguf->tensors);
    gguf->by_name = calloc((size_t)count + 1, sizeof(vti_gguf_tensor *));
    if (!gguf->tensors || !gguf->by_name)
        return vti_gguf_fail(cursor, VT_ERR_MEMORY, "no memory for %" PRIu64 " tensors", count);
    for (uint64_t i = 0; i < count; i++) {
        vti_gguf_set_subject(cursor, "tensor %" PRIu64, i);
        gguf->by_name[i] = &gguf->tensors[i];
        gguf->tensor_count++;
        VTI_TRY(parse_tensor(cursor, &gguf->tensors[i], alignment));
    }
    return VT_OK;
}

/* From offsets in the data section to offsets in the file. */
static vt_status place_tensors(vt_gguf *gguf, vti_gguf_cursor *cursor, uint64_t alignment)
{
    uint64_t data_begin = (cursor->at + alignment - 1) / alignment * alignment;
    for (uint64_t i = 0; i < gguf->tensor_count; i++) {
        vti_gguf_tensor *tensor = &gguf->tensors[i];
        vti_gguf_set_subject(cursor, "tensor '%s'", tensor->name);
        uint64_t begin, end;
        if (__builtin_add_overflow(data_begin, tensor->offset_bytes, &begin) ||
            __builtin_add_overflow(begin, tensor->size_bytes, &end))
            return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                                 "data of %" PRIu64 " bytes at offset %" PRIu64
                                 " is impossible, the file has %" PRIu64 " bytes",
                                 tensor->size_bytes, tensor->offset_bytes, cursor->bytes);
        tensor->offset_bytes = begin;
    }
    return VT_OK;
}

/* Tensors in file order: no two may share a byte, the last must end within the file. */
static vt_status check_extents(vt_gguf *gguf, vti_gguf_cursor *cursor)
{
    vti_gguf_tensor **sorted = gguf->by_name; /* sorted by name later */
    qsort(sorted, (size_t)gguf->tensor_count, sizeof *sorted, compare_offsets);
    for (uint64_t i = 0; i < gguf->tensor_count; i++) {
        vti_gguf_set_subject(cursor, "tensor '%s'", sorted[i]->name);
        uint64_t end = sorted[i]->offset_bytes + sorted[i]->size_bytes;
        bool last = i + 1 == gguf->tensor_count;
        if (!last && end > sorted[i + 1]->offset_bytes)
            return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                                 "data at bytes %" PRIu64 " to %" PRIu64
                                 " overlaps tensor '%s' at byte %" PRIu64,
                                 sorted[i]->offset_bytes, end, sorted[i + 1]->name,
                                 sorted[i + 1]->offset_bytes);
        if (last && end > cursor->bytes && !gguf->directory_only)
            return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                                 "data ends at byte %" PRIu64 ", the file at byte %" PRIu64
                                 ": %" PRIu64 " bytes are missing, the file is truncated or "
                                 "damaged",
                                 end, cursor->bytes, end - cursor->bytes);
    }
    for (uint64_t i = 0; i < gguf->tensor_count && !gguf->directory_only; i++)
        gguf->tensors[i].data = cursor->data + gguf->tensors[i].offset_bytes;
    return VT_OK;
}

static vt_status check_directory_end(const vt_gguf *gguf, vti_gguf_cursor *cursor)
{
    vti_gguf_set_subject(cursor, "tensor directory");
    if (!gguf->directory_only || cursor->at == cursor->bytes) return VT_OK;
    return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                         "it ends at byte %" PRIu64 " of %" PRIu64 ", expected nothing behind it",
                         cursor->at, cursor->bytes);
}

static vt_status sort_names(vt_gguf *gguf, vti_gguf_cursor *cursor)
{
    qsort(gguf->by_name, (size_t)gguf->tensor_count, sizeof(vti_gguf_tensor *), compare_names);
    for (uint64_t i = 1; i < gguf->tensor_count; i++)
        if (strcmp(gguf->by_name[i - 1]->name, gguf->by_name[i]->name) == 0) {
            vti_gguf_set_subject(cursor, "tensor '%s'", gguf->by_name[i]->name);
            return vti_gguf_fail(cursor, VT_ERR_FORMAT, "the tensor is there twice");
        }
    return VT_OK;
}

vt_status vti_gguf_parse(vt_gguf *gguf, vt_error *err)
{
    vti_gguf_cursor cursor = {
        .data = gguf->data, .bytes = gguf->data_bytes, .file = gguf->shown_name, .err = err};
    uint64_t tensor_count, entry_count, alignment;
    VTI_TRY(parse_header(&cursor, &gguf->version, &tensor_count, &entry_count));
    VTI_TRY(parse_entries(gguf, &cursor, entry_count));
    VTI_TRY(find_alignment(gguf, &cursor, &alignment));
    vti_gguf_set_subject(&cursor, "tensor directory");
    VTI_TRY(vti_gguf_need(&cursor, "tensors", tensor_count, MIN_TENSOR_BYTES));
    VTI_TRY(parse_tensors(gguf, &cursor, tensor_count, alignment));
    VTI_TRY(check_directory_end(gguf, &cursor));
    VTI_TRY(place_tensors(gguf, &cursor, alignment));
    VTI_TRY(check_extents(gguf, &cursor));
    return sort_names(gguf, &cursor);
}
