#include "device_class.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "json_fields.h"

extern const char vti_devices_json[], vti_devices_json_end[];

static const char file_name[] = "the device classes";

enum { GIGA = 1000000000 };

/* --- the data file ---------------------------------------------------------------------------- */

static json_t *load(vt_error *err)
{
    return vti_json_load(file_name, vti_devices_json,
                         (size_t)(vti_devices_json_end - vti_devices_json), err);
}

static double number(const json_t *object, const char *field)
{
    return json_number_value(json_object_get(object, field));
}

static const char *text(const json_t *object, const char *field)
{
    const char *value = json_string_value(json_object_get(object, field));
    return value ? value : "";
}

static double element(const json_t *object, const char *field, size_t index)
{
    return json_number_value(json_array_get(json_object_get(object, field), index));
}

/* --- the formula ------------------------------------------------------------------------------ */

/* Of all cores that compute together. */
typedef struct speed {
    unsigned cores;
    double ghz; /* of the first */
    double decode[VTI_PLAN_PRECISIONS], prefill[VTI_PLAN_PRECISIONS]; /* MAC/s */
    double attention[VTI_PHASES];   /* MAC/s */
    double values[2];               /* of the residual stream per second, in ATTN and FFN */
    double bytes_per_s;
} speed;

static void add_cores(speed *s, const json_t *cores, const json_t *cluster)
{
    const json_t *core = json_object_get(cores, text(cluster, "core"));
    double count = number(cluster, "count"), ghz = number(cluster, "ghz");
    double cycles = count * ghz * GIGA * number(core, "fraction");
    if (s->cores == 0) s->ghz = ghz;
    s->cores += (unsigned)count;
    for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++) {
        s->decode[p] += cycles * element(core, "decode", p);
        s->prefill[p] += cycles * element(core, "prefill", p);
    }
    s->attention[VTI_DECODE] += cycles * element(core, "attention", 0);
    s->attention[VTI_PREFILL] += cycles * element(core, "attention", 1);
    for (unsigned i = 0; i < 2; i++) s->values[i] += cycles / element(core, "value_cycles", i);
}

/* Handing work to threads and waiting for them, four times in a unit; and what begins a shard. */
static const double unit_cycles = 48e3, shard_cycles = 700;

static double larger(double a, double b) { return a > b ? a : b; }

/* Decoding takes as long as the slower of memory and arithmetic. */
static void set_decode(const speed *s, unsigned precision, vti_profile_cost *out)
{
    static const double bytes_per_weight[VTI_PLAN_PRECISIONS] = {2, 1.0625, 0.5625};
    double compute = 1 / (s->decode[precision] * bytes_per_weight[precision]);
    double read = 1 / s->bytes_per_s;
    out->per_weight_byte = (float)larger(compute, read);
    out->per_cached_byte = (float)compute;
    out->per_kv_mac = (float)(1 / s->attention[VTI_DECODE]);
    out->per_kv_byte = (float)read;
}

static void set_prefill(const speed *s, unsigned kind, unsigned precision, vti_profile_cost *out)
{
    out->per_mac = (float)(1 / s->prefill[precision]);
    out->per_weight_byte = out->per_cached_byte = (float)(1 / s->bytes_per_s);
    out->per_kv_mac = (float)(1 / s->attention[VTI_PREFILL]); /* 16 tokens share what is read */
    out->per_value = (float)(1 / s->values[kind != VTI_PLAN_ATTN]);
}

static void set_costs(const speed *s, vti_profile *out)
{
    for (unsigned k = VTI_PLAN_EMBED + 1; k < VTI_PLAN_KINDS; k++)
        for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (unsigned phase = 0; phase < VTI_PHASES; phase++) {
                vti_profile_cost *c = &out->cost[k][p][phase];
                c->fixed = (float)(unit_cycles / (s->ghz * GIGA));
                c->per_shard = (float)(shard_cycles / (s->ghz * GIGA));
                if (phase == VTI_DECODE || k == VTI_PLAN_HEAD) /* HEAD runs for one token */
                    set_decode(s, p, c);
                else
                    set_prefill(s, k, p, c);
            }
}

static void describe(const json_t *root, const json_t *device, vti_profile *out)
{
    speed s = {.bytes_per_s = number(device, "memory_gb_per_s") * GIGA *
                              number(root, "memory_fraction")};
    const json_t *clusters = json_object_get(device, "cores");
    for (size_t i = 0; i < json_array_size(clusters); i++)
        add_cores(&s, json_object_get(root, "cores"), json_array_get(clusters, i));
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", text(device, "title"));
    out->threads = s.cores;
    out->cache_bytes = (uint64_t)(number(device, "cache_mib") * 0x1p20);
    out->bytes_per_s = (float)s.bytes_per_s;
    set_costs(&s, out);
}

/* --- looking up ------------------------------------------------------------------------------- */

static vt_status no_class(const json_t *devices, const char *name, vt_error *err)
{
    char names[360] = "";
    for (size_t i = 0; i < json_array_size(devices); i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                 text(json_array_get(devices, i), "name"));
    }
    return vti_fail(err, VT_ERR_ARGUMENT, "there is no device class \"%.40s\"; there are %s", name,
                    names);
}

vt_status vti_device_class(const char *name, vti_profile *profile, uint64_t *memory_bytes,
                           vt_error *err)
{
    json_t *root = load(err);
    if (!root) return VT_ERR_INTERNAL;
    const json_t *devices = json_object_get(root, "devices"), *found = NULL;
    for (size_t i = 0; !found && i < json_array_size(devices); i++)
        if (strcmp(text(json_array_get(devices, i), "name"), name) == 0)
            found = json_array_get(devices, i);
    vt_status status = found ? VT_OK : no_class(devices, name, err);
    if (found) describe(root, found, profile);
    if (found && memory_bytes) *memory_bytes = (uint64_t)(number(found, "memory_gib") * 0x1p30);
    json_decref(root);
    return status;
}

size_t vt_device_class_count(void)
{
    json_t *root = load(NULL);
    size_t count = json_array_size(json_object_get(root, "devices"));
    json_decref(root);
    return count;
}

vt_status vt_device_class_get(size_t index, vt_device_class *out)
{
    json_t *root = load(NULL);
    const json_t *device = json_array_get(json_object_get(root, "devices"), index);
    if (device) {
        memset(out, 0, sizeof *out);
        snprintf(out->name, sizeof out->name, "%s", text(device, "name"));
        snprintf(out->title, sizeof out->title, "%s", text(device, "title"));
        snprintf(out->group, sizeof out->group, "%s", text(device, "group"));
        out->memory_bytes = (uint64_t)(number(device, "memory_gib") * 0x1p30);
    }
    json_decref(root);
    return device ? VT_OK : VT_ERR_ARGUMENT;
}

vt_status vt_profile_of_class(const char *name, vt_profile **out, vt_error *err)
{
    vti_profile facts;
    *out = NULL;
    VTI_TRY(vti_device_class(name, &facts, NULL, err));
    return vti_profile_new(&facts, out, err);
}
