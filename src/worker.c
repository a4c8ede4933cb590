/* worker.c: lends this process to one main device after the other. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engagement.h"

/* Peers that have not said what they want: they get CLAIM_TIMEOUT_MS, so that idle connections
 * cannot keep a main device out. */
enum { STRANGERS_MAX = 64, CLAIM_TIMEOUT_MS = 5000 };

/* A worker talks to the main device, the device before it and the one after it. */
enum { PEERS = 3 };

typedef struct stranger {
    vti_net_peer peer; /* 0: free place */
    uint64_t deadline_ns;
    char address[VTI_NET_ADDRESS_MAX];
} stranger;

struct vt_worker {
    vt_log log;
    vti_kernels kernels;
    vti_admission admission;
    vti_engagement_host host;
    vti_device_memory memory;
    vti_local_model *local;
    vti_profile profile;
    char address[VTI_NET_ADDRESS_MAX];
    atomic_bool stopping;
    vti_engagement *engagement; /* NULL: idle */
    stranger strangers[STRANGERS_MAX];
};

vt_worker_params vt_worker_params_default(void) { return (vt_worker_params){0}; }

static const char *admit(void *user, vti_net_peer peer, const vti_frame_header *header)
{
    vt_worker *w = user;
    return vti_admission_check(&w->admission, peer, header);
}

static vt_status open_net(vt_worker *w, const vt_worker_params *params, vt_error *err)
{
    vti_net_error net_err;
    vti_net_key key;
    vti_net_params net_params = vti_net_params_default();
    uint64_t taken_bytes; /* until the worker ends */
    VTI_TRY(vti_device_memory_take_queues(&w->memory, PEERS, &net_params.send_limit_bytes,
                                          &net_params.receive_limit_bytes, &taken_bytes, err));
    net_params.name = "worker";
    net_params.admit = admit;
    net_params.user = w;
    vti_net_status status = VTI_NET_OK;
    if (params->key_path) {
        status = vti_net_key_load(params->key_path, &key, &net_err);
        net_params.key = &key;
    }
    if (status == VTI_NET_OK) status = vti_net_open(&net_params, &w->host.net, &net_err);
    if (status == VTI_NET_OK) status = vti_net_listen(w->host.net, params->listen, w->address, &net_err);
    if (status == VTI_NET_OK) return VT_OK;
    return vti_fail(err, vti_from_net_status(status), "cannot listen on %s: %s", params->listen,
                    net_err.message);
}

/* Without a cache everything works, too. */
static void open_cache(vt_worker *w, const vt_worker_params *params)
{
    vt_error err;
    if (!params->cache_path) return;
    if (vti_shard_cache_open(params->cache_path, params->cache_max_bytes, &w->log, &w->host.cache,
                             &err) != VT_OK)
        vti_log(&w->log, VT_LOG_WARNING, "%s; nothing is kept", err.message);
}

static vt_status open_parts(vt_worker *w, const vt_worker_params *params, vt_error *err)
{
    if (params->model_path) {
        VTI_TRY(vti_local_model_open(params->model_path, &w->log, &w->local, err));
        w->host.local = w->local;
    }
    open_cache(w, params);
    VTI_TRY(vti_device_memory_open(&w->memory, params->memory_bytes, &w->log, err));
    VTI_TRY(vti_pool_open(params->threads, &w->host.pool, err));
    return open_net(w, params, err);
}

vt_status vt_worker_open(const vt_worker_params *params, vt_worker **out, vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_worker_open: out is NULL");
    *out = NULL;
    if (!params || !params->listen)
        return vti_fail(err, VT_ERR_ARGUMENT, "a worker needs an address to listen on");
    vt_worker *w = calloc(1, sizeof *w);
    if (!w || pthread_mutex_init(&w->admission.lock, NULL) != 0) {
        free(w);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a worker");
    }
    w->log = params->log;
    atomic_init(&w->stopping, false);
    vti_kernels_init(&w->kernels, VTI_CPU_EXACT);
    w->host = (vti_engagement_host){
        .admission = &w->admission,
        .kernels = &w->kernels,
        .log = &w->log,
        .memory = &w->memory,
        .progress = params->progress,
    };
    if (params->profile) {
        w->profile = params->profile->facts;
        w->host.profile = &w->profile;
    }
    vt_status status = open_parts(w, params, err);
    if (status != VT_OK) {
        vt_worker_close(w);
        return status;
    }
    *out = w;
    return VT_OK;
}

