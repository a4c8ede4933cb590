/* shard_cache_room.c: what a shard cache's processes agree on: how much is taken, what is in use,
 * what goes when room is needed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "shard_cache_internal.h"

enum { PATIENCE_MS = 2000, STUCK_MS = 10000, FULL_MS = 1000, USERS_MAX = 256 };

static const char usage_magic[8] = {'V', 'T', 'U', 'S', 'A', 'G', 'E', 1};

/* --- sets of hashes ---------------------------------------------------------------------------- */

static uint8_t seed[crypto_shorthash_KEYBYTES]; /* of this process */

static void make_seed(void) { randombytes_buf(seed, sizeof seed); }

/* Hashes are numbers that somebody else may have chosen to lie in a row: where they go is not. */
static size_t place_of(const vti_hash_set *set, const vti_content_hash *hash)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t mixed;
    pthread_once(&once, make_seed);
    crypto_shorthash((unsigned char *)&mixed, hash->bytes, sizeof hash->bytes, seed);
    size_t at = (size_t)mixed;
    for (at &= set->capacity - 1; set->taken[at]; at = (at + 1) & (set->capacity - 1))
        if (memcmp(&set->at[at], hash, sizeof *hash) == 0) break;
    return at;
}

bool vti_hash_set_has(const vti_hash_set *set, const vti_content_hash *hash)
{
    return set->count && set->taken[place_of(set, hash)];
}

static bool grow(vti_hash_set *set)
{
    vti_hash_set larger = {.capacity = set->capacity ? 2 * set->capacity : 64};
    larger.at = malloc(larger.capacity * sizeof *larger.at);
    larger.taken = calloc(larger.capacity, sizeof *larger.taken);
    if (!larger.at || !larger.taken) {
        vti_hash_set_clear(&larger);
        return false;
    }
    for (size_t i = 0; i < set->capacity; i++)
        if (set->taken[i]) vti_hash_set_add(&larger, &set->at[i]);
    vti_hash_set_clear(set);
    *set = larger;
    return true;
}

bool vti_hash_set_add(vti_hash_set *set, const vti_content_hash *hash)
{
    if (2 * (set->count + 1) > set->capacity && !grow(set)) return false;
    size_t at = place_of(set, hash);
    if (set->taken[at]) return true;
    set->at[at] = *hash;
    set->taken[at] = true;
    set->count++;
    return true;
}

void vti_hash_set_clear(vti_hash_set *set)
{
    free(set->at);
    free(set->taken);
    *set = (vti_hash_set){0};
}

/* --- the lock ---------------------------------------------------------------------------------- */

bool vti_cache_enter(vti_shard_cache *c, bool exclusive)
{
    int operation = (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB;
    uint64_t now = vti_now_ns();
    /* Whoever made us wait in vain lately gets no second chance soon. */
    uint64_t deadline = now < c->stuck_until_ns ? now : now + PATIENCE_MS * 1000000ull;
    while (c->usage >= 0) {
        if (flock(c->usage, operation) == 0) return true;
        if (errno != EWOULDBLOCK && errno != EINTR) return false;
        if (vti_now_ns() >= deadline) break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    c->stuck_until_ns = vti_now_ns() + STUCK_MS * 1000000ull;
    return false;
}

void vti_cache_leave(vti_shard_cache *c) { flock(c->usage, LOCK_UN); }

/* --- how much is taken ------------------------------------------------------------------------- */

static bool read_taken(const vti_shard_cache *c, uint64_t *out)
{
    unsigned char bytes[16];
    if (!vti_cache_read(c->usage, bytes, sizeof bytes, 0) ||
        memcmp(bytes, usage_magic, sizeof usage_magic) != 0)
        return false;
    memcpy(out, bytes + 8, 8);
    return true;
}

static void write_taken(vti_shard_cache *c, uint64_t taken)
{
    unsigned char bytes[16];
    memcpy(bytes, usage_magic, sizeof usage_magic);
    memcpy(bytes + 8, &taken, 8);
    /* Sixteen bytes that were there before; if it fails all the same, the next one counts anew. */
    if (!vti_cache_write(c->usage, bytes, sizeof bytes, 0) && ftruncate(c->usage, 0) != 0) return;
}

/* --- looking at everything --------------------------------------------------------------------- */

typedef struct stored_block {
    vti_content_hash hash;
    uint64_t bytes;
    struct timespec used; /* last */
} stored_block;

typedef struct stock {
    stored_block *blocks;
    size_t count, capacity;
    vti_hash_set used;                        /* by any process */
    char users[USERS_MAX][VTI_CACHE_USER_TEXT]; /* processes that live */
    size_t user_count;
    uint64_t bytes;
    bool failed;                              /* no memory, too many users: not all is known */
} stock;

static void stock_free(stock *s)
{
    free(s->blocks);
    vti_hash_set_clear(&s->used);
    free(s);
}

/* Calls `look` for every name in a folder. */
static void each_name(const vti_shard_cache *c, const char *folder_name, stock *s,
                      void (*look)(stock *s, int folder, const char *folder_name, const char *name))
{
    int folder = vti_cache_folder(c, folder_name, false);
    DIR *list = folder >= 0 ? fdopendir(folder) : NULL;
    if (!list) {
        if (folder >= 0) close(folder);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list));)
        look(s, folder, folder_name, entry->d_name);
    closedir(list);
}

