#include "plan_json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "json_lines.h"

static const char FORMAT[] = "voltron-plan";
enum { VERSION = 1 };

static const char *const precision_names[VTI_PLAN_PRECISIONS] = {"F16", "I8", "I4"};
static const char *const wire_names[VTI_WIRES] = {"F32", "F16", "I8", "I4"};
static const char *const phase_names[VTI_PHASES] = {"prefill", "decode"};

/* --- writing ---------------------------------------------------------------------------------- */

static json_t *place_json(const vti_plan *plan, const vti_plan_place *place)
{
    json_t *shares = json_array();
    for (unsigned d = 0; d < plan->devices; d++)
        json_array_append_new(shares, json_integer(place->shares[d]));
    return json_pack("{s:i, s:i, s:b, s:s, s:o}", "from", place->from, "home", place->home,
                     "exchange", place->exchange, "wire", wire_names[place->wire], "shares",
                     shares);
}

static json_t *pruned_json(const uint64_t *pruned)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < VTI_PLAN_PRUNABLE_MAX; i++)
        if (pruned[i / 64] >> i % 64 & 1) json_array_append_new(list, json_integer(i));
    return list;
}

static json_t *unit_json(const vti_plan *plan, unsigned u)
{
    json_t *unit =
        json_pack("{s:i, s:s, s:o, s:o, s:o}", "unit", (int)u, "precision",
                  precision_names[plan->precision[u]], "pruned", pruned_json(plan->pruned[u]),
                  phase_names[VTI_PREFILL], place_json(plan, &plan->place[VTI_PREFILL][u]),
                  phase_names[VTI_DECODE], place_json(plan, &plan->place[VTI_DECODE][u]));
    if (unit && plan->replica[u])
        json_object_set_new(unit, "replica", json_integer(plan->replica[u] - 1));
    return unit;
}

static json_t *head_json(const vti_plan *plan)
{
    json_t *memory = json_array();
    for (unsigned d = 0; d < plan->devices; d++)
        json_array_append_new(memory, json_real(plan->memory_bytes[d]));
    return json_pack("{s:s, s:i, s:I, s:i, s:i, s:f, s:f, s:o}", "format", FORMAT, "version",
                     VERSION, "epoch", (json_int_t)plan->epoch, "devices", (int)plan->devices,
                     "pruned_shards", (int)plan->pruned_shards, "ttft_s", plan->ttft_s, "tpot_s",
                     plan->tpot_s, "memory_bytes", memory);
}

char *vti_plan_write_json(const vti_plan *plan)
{
    vti_json_lines t = {0};
    vti_json_append_value(&t, head_json(plan), 17, 0, 1);
    vti_json_append(&t, ",\n\"units\": [\n", 12);
    for (unsigned u = 0; u < plan->units; u++) {
        vti_json_append_value(&t, unit_json(plan, u), 17, 0, 0);
        vti_json_append(&t, ",\n", u + 1 < plan->units ? 2 : 0);
    }
    vti_json_append(&t, "\n]}\n", 4);
    return t.bytes;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Where we are, for messages: "the plan", "unit 5", "unit 5, decode". */
typedef struct place_in_text {
    char name[32];
    vt_error *err;
} place_in_text;

static vt_status bad(const place_in_text *at, const char *field, const char *wanted)
{
    return vti_fail(at->err, VT_ERR_FORMAT, "%s: \"%s\" must be %s", at->name, field, wanted);
}

static vt_status read_integer(const place_in_text *at, const json_t *object, const char *field,
                              json_int_t high, json_int_t *out)
{
    char wanted[64];
    const json_t *value = json_object_get(object, field);
    snprintf(wanted, sizeof wanted, "a whole number from 0 to %" JSON_INTEGER_FORMAT, high);
    if (!json_is_integer(value)) return bad(at, field, wanted);
    *out = json_integer_value(value);
    return *out < 0 || *out > high ? bad(at, field, wanted) : VT_OK;
}

static vt_status read_name(const place_in_text *at, const json_t *object, const char *field,
                           const char *const *names, unsigned count, const char *wanted,
                           uint8_t *out)
{
    const char *name = json_string_value(json_object_get(object, field));
    for (unsigned i = 0; name && i < count; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (uint8_t)i;
            return VT_OK;
        }
    return bad(at, field, wanted);
}

/* Names of all fields, NULL at the end; a field that is not among them may be a misspelt one. */
static vt_status check_fields(const place_in_text *at, json_t *object, const char *const *fields)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return vti_fail(at->err, VT_ERR_FORMAT, "%s: must be an object", at->name);
    json_object_foreach(object, key, value) {
        unsigned i = 0;
        while (fields[i] && strcmp(fields[i], key) != 0) i++;
        if (!fields[i])
            return vti_fail(at->err, VT_ERR_FORMAT, "%s: there is no field \"%.40s\"", at->name,
                            key);
    }
    return VT_OK;
}