static void drop_engagement(vt_worker *w)
{
    vti_engagement_close(w->engagement);
    w->engagement = NULL;
}

/* The main device is told first: what it goes on sending would be turned away otherwise, as from
 * somebody who has not claimed us. */
static void say_goodbye(vt_worker *w)
{
    if (w->engagement) vti_net_disconnect(w->host.net, w->engagement->main, NULL);
    drop_engagement(w);
}

void vt_worker_close(vt_worker *w)
{
    if (!w) return;
    say_goodbye(w);
    vti_net_close(w->host.net);
    vti_pool_close(w->host.pool);
    vti_shard_cache_close(w->host.cache);
    vti_local_model_close(w->local);
    vti_device_memory_close(&w->memory);
    pthread_mutex_destroy(&w->admission.lock);
    free(w);
}

const char *vt_worker_address(const vt_worker *w) { return w->address; }

void vt_worker_get_memory(const vt_worker *w, vt_memory_usage *out)
{
    /* Looks const outside; what changes is guarded by itself. */
    vti_device_memory_get((vti_device_memory *)(uintptr_t)&w->memory, out);
}

static void refuse(vt_worker *w, vti_net_peer peer, vt_status status, const char *text)
{
    uint8_t payload[VTI_WIRE_SMALL_MAX];
    vti_writer writer = {payload, sizeof payload, 0, false};
    vti_encode_refusal(&writer, status, text);
    vti_frame_header header = {.type = VTI_MSG_REFUSE};
    vti_net_part part = {payload, writer.bytes};
    vti_net_send(w->host.net, peer, &header, &part, 1);
    vti_net_drain(w->host.net, peer, 0, vti_net_after_ms(250));
    vti_net_disconnect(w->host.net, peer, text);
}

static void remember_stranger(vt_worker *w, const vti_net_event *event)
{
    for (int i = 0; i < STRANGERS_MAX; i++) {
        stranger *s = &w->strangers[i];
        if (s->peer) continue;
        s->peer = event->peer;
        s->deadline_ns = vti_net_after_ms(CLAIM_TIMEOUT_MS);
        memcpy(s->address, event->address, sizeof s->address);
        return;
    }
    vti_net_disconnect(w->host.net, event->peer, "too many connections");
}

/* The peer has said what it wants, or is gone. *address (may be NULL) tells where it came from. */
static void forget_stranger(vt_worker *w, vti_net_peer peer, char address[VTI_NET_ADDRESS_MAX])
{
    if (address) address[0] = 0;
    for (int i = 0; i < STRANGERS_MAX; i++) {
        if (w->strangers[i].peer != peer) continue;
        if (address) memcpy(address, w->strangers[i].address, VTI_NET_ADDRESS_MAX);
        w->strangers[i].peer = 0;
    }
}

/* Hangs up on those whose time is over; returns when the next one's is. */
static uint64_t expire_strangers(vt_worker *w)
{
    uint64_t now = vti_net_now_ns(), next = VTI_NET_NEVER;
    for (int i = 0; i < STRANGERS_MAX; i++) {
        stranger *s = &w->strangers[i];
        if (!s->peer) continue;
        if (s->deadline_ns <= now) {
            vti_net_disconnect(w->host.net, s->peer, "nothing was asked for in time");
            s->peer = 0;
        } else if (s->deadline_ns < next) {
            next = s->deadline_ns;
        }
    }
    return next;
}

/* Something went wrong with the main device that we serve: it is told, and we are free again. */
static void give_up(vt_worker *w, const vt_error *error)
{
    vti_engagement *e = w->engagement;
    vti_log(&w->log, VT_LOG_WARNING, "stopped serving %s: %s", e->main_address, error->message);
    refuse(w, e->main, error->status, error->message);
    drop_engagement(w);
}

