/* cluster.c: the main device's side: connecting, waiting, closing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cluster_internal.h"
#include "kv_cache.h"

enum { CANCEL_POLL_MS = 50, ROOT_CAUSE_MS = 400 };

/* Where nothing was measured: a wired network. */
static const vti_link_estimate usual_link = {.latency_s = 2e-4, .bytes_per_s = 1e8};

/* What answers are to be like, unless said otherwise. */
enum { TTFT_MS = 10000, TPOT_MS = 400 };

vt_cluster_params vt_cluster_params_default(void)
{
    return (vt_cluster_params){.connect_timeout_ms = 1500, .step_timeout_ms = 120000};
}

vt_status vti_split_layers(uint32_t layers, size_t workers, const uint32_t *split,
                           size_t split_count, uint32_t *counts, vt_error *err)
{
    size_t devices = workers + 1;
    if (split_count == 0) { /* even; the first ones take what is left over */
        for (size_t i = 0; i < devices; i++)
            counts[i] = (uint32_t)(layers / devices + (i < layers % devices));
        return VT_OK;
    }
    if (workers == 0)
        return vti_fail(err, VT_ERR_ARGUMENT, "a split needs devices to split the layers over");
    if (split_count != devices && split_count != workers)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "the split has %zu numbers; with %zu devices it needs %zu (the main device "
                        "first) or %zu (the main device runs no layers)",
                        split_count, workers, devices, workers);
    uint64_t sum = 0;
    counts[0] = 0;
    for (size_t i = 0; i < split_count; i++) {
        counts[devices - split_count + i] = split[i];
        sum += split[i];
    }
    if (sum == layers) return VT_OK;
    return vti_fail(err, VT_ERR_ARGUMENT,
                    "the split gives %" PRIu64 " layers, but the model has %" PRIu32, sum, layers);
}

/* --- waiting ----------------------------------------------------------------------------------- */

static vti_device *device_of(vt_cluster *c, vti_net_peer peer)
{
    for (size_t i = 0; i < c->device_count; i++)
        if (c->devices[i].peer == peer && peer) return &c->devices[i];
    return NULL;
}

static vt_status lost(vt_cluster *c, vti_device *device, const vti_net_event *event, vt_error *err)
{
    bool was_up = device->up;
    device->up = false;
    device->peer = 0;
    c->broken = true;
    const char *reason = event->reason[0] ? event->reason : "it said goodbye";
    if (was_up)
        return vti_fail(err, event->status == VTI_NET_ERR_PROTOCOL ? VT_ERR_PROTOCOL
                                                                   : VT_ERR_NETWORK,
                        "lost device %s: %s", device->address, reason);
    /* A worker that measures does not listen yet. */
    bool silent = event->status == VTI_NET_ERR_UNREACHABLE && strstr(reason, "refused");
    return vti_fail(err, event->status == VTI_NET_ERR_HANDSHAKE || event->status == VTI_NET_ERR_KEY
                             ? vti_from_net_status(event->status)
                             : VT_ERR_NETWORK,
                    "cannot reach device %s: %s%s", device->address, reason,
                    silent ? " (nothing listens there; is the worker running? At its first start "
                             "it measures its speed for some seconds before it listens)" : "");
}

/* A worker that lost a neighbour says so, but the neighbour itself may be what was lost: then its own
 * connection to us ends too, at once or when its signs of life are missed. That is the better news. */
static bool find_lost_device(vt_cluster *c, const vti_device *teller, vt_error *err)
{
    uint64_t deadline = vti_net_after_ms(ROOT_CAUSE_MS);
    vti_net_event event;
    while (vti_net_wait(c->net, deadline, &event) == VTI_NET_OK) {
        vti_device *device = device_of(c, event.peer);
        bool found = event.type == VTI_NET_PEER_DOWN && device && device != teller &&
                     event.status == VTI_NET_ERR_LOST;
        if (found) lost(c, device, &event, err);
        vti_net_event_clear(&event);
        if (found) return true;
    }
    return false;
}

static vt_status refused(vt_cluster *c, const vti_device *device, const vti_net_event *event,
                         vt_error *err)
{
    vt_error refusal;
    c->broken = true;
    if (!vti_decode_refusal(event->payload, event->header.message_bytes, &refusal))
        return vti_fail(err, VT_ERR_PROTOCOL, "device %s sent a malformed refusal",
                        device->address);
    if (refusal.status == VT_ERR_NETWORK && find_lost_device(c, device, err)) return VT_ERR_NETWORK;
    return vti_fail(err, refusal.status, "device %s: %.400s", device->address, refusal.message);
}

