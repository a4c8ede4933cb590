#include "composition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_json.h"
#include "plan_model.h"

enum { OFFERED_TEXT = 16 };

static bool is_offered(const vti_shard_source *source, uint32_t unit, vti_precision precision)
{
    vti_shard_form form;
    return source->form(source->self, (vti_shard_id){unit, 0, precision}, &form);
}

/* " I8 I4" */
static const char *offered(const vti_shard_source *source, uint32_t unit, char text[OFFERED_TEXT])
{
    text[0] = 0;
    for (unsigned p = 0; p < VTI_PRECISION_COUNT; p++)
        if (is_offered(source, unit, p)) strcat(strcat(text, " "), vti_precision_name(p));
    return text;
}

/* Units that have a precision: all but EMBED, which is the last. */
static uint32_t units_of(const vti_shard_source *source)
{
    return vti_embed_unit(source->geometry);
}

static vt_status allocate(const vti_shard_source *source, vti_composition *c, vt_error *err)
{
    *c = (vti_composition){.precision = calloc(source->geometry->units, 1)};
    if (c->precision) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY, "no memory for the units of %s", source->name);
}

void vti_composition_close(vti_composition *c)
{
    free(c->precision);
    free(c->pruned);
    *c = (vti_composition){0};
}

static vti_precision highest(const vti_shard_source *source, uint32_t unit)
{
    unsigned p = 0;
    while (p + 1 < VTI_PRECISION_COUNT && !is_offered(source, unit, p)) p++;
    return p;
}

vt_status vti_composition_open(const vti_shard_source *source, vti_precision wanted,
                               vti_composition *c, vt_error *err)
{
    char text[OFFERED_TEXT];
    VTI_TRY(allocate(source, c, err));
    for (uint32_t unit = 0; unit < units_of(source); unit++) {
        vti_precision p = wanted == VTI_PRECISION_COUNT ? highest(source, unit) : wanted;
        if (!is_offered(source, unit, p))
            return vti_fail(err, VT_ERR_ARGUMENT, "%s has no weights at precision %s, only at%s",
                            source->name, vti_precision_name(p), offered(source, unit, text));
        c->precision[unit] = (uint8_t)p;
    }
    return VT_OK;
}

/* --- plans ------------------------------------------------------------------------------------- */

/* "FFN(3)" */
static const char *unit_name(const vti_geometry *g, uint32_t unit, char text[VTI_SHARD_TEXT])
{
    vti_shard_describe(g, (vti_shard_id){.unit = unit}, text);
    *strchr(text, ' ') = 0;
    return text;
}

/* Shards that may be pruned: of a mixture its experts. */
static uint32_t prunable(const vti_geometry *g, uint32_t unit)
{
    vti_unit_kind kind = vti_unit_kind_of(g, unit);
    uint32_t shards = vti_unit_shards(g, unit);
    if (kind == VTI_UNIT_FFN && g->hparams.experts) shards = g->hparams.experts;
    if (kind == VTI_UNIT_HEAD) return 0;
    return shards < VTI_PLAN_PRUNABLE_MAX ? shards : VTI_PLAN_PRUNABLE_MAX;
}

/* The unit's pruned shards are among those that may be, and one at least stays. */
static vt_status check_pruned(const vti_shard_source *source, uint32_t unit, const uint64_t *pruned,
                              bool *any, vt_error *err)
{
    uint32_t most = prunable(source->geometry, unit), count = 0;
    char name[VTI_SHARD_TEXT];
    for (uint32_t i = 0; i < VTI_PLAN_PRUNABLE_MAX; i++) {
        if (!(pruned[i / 64] >> i % 64 & 1)) continue;
        if (++count && i < most && count < vti_unit_shards(source->geometry, unit)) continue;
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "the plan prunes shard %u of %s, of whose %u shards %u can be pruned", i,
                        unit_name(source->geometry, unit, name),
                        vti_unit_shards(source->geometry, unit),
                        most == vti_unit_shards(source->geometry, unit) ? most - 1 : most);
    }
    *any |= count > 0;
    return VT_OK;
}

static vt_status take_plan(const vti_shard_source *source, const vti_plan *plan, vti_composition *c,
                           vt_error *err)
{
    const vti_geometry *g = source->geometry;
    bool any = false;
    char name[VTI_SHARD_TEXT], text[OFFERED_TEXT];
    if (plan->units != g->units)
        return vti_fail(err, VT_ERR_ARGUMENT, "the plan is for a model of %u units, %s has %u",
                        plan->units, source->name, g->units);
    for (uint32_t unit = 0; unit < units_of(source); unit++) {
        unsigned of_plan = vti_plan_unit_of(g, unit);
        uint8_t p = plan->precision[of_plan];
        if (!is_offered(source, unit, p))
            return vti_fail(err, VT_ERR_ARGUMENT, "the plan has %s at %s; %s has it only at%s",
                            unit_name(g, unit, name), vti_precision_name(p), source->name,
                            offered(source, unit, text));
        c->precision[unit] = p;
        VTI_TRY(check_pruned(source, unit, plan->pruned[of_plan], &any, err));
    }
    if (!any) return VT_OK;
    c->pruned = calloc(g->units, sizeof *c->pruned);
    if (!c->pruned) return vti_fail(err, VT_ERR_MEMORY, "no memory for a plan's pruned shards");
    for (uint32_t unit = 0; unit < units_of(source); unit++)
        memcpy(c->pruned[unit], plan->pruned[vti_plan_unit_of(g, unit)], sizeof c->pruned[unit]);
    return VT_OK;
}

_Static_assert((int)VTI_PLAN_F16 == VTI_PRECISION_F16 && (int)VTI_PLAN_I8 == VTI_PRECISION_I8 &&
                   (int)VTI_PLAN_I4 == VTI_PRECISION_I4,
               "a plan's precisions are the shards'");

vt_status vti_composition_open_plan(const vti_shard_source *source, const char *json,
                                    vti_composition *c, vt_error *err)
{
    VTI_TRY(allocate(source, c, err));
    vti_plan *plan = malloc(sizeof *plan);
    if (!plan) return vti_fail(err, VT_ERR_MEMORY, "no memory for a plan");
    vt_status status = vti_plan_read_json(json, strlen(json), plan, err);
    if (status == VT_OK) status = take_plan(source, plan, c, err);
    free(plan);
    return status;
}

uint64_t vti_composition_shard_bytes(const vti_composition *c, const vti_shard_source *source,
                                     uint32_t unit, uint32_t shard)
{
    vti_shard_layout layout;
    if (!vti_composition_has(c, unit, shard)) return 0;
    if (!vti_shard_source_lay_out(source, vti_composition_id(c, unit, shard), &layout)) return 0;
    return layout.bytes;
}
