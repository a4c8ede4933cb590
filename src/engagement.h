/* engagement.h: a worker's work for one main device, from its claim to its loss.
 *
 *   CLAIMED   the main device has us; we told it our memory
 *   ASSIGNED  it told us which layers; the list of their shards is to come
 *   LOADING   shards are loaded from here, or arrive
 *   LINKING   all weights are there; we connect to the device that comes after us
 *   READY     waiting for a conversation
 *   SESSION   KV cache is there; steps come in, are computed and go on
 *
 * Messages are checked twice: vti_engagement_admit looks at a header before any payload is accepted
 * (on whatever thread drives the connection), vti_engagement_handle at the whole message. */
#ifndef VTI_ENGAGEMENT_H
#define VTI_ENGAGEMENT_H

#include <pthread.h>

#include "memory.h"
#include "shard_intake.h"
#include "stage.h"
#include "weights.h"
#include "wire.h"

typedef enum vti_phase {
    VTI_PHASE_CLAIMED, VTI_PHASE_ASSIGNED, VTI_PHASE_LOADING, VTI_PHASE_LINKING, VTI_PHASE_READY,
    VTI_PHASE_SESSION
} vti_phase;

/* A block that we asked for. */
typedef struct vti_block_order {
    uint32_t index; /* in the manifest */
    uint64_t bytes;
} vti_block_order;

/* What the admission of headers knows. Headers are looked at long before their messages are handled
 * (a whole model's weights may be under way), so it has a phase of its own: each header that the
 * main device may send without an answer from us moves it on; what follows an answer of ours is
 * set when we give it. Guarded by `lock`. */
typedef struct vti_admission {
    pthread_mutex_t lock;
    bool engaged;
    vti_phase phase;
    vti_net_peer main, source; /* source: whom steps come from; 0 while not linked */
    uint32_t d, hop, first, batch, context;
    uint32_t epoch;            /* of the newest session; steps of those before, or of one that is
                                  over, are admitted and dropped */
    uint32_t ends;             /* SESSION_ENDs that were admitted and are not handled yet */
    uint32_t next_step;        /* in this session */
    uint32_t end;              /* one past the last position that was admitted */
    uint64_t largest_step_bytes;
    vti_hparams hparams;       /* these four: of the rows that a KV_PUT announces */
    uint32_t layers;
    size_t row_bytes;
    uint64_t kv_left;          /* payload bytes of KV messages that may still come */
    size_t manifest_bytes;     /* 0: not known yet */
    vti_block_order *orders;   /* of blocks, in the order in which they have to come */
    size_t order_count, order_capacity, orders_done;
    uint32_t next_part;        /* of the first that is not done */
} vti_admission;

/* What a worker lends to its engagements. */
typedef struct vti_engagement_host {
    vti_net *net;
    vti_admission *admission;
    const vti_kernels *kernels;
    vti_pool *pool;
    const vt_log *log;
    vti_device_memory *memory; /* what everything large is taken from */
    vt_progress progress;
    vti_shard_cache *cache;       /* or NULL */
    const vti_local_model *local; /* or NULL */
    const vti_profile *profile;   /* how fast this device is; or NULL */
} vti_engagement_host;

typedef struct vti_engagement {
    const vti_engagement_host *host;
    vti_net_peer main;
    char main_address[VTI_NET_ADDRESS_MAX];
    vti_cluster_id id;
    vti_phase phase;
    vti_assignment assignment;
    vti_geometry geometry;
    vti_shard_memory *memory;
    vti_weights *weights;
    vti_manifest manifest;
    vti_shard_intake *intake; /* while shards are loaded */
    uint64_t told_ns;         /* when the main device was last told how far that is */
    vti_net_peer source;      /* the device before us; for hop 0 the main device */
    vti_net_peer next;        /* the device after us; the main device if we are the last */
    bool next_linked;
    vti_stage *stage;
    vti_session_request session;
    uint32_t epoch;
    uint32_t end; /* one past the last position that was computed in this session */
    vti_kv_shape arriving_kv; /* a cache that is arriving; layers 0: none */
    vti_kv_chunk next_chunk;  /* of it */
    uint64_t busy_ns;
} vti_engagement;

/* A CLAIM arrived from `main`. Answers it. The host outlives the engagement. */
vt_status vti_engagement_open(const vti_engagement_host *host, vti_net_peer main,
                              const char *main_address, const vti_cluster_id *id,
                              vti_engagement **out, vt_error *err);

/* Frees everything and hangs up on the devices before and after us, not on the main device. */
void vti_engagement_close(vti_engagement *e);

/* A message from the main device or from the device before us. May take the payload. */
vt_status vti_engagement_handle(vti_engagement *e, vti_net_event *event, vt_error *err);

/* A LINK from a peer that is nobody yet: takes it as the device before us, or refuses. */
vt_status vti_engagement_link(vti_engagement *e, vti_net_peer peer, const uint8_t *payload,
                              size_t bytes, vt_error *err);

/* A connection of ours came up (the device after us). */
vt_status vti_engagement_peer_up(vti_engagement *e, vti_net_peer peer, vt_error *err);

/* A peer was lost. VT_OK if it does not matter to us. */
vt_status vti_engagement_peer_down(vti_engagement *e, const vti_net_event *event, vt_error *err);

/* Sends to a device we talk to, waiting while too much is queued for it. */
vt_status vti_engagement_send(vti_engagement *e, vti_net_peer peer, const vti_frame_header *header,
                              const vti_net_part *parts, size_t count, vt_error *err);

/* KV_GET, KV_PUT and KV in a session. */
vt_status vti_engagement_kv(vti_engagement *e, vti_net_event *event, vt_error *err);

/* Is there something to do that does not wait for a message? Does a part of it. */
bool vti_engagement_has_work(const vti_engagement *e);
vt_status vti_engagement_work(vti_engagement *e, vt_error *err);

/* The assignment is known: gets ready for the manifest. */
vt_status vti_engagement_expect_manifest(vti_engagement *e, vt_error *err);
/* MANIFEST and BLOCK. */
vt_status vti_engagement_weights(vti_engagement *e, const vti_net_event *event, vt_error *err);
/* All weights are there. */
vt_status vti_engagement_loaded(vti_engagement *e, vt_error *err);
/* Frees what loading needed. */
void vti_engagement_end_loading(vti_engagement *e);

void vti_engagement_publish_phase(vti_engagement *e, vti_phase phase);

/* This block has to come next, after those ordered before. */
bool vti_admission_order(vti_admission *admission, uint32_t index, uint64_t bytes);
void vti_admission_forget_orders(vti_admission *admission);

/* NULL, or why this header is not acceptable now. */
const char *vti_admission_check(vti_admission *admission, vti_net_peer peer,
                                const vti_frame_header *header);

#endif