/* VT_OK with *device NULL: nothing of interest. */
static vt_status look_at(vt_cluster *c, vti_net_event *event, vti_device **device, vt_error *err)
{
    *device = device_of(c, event->peer);
    if (!*device) return VT_OK;
    switch (event->type) {
    case VTI_NET_PEER_UP: (*device)->up = true; return VT_OK;
    case VTI_NET_PEER_DOWN: return lost(c, *device, event, err);
    case VTI_NET_PEER_REJECTED: break;
    case VTI_NET_MESSAGE:
        return event->header.type == VTI_MSG_REFUSE ? refused(c, *device, event, err) : VT_OK;
    }
    *device = NULL;
    return VT_OK;
}

static bool is_cancelled(const atomic_bool *cancelled)
{
    return cancelled && atomic_load(cancelled);
}

vt_status vti_cluster_wait(vt_cluster *c, uint64_t deadline_ns, const atomic_bool *cancelled,
                           const char *waiting_for, vti_net_event *event, vti_device **device,
                           vt_error *err)
{
    while (!is_cancelled(cancelled)) {
        uint64_t until = deadline_ns, soon = vti_net_after_ms(CANCEL_POLL_MS);
        if (cancelled && soon < until) until = soon;
        vti_net_status status = vti_net_wait(c->net, until, event);
        /* Also when events keep coming: a deadline is a deadline. */
        if (status == VTI_NET_OK && vti_net_now_ns() >= deadline_ns) {
            vti_net_event_clear(event);
            status = VTI_NET_ERR_TIMEOUT;
        }
        if (status == VTI_NET_OK) {
            vt_status seen = look_at(c, event, device, err);
            if (seen == VT_OK && *device) return VT_OK;
            vti_net_event_clear(event);
            if (seen != VT_OK) return seen;
        } else if (status == VTI_NET_ERR_TIMEOUT) {
            if (vti_net_now_ns() >= deadline_ns)
                return vti_fail(err, VT_ERR_TIMEOUT, "waited too long for %s", waiting_for);
        } else if (status != VTI_NET_ERR_INTERRUPTED) {
            return vti_fail(err, vti_from_net_status(status), "the network loop failed: %s",
                            vti_net_status_text(status));
        }
    }
    return vti_fail(err, VT_ERR_CANCELLED, "cancelled");
}

vt_status vti_cluster_poll(vt_cluster *c, uint64_t until_ns, vti_net_event *event,
                           vti_device **device, vt_error *err)
{
    *device = NULL;
    vti_net_status status = vti_net_wait(c->net, until_ns, event);
    if (status == VTI_NET_ERR_TIMEOUT || status == VTI_NET_ERR_INTERRUPTED) return VT_OK;
    if (status != VTI_NET_OK)
        return vti_fail(err, vti_from_net_status(status), "the network loop failed: %s",
                        vti_net_status_text(status));
    vt_status seen = look_at(c, event, device, err);
    if (seen != VT_OK || !*device) vti_net_event_clear(event);
    return seen;
}

vt_status vti_cluster_name_silent(const vt_cluster *c, size_t answered_offset,
                                  const char *waiting_for, vt_error *err)
{
    for (size_t i = 0; i < c->device_count; i++) {
        const vti_device *device = &c->devices[i];
        if (device->in_use && !*(const bool *)((const char *)device + answered_offset))
            return vti_fail(err, VT_ERR_TIMEOUT, "device %s: waited too long for %s",
                            device->address, waiting_for);
    }
    return vti_fail(err, VT_ERR_TIMEOUT, "waited too long for %s", waiting_for);
}

vt_status vti_cluster_explain_loss(vt_cluster *c, vti_device *device, vt_error *err)
{
    c->broken = true;
    for (;;) {
        vti_net_event event;
        vti_device *sender;
        vt_status status = vti_cluster_wait(c, vti_net_after_ms(1000), NULL, "news", &event,
                                            &sender, err);
        if (status == VT_OK) {
            vti_net_event_clear(&event);
        } else if (status == VT_ERR_TIMEOUT) {
            return vti_fail(err, VT_ERR_NETWORK, "lost device %s", device->address);
        } else {
            return status;
        }
    }
}

