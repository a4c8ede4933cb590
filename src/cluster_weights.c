/* cluster_weights.c: gives every worker the shards that it lacks, to all at the same time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster_internal.h"
#include "little_endian.h"
#include "shard_stock.h"

/* Times that a worker may ask for one shard: a block may arrive damaged. */
enum { ASKED_MAX = 2 };

/* As much is queued for a worker at most: enough to keep it busy, little enough to go on with the
 * others. */
enum { QUEUE_BYTES = 2 << 20, QUEUE_WAIT_MS = 5 };

enum { ANSWER_TIMEOUT_MS = 5000, IDLE_TIMEOUT_MS = 60000 };

/* What one worker gets. */
typedef struct delivery {
    vti_device *device;
    vti_manifest manifest;
    uint32_t *wanted; /* entries to send, in order; room for ASKED_MAX × all */
    uint8_t *asked;   /* how often for each */
    uint32_t count, next, part;
    bool have_block;  /* `block` is of wanted[next] */
    vti_cached_block block;
    bool has_manifest; /* it was sent */
    uint64_t loaded_bytes, total_bytes;
} delivery;

typedef struct transfer {
    vt_cluster *cluster;
    vti_shard_stock *stock;
    vti_shard_cache *cache;
    delivery *deliveries;
    size_t count;
    char what[VTI_NET_ADDRESS_MAX + 16];
} transfer;

static vt_status send_message(transfer *t, const delivery *d, vti_message type, const void *payload,
                              size_t bytes, vt_error *err)
{
    vti_frame_header header = {.type = (uint8_t)type};
    vti_net_part part = {payload, bytes};
    return vti_cluster_send_message(t->cluster, d->device, &header, &part, 1, err);
}

/* --- what workers say -------------------------------------------------------------------------- */

static vt_status send_manifest(transfer *t, delivery *d, vt_error *err)
{
    size_t bytes = (size_t)d->manifest.count * VTI_MANIFEST_ENTRY_BYTES;
    uint8_t *payload = malloc(bytes);
    if (!payload) return vti_fail(err, VT_ERR_MEMORY, "no memory for a list of shards");
    vti_manifest_encode(&d->manifest, payload);
    vt_status status = send_message(t, d, VTI_MSG_MANIFEST, payload, bytes, err);
    d->has_manifest = true;
    free(payload);
    return status;
}

static vt_status on_assigned(delivery *d, const vti_net_event *event, vt_error *err)
{
    vti_reader r = {event->payload, event->header.message_bytes, 0, false};
    uint32_t same_file = vti_read_u32(&r);
    if (r.failed || r.at != r.bytes || same_file > 1)
        return vti_fail(err, VT_ERR_PROTOCOL, "device %s sent a malformed answer",
                        d->device->address);
    d->device->assigned = true;
    d->manifest.same_file = same_file;
    return VT_OK;
}

static vt_status on_want(delivery *d, const vti_net_event *event, vt_error *err)
{
    uint32_t bytes = event->header.message_bytes, wanted = bytes / VTI_WIRE_WANT_BYTES;
    bool right = bytes && bytes % VTI_WIRE_WANT_BYTES == 0 && !d->manifest.same_file;
    for (uint32_t i = 0; i < wanted && right; i++) {
        uint32_t index = vti_load_u32(event->payload + i * VTI_WIRE_WANT_BYTES);
        right = index < d->manifest.count && !d->manifest.entries[index].left_out &&
                d->asked[index]++ < ASKED_MAX;
        if (right) d->wanted[d->count++] = index;
    }
    if (right) return VT_OK;
    return vti_fail(err, VT_ERR_PROTOCOL, "device %s asks for weights that it was not offered",
                    d->device->address);
}

static vt_status on_loaded(delivery *d, const vti_net_event *event, vt_error *err)
{
    vti_reader r = {event->payload, event->header.message_bytes, 0, false};
    uint64_t bytes = vti_read_u64(&r);
    if (r.failed || r.at != r.bytes || bytes > d->total_bytes || bytes < d->loaded_bytes)
        return vti_fail(err, VT_ERR_PROTOCOL, "device %s says that it has loaded %" PRIu64
                        " of %" PRIu64 " bytes", d->device->address, bytes, d->total_bytes);
    d->loaded_bytes = bytes;
    return VT_OK;
}

static vt_status on_ready(delivery *d, const vti_net_event *event, vt_error *err)
{
    VTI_TRY(on_loaded(d, event, err));
    if (d->loaded_bytes != d->total_bytes || d->next < d->count)
        return vti_fail(err, VT_ERR_PROTOCOL, "device %s says too early that it is ready",
                        d->device->address);
    d->device->ready = true;
    d->device->weight_bytes = d->loaded_bytes;
    return VT_OK;
}

