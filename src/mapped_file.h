/* mapped_file.h: a whole file as read-only memory. */
#ifndef VTI_MAPPED_FILE_H
#define VTI_MAPPED_FILE_H

#include "error.h"

/* Which file it is, and its state: device, inode, size, time of change in seconds and the rest in
 * nanoseconds. All zero: no file. */
enum { VTI_FILE_FACTS = 5 };
typedef struct vti_file_facts {
    uint64_t fact[VTI_FILE_FACTS];
} vti_file_facts;

/* `data` starts on a page; NULL for an empty file. All zero: nothing is mapped. */
typedef struct vti_mapped_file {
    const void *data;
    size_t bytes;
    vti_file_facts facts; /* of what was opened, then */
} vti_mapped_file;

/* Is there still the same file at this path, unchanged? */
bool vti_file_is_as_it_was(const char *path, const vti_file_facts *facts);

/* ERR_IO names the path and the reason. Only regular files: a pipe or a device cannot be mapped. */
vt_status vti_mapped_file_open(const char *path, vti_mapped_file *out, vt_error *err);

/* The same of an open file, which may be closed afterwards. */
vt_status vti_mapped_file_of(int descriptor, const char *path, vti_mapped_file *out, vt_error *err);

/* What was read need not stay in memory; it is read from the file again when it is used. */
void vti_mapped_file_let_go(const vti_mapped_file *file);

/* Leaves *file all zero; an all-zero *file is fine. */
void vti_mapped_file_close(vti_mapped_file *file);

#endif
