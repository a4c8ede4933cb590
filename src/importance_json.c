/* importance_json.c: importances as text. */
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "importance.h"
#include "json_lines.h"
#include "mapped_file.h"
#include "store_format.h"

static const char FORMAT[] = "voltron-importance";
enum { VERSION = 1, NAME_BYTES = 24, HEX_BYTES = 2 * VTI_IDENTITY_BYTES };

/* Digits of scores and of channels' scores. */
enum { SCORE_DIGITS = 9, CHANNEL_DIGITS = 4 };

static const char *const method_names[] = {"shards", "channels"};

/* --- writing ---------------------------------------------------------------------------------- */

static json_t *hex_json(const uint8_t *bytes)
{
    char hex[HEX_BYTES + 1];
    for (unsigned i = 0; i < VTI_IDENTITY_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return json_string(hex);
}

static json_t *head_json(const vti_importance *im)
{
    return json_pack("{s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:f, s:o, s:o, s:o}", "format", FORMAT,
                     "version", VERSION, "task", im->task, "precision",
                     vti_precision_name(im->precision), "method", method_names[im->exact],
                     "tokens", (json_int_t)im->tokens, "context", (json_int_t)im->context_tokens,
                     "perplexity", im->perplexity, "model_shape", hex_json(im->identity.shape),
                     "model_weights", hex_json(im->identity.weights), "text", hex_json(im->text));
}

static json_t *numbers_json(const double *x, uint64_t count)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < count; i++) json_array_append_new(list, json_real(x[i]));
    return list;
}

static json_t *unit_json(const vti_importance *im, const vti_geometry *g, uint32_t unit)
{
    char name[NAME_BYTES];
    uint32_t first = im->first_part[unit];
    vti_unit_name(g, unit, name, sizeof name);
    return json_pack("{s:s, s:f, s:o}", "unit", name, "score", im->unit[unit], "parts",
                     numbers_json(im->part + first, im->first_part[unit + 1] - first));
}

static json_t *channels_json(const vti_importance *im, uint32_t unit)
{
    json_t *list = json_array();
    for (uint32_t i = im->first_part[unit]; i < im->first_part[unit + 1]; i++) {
        const vti_importance_part *part = &im->part_at[i];
        json_array_append_new(list, numbers_json(im->channel + part->first_channel,
                                                 part->channels));
    }
    return list;
}

