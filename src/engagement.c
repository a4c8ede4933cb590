#include "engagement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

enum { LINK_TIMEOUT_MS = 1500, SEND_TIMEOUT_MS = 30000 };

/* --- small things ------------------------------------------------------------------------------ */

/* Tells the admission of headers whom steps come from and what they are for. */
static void publish_route(vti_engagement *e)
{
    vti_admission *a = e->host->admission;
    pthread_mutex_lock(&a->lock);
    a->main = e->main;
    a->source = e->source;
    a->d = e->assignment.hparams.d;
    a->hop = e->assignment.hop;
    a->first = e->assignment.first;
    a->layers = e->assignment.count;
    a->hparams = e->assignment.hparams;
    pthread_mutex_unlock(&a->lock);
}

void vti_engagement_publish_phase(vti_engagement *e, vti_phase phase)
{
    vti_admission *a = e->host->admission;
    e->phase = phase;
    pthread_mutex_lock(&a->lock);
    a->phase = phase;
    a->engaged = true;
    pthread_mutex_unlock(&a->lock);
}

/* A session begins: what its steps look like. */
static void publish_session(vti_engagement *e)
{
    vti_admission *a = e->host->admission;
    pthread_mutex_lock(&a->lock);
    a->batch = e->session.batch_tokens;
    a->context = e->session.context_tokens;
    a->epoch = e->epoch;
    a->next_step = 0;
    a->end = 0;
    a->row_bytes = vti_stage_cache(e->stage)->row_bytes;
    a->kv_left = 0;
    uint64_t largest = vti_step_bytes(a->batch, a->d, a->hop);
    if (largest > a->largest_step_bytes) a->largest_step_bytes = largest;
    /* Its end may have been admitted already. */
    a->phase = a->ends ? VTI_PHASE_READY : VTI_PHASE_SESSION;
    pthread_mutex_unlock(&a->lock);
    e->phase = VTI_PHASE_SESSION;
    e->end = 0;
    e->arriving_kv.layers = 0;
}

vt_status vti_engagement_send(vti_engagement *e, vti_net_peer peer, const vti_frame_header *header,
                              const vti_net_part *parts, size_t count, vt_error *err)
{
    vti_net_status status = vti_net_send(e->host->net, peer, header, parts, count);
    if (status == VTI_NET_ERR_FULL) {
        status = vti_net_drain(e->host->net, peer, 0, vti_net_after_ms(SEND_TIMEOUT_MS));
        if (status == VTI_NET_OK) status = vti_net_send(e->host->net, peer, header, parts, count);
    }
    if (status == VTI_NET_OK) return VT_OK;
    return vti_fail(err, vti_from_net_status(status), "cannot send to the %s device %s: %s",
                    peer == e->main ? "main" : "next",
                    peer == e->main ? e->main_address : e->assignment.next,
                    vti_net_status_text(status));
}

static vt_status send_message(vti_engagement *e, vti_net_peer peer, vti_message type,
                              const void *payload, size_t bytes, vt_error *err)
{
    vti_frame_header header = {.type = (uint8_t)type, .epoch = e->epoch};
    vti_net_part part = {payload, bytes};
    return vti_engagement_send(e, peer, &header, &part, bytes ? 1 : 0, err);
}

static vt_status require_phase(const vti_engagement *e, vti_phase phase, vt_error *err)
{
    if (e->phase == phase) return VT_OK;
    return vti_fail(err, VT_ERR_PROTOCOL, "a message came at the wrong time");
}

/* --- claim ------------------------------------------------------------------------------------- */

/* In an OFFER, 0 is no limit. */
static uint64_t offered_bytes(const vti_budget *budget)
{
    uint64_t left = vti_budget_left(budget);
    if (left == UINT64_MAX) return 0;
    return left ? left : 1;
}

