#include "manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "little_endian.h"

/* Places in an entry. */
enum {
    AT_UNIT = 0, AT_SHARD = 4, AT_PRECISION = 8, AT_GRID = 9, AT_ZERO = 10, AT_TYPES = 12,
    AT_BYTES = 20, AT_STORED_BYTES = 28, AT_HASH = 36
};

enum { LEFT_OUT = 0xff }; /* as a precision; everything behind it is zero */

_Static_assert(AT_HASH + VTI_SHARD_HASH_BYTES == VTI_MANIFEST_ENTRY_BYTES, "entry");

uint32_t vti_manifest_count(const vti_geometry *g, uint32_t first, uint32_t layers)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < layers && count <= VTI_MANIFEST_ENTRIES_MAX; i++)
        count += (uint64_t)vti_unit_shards(g, vti_attn_unit(first + i)) +
                 vti_unit_shards(g, vti_ffn_unit(first + i)) + 2;
    return count <= VTI_MANIFEST_ENTRIES_MAX ? (uint32_t)count : 0;
}

static vti_manifest_entry *list_unit(const vti_geometry *g, uint32_t unit, vti_manifest_entry *at)
{
    for (uint32_t shard = 0; shard <= vti_unit_shards(g, unit); shard++, at++)
        at->id = (vti_shard_id){.unit = unit, .shard = shard};
    return at;
}

vt_status vti_manifest_new(const vti_geometry *geometry, const vti_kernels *kernels, uint32_t first,
                           uint32_t layers, vti_manifest *out, vt_error *err)
{
    *out = (vti_manifest){.geometry = geometry, .kernels = kernels};
    uint32_t count = vti_manifest_count(geometry, first, layers);
    if (!count)
        return vti_fail(err, VT_ERR_UNSUPPORTED,
                        "%" PRIu32 " layers of this model have more than %d shards", layers,
                        VTI_MANIFEST_ENTRIES_MAX);
    out->entries = calloc(count, sizeof *out->entries);
    if (!out->entries) return vti_fail(err, VT_ERR_MEMORY, "no memory for a list of shards");
    out->count = count;
    vti_manifest_entry *at = out->entries;
    for (uint32_t unit = vti_attn_unit(first); unit < vti_attn_unit(first + layers); unit++)
        at = list_unit(geometry, unit, at);
    return VT_OK;
}

void vti_manifest_free(vti_manifest *m)
{
    free(m->entries);
    *m = (vti_manifest){0};
}

uint64_t vti_manifest_bytes(const vti_manifest *m)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < m->count; i++) sum += m->entries[i].bytes;
    return sum;
}

uint64_t vti_manifest_largest_stored_bytes(const vti_manifest *m)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < m->count; i++)
        if (m->entries[i].stored_bytes > largest) largest = m->entries[i].stored_bytes;
    return largest;
}

bool vti_shard_form_is(const vti_shard_form *a, const vti_shard_form *b)
{
    return a->precision == b->precision && a->source_grid == b->source_grid &&
           memcmp(a->type, b->type, sizeof a->type) == 0;
}

bool vti_manifest_lay_out(const vti_manifest *m, uint32_t index, vti_shard_layout *out)
{
    const vti_manifest_entry *entry = &m->entries[index];
    return vti_shard_lay_out(m->geometry, m->kernels, entry->id.unit, entry->id.shard, &entry->form,
                             out);
}

const char *vti_manifest_name(const vti_manifest *m, uint32_t index, char buffer[VTI_SHARD_TEXT])
{
    vti_shard_describe(m->geometry, m->entries[index].id, buffer);
    return buffer;
}

void vti_manifest_encode(const vti_manifest *m, uint8_t *out)
{
    for (uint32_t i = 0; i < m->count; i++, out += VTI_MANIFEST_ENTRY_BYTES) {
        const vti_manifest_entry *entry = &m->entries[i];
        memset(out, 0, VTI_MANIFEST_ENTRY_BYTES);
        vti_put_u32(out + AT_UNIT, entry->id.unit);
        vti_put_u32(out + AT_SHARD, entry->id.shard);
        out[AT_PRECISION] = entry->left_out ? LEFT_OUT : (uint8_t)entry->id.precision;
        if (entry->left_out) continue;
        out[AT_GRID] = entry->form.source_grid;
        memcpy(out + AT_TYPES, entry->form.type, sizeof entry->form.type);
        vti_put_u64(out + AT_BYTES, entry->bytes);
        vti_put_u64(out + AT_STORED_BYTES, entry->stored_bytes);
        memcpy(out + AT_HASH, &entry->hash, sizeof entry->hash);
    }
}

static const char *decode_left_out(const vti_manifest *m, vti_manifest_entry *entry,
                                   const uint8_t *data)
{
    entry->left_out = true;
    if (entry->id.shard == vti_unit_shards(m->geometry, entry->id.unit))
        return "nothing, and every device needs it";
    for (unsigned i = AT_GRID; i < VTI_MANIFEST_ENTRY_BYTES; i++)
        if (data[i]) return "a form although it is left out";
    return NULL;
}

/* NULL, or what is wrong with it. */
static const char *decode_entry(const vti_manifest *m, uint32_t index, const uint8_t *data)
{
    vti_manifest_entry *entry = &m->entries[index];
    vti_shard_layout layout;
    if (vti_load_u32(data + AT_UNIT) != entry->id.unit ||
        vti_load_u32(data + AT_SHARD) != entry->id.shard)
        return "another one is in its place";
    if (data[AT_PRECISION] == LEFT_OUT) return decode_left_out(m, entry, data);
    if (data[AT_PRECISION] >= VTI_PRECISION_COUNT || data[AT_GRID] > 1 || data[AT_ZERO] ||
        data[AT_ZERO + 1])
        return "a form that is not known";
    entry->id.precision = entry->form.precision = (vti_precision)data[AT_PRECISION];
    entry->form.source_grid = data[AT_GRID];
    memcpy(entry->form.type, data + AT_TYPES, sizeof entry->form.type);
    entry->bytes = vti_load_u64(data + AT_BYTES);
    entry->stored_bytes = vti_load_u64(data + AT_STORED_BYTES);
    memcpy(&entry->hash, data + AT_HASH, sizeof entry->hash);
    if (!vti_manifest_lay_out(m, index, &layout)) return "a form that the model cannot have";
    if (entry->bytes != layout.bytes) return "a size that does not follow from its form";
    if (m->same_file) return entry->stored_bytes ? "a block" : NULL;
    if (entry->stored_bytes == 0 || entry->stored_bytes > vti_block_bound(&layout))
        return "a stored size that no block of it has";
    return NULL;
}

vt_status vti_manifest_decode(vti_manifest *m, const uint8_t *data, size_t bytes, vt_error *err)
{
    char name[VTI_SHARD_TEXT];
    if (bytes != (size_t)m->count * VTI_MANIFEST_ENTRY_BYTES)
        return vti_fail(err, VT_ERR_PROTOCOL,
                        "a list of shards has %zu bytes; %" PRIu32 " shards take %zu", bytes,
                        m->count, (size_t)m->count * VTI_MANIFEST_ENTRY_BYTES);
    for (uint32_t i = 0; i < m->count; i++) {
        const char *reason = decode_entry(m, i, data + (size_t)i * VTI_MANIFEST_ENTRY_BYTES);
        if (reason)
            return vti_fail(err, VT_ERR_PROTOCOL, "the list of shards has for %s %s",
                            vti_manifest_name(m, i, name), reason);
    }
    return VT_OK;
}
