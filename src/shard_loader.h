/* shard_loader.h: a thread that loads shards while others compute; docs/loading.md tells how.
 *
 * Requests are served one at a time, the most urgent first, of these the oldest. A shard that is
 * loaded goes into its slot at once, where readers find it with the next unit they enter; the one
 * that it replaces is freed once nobody reads it. */
#ifndef VTI_SHARD_LOADER_H
#define VTI_SHARD_LOADER_H

#include "shard_table.h"

/* Where shards come from and go to, see vti_shard_supply_open. Called by one thread at a time. */
typedef struct vti_shard_supply {
    void *self;
    /* Memory that the shard will take; an error if there is no such shard. */
    vt_status (*bytes)(void *self, vti_shard_id id, uint64_t *out, vt_error *err);
    vt_status (*make)(void *self, vti_shard_id id, vti_shard **out, vt_error *err);
    void (*drop)(void *self, vti_shard *shard);
} vti_shard_supply;

/* A request's end, told by the thread that served it, which holds no lock: it may make requests and
 * cancel, not wait. VT_OK: the shard is in its slot. VT_ERR_CANCELLED: cancelled, or there was a
 * newer request for that slot. Else the slot is as it was, and the sentence names the shard. */
typedef void vti_load_done(void *user, vti_shard_id id, vt_status status, const char *sentence);

typedef struct vti_load_request {
    vti_shard_id id;
    bool remove;         /* nothing is loaded: the slot becomes empty */
    uint32_t priority;   /* smaller is more urgent */
    uint64_t group;      /* for vti_shard_loader_cancel_group */
    vti_load_done *done; /* may be NULL */
    void *user;
} vti_load_request;

/* How the thread shares the cores with those that compute. */
typedef enum vti_load_pace {
    VTI_PACE_EQUAL,  /* without a pause: for a core that nobody computes on */
    VTI_PACE_SHARED, /* after each shard pauses seven times as long as it worked */
    VTI_PACE_IDLE,   /* the system's idle class: next to nothing while all cores compute */
    VTI_PACE_NONE,   /* no thread: vti_shard_loader_finish does all */
} vti_load_pace;

typedef struct vti_shard_loader_params {
    vti_shard_table *table;   /* outlives the loader */
    vti_shard_supply supply;
    vti_load_pace pace;
    uint64_t extra_bytes;     /* shards that were replaced may wait for readers while the next one is
                                 loaded, as long as both have this many; 0: one at a time */
} vti_shard_loader_params;

typedef enum vti_load_activity {
    VTI_LOAD_NONE,
    VTI_LOAD_SERVING, /* loading, freeing, telling */
    VTI_LOAD_WAITING, /* for readers, so that what was replaced can be freed */
} vti_load_activity;

typedef struct vti_shard_loader_stats {
    vti_load_activity now;
    uint32_t pending; /* requests that are not over */
    uint64_t loaded, failed, cancelled, dropped; /* dropped: shards that were replaced, removed, or
                                                    cancelled when they were loaded already */
    uint64_t bytes;              /* of those loaded */
    uint64_t busy_ns, waited_ns; /* loading; waiting for readers */
    uint64_t peak_extra_bytes;   /* most while loading: of that shard and those replaced, not freed */
} vti_shard_loader_stats;

typedef struct vti_shard_loader vti_shard_loader;

vt_status vti_shard_loader_open(const vti_shard_loader_params *params, vti_shard_loader **out,
                                vt_error *err);

/* Cancels everything, waits for the request that is being served. Not while a thread that is inside
 * a unit waits for the one that calls this. What is in the slots stays. */
void vti_shard_loader_close(vti_shard_loader *loader);

/* Callable from any thread, also inside a unit. An older request for the same slot ends as
 * cancelled. `ticket` (may be NULL) gets a number for cancelling. VT_ERR_ARGUMENT: no such slot. */
vt_status vti_shard_loader_request(vti_shard_loader *loader, const vti_load_request *request,
                                   uint64_t *ticket, vt_error *err);

/* Any thread. Requests that are over are not affected; what is being loaded is thrown away. */
void vti_shard_loader_cancel(vti_shard_loader *loader, uint64_t ticket);
void vti_shard_loader_cancel_group(vti_shard_loader *loader, uint64_t group);
void vti_shard_loader_cancel_all(vti_shard_loader *loader);

/* Sleeps until nothing is pending and everything that was replaced is freed. Not inside a unit. */
void vti_shard_loader_wait(vti_shard_loader *loader);

/* The same, but loads on the calling thread what the loader's thread is not loading already. */
void vti_shard_loader_finish(vti_shard_loader *loader);

vti_shard_loader_stats vti_shard_loader_get_stats(vti_shard_loader *loader);

#endif
