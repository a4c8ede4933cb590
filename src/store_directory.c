/* store_directory.c: what a store has of the model's file besides the weights. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_internal.h"
#include "little_endian.h"
#include "store_format.h"

typedef struct bytes {
    unsigned char *data;
    size_t count, room;
    bool failed;
} bytes;

static void put(bytes *b, const void *data, size_t count)
{
    if (b->failed) return;
    if (b->room - b->count < count) {
        size_t room = (b->room + count) * 2;
        unsigned char *grown = realloc(b->data, room);
        if (!grown) {
            b->failed = true;
            return;
        }
        b->data = grown;
        b->room = room;
    }
    memcpy(b->data + b->count, data, count);
    b->count += count;
}

static void put_u32(bytes *b, uint32_t value)
{
    unsigned char raw[4];
    vti_put_u32(raw, value);
    put(b, raw, sizeof raw);
}

static void put_u64(bytes *b, uint64_t value)
{
    unsigned char raw[8];
    vti_put_u64(raw, value);
    put(b, raw, sizeof raw);
}

static void put_text(bytes *b, const char *text)
{
    put_u64(b, strlen(text));
    put(b, text, strlen(text));
}

/* Version 2 and 3 write values alike. */
static void put_entry(bytes *b, const vti_gguf_entry *entry)
{
    const vti_gguf_value *value = &entry->value;
    put_text(b, entry->key);
    if (value->is_array) put_u32(b, VTI_GGUF_ARRAY);
    put_u32(b, value->type);
    if (value->is_array) put_u64(b, value->count);
    put(b, value->data, (size_t)(value->end - value->data));
}

static void put_tensor(bytes *b, const vti_gguf_tensor *tensor, uint64_t offset)
{
    put_text(b, tensor->name);
    put_u32(b, tensor->dimension_count);
    for (uint32_t i = 0; i < tensor->dimension_count; i++) put_u64(b, tensor->dimensions[i]);
    put_u32(b, tensor->type);
    put_u64(b, offset);
}

static bool is_left_out(const char *key)
{
    return strncmp(key, "split.", 6) == 0 || strcmp(key, "general.alignment") == 0;
}

vt_status vti_store_directory(const vt_gguf *gguf, unsigned char **out, uint64_t *count,
                              vt_error *err)
{
    bytes b = {0};
    uint64_t entries = 0, offset = 0;
    for (uint64_t i = 0; i < gguf->entry_count; i++) entries += !is_left_out(gguf->entries[i].key);
    put(&b, "GGUF", 4);
    put_u32(&b, 3);
    put_u64(&b, gguf->tensor_count);
    put_u64(&b, entries);
    for (uint64_t i = 0; i < gguf->entry_count; i++)
        if (!is_left_out(gguf->entries[i].key)) put_entry(&b, &gguf->entries[i]);
    for (uint64_t i = 0; i < gguf->tensor_count; i++) {
        const uint64_t step = VTI_GGUF_DEFAULT_ALIGNMENT;
        put_tensor(&b, &gguf->tensors[i], offset);
        offset += (gguf->tensors[i].size_bytes + step - 1) / step * step;
    }
    if (b.failed) {
        free(b.data);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for the metadata of %s", gguf->shown_name);
    }
    *out = b.data;
    *count = b.count;
    return VT_OK;
}

/* --- names ------------------------------------------------------------------------------------- */

void vti_unit_name(const vti_geometry *g, uint32_t unit, char *buffer, size_t capacity)
{
    static const char *const names[] = {"ATTN", "FFN", "HEAD", "EMBED"};
    vti_unit_kind kind = unit < g->units ? vti_unit_kind_of(g, unit) : VTI_UNIT_EMBED;
    if (unit >= g->units)
        snprintf(buffer, capacity, "unit %" PRIu32, unit);
    else if (kind == VTI_UNIT_HEAD || kind == VTI_UNIT_EMBED)
        snprintf(buffer, capacity, "%s", names[kind]);
    else
        snprintf(buffer, capacity, "%s(%" PRIu32 ")", names[kind], vti_unit_layer(unit));
}

void vti_store_entry_name(const vti_geometry *g, const vti_store_entry *entry, char *buffer,
                          size_t capacity)
{
    char unit[32];
    vti_unit_name(g, entry->unit, unit, sizeof unit);
    if (entry->unit < g->units && entry->unit != vti_embed_unit(g) &&
        entry->shard == vti_unit_shards(g, entry->unit))
        snprintf(buffer, capacity, "%s, what its shards share", unit);
    else if (entry->precision < VTI_PRECISION_COUNT)
        snprintf(buffer, capacity, "%s, shard %" PRIu32 " at %s", unit, entry->shard,
                 vti_precision_name(entry->precision));
    else
        snprintf(buffer, capacity, "%s, shard %" PRIu32, unit, entry->shard);
}
