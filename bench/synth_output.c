#include "synth.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 4 << 20 };

static vt_status fail(const synth_output *out, const char *what, vt_error *err)
{
    return vti_fail(err, VT_ERR_IO, "%s: %s: %s", out->path, what, strerror(errno));
}

static vt_status fail_full(const synth_output *out, uint64_t bytes, vt_error *err)
{
    return vti_fail(err, VT_ERR_IO, "%s: there is no room for a file of %" PRIu64 " MiB: %s",
                    out->path, (bytes >> 20) + 1, strerror(errno));
}

/* Claiming all the room first says at once, not after minutes, that a disk is too full. */
static vt_status claim(synth_output *out, uint64_t bytes, vt_error *err)
{
#ifdef __linux__
    while (fallocate(out->descriptor, 0, 0, (off_t)bytes) != 0) {
        if (errno == EINTR) continue;
        if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)
            return fail_full(out, bytes, err);
        return VT_OK; /* a file system that cannot claim */
    }
#else
    (void)out, (void)bytes, (void)err;
#endif
    return VT_OK;
}

vt_status synth_output_open(synth_output *out, const char *path, uint64_t total_bytes,
                            vt_error *err)
{
    struct stat facts;
    size_t room = strlen(path) + 8;
    *out = (synth_output){.path = path, .descriptor = -1};
    if (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode))
        return vti_fail(err, VT_ERR_IO, "%s: exists and is no ordinary file", path);
    out->temporary = malloc(room);
    out->buffer = malloc(BUFFER_BYTES);
    if (!out->temporary || !out->buffer)
        return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    snprintf(out->temporary, room, "%s.XXXXXX", path);
    out->descriptor = mkstemp(out->temporary);
    if (out->descriptor < 0) return fail(out, "cannot be made", err);
    mode_t mask = umask(0);
    umask(mask);
    if (fchmod(out->descriptor, 0666 & ~mask) != 0) return fail(out, "cannot be made", err);
    return claim(out, total_bytes, err);
}

static vt_status flush(synth_output *out, vt_error *err)
{
    for (size_t done = 0; done < out->buffered;) {
        ssize_t n = write(out->descriptor, out->buffer + done, out->buffered - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(out, "cannot be written", err);
        done += (size_t)n;
    }
    out->buffered = 0;
    return VT_OK;
}

vt_status synth_output_write(synth_output *out, const void *data, size_t bytes, vt_error *err)
{
    const unsigned char *from = data;
    out->written += bytes;
    while (bytes) {
        size_t part = BUFFER_BYTES - out->buffered;
        if (part > bytes) part = bytes;
        memcpy(out->buffer + out->buffered, from, part);
        out->buffered += part;
        from += part;
        bytes -= part;
        if (out->buffered == BUFFER_BYTES) VTI_TRY(flush(out, err));
    }
    return VT_OK;
}

vt_status synth_output_finish(synth_output *out, vt_error *err)
{
    VTI_TRY(flush(out, err));
    int code = close(out->descriptor);
    out->descriptor = -1;
    if (code != 0) return fail(out, "cannot be written", err);
    if (rename(out->temporary, out->path) != 0) return fail(out, "cannot get its name", err);
    free(out->temporary);
    out->temporary = NULL;
    return VT_OK;
}

void synth_output_close(synth_output *out)
{
    bool made = out->descriptor >= 0;
    if (made) close(out->descriptor);
    /* mkstemp leaves the X's where it made no file. */
    if (out->temporary && !strstr(out->temporary, ".XXXXXX")) unlink(out->temporary);
    free(out->temporary);
    free(out->buffer);
    *out = (synth_output){.descriptor = -1};
}
