/* save_writer.c: compresses into a file that appears whole or not at all. */
#include <stdlib.h>
#include <zstd.h>

#include "output_file.h"
#include "save_stream.h"

/* Halves and INT8 hardly compress; more effort gains nothing. The window is what a reader needs. */
enum { LEVEL = 1, WINDOW_LOG = 20, BUFFER_BYTES = 1 << 17 };

struct vti_save_writer {
    vti_output_file file;
    ZSTD_CCtx *zstd;
    unsigned char *buffer; /* BUFFER_BYTES of compressed data */
    vt_error error;        /* status VT_OK: none yet */
};

static void compress(vti_save_writer *w, const void *data, size_t bytes, ZSTD_EndDirective end)
{
    ZSTD_inBuffer in = {data, bytes, 0};
    size_t left;
    do {
        ZSTD_outBuffer out = {w->buffer, BUFFER_BYTES, 0};
        left = ZSTD_compressStream2(w->zstd, &out, &in, end);
        if (ZSTD_isError(left)) {
            vti_fail(&w->error, VT_ERR_INTERNAL, "cannot write %s: zstd: %s", w->file.path,
                     ZSTD_getErrorName(left));
            return;
        }
        vti_output_write(&w->file, w->buffer, out.pos, &w->error);
    } while (w->error.status == VT_OK && (end == ZSTD_e_end ? left > 0 : in.pos < in.size));
}

static vt_status open_file(vti_save_writer *w, const char *path, vt_error *err)
{
    VTI_TRY(vti_output_open(&w->file, path, 0600, err));
    w->buffer = malloc(BUFFER_BYTES);
    w->zstd = ZSTD_createCCtx();
    if (!w->buffer || !w->zstd)
        return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_windowLog, WINDOW_LOG);
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_checksumFlag, 1);
    return VT_OK;
}

vt_status vti_save_writer_open(const char *path, const uint8_t prefix[VTI_SAVE_PREFIX_BYTES],
                               const char *kind, vti_save_writer **out, vt_error *err)
{
    *out = NULL;
    VTI_TRY(vti_output_check(path, prefix, kind, err));
    vti_save_writer *w = calloc(1, sizeof *w);
    if (!w) return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    w->file = VTI_OUTPUT_NONE;
    vt_status status = open_file(w, path, err);
    if (status != VT_OK) {
        vti_save_writer_discard(w);
        return status;
    }
    vti_output_write(&w->file, prefix, VTI_SAVE_PREFIX_BYTES, &w->error);
    *out = w;
    return VT_OK;
}

void vti_save_write(vti_save_writer *w, const void *data, size_t bytes)
{
    if (bytes && w->error.status == VT_OK) compress(w, data, bytes, ZSTD_e_continue);
}

void vti_save_write_u32(vti_save_writer *w, uint32_t value) { vti_save_write(w, &value, 4); }
void vti_save_write_u64(vti_save_writer *w, uint64_t value) { vti_save_write(w, &value, 8); }

static void free_writer(vti_save_writer *w)
{
    vti_output_discard(&w->file);
    ZSTD_freeCCtx(w->zstd);
    free(w->buffer);
    free(w);
}

vt_status vti_save_writer_commit(vti_save_writer *w, vt_error *err)
{
    if (w->error.status == VT_OK) compress(w, NULL, 0, ZSTD_e_end);
    vt_status status = w->error.status;
    if (status == VT_OK)
        status = vti_output_commit(&w->file, err);
    else
        vti_fail(err, status, "%s", w->error.message);
    free_writer(w);
    return status;
}

void vti_save_writer_discard(vti_save_writer *w)
{
    if (w) free_writer(w);
}
