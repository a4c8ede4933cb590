/* keys.h: metadata keys that begin with the architecture's name. */
#ifndef VTI_KEYS_H
#define VTI_KEYS_H

#include "gguf.h"

typedef struct vti_keys {
    const vt_gguf *gguf;
    const char *arch;
    vt_error *err;
} vti_keys;

enum { VTI_KEY_MAX = 128 };

/* "<arch>.<suffix>" into `buffer` of VTI_KEY_MAX bytes; returns it. */
const char *vti_key(const vti_keys *keys, const char *suffix, char *buffer);

/* As vti_gguf_get_…; a key that is missing and not required leaves *out as it is. */
vt_status vti_keys_u32(const vti_keys *keys, const char *suffix, bool required, uint32_t *out);
vt_status vti_keys_f32(const vti_keys *keys, const char *suffix, bool required, float *out);
vt_status vti_keys_bool(const vti_keys *keys, const char *suffix, bool required, bool *out);
vt_status vti_keys_string(const vti_keys *keys, const char *suffix, bool required,
                          vti_gguf_string *out);

/* Refuses a file in which the number `suffix` is there and not `expected`: it would change the
 * arithmetic in a way that is not known here. */
vt_status vti_keys_expect(const vti_keys *keys, const char *suffix, float expected);

#endif