static vt_status on_message(delivery *d, const vti_net_event *event, vt_error *err)
{
    int type = event->type == VTI_NET_MESSAGE ? event->header.type : 0;
    if (type == VTI_MSG_ASSIGNED && !d->device->assigned) return on_assigned(d, event, err);
    if (d->has_manifest && !d->device->ready) {
        if (type == VTI_MSG_WANT) return on_want(d, event, err);
        if (type == VTI_MSG_LOADED) return on_loaded(d, event, err);
        if (type == VTI_MSG_READY) return on_ready(d, event, err);
    }
    return vti_fail(err, VT_ERR_PROTOCOL,
                    "device %s sent a message of type %d while it was given its weights",
                    d->device->address, type);
}

static void report(const transfer *t)
{
    const vt_progress *progress = &t->cluster->progress;
    uint64_t loaded = 0, total = 0;
    for (size_t i = 0; i < t->count; i++) {
        loaded += t->deliveries[i].loaded_bytes;
        total += t->deliveries[i].total_bytes;
    }
    if (progress->report) progress->report(progress->user, t->what, loaded, total);
}

/* Waits for one event, until then at most. */
static vt_status take_event(transfer *t, uint64_t until_ns, bool *took, vt_error *err)
{
    vti_net_event event;
    vti_device *device;
    VTI_TRY(vti_cluster_poll(t->cluster, until_ns, &event, &device, err));
    if (!device) return VT_OK;
    *took = true;
    vt_status status = VT_OK;
    for (size_t i = 0; i < t->count; i++)
        if (t->deliveries[i].device == device)
            status = on_message(&t->deliveries[i], &event, err);
    vti_net_event_clear(&event);
    report(t);
    return status;
}

/* --- sending ----------------------------------------------------------------------------------- */

static bool has_room(const transfer *t, const delivery *d)
{
    vti_net_peer_stats stats;
    return vti_net_get_stats(t->cluster->net, d->device->peer, &stats) != VTI_NET_OK ||
           stats.queued_bytes < QUEUE_BYTES;
}

/* The next part of the next block, if it can be queued. */
static vt_status send_part(transfer *t, delivery *d, bool *sent, vt_error *err)
{
    uint32_t index = d->wanted[d->next];
    if (!d->have_block)
        VTI_TRY(vti_shard_stock_get(t->stock, &d->manifest, index, &d->block, err));
    d->have_block = true;
    uint32_t bytes = vti_block_part_bytes(d->block.stored_bytes, d->part);
    vti_frame_header header = {.type = VTI_MSG_BLOCK, .unit = index, .step = d->part};
    const uint8_t *from = (const uint8_t *)d->block.data + (size_t)d->part * VTI_WIRE_BLOCK_MAX;
    vti_net_part part = {from, bytes};
    vti_net_status status = vti_net_send(t->cluster->net, d->device->peer, &header, &part, 1);
    if (status == VTI_NET_ERR_FULL) return VT_OK;
    if (status != VTI_NET_OK)
        return vti_cluster_send_message(t->cluster, d->device, &header, &part, 1, err);
    *sent = true;
    d->device->sent_bytes += bytes;
    d->part++;
    if (vti_block_part_bytes(d->block.stored_bytes, d->part)) return VT_OK;
    d->have_block = false;
    d->part = 0;
    d->next++;
    return VT_OK;
}

/* One part to every worker that can take one. *full: there are others with something to come. */
static vt_status send_parts(transfer *t, bool *sent, bool *full, vt_error *err)
{
    *sent = *full = false;
    for (size_t i = 0; i < t->count; i++) {
        delivery *d = &t->deliveries[i];
        if (d->next == d->count) continue;
        bool one = false;
        if (has_room(t, d)) VTI_TRY(send_part(t, d, &one, err));
        *sent |= one;
        *full |= !one;
    }
    return VT_OK;
}

/* Which of them have the same file is known once all have answered. */
static vt_status await_answers(transfer *t, vt_error *err)
{
    uint64_t deadline = vti_net_after_ms(ANSWER_TIMEOUT_MS);
    for (;;) {
        bool took = false, all = true;
        for (size_t i = 0; i < t->count; i++) all &= t->deliveries[i].device->assigned;
        if (all) return VT_OK;
        if (vti_net_now_ns() >= deadline)
            return vti_cluster_name_silent(t->cluster, offsetof(vti_device, assigned),
                                           "it to take its layers", err);
        VTI_TRY(take_event(t, deadline, &took, err));
    }
}

static bool all_ready(const transfer *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (!t->deliveries[i].device->ready) return false;
    return true;
}

/* Sends and listens until every worker has everything. */
static vt_status deliver(transfer *t, vt_error *err)
{
    uint64_t deadline = vti_net_after_ms(IDLE_TIMEOUT_MS);
    while (!all_ready(t)) {
        bool sent, full, took = false;
        VTI_TRY(send_parts(t, &sent, &full, err));
        uint64_t until = sent ? 0 : full ? vti_net_after_ms(QUEUE_WAIT_MS) : deadline;
        VTI_TRY(take_event(t, until, &took, err));
        if (sent || took)
            deadline = vti_net_after_ms(IDLE_TIMEOUT_MS);
        else if (vti_net_now_ns() >= deadline)
            return vti_cluster_name_silent(t->cluster, offsetof(vti_device, ready),
                                           "it to load its weights", err);
    }
    return VT_OK;
}