static void look_at_block(stock *s, int folder, const char *folder_name, const char *name)
{
    struct stat info;
    stored_block block;
    if (!vti_cache_hash_parse(folder_name, name, &block.hash) ||
        fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
        return;
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 256;
        stored_block *more = realloc(s->blocks, capacity * sizeof *more);
        s->bytes += (uint64_t)info.st_size;
        s->failed |= !more;
        if (!more) return;
        s->bytes -= (uint64_t)info.st_size;
        s->blocks = more;
        s->capacity = capacity;
    }
    block.bytes = (uint64_t)info.st_size;
    block.used = info.st_mtim;
    s->blocks[s->count++] = block;
    s->bytes += block.bytes;
}

static void read_used(stock *s, int file)
{
    vti_content_hash hashes[128];
    for (off_t at = 0;;) {
        ssize_t got = pread(file, hashes, sizeof hashes, at);
        if (got < (ssize_t)sizeof hashes[0]) return;
        size_t count = (size_t)got / sizeof hashes[0];
        for (size_t i = 0; i < count; i++) s->failed |= !vti_hash_set_add(&s->used, &hashes[i]);
        at += (off_t)(count * sizeof hashes[0]);
    }
}

static bool is_user_name(const char *name)
{
    return strlen(name) == VTI_CACHE_USER_TEXT - 1 && strspn(name, "0123456789abcdef") ==
                                                          VTI_CACHE_USER_TEXT - 1;
}

/* A file that nobody has locked is of a process that has ended. */
static void look_at_user(stock *s, int folder, const char *folder_name, const char *name)
{
    (void)folder_name;
    if (!is_user_name(name)) return;
    int file = vti_cache_open_file(folder, name, O_RDONLY);
    if (file < 0) return;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
        unlinkat(folder, name, 0);
    } else if (s->user_count < USERS_MAX) {
        memcpy(s->users[s->user_count++], name, VTI_CACHE_USER_TEXT);
        read_used(s, file);
    } else {
        s->failed = true;
    }
    close(file);
}

/* What a process that has ended was writing. */
static void look_at_part(stock *s, int folder, const char *folder_name, const char *name)
{
    char user[VTI_CACHE_USER_TEXT];
    struct stat info;
    (void)folder_name;
    snprintf(user, sizeof user, "%.32s", name);
    if (!is_user_name(user) || name[sizeof user - 1] != '-') return;
    for (size_t i = 0; i < s->user_count; i++) {
        if (strcmp(s->users[i], user) != 0) continue;
        if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
            s->bytes += (uint64_t)info.st_size;
        return;
    }
    if (!s->failed) unlinkat(folder, name, 0);
}

static stock *take_stock(const vti_shard_cache *c)
{
    stock *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    each_name(c, "in-use", s, look_at_user);
    each_name(c, "parts", s, look_at_part);
    for (int i = 0; i < 256; i++) {
        char name[3];
        snprintf(name, sizeof name, "%02x", (unsigned)i);
        each_name(c, name, s, look_at_block);
    }
    return s;
}