static vt_status read_shares(const place_in_text *at, const json_t *object, unsigned devices,
                             vti_plan_place *place)
{
    const json_t *list = json_object_get(object, "shares");
    if (!json_is_array(list) || json_array_size(list) != devices)
        return bad(at, "shares", "a list with a number of shards for each device");
    for (unsigned d = 0; d < devices; d++) {
        const json_t *share = json_array_get(list, d);
        json_int_t n = json_is_integer(share) ? json_integer_value(share) : -1;
        if (n < 0 || n > UINT16_MAX) return bad(at, "shares", "whole numbers from 0 to 65535");
        place->shares[d] = (uint16_t)n;
    }
    return VT_OK;
}

static vt_status read_place(place_in_text at, json_t *unit, vti_plan_phase phase, unsigned devices,
                            vti_plan_place *place)
{
    static const char *const fields[] = {"from", "home", "exchange", "wire", "shares", NULL};
    json_t *object = json_object_get(unit, phase_names[phase]);
    const json_t *exchange;
    json_int_t from, home;
    size_t used = strlen(at.name);
    snprintf(at.name + used, sizeof at.name - used, ", %s", phase_names[phase]);
    VTI_TRY(check_fields(&at, object, fields));
    VTI_TRY(read_integer(&at, object, "from", devices - 1, &from));
    VTI_TRY(read_integer(&at, object, "home", devices - 1, &home));
    VTI_TRY(read_name(&at, object, "wire", wire_names, VTI_WIRES, "F32, F16, I8 or I4",
                      &place->wire));
    exchange = json_object_get(object, "exchange");
    if (!json_is_boolean(exchange)) return bad(&at, "exchange", "true or false");
    place->from = (uint8_t)from, place->home = (uint8_t)home;
    place->exchange = json_is_true(exchange);
    return read_shares(&at, object, devices, place);
}

static vt_status read_pruned(const place_in_text *at, const json_t *unit, uint64_t *pruned)
{
    static const char wanted[] = "a list of different shard numbers from 0 to 255";
    const json_t *list = json_object_get(unit, "pruned");
    if (!json_is_array(list)) return bad(at, "pruned", wanted);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t n = json_is_integer(item) ? json_integer_value(item) : -1;
        if (n < 0 || n >= VTI_PLAN_PRUNABLE_MAX || pruned[n / 64] >> n % 64 & 1)
            return bad(at, "pruned", wanted);
        pruned[n / 64] |= UINT64_C(1) << n % 64;
    }
    return VT_OK;
}

/* The device with a copy of the unit's KV rows; without the field there is none. */
static vt_status read_replica(const place_in_text *at, const json_t *unit, unsigned devices,
                              uint8_t *replica)
{
    json_int_t device = -1;
    if (json_object_get(unit, "replica"))
        VTI_TRY(read_integer(at, unit, "replica", devices - 1, &device));
    *replica = (uint8_t)(device + 1);
    return VT_OK;
}

static vt_status read_unit(json_t *object, unsigned u, vti_plan *plan, vt_error *err)
{
    static const char *const fields[] = {"unit",    "precision", "pruned",
                                         "prefill", "decode",    "replica", NULL};
    place_in_text at = {.err = err};
    json_int_t number;
    snprintf(at.name, sizeof at.name, "unit %u", u);
    VTI_TRY(check_fields(&at, object, fields));
    VTI_TRY(read_integer(&at, object, "unit", VTI_PLAN_UNITS_MAX - 1, &number));
    if (number != u) return bad(&at, "unit", "the number of its place in the list");
    VTI_TRY(read_name(&at, object, "precision", precision_names, VTI_PLAN_PRECISIONS,
                      "F16, I8 or I4", &plan->precision[u]));
    VTI_TRY(read_pruned(&at, object, plan->pruned[u]));
    VTI_TRY(read_replica(&at, object, plan->devices, &plan->replica[u]));
    for (vti_plan_phase phase = 0; phase < VTI_PHASES; phase++)
        VTI_TRY(read_place(at, object, phase, plan->devices, &plan->place[phase][u]));
    return VT_OK;
}

