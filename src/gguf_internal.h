/* gguf_internal.h: what the files gguf*.c share.
 *
 *   gguf.c         open, close, directory look-ups
 *   gguf_cursor.c  takes numbers and strings off the file, bounds first
 *   gguf_parse.c   header, metadata, tensor directory, tensor data
 *   gguf_types.c   tables of value types and ggml types
 *   gguf_split.c   models in several files
 *   gguf_values.c  typed values
 *   gguf_text.c    values as text */
#ifndef VTI_GGUF_INTERNAL_H
#define VTI_GGUF_INTERNAL_H

#include "gguf.h"
#include "mapped_file.h"

/* Limits. Key and name lengths and the four dimensions are the specification's; the counts are far
 * beyond any published file and bound what a damaged file can make us allocate. */
#define VTI_GGUF_MAX_KEY_BYTES 65535u
#define VTI_GGUF_MAX_NAME_BYTES 64u
#define VTI_GGUF_MAX_DIMENSIONS 4u
#define VTI_GGUF_MAX_ENTRIES (1u << 20)
#define VTI_GGUF_MAX_TENSORS (1u << 20)
/* Tensor data must be as aligned as vt_gguf promises (32); a larger alignment only pads. */
#define VTI_GGUF_MIN_ALIGNMENT 32u
#define VTI_GGUF_MAX_ALIGNMENT (1u << 20)
#define VTI_GGUF_DEFAULT_ALIGNMENT 32u

typedef struct vti_gguf_entry {
    char *key;
    vti_gguf_value value;
    char type_text[32]; /* "str", "f32[2048]" */
} vti_gguf_entry;

struct vt_gguf {
    char *name;
    char shown_name[128]; /* `name`, its beginning cut if it is long: leaves room in a message */
    vti_mapped_file file; /* all zero if opened from memory */
    vti_file_facts facts; /* of the file that it is in; all zero if opened from memory */
    const unsigned char *data;
    uint64_t data_bytes;
    bool directory_only;         /* `data` ends where the tensors' data would begin */
    uint32_t version;
    uint64_t entry_count;
    vti_gguf_entry *entries;     /* in the file's order */
    vti_gguf_entry **by_key;     /* sorted */
    uint64_t tensor_count;
    vti_gguf_tensor *tensors;    /* in the file's order */
    vti_gguf_tensor **by_name;   /* sorted */
    vt_gguf **parts;             /* of a model in several files: all, this one first; or NULL */
    uint32_t part_count;
};

/* A position in the file. Messages begin with the file and the subject. */
typedef struct vti_gguf_cursor {
    const unsigned char *data;
    uint64_t bytes;
    uint64_t at;
    const char *file;
    char subject[112]; /* "header", "key 'general.name'", "tensor 3" */
    vt_error *err;
} vti_gguf_cursor;

void vti_gguf_set_subject(vti_gguf_cursor *cursor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
vt_status vti_gguf_fail(const vti_gguf_cursor *cursor, vt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fails unless `count` pieces of at least `unit_bytes` each are left. `part` is for the message. */
vt_status vti_gguf_need(const vti_gguf_cursor *cursor, const char *part, uint64_t count,
                        uint64_t unit_bytes);
/* Needs them, points *out at them and moves on. */
vt_status vti_gguf_take(vti_gguf_cursor *cursor, const char *part, uint64_t count,
                        uint64_t unit_bytes, const unsigned char **out);
vt_status vti_gguf_take_u32(vti_gguf_cursor *cursor, const char *part, uint32_t *out);
vt_status vti_gguf_take_u64(vti_gguf_cursor *cursor, const char *part, uint64_t *out);
vt_status vti_gguf_take_string(vti_gguf_cursor *cursor, const char *part, vti_gguf_string *out);

/* Reads the whole directory into *gguf, whose name, data and size are set. On failure the caller
 * closes it: counts say how many entries and tensors hold something to free. */
vt_status vti_gguf_parse(vt_gguf *gguf, vt_error *err);

/* One file by itself, whatever part of a model it is. */
vt_status vti_gguf_open_file(const char *path, vt_gguf **out, vt_error *err);
/* The whole model that `opened` is, or is a part of. Takes over `opened`, also on failure. */
vt_status vti_gguf_join_parts(vt_gguf *opened, vt_gguf **out, vt_error *err);
/* Fails if it is a part only. */
vt_status vti_gguf_refuse_part(const vt_gguf *gguf, vt_error *err);

/* "u32", "str", …; NULL for a number that is no value type. */
const char *vti_gguf_type_name(uint32_t type);
/* Bytes of one value; 0 for STRING and ARRAY. */
uint32_t vti_gguf_type_bytes(vti_gguf_type type);

/* Element `index` of an integer array as sign and magnitude; false for other types. */
bool vti_gguf_integer_at(const vti_gguf_value *value, uint64_t index, bool *negative,
                         uint64_t *magnitude);

#endif
