/* internal.h: small helpers the files of net/ share. */
#ifndef VTI_NET_INTERNAL_H
#define VTI_NET_INTERNAL_H

#include "net.h"

/* Fills *err (may be NULL) and returns `status`. */
vti_net_status vti_net_fail(vti_net_error *err, vti_net_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Copies text that came from elsewhere so that it can be shown: bytes that are not printable UTF-8
 * become '?', what does not fit is cut between characters. `to` is always terminated. */
void vti_text_clean(char *to, size_t capacity, const void *from, size_t bytes);

#endif
