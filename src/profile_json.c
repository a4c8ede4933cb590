/* profile_json.c: device profiles as text, one cost per line. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/kernels.h"
#include "json_fields.h"
#include "profile.h"

static const char FORMAT[] = "voltron-profile";
enum { VERSION = 1 };

static const char *const kind_names[VTI_PLAN_KINDS] = {"EMBED", "ATTN", "FFN", "MOE", "HEAD"};
static const char *const precision_names[VTI_PLAN_PRECISIONS] = {"F16", "I8", "I4"};
static const char *const phase_names[VTI_PHASES] = {"prefill", "decode"};

/* Of a cost. */
enum { TERM_FIELDS = 3 };
static const char *const cost_fields[TERM_FIELDS + VTI_PROFILE_TERMS + 2] = {
    "kind", "precision", "phase", "fixed", "per_mac", "per_weight_byte", "per_cached_byte",
    "per_kv_byte", "per_cached_kv_byte", "per_kv_mac", "per_shard", "per_value", "accuracy", NULL};
static const char *const *const term_names = cost_fields + TERM_FIELDS;

/* --- writing ---------------------------------------------------------------------------------- */

static json_t *features_json(uint32_t features)
{
    json_t *list = json_array();
    for (unsigned bit = 0; bit < 32; bit++) {
        const char *name = features >> bit & 1 ? vti_cpu_feature_name(1u << bit) : NULL;
        if (name) json_array_append_new(list, json_string(name));
    }
    return list;
}

static json_t *cost_json(const vti_profile *profile, unsigned k, unsigned p, unsigned phase)
{
    float terms[VTI_PROFILE_TERMS + 1];
    vti_profile_terms(&profile->cost[k][p][phase], terms);
    json_t *object = json_pack("{s:s, s:s, s:s}", "kind", kind_names[k], "precision",
                               precision_names[p], "phase", phase_names[phase]);
    for (unsigned t = 0; t <= VTI_PROFILE_TERMS; t++)
        json_object_set_new(object, term_names[t], json_real((double)terms[t]));
    return object;
}

static json_t *head_json(const vti_profile *profile)
{
    return json_pack("{s:s, s:i, s:s, s:s, s:o, s:I, s:I, s:f}", "format", FORMAT, "version",
                     VERSION, "voltron", profile->version, "name", profile->name, "features",
                     features_json(profile->features), "threads", (json_int_t)profile->threads,
                     "cache_bytes", (json_int_t)profile->cache_bytes, "bytes_per_s",
                     (double)profile->bytes_per_s);
}

