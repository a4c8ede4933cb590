/* cluster_plan.c: asks the planner which layers run where, or takes a given plan. */
#include "cluster_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align.h"
#include "cluster_links.h"
#include "plan_json.h"
#include "plan_model.h"
#include "session_internal.h"
#include "stage.h"
#include "store_format.h"

/* For memory without a limit. */
#define PLENTY_BYTES 0x1p43

/* TTFT is that of a prompt of so many tokens. */
enum { PROMPT_TOKENS = 256 };

/* --- the cluster as the planner sees it ------------------------------------------------------- */

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* As it is loaded; 0: the model is computed without it. `precision` as for vti_cluster_describe. */
static uint64_t shard_bytes(const vt_cluster *c, vti_precision precision, uint32_t unit,
                            uint32_t shard)
{
    vti_shard_layout layout;
    const vti_composition *composition = &c->model->composition;
    vti_shard_id id = vti_composition_id(composition, unit, shard);
    if (precision < VTI_PRECISION_COUNT) id.precision = precision;
    return vti_composition_has(composition, unit, shard) &&
                   vti_shard_source_lay_out(c->model->shards, id, &layout)
               ? layout.bytes
               : 0;
}

/* Shards begin at pages: what a unit's take beyond their bytes goes to what they share. */
static void add_pages(const vt_cluster *c, vti_precision precision, vti_plan_model *out)
{
    const vti_geometry *g = &c->model->geometry;
    uint64_t page = vti_shard_memory_page_bytes(), more[VTI_PLAN_CLASSES_MAX] = {0};
    for (size_t i = 0; i < c->device_count; i++)
        page = larger(page, c->devices[i].offer.page_bytes);
    for (unsigned u = 1; u < out->units; u++) {
        uint32_t unit = vti_unit_of_plan(g, u);
        uint64_t gaps = 0;
        for (uint32_t shard = 0; shard <= vti_unit_shards(g, unit); shard++) {
            uint64_t bytes = shard_bytes(c, precision, unit, shard);
            gaps += vti_align_up(bytes, page) - bytes;
        }
        more[out->unit_class[u]] = larger(more[out->unit_class[u]], gaps);
    }
    for (unsigned k = 0; k < out->classes; k++) out->class_[k].shared_bytes += (double)more[k];
}

/* What a device takes besides weights and KV cache: scratch, or before that two blocks while
 * weights travel, and the rest of a huge page in each region of weights. */
static void set_scratch(const vt_cluster *c, uint32_t context_tokens, vti_precision precision,
                        vti_cluster_plan *p)
{
    const vt_model *m = c->model;
    const vti_geometry *g = &m->geometry;
    vti_stage_params params = {
        .geometry = g,
        .kernels = &m->kernels,
        .context_tokens = context_tokens,
        .batch_tokens = c->batch_tokens < context_tokens ? c->batch_tokens : context_tokens,
        .kv_type = c->kv_type,
    };
    uint64_t largest = 0, weights = 0;
    for (uint32_t unit = 0; unit <= vti_head_unit(g); unit++)
        for (uint32_t shard = 0; shard <= vti_unit_shards(g, unit); shard++) {
            uint64_t bytes = shard_bytes(c, precision, unit, shard);
            largest = larger(largest, bytes);
            weights += bytes;
        }
    uint64_t regions = 1 + weights / (VTI_SHARD_MEMORY_REGION - largest % VTI_SHARD_MEMORY_REGION);
    uint64_t stage = vti_stage_size(&params, 0, 1).scratch_bytes;
    uint64_t session = vti_head_bytes(m) +
                       vti_session_bytes(&m->hparams, context_tokens, params.batch_tokens);
    for (unsigned d = 0; d < p->cluster.devices; d++)
        p->cluster.device[d].scratch_bytes =
            (double)(larger(stage + (d ? 0 : session), 2 * largest) +
                     regions * VTI_SHARD_MEMORY_BLOCK);
}

static double limit(uint64_t bytes)
{
    return (double)bytes < PLENTY_BYTES ? (double)bytes : PLENTY_BYTES;
}

/* What is left for layers and output; an output that is loaded already counts as left. */
static double main_memory(const vt_cluster *c)
{
    vti_device_memory *device = vti_model_device(c->model);
    vt_model *model = (vt_model *)(uintptr_t)c->model; /* looks const outside; it locks itself */
    vti_device_memory_refresh(device);
    uint64_t left = vti_budget_left(&device->budget);
    uint64_t loaded = c->model->head_bytes - vti_model_unloaded_bytes(model, false);
    return left == UINT64_MAX ? PLENTY_BYTES : limit(left + loaded);
}

/* Nobody has measured the ways between workers: they are taken to be as the worse of both to the
 * main device. */
