/* gguf.h: strict reader of GGUF v2 and v3, little-endian.
 *
 * Source: the GGUF specification (ggml, docs/gguf.md). Every count, length, type, alignment and
 * offset is checked against the bytes that are there before it is used; after a successful open
 * every pointer and size below is safe to follow. */
#ifndef VTI_GGUF_H
#define VTI_GGUF_H

#include "error.h"
#include "mapped_file.h"

/* Value types as numbered in the file. */
typedef enum vti_gguf_type {
    VTI_GGUF_U8, VTI_GGUF_I8, VTI_GGUF_U16, VTI_GGUF_I16, VTI_GGUF_U32, VTI_GGUF_I32,
    VTI_GGUF_F32, VTI_GGUF_BOOL, VTI_GGUF_STRING, VTI_GGUF_ARRAY, VTI_GGUF_U64, VTI_GGUF_I64,
    VTI_GGUF_F64,
    VTI_GGUF_TYPE_COUNT
} vti_gguf_type;

/* A string in the file: not NUL-terminated, may hold any byte. */
typedef struct vti_gguf_string {
    const char *data;
    uint64_t bytes;
} vti_gguf_string;

/* One value. Scalars: `type`, `count` 1. Arrays: `type` is the element's (never ARRAY: nested
 * arrays are refused), `is_array`. `data` points at the first element's bytes, unaligned. */
typedef struct vti_gguf_value {
    vti_gguf_type type;
    bool is_array;
    uint64_t count;
    const unsigned char *data;
    const unsigned char *end; /* one past the value's last byte */
} vti_gguf_value;

/* One tensor. `data` points into the file; `size_bytes` follow from type and dimensions. */
typedef struct vti_gguf_tensor {
    char *name;
    uint32_t type; /* ggml's number; vti_ggml_type_find() knows it */
    uint32_t dimension_count;
    uint64_t dimensions[4]; /* innermost first, unused ones are 1 */
    uint32_t part;          /* file of a split model, from 0 */
    uint64_t offset_bytes;  /* from the start of that file */
    uint64_t size_bytes;
    const void *data;
} vti_gguf_tensor;

/* A ggml weight type: `block` elements take `block_bytes`. */
typedef struct vti_ggml_type {
    uint32_t number;
    const char *name;
    uint32_t block;
    uint32_t block_bytes;
} vti_ggml_type;

/* NULL for a number that no published file uses. */
const vti_ggml_type *vti_ggml_type_find(uint32_t number);

/* Opens from memory that stays valid and unchanged until the close; `name` is for messages. */
vt_status vti_gguf_open_memory(const void *data, size_t data_bytes, const char *name, vt_gguf **out,
                               vt_error *err);

/* The same for what stands before the tensors' data, to the last byte: tensors have NULL as data. */
vt_status vti_gguf_open_directory(const void *data, size_t data_bytes, const char *name,
                                  vt_gguf **out, vt_error *err);

/* Says where a tensor's data is that was opened without; as many bytes as it says it has. */
void vti_gguf_place(vt_gguf *gguf, const char *tensor, const void *data);

/* Says what the file was that it is in, which somebody else opened. */
void vti_gguf_set_file(vt_gguf *gguf, const vti_file_facts *facts);
/* What the file of a part (< vt_gguf_part_count) was when it was opened; all zero: no file. */
const vti_file_facts *vti_gguf_part_file(const vt_gguf *gguf, uint32_t index);

const char *vti_gguf_name(const vt_gguf *gguf);

/* The tensors that were read so far will hardly be again: their pages need not stay in memory. */
void vti_gguf_let_go(const vt_gguf *gguf);

/* The value of `key`, or NULL. O(log n) or better. */
const vti_gguf_value *vti_gguf_find(const vt_gguf *gguf, const char *key);

/* The tensor called `name`, or NULL. O(log n) or better. */
const vti_gguf_tensor *vti_gguf_find_tensor(const vt_gguf *gguf, const char *name);

/* Typed look-up. A missing key leaves *out as it is and succeeds unless `required`; a wrong type or
 * a number that does not fit is ERR_FORMAT naming key, type found and type expected.
 * vti_gguf_get_u32 takes every integer type whose value fits, vti_gguf_get_f32 finite f32
 * and f64. */
vt_status vti_gguf_get_u32(const vt_gguf *gguf, const char *key, bool required, uint32_t *out,
                           vt_error *err);
vt_status vti_gguf_get_f32(const vt_gguf *gguf, const char *key, bool required, float *out,
                           vt_error *err);
vt_status vti_gguf_get_bool(const vt_gguf *gguf, const char *key, bool required, bool *out,
                            vt_error *err);
vt_status vti_gguf_get_string(const vt_gguf *gguf, const char *key, bool required,
                              vti_gguf_string *out, vt_error *err);
/* An array of `type` elements; *out NULL if the key is missing and not required. */
vt_status vti_gguf_get_array(const vt_gguf *gguf, const char *key, vti_gguf_type type,
                             bool required, const vti_gguf_value **out, vt_error *err);

/* Walks a string array: *cursor starts at value->data. Valid for value->count calls. */
vti_gguf_string vti_gguf_next_string(const unsigned char **cursor);

/* Element `index` (< count) of a number array, converted; bools as 0 and 1, NaN for strings. */
double vti_gguf_number_at(const vti_gguf_value *value, uint64_t index);

#endif
