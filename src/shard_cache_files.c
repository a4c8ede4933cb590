/* shard_cache_files.c: the folder of a shard cache, which anybody may delete at any time. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_cache_internal.h"

/* --- names ------------------------------------------------------------------------------------- */

void vti_cache_hash_text(const vti_content_hash *hash, char out[VTI_CACHE_HASH_TEXT])
{
    sodium_bin2hex(out, VTI_CACHE_HASH_TEXT, hash->bytes, sizeof hash->bytes);
}

bool vti_cache_hash_parse(const char *folder, const char *name, vti_content_hash *out)
{
    char again[VTI_CACHE_HASH_TEXT];
    size_t bytes;
    if (strlen(name) != sizeof again - 1 || strncmp(name, folder, 2) != 0 ||
        sodium_hex2bin(out->bytes, sizeof out->bytes, name, sizeof again - 1, NULL, &bytes,
                       NULL) != 0 || bytes != sizeof out->bytes)
        return false;
    vti_cache_hash_text(out, again); /* capital digits are not ours */
    return strcmp(again, name) == 0;
}

/* --- files ------------------------------------------------------------------------------------- */

int vti_cache_folder(const vti_shard_cache *c, const char *name, bool make)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int folder = openat(c->root, name, flags);
    if (folder >= 0 || !make || errno != ENOENT) return folder;
    if (mkdirat(c->root, name, 0700) != 0 && errno != EEXIST) return -1;
    return openat(c->root, name, flags);
}

int vti_cache_open_file(int folder, const char *name, int flags)
{
    struct stat info;
    /* O_NONBLOCK: opening a pipe of that name would wait. */
    int file = openat(folder, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (file < 0) return -1;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode)) return file;
    close(file);
    errno = EINVAL;
    return -1;
}

bool vti_cache_read(int file, void *data, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file, (char *)data + done, bytes - done, at + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = ENODATA;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

bool vti_cache_write(int file, const void *data, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = pwrite(file, (const char *)data + done, bytes - done, at + (off_t)done);
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = ENOSPC;
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

/* --- the folder -------------------------------------------------------------------------------- */

static void close_file(int *file)
{
    if (*file >= 0) close(*file);
    *file = -1;
}

void vti_cache_close_files(vti_shard_cache *c)
{
    if (c->user >= 0 && c->root >= 0) {
        int folder = vti_cache_folder(c, "in-use", false);
        if (folder >= 0) {
            unlinkat(folder, c->user_name, 0);
            close(folder);
        }
    }
    close_file(&c->user);
    close_file(&c->usage);
    close_file(&c->root);
}

/* The folder and those above it. */
static void make_folders(const char *path)
{
    char *copy = strdup(path);
    if (!copy) return;
    for (char *at = copy + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        mkdir(copy, 0700);
        *at = '/';
    }
    mkdir(copy, 0700);
    free(copy);
}

static vt_status open_root(vti_shard_cache *c, vt_error *err)
{
    struct stat info;
    make_folders(c->path);
    c->root = open(c->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (c->root < 0 || fstat(c->root, &info) != 0)
        return vti_fail(err, VT_ERR_IO, "cache folder %s: %s", c->path, strerror(errno));
    if ((info.st_uid == geteuid() || info.st_uid == 0) && !(info.st_mode & 022)) return VT_OK;
    close_file(&c->root);
    return vti_fail(err, VT_ERR_ARGUMENT,
                    "cache folder %s: others may write to it; it should be yours alone (chmod 700)",
                    c->path);
}

/* False if the file was deleted, or is not open. */
static bool is_linked(int file)
{
    struct stat info;
    return file >= 0 && fstat(file, &info) == 0 && info.st_nlink > 0;
}

static bool is_same_folder(const vti_shard_cache *c)
{
    struct stat by_path, open_one;
    return lstat(c->path, &by_path) == 0 && fstat(c->root, &open_one) == 0 &&
           by_path.st_dev == open_one.st_dev && by_path.st_ino == open_one.st_ino;
}

/* Tells other processes, by a file that is locked as long as we live, what we use. It is made and
 * locked while nobody can look for files without a living owner. */
static void open_user(vti_shard_cache *c)
{
    uint8_t random[(VTI_CACHE_USER_TEXT - 1) / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return;
    int folder = vti_cache_folder(c, "in-use", true);
    if (folder < 0) return;
    if (vti_cache_enter(c, false)) {
        sodium_bin2hex(c->user_name, sizeof c->user_name, random, sizeof random);
        c->user = vti_cache_open_file(folder, c->user_name, O_RDWR | O_CREAT | O_EXCL);
        if (c->user >= 0 && flock(c->user, LOCK_EX | LOCK_NB) != 0) {
            unlinkat(folder, c->user_name, 0);
            close_file(&c->user);
        }
        if (c->user >= 0) vti_cache_mark_again(c);
        vti_cache_leave(c);
    }
    close(folder);
}

bool vti_cache_ensure(vti_shard_cache *c, vt_error *err)
{
    if (c->root >= 0 && !is_same_folder(c)) vti_cache_close_files(c);
    if (c->root < 0 && open_root(c, err) != VT_OK) return false;
    if (!is_linked(c->usage)) {
        close_file(&c->usage);
        c->usage = vti_cache_open_file(c->root, "usage", O_RDWR | O_CREAT);
    }
    if (c->usage >= 0 && !is_linked(c->user)) {
        close_file(&c->user);
        open_user(c);
    }
    return true;
}
