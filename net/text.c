#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

const char *vti_net_status_name(vti_net_status status)
{
    switch (status) {
#define X(name, text)                                                                              \
    case VTI_NET_##name: return "VTI_NET_" #name;
        VTI_NET_STATUS_MAP(X)
#undef X
    }
    return "VTI_NET_UNKNOWN";
}

const char *vti_net_status_text(vti_net_status status)
{
    switch (status) {
#define X(name, text)                                                                              \
    case VTI_NET_##name: return text;
        VTI_NET_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

vti_net_status vti_net_fail(vti_net_error *err, vti_net_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->status = status;
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
    }
    return status;
}

/* Bytes of the UTF-8 character at `at`; 0 if it is malformed or not printable (C0, DEL, C1). */
static size_t character_bytes(const uint8_t *at, size_t bytes)
{
    if (at[0] < 0x80) return at[0] >= 0x20 && at[0] != 0x7f ? 1 : 0;
    size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || length > bytes) return 0;
    uint32_t code = at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    static const uint32_t smallest[] = { 0, 0, 0xa0, 0x800, 0x10000 };
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code >= smallest[length] && code <= 0x10ffff && !surrogate ? length : 0;
}

void vti_text_clean(char *to, size_t capacity, const void *from, size_t bytes)
{
    const uint8_t *source = from;
    size_t written = 0;
    for (size_t i = 0; i < bytes;) {
        size_t length = character_bytes(source + i, bytes - i);
        if (written + (length ? length : 1) >= capacity) break;
        if (length == 0) {
            to[written++] = '?';
            i++;
        }
        for (; length > 0; length--) to[written++] = (char)source[i++];
    }
    to[written] = '\0';
}
