/* shard_cache_internal.h: the parts of a shard cache.
 *
 *   shards/usage         the lock of all processes (flock), and how many bytes are taken
 *   shards/in-use/NAME   one per process, locked as long as it lives: hashes that it uses
 *   shards/parts/NAME-N  a block that process NAME is writing
 *   shards/HH/HASH       the blocks; HH are the first two digits */
#ifndef VTI_SHARD_CACHE_INTERNAL_H
#define VTI_SHARD_CACHE_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "shard_cache.h"

enum {
    VTI_CACHE_HASH_TEXT = 2 * VTI_SHARD_HASH_BYTES + 1,
    VTI_CACHE_USER_TEXT = 33, /* a random name */
    VTI_CACHE_PART_TEXT = VTI_CACHE_USER_TEXT + 11,
};

/* A set of hashes, open addressing. */
typedef struct vti_hash_set {
    vti_content_hash *at;
    bool *taken;
    size_t capacity, count; /* capacity: a power of two, or 0 */
} vti_hash_set;

bool vti_hash_set_has(const vti_hash_set *set, const vti_content_hash *hash);
bool vti_hash_set_add(vti_hash_set *set, const vti_content_hash *hash); /* false: no memory */
void vti_hash_set_clear(vti_hash_set *set);

struct vti_shard_cache {
    char *path; /* of the folder "shards" */
    uint64_t max_bytes;
    vt_log log;
    pthread_mutex_t lock; /* of all that follows */
    int root;             /* the folder "shards"; -1: not open */
    int usage, user;      /* its files; -1: the folder can only be read */
    char user_name[VTI_CACHE_USER_TEXT];
    uint32_t parts;       /* numbers them */
    vti_hash_set used;    /* by this process */
    size_t used_told;     /* how many of them `user` says */
    uint64_t full_until_ns; /* all blocks are in use; not worth another look before */
    uint64_t stuck_until_ns; /* another process did not leave the lock; not worth waiting before */
    vti_hash_set warned;  /* hashes of the reasons why blocks cannot be kept that were told */
};

/* --- shard_cache_files.c ----------------------------------------------------------------------- */

/* Opens what is not open or not there any more. False: there is no folder. */
bool vti_cache_ensure(vti_shard_cache *c, vt_error *err);
void vti_cache_close_files(vti_shard_cache *c);

/* The folder of a hash, or "in-use", "parts"; -1. Symbolic links are not followed. */
int vti_cache_folder(const vti_shard_cache *c, const char *name, bool make);

/* The name of a block, and the folder it is in, of which two digits count. */
void vti_cache_hash_text(const vti_content_hash *hash, char out[VTI_CACHE_HASH_TEXT]);
bool vti_cache_hash_parse(const char *folder, const char *name, vti_content_hash *out);

/* An open file that is a regular one, or -1. */
int vti_cache_open_file(int folder, const char *name, int flags);

/* All or nothing; false with errno. */
bool vti_cache_read(int file, void *data, size_t bytes, off_t at);
bool vti_cache_write(int file, const void *data, size_t bytes, off_t at);

/* --- shard_cache_room.c ------------------------------------------------------------------------ */

/* The lock of all processes. Waits no longer than two seconds (one of them may be stopped): false.
 * It is not waited for again for a while then.
 * `exclusive`: to change what is there; else to mark something as used. */
bool vti_cache_enter(vti_shard_cache *c, bool exclusive);
void vti_cache_leave(vti_shard_cache *c);

/* These two while the lock is held exclusively. */
/* Evicts what is needed for `bytes` more, and counts them as taken. False: too much is in use. */
bool vti_cache_take_room(vti_shard_cache *c, uint64_t bytes);
/* Counts what is there. */
uint64_t vti_cache_count(vti_shard_cache *c);
/* Deletes a block's file; its bytes, 0: there was none. */
uint64_t vti_cache_delete(const vti_shard_cache *c, const vti_content_hash *hash);
void vti_cache_give_back(vti_shard_cache *c, uint64_t bytes);
uint64_t vti_cache_taken(vti_shard_cache *c);

/* Marks a block as used by this process. */
void vti_cache_mark(vti_shard_cache *c, const vti_content_hash *hash);
/* All that are used, in a new file, while the lock is held. */
void vti_cache_mark_again(vti_shard_cache *c);

#endif