/* They may be left out, as they are worked out anew. */
static vt_status check_sums(const place_in_text *at, const json_t *root, size_t devices)
{
    static const char *const times[] = {"ttft_s", "tpot_s"};
    for (int i = 0; i < 2; i++) {
        const json_t *time = json_object_get(root, times[i]);
        if (time && !json_is_number(time)) return bad(at, times[i], "a number");
    }
    const json_t *memory = json_object_get(root, "memory_bytes");
    if (memory && (!json_is_array(memory) || json_array_size(memory) != devices))
        return bad(at, "memory_bytes", "a list with a number for each device");
    return VT_OK;
}

static vt_status read_head(json_t *root, vti_plan *plan, vt_error *err)
{
    static const char *const fields[] = {"format", "version", "epoch",        "devices",
                                         "units",  "ttft_s",  "tpot_s",       "pruned_shards",
                                         "memory_bytes", NULL};
    place_in_text at = {.name = "the plan", .err = err};
    json_int_t version, epoch, devices, pruned;
    VTI_TRY(check_fields(&at, root, fields));
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, FORMAT) != 0) return bad(&at, "format", "\"voltron-plan\"");
    VTI_TRY(read_integer(&at, root, "version", INT32_MAX, &version));
    if (version != VERSION) return bad(&at, "version", "1, the only one this program knows");
    VTI_TRY(read_integer(&at, root, "epoch", INT64_MAX, &epoch));
    VTI_TRY(read_integer(&at, root, "devices", VTI_PLAN_DEVICES_MAX, &devices));
    if (devices == 0) return bad(&at, "devices", "at least 1");
    VTI_TRY(read_integer(&at, root, "pruned_shards", VTI_PLAN_PRUNABLE_MAX - 1, &pruned));
    VTI_TRY(check_sums(&at, root, (size_t)devices));
    plan->epoch = (uint64_t)epoch;
    plan->devices = (unsigned)devices;
    plan->pruned_shards = (uint16_t)pruned;
    const json_t *units = json_object_get(root, "units");
    if (!json_is_array(units) || json_array_size(units) < 2 ||
        json_array_size(units) > VTI_PLAN_UNITS_MAX)
        return bad(&at, "units", "a list of 2 to 258 units");
    plan->units = (unsigned)json_array_size(units);
    return VT_OK;
}

static vt_status read_root(json_t *root, vti_plan *plan, vt_error *err)
{
    VTI_TRY(read_head(root, plan, err));
    const json_t *units = json_object_get(root, "units");
    for (unsigned u = 0; u < plan->units; u++)
        VTI_TRY(read_unit(json_array_get(units, u), u, plan, err));
    return VT_OK;
}

vt_status vti_plan_read_json(const char *bytes, size_t length, vti_plan *plan, vt_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return vti_fail(err, VT_ERR_FORMAT, "the plan is no JSON: line %d, column %d: %s",
                        where.line, where.column, where.text);
    vti_plan *read = calloc(1, sizeof *read);
    vt_status status = read ? read_root(root, read, err)
                            : vti_fail(err, VT_ERR_MEMORY, "no memory for a plan");
    if (status == VT_OK) *plan = *read;
    free(read);
    json_decref(root);
    return status;
}

vt_status vti_plan_adopt(vti_plan_request *request, vti_plan *plan, vt_error *err)
{
    unsigned where;
    if (plan->units != request->model->units)
        return vti_fail(err, VT_ERR_ARGUMENT, "the plan has %u units, the model %u", plan->units,
                        request->model->units);
    if (plan->devices != request->cluster->devices)
        return vti_fail(err, VT_ERR_ARGUMENT, "the plan has %u devices, the cluster %u",
                        plan->devices, request->cluster->devices);
    memcpy(request->precision, plan->precision, sizeof request->precision);
    request->pruned_shards = plan->pruned_shards;
    const char *wrong = vti_plan_check_places(request, plan, &where);
    if (wrong) return vti_fail(err, VT_ERR_ARGUMENT, "the plan's unit %u: %s", where, wrong);
    vti_plan_evaluate(request, plan);
    for (unsigned d = 0; d < plan->devices; d++)
        if (plan->shortfall_bytes[d] > 0)
            return vti_fail(err, VT_ERR_MEMORY,
                            "the plan needs %.0f bytes on device %u, which has %.0f",
                            plan->memory_bytes[d], d, request->cluster->device[d].memory_bytes);
    return VT_OK;
}
