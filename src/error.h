/* error.h: how functions inside the library say what went wrong. */
#ifndef VTI_ERROR_H
#define VTI_ERROR_H

#include "voltron.h"

/* Fills *err (may be NULL) with `status` and a formatted sentence; returns `status`. The first
 * letter is lower case and there is no full stop: a caller may put its own words around it. */
vt_status vti_fail(vt_error *err, vt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Makes text from anywhere fit for a terminal, in place: control characters (C0, DEL, C1) and bytes
 * that are not UTF-8 become '?', a character cut at the end goes. */
void vti_make_printable(char *text);

/* Formats and hands one line to `log`, if it has a writer. */
void vti_log(const vt_log *log, vt_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns from the caller with the status of `expression` unless that is VT_OK. */
#define VTI_TRY(expression)                                                                        \
    do {                                                                                           \
        vt_status vti_try_status = (expression);                                                   \
        if (vti_try_status != VT_OK) return vti_try_status;                                        \
    } while (0)

#endif