/* --- all of it --------------------------------------------------------------------------------- */

static vt_status open_stock(transfer *t, vt_error *err)
{
    vt_cluster *c = t->cluster;
    vt_error why;
    if (c->cache_path &&
        vti_shard_cache_open(c->cache_path, c->cache_max_bytes, &c->log, &t->cache, &why) != VT_OK)
        vti_log(&c->log, VT_LOG_WARNING, "%s; nothing is kept", why.message);
    vti_shard_stock_params params = {
        .source = c->model->shards,
        .store = c->model->store,
        /* Quantised by a profile of importance, shards do not follow from the file alone. */
        .gguf = c->model->builder.importance ? NULL : c->model->gguf,
        .cache = t->cache,
        .pool = c->model->pool,
        .budget = &vti_model_device(c->model)->budget,
        .log = c->log,
        .progress = c->progress,
    };
    return vti_shard_stock_open(&params, &t->stock, err);
}

static vt_status open_delivery(transfer *t, delivery *d, vti_device *device, vt_error *err)
{
    const vt_model *m = t->cluster->model;
    d->device = device;
    VTI_TRY(vti_manifest_new(&m->geometry, &m->kernels, device->first, device->count, &d->manifest,
                             err));
    VTI_TRY(vti_shard_stock_choose(t->stock, &m->composition, &d->manifest, err));
    d->total_bytes = vti_manifest_bytes(&d->manifest);
    d->wanted = calloc(d->manifest.count, ASKED_MAX * sizeof *d->wanted);
    d->asked = calloc(d->manifest.count, sizeof *d->asked);
    if (!d->wanted || !d->asked)
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a list of shards");
    vti_result_admission *a = &t->cluster->admission;
    pthread_mutex_lock(&a->lock);
    uint32_t most = d->manifest.count * VTI_WIRE_WANT_BYTES;
    if (most > a->want_bytes) a->want_bytes = most;
    pthread_mutex_unlock(&a->lock);
    return VT_OK;
}

static vt_status open_deliveries(transfer *t, vt_error *err)
{
    vt_cluster *c = t->cluster;
    t->deliveries = calloc(c->device_count + 1, sizeof *t->deliveries);
    if (!t->deliveries) return vti_fail(err, VT_ERR_MEMORY, "no memory for a list of shards");
    for (size_t i = 0; i < c->device_count; i++)
        if (c->devices[i].count)
            VTI_TRY(open_delivery(t, &t->deliveries[t->count++], &c->devices[i], err));
    if (t->count == 1)
        snprintf(t->what, sizeof t->what, "weights to %s", t->deliveries[0].device->address);
    else
        snprintf(t->what, sizeof t->what, "weights to %zu devices", t->count);
    return VT_OK;
}

/* Who has the same file needs no hashes, so that nothing has to be built here for it. */
static vt_status send_manifests(transfer *t, vt_error *err)
{
    vti_manifest *manifests[VTI_MAX_DEVICES];
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        if (!t->deliveries[i].manifest.same_file) manifests[count++] = &t->deliveries[i].manifest;
    if (count) VTI_TRY(vti_shard_stock_complete(t->stock, manifests, count, err));
    for (size_t i = 0; i < t->count; i++) VTI_TRY(send_manifest(t, &t->deliveries[i], err));
    return VT_OK;
}

static void close_transfer(transfer *t)
{
    for (size_t i = 0; i < t->count; i++) {
        vti_manifest_free(&t->deliveries[i].manifest);
        vti_cached_block_free(&t->deliveries[i].block);
        free(t->deliveries[i].wanted);
        free(t->deliveries[i].asked);
    }
    free(t->deliveries);
    vti_shard_stock_close(t->stock);
    vti_shard_cache_close(t->cache);
}

static void log_sums(const transfer *t)
{
    for (size_t i = 0; i < t->count; i++) {
        const vti_device *device = t->deliveries[i].device;
        vti_log(&t->cluster->log, VT_LOG_INFO,
                "device %s has %.1f MiB of weights, for which %.1f MiB were sent", device->address,
                (double)device->weight_bytes / 1048576, (double)device->sent_bytes / 1048576);
    }
}

vt_status vti_cluster_send_weights(vt_cluster *c, vt_error *err)
{
    transfer t = {.cluster = c};
    if (!c->chain_count) return VT_OK;
    vt_status status = open_stock(&t, err);
    if (status == VT_OK) status = open_deliveries(&t, err);
    if (status == VT_OK) status = await_answers(&t, err);
    if (status == VT_OK) status = send_manifests(&t, err);
    if (status == VT_OK) status = deliver(&t, err);
    if (status == VT_OK) log_sums(&t);
    close_transfer(&t);
    return status;
}