vt_status vti_cluster_send_message(vt_cluster *c, vti_device *device,
                                   const vti_frame_header *header, const vti_net_part *parts,
                                   size_t part_count, vt_error *err)
{
    vti_net_status status = vti_net_send(c->net, device->peer, header, parts, part_count);
    if (status == VTI_NET_ERR_FULL) {
        status = vti_net_drain(c->net, device->peer, 0, vti_net_after_ms(c->step_timeout_ms));
        if (status == VTI_NET_OK)
            status = vti_net_send(c->net, device->peer, header, parts, part_count);
    }
    if (status == VTI_NET_OK) return VT_OK;
    if (status == VTI_NET_ERR_GONE) return vti_cluster_explain_loss(c, device, err);
    c->broken = true;
    return vti_fail(err, vti_from_net_status(status), "cannot send to device %s: %s",
                    device->address, vti_net_status_text(status));
}

/* --- admission --------------------------------------------------------------------------------- */

static const char *check_result(const vti_result_admission *a, vti_net_peer peer,
                                const vti_frame_header *h)
{
    if (peer != a->last) return "a result from a device that is not the last";
    if (h->unit != a->layers) return "a result that has not passed all layers";
    if (h->epoch > a->epoch || (h->epoch == a->epoch && h->step >= a->next_step))
        return "a result of a step that was not sent";
    if (h->token_count < 1 || h->token_count > a->batch)
        return "a result with no tokens or too many";
    if (h->message_bytes != vti_step_bytes(h->token_count, a->d, a->hops))
        return "a result of the wrong size";
    return NULL;
}

static const char *check_kv(vti_result_admission *a, vti_net_peer peer, const vti_frame_header *h)
{
    if (peer != a->kv_from || h->epoch != a->epoch) return "rows of a KV cache that nobody asked for";
    const char *reason = vti_kv_message_admit(h, a->kv_row_bytes, a->kv_left);
    if (!reason) a->kv_left -= h->message_bytes;
    return reason;
}

const char *vti_cluster_admit(void *user, vti_net_peer peer, const vti_frame_header *h)
{
    vt_cluster *c = user;
    const char *reason = NULL;
    switch ((int)h->type) {
    case VTI_MSG_WANT:
        pthread_mutex_lock(&c->admission.lock);
        if (h->message_bytes > c->admission.want_bytes) reason = "a list of shards that is too long";
        pthread_mutex_unlock(&c->admission.lock);
        break;
    case VTI_MSG_OFFER:
        if (h->message_bytes > VTI_WIRE_OFFER_MAX) reason = "a message of the wrong size";
        break;
    case VTI_MSG_ASSIGNED:
    case VTI_MSG_LOADED:
    case VTI_MSG_READY:
    case VTI_MSG_SESSION_OK:
    case VTI_MSG_KV_OK:
    case VTI_MSG_REFUSE:
        if (h->message_bytes > VTI_WIRE_SMALL_MAX) reason = "a message of the wrong size";
        break;
    case VTI_MSG_KV:
        pthread_mutex_lock(&c->admission.lock);
        reason = check_kv(&c->admission, peer, h);
        pthread_mutex_unlock(&c->admission.lock);
        break;
    case VTI_MSG_STEP:
        pthread_mutex_lock(&c->admission.lock);
        reason = check_result(&c->admission, peer, h);
        pthread_mutex_unlock(&c->admission.lock);
        break;
    default: reason = "a message of a type that a worker does not send";
    }
    return reason;
}

/* --- opening ----------------------------------------------------------------------------------- */

static vt_status open_net(vt_cluster *c, const char *key_path, vt_error *err)
{
    vti_net_error net_err;
    vti_net_key key;
    vti_net_params params = vti_net_params_default();
    VTI_TRY(vti_device_memory_take_queues(vti_model_device(c->model), c->device_count,
                                          &params.send_limit_bytes, &params.receive_limit_bytes,
                                          &c->queue_bytes, err));
    params.name = "main";
    params.admit = vti_cluster_admit;
    params.user = c;
    vti_net_status status = VTI_NET_OK;
    if (key_path) {
        status = vti_net_key_load(key_path, &key, &net_err);
        params.key = &key;
    }
    if (status == VTI_NET_OK) status = vti_net_open(&params, &c->net, &net_err);
    if (status == VTI_NET_OK) return VT_OK;
    return vti_fail(err, vti_from_net_status(status), "%s", net_err.message);
}

