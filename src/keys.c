#include "keys.h"

#include <stdio.h>

const char *vti_key(const vti_keys *keys, const char *suffix, char *buffer)
{
    snprintf(buffer, VTI_KEY_MAX, "%s.%s", keys->arch, suffix);
    return buffer;
}

vt_status vti_keys_u32(const vti_keys *keys, const char *suffix, bool required, uint32_t *out)
{
    char key[VTI_KEY_MAX];
    return vti_gguf_get_u32(keys->gguf, vti_key(keys, suffix, key), required, out, keys->err);
}

vt_status vti_keys_f32(const vti_keys *keys, const char *suffix, bool required, float *out)
{
    char key[VTI_KEY_MAX];
    return vti_gguf_get_f32(keys->gguf, vti_key(keys, suffix, key), required, out, keys->err);
}

vt_status vti_keys_bool(const vti_keys *keys, const char *suffix, bool required, bool *out)
{
    char key[VTI_KEY_MAX];
    return vti_gguf_get_bool(keys->gguf, vti_key(keys, suffix, key), required, out, keys->err);
}

vt_status vti_keys_string(const vti_keys *keys, const char *suffix, bool required,
                          vti_gguf_string *out)
{
    char key[VTI_KEY_MAX];
    return vti_gguf_get_string(keys->gguf, vti_key(keys, suffix, key), required, out, keys->err);
}

vt_status vti_keys_expect(const vti_keys *keys, const char *suffix, float expected)
{
    char key[VTI_KEY_MAX];
    float value = expected;
    VTI_TRY(vti_keys_f32(keys, suffix, false, &value));
    if (value == expected) return VT_OK;
    return vti_fail(keys->err, VT_ERR_UNSUPPORTED, "%s: %s is %g; supported is only %g",
                    vti_gguf_name(keys->gguf), vti_key(keys, suffix, key), (double)value,
                    (double)expected);
}
