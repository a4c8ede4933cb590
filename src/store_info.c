/* store_info.c: sums over a store, for people. */
#include <stdio.h>
#include <string.h>

#include "store_internal.h"
#include "weight_types.h"

const char *vt_precision_name(vt_precision precision)
{
    return vti_precision_name((vti_precision)precision);
}

static void add(vt_store_sum *sum, const vti_store_entry *entry)
{
    sum->count++;
    sum->bytes += entry->shard_bytes;
    sum->stored_bytes += entry->stored_bytes;
}

void vt_store_get_info(const vt_store *s, vt_store_info *out)
{
    *out = (vt_store_info){
        .version = VTI_STORE_VERSION,
        .layout_version = VTI_LAYOUT_VERSION,
        .units = s->geometry.units,
        .file_bytes = s->file.bytes,
        .directory_bytes = s->directory_bytes,
    };
    for (uint64_t i = 0; i < s->entry_count; i++) {
        const vti_store_entry *entry = &s->entries[i];
        add(entry->encoding == VTI_STORE_RAW               ? &out->embedding
            : entry->precision == VTI_STORE_ANY_PRECISION ? &out->shared
                                                           : &out->precision[entry->precision],
            entry);
    }
}

/* Adds a name to a list that has it not yet. */
static void add_name(char *list, size_t capacity, const char *name)
{
    size_t at = strlen(list), bytes = strlen(name);
    for (const char *found = list; (found = strstr(found, name)); found += bytes)
        if ((found == list || found[-1] == ' ') && (found[bytes] == ' ' || !found[bytes])) return;
    snprintf(list + at, capacity - at, "%s%s", at ? " " : "", name);
}

static void add_types(const vt_store *s, const vti_store_entry *entry, char *list, size_t capacity)
{
    vti_shard_layout layout;
    vti_store_lay_out(s, entry, &layout);
    for (unsigned i = 0; i < VTI_PIECES; i++)
        if (layout.at[i].bytes && !vti_role_is_vector(layout.at[i].piece.role))
            add_name(list, capacity, vti_weight_type_name(layout.at[i].type));
}

vt_status vt_store_get_unit(const vt_store *s, uint32_t index, vt_store_unit *out)
{
    const vti_geometry *g = &s->geometry;
    if (index >= g->units) return VT_ERR_ARGUMENT;
    memset(out, 0, sizeof *out);
    vti_unit_name(g, index, out->name, sizeof out->name);
    out->shards = vti_unit_shards(g, index);
    for (uint64_t i = 0; i < s->entry_count; i++) {
        const vti_store_entry *entry = &s->entries[i];
        if (entry->unit != index) continue;
        if (entry->precision == VTI_STORE_ANY_PRECISION) {
            add(&out->shared, entry);
            continue;
        }
        add(&out->precision[entry->precision], entry);
        add_types(s, entry, out->types[entry->precision], sizeof out->types[0]);
    }
    return VT_OK;
}