/* Which layers run where. A device without layers is left out. */
static void assign_layers(vt_cluster *c, const uint32_t *counts)
{
    uint32_t first = c->main_layers = counts[0];
    for (size_t i = 0; i < c->device_count; i++) {
        vti_device *device = &c->devices[i];
        device->first = first;
        device->count = counts[i + 1];
        device->in_use = device->count > 0;
        first += device->count;
        if (device->count)
            device->hop = c->chain_count++;
        else
            vti_log(&c->log, VT_LOG_WARNING, "device %s gets no layers and is left out",
                    device->address);
    }
}

static vt_status set_up_devices(vt_cluster *c, const vt_cluster_params *p, vt_error *err)
{
    c->devices = calloc(p->device_count ? p->device_count : 1, sizeof *c->devices);
    if (!c->devices) return vti_fail(err, VT_ERR_MEMORY, "no memory for a cluster");
    c->device_count = p->device_count;
    for (size_t i = 0; i < p->device_count; i++) {
        const char *address = p->devices[i];
        if (!address || strlen(address) >= sizeof c->devices[i].address)
            return vti_fail(err, VT_ERR_ARGUMENT, "device %zu has no usable address", i + 1);
        for (size_t j = 0; j < i; j++)
            if (strcmp(address, c->devices[j].address) == 0)
                return vti_fail(err, VT_ERR_ARGUMENT, "device %s is named twice", address);
        snprintf(c->devices[i].address, sizeof c->devices[i].address, "%s", address);
        c->devices[i].in_use = true;
        c->devices[i].link = usual_link;
    }
    return VT_OK;
}

/* Without a split the planner is asked, as far as it goes. */
static vt_status set_up_split(vt_cluster *c, const vt_cluster_params *p, vt_error *err)
{
    uint32_t counts[VTI_MAX_DEVICES + 1];
    if (p->plan_json && (p->split_count || p->split_evenly))
        return vti_fail(err, VT_ERR_ARGUMENT, "a plan says by itself how layers are split");
    if (p->plan_json) return vti_cluster_read_plan(c, p->plan_json, err);
    bool many = p->device_count >= VTI_PLAN_DEVICES_MAX;
    if (!p->split_count && !p->split_evenly && !many) return VT_OK;
    if (!p->split_count && !p->split_evenly)
        vti_log(&c->log, VT_LOG_WARNING,
                "%zu devices are more than plans are made for (%d, the main device included): "
                "layers are split evenly", p->device_count + 1, VTI_PLAN_DEVICES_MAX);
    VTI_TRY(vti_split_layers(c->model->hparams.layers, p->device_count, p->split, p->split_count,
                             counts, err));
    assign_layers(c, counts);
    c->is_split = true;
    return VT_OK;
}

static vt_status connect_devices(vt_cluster *c, vt_error *err)
{
    uint32_t waiting = 0;
    for (size_t i = 0; i < c->device_count; i++) {
        vti_device *device = &c->devices[i];
        vti_net_error net_err;
        if (!device->in_use) continue;
        vti_net_status status = vti_net_connect(c->net, device->address, c->connect_timeout_ms,
                                                &device->peer, &net_err);
        if (status != VTI_NET_OK)
            return vti_fail(err, vti_from_net_status(status), "device %s: %s", device->address,
                            net_err.message);
        waiting++;
    }
    /* net/ itself keeps the timeout of each connection; this deadline only is a second fence. */
    uint64_t deadline = vti_net_after_ms(c->connect_timeout_ms + 1000);
    while (waiting) {
        vti_net_event event;
        vti_device *device;
        VTI_TRY(vti_cluster_wait(c, deadline, NULL, "the devices to answer", &event, &device, err));
        if (event.type == VTI_NET_PEER_UP) {
            waiting--;
            vti_log(&c->log, VT_LOG_INFO, "connected to %s", device->address);
        }
        vti_net_event_clear(&event);
    }
    return VT_OK;
}

