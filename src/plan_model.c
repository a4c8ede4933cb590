#include "plan_model.h"

#include <string.h>

#include "error.h"
#include "kv_cache.h"

/* Values that a sharer of HEAD returns: what sampling needs (a token's number and its logit are
 * two), not a vocabulary of floats. */
enum { HEAD_OUTPUT_VALUES = 2 * 64 };

unsigned vti_plan_unit_of(const vti_geometry *g, uint32_t unit)
{
    return unit == vti_embed_unit(g) ? 0 : unit + 1;
}

uint32_t vti_unit_of_plan(const vti_geometry *g, unsigned plan_unit)
{
    return plan_unit == 0 ? vti_embed_unit(g) : plan_unit - 1;
}

static bool unit_offers(const vti_shard_source *source, uint32_t unit, vti_precision precision)
{
    vti_shard_form form;
    return source->form(source->self, (vti_shard_id){unit, 0, precision}, &form);
}

vti_precision vti_source_precision(const vti_shard_source *source)
{
    uint32_t units = vti_embed_unit(source->geometry);
    for (unsigned p = 0; p < VTI_PRECISION_COUNT; p++) {
        uint32_t unit = 0;
        while (unit < units && unit_offers(source, unit, p)) unit++;
        if (unit == units) return p;
    }
    return VTI_PRECISION_COUNT;
}

/* --- bytes ------------------------------------------------------------------------------------- */

static double part(uint64_t whole, unsigned parts)
{
    return (double)((whole + parts - 1) / parts);
}

static uint64_t shard_bytes(const vti_shard_source *source, uint32_t unit, uint32_t shard,
                            vti_precision precision)
{
    vti_shard_layout layout;
    vti_shard_id id = {unit, shard, precision};
    return vti_shard_source_lay_out(source, id, &layout) ? layout.bytes : 0;
}

/* Of the unit's shards at one precision: the class' own, then those that go with each of them. */
static void set_weights(const vti_shard_source *source, uint32_t unit, vti_precision precision,
                        vti_plan_class *out)
{
    uint32_t all = vti_unit_shards(source->geometry, unit);
    uint64_t own = 0, always = 0;
    for (uint32_t shard = 0; shard < all; shard++)
        *(shard < out->shards ? &own : &always) += shard_bytes(source, unit, shard, precision);
    out->weight_bytes[precision] = part(own, out->shards);
    out->always_bytes[precision] = part(always, out->shards);
}

static void fill_gaps(double bytes[VTI_PLAN_PRECISIONS])
{
    for (unsigned p = VTI_PLAN_PRECISIONS; p-- > 0;)
        if (bytes[p] == 0 && p + 1 < VTI_PLAN_PRECISIONS) bytes[p] = bytes[p + 1];
    for (unsigned p = 1; p < VTI_PLAN_PRECISIONS; p++)
        if (bytes[p] == 0) bytes[p] = bytes[p - 1];
}

static void set_macs(const vti_geometry *g, uint32_t unit, vti_plan_class *out)
{
    uint32_t all = vti_unit_shards(g, unit);
    uint64_t own = 0, always = 0;
    for (uint32_t shard = 0; shard < all; shard++)
        *(shard < out->shards ? &own : &always) += vti_shard_macs(g, unit, shard);
    out->macs = (double)own / out->shards;
    out->always_macs = (double)always / out->shards;
}

/* A local layer keeps some rows more than its window: they count as the unit's, not a shard's. */
static void set_kv(const vti_shard_source *source, uint32_t unit, const vti_plan_model_params *p,
                   vti_plan_class *out)
{
    const vti_hparams *hparams = &source->geometry->hparams;
    vti_hparams global = *hparams;
    global.window = 0;
    vti_kv_params kv = {.kernels = source->kernels, .hparams = &global, .layers = 1,
                        .context_tokens = 1, .type = p->kv_type};
    out->kv_bytes = part(vti_kv_cache_bytes(&kv), out->shards);
    out->kv_macs = 2.0 * hparams->heads * hparams->head_dim / out->shards;
    if (!vti_layer_is_local(hparams, vti_unit_layer(unit))) return;
    out->window = hparams->window;
    kv.hparams = hparams;
    kv.first = vti_unit_layer(unit);
    kv.context_tokens = p->context_tokens;
    kv.batch_tokens = p->batch_tokens;
    uint32_t seen = hparams->window < p->context_tokens ? hparams->window : p->context_tokens;
    double more = (double)vti_kv_cache_bytes(&kv) - seen * out->kv_bytes * out->shards;
    if (more > 0) out->shared_bytes += more;
}

/* --- classes ----------------------------------------------------------------------------------- */