static vt_status send_offer(vti_engagement *e, vt_error *err)
{
    const vti_engagement_host *host = e->host;
    uint8_t payload[VTI_WIRE_OFFER_MAX];
    vti_writer w = {payload, sizeof payload, 0, false};
    vti_device_memory_refresh(host->memory);
    vti_offer offer = {
        .memory_bytes = offered_bytes(&host->memory->budget),
        .page_bytes = vti_shard_memory_page_bytes(),
        .has_profile = host->profile != NULL,
    };
    if (host->profile) offer.profile = *host->profile;
    if (!vti_encode_offer(&w, &offer))
        return vti_fail(err, VT_ERR_INTERNAL, "the offer does not fit its message");
    return send_message(e, e->main, VTI_MSG_OFFER, payload, w.bytes, err);
}

vt_status vti_engagement_open(const vti_engagement_host *host, vti_net_peer main,
                              const char *main_address, const vti_cluster_id *id,
                              vti_engagement **out, vt_error *err)
{
    *out = NULL;
    vti_engagement *e = calloc(1, sizeof *e);
    if (!e) return vti_fail(err, VT_ERR_MEMORY, "no memory for an engagement");
    e->host = host;
    e->main = main;
    e->id = *id;
    snprintf(e->main_address, sizeof e->main_address, "%s", main_address);
    pthread_mutex_lock(&host->admission->lock);
    host->admission->largest_step_bytes = 0;
    host->admission->epoch = 0;
    host->admission->ends = 0;
    pthread_mutex_unlock(&host->admission->lock);
    publish_route(e);
    vti_engagement_publish_phase(e, VTI_PHASE_CLAIMED);
    vt_status status = send_offer(e, err);
    if (status != VT_OK) {
        vti_engagement_close(e);
        return status;
    }
    *out = e;
    return VT_OK;
}

void vti_engagement_close(vti_engagement *e)
{
    if (!e) return;
    pthread_mutex_lock(&e->host->admission->lock);
    e->host->admission->engaged = false;
    pthread_mutex_unlock(&e->host->admission->lock);
    if (e->next && e->next != e->main) vti_net_disconnect(e->host->net, e->next, NULL);
    if (e->source && e->source != e->main) vti_net_disconnect(e->host->net, e->source, NULL);
    vti_stage_close(e->stage);
    vti_engagement_end_loading(e);
    vti_weights_free(e->weights);
    vti_shard_memory_close(e->memory);
    if (e->host->cache) vti_shard_cache_let_go(e->host->cache);
    free(e);
}

/* --- assignment -------------------------------------------------------------------------------- */

static vt_status on_assign(vti_engagement *e, const vti_net_event *event, vt_error *err)
{
    vti_assignment *a = &e->assignment;
    VTI_TRY(require_phase(e, VTI_PHASE_CLAIMED, err));
    if (!vti_decode_assignment(event->payload, event->header.message_bytes, a))
        return vti_fail(err, VT_ERR_PROTOCOL, "the assignment is malformed");
    VTI_TRY(vti_hparams_check(&a->hparams, "the assignment", err));
    if (a->first >= a->hparams.layers || a->count < 1 || a->count > a->hparams.layers - a->first)
        return vti_fail(err, VT_ERR_PROTOCOL,
                        "assigned layers %" PRIu32 " to %" PRIu64 " of a model with %" PRIu32,
                        a->first, (uint64_t)a->first + a->count, a->hparams.layers);
    /* A link may come before the assignment: the device before us can be done first. */
    if (a->hop > a->hparams.layers || (a->hop == 0 && e->source))
        return vti_fail(err, VT_ERR_PROTOCOL, "assigned hop %" PRIu32, a->hop);
    vti_geometry_init(&e->geometry, &a->hparams, a->quantised);
    e->memory = vti_shard_memory_open(&e->host->memory->budget, VTI_BUDGET_WEIGHTS);
    if (!e->memory) return vti_fail(err, VT_ERR_MEMORY, "no memory for weights");
    VTI_TRY(vti_weights_new(&e->geometry, e->memory, 2 * a->first, 2 * a->count, &e->weights, err));
    if (a->hop == 0) e->source = e->main;
    e->phase = VTI_PHASE_ASSIGNED;
    publish_route(e);
    vti_log(e->host->log, VT_LOG_INFO, "layers %" PRIu32 "..%" PRIu32 " of %" PRIu32 " for %s", a->first,
            a->first + a->count - 1, a->hparams.layers, e->main_address);
    return vti_engagement_expect_manifest(e, err);
}

