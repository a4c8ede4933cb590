/* save_reader.c: reads what save_writer.c wrote, or anything else that pretends to be that. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "little_endian.h"
#include "save_stream.h"

/* A frame that asks for a larger window (1 MiB is what the writer uses) is not ours. */
enum { WINDOW_LOG_MAX = 20, BUFFER_BYTES = 1 << 17 };

struct vti_save_reader {
    char *path;
    const char *what;
    int descriptor;
    ZSTD_DCtx *zstd;
    unsigned char *buffer; /* compressed bytes, in.pos … in.size are still to come */
    ZSTD_inBuffer in;
    bool at_end;           /* of the frame */
};

static vt_status fill(vti_save_reader *r, vt_error *err)
{
    ssize_t got;
    do got = read(r->descriptor, r->buffer, BUFFER_BYTES);
    while (got < 0 && errno == EINTR);
    if (got < 0) return vti_fail(err, VT_ERR_IO, "cannot read %s: %s", r->path, strerror(errno));
    r->in = (ZSTD_inBuffer){r->buffer, (size_t)got, 0};
    return VT_OK;
}

vt_status vti_save_damaged(const vti_save_reader *r, const char *how, vt_error *err)
{
    return vti_fail(err, VT_ERR_FORMAT, "%s: this %s is damaged: %s", r->path, r->what, how);
}

/* One step of decompression into `out`. */
static vt_status step(vti_save_reader *r, ZSTD_outBuffer *out, vt_error *err)
{
    if (r->in.pos == r->in.size) {
        VTI_TRY(fill(r, err));
        if (r->in.size == 0) return vti_save_damaged(r, "it ends too early", err);
    }
    size_t left = ZSTD_decompressStream(r->zstd, out, &r->in);
    if (ZSTD_isError(left)) return vti_save_damaged(r, ZSTD_getErrorName(left), err);
    if (left == 0) r->at_end = true;
    return VT_OK;
}

vt_status vti_save_read(vti_save_reader *r, void *out, size_t bytes, vt_error *err)
{
    unsigned char skipped[4096];
    for (size_t at = 0; at < bytes;) {
        size_t room = bytes - at;
        if (!out && room > sizeof skipped) room = sizeof skipped;
        ZSTD_outBuffer piece = {out ? (unsigned char *)out + at : skipped, room, 0};
        if (r->at_end) return vti_save_damaged(r, "it has less than it says", err);
        VTI_TRY(step(r, &piece, err));
        at += piece.pos;
    }
    return VT_OK;
}

vt_status vti_save_read_u32(vti_save_reader *r, uint32_t *out, vt_error *err)
{
    unsigned char bytes[4];
    VTI_TRY(vti_save_read(r, bytes, sizeof bytes, err));
    *out = vti_load_u32(bytes);
    return VT_OK;
}

vt_status vti_save_read_u64(vti_save_reader *r, uint64_t *out, vt_error *err)
{
    unsigned char bytes[8];
    VTI_TRY(vti_save_read(r, bytes, sizeof bytes, err));
    *out = vti_load_u64(bytes);
    return VT_OK;
}

vt_status vti_save_skip_rest(vti_save_reader *r, vt_error *err)
{
    unsigned char skipped[4096];
    while (!r->at_end) {
        ZSTD_outBuffer piece = {skipped, sizeof skipped, 0};
        VTI_TRY(step(r, &piece, err));
    }
    return vti_save_read_end(r, err);
}

vt_status vti_save_read_end(vti_save_reader *r, vt_error *err)
{
    unsigned char extra;
    while (!r->at_end) {
        ZSTD_outBuffer piece = {&extra, 1, 0};
        VTI_TRY(step(r, &piece, err));
        if (piece.pos) return vti_save_damaged(r, "it has more than it says", err);
    }
    if (r->in.pos == r->in.size) VTI_TRY(fill(r, err));
    return r->in.pos == r->in.size ? VT_OK : vti_save_damaged(r, "something follows its end", err);
}

vt_status vti_save_reader_restart(vti_save_reader *r, vt_error *err)
{
    r->in = (ZSTD_inBuffer){r->buffer, 0, 0};
    r->at_end = false;
    ZSTD_DCtx_reset(r->zstd, ZSTD_reset_session_only);
    if (lseek(r->descriptor, VTI_SAVE_PREFIX_BYTES, SEEK_SET) >= 0) return VT_OK;
    return vti_fail(err, VT_ERR_IO, "cannot read %s: %s", r->path, strerror(errno));
}

/* O_NONBLOCK: opening a pipe without a writer would wait for one. */
static vt_status open_file(vti_save_reader *r, vt_error *err)
{
    struct stat info;
    r->descriptor = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->descriptor < 0 || fstat(r->descriptor, &info) != 0)
        return vti_fail(err, VT_ERR_IO, "cannot read %s: %s", r->path, strerror(errno));
    if (S_ISREG(info.st_mode)) return VT_OK;
    return vti_fail(err, VT_ERR_IO, "cannot read %s: it is not a regular file", r->path);
}

static vt_status check_prefix(vti_save_reader *r, const uint8_t prefix[VTI_SAVE_PREFIX_BYTES],
                              vt_error *err)
{
    VTI_TRY(fill(r, err));
    if (r->in.size < VTI_SAVE_PREFIX_BYTES || memcmp(r->buffer, prefix, 4) != 0)
        return vti_fail(err, VT_ERR_FORMAT, "%s: this is not a %s", r->path, r->what);
    uint32_t found = vti_load_u32(r->buffer + 4), known = vti_load_u32(prefix + 4);
    if (found == known) return vti_save_reader_restart(r, err);
    return vti_fail(err, VT_ERR_FORMAT,
                    "%s: this %s has version %u; this Voltron reads version %u", r->path, r->what,
                    found, known);
}

vt_status vti_save_reader_open(const char *path, const char *what,
                               const uint8_t prefix[VTI_SAVE_PREFIX_BYTES], vti_save_reader **out,
                               vt_error *err)
{
    *out = NULL;
    vti_save_reader *r = calloc(1, sizeof *r);
    if (!r) return vti_fail(err, VT_ERR_MEMORY, "no memory to read %s", path);
    r->descriptor = -1;
    r->what = what;
    r->path = strdup(path);
    r->buffer = malloc(BUFFER_BYTES);
    r->zstd = ZSTD_createDCtx();
    vt_status status = VT_OK;
    if (!r->path || !r->buffer || !r->zstd)
        status = vti_fail(err, VT_ERR_MEMORY, "no memory to read %s", path);
    else
        ZSTD_DCtx_setParameter(r->zstd, ZSTD_d_windowLogMax, WINDOW_LOG_MAX);
    if (status == VT_OK) status = open_file(r, err);
    if (status == VT_OK) status = check_prefix(r, prefix, err);
    if (status != VT_OK) {
        vti_save_reader_close(r);
        return status;
    }
    *out = r;
    return VT_OK;
}

void vti_save_reader_close(vti_save_reader *r)
{
    if (!r) return;
    if (r->descriptor >= 0) close(r->descriptor);
    ZSTD_freeDCtx(r->zstd);
    free(r->buffer);
    free(r->path);
    free(r);
}