static void on_claim(vt_worker *w, const vti_net_event *event)
{
    vti_cluster_id id;
    vt_error error;
    char address[VTI_NET_ADDRESS_MAX];
    forget_stranger(w, event->peer, address);
    memcpy(id.bytes, event->payload, sizeof id.bytes); /* admission checked the size */
    if (w->engagement) {
        refuse(w, event->peer, VT_ERR_BUSY, "it serves another main device");
        return;
    }
    if (w->local) vti_local_model_refresh(w->local, &w->log);
    if (vti_engagement_open(&w->host, event->peer, address, &id, &w->engagement, &error) != VT_OK)
        refuse(w, event->peer, error.status, error.message);
}

static void on_link(vt_worker *w, const vti_net_event *event)
{
    vt_error error = {VT_ERR_PROTOCOL, "this device serves no cluster"};
    forget_stranger(w, event->peer, NULL);
    if (!w->engagement ||
        vti_engagement_link(w->engagement, event->peer, event->payload,
                            event->header.message_bytes, &error) != VT_OK)
        vti_net_disconnect(w->host.net, event->peer, error.message);
}

static bool is_ours(const vti_engagement *e, vti_net_peer peer)
{
    return e && (peer == e->main || peer == e->source || peer == e->next);
}

static void on_message(vt_worker *w, vti_net_event *event)
{
    vt_error error;
    if (is_ours(w->engagement, event->peer)) {
        if (vti_engagement_handle(w->engagement, event, &error) != VT_OK) give_up(w, &error);
    } else if (event->header.type == VTI_MSG_CLAIM) {
        on_claim(w, event);
    } else if (event->header.type == VTI_MSG_LINK) {
        on_link(w, event);
    } /* else: from a device of a cluster that is gone */
}

static void on_down(vt_worker *w, const vti_net_event *event)
{
    vti_engagement *e = w->engagement;
    vt_error error;
    forget_stranger(w, event->peer, NULL);
    if (!e) return;
    if (event->peer == e->main) {
        vti_log(&w->log, VT_LOG_INFO, "main device %s is gone: %s", e->main_address,
                event->reason[0] ? event->reason : "goodbye");
        drop_engagement(w);
    } else if (vti_engagement_peer_down(e, event, &error) != VT_OK) {
        give_up(w, &error);
    }
}

static void on_event(vt_worker *w, vti_net_event *event)
{
    vt_error error;
    switch (event->type) {
    case VTI_NET_PEER_UP:
        if (event->incoming) remember_stranger(w, event);
        if (w->engagement &&
            vti_engagement_peer_up(w->engagement, event->peer, &error) != VT_OK)
            give_up(w, &error);
        break;
    case VTI_NET_MESSAGE: on_message(w, event); break;
    case VTI_NET_PEER_DOWN: on_down(w, event); break;
    case VTI_NET_PEER_REJECTED:
        vti_log(&w->log, VT_LOG_WARNING, "turned away %s: %s", event->address, event->reason);
        break;
    }
}

/* Something to do without a message: a part of it, so that messages are not kept waiting long. */
static void work(vt_worker *w)
{
    vt_error error;
    if (vti_engagement_work(w->engagement, &error) != VT_OK) give_up(w, &error);
}

vt_status vt_worker_run(vt_worker *w, vt_error *err)
{
    while (!atomic_load(&w->stopping)) {
        vti_net_event event;
        bool busy = w->engagement && vti_engagement_has_work(w->engagement);
        uint64_t deadline = expire_strangers(w);
        vti_net_status status = vti_net_wait(w->host.net, busy ? 0 : deadline, &event);
        if (status == VTI_NET_ERR_TIMEOUT && busy) work(w);
        if (status == VTI_NET_ERR_INTERRUPTED || status == VTI_NET_ERR_TIMEOUT) continue;
        if (status != VTI_NET_OK)
            return vti_fail(err, vti_from_net_status(status), "the network loop failed: %s",
                            vti_net_status_text(status));
        on_event(w, &event);
        vti_net_event_clear(&event);
    }
    say_goodbye(w);
    return VT_OK;
}

void vt_worker_stop(vt_worker *w)
{
    atomic_store(&w->stopping, true);
    vti_net_interrupt(w->host.net);
}
