#include "error.h"

#include <stdarg.h>
#include <stdio.h>

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

vt_status vti_fail(vt_error *err, vt_status status, const char *format, ...)
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

void vti_log(const vt_log *log, vt_log_level level, const char *format, ...)
{
    if (!log || !log->write) return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log->write(log->user, level, line);
}
