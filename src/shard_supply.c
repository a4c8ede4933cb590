#include "shard_supply.h"

#include <inttypes.h>

/* A shard's layout, or an error. `name`: what to call it. */
static vt_status lay_out(const vti_shard_source *source, vti_shard_id id, vti_shard_layout *out,
                         char name[VTI_SHARD_TEXT], vt_error *err)
{
    const vti_geometry *g = source->geometry;
    if (id.unit >= g->units || id.shard > vti_unit_shards(g, id.unit) ||
        id.precision >= VTI_PRECISION_COUNT)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "%s has no shard %" PRIu32 " of unit %" PRIu32 " at precision %d",
                        source->name, id.shard, id.unit, (int)id.precision);
    vti_shard_describe(g, id, name);
    if (vti_shard_source_lay_out(source, id, out)) return VT_OK;
    return vti_fail(err, VT_ERR_UNSUPPORTED, "%s does not have %s at precision %s", source->name,
                    name, vti_precision_name(id.precision));
}

static vt_status bytes_of(void *self, vti_shard_id id, uint64_t *out, vt_error *err)
{
    const vti_shard_supplier *s = self;
    vti_shard_layout layout;
    char name[VTI_SHARD_TEXT];
    VTI_TRY(lay_out(s->source, id, &layout, name, err));
    *out = layout.bytes;
    return VT_OK;
}

static void drop(void *self, vti_shard *shard)
{
    const vti_shard_supplier *s = self;
    vti_shard_free(s->memory, shard);
}

static vt_status make(void *self, vti_shard_id id, vti_shard **out, vt_error *err)
{
    const vti_shard_supplier *s = self;
    vti_shard_layout layout;
    char name[VTI_SHARD_TEXT];
    vt_error why = {0};
    vti_shard *shard = *out = NULL;
    VTI_TRY(lay_out(s->source, id, &layout, name, err));
    vt_status status = vti_shard_new(s->memory, id, &layout, &shard, &why);
    if (status == VT_OK) status = s->source->load(s->source->self, id, shard->memory, &why);
    if (status == VT_OK) {
        *out = shard;
        return VT_OK;
    }
    vti_shard_free(s->memory, shard);
    return vti_fail(err, status, "%s at precision %s was not loaded: %s", name,
                    vti_precision_name(id.precision), why.message);
}

vti_shard_supply vti_shard_supply_of(vti_shard_supplier *supplier)
{
    return (vti_shard_supply){supplier, bytes_of, make, drop};
}
