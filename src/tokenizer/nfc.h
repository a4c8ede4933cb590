/* nfc.h: Unicode normalisation form C of valid UTF-8. */
#ifndef VTI_NFC_H
#define VTI_NFC_H

#include "../error.h"

/* NFC never makes UTF-8 longer than this many times (U+1D160 becomes three characters). */
#define VTI_NFC_EXPANSION 3

/* *out: the normalised text, *out_bytes long, malloc'd, the caller frees it; or NULL if `text` is
 * in NFC already, which costs one pass and no memory. ERR_MEMORY. */
vt_status vti_nfc(const char *text, size_t bytes, char **out, size_t *out_bytes, vt_error *err);

#endif
