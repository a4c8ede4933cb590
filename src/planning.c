/* planning.c: a model and a cluster file become a plan that can be looked at. */
#include "planning.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cluster.h"
#include "importance.h"
#include "json_fields.h"
#include "model.h"
#include "plan_json.h"
#include "plan_model.h"

enum { DEFAULT_PROMPT = 256 };

vt_plan_params vt_plan_params_default(void)
{
    return (vt_plan_params){.ttft_s = 10, .tpot_s = 0.4};
}

/* --- names ------------------------------------------------------------------------------------ */

const char *const *vt_plan_planners(void)
{
    static const char *const names[VTI_SEARCHES + 1] = {
        "dp",      "greedy",   "single",   "even-mp", "even-tp",
        "aware-mp", "aware-tp", "layers",   NULL};
    return names;
}

/* Finds `name` among names that end with NULL, in whatever case; NULL is the first. */
static vt_status choose(const char *what, const char *name, const char *const *names, unsigned *out,
                        vt_error *err)
{
    char known[160] = "";
    size_t length = 0;
    *out = 0;
    for (unsigned i = 0; names[i]; i++) {
        if (!name || strcasecmp(name, names[i]) == 0) {
            *out = i;
            return VT_OK;
        }
        length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "",
                                   names[i]);
    }
    return vti_fail(err, VT_ERR_ARGUMENT, "there is no %s \"%.40s\", only %s", what, name, known);
}

void vti_planning_unit_name(const vt_plan *plan, unsigned unit, char name[VTI_PLAN_UNIT_NAME])
{
    if (unit == 0 || unit + 1 == plan->model.units)
        strcpy(name, unit == 0 ? "EMBED" : "HEAD");
    else
        snprintf(name, VTI_PLAN_UNIT_NAME, "%s(%u)", unit % 2 ? "ATTN" : "FFN", (unit - 1) / 2);
}

/* --- the request ------------------------------------------------------------------------------ */

static vt_status check_params(const vt_plan_params *p, vt_error *err)
{
    if (!(p->ttft_s > 0 && isfinite(p->ttft_s)) || !(p->tpot_s > 0 && isfinite(p->tpot_s)))
        return vti_fail(err, VT_ERR_ARGUMENT, "ttft_s and tpot_s must be above 0");
    if (!vti_kv_type_known(p->kv_type))
        return vti_fail(err, VT_ERR_ARGUMENT, "unknown KV cache type %d", (int)p->kv_type);
    return VT_OK;
}

static vt_status set_tokens(vt_plan *plan, const vt_model *model, const vt_plan_params *p,
                            vti_plan_model_params *sizes, vt_error *err)
{
    uint32_t prompt = p->prompt_tokens;
    *sizes = (vti_plan_model_params){.context_tokens = p->context_tokens,
                                     .batch_tokens = p->batch_tokens, .kv_type = p->kv_type};
    vti_session_sizes(&model->hparams, &sizes->context_tokens, &sizes->batch_tokens);
    if (sizes->context_tokens > model->hparams.context)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "a context of %" PRIu32 " tokens is more than the %" PRIu32
                        " that the model was trained for",
                        sizes->context_tokens, model->hparams.context);
    if (!prompt)
        prompt = DEFAULT_PROMPT < sizes->context_tokens ? DEFAULT_PROMPT : sizes->context_tokens;
    if (prompt > sizes->context_tokens)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "a prompt of %" PRIu32 " tokens does not fit into a context of %" PRIu32,
                        prompt, sizes->context_tokens);
    plan->request.prompt_tokens = prompt;
    plan->request.batch_tokens = sizes->batch_tokens;
    plan->request.context_tokens = sizes->context_tokens;
    return VT_OK;
}

/* Types of a unit's weights, where F16 would be more than there is. */
static void note_types(vt_plan *plan, const vti_shard_source *source, unsigned u)
{
    vti_shard_form form;
    vti_shard_id id = {.unit = vti_unit_of_plan(source->geometry, u),
                       .precision = plan->highest[u]};
    if (id.precision == VTI_PRECISION_F16 || !source->form(source->self, id, &form)) return;
    for (unsigned i = 0; i < VTI_PIECES; i++)
        if (form.type[i] != VTI_PIECE_ABSENT && form.type[i] != VTI_F32)
            plan->file_types[id.precision] |= UINT64_C(1) << form.type[i];
}