/* --- links ------------------------------------------------------------------------------------- */

static vt_status become_ready(vti_engagement *e, vt_error *err)
{
    uint8_t payload[8];
    vti_writer w = {payload, sizeof payload, 0, false};
    vti_write_u64(&w, e->weights->bytes);
    vti_engagement_publish_phase(e, VTI_PHASE_READY);
    return send_message(e, e->main, VTI_MSG_READY, payload, w.bytes, err);
}

vt_status vti_engagement_loaded(vti_engagement *e, vt_error *err)
{
    if (e->assignment.next[0] == 0) {
        e->next = e->main;
        return become_ready(e, err);
    }
    e->phase = VTI_PHASE_LINKING;
    vti_net_error net_err;
    vti_net_status status = vti_net_connect(e->host->net, e->assignment.next, LINK_TIMEOUT_MS, &e->next,
                                            &net_err);
    if (status == VTI_NET_OK) return VT_OK;
    return vti_fail(err, vti_from_net_status(status), "cannot connect to %s: %s",
                    e->assignment.next, net_err.message);
}

vt_status vti_engagement_peer_up(vti_engagement *e, vti_net_peer peer, vt_error *err)
{
    if (peer != e->next) return VT_OK;
    return send_message(e, peer, VTI_MSG_LINK, e->id.bytes, sizeof e->id.bytes, err);
}

vt_status vti_engagement_link(vti_engagement *e, vti_net_peer peer, const uint8_t *payload,
                              size_t bytes, vt_error *err)
{
    if (bytes != sizeof e->id.bytes || memcmp(payload, e->id.bytes, bytes) != 0 || e->source)
        return vti_fail(err, VT_ERR_PROTOCOL, "this device is not part of your cluster");
    e->source = peer;
    publish_route(e);
    return send_message(e, peer, VTI_MSG_LINKED, NULL, 0, err);
}

static vt_status on_linked(vti_engagement *e, vt_error *err)
{
    VTI_TRY(require_phase(e, VTI_PHASE_LINKING, err));
    e->next_linked = true;
    return become_ready(e, err);
}

vt_status vti_engagement_peer_down(vti_engagement *e, const vti_net_event *event, vt_error *err)
{
    /* A device that says goodbye was told to; the main device will tell us too. */
    bool goodbye = event->status == VTI_NET_OK;
    if (event->peer == e->next) {
        e->next = 0;
        if (goodbye) return VT_OK;
        return vti_fail(err, VT_ERR_NETWORK, "%s %s: %s",
                        e->next_linked ? "lost the next device" : "cannot reach the next device",
                        e->assignment.next, event->reason);
    }
    if (event->peer == e->source) {
        e->source = 0;
        publish_route(e);
        if (goodbye) return VT_OK;
        return vti_fail(err, VT_ERR_NETWORK, "lost the device before (%s): %s", event->address,
                        event->reason);
    }
    return VT_OK;
}

/* --- sessions ---------------------------------------------------------------------------------- */

static void end_session(vti_engagement *e)
{
    vti_stage_close(e->stage);
    e->stage = NULL;
    if (e->phase == VTI_PHASE_SESSION) e->phase = VTI_PHASE_READY;
    pthread_mutex_lock(&e->host->admission->lock);
    e->host->admission->ends--;
    pthread_mutex_unlock(&e->host->admission->lock);
}