char *vti_importance_write_json(const vti_importance *im, const vti_geometry *g)
{
    vti_json_lines t = {0};
    bool any = false;
    vti_json_append_value(&t, head_json(im), SCORE_DIGITS, JSON_COMPACT, 1);
    vti_json_append(&t, ",\n\"units\":[\n", 12);
    for (uint32_t unit = 0; unit < im->units; unit++) {
        if (!im->measured[unit]) continue;
        vti_json_append(&t, ",\n", any ? 2 : 0);
        vti_json_append_value(&t, unit_json(im, g, unit), SCORE_DIGITS, JSON_COMPACT, 1);
        vti_json_append(&t, ",\"channels\":", 12);
        vti_json_append_value(&t, channels_json(im, unit), CHANNEL_DIGITS, JSON_COMPACT, 0);
        vti_json_append(&t, "}", 1);
        any = true;
    }
    vti_json_append(&t, "\n]}\n", 4);
    return t.bytes;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Where we are, for messages: "the file", "ATTN(3)". */
typedef struct place_in_text {
    const char *name;
    vt_error *err;
} place_in_text;

static vt_status bad(place_in_text at, const char *field, const char *wanted)
{
    return vti_fail(at.err, VT_ERR_FORMAT, "%s: \"%s\" must be %s", at.name, field, wanted);
}

static vt_status read_text(place_in_text at, const json_t *object, const char *field,
                           const char *wanted, const char **out)
{
    *out = json_string_value(json_object_get(object, field));
    return *out ? VT_OK : bad(at, field, wanted);
}

static vt_status read_hex(place_in_text at, const json_t *object, const char *field, uint8_t *out)
{
    static const char wanted[] = "64 hexadecimal digits";
    const char *hex;
    VTI_TRY(read_text(at, object, field, wanted, &hex));
    if (strlen(hex) != HEX_BYTES || strspn(hex, "0123456789abcdef") != HEX_BYTES)
        return bad(at, field, wanted);
    for (unsigned i = 0; i < VTI_IDENTITY_BYTES; i++) {
        const char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return VT_OK;
}

static vt_status read_count(place_in_text at, const json_t *object, const char *field,
                            uint64_t most, uint64_t *out)
{
    const json_t *value = json_object_get(object, field);
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < 1 || (uint64_t)n > most) return bad(at, field, "a whole number above 0");
    *out = (uint64_t)n;
    return VT_OK;
}

/* Beyond that, rounding to some digits could give what is no double. */
static bool read_number(const json_t *value, double *out)
{
    *out = json_number_value(value);
    return json_is_number(value) && fabs(*out) <= 1e100;
}

static vt_status read_choice(place_in_text at, const json_t *object, const char *field,
                             const char *wanted, const char *(*name)(unsigned), unsigned *out)
{
    const char *found;
    VTI_TRY(read_text(at, object, field, wanted, &found));
    for (unsigned i = 0; name(i); i++)
        if (strcmp(found, name(i)) == 0) {
            *out = i;
            return VT_OK;
        }
    return bad(at, field, wanted);
}

static const char *precision_name(unsigned i)
{
    return i < VTI_PRECISION_COUNT ? vti_precision_name((vti_precision)i) : NULL;
}

static const char *method_name(unsigned i) { return i < 2 ? method_names[i] : NULL; }

static vt_status read_what(place_in_text at, json_t *root)
{
    const json_t *format = json_object_get(root, "format");
    if (!json_is_string(format) || strcmp(json_string_value(format), FORMAT) != 0)
        return vti_fail(at.err, VT_ERR_FORMAT, "this is not a file of importances");
    const json_t *version = json_object_get(root, "version");
    if (json_is_integer(version) && json_integer_value(version) == VERSION) return VT_OK;
    return vti_fail(at.err, VT_ERR_UNSUPPORTED,
                    "this file of importances is of another version than %d", VERSION);
}

static vt_status read_head(json_t *root, vti_importance *out, vt_error *err)
{
    place_in_text at = {"the file", err};
    const char *task;
    unsigned precision = 0, method = 0;
    uint64_t context = 0;
    VTI_TRY(read_what(at, root));
    VTI_TRY(read_text(at, root, "task", "a text", &task));
    if (!*task || strlen(task) > VTI_TASK_BYTES_MAX) return bad(at, "task", "1 to 64 bytes long");
    strcpy(out->task, task);
    VTI_TRY(read_choice(at, root, "precision", "F16, I8 or I4", precision_name, &precision));
    VTI_TRY(read_choice(at, root, "method", "shards or channels", method_name, &method));
    VTI_TRY(read_count(at, root, "tokens", INT64_MAX, &out->tokens));
    VTI_TRY(read_count(at, root, "context", UINT32_MAX, &context));
    VTI_TRY(read_hex(at, root, "model_shape", out->identity.shape));
    VTI_TRY(read_hex(at, root, "model_weights", out->identity.weights));
    VTI_TRY(read_hex(at, root, "text", out->text));
    if (!read_number(json_object_get(root, "perplexity"), &out->perplexity) ||
        out->perplexity < 1)
        return bad(at, "perplexity", "a number from 1");
    out->precision = (vti_precision)precision;
    out->exact = method == 1;
    out->context_tokens = (uint32_t)context;
    return VT_OK;
}

/* A list of exactly `count` numbers. */
static vt_status read_numbers(place_in_text at, const json_t *list, const char *field,
                              uint32_t count, double *out)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "a list of %" PRIu32 " numbers", count);
    if (!json_is_array(list) || json_array_size(list) != count) return bad(at, field, wanted);
    for (uint32_t i = 0; i < count; i++)
        if (!read_number(json_array_get(list, i), &out[i])) return bad(at, field, wanted);
    return VT_OK;
}

static vt_status read_channels(place_in_text at, const json_t *lists, uint32_t unit,
                               vti_importance *out)
{
    uint32_t first = out->first_part[unit], parts = out->first_part[unit + 1] - first;
    if (!json_is_array(lists) || json_array_size(lists) != parts)
        return bad(at, "channels", "a list of numbers for each part");
    for (uint32_t i = 0; i < parts; i++) {
        const vti_importance_part *part = &out->part_at[first + i];
        VTI_TRY(read_numbers(at, json_array_get(lists, i), "channels", part->channels,
                             out->channel + part->first_channel));
    }
    return VT_OK;
}

