#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static vt_status fail_with_errno(const char *path, vt_error *err)
{
    return vti_fail(err, VT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

vt_status vti_output_check(const char *path, const void *magic, const char *kind, vt_error *err)
{
    struct stat info;
    unsigned char found[4];
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return VT_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool same = fd >= 0 && read(fd, found, sizeof found) == (ssize_t)sizeof found &&
                memcmp(found, magic, sizeof found) == 0;
    if (fd >= 0) close(fd);
    if (same) return VT_OK;
    return vti_fail(err, VT_ERR_ARGUMENT,
                    "%s exists and is not %s; it is not replaced, choose another name", path, kind);
}

/* The file's real name: a symbolic link to it stays. */
static vt_status find_target(vti_output_file *out, const char *path, vt_error *err)
{
    struct stat info;
    out->path = realpath(path, NULL);
    if (!out->path && lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        return vti_fail(err, VT_ERR_IO, "cannot write %s: it is a link to nothing", path);
    if (!out->path) out->path = strdup(path); /* new, or the reason comes when it is written */
    if (!out->path) return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    if (stat(out->path, &info) != 0 || S_ISREG(info.st_mode)) return VT_OK;
    return vti_fail(err, VT_ERR_IO, "cannot write %s: it is not a regular file", path);
}

/* A name beside it that nobody uses: those of a process that was killed may be left. */
static vt_status create_temporary(vti_output_file *out, unsigned mode, vt_error *err)
{
    size_t room = strlen(out->path) + 48;
    out->temporary = malloc(room);
    if (!out->temporary) return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", out->path);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(out->temporary, room, "%s.part-%ld-%u", out->path, (long)getpid(), i);
        out->descriptor = open(out->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (out->descriptor >= 0) return VT_OK;
        if (errno != EEXIST) break;
    }
    return fail_with_errno(out->path, err);
}

vt_status vti_output_open(vti_output_file *out, const char *path, unsigned mode, vt_error *err)
{
    *out = VTI_OUTPUT_NONE;
    vt_status status = find_target(out, path, err);
    if (status == VT_OK) status = create_temporary(out, mode, err);
    if (status != VT_OK) vti_output_discard(out);
    return status;
}

vt_status vti_output_write(vti_output_file *out, const void *data, size_t bytes, vt_error *err)
{
    const unsigned char *from = data;
    while (bytes) {
        ssize_t written = write(out->descriptor, from, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_with_errno(out->path, err);
        from += written;
        bytes -= (size_t)written;
    }
    return VT_OK;
}

vt_status vti_output_write_at(vti_output_file *out, uint64_t offset, const void *data, size_t bytes,
                              vt_error *err)
{
    const unsigned char *from = data;
    while (bytes) {
        ssize_t written = pwrite(out->descriptor, from, bytes, (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_with_errno(out->path, err);
        from += written;
        offset += (uint64_t)written;
        bytes -= (size_t)written;
    }
    return VT_OK;
}

/* The name is on the disk only once the folder is; else a power cut leaves the old file. */
static void sync_folder(const vti_output_file *out)
{
    memcpy(out->temporary, out->path, strlen(out->path) + 1);
    int folder = open(dirname(out->temporary), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    fsync(folder);
    close(folder);
}

static void free_names(vti_output_file *out)
{
    free(out->path);
    free(out->temporary);
    *out = VTI_OUTPUT_NONE;
}

vt_status vti_output_commit(vti_output_file *out, vt_error *err)
{
    vt_status status = VT_OK;
    /* Some file systems (FUSE) have no fsync; there is nothing better to do there. */
    if (fsync(out->descriptor) != 0 && errno != EINVAL && errno != ENOSYS)
        status = fail_with_errno(out->path, err);
    if (close(out->descriptor) != 0 && status == VT_OK) status = fail_with_errno(out->path, err);
    if (status == VT_OK && rename(out->temporary, out->path) != 0)
        status = fail_with_errno(out->path, err);
    if (status == VT_OK)
        sync_folder(out);
    else
        unlink(out->temporary);
    free_names(out);
    return status;
}

void vti_output_discard(vti_output_file *out)
{
    if (out->descriptor >= 0) {
        close(out->descriptor);
        unlink(out->temporary);
    }
    free_names(out);
}
