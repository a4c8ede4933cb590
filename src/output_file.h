/* output_file.h: a file that appears whole or not at all.
 *
 * It is written beside its place and takes its name when all of it is on the disk. */
#ifndef VTI_OUTPUT_FILE_H
#define VTI_OUTPUT_FILE_H

#include "error.h"

/* All zero but `descriptor`, which is -1: nothing is open. */
typedef struct vti_output_file {
    char *path, *temporary;
    int descriptor;
} vti_output_file;

#define VTI_OUTPUT_NONE ((vti_output_file){NULL, NULL, -1})

/* A wrong output name must not cost a model: ERR_ARGUMENT if `path` is a file that is neither empty
 * nor begins with `magic` (4 bytes), as files of that kind ("a shard store") do. */
vt_status vti_output_check(const char *path, const void *magic, const char *kind, vt_error *err);

/* `mode`: permissions, from which the process's mask is taken away. A symbolic link of that name
 * stays, what it points to is replaced; a device or a folder is refused. */
vt_status vti_output_open(vti_output_file *out, const char *path, unsigned mode, vt_error *err);

/* Writes at the end, or anywhere. ERR_IO names the file and what the system said. */
vt_status vti_output_write(vti_output_file *out, const void *data, size_t bytes, vt_error *err);
vt_status vti_output_write_at(vti_output_file *out, uint64_t offset, const void *data, size_t bytes,
                              vt_error *err);

/* Gives the file its name and closes; removes it if that fails. */
vt_status vti_output_commit(vti_output_file *out, vt_error *err);

/* Closes and leaves nothing behind. Fine if nothing is open. */
void vti_output_discard(vti_output_file *out);

#endif