/* What every unit is offered at. */
static void look_up_precisions(vt_plan *plan, const vt_model *model)
{
    const vti_shard_source *source = model->shards;
    for (unsigned u = 0; u < plan->model.units; u++) {
        vti_shard_form form;
        vti_shard_id id = {.unit = vti_unit_of_plan(&model->geometry, u)};
        plan->highest[u] = VTI_PLAN_I4, plan->lowest[u] = VTI_PLAN_F16;
        for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++) {
            id.precision = p;
            if (u > 0 && !source->form(source->self, id, &form)) continue;
            plan->offered[u] |= (uint8_t)(1u << p);
            if (p < plan->highest[u]) plan->highest[u] = (uint8_t)p;
            if (p > plan->lowest[u]) plan->lowest[u] = (uint8_t)p;
        }
    }
    plan->highest[0] = plan->highest[1]; /* EMBED is read as it is */
    for (unsigned u = 1; u < plan->model.units; u++) note_types(plan, source, u);
}

static vt_status set_precisions(vt_plan *plan, const vt_model *model, const char *wanted,
                                vt_error *err)
{
    static const char *const names[] = {"mixed", "F16", "I8", "I4", NULL};
    unsigned choice, everywhere = 7;
    char offered[16] = "";
    VTI_TRY(choose("precision", wanted, names, &choice, err));
    look_up_precisions(plan, model);
    for (unsigned u = 0; u < plan->model.units; u++) everywhere &= plan->offered[u];
    plan->mixed = choice == 0;
    memcpy(plan->request.precision, plan->highest, sizeof plan->highest);
    if (plan->mixed) return VT_OK;
    memset(plan->request.precision, (int)choice - 1, sizeof plan->request.precision);
    if (everywhere >> (choice - 1) & 1) return VT_OK;
    for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
        if (everywhere >> p & 1) strcat(strcat(offered, " "), names[p + 1]);
    return vti_fail(err, VT_ERR_ARGUMENT, "%s has no weights at precision %s, only at%s",
                    model->shards->name, wanted, offered);
}

static vt_status set_up_request(vt_plan *plan, const vt_model *model, const vt_plan_params *p,
                                vt_error *err)
{
    static const char *const wires[] = {"F16", "F32", "I8", "I4", NULL};
    static const uint8_t wire_of[] = {VTI_WIRE_F16, VTI_WIRE_F32, VTI_WIRE_I8, VTI_WIRE_I4};
    static const char *const allocations[] = {"search", "enumerate", "uniform", NULL};
    static const char *const orders[] = {"per-byte", "plain", NULL};
    vti_plan_request *r = &plan->request;
    vti_plan_model_params sizes;
    vt_memory_need need;
    vt_session_params session = vt_session_params_default();
    unsigned choice, where;
    VTI_TRY(choose("planner", p->planner, vt_plan_planners(), &choice, err));
    plan->kind = choice;
    plan->planner = vt_plan_planners()[choice];
    VTI_TRY(choose("allocation", p->allocation, allocations, &choice, err));
    plan->allocation = choice;
    VTI_TRY(choose("order", p->order, orders, &choice, err));
    plan->per_byte = choice == 0;
    VTI_TRY(choose("wire precision", p->wire, wires, &choice, err));
    *r = (vti_plan_request){.cluster = &plan->file.plan, .model = &plan->model,
                            .wire = wire_of[choice], .replicate_kv = p->replicate_kv,
                            .ttft_s = p->ttft_s, .tpot_s = p->tpot_s};
    VTI_TRY(check_params(p, err));
    VTI_TRY(set_tokens(plan, model, p, &sizes, err));
    VTI_TRY(vti_plan_model_of(model->shards, &sizes, &plan->model, err));
    VTI_TRY(set_precisions(plan, model, p->precision, err));
    session.context_tokens = sizes.context_tokens;
    session.batch_tokens = sizes.batch_tokens;
    session.kv_type = p->kv_type;
    vt_model_memory(model, &session, &need);
    for (unsigned d = 0; d < plan->file.plan.devices; d++) {
        plan->file.plan.device[d].scratch_bytes = (double)need.scratch_bytes;
        plan->budget_bytes[d] = plan->file.plan.device[d].memory_bytes;
        if (!(plan->file.reached >> d & 1)) plan->file.plan.device[d].memory_bytes = 0;
        if (plan->file.device[d].has_profile)
            vti_profile_fill(&plan->file.device[d].profile, &plan->model,
                             &plan->file.plan.device[d]);
    }
    const char *wrong = vti_plan_check_request(r, &where);
    if (wrong) return vti_fail(err, VT_ERR_ARGUMENT, "%s (number %u)", wrong, where);
    return VT_OK;
}

/* --- the plan --------------------------------------------------------------------------------- */