static vti_plan_kind kind_of(const vti_geometry *g, uint32_t unit)
{
    switch (vti_unit_kind_of(g, unit)) {
    case VTI_UNIT_ATTN: return VTI_PLAN_ATTN;
    case VTI_UNIT_FFN: return g->hparams.experts ? VTI_PLAN_MOE : VTI_PLAN_FFN;
    case VTI_UNIT_HEAD: return VTI_PLAN_HEAD;
    case VTI_UNIT_EMBED: break;
    }
    return VTI_PLAN_EMBED;
}

static void describe_unit(const vti_shard_source *source, uint32_t unit,
                          const vti_plan_model_params *params, vti_plan_class *out)
{
    const vti_geometry *g = source->geometry;
    const vti_hparams *hparams = &g->hparams;
    memset(out, 0, sizeof *out);
    out->kind = kind_of(g, unit);
    out->input_width = out->output_width = hparams->d;
    out->shards = 1;
    if (out->kind == VTI_PLAN_EMBED) return; /* its rows are read from the file */
    bool moe = out->kind == VTI_PLAN_MOE;
    out->shards = moe ? hparams->experts : vti_unit_shards(g, unit);
    out->active_shards = moe ? hparams->experts_used : 0;
    if (out->kind == VTI_PLAN_HEAD) out->output_width = HEAD_OUTPUT_VALUES;
    out->shared_bytes = (double)shard_bytes(source, unit, vti_unit_shards(g, unit),
                                            vti_source_precision(source));
    for (unsigned p = 0; p < VTI_PRECISION_COUNT; p++) set_weights(source, unit, p, out);
    fill_gaps(out->weight_bytes);
    fill_gaps(out->always_bytes);
    set_macs(g, unit, out);
    if (out->kind == VTI_PLAN_ATTN) set_kv(source, unit, params, out);
}

static double larger(double a, double b) { return a > b ? a : b; }

/* Can one class stand for both, if the bytes are the larger ones? */
static bool alike_but_bytes(const vti_plan_class *a, const vti_plan_class *b)
{
    return a->kind == b->kind && a->shards == b->shards && a->window == b->window;
}

static void widen(vti_plan_class *class_, const vti_plan_class *other)
{
    for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++) {
        class_->weight_bytes[p] = larger(class_->weight_bytes[p], other->weight_bytes[p]);
        class_->always_bytes[p] = larger(class_->always_bytes[p], other->always_bytes[p]);
    }
    class_->shared_bytes = larger(class_->shared_bytes, other->shared_bytes);
}

/* Files whose layers have ever other types have more kinds of units than the planner tells apart:
 * then the last classes stand for several, none of them smaller than what it stands for. EMBED and
 * HEAD keep a class each. */
static unsigned class_of(vti_plan_model *model, const vti_plan_class *wanted)
{
    for (unsigned c = 0; c < model->classes; c++)
        if (memcmp(&model->class_[c], wanted, sizeof *wanted) == 0) return c;
    unsigned room = wanted->kind == VTI_PLAN_HEAD ? VTI_PLAN_CLASSES_MAX : VTI_PLAN_CLASSES_MAX - 1;
    if (model->classes < room) {
        model->class_[model->classes] = *wanted;
        return model->classes++;
    }
    for (unsigned c = model->classes; c-- > 0;) {
        if (!alike_but_bytes(&model->class_[c], wanted)) continue;
        widen(&model->class_[c], wanted);
        return c;
    }
    return VTI_PLAN_CLASSES_MAX;
}

vt_status vti_plan_model_of(const vti_shard_source *source, const vti_plan_model_params *params,
                            vti_plan_model *out, vt_error *err)
{
    const vti_geometry *g = source->geometry;
    memset(out, 0, sizeof *out);
    if (g->units < 4 || g->units > VTI_PLAN_UNITS_MAX)
        return vti_fail(err, VT_ERR_UNSUPPORTED,
                        "%s: plans are made for models of 1 to %u layers, this one has %u",
                        source->name, VTI_PLAN_UNITS_MAX / 2 - 1, (unsigned)g->hparams.layers);
    if (vti_source_precision(source) == VTI_PRECISION_COUNT)
        return vti_fail(err, VT_ERR_UNSUPPORTED, "%s has no precision that all units have",
                        source->name);
    out->units = g->units;
    for (unsigned u = 0; u < g->units; u++) {
        vti_plan_class class_;
        describe_unit(source, vti_unit_of_plan(g, u), params, &class_);
        out->unit_class[u] = (uint8_t)class_of(out, &class_);
        if (out->unit_class[u] == VTI_PLAN_CLASSES_MAX)
            return vti_fail(err, VT_ERR_UNSUPPORTED,
                            "%s: its layers are of more than %u different kinds", source->name,
                            (unsigned)VTI_PLAN_CLASSES_MAX);
    }
    return VT_OK;
}
