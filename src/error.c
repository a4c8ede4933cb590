#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *vt_version(void) { return VT_VERSION; }

const char *vt_status_name(vt_status status)
{
    switch (status) {
#define X(name, number, text)                                                                      \
    case VT_##name: return "VT_" #name;
        VT_STATUS_MAP(X)
#undef X
    }
    return "VT_UNKNOWN";
}

const char *vt_status_text(vt_status status)
{
    switch (status) {
#define X(name, number, text)                                                                      \
    case VT_##name: return text;
        VT_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

/* Bytes of the UTF-8 character at `at`; 0 if there is none that may be shown. */
static size_t printable_bytes(const unsigned char *at)
{
    if (at[0] >= 0x20 && at[0] < 0x7f) return 1;
    size_t bytes = at[0] >= 0xf0 && at[0] < 0xf5   ? 4
                   : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                   : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                                                   : 0;
    for (size_t i = 1; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    bool c1 = at[0] == 0xc2 && at[1] < 0xa0;
    return c1 ? 0 : bytes;
}

/* A lead byte whose character the end of the text cuts off. */
static bool is_cut(const unsigned char *at)
{
    size_t left = strlen((const char *)at);
    if (at[0] < 0xc2 || at[0] > 0xf4 || left > 3) return false;
    for (size_t i = 1; i < left; i++)
        if ((at[i] & 0xc0) != 0x80) return false;
    return printable_bytes(at) == 0 && left < (at[0] >= 0xf0 ? 4u : at[0] >= 0xe0 ? 3u : 2u);
}

void vti_make_printable(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at;) {
        size_t bytes = printable_bytes(at);
        if (bytes) {
            at += bytes;
        } else if (is_cut(at)) {
            *at = 0;
        } else {
            *at++ = '?';
        }
    }
}

vt_status vti_fail(vt_error *err, vt_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->status = status;
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        vti_make_printable(err->message);
    }
    return status;
}

void vti_log(const vt_log *log, vt_log_level level, const char *format, ...)
{
    if (!log || !log->write) return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    vti_make_printable(line);
    log->write(log->user, level, line);
}