/* An order more than a measure, which sizes say nothing about (bench/results/precision.md). Without a
 * measurement units near the middle of the model are lowered first, FFN before ATTN of
 * the same layer, HEAD last; published mixtures of precisions keep the ends high as well. */
static void guess_importance(const vt_plan *plan, vti_plan_importance *out)
{
    int units = (int)plan->model.units, middle = units / 2;
    for (int u = 1; u + 1 < units; u++) {
        int from_middle = abs((u - 1) / 2 * 2 - middle);
        out->unit[u] = 2 * from_middle + u % 2;
    }
    out->unit[units - 1] = 4 * units;
}

/* A precision that the model lacks counts as many bytes as the one that is taken instead. */
static bool take_offered(vt_plan *plan)
{
    bool changed = false;
    for (unsigned u = 1; u < plan->model.units; u++) {
        unsigned p = plan->found.precision[u], offered = plan->offered[u];
        while (p < VTI_PLAN_PRECISIONS && !(offered >> p & 1)) p++;
        while (p == VTI_PLAN_PRECISIONS || !(offered >> p & 1)) p--;
        changed = changed || p != plan->found.precision[u];
        plan->request.precision[u] = (uint8_t)p;
    }
    return changed;
}

static void allocate(vt_plan *plan, const vti_plan_importance *importance)
{
    uint16_t order[VTI_PLAN_UNITS_MAX];
    unsigned ordered = vti_plan_lowering_order(&plan->request, importance,
                                               plan->per_byte && plan->has_importance, order);
    vti_plan_allocate(&plan->request, importance, order, ordered, plan->allocation, plan->kind,
                      plan->scratch, &plan->found);
    plan->request.pruned_shards = plan->found.pruned_shards;
    if (!take_offered(plan)) return;
    uint64_t pruned[VTI_PLAN_UNITS_MAX][VTI_PLAN_PRUNABLE_MAX / 64];
    memcpy(pruned, plan->found.pruned, sizeof pruned);
    vti_plan_search(&plan->request, plan->kind, NULL, plan->scratch, &plan->found);
    memcpy(plan->found.pruned, pruned, sizeof pruned);
}

static vt_status choose_precisions(vt_plan *plan, const vt_model *model, const char *path,
                                   vt_error *err)
{
    vti_plan_importance importance = {.shard = NULL};
    vti_model_identity identity;
    vti_importance *measured;
    if (!path) {
        guess_importance(plan, &importance);
        allocate(plan, &importance);
        return VT_OK;
    }
    vti_model_get_identity(model, &identity);
    VTI_TRY(vti_importance_load(path, &model->geometry, &identity, &measured, err));
    float (*shard)[VTI_PLAN_PRUNABLE_MAX] = calloc(VTI_PLAN_UNITS_MAX, sizeof *shard);
    vt_status status = shard ? vti_importance_for_plan(measured, &model->geometry, shard,
                                                       &importance, err)
                             : vti_fail(err, VT_ERR_MEMORY, "no memory for a plan");
    if (status == VT_OK) {
        plan->has_importance = true;
        allocate(plan, &importance);
    }
    free(shard);
    vti_importance_free(measured);
    return status;
}

/* Of a plan that does not fit only the memory is wrong: it can be shown. */
static vt_status adopt(vt_plan *plan, const char *text, size_t bytes, vt_error *err)
{
    VTI_TRY(vti_plan_read_json(text, bytes, &plan->found, err));
    vt_status status = vti_plan_adopt(&plan->request, &plan->found, err);
    if (status != VT_OK && status != VT_ERR_MEMORY) return status;
    for (unsigned u = 1; u < plan->model.units; u++)
        if (!(plan->offered[u] >> plan->found.precision[u] & 1))
            return vti_fail(err, VT_ERR_ARGUMENT, "the model has no %s weights for unit %u",
                            vti_precision_name(plan->found.precision[u]), u);
    return VT_OK;
}

static vt_status read_plan(vt_plan *plan, const char *json, vt_error *err)
{
    vt_error inner;
    plan->planner = "given";
    vt_status status = adopt(plan, json, strlen(json), &inner);
    return status == VT_OK ? VT_OK : vti_fail(err, status, "the plan given: %s", inner.message);
}

bool vti_planning_uses(const vt_plan *plan, unsigned device)
{
    return plan->device[device].units[VTI_DECODE] || plan->device[device].units[VTI_PREFILL];
}

