#include "shard_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "shard_cache_internal.h"

static const uint64_t default_max_bytes = 20ull << 30;
enum { DEFAULT_SHARE = 10, CHECKSUM_AT = 64 };

static const char magic[8] = {'V', 'T', 'B', 'L', 'O', 'C', 'K', 1};

void vti_cached_block_free(vti_cached_block *block)
{
    free(block->data);
    *block = (vti_cached_block){0};
}

/* --- headers ----------------------------------------------------------------------------------- */

/* Of the header's first half and of what follows it. */
static void checksum_of(const uint8_t *header, const void *data, size_t bytes,
                        uint8_t out[VTI_SHARD_HASH_BYTES])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, VTI_SHARD_HASH_BYTES);
    crypto_generichash_update(&state, header, CHECKSUM_AT);
    crypto_generichash_update(&state, data, bytes);
    crypto_generichash_final(&state, out, VTI_SHARD_HASH_BYTES);
}

static void write_header(const vti_content_hash *hash, const vti_cached_block *block,
                         uint8_t out[VTI_CACHE_HEADER_BYTES])
{
    memset(out, 0, VTI_CACHE_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    memcpy(out + 8, &block->encoding, 4);
    memcpy(out + 16, &block->raw_bytes, 8);
    memcpy(out + 24, &block->stored_bytes, 8);
    memcpy(out + 32, hash, sizeof *hash);
    checksum_of(out, block->data, (size_t)block->stored_bytes, out + CHECKSUM_AT);
}

/* False: it is not the header of such a file. */
static bool read_header(int file, const vti_content_hash *hash, vti_cached_block *out,
                        uint8_t header[VTI_CACHE_HEADER_BYTES])
{
    struct stat info;
    if (fstat(file, &info) != 0 || !vti_cache_read(file, header, VTI_CACHE_HEADER_BYTES, 0) ||
        memcmp(header, magic, sizeof magic) != 0 || memcmp(header + 32, hash, sizeof *hash) != 0)
        return false;
    memcpy(&out->encoding, header + 8, 4);
    memcpy(&out->raw_bytes, header + 16, 8);
    memcpy(&out->stored_bytes, header + 24, 8);
    return out->stored_bytes == (uint64_t)info.st_size - VTI_CACHE_HEADER_BYTES;
}

/* --- opening ----------------------------------------------------------------------------------- */

/* What blocks take now belongs to what is free: the limit does not shrink as the cache grows. */
static uint64_t usual_max_bytes(const vti_shard_cache *c, uint64_t taken)
{
    struct statvfs disk;
    if (fstatvfs(c->root, &disk) != 0) return default_max_bytes;
    uint64_t share = ((uint64_t)disk.f_bavail * disk.f_frsize + taken) / DEFAULT_SHARE;
    return share < default_max_bytes ? share : default_max_bytes;
}

static vt_status open_folder(vti_shard_cache *c, vt_error *err)
{
    if (!vti_cache_ensure(c, err)) return err ? err->status : VT_ERR_IO;
    /* Also clears away what a process that was killed has left. */
    bool entered = vti_cache_enter(c, true);
    uint64_t taken = entered ? vti_cache_count(c) : vti_cache_taken(c);
    if (entered) vti_cache_leave(c);
    if (!c->max_bytes) c->max_bytes = usual_max_bytes(c, taken);
    return VT_OK;
}

vt_status vti_shard_cache_open(const char *path, uint64_t max_bytes, const vt_log *log,
                               vti_shard_cache **out, vt_error *err)
{
    vt_error own;
    *out = NULL;
    if (!path[0]) return vti_fail(err, VT_ERR_ARGUMENT, "the path of the cache is empty");
    vti_shard_cache *c = calloc(1, sizeof *c);
    size_t bytes = strlen(path) + sizeof "/shards";
    char *folder = malloc(bytes);
    if (!c || !folder || pthread_mutex_init(&c->lock, NULL) != 0) {
        free(c);
        free(folder);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a cache");
    }
    snprintf(folder, bytes, "%s/shards", path);
    c->path = folder;
    c->max_bytes = max_bytes;
    if (log) c->log = *log;
    c->root = c->usage = c->user = -1;
    vt_status status = open_folder(c, err ? err : &own);
    if (status == VT_OK)
        *out = c;
    else
        vti_shard_cache_close(c);
    return status;
}

void vti_shard_cache_close(vti_shard_cache *c)
{
    if (!c) return;
    vti_cache_close_files(c);
    vti_hash_set_clear(&c->used);
    vti_hash_set_clear(&c->warned);
    pthread_mutex_destroy(&c->lock);
    free(c->path);
    free(c);
}

void vti_shard_cache_usage(vti_shard_cache *c, uint64_t *bytes, uint64_t *max_bytes)
{
    pthread_mutex_lock(&c->lock);
    *bytes = vti_cache_ensure(c, NULL) ? vti_cache_taken(c) : 0;
    *max_bytes = c->max_bytes;
    pthread_mutex_unlock(&c->lock);
}

void vti_shard_cache_let_go(vti_shard_cache *c)
{
    pthread_mutex_lock(&c->lock);
    vti_hash_set_clear(&c->used);
    c->full_until_ns = 0;
    if (vti_cache_ensure(c, NULL) && c->user >= 0 && vti_cache_enter(c, false)) {
        if (ftruncate(c->user, 0) == 0) c->used_told = 0;
        vti_cache_leave(c);
    }
    pthread_mutex_unlock(&c->lock);
}

/* --- reading ----------------------------------------------------------------------------------- */

/* Marks the block as used and opens its file; -1: it is not there. Where it is that counts as a
 * use, of which the file's time of change tells: times of access are off on many systems. */
static int open_block(vti_shard_cache *c, const vti_content_hash *hash)
{
    char name[VTI_CACHE_HASH_TEXT], folder_name[3];
    int file = -1;
    vti_cache_hash_text(hash, name);
    snprintf(folder_name, sizeof folder_name, "%.2s", name);
    pthread_mutex_lock(&c->lock);
    if (vti_cache_ensure(c, NULL)) {
        vti_cache_mark(c, hash);
        int folder = vti_cache_folder(c, folder_name, false);
        if (folder >= 0) {
            file = vti_cache_open_file(folder, name, O_RDONLY);
            close(folder);
        }
    }
    pthread_mutex_unlock(&c->lock);
    if (file >= 0) futimens(file, NULL);
    return file;
}

static void drop_damaged(vti_shard_cache *c, const vti_content_hash *hash)
{
    char name[VTI_CACHE_HASH_TEXT];
    vti_cache_hash_text(hash, name);
    vti_log(&c->log, VT_LOG_WARNING, "cache folder %s: %s was damaged and is removed", c->path,
            name);
    vti_shard_cache_remove(c, hash);
}

bool vti_shard_cache_has(vti_shard_cache *c, const vti_content_hash *hash, vti_cached_block *out)
{
    uint8_t header[VTI_CACHE_HEADER_BYTES];
    vti_cached_block block = {0};
    int file = open_block(c, hash);
    if (file < 0) return false;
    bool good = read_header(file, hash, &block, header);
    close(file);
    if (!good) drop_damaged(c, hash);
    if (good && out) *out = block;
    return good;
}

static bool make_larger(vti_cached_block *block, uint64_t bytes)
{
    if (block->capacity >= bytes && block->data) return true;
    free(block->data);
    block->data = bytes <= SIZE_MAX ? malloc(bytes ? (size_t)bytes : 1) : NULL;
    block->capacity = block->data ? (size_t)bytes : 0;
    return block->data != NULL;
}

/* The header's size was compared with the file's: no allocation is larger than what is there. */
static bool read_block(int file, const vti_content_hash *hash, vti_cached_block *out, bool *memory)
{
    uint8_t header[VTI_CACHE_HEADER_BYTES], checksum[VTI_SHARD_HASH_BYTES];
    if (!read_header(file, hash, out, header)) return false;
    *memory = make_larger(out, out->stored_bytes);
    if (!*memory || !vti_cache_read(file, out->data, (size_t)out->stored_bytes,
                                    VTI_CACHE_HEADER_BYTES))
        return false;
    checksum_of(header, out->data, (size_t)out->stored_bytes, checksum);
    return memcmp(checksum, header + CHECKSUM_AT, sizeof checksum) == 0;
}

bool vti_shard_cache_get(vti_shard_cache *c, const vti_content_hash *hash, vti_cached_block *out)
{
    bool memory = true;
    int file = open_block(c, hash);
    if (file < 0) return false;
    bool good = read_block(file, hash, out, &memory);
    close(file);
    if (!good && memory) drop_damaged(c, hash);
    return good;
}

/* --- writing ----------------------------------------------------------------------------------- */

/* A block on its way in. */
typedef struct part {
    int folder, target; /* folders; -1: not open */
    int file;
    char name[VTI_CACHE_PART_TEXT];
    uint64_t bytes;     /* of the whole file */
} part;

/* Once for each reason. */
static void warn(vti_shard_cache *c, const char *why)
{
    vti_content_hash hash;
    crypto_generichash(hash.bytes, sizeof hash.bytes, (const uint8_t *)why, strlen(why), NULL, 0);
    pthread_mutex_lock(&c->lock);
    bool first = !vti_hash_set_has(&c->warned, &hash) && vti_hash_set_add(&c->warned, &hash);
    pthread_mutex_unlock(&c->lock);
    if (first)
        vti_log(&c->log, VT_LOG_WARNING, "cache folder %s: blocks cannot be kept: %s", c->path,
                why);
}

/* The file has its whole size at once, so that who counts the files counts what it will be. */
static const char *create_part(vti_shard_cache *c, part *p, const char *folder_name)
{
    p->folder = vti_cache_folder(c, "parts", true);
    p->target = p->folder >= 0 ? vti_cache_folder(c, folder_name, true) : -1;
    snprintf(p->name, sizeof p->name, "%s-%u", c->user_name, (unsigned)c->parts++);
    if (p->target >= 0)
        p->file = vti_cache_open_file(p->folder, p->name, O_RDWR | O_CREAT | O_EXCL);
    if (p->file >= 0 && ftruncate(p->file, (off_t)p->bytes) == 0) return NULL;
    return strerror(errno);
}

/* NULL, or why not. */
static const char *begin_part(vti_shard_cache *c, part *p, const char *folder_name)
{
    if (!vti_cache_ensure(c, NULL)) return "the folder is gone";
    if (c->usage < 0 || c->user < 0) return "the folder cannot be written to";
    if (p->bytes > c->max_bytes) return "a block is larger than what all may take";
    if (!vti_cache_enter(c, true)) return "another process does not leave it";
    const char *reason = "as much as may be is in use";
    if (vti_cache_take_room(c, p->bytes)) {
        reason = create_part(c, p, folder_name);
        if (reason) vti_cache_give_back(c, p->bytes);
    }
    vti_cache_leave(c);
    return reason;
}

static void end_part(vti_shard_cache *c, part *p, bool failed)
{
    if (failed && p->file >= 0) {
        unlinkat(p->folder, p->name, 0);
        pthread_mutex_lock(&c->lock);
        if (vti_cache_enter(c, true)) {
            vti_cache_give_back(c, p->bytes);
            vti_cache_leave(c);
        }
        pthread_mutex_unlock(&c->lock);
    }
    if (p->file >= 0) close(p->file);
    if (p->target >= 0) close(p->target);
    if (p->folder >= 0) close(p->folder);
}

bool vti_shard_cache_put(vti_shard_cache *c, const vti_content_hash *hash,
                         const vti_cached_block *block)
{
    char name[VTI_CACHE_HASH_TEXT], folder_name[3];
    uint8_t header[VTI_CACHE_HEADER_BYTES];
    part p = {-1, -1, -1, "", VTI_CACHE_HEADER_BYTES + block->stored_bytes};
    vti_cache_hash_text(hash, name);
    snprintf(folder_name, sizeof folder_name, "%.2s", name);
    pthread_mutex_lock(&c->lock);
    const char *reason = begin_part(c, &p, folder_name);
    if (!reason) vti_cache_mark(c, hash);
    pthread_mutex_unlock(&c->lock);
    if (!reason) {
        write_header(hash, block, header);
        /* Nothing is synchronised: what a power cut leaves behind fails its checksum. */
        if (!vti_cache_write(p.file, block->data, (size_t)block->stored_bytes, sizeof header) ||
            !vti_cache_write(p.file, header, sizeof header, 0) ||
            renameat(p.folder, p.name, p.target, name) != 0)
            reason = strerror(errno);
    }
    end_part(c, &p, reason != NULL);
    if (reason) warn(c, reason);
    return !reason;
}

void vti_shard_cache_remove(vti_shard_cache *c, const vti_content_hash *hash)
{
    pthread_mutex_lock(&c->lock);
    if (vti_cache_ensure(c, NULL)) {
        bool entered = vti_cache_enter(c, true);
        uint64_t bytes = vti_cache_delete(c, hash);
        if (entered) {
            vti_cache_give_back(c, bytes);
            vti_cache_leave(c);
        }
    }
    pthread_mutex_unlock(&c->lock);
}
