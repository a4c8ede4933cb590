/* engagement_weights.c: a worker comes to its shards. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "engagement.h"
#include "little_endian.h"

enum { TELL_NS = 200000000 };

static vt_status send_bytes(vti_engagement *e, vti_message type, const void *payload, size_t bytes,
                            vt_error *err)
{
    vti_frame_header header = {.type = (uint8_t)type};
    vti_net_part part = {payload, bytes};
    return vti_engagement_send(e, e->main, &header, &part, bytes ? 1 : 0, err);
}

void vti_engagement_end_loading(vti_engagement *e)
{
    vti_shard_intake_close(e->intake);
    e->intake = NULL;
    vti_manifest_free(&e->manifest);
    vti_admission_forget_orders(e->host->admission);
}

vt_status vti_engagement_expect_manifest(vti_engagement *e, vt_error *err)
{
    vti_admission *a = e->host->admission;
    VTI_TRY(vti_manifest_new(&e->geometry, e->host->kernels, e->assignment.first,
                             e->assignment.count, &e->manifest, err));
    e->manifest.same_file = e->host->local &&
                            vti_local_model_is(e->host->local, &e->geometry,
                                               &e->assignment.identity, &e->assignment.stamp);
    pthread_mutex_lock(&a->lock);
    a->manifest_bytes = (size_t)e->manifest.count * VTI_MANIFEST_ENTRY_BYTES;
    pthread_mutex_unlock(&a->lock);
    uint8_t payload[4];
    vti_put_u32(payload, e->manifest.same_file);
    return send_bytes(e, VTI_MSG_ASSIGNED, payload, sizeof payload, err);
}

/* Asks for what has turned out to be missing since the last time. */
static vt_status ask(vti_engagement *e, vt_error *err)
{
    size_t count = 0;
    uint8_t *wants = malloc((size_t)e->manifest.count * VTI_WIRE_WANT_BYTES);
    if (!wants) return vti_fail(err, VT_ERR_MEMORY, "no memory for a list of shards");
    for (uint32_t index; (index = vti_shard_intake_want(e->intake)) != UINT32_MAX; count++) {
        if (!vti_admission_order(e->host->admission, index,
                                 e->manifest.entries[index].stored_bytes)) {
            free(wants);
            return vti_fail(err, VT_ERR_MEMORY, "no memory for a list of shards");
        }
        vti_put_u32(wants + count * VTI_WIRE_WANT_BYTES, index);
    }
    vt_status status = VT_OK;
    if (count) status = send_bytes(e, VTI_MSG_WANT, wants, count * VTI_WIRE_WANT_BYTES, err);
    free(wants);
    return status;
}

/* After every step of loading. */
static vt_status go_on(vti_engagement *e, vt_error *err)
{
    uint64_t loaded = vti_shard_intake_loaded_bytes(e->intake), now = vti_now_ns();
    uint64_t total = vti_shard_intake_total_bytes(e->intake);
    const vt_progress *progress = &e->host->progress;
    char what[VTI_NET_ADDRESS_MAX + 16];
    VTI_TRY(ask(e, err));
    snprintf(what, sizeof what, "weights for %s", e->main_address);
    if (progress->report) progress->report(progress->user, what, loaded, total);
    if (loaded < total && now - e->told_ns < TELL_NS) return VT_OK;
    e->told_ns = now;
    uint8_t payload[8];
    vti_put_u64(payload, loaded);
    VTI_TRY(send_bytes(e, VTI_MSG_LOADED, payload, sizeof payload, err));
    if (loaded < total) return VT_OK;
    vti_engagement_end_loading(e);
    return vti_engagement_loaded(e, err);
}

static vt_status on_manifest(vti_engagement *e, const vti_net_event *event, vt_error *err)
{
    if (e->phase != VTI_PHASE_ASSIGNED)
        return vti_fail(err, VT_ERR_PROTOCOL, "a list of shards came at the wrong time");
    VTI_TRY(vti_manifest_decode(&e->manifest, event->payload, event->header.message_bytes, err));
    vti_shard_intake_params params = {
        .manifest = &e->manifest,
        .identity = &e->assignment.identity,
        .weights = e->weights,
        .budget = &e->host->memory->budget,
        .pool = e->host->pool,
        .cache = e->host->cache,
        .local = e->host->local,
        .log = e->host->log,
    };
    VTI_TRY(vti_shard_intake_open(&params, &e->intake, err));
    e->phase = VTI_PHASE_LOADING;
    return go_on(e, err);
}

static vt_status on_block(vti_engagement *e, const vti_net_event *event, vt_error *err)
{
    const vti_frame_header *h = &event->header;
    if (!e->intake) return vti_fail(err, VT_ERR_PROTOCOL, "weights came at the wrong time");
    VTI_TRY(vti_shard_intake_take(e->intake, h->unit, (uint64_t)h->step * VTI_WIRE_BLOCK_MAX,
                                  event->payload, h->message_bytes, err));
    return go_on(e, err);
}

vt_status vti_engagement_weights(vti_engagement *e, const vti_net_event *event, vt_error *err)
{
    return event->header.type == VTI_MSG_MANIFEST ? on_manifest(e, event, err)
                                                  : on_block(e, event, err);
}

bool vti_engagement_has_work(const vti_engagement *e)
{
    return e->intake && vti_shard_intake_has_work(e->intake);
}

vt_status vti_engagement_work(vti_engagement *e, vt_error *err)
{
    VTI_TRY(vti_shard_intake_work(e->intake, err));
    return go_on(e, err);
}
