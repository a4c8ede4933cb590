#include "gguf_internal.h"
#include "little_endian.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void vti_gguf_set_subject(vti_gguf_cursor *cursor, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(cursor->subject, sizeof cursor->subject, format, args);
    va_end(args);
}

vt_status vti_gguf_fail(const vti_gguf_cursor *cursor, vt_status status, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return vti_fail(cursor->err, status, "%s: %s: %s", cursor->file, cursor->subject, text);
}

vt_status vti_gguf_need(const vti_gguf_cursor *cursor, const char *part, uint64_t count,
                        uint64_t unit_bytes)
{
    uint64_t left = cursor->bytes - cursor->at;
    if (count <= left / unit_bytes) return VT_OK;
    /* Beyond this a size comes from damage, not from a cut-off end. */
    const uint64_t largest_file_bytes = (uint64_t)1 << 60;
    if (count > largest_file_bytes / unit_bytes)
        return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                             "%s at byte %" PRIu64 ": a count of %" PRIu64
                             " is impossible, the %" PRIu64 " bytes left hold at most %" PRIu64,
                             part, cursor->at, count, left, left / unit_bytes);
    uint64_t need = count * unit_bytes;
    return vti_gguf_fail(cursor, VT_ERR_FORMAT,
                         "%s at byte %" PRIu64 ": %" PRIu64 " bytes are needed, %" PRIu64
                         " are left; at least %" PRIu64
                         " bytes are missing, the file is truncated or damaged",
                         part, cursor->at, need, left, need - left);
}

vt_status vti_gguf_take(vti_gguf_cursor *cursor, const char *part, uint64_t count,
                        uint64_t unit_bytes, const unsigned char **out)
{
    VTI_TRY(vti_gguf_need(cursor, part, count, unit_bytes));
    *out = cursor->data + cursor->at;
    cursor->at += count * unit_bytes;
    return VT_OK;
}

vt_status vti_gguf_take_u32(vti_gguf_cursor *cursor, const char *part, uint32_t *out)
{
    const unsigned char *bytes;
    VTI_TRY(vti_gguf_take(cursor, part, 4, 1, &bytes));
    *out = vti_load_u32(bytes);
    return VT_OK;
}

vt_status vti_gguf_take_u64(vti_gguf_cursor *cursor, const char *part, uint64_t *out)
{
    const unsigned char *bytes;
    VTI_TRY(vti_gguf_take(cursor, part, 8, 1, &bytes));
    *out = vti_load_u64(bytes);
    return VT_OK;
}

vt_status vti_gguf_take_string(vti_gguf_cursor *cursor, const char *part, vti_gguf_string *out)
{
    const unsigned char *text;
    VTI_TRY(vti_gguf_take_u64(cursor, part, &out->bytes));
    VTI_TRY(vti_gguf_take(cursor, part, out->bytes, 1, &text));
    out->data = (const char *)text;
    return VT_OK;
}
