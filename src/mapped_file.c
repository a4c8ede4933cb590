#include "mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static vti_file_facts facts_of(const struct stat *info)
{
    return (vti_file_facts){{(uint64_t)info->st_dev, (uint64_t)info->st_ino,
                             (uint64_t)info->st_size, (uint64_t)info->st_mtim.tv_sec,
                             (uint64_t)info->st_mtim.tv_nsec}};
}

bool vti_file_is_as_it_was(const char *path, const vti_file_facts *facts)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    vti_file_facts now = facts_of(&info);
    return memcmp(&now, facts, sizeof now) == 0;
}

vt_status vti_mapped_file_of(int descriptor, const char *path, vti_mapped_file *out, vt_error *err)
{
    *out = (vti_mapped_file){0};
    struct stat info;
    if (fstat(descriptor, &info) != 0)
        return vti_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) return vti_fail(err, VT_ERR_IO, "%s: is a folder, not a file", path);
    if (!S_ISREG(info.st_mode)) return vti_fail(err, VT_ERR_IO, "%s: is not a regular file", path);
    if ((uintmax_t)info.st_size > SIZE_MAX)
        return vti_fail(err, VT_ERR_MEMORY, "%s: %jd bytes do not fit the address space", path,
                        (intmax_t)info.st_size);
    if (info.st_size == 0) return VT_OK;
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED)
        return vti_fail(err, errno == ENOMEM ? VT_ERR_MEMORY : VT_ERR_IO,
                        "%s: cannot map %jd bytes: %s", path, (intmax_t)info.st_size,
                        strerror(errno));
    *out = (vti_mapped_file){data, (size_t)info.st_size, facts_of(&info)};
    return VT_OK;
}

vt_status vti_mapped_file_open(const char *path, vti_mapped_file *out, vt_error *err)
{
    *out = (vti_mapped_file){0};
    if (!path) return vti_fail(err, VT_ERR_ARGUMENT, "no file name was given");
    /* O_NONBLOCK: opening a pipe without a writer would wait for one. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return vti_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    vt_status status = vti_mapped_file_of(descriptor, path, out, err);
    close(descriptor);
    return status;
}

void vti_mapped_file_let_go(const vti_mapped_file *file)
{
    if (file->data) madvise((void *)file->data, file->bytes, MADV_DONTNEED); /* private, unwritten */
}

void vti_mapped_file_close(vti_mapped_file *file)
{
    if (file->data) munmap((void *)file->data, file->bytes);
    *file = (vti_mapped_file){0};
}