/* What only `device` computes of a unit, by a place that sends nothing anywhere. */
static double busy_seconds(const vti_plan_request *r, vti_plan_phase phase, unsigned u,
                           const vti_plan_place *place, unsigned device)
{
    vti_plan_place alone = {.from = (uint8_t)device, .home = (uint8_t)device, .wire = place->wire};
    alone.shares[device] = place->shares[device];
    return vti_plan_unit_seconds(r, phase, u, &alone, 1u << device);
}

/* KV rows of a device's shards, there and at their copy's. */
static void add_up_kv(vt_plan *plan, unsigned u, unsigned device)
{
    const vti_plan_class *class_ = &plan->model.class_[plan->model.unit_class[u]];
    double rows = plan->request.context_tokens;
    if (class_->window > 0 && class_->window < rows) rows = class_->window;
    double bytes = plan->found.place[VTI_DECODE][u].shares[device] * class_->kv_bytes * rows;
    int copy = vti_plan_replica_of(&plan->found, u, device);
    plan->device[device].kv_bytes += bytes;
    if (copy >= 0) plan->device[copy].kv_bytes += bytes;
}

static void add_up_unit(vt_plan *plan, vti_plan_phase phase, unsigned u)
{
    const vti_plan_request *r = &plan->request;
    const vti_plan_place *places = plan->found.place[phase];
    unsigned holders = u ? vti_plan_holders(&places[u - 1]) : 1;
    double compute = 0;
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        vti_plan_device_facts *facts = &plan->device[d];
        if (!places[u].shares[d]) continue;
        double busy = busy_seconds(r, phase, u, &places[u], d);
        compute = busy > compute ? busy : compute;
        facts->busy_s[phase] += busy;
        facts->units[phase] += u > 0; /* looking up rows is no work */
        if (phase == VTI_DECODE) add_up_kv(plan, u, d);
    }
    plan->compute_s[phase][u] = compute;
    double wire = vti_plan_unit_seconds(r, phase, u, &places[u], holders) - compute;
    plan->wire_s[phase][u] = wire > 0 ? wire : 0;
}

static void add_up(vt_plan *plan)
{
    for (vti_plan_phase phase = 0; phase < VTI_PHASES; phase++)
        for (unsigned u = 0; u < plan->model.units; u++) add_up_unit(plan, phase, u);
    for (unsigned d = 0; d < plan->file.plan.devices; d++) {
        double scratch = plan->file.plan.device[d].scratch_bytes;
        double weights = plan->found.memory_bytes[d] - scratch - plan->device[d].kv_bytes;
        plan->device[d].weight_bytes = weights > 0 ? weights : 0;
    }
}

static vt_status make_plan(vt_plan *plan, const vt_model *model, const char *cluster_path,
                           const vt_plan_params *params, vt_error *err)
{
    VTI_TRY(vti_cluster_file_read(cluster_path, &plan->file, err));
    VTI_TRY(set_up_request(plan, model, params, err));
    if (params->importance_path && (params->plan_json || !plan->mixed))
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "importances only matter where precisions are chosen (mixed)");
    if (params->plan_json)
        VTI_TRY(read_plan(plan, params->plan_json, err));
    else if (plan->mixed)
        VTI_TRY(choose_precisions(plan, model, params->importance_path, err));
    else
        vti_plan_search(&plan->request, plan->kind, NULL, plan->scratch, &plan->found);
    if (!params->plan_json && plan->kind == VTI_SEARCH_DP) vti_planning_try_fewer(plan);
    add_up(plan);
    vti_planning_advise(plan);
    return VT_OK;
}

vt_status vt_plan_open(const vt_model *model, const char *cluster_path,
                       const vt_plan_params *params, vt_plan **out, vt_error *err)
{
    vt_plan_params defaults = vt_plan_params_default();
    *out = NULL;
    if (model->vocabulary_only)
        return vti_fail(err, VT_ERR_ARGUMENT, "the model was opened without weights");
    vt_plan *plan = calloc(1, sizeof *plan);
    void *scratch = malloc(vti_plan_scratch_bytes());
    vt_status status = VT_OK;
    if (!plan || !scratch) {
        status = vti_fail(err, VT_ERR_MEMORY, "no memory for a plan");
    } else {
        plan->scratch = scratch;
        status = make_plan(plan, model, cluster_path, params ? params : &defaults, err);
        plan->scratch = NULL;
    }
    free(scratch);
    if (status == VT_OK)
        *out = plan;
    else
        free(plan);
    return status;
}

void vt_plan_close(vt_plan *plan) { free(plan); }

/* --- looking at it ---------------------------------------------------------------------------- */