/* The number of the unit that has this name; `units` if none has. */
static uint32_t find_unit(const vti_geometry *g, const char *name, uint32_t units)
{
    char other[NAME_BYTES];
    uint32_t unit = 0;
    for (; unit < units; unit++) {
        vti_unit_name(g, unit, other, sizeof other);
        if (strcmp(name, other) == 0) break;
    }
    return unit;
}

static vt_status read_unit(const json_t *object, const vti_geometry *g, vti_importance *out,
                           vt_error *err)
{
    place_in_text at = {"the file", err};
    const char *name;
    VTI_TRY(read_text(at, object, "unit", "the name of a unit, such as ATTN(0)", &name));
    uint32_t unit = find_unit(g, name, out->units);
    if (unit == out->units)
        return vti_fail(err, VT_ERR_FORMAT, "the model has no unit \"%.24s\" to prune", name);
    at.name = name;
    if (out->measured[unit]) return vti_fail(err, VT_ERR_FORMAT, "%s is there twice", name);
    uint32_t first = out->first_part[unit], parts = out->first_part[unit + 1] - first;
    if (!read_number(json_object_get(object, "score"), &out->unit[unit]))
        return bad(at, "score", "a number");
    out->measured[unit] = true;
    VTI_TRY(read_numbers(at, json_object_get(object, "parts"), "parts", parts, out->part + first));
    const json_t *channels = json_object_get(object, "channels");
    return channels ? read_channels(at, channels, unit, out) : VT_OK;
}

static vt_status check_identity(const vti_importance *im, const vti_model_identity *own,
                                vt_error *err)
{
    bool shape = memcmp(own->shape, im->identity.shape, sizeof own->shape) == 0;
    if (shape && memcmp(own->weights, im->identity.weights, sizeof own->weights) == 0) return VT_OK;
    return vti_fail(err, VT_ERR_ARGUMENT,
                    "this was measured on another model: its %s differ; \"voltron-run importance\" "
                    "measures this model", shape ? "weights" : "hyperparameters or tokenizer");
}

/* Units of another model would make little sense: whose they are is looked at first. */
static vt_status read_root(json_t *root, const vti_geometry *g, const vti_model_identity *identity,
                           vti_importance *out, vt_error *err)
{
    VTI_TRY(read_head(root, out, err));
    if (identity) VTI_TRY(check_identity(out, identity, err));
    const json_t *units = json_object_get(root, "units");
    if (!json_is_array(units)) return bad((place_in_text){"the file", err}, "units", "a list");
    memset(out->measured, 0, out->units * sizeof *out->measured);
    for (size_t i = 0; i < json_array_size(units); i++)
        VTI_TRY(read_unit(json_array_get(units, i), g, out, err));
    return VT_OK;
}

vt_status vti_importance_read_json(const char *text, size_t bytes, const vti_geometry *g,
                                   const vti_model_identity *identity, vti_importance *out,
                                   vt_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return vti_fail(err, VT_ERR_FORMAT, "this is no JSON: line %d, column %d: %s", where.line,
                        where.column, where.text);
    vt_status status = read_root(root, g, identity, out, err);
    json_decref(root);
    return status;
}

/* --- files ------------------------------------------------------------------------------------ */

vt_status vti_importance_load(const char *path, const vti_geometry *g,
                              const vti_model_identity *identity, vti_importance **out,
                              vt_error *err)
{
    vti_mapped_file file;
    vt_error why = {.message = ""};
    *out = NULL;
    VTI_TRY(vti_mapped_file_open(path, &file, err));
    vt_status status = vti_importance_new(g, out, &why);
    if (status == VT_OK)
        status = vti_importance_read_json(file.data ? file.data : "", file.bytes, g, identity,
                                          *out, &why);
    vti_mapped_file_close(&file);
    if (status == VT_OK) return VT_OK;
    vti_importance_free(*out);
    *out = NULL;
    return vti_fail(err, status, "%s: %s", path, why.message);
}