/* Without its last `cut` characters; takes the object over. Nine digits bring a float back. */
static bool print_object(FILE *out, json_t *object, size_t cut, const char *end)
{
    char *line = object ? json_dumps(object, JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    if (line) fprintf(out, "%.*s%s", (int)(strlen(line) - cut), line, end);
    free(line);
    return line != NULL;
}

static bool print_profile(FILE *out, const vti_profile *profile)
{
    if (!print_object(out, head_json(profile), 1, ",\n\"costs\": [\n")) return false;
    for (unsigned i = 0; i < VTI_PROFILE_COSTS; i++) {
        unsigned phase = i % VTI_PHASES, p = i / VTI_PHASES % VTI_PLAN_PRECISIONS;
        unsigned k = VTI_PLAN_EMBED + 1 + i / VTI_PHASES / VTI_PLAN_PRECISIONS;
        if (!print_object(out, cost_json(profile, k, p, phase), 0,
                          i + 1 < VTI_PROFILE_COSTS ? ",\n" : "\n]}\n"))
            return false;
    }
    return true;
}

char *vti_profile_write_json(const vti_profile *profile)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    bool whole = print_profile(out, profile) && !ferror(out);
    whole &= fclose(out) == 0;
    if (whole) return text;
    free(text);
    return NULL;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Unlike in files written by hand, no field may be missing. */

static vt_status read_integer(const vti_json_at *at, const json_t *object, const char *field,
                              json_int_t low, json_int_t high, json_int_t *out)
{
    char wanted[80];
    const json_t *value = json_object_get(object, field);
    *out = json_is_integer(value) ? json_integer_value(value) : -1;
    snprintf(wanted, sizeof wanted,
             "a whole number from %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT, low, high);
    return *out < low || *out > high ? vti_json_bad(at, field, wanted) : VT_OK;
}

static vt_status read_amount(const vti_json_at *at, const json_t *object, const char *field,
                             float *out)
{
    const json_t *value = json_object_get(object, field);
    double number = json_is_number(value) ? json_number_value(value) : -1;
    *out = (float)number;
    return number >= 0 && number < 1e30
               ? VT_OK
               : vti_json_bad(at, field, "a number that is not negative");
}

static vt_status read_text(const vti_json_at *at, const json_t *object, const char *field,
                           char *out, size_t room)
{
    char wanted[48];
    const char *text = json_string_value(json_object_get(object, field));
    snprintf(wanted, sizeof wanted, "a text of at most %zu bytes", room - 1);
    if (!text || strlen(text) >= room) return vti_json_bad(at, field, wanted);
    memcpy(out, text, strlen(text) + 1);
    vti_make_printable(out);
    return VT_OK;
}

static vt_status read_name(const vti_json_at *at, const json_t *object, const char *field,
                           const char *const *names, unsigned count, const char *wanted,
                           unsigned *out)
{
    const char *name = json_string_value(json_object_get(object, field));
    for (*out = 0; *out < count; ++*out)
        if (name && strcmp(name, names[*out]) == 0) return VT_OK;
    return vti_json_bad(at, field, wanted);
}

static vt_status read_features(const vti_json_at *at, const json_t *object, uint32_t *out)
{
    const json_t *list = json_object_get(object, "features");
    if (!json_is_array(list)) return vti_json_bad(at, "features", "a list of names");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        unsigned bit = 0;
        for (; name && bit < 32; bit++) {
            const char *known = vti_cpu_feature_name(1u << bit);
            if (known && strcmp(known, name) == 0) break;
        }
        if (!name || bit == 32)
            return vti_fail(at->err, VT_ERR_FORMAT,
                            "%s, %s: \"%.40s\" in \"features\" is not known", at->file,
                            at->object, name ? name : "?");
        *out |= 1u << bit;
    }
    return VT_OK;
}

static vt_status read_cost(json_t *object, unsigned number, bool *seen, vti_profile *out,
                           vt_error *err)
{
    float terms[VTI_PROFILE_TERMS + 1];
    vti_json_at at = {.file = "the profile", .err = err};
    unsigned k, p, phase;
    snprintf(at.object, sizeof at.object, "cost %u", number);
    VTI_TRY(vti_json_check_fields(&at, object, cost_fields));
    VTI_TRY(read_name(&at, object, "kind", kind_names + 1, VTI_PLAN_KINDS - 1,
                      "ATTN, FFN, MOE or HEAD", &k));
    VTI_TRY(read_name(&at, object, "precision", precision_names, VTI_PLAN_PRECISIONS,
                      "F16, I8 or I4", &p));
    VTI_TRY(read_name(&at, object, "phase", phase_names, VTI_PHASES, "prefill or decode", &phase));
    for (unsigned t = 0; t <= VTI_PROFILE_TERMS; t++)
        VTI_TRY(read_amount(&at, object, term_names[t], &terms[t]));
    unsigned place_of = (k * VTI_PLAN_PRECISIONS + p) * VTI_PHASES + phase;
    if (seen[place_of])
        return vti_fail(err, VT_ERR_FORMAT, "%s, %s: %s at %s in %s is there twice", at.file,
                        at.object, kind_names[k + 1], precision_names[p], phase_names[phase]);
    seen[place_of] = true;
    out->cost[k + 1][p][phase] = vti_profile_cost_of(terms);
    return VT_OK;
}

static vt_status read_root(json_t *root, vti_profile *out, vt_error *err)
{
    static const char *const fields[] = {"format",   "version", "voltron",     "name",
                                         "features", "threads", "cache_bytes", "bytes_per_s",
                                         "costs",    NULL};
    vti_json_at at = {.file = "the profile", .object = "its head", .err = err};
    json_int_t version, threads, cache;
    bool seen[VTI_PROFILE_COSTS] = {false};
    VTI_TRY(vti_json_check_fields(&at, root, fields));
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, FORMAT) != 0)
        return vti_json_bad(&at, "format", "\"voltron-profile\"");
    VTI_TRY(read_integer(&at, root, "version", 0, INT32_MAX, &version));
    if (version != VERSION)
        return vti_json_bad(&at, "version", "1, the only one this program knows");
    VTI_TRY(read_text(&at, root, "voltron", out->version, sizeof out->version));
    VTI_TRY(read_text(&at, root, "name", out->name, sizeof out->name));
    VTI_TRY(read_features(&at, root, &out->features));
    VTI_TRY(read_integer(&at, root, "threads", 1, 1024, &threads));
    VTI_TRY(read_integer(&at, root, "cache_bytes", 0, INT64_C(1) << 47, &cache));
    VTI_TRY(read_amount(&at, root, "bytes_per_s", &out->bytes_per_s));
    out->threads = (uint32_t)threads;
    out->cache_bytes = (uint64_t)cache;
    const json_t *costs = json_object_get(root, "costs");
    if (!json_is_array(costs) || json_array_size(costs) != VTI_PROFILE_COSTS)
        return vti_json_bad(&at, "costs", "a list of 24: each kind, precision and phase");
    for (unsigned i = 0; i < VTI_PROFILE_COSTS; i++)
        VTI_TRY(read_cost(json_array_get(costs, i), i, seen, out, err));
    const char *wrong = vti_profile_check(out);
    return wrong ? vti_fail(err, VT_ERR_FORMAT, "the profile: %s", wrong) : VT_OK;
}

vt_status vti_profile_read_json(const char *text, size_t bytes, vti_profile *out, vt_error *err)
{
    vti_profile read = {.threads = 0};
    json_t *root = vti_json_load("the profile", text, bytes, err);
    if (!root) return VT_ERR_FORMAT;
    vt_status status = read_root(root, &read, err);
    json_decref(root);
    if (status == VT_OK) *out = read;
    return status;
}
