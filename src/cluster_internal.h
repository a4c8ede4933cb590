/* cluster_internal.h: the parts of a main device's cluster. */
#ifndef VTI_CLUSTER_INTERNAL_H
#define VTI_CLUSTER_INTERNAL_H

#include <pthread.h>

#include "../net/quality.h"
#include "../planner/planner.h"
#include "cluster.h"
#include "wire.h"

enum { VTI_MAX_DEVICES = 63 }; /* workers; net/ allows one connection more */

/* A worker as the main device sees it. */
typedef struct vti_device {
    char address[VTI_NET_ADDRESS_MAX];
    vti_net_peer peer;
    bool in_use;              /* it has layers, or they are not distributed yet */
    bool up, offered, assigned, ready, session_ok, kv_ok;
    uint32_t first, count;    /* layers; count 0: left out */
    uint32_t hop;             /* place in the chain of those that have layers */
    uint64_t weight_bytes, sent_bytes, busy_ns;
    vti_offer offer;
    vti_link_estimate link;   /* between it and the main device */
    char left_out[160];       /* why; or "" */
} vti_device;

/* What the admission of headers needs; guarded by `lock`. */
typedef struct vti_result_admission {
    pthread_mutex_t lock;
    vti_net_peer last; /* whom results come from; 0: no session */
    uint32_t d, layers, hops, batch;
    uint32_t epoch, next_step;
    vti_net_peer kv_from; /* whom rows of a KV cache were asked of */
    size_t kv_row_bytes;
    uint64_t kv_left;     /* payload bytes of them that may still come */
    uint32_t want_bytes;  /* that a worker's largest WANT may have */
} vti_result_admission;

typedef struct vti_cluster_plan vti_cluster_plan; /* cluster_plan.h */

struct vt_cluster {
    const vt_model *model;
    vt_log log;
    vt_progress progress;
    uint32_t connect_timeout_ms, step_timeout_ms;
    uint32_t context_tokens, batch_tokens; /* what sessions are expected to ask for */
    vt_kv_type kv_type;
    uint32_t ttft_ms, tpot_ms;
    bool qos_wanted; /* these were asked for, not assumed */
    vti_plan *given;        /* to be carried out instead of one that is searched for; or NULL */
    vti_cluster_plan *plan; /* NULL: layers were split without one */
    const vti_profile *profile; /* of the main device; or NULL */
    vti_profile profile_facts;
    const char *cache_path; /* while it is opened; or NULL */
    uint64_t cache_max_bytes;
    vti_net *net;
    uint64_t queue_bytes; /* of it, taken from the device's budget */
    vti_cluster_id id;
    vti_device *devices; /* in the order of the parameters */
    size_t device_count;
    uint32_t chain_count; /* of those with layers */
    bool is_split;        /* who has which layers is known before the devices are asked */
    vti_weights *main_weights;
    uint64_t main_busy_ns;
    uint32_t main_layers;
    vti_result_admission admission;
    bool in_session;
    bool broken;           /* a device was lost: nothing works any more */
    uint32_t epoch;        /* of the session, or of the last one */
    uint32_t next_step, oldest_step; /* sent next; waited for next */
};

/* Splits `layers` among the main device and the workers, into counts[0 … workers]. */
vt_status vti_split_layers(uint32_t layers, size_t workers, const uint32_t *split,
                           size_t split_count, uint32_t *counts, vt_error *err);

/* Sends to a device, waiting while too much is queued. */
vt_status vti_cluster_send_message(vt_cluster *c, vti_device *device,
                                   const vti_frame_header *header, const vti_net_part *parts,
                                   size_t part_count, vt_error *err);

/* Next message from any device. A refusal, a lost device and a passed deadline are errors that name
 * the device; `waiting_for` is for the latter. *device tells who sent it. */
vt_status vti_cluster_wait(vt_cluster *c, uint64_t deadline_ns, const atomic_bool *cancelled,
                           const char *waiting_for, vti_net_event *event, vti_device **device,
                           vt_error *err);

/* The same for a caller who has other things to do: *device is NULL if nothing of interest has come
 * until then (a time in the past only looks). */
vt_status vti_cluster_poll(vt_cluster *c, uint64_t until_ns, vti_net_event *event,
                           vti_device **device, vt_error *err);

/* The device that runs layers as number `hop` of them, behind the main one; NULL past the last. */
vti_device *vti_cluster_device_at(vt_cluster *c, uint32_t hop);

/* VT_OK unless a device was lost. */
vt_status vti_cluster_check_usable(const vt_cluster *c, vt_error *err);

/* After a deadline: names the first device of the chain for which `answered` is false. */
vt_status vti_cluster_name_silent(const vt_cluster *c, size_t answered_offset,
                                  const char *waiting_for, vt_error *err);

/* Why a device cannot be sent to any more: reads events until its end comes. */
vt_status vti_cluster_explain_loss(vt_cluster *c, vti_device *device, vt_error *err);

/* Claims all devices that are in use; each offers its memory. */
vt_status vti_cluster_claim(vt_cluster *c, vt_error *err);

/* Sends every device its layers and waits until all are ready. */
vt_status vti_cluster_provision(vt_cluster *c, vt_error *err);

/* Reads a plan to be carried out. ERR_UNSUPPORTED names the first unit that cannot be. */
vt_status vti_cluster_read_plan(vt_cluster *c, const char *json, vt_error *err);

/* All devices have made their offers: gives each its layers, by the given plan or by the best, and
 * lets go of those that get none. */
vt_status vti_cluster_plan_layers(vt_cluster *c, vt_error *err);

/* Measures the links to all devices. */
vt_status vti_cluster_probe_links(vt_cluster *c, vt_error *err);

/* Costs of device d, as it has measured them, when it runs that model. */
void vti_cluster_set_speed(const vt_cluster *c, unsigned d, const vti_plan_model *model,
                           vti_plan_device *out);

/* The devices know their layers: sends each the shards that it lacks, until all have theirs. */
vt_status vti_cluster_send_weights(vt_cluster *c, vt_error *err);

const char *vti_cluster_admit(void *user, vti_net_peer peer, const vti_frame_header *header);

#endif