static vt_status on_session(vti_engagement *e, const vti_net_event *event, vt_error *err)
{
    vti_session_request *s = &e->session;
    VTI_TRY(require_phase(e, VTI_PHASE_READY, err));
    if (!vti_decode_session(event->payload, event->header.message_bytes, s) ||
        s->context_tokens < 1 || s->context_tokens > VTI_MAX_CONTEXT || s->batch_tokens < 1 ||
        s->batch_tokens > s->context_tokens || event->header.epoch <= e->epoch)
        return vti_fail(err, VT_ERR_PROTOCOL, "the session request is malformed");
    if (vti_step_bytes(s->batch_tokens, e->assignment.hparams.d, e->assignment.hop) >
        VTI_FRAME_MESSAGE_MAX)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "a batch of %" PRIu32 " tokens is too large for one message",
                        s->batch_tokens);
    vti_stage_params params = {
        .geometry = &e->geometry,
        .kernels = e->host->kernels,
        .pool = e->host->pool,
        .weights = e->weights,
        .budget = &e->host->memory->budget,
        .context_tokens = s->context_tokens,
        .batch_tokens = s->batch_tokens,
        .kv_type = s->kv_type,
    };
    VTI_TRY(vti_stage_open(&params, &e->stage, err));
    e->epoch = event->header.epoch;
    publish_session(e);
    return send_message(e, e->main, VTI_MSG_SESSION_OK, NULL, 0, err);
}

/* Sends a computed step on: all its rows to the next worker, what the main device asked for to the
 * main device; behind them the busy times of the devices it has passed, ours last. */
static vt_status pass_on(vti_engagement *e, const vti_net_event *event, vt_error *err)
{
    vti_frame_header h = event->header;
    const vti_assignment *a = &e->assignment;
    size_t row_bytes = (size_t)a->hparams.d * sizeof(float);
    size_t rows_bytes = h.token_count * row_bytes;
    const uint8_t *rows = event->payload, *busy = event->payload + rows_bytes;
    if (e->next == e->main && !(h.flags & VTI_STEP_ALL_ROWS)) {
        rows += rows_bytes - row_bytes;
        rows_bytes = row_bytes;
        h.token_begin += h.token_count - 1;
        h.token_count = 1;
    }
    h.unit = a->first + a->count;
    uint8_t own[VTI_WIRE_BUSY_BYTES];
    vti_writer w = {own, sizeof own, 0, false};
    vti_write_u64(&w, e->busy_ns);
    vti_net_part parts[] = {{rows, rows_bytes},
                            {busy, (size_t)a->hop * VTI_WIRE_BUSY_BYTES},
                            {own, sizeof own}};
    return vti_engagement_send(e, e->next, &h, parts, 3, err);
}

static vt_status on_step(vti_engagement *e, vti_net_event *event, vt_error *err)
{
    const vti_frame_header *h = &event->header;
    if (!e->stage || h->epoch != e->epoch) return VT_OK; /* of a session that is over */
    const vti_session_request *s = &e->session;
    if (e->arriving_kv.layers || h->token_count < 1 || h->token_count > s->batch_tokens ||
        h->token_begin > e->end ||
        h->token_count > s->context_tokens - h->token_begin ||
        h->message_bytes !=
            vti_step_bytes(h->token_count, e->assignment.hparams.d, e->assignment.hop) ||
        vti_stage_resume(e->stage, h->token_begin) != h->token_begin)
        return vti_fail(err, VT_ERR_PROTOCOL, "a step does not fit the session");
    e->end = h->token_begin + h->token_count;
    uint64_t start = vti_now_ns();
    vti_stage_forward(e->stage, (float *)(void *)event->payload, h->token_begin, h->token_count);
    e->busy_ns += vti_now_ns() - start;
    vti_device_memory_look(e->host->memory, e->host->log);
    return pass_on(e, event, err);
}

vt_status vti_engagement_handle(vti_engagement *e, vti_net_event *event, vt_error *err)
{
    switch ((int)event->header.type) {
    case VTI_MSG_ASSIGN: return on_assign(e, event, err);
    case VTI_MSG_MANIFEST:
    case VTI_MSG_BLOCK: return vti_engagement_weights(e, event, err);
    case VTI_MSG_SESSION: return on_session(e, event, err);
    case VTI_MSG_SESSION_END: end_session(e); return VT_OK;
    case VTI_MSG_STEP: return on_step(e, event, err);
    case VTI_MSG_KV_GET:
    case VTI_MSG_KV_PUT:
    case VTI_MSG_KV: return vti_engagement_kv(e, event, err);
    case VTI_MSG_LINKED:
        if (event->peer == e->next) return on_linked(e, err);
        break;
    }
    return vti_fail(err, VT_ERR_PROTOCOL, "a message of type %u was not expected",
                    event->header.type);
}
