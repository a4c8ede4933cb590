#include "shard_supply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void vti_shard_describe(const vti_geometry *g, vti_shard_id id, char *out, size_t capacity)
{
    static const char *const kinds[] = {"ATTN", "FFN", "HEAD", "EMBED"};
    if (id.unit >= g->units) {
        snprintf(out, capacity, "unit %" PRIu32 " of %" PRIu32, id.unit, g->units);
        return;
    }
    vti_unit_kind kind = vti_unit_kind_of(g, id.unit);
    char layer[16] = "", what[24] = "what its shards share";
    if (kind == VTI_UNIT_ATTN || kind == VTI_UNIT_FFN)
        snprintf(layer, sizeof layer, " %" PRIu32, vti_unit_layer(id.unit));
    if (id.shard < vti_unit_shards(g, id.unit))
        snprintf(what, sizeof what, "shard %" PRIu32, id.shard);
    snprintf(out, capacity, "%s%s, %s at %s", kinds[kind], layer, what,
             vti_precision_name(id.precision));
}

/* A shard's layout, or an error. `name`: what to call it. */
static vt_status lay_out(const vti_shard_source *source, vti_shard_id id, vti_shard_layout *out,
                         char name[96], vt_error *err)
{
    const vti_geometry *g = source->geometry;
    vti_shard_form form;
    vti_shard_describe(g, id, name, 96);
    if (id.unit >= g->units || id.shard > vti_unit_shards(g, id.unit))
        return vti_fail(err, VT_ERR_ARGUMENT, "%s: there is no %s", source->name, name);
    if (!source->form(source->self, id, &form))
        return vti_fail(err, VT_ERR_UNSUPPORTED, "%s does not have %s", source->name, name);
    if (vti_shard_lay_out(g, source->kernels, id.unit, id.shard, &form, out)) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT, "%s: %s is of types that do not fit its shape",
                    source->name, name);
}

static vt_status bytes_of(void *self, vti_shard_id id, uint64_t *out, vt_error *err)
{
    vti_shard_supplier *s = self;
    vti_shard_layout layout;
    char name[96];
    VTI_TRY(lay_out(s->source, id, &layout, name, err));
    *out = layout.bytes;
    return VT_OK;
}

static void drop(void *self, const vti_shard *shard)
{
    vti_shard_supplier *s = self;
    if (!shard) return;
    vti_shard_memory_free(s->memory, shard->memory);
    free((void *)(uintptr_t)shard);
}

static vt_status make(void *self, vti_shard_id id, const vti_shard **out, vt_error *err)
{
    vti_shard_supplier *s = self;
    vti_shard_layout layout;
    char name[96];
    vt_error why = {0};
    void *memory;
    *out = NULL;
    VTI_TRY(lay_out(s->source, id, &layout, name, err));
    vti_shard *shard = malloc(sizeof *shard);
    if (!shard) return vti_fail(err, VT_ERR_MEMORY, "no memory for %s", name);
    vt_status status = vti_shard_memory_allocate(s->memory, layout.bytes, name, &memory, err);
    if (status != VT_OK) {
        free(shard);
        return status;
    }
    vti_shard_point(shard, id, &layout, memory);
    status = s->source->load(s->source->self, id, memory, &why);
    if (status != VT_OK) {
        drop(s, shard);
        return vti_fail(err, status, "%s could not be loaded: %s", name, why.message);
    }
    *out = shard;
    return VT_OK;
}

vti_shard_supply vti_shard_supply_from(vti_shard_supplier *supplier)
{
    return (vti_shard_supply){supplier, bytes_of, make, drop};
}
