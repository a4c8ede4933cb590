/* save_writer.c: a file that appears whole or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "save_stream.h"

/* Halves and INT8 hardly compress; more effort gains nothing. The window is what a reader needs. */
enum { LEVEL = 1, WINDOW_LOG = 20, BUFFER_BYTES = 1 << 17 };

struct vti_save_writer {
    char *path, *temporary;
    int descriptor;
    ZSTD_CCtx *zstd;
    unsigned char *buffer; /* BUFFER_BYTES of compressed data */
    vt_error error;        /* status VT_OK: none yet */
};

static void fail_with_errno(vti_save_writer *w)
{
    if (w->error.status == VT_OK)
        vti_fail(&w->error, VT_ERR_IO, "cannot write %s: %s", w->path, strerror(errno));
}

static void write_all(vti_save_writer *w, const unsigned char *data, size_t bytes)
{
    while (bytes && w->error.status == VT_OK) {
        ssize_t written = write(w->descriptor, data, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            fail_with_errno(w);
            return;
        }
        data += written;
        bytes -= (size_t)written;
    }
}

static void compress(vti_save_writer *w, const void *data, size_t bytes, ZSTD_EndDirective end)
{
    ZSTD_inBuffer in = {data, bytes, 0};
    size_t left;
    do {
        ZSTD_outBuffer out = {w->buffer, BUFFER_BYTES, 0};
        left = ZSTD_compressStream2(w->zstd, &out, &in, end);
        if (ZSTD_isError(left)) {
            vti_fail(&w->error, VT_ERR_INTERNAL, "cannot write %s: zstd: %s", w->path,
                     ZSTD_getErrorName(left));
            return;
        }
        write_all(w, w->buffer, out.pos);
    } while (w->error.status == VT_OK && (end == ZSTD_e_end ? left > 0 : in.pos < in.size));
}

/* The file's real name: a symbolic link to it stays. A device or a folder of that name is not
 * replaced. */
static vt_status find_target(vti_save_writer *w, const char *path, vt_error *err)
{
    struct stat info;
    w->path = realpath(path, NULL);
    if (!w->path && lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        return vti_fail(err, VT_ERR_IO, "cannot write %s: it is a link to nothing", path);
    if (!w->path) w->path = strdup(path); /* a new file, or the reason comes when it is written */
    if (!w->path) return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    if (stat(w->path, &info) != 0 || S_ISREG(info.st_mode)) return VT_OK;
    return vti_fail(err, VT_ERR_IO, "cannot write %s: it is not a regular file", path);
}

static vt_status open_file(vti_save_writer *w, const char *path, vt_error *err)
{
    VTI_TRY(find_target(w, path, err));
    size_t bytes = strlen(w->path) + sizeof ".part-XXXXXX";
    w->temporary = malloc(bytes);
    w->buffer = malloc(BUFFER_BYTES);
    w->zstd = ZSTD_createCCtx();
    if (!w->temporary || !w->buffer || !w->zstd)
        return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_windowLog, WINDOW_LOG);
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_checksumFlag, 1);
    snprintf(w->temporary, bytes, "%s.part-XXXXXX", w->path);
    w->descriptor = mkostemp(w->temporary, O_CLOEXEC);
    if (w->descriptor >= 0) return VT_OK;
    return vti_fail(err, VT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

vt_status vti_save_writer_open(const char *path, const uint8_t prefix[VTI_SAVE_PREFIX_BYTES],
                               vti_save_writer **out, vt_error *err)
{
    *out = NULL;
    vti_save_writer *w = calloc(1, sizeof *w);
    if (!w) return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    w->descriptor = -1;
    vt_status status = open_file(w, path, err);
    if (status != VT_OK) {
        vti_save_writer_discard(w);
        return status;
    }
    write_all(w, prefix, VTI_SAVE_PREFIX_BYTES);
    *out = w;
    return VT_OK;
}

void vti_save_write(vti_save_writer *w, const void *data, size_t bytes)
{
    if (bytes && w->error.status == VT_OK) compress(w, data, bytes, ZSTD_e_continue);
}

void vti_save_write_u32(vti_save_writer *w, uint32_t value) { vti_save_write(w, &value, 4); }
void vti_save_write_u64(vti_save_writer *w, uint64_t value) { vti_save_write(w, &value, 8); }

/* The name is on the disk only once the folder is; else a power cut leaves the old file. */
static void sync_folder(const vti_save_writer *w)
{
    memcpy(w->temporary, w->path, strlen(w->path) + 1);
    int folder = open(dirname(w->temporary), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    fsync(folder);
    close(folder);
}

static void finish(vti_save_writer *w)
{
    if (w->error.status == VT_OK) compress(w, NULL, 0, ZSTD_e_end);
    /* Some file systems (FUSE) have no fsync; there is nothing better to do there. */
    if (w->error.status == VT_OK && fsync(w->descriptor) != 0 && errno != EINVAL && errno != ENOSYS)
        fail_with_errno(w);
    int descriptor = w->descriptor;
    w->descriptor = -1;
    if (close(descriptor) != 0) fail_with_errno(w);
    if (w->error.status == VT_OK && rename(w->temporary, w->path) != 0) fail_with_errno(w);
    if (w->error.status == VT_OK)
        sync_folder(w);
    else
        unlink(w->temporary);
}

static void free_writer(vti_save_writer *w)
{
    ZSTD_freeCCtx(w->zstd);
    free(w->buffer);
    free(w->temporary);
    free(w->path);
    free(w);
}

vt_status vti_save_writer_commit(vti_save_writer *w, vt_error *err)
{
    finish(w);
    vt_status status = w->error.status;
    if (status != VT_OK) vti_fail(err, status, "%s", w->error.message);
    free_writer(w);
    return status;
}

void vti_save_writer_discard(vti_save_writer *w)
{
    if (!w) return;
    if (w->descriptor >= 0) {
        close(w->descriptor);
        unlink(w->temporary);
    }
    free_writer(w);
}
