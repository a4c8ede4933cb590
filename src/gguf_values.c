#include "gguf_internal.h"
#include "little_endian.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const unsigned char *element_at(const vti_gguf_value *value, uint64_t index)
{
    return value->data + index * vti_gguf_type_bytes(value->type);
}

bool vti_gguf_integer_at(const vti_gguf_value *value, uint64_t index, bool *negative,
                         uint64_t *magnitude)
{
    const unsigned char *bytes = element_at(value, index);
    int64_t number;
    *negative = false;
    switch (value->type) {
    case VTI_GGUF_U8: *magnitude = bytes[0]; return true;
    case VTI_GGUF_U16: *magnitude = vti_load_u16(bytes); return true;
    case VTI_GGUF_U32: *magnitude = vti_load_u32(bytes); return true;
    case VTI_GGUF_U64: *magnitude = vti_load_u64(bytes); return true;
    case VTI_GGUF_I8: number = (int8_t)bytes[0]; break;
    case VTI_GGUF_I16: number = (int16_t)vti_load_u16(bytes); break;
    case VTI_GGUF_I32: number = (int32_t)vti_load_u32(bytes); break;
    case VTI_GGUF_I64: number = (int64_t)vti_load_u64(bytes); break;
    default: return false;
    }
    *negative = number < 0;
    *magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    return true;
}

double vti_gguf_number_at(const vti_gguf_value *value, uint64_t index)
{
    const unsigned char *bytes = element_at(value, index);
    bool negative;
    uint64_t magnitude;
    if (vti_gguf_integer_at(value, index, &negative, &magnitude))
        return negative ? -(double)magnitude : (double)magnitude;
    switch (value->type) {
    case VTI_GGUF_F32: return vti_load_f32(bytes);
    case VTI_GGUF_F64: return vti_load_f64(bytes);
    case VTI_GGUF_BOOL: return bytes[0];
    default: return NAN;
    }
}

vti_gguf_string vti_gguf_next_string(const unsigned char **cursor)
{
    vti_gguf_string text = {(const char *)*cursor + 8, vti_load_u64(*cursor)};
    *cursor += 8 + text.bytes;
    return text;
}

/* *out is NULL if the key is missing and not required. */
static vt_status look_up(const vt_gguf *gguf, const char *key, bool required,
                         const vti_gguf_value **out, vt_error *err)
{
    *out = vti_gguf_find(gguf, key);
    if (*out || !required) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT, "%s: key '%s' is missing", gguf->shown_name, key);
}

static vt_status wrong_type(const vt_gguf *gguf, const char *key, const vti_gguf_value *value,
                            const char *expected, vt_error *err)
{
    return vti_fail(err, VT_ERR_FORMAT, "%s: key '%s': found type %s%s, expected %s",
                    gguf->shown_name, key, vti_gguf_type_name(value->type),
                    value->is_array ? "[]" : "", expected);
}

vt_status vti_gguf_get_u32(const vt_gguf *gguf, const char *key, bool required, uint32_t *out,
                           vt_error *err)
{
    const vti_gguf_value *value;
    VTI_TRY(look_up(gguf, key, required, &value, err));
    if (!value) return VT_OK;
    bool negative;
    uint64_t magnitude;
    if (value->is_array || !vti_gguf_integer_at(value, 0, &negative, &magnitude))
        return wrong_type(gguf, key, value, "an integer", err);
    if (negative || magnitude > UINT32_MAX)
        return vti_fail(err, VT_ERR_FORMAT,
                        "%s: key '%s': found %s%" PRIu64 ", expected 0 to %" PRIu32,
                        gguf->shown_name, key, negative ? "-" : "", magnitude, UINT32_MAX);
    *out = (uint32_t)magnitude;
    return VT_OK;
}

vt_status vti_gguf_get_f32(const vt_gguf *gguf, const char *key, bool required, float *out,
                           vt_error *err)
{
    const vti_gguf_value *value;
    VTI_TRY(look_up(gguf, key, required, &value, err));
    if (!value) return VT_OK;
    if (value->is_array || (value->type != VTI_GGUF_F32 && value->type != VTI_GGUF_F64))
        return wrong_type(gguf, key, value, "f32", err);
    double number = vti_gguf_number_at(value, 0);
    if (!(fabs(number) <= FLT_MAX)) /* NaN too */
        return vti_fail(err, VT_ERR_FORMAT, "%s: key '%s': found %g, expected a finite f32",
                        gguf->shown_name, key, number);
    *out = (float)number;
    return VT_OK;
}

vt_status vti_gguf_get_bool(const vt_gguf *gguf, const char *key, bool required, bool *out,
                            vt_error *err)
{
    const vti_gguf_value *value;
    VTI_TRY(look_up(gguf, key, required, &value, err));
    if (!value) return VT_OK;
    if (value->is_array || value->type != VTI_GGUF_BOOL)
        return wrong_type(gguf, key, value, "bool", err);
    *out = value->data[0] != 0;
    return VT_OK;
}

vt_status vti_gguf_get_string(const vt_gguf *gguf, const char *key, bool required,
                              vti_gguf_string *out, vt_error *err)
{
    const vti_gguf_value *value;
    VTI_TRY(look_up(gguf, key, required, &value, err));
    if (!value) return VT_OK;
    if (value->is_array || value->type != VTI_GGUF_STRING)
        return wrong_type(gguf, key, value, "str", err);
    const unsigned char *cursor = value->data;
    *out = vti_gguf_next_string(&cursor);
    return VT_OK;
}

vt_status vti_gguf_get_array(const vt_gguf *gguf, const char *key, vti_gguf_type type,
                             bool required, const vti_gguf_value **out, vt_error *err)
{
    const vti_gguf_value *value;
    *out = NULL;
    VTI_TRY(look_up(gguf, key, required, &value, err));
    if (!value) return VT_OK;
    if (!value->is_array || value->type != type) {
        char expected[16];
        snprintf(expected, sizeof expected, "%s[]", vti_gguf_type_name(type));
        return wrong_type(gguf, key, value, expected, err);
    }
    *out = value;
    return VT_OK;
}