static void set_links(const vt_cluster *c, vti_plan_cluster *out)
{
    vti_cluster_media media = {.devices = out->devices};
    for (size_t i = 0; i < c->device_count; i++) media.device[i + 1].to_main = c->devices[i].link;
    vti_cluster_links(&media, out);
}

static void set_precisions(const vt_cluster *c, vti_precision precision, vti_plan_request *r)
{
    const vti_composition *composition = &c->model->composition;
    const vti_geometry *g = &c->model->geometry;
    for (unsigned u = 1; u < r->model->units; u++)
        r->precision[u] = precision < VTI_PRECISION_COUNT
                              ? (uint8_t)precision
                              : composition->precision[vti_unit_of_plan(g, u)];
    /* As many of every unit: HEAD has none. */
    for (unsigned i = 0; composition->pruned && i < VTI_PLAN_PRUNABLE_MAX; i++)
        r->pruned_shards += !vti_composition_has(composition, vti_ffn_unit(0), i);
}

vt_status vti_cluster_describe(const vt_cluster *c, uint32_t context_tokens,
                               vti_precision precision, vti_cluster_plan *out, vt_error *err)
{
    memset(out, 0, sizeof *out);
    vti_plan_model_params params = {context_tokens, c->batch_tokens, c->kv_type};
    if (params.batch_tokens > context_tokens) params.batch_tokens = context_tokens;
    VTI_TRY(vti_plan_model_of(c->model->shards, &params, &out->model, err));
    out->request = (vti_plan_request){
        .cluster = &out->cluster,
        .model = &out->model,
        .wire = VTI_WIRE_F32,
        .prompt_tokens = context_tokens < PROMPT_TOKENS ? context_tokens : PROMPT_TOKENS,
        .batch_tokens = params.batch_tokens,
        .context_tokens = context_tokens,
        .ttft_s = c->ttft_ms / 1e3,
        .tpot_s = c->tpot_ms / 1e3,
    };
    set_precisions(c, precision, &out->request);
    add_pages(c, precision, &out->model);
    out->cluster.devices = 1 + (unsigned)c->device_count;
    set_scratch(c, context_tokens, precision, out);
    set_links(c, &out->cluster);
    for (unsigned d = 0; d < out->cluster.devices; d++) {
        vti_plan_device *device = &out->cluster.device[d];
        uint64_t offered = d ? c->devices[d - 1].offer.memory_bytes : 0;
        device->memory_bytes = d == 0 ? main_memory(c) : offered ? limit(offered) : PLENTY_BYTES;
        vti_cluster_set_speed(c, d, &out->model, device);
    }
    unsigned where;
    const char *wrong = vti_plan_check_request(&out->request, &where);
    if (!wrong) return VT_OK;
    return vti_fail(err, VT_ERR_INTERNAL, "no plan can be made: %s (%u)", wrong, where);
}

/* --- a given plan ----------------------------------------------------------------------------- */

static const char *check_unit(const vti_plan *plan, unsigned u)
{
    const vti_plan_place *decode = &plan->place[VTI_DECODE][u];
    const vti_plan_place *prefill = &plan->place[VTI_PREFILL][u];
    unsigned mask = vti_plan_mask(decode);
    bool end = u == 0 || u + 1 == plan->units;
    if (memcmp(decode->shares, prefill->shares, sizeof decode->shares) != 0 ||
        decode->home != prefill->home)
        return "is elsewhere in prefill than in decode";
    if (mask & (mask - 1)) return "is spread over several devices";
    if (end && (mask != 1 || decode->home != 0)) return "is not on the main device";
    if (!end && mask != 1u << decode->home) return "leaves its result on another device";
    return NULL;
}

const char *vti_plan_is_chain(const vti_plan *plan, unsigned *unit)
{
    unsigned seen = 0, last = 0;
    for (*unit = 0; *unit < plan->units; ++*unit) {
        const char *wrong = check_unit(plan, *unit);
        unsigned device = plan->place[VTI_DECODE][*unit].home;
        if (wrong) return wrong;
        if (*unit == 0 || *unit + 1 == plan->units || device == last) continue;
        if (*unit % 2 == 0) return "is on another device than the rest of its layer";
        if (device == 0 || (seen >> device & 1))
            return "is on a device that has others of the layers before, but not the last one";
        last = device;
        seen |= 1u << device;
    }
    return NULL;
}

