/* json_fields.h: reads hand-written JSON so that every mistake is named: the file, the object in it,
 * the field, and what would be right. */
#ifndef VTI_JSON_FIELDS_H
#define VTI_JSON_FIELDS_H

#include <jansson.h>

#include "error.h"

/* Where we are, for messages: "office.json", "device 2 (phone)". */
typedef struct vti_json_at {
    const char *file;
    char object[80];
    vt_error *err;
} vti_json_at;

/* ERR_FORMAT: "office.json, device 2 (phone): "memory" must be a size such as "4G"". */
vt_status vti_json_bad(const vti_json_at *at, const char *field, const char *wanted);

/* It is an object, and has no other fields than these (NULL at the end). */
vt_status vti_json_check_fields(const vti_json_at *at, json_t *object, const char *const *fields);

/* Each writes *out only if the field is there; a field that is missing is no mistake. */
vt_status vti_json_text(const vti_json_at *at, const json_t *object, const char *field,
                        size_t capacity, char *out);
vt_status vti_json_number(const vti_json_at *at, const json_t *object, const char *field,
                          double low, double high, double *out);
/* Bytes: a number, or a text such as "512M" or "1.5G" in binary units. */
vt_status vti_json_size(const vti_json_at *at, const json_t *object, const char *field,
                        uint64_t *out);

/* The whole file, malloc'd, with a NUL behind it. ERR_IO, ERR_FORMAT if it is larger. */
vt_status vti_read_text(const char *path, size_t bytes_max, char **out, size_t *bytes,
                        vt_error *err);

/* Parses the whole text; NULL after an error. */
json_t *vti_json_load(const char *file, const char *text, size_t bytes, vt_error *err);

#endif