/* --- room -------------------------------------------------------------------------------------- */

static int by_last_use(const void *left, const void *right)
{
    const struct timespec *a = &((const stored_block *)left)->used;
    const struct timespec *b = &((const stored_block *)right)->used;
    if (a->tv_sec != b->tv_sec) return a->tv_sec < b->tv_sec ? -1 : 1;
    return a->tv_nsec < b->tv_nsec ? -1 : a->tv_nsec > b->tv_nsec;
}

uint64_t vti_cache_delete(const vti_shard_cache *c, const vti_content_hash *hash)
{
    char name[VTI_CACHE_HASH_TEXT], folder_name[3];
    struct stat info;
    vti_cache_hash_text(hash, name);
    snprintf(folder_name, sizeof folder_name, "%.2s", name);
    int folder = vti_cache_folder(c, folder_name, false);
    if (folder < 0) return 0;
    bool deleted = fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                   S_ISREG(info.st_mode) && unlinkat(folder, name, 0) == 0;
    close(folder);
    return deleted ? (uint64_t)info.st_size : 0;
}

/* Somewhat more than is needed goes, so that not every new block has to look at everything. */
static void evict(const vti_shard_cache *c, stock *s, uint64_t bytes)
{
    uint64_t goal = c->max_bytes - c->max_bytes / 16;
    if (bytes > goal) goal = c->max_bytes;
    qsort(s->blocks, s->count, sizeof *s->blocks, by_last_use);
    for (size_t i = 0; i < s->count && s->bytes > goal - bytes; i++) {
        const vti_content_hash *hash = &s->blocks[i].hash;
        if (!vti_hash_set_has(&s->used, hash) && vti_cache_delete(c, hash))
            s->bytes -= s->blocks[i].bytes;
    }
}

bool vti_cache_take_room(vti_shard_cache *c, uint64_t bytes)
{
    uint64_t taken;
    if (bytes > c->max_bytes || vti_now_ns() < c->full_until_ns) return false;
    if (!read_taken(c, &taken) || taken > c->max_bytes - bytes) {
        stock *s = take_stock(c);
        if (!s) return false;
        if (s->bytes > c->max_bytes - bytes && !s->failed) evict(c, s, bytes);
        taken = s->bytes;
        stock_free(s);
    }
    bool fits = taken <= c->max_bytes - bytes;
    write_taken(c, fits ? taken + bytes : taken);
    if (!fits) c->full_until_ns = vti_now_ns() + (uint64_t)FULL_MS * 1000000;
    return fits;
}

uint64_t vti_cache_count(vti_shard_cache *c)
{
    stock *s = take_stock(c);
    uint64_t bytes = s ? s->bytes : 0;
    if (s && c->usage >= 0) write_taken(c, bytes);
    if (s) stock_free(s);
    return bytes;
}

void vti_cache_give_back(vti_shard_cache *c, uint64_t bytes)
{
    uint64_t taken;
    if (read_taken(c, &taken)) write_taken(c, taken > bytes ? taken - bytes : 0);
}

uint64_t vti_cache_taken(vti_shard_cache *c)
{
    uint64_t taken;
    return c->usage >= 0 && read_taken(c, &taken) ? taken : vti_cache_count(c);
}

/* On a full disk it may fail; then the block only is not protected. */
static void append_used(vti_shard_cache *c, const vti_content_hash *hash)
{
    if (vti_cache_write(c->user, hash, sizeof *hash, (off_t)(c->used_told * sizeof *hash)))
        c->used_told++;
}

void vti_cache_mark(vti_shard_cache *c, const vti_content_hash *hash)
{
    if (vti_hash_set_has(&c->used, hash) || !vti_hash_set_add(&c->used, hash)) return;
    if (c->user < 0 || !vti_cache_enter(c, false)) return;
    append_used(c, hash);
    vti_cache_leave(c);
}

void vti_cache_mark_again(vti_shard_cache *c)
{
    c->used_told = 0;
    for (size_t i = 0; i < c->used.capacity; i++)
        if (c->used.taken[i]) append_used(c, &c->used.at[i]);
}