/* The plan may be of any model and cluster. */
static vt_status check_given(const vt_cluster *c, const vti_plan *plan, vt_error *err)
{
    char name[VTI_SHARD_TEXT];
    const vti_geometry *g = &c->model->geometry;
    unsigned u;
    if (plan->units != g->units)
        return vti_fail(err, VT_ERR_ARGUMENT, "the plan has %u units, this model has %" PRIu32,
                        plan->units, g->units);
    if (plan->devices != 1 + c->device_count)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "the plan is for %u devices, the main one included; here are %zu",
                        plan->devices, 1 + c->device_count);
    const char *wrong = vti_plan_is_chain(plan, &u);
    if (!wrong) return VT_OK;
    vti_unit_name(g, vti_unit_of_plan(g, u), name, sizeof name);
    return vti_fail(err, VT_ERR_UNSUPPORTED,
                    "the plan's %s %s; what can be carried out so far are whole layers in a row on "
                    "each device, the first ones on the main device, which has EMBED and HEAD: "
                    "plans of voltron-run plan --planner layers",
                    name, wrong);
}

vt_status vti_cluster_read_plan(vt_cluster *c, const char *json, vt_error *err)
{
    vti_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return vti_fail(err, VT_ERR_MEMORY, "no memory for a plan");
    vt_status status = vti_plan_read_json(json, strlen(json), plan, err);
    if (status == VT_OK) status = check_given(c, plan, err);
    if (status == VT_OK)
        c->given = plan;
    else
        free(plan);
    return status;
}

/* The given plan instead of one that is searched for. */
static vt_status adopt(const vt_cluster *c, vti_cluster_plan *p, vt_error *err)
{
    char name[VTI_SHARD_TEXT];
    unsigned where;
    p->plan = *c->given;
    if (p->plan.pruned_shards != p->request.pruned_shards)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "the plan leaves out %u shards of each unit, the model was opened without "
                        "%u; open it with the plan", p->plan.pruned_shards,
                        p->request.pruned_shards);
    for (unsigned u = 1; u < p->plan.units; u++) {
        if (p->plan.precision[u] == p->request.precision[u]) continue;
        vti_unit_name(&c->model->geometry, vti_unit_of_plan(&c->model->geometry, u), name,
                      sizeof name);
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "the plan has %s at %s, the model was opened with it at %s; open it with "
                        "the plan", name, vti_precision_name(p->plan.precision[u]),
                        vti_precision_name(p->request.precision[u]));
    }
    bool narrow = false, copied = false;
    for (unsigned u = 0; u < p->plan.units; u++) {
        for (int phase = 0; phase < VTI_PHASES; phase++) {
            narrow |= p->plan.place[phase][u].wire != VTI_WIRE_F32;
            p->plan.place[phase][u].wire = VTI_WIRE_F32;
        }
        copied |= p->plan.replica[u] != 0;
        p->plan.replica[u] = 0;
    }
    if (copied)
        vti_log(&c->log, VT_LOG_WARNING, "keys and values are not copied to a second device, "
                                         "whatever the plan says");
    if (narrow)
        vti_log(&c->log, VT_LOG_WARNING, "activations travel as F32, whatever the plan says");
    p->request.precision[0] = p->plan.precision[0];
    const char *wrong = vti_plan_check_places(&p->request, &p->plan, &where);
    if (wrong) return vti_fail(err, VT_ERR_ARGUMENT, "the plan's unit %u: %s", where, wrong);
    vti_plan_evaluate(&p->request, &p->plan);
    return VT_OK;
}

/* --- what follows ----------------------------------------------------------------------------- */

/* Layers and places in the chain. */
static void assign(vt_cluster *c, const vti_plan *plan)
{
    uint32_t layers = c->model->hparams.layers;
    c->main_layers = c->chain_count = 0;
    for (uint32_t layer = 0; layer < layers; layer++) {
        unsigned d = plan->place[VTI_DECODE][1 + 2 * layer].home;
        if (d == 0) {
            c->main_layers++;
            continue;
        }
        vti_device *device = &c->devices[d - 1];
        if (device->count++ == 0) {
            device->first = layer;
            device->hop = c->chain_count++;
        }
    }
}

/* Devices without layers are free for others. */
static void release_unused(vt_cluster *c)
{
    for (size_t i = 0; i < c->device_count; i++) {
        vti_device *device = &c->devices[i];
        if (device->count) continue;
        vti_net_disconnect(c->net, device->peer, NULL);
        device->peer = 0;
        device->up = device->in_use = false;
    }
}

/* Without a profile times mean nothing; who asked for some should know. */
static void warn_of_qos(const vt_cluster *c, const vti_cluster_plan *p)
{
    if (!c->profile && c->qos_wanted)
        vti_log(&c->log, VT_LOG_WARNING,
                "whether answers are as fast as wanted is not known: this device has no profile");
    if (!c->profile || p->plan.meets_qos) return;
    vti_log(&c->log, VT_LOG_WARNING,
            "answers will be slower than wanted: about %.2f s to the first token of a prompt of "
            "%.0f (wanted: %.2f s), then %.*f ms per token (wanted: %" PRIu32 " ms)",
            p->plan.ttft_s, p->request.prompt_tokens, c->ttft_ms / 1e3,
            p->plan.tpot_s < 0.01 ? 2 : 0, p->plan.tpot_s * 1e3, c->tpot_ms);
}

