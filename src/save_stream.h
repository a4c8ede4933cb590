/* save_stream.h: bytes into and out of a compressed, checksummed file.
 *
 * A file is eight plain bytes (magic and version), then one zstd frame with a checksum to the end.
 * Errors stick: the first one is kept, later calls do nothing, and the end reports it. */
#ifndef VTI_SAVE_STREAM_H
#define VTI_SAVE_STREAM_H

#include "error.h"

enum { VTI_SAVE_PREFIX_BYTES = 8 };

typedef struct vti_save_writer vti_save_writer;
typedef struct vti_save_reader vti_save_reader;

/* Writes to a new file beside `path`, readable by its owner only. */
vt_status vti_save_writer_open(const char *path, const uint8_t prefix[VTI_SAVE_PREFIX_BYTES],
                               const char *kind,
                               vti_save_writer **out, vt_error *err);
void vti_save_write(vti_save_writer *w, const void *data, size_t bytes);
void vti_save_write_u32(vti_save_writer *w, uint32_t value);
void vti_save_write_u64(vti_save_writer *w, uint64_t value);

/* Gives the file its name once all of it is on the disk, and closes. */
vt_status vti_save_writer_commit(vti_save_writer *w, vt_error *err);
/* Closes and leaves nothing behind. NULL is fine. */
void vti_save_writer_discard(vti_save_writer *w);

/* Checks the prefix; ERR_FORMAT if it is another one. `what` names such files in messages. */
vt_status vti_save_reader_open(const char *path, const char *what,
                               const uint8_t prefix[VTI_SAVE_PREFIX_BYTES], vti_save_reader **out,
                               vt_error *err);
void vti_save_reader_close(vti_save_reader *r);

/* Back to the first byte after the prefix, of the same file. */
vt_status vti_save_reader_restart(vti_save_reader *r, vt_error *err);

/* Fails with ERR_FORMAT: "FILE: this … is damaged: HOW". */
vt_status vti_save_damaged(const vti_save_reader *r, const char *how, vt_error *err);

/* ERR_FORMAT if the file ends too early or is damaged. `out` NULL: skips. */
vt_status vti_save_read(vti_save_reader *r, void *out, size_t bytes, vt_error *err);
vt_status vti_save_read_u32(vti_save_reader *r, uint32_t *out, vt_error *err);
vt_status vti_save_read_u64(vti_save_reader *r, uint64_t *out, vt_error *err);

/* Reads over what is left. ERR_FORMAT if the file is damaged. */
vt_status vti_save_skip_rest(vti_save_reader *r, vt_error *err);

/* ERR_FORMAT unless the frame ends here, its checksum is right and nothing follows. */
vt_status vti_save_read_end(vti_save_reader *r, vt_error *err);

#endif