void vt_plan_get_info(const vt_plan *plan, vt_plan_info *out)
{
    const vti_plan_request *r = &plan->request;
    *out = (vt_plan_info){
        .planner = plan->planner,
        .has_importance = plan->has_importance,
        .device_count = r->cluster->devices,
        .unit_count = plan->model.units,
        .context_tokens = (uint32_t)r->context_tokens,
        .prompt_tokens = (uint32_t)r->prompt_tokens,
        .pruned_shards = plan->found.pruned_shards,
        .is_feasible = plan->found.feasible,
        .meets_qos = plan->found.meets_qos,
        .ttft_s = plan->found.ttft_s,
        .tpot_s = plan->found.tpot_s,
        .ttft_qos_s = r->ttft_s,
        .tpot_qos_s = r->tpot_s,
        .bound_s = plan->found.bound_s,
    };
    for (unsigned phase = 0; phase < VTI_PHASES; phase++)
        for (unsigned u = 0; u < plan->model.units; u++) {
            out->compute_s[phase] += plan->compute_s[phase][u];
            out->wire_s[phase] += plan->wire_s[phase][u];
        }
}

vt_status vt_plan_get_device(const vt_plan *plan, size_t index, vt_plan_device_info *out)
{
    if (index >= plan->file.plan.devices) return VT_ERR_ARGUMENT;
    const vti_cluster_device *device = &plan->file.device[index];
    const vti_plan_device_facts *facts = &plan->device[index];
    const vti_plan_device *planned = &plan->file.plan.device[index];
    double needed = plan->found.memory_bytes[index];
    *out = (vt_plan_device_info){
        .name = device->name,
        .kind = device->kind,
        .address = device->address[0] ? device->address : NULL,
        .is_used = vti_planning_uses(plan, (unsigned)index),
        .left_out = facts->left_out[0] ? facts->left_out : NULL,
        .budget_bytes = (uint64_t)plan->budget_bytes[index],
        .memory_bytes = (uint64_t)needed,
        .shortfall_bytes = (uint64_t)plan->found.shortfall_bytes[index],
        .weight_bytes = (uint64_t)facts->weight_bytes,
        .kv_bytes = (uint64_t)facts->kv_bytes,
        .scratch_bytes = needed > 0 ? (uint64_t)planned->scratch_bytes : 0,
        .accuracy = device->has_profile ? vti_profile_accuracy(&device->profile) : 0,
    };
    for (unsigned phase = 0; phase < VTI_PHASES; phase++) {
        out->units[phase] = facts->units[phase];
        out->busy_s[phase] = facts->busy_s[phase];
    }
    return VT_OK;
}

vt_status vt_plan_get_unit(const vt_plan *plan, size_t index, vt_plan_unit_info *out)
{
    static const char *const wires[VTI_WIRES] = {"F32", "F16", "I8", "I4"};
    if (index >= plan->model.units) return VT_ERR_ARGUMENT;
    unsigned u = (unsigned)index;
    *out = (vt_plan_unit_info){.precision = (vt_precision)plan->found.precision[u],
                               .shards = vti_plan_shards(&plan->request, u),
                               .replica = plan->found.replica[u] - 1};
    vti_planning_unit_name(plan, u, out->name);
    out->pruned = plan->model.class_[plan->model.unit_class[u]].shards - out->shards;
    for (unsigned phase = 0; phase < VTI_PHASES; phase++) {
        const vti_plan_place *place = &plan->found.place[phase][u];
        vt_plan_unit_phase *shown = &out->phase[phase];
        *shown = (vt_plan_unit_phase){.from = place->from, .home = place->home,
                                      .exchange = place->exchange, .wire = wires[place->wire],
                                      .compute_s = plan->compute_s[phase][u],
                                      .wire_s = plan->wire_s[phase][u]};
        for (unsigned d = 0; d < VTI_PLAN_DEVICES_MAX; d++) {
            shown->shares[d] = place->shares[d];
            shown->sharers += place->shares[d] > 0;
        }
    }
    return VT_OK;
}

const char *vt_plan_remark(const vt_plan *plan, size_t index)
{
    return index < plan->remarks ? plan->remark[index] : NULL;
}

size_t vt_plan_text(const vt_plan *plan, vt_plan_form form, char *buffer, size_t capacity)
{
    char *text = form == VT_PLAN_REPORT ? vti_planning_report(plan)
                 : form == VT_PLAN_SVG  ? vti_planning_svg(plan)
                                        : vti_plan_write_json(&plan->found);
    size_t bytes = text ? strlen(text) : 0;
    if (capacity) {
        size_t taken = bytes < capacity ? bytes : capacity - 1;
        memcpy(buffer, text ? text : "", taken);
        buffer[taken] = 0;
    }
    free(text);
    return bytes;
}