static vt_status choose(vt_cluster *c, void *scratch, vt_error *err)
{
    vti_cluster_plan *p = c->plan;
    VTI_TRY(vti_cluster_describe(c, c->context_tokens, VTI_PRECISION_COUNT, p, err));
    p->is_timed = true;
    if (c->given)
        VTI_TRY(adopt(c, p, err));
    else
        vti_plan_search(&p->request, VTI_SEARCH_LAYERS, NULL, scratch, &p->plan);
    if (!p->plan.feasible) return vti_cluster_explain_shortfall(c, p, scratch, err);
    assign(c, &p->plan);
    vti_cluster_explain(c, p, scratch);
    warn_of_qos(c, p);
    return VT_OK;
}

vt_status vti_cluster_plan_layers(vt_cluster *c, vt_error *err)
{
    void *scratch = malloc(vti_plan_scratch_bytes());
    c->plan = calloc(1, sizeof *c->plan);
    vt_status status = scratch && c->plan ? choose(c, scratch, err)
                                          : vti_fail(err, VT_ERR_MEMORY, "no memory for a plan");
    free(scratch);
    if (status == VT_OK) release_unused(c);
    return status;
}

/* --- for the caller --------------------------------------------------------------------------- */

void vt_cluster_get_prediction(const vt_cluster *c, vt_cluster_prediction *out)
{
    *out = (vt_cluster_prediction){0};
    if (!c->plan || !c->plan->is_timed) return;
    const vti_cluster_plan *p = c->plan;
    *out = (vt_cluster_prediction){
        .is_known = true,
        .ttft_s = p->plan.ttft_s,
        .tpot_s = p->plan.tpot_s,
        .meets_qos = p->plan.meets_qos,
        .prompt_tokens = (uint32_t)p->request.prompt_tokens,
        .context_tokens = (uint32_t)p->request.context_tokens,
    };
}

/* Layers that were split without a plan, as one. NULL without memory, or if it cannot be. */
static vti_cluster_plan *plan_of_split(const vt_cluster *c)
{
    vti_cluster_plan *p = calloc(1, sizeof *p);
    if (!p || c->device_count >= VTI_PLAN_DEVICES_MAX ||
        vti_cluster_describe(c, c->context_tokens, VTI_PRECISION_COUNT, p, NULL) != VT_OK) {
        free(p);
        return NULL;
    }
    p->plan.units = p->model.units;
    p->plan.devices = p->cluster.devices;
    p->plan.pruned_shards = (uint16_t)p->request.pruned_shards;
    memcpy(p->plan.precision, p->request.precision, sizeof p->plan.precision);
    for (unsigned u = 0, from = 0; u < p->plan.units; u++) {
        unsigned layer = (u - 1) / 2, d = 0;
        bool end = u == 0 || u + 1 == p->plan.units;
        for (size_t i = 0; i < c->device_count && !end; i++)
            if (layer - c->devices[i].first < c->devices[i].count) d = 1 + (unsigned)i;
        vti_plan_place place = {.from = (uint8_t)from, .home = (uint8_t)d};
        place.shares[d] = (uint16_t)vti_plan_shards(&p->request, u);
        p->plan.place[VTI_PREFILL][u] = p->plan.place[VTI_DECODE][u] = place;
        from = d;
    }
    return p;
}

/* Which shards the model leaves out. */
static void mark_pruned(const vt_cluster *c, vti_plan *plan)
{
    const vti_composition *composition = &c->model->composition;
    const vti_geometry *g = &c->model->geometry;
    for (unsigned u = 1; composition->pruned && u < plan->units; u++)
        memcpy(plan->pruned[u], composition->pruned[vti_unit_of_plan(g, u)],
               sizeof plan->pruned[u]);
}

size_t vt_cluster_plan_text(const vt_cluster *c, char *buffer, size_t capacity)
{
    vti_cluster_plan *own = c->plan ? NULL : plan_of_split(c);
    const vti_plan *plan = c->plan ? &c->plan->plan : own ? &own->plan : NULL;
    vti_plan *marked = plan ? malloc(sizeof *marked) : NULL;
    if (marked) *marked = *plan;
    if (marked) mark_pruned(c, marked);
    char *text = marked ? vti_plan_write_json(marked) : NULL;
    size_t bytes = text ? strlen(text) : 0;
    if (capacity) snprintf(buffer, capacity, "%s", text ? text : "");
    free(text);
    free(marked);
    free(own);
    return bytes;
}
