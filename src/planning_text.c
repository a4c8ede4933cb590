/* planning_text.c: a plan with all that is known of it, as JSON. docs/cluster-file.md names the
 * fields. */
#include <jansson.h>
#include <stdlib.h>

#include "planning.h"

static const char *const phase_names[VT_PHASE_COUNT] = {"prefill", "decode"};

static json_t *whole(uint64_t value) { return json_integer((json_int_t)value); }

static json_t *device_json(const vt_plan_device_info *d)
{
    json_t *object = json_object(), *units = json_object(), *busy = json_object();
    json_object_set_new(object, "name", json_string(d->name));
    json_object_set_new(object, "kind", json_string(d->kind));
    if (d->address) json_object_set_new(object, "address", json_string(d->address));
    json_object_set_new(object, "used", json_boolean(d->is_used));
    if (d->left_out) json_object_set_new(object, "left_out", json_string(d->left_out));
    json_object_set_new(object, "budget_bytes", whole(d->budget_bytes));
    json_object_set_new(object, "memory_bytes", whole(d->memory_bytes));
    json_object_set_new(object, "weight_bytes", whole(d->weight_bytes));
    json_object_set_new(object, "kv_bytes", whole(d->kv_bytes));
    json_object_set_new(object, "scratch_bytes", whole(d->scratch_bytes));
    json_object_set_new(object, "shortfall_bytes", whole(d->shortfall_bytes));
    for (unsigned phase = 0; phase < VT_PHASE_COUNT; phase++) {
        json_object_set_new(units, phase_names[phase], whole(d->units[phase]));
        json_object_set_new(busy, phase_names[phase], json_real(d->busy_s[phase]));
    }
    json_object_set_new(object, "units", units);
    json_object_set_new(object, "busy_s", busy);
    return object;
}

static json_t *phase_json(const vt_plan_unit_phase *phase, unsigned devices)
{
    json_t *shares = json_array();
    for (unsigned d = 0; d < devices; d++) json_array_append_new(shares, whole(phase->shares[d]));
    return json_pack("{s:i, s:i, s:b, s:s, s:o, s:f, s:f}", "from", (int)phase->from, "home",
                     (int)phase->home, "exchange", phase->exchange, "wire", phase->wire, "shares",
                     shares, "compute_s", phase->compute_s, "wire_s", phase->wire_s);
}

static json_t *unit_json(const vt_plan_unit_info *unit, unsigned devices)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:i, s:i, s:o, s:o}", "name", unit->name, "precision",
        vt_precision_name(unit->precision), "shards", (int)unit->shards, "pruned",
        (int)unit->pruned, phase_names[VT_PHASE_PREFILL],
        phase_json(&unit->phase[VT_PHASE_PREFILL], devices), phase_names[VT_PHASE_DECODE],
        phase_json(&unit->phase[VT_PHASE_DECODE], devices));
    if (unit->replica >= 0) json_object_set_new(object, "replica", json_integer(unit->replica));
    return object;
}

static json_t *head_json(const vt_plan_info *info)
{
    json_t *head = json_pack(
        "{s:s, s:b, s:b, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:b}", "planner", info->planner,
        "feasible", info->is_feasible, "meets_qos", info->meets_qos, "ttft_s", info->ttft_s,
        "tpot_s", info->tpot_s, "ttft_qos_s", info->ttft_qos_s, "tpot_qos_s", info->tpot_qos_s,
        "bound_s", info->bound_s, "context_tokens", (json_int_t)info->context_tokens,
        "prompt_tokens", (json_int_t)info->prompt_tokens, "pruned_shards",
        (json_int_t)info->pruned_shards, "importance", info->has_importance);
    for (unsigned phase = 0; phase < VT_PHASE_COUNT; phase++)
        json_object_set_new(head, phase_names[phase],
                            json_pack("{s:f, s:f}", "compute_s", info->compute_s[phase], "wire_s",
                                      info->wire_s[phase]));
    return head;
}

char *vti_planning_report(const vt_plan *plan)
{
    vt_plan_info info;
    vt_plan_device_info device;
    vt_plan_unit_info unit;
    const char *text;
    vt_plan_get_info(plan, &info);
    json_t *root = head_json(&info);
    json_t *devices = json_array(), *units = json_array(), *remarks = json_array();
    for (size_t i = 0; vt_plan_get_device(plan, i, &device) == VT_OK; i++)
        json_array_append_new(devices, device_json(&device));
    for (size_t i = 0; vt_plan_get_unit(plan, i, &unit) == VT_OK; i++)
        json_array_append_new(units, unit_json(&unit, info.device_count));
    for (size_t i = 0; (text = vt_plan_remark(plan, i)); i++)
        json_array_append_new(remarks, json_string(text));
    json_object_set_new(root, "devices", devices);
    json_object_set_new(root, "units", units);
    json_object_set_new(root, "remarks", remarks);
    char *json = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(root);
    return json;
}