static vt_status open_parts(vt_cluster *c, const vt_cluster_params *p, vt_error *err)
{
    if (p->device_count > VTI_MAX_DEVICES)
        return vti_fail(err, VT_ERR_ARGUMENT, "%zu devices are too many; at most %d",
                        p->device_count, VTI_MAX_DEVICES);
    VTI_TRY(set_up_devices(c, p, err));
    VTI_TRY(set_up_split(c, p, err));
    if (getrandom(c->id.bytes, sizeof c->id.bytes, 0) != (ssize_t)sizeof c->id.bytes)
        return vti_fail(err, VT_ERR_IO, "the system gave no random bytes");
    VTI_TRY(open_net(c, p->key_path, err));
    VTI_TRY(connect_devices(c, err));
    VTI_TRY(vti_cluster_claim(c, err));
    if (!c->is_split) VTI_TRY(vti_cluster_probe_links(c, err));
    if (!c->is_split) VTI_TRY(vti_cluster_plan_layers(c, err));
    VTI_TRY(vti_cluster_provision(c, err));
    return vti_weights_load(c->model->shards, &c->model->composition, c->model->memory,
                            c->model->pool, &c->model->progress, 0, 2 * c->main_layers,
                            &c->main_weights, err);
}

vt_status vt_cluster_open(const vt_model *model, const vt_cluster_params *params, vt_cluster **out,
                          vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_cluster_open: out is NULL");
    *out = NULL;
    if (!model || !params || (params->device_count && !params->devices) ||
        (params->split_count && !params->split))
        return vti_fail(err, VT_ERR_ARGUMENT, "vt_cluster_open: model or parameters are missing");
    if (model->vocabulary_only)
        return vti_fail(err, VT_ERR_ARGUMENT, "the model was opened without weights");
    if (!vti_kv_type_known(params->kv_type))
        return vti_fail(err, VT_ERR_ARGUMENT, "unknown KV cache type %d", (int)params->kv_type);
    vt_cluster *c = calloc(1, sizeof *c);
    if (!c || pthread_mutex_init(&c->admission.lock, NULL) != 0) {
        free(c);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a cluster");
    }
    c->model = model;
    c->log = params->log;
    c->progress = params->progress;
    c->connect_timeout_ms = params->connect_timeout_ms;
    c->step_timeout_ms = params->step_timeout_ms;
    c->context_tokens = params->context_tokens;
    c->batch_tokens = params->batch_tokens;
    c->kv_type = params->kv_type;
    c->ttft_ms = params->ttft_ms ? params->ttft_ms : TTFT_MS;
    c->tpot_ms = params->tpot_ms ? params->tpot_ms : TPOT_MS;
    c->qos_wanted = params->ttft_ms || params->tpot_ms;
    if (params->profile) {
        c->profile_facts = params->profile->facts;
        c->profile = &c->profile_facts;
    }
    c->cache_path = params->cache_path;
    c->cache_max_bytes = params->cache_max_bytes;
    vti_session_sizes(&model->hparams, &c->context_tokens, &c->batch_tokens);
    vt_status status = open_parts(c, params, err);
    if (status != VT_OK) {
        vt_cluster_close(c);
        return status;
    }
    *out = c;
    return VT_OK;
}

void vt_cluster_close(vt_cluster *c)
{
    if (!c) return;
    vti_net_close(c->net);
    vti_weights_free(c->main_weights);
    vti_budget_give(&vti_model_device(c->model)->budget, VTI_BUDGET_WIRE, c->queue_bytes);
    free(c->devices);
    free(c->given);
    free(c->plan);
    pthread_mutex_destroy(&c->admission.lock);
    free(c);
}

size_t vt_cluster_device_count(const vt_cluster *c) { return c->device_count + 1; }

vt_status vt_cluster_get_device(const vt_cluster *c, size_t index, vt_device_info *out)
{
    if (index > c->device_count) return VT_ERR_ARGUMENT;
    if (index == 0) {
        *out = (vt_device_info){
            .address = "main",
            .layer_count = c->main_layers,
            .weight_bytes = c->main_weights->bytes,
            .busy_ns = c->main_busy_ns,
        };
        return VT_OK;
    }
    const vti_device *device = &c->devices[index - 1];
    *out = (vt_device_info){
        .address = device->address,
        .first_layer = device->first,
        .layer_count = device->count,
        .memory_bytes = device->offer.memory_bytes,
        .weight_bytes = device->weight_bytes,
        .sent_bytes = device->sent_bytes,
        .left_out = device->left_out[0] ? device->left_out : NULL,
        .busy_ns = device->busy_ns,
    };
    return VT_OK;
}

const vt_model *vti_cluster_model(const vt_cluster *c) { return c->model; }

const vti_weights *vti_cluster_main_weights(const vt_cluster *c) { return c->main_weights; }

bool vti_cluster_has_remote(const vt_cluster *c) { return c->chain_count > 0; }

void vti_cluster_count_busy(vt_cluster *c, uint64_t ns) { c->main_busy_ns += ns; }
