/* utf8.h: UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing past U+10FFFF. */
#ifndef VTI_UTF8_H
#define VTI_UTF8_H

#include <stddef.h>
#include <stdint.h>

typedef enum vti_utf8_kind {
    VTI_UTF8_VALID,   /* a whole sequence */
    VTI_UTF8_CUT,     /* all that is there may become one with more bytes */
    VTI_UTF8_INVALID, /* cannot become one */
} vti_utf8_kind;

/* Bytes (>= 1, <= `bytes`) of the sequence at `data` and what it is. For INVALID that is the
 * longest part that could have begun a sequence, which Unicode (chapter 3, "U+FFFD substitution")
 * replaces by one U+FFFD. `bytes` > 0. */
size_t vti_utf8_next(const char *data, size_t bytes, vti_utf8_kind *kind);

/* Bytes from `data` on that are whole valid sequences. */
size_t vti_utf8_valid_prefix(const char *data, size_t bytes);

/* Bytes from `data` on that are ASCII. */
size_t vti_utf8_ascii_prefix(const char *data, size_t bytes);

/* Code point of the valid sequence at `data`; its length goes to *bytes. */
uint32_t vti_utf8_codepoint(const char *data, size_t *bytes);

#endif
