/* cluster_step.c: conversations and steps, seen from the main device. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cluster_internal.h"

enum { SESSION_TIMEOUT_MS = 10000 };

vti_device *vti_cluster_device_at(vt_cluster *c, uint32_t hop)
{
    for (size_t i = 0; i < c->device_count; i++)
        if (c->devices[i].count && c->devices[i].hop == hop) return &c->devices[i];
    return NULL;
}

static void publish(vt_cluster *c, uint32_t batch)
{
    vti_result_admission *a = &c->admission;
    pthread_mutex_lock(&a->lock);
    a->last = vti_cluster_device_at(c, c->chain_count - 1)->peer;
    a->d = c->model->hparams.d;
    a->layers = c->model->hparams.layers;
    a->hops = c->chain_count;
    /* Results of an earlier session may still be on their way. */
    if (batch > a->batch) a->batch = batch;
    a->epoch = c->epoch;
    a->next_step = c->next_step;
    pthread_mutex_unlock(&a->lock);
}

vt_status vti_cluster_check_usable(const vt_cluster *c, vt_error *err)
{
    if (!c->broken) return VT_OK;
    return vti_fail(err, VT_ERR_NETWORK, "the cluster has lost a device; open it again");
}

static vt_status await_session(vt_cluster *c, vt_error *err)
{
    uint64_t deadline = vti_net_after_ms(SESSION_TIMEOUT_MS);
    for (uint32_t missing = c->chain_count; missing;) {
        vti_net_event event;
        vti_device *device;
        vt_status status = vti_cluster_wait(c, deadline, NULL, "an answer", &event, &device, err);
        if (status == VT_ERR_TIMEOUT)
            return vti_cluster_name_silent(c, offsetof(vti_device, session_ok),
                                           "it to begin a session", err);
        VTI_TRY(status);
        uint8_t type = event.header.type;
        uint32_t epoch = event.header.epoch;
        vti_net_event_clear(&event);
        /* Left over from a session that was broken off. */
        if (type == VTI_MSG_STEP || (type == VTI_MSG_SESSION_OK && epoch < c->epoch)) continue;
        if (type != VTI_MSG_SESSION_OK || device->session_ok)
            return vti_fail(err, VT_ERR_PROTOCOL,
                            "device %s sent a message of type %u at the start of a session",
                            device->address, type);
        device->session_ok = true;
        missing--;
    }
    return VT_OK;
}

vt_status vti_cluster_begin_session(vt_cluster *c, uint32_t context_tokens, uint32_t batch_tokens,
                                    vt_kv_type kv_type, vt_error *err)
{
    VTI_TRY(vti_cluster_check_usable(c, err));
    if (c->in_session)
        return vti_fail(err, VT_ERR_BUSY, "the cluster has a session already; close it first");
    c->in_session = true;
    c->epoch++;
    c->next_step = c->oldest_step = 0;
    if (c->chain_count == 0) return VT_OK;
    publish(c, batch_tokens);
    vti_session_request request = {context_tokens, batch_tokens, kv_type};
    uint8_t payload[VTI_WIRE_SMALL_MAX];
    vti_writer w = {payload, sizeof payload, 0, false};
    vti_encode_session(&w, &request);
    vti_frame_header header = {.type = VTI_MSG_SESSION, .epoch = c->epoch};
    vti_net_part part = {payload, w.bytes};
    vt_status status = VT_OK;
    for (size_t i = 0; i < c->device_count && status == VT_OK; i++) {
        c->devices[i].session_ok = false;
        if (c->devices[i].count)
            status = vti_cluster_send_message(c, &c->devices[i], &header, &part, 1, err);
    }
    if (status == VT_OK) status = await_session(c, err);
    if (status != VT_OK) vti_cluster_end_session(c);
    return status;
}

void vti_cluster_end_session(vt_cluster *c)
{
    vti_frame_header header = {.type = VTI_MSG_SESSION_END, .epoch = c->epoch};
    c->in_session = false;
    for (size_t i = 0; i < c->device_count; i++)
        if (c->devices[i].count && c->devices[i].up)
            vti_net_send(c->net, c->devices[i].peer, &header, NULL, 0);
}

vt_status vti_cluster_send(vt_cluster *c, const float *h, uint32_t position, uint32_t tokens,
                           bool all_rows, vt_error *err)
{
    VTI_TRY(vti_cluster_check_usable(c, err));
    vti_device *first = vti_cluster_device_at(c, 0);
    vti_frame_header header = {
        .type = VTI_MSG_STEP,
        .flags = all_rows ? VTI_STEP_ALL_ROWS : 0,
        .epoch = c->epoch,
        .step = c->next_step++,
        .unit = first->first,
        .token_begin = position,
        .token_count = tokens,
    };
    publish(c, 0); /* before the result can come */
    vti_net_part part = {h, (size_t)tokens * c->model->hparams.d * sizeof *h};
    return vti_cluster_send_message(c, first, &header, &part, 1, err);
}

/* Behind the rows stand the busy times of the devices in the order they were passed. */
static void read_busy_times(vt_cluster *c, const uint8_t *data, size_t bytes)
{
    vti_reader r = {data, bytes, 0, false};
    for (uint32_t hop = 0; hop < c->chain_count; hop++)
        vti_cluster_device_at(c, hop)->busy_ns = vti_read_u64(&r);
}

/* Damage on the way or in a device's memory must not become an answer. */
static bool all_finite(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static vt_status take_result(vt_cluster *c, const vti_device *device, const vti_net_event *event,
                             float *h, uint32_t rows, vt_error *err)
{
    size_t bytes = (size_t)rows * c->model->hparams.d * sizeof *h;
    if (event->header.token_count != rows)
        return vti_fail(err, VT_ERR_PROTOCOL,
                        "device %s: a result has %" PRIu32 " rows, expected %" PRIu32,
                        device->address, event->header.token_count, rows);
    memcpy(h, event->payload, bytes);
    if (!all_finite(h, (size_t)rows * c->model->hparams.d))
        return vti_fail(err, VT_ERR_REMOTE,
                        "what came back from device %s is not finite: weights or memory of a "
                        "device are damaged",
                        device->address);
    read_busy_times(c, event->payload + bytes, event->header.message_bytes - bytes);
    c->oldest_step++;
    return VT_OK;
}

vt_status vti_cluster_receive(vt_cluster *c, float *h, uint32_t rows, const atomic_bool *cancelled,
                              vt_error *err)
{
    uint64_t deadline = vti_net_after_ms(c->step_timeout_ms);
    for (;;) {
        vti_net_event event;
        vti_device *device;
        VTI_TRY(vti_cluster_wait(c, deadline, cancelled, "a step's result", &event, &device, err));
        vt_status status = VT_OK;
        const vti_frame_header *header = &event.header;
        bool is_step = event.type == VTI_NET_MESSAGE && header->type == VTI_MSG_STEP;
        bool wanted = is_step && header->epoch == c->epoch && header->step == c->oldest_step;
        if (!is_step)
            status = vti_fail(err, VT_ERR_PROTOCOL,
                              "device %s sent a message of type %u while we waited for a result",
                              device->address, header->type);
        else if (wanted)
            status = take_result(c, device, &event, h, rows, err);
        vti_net_event_clear(&event); /* a result that is not wanted belongs to a broken-off step */
        if (status != VT_OK || wanted) return status;
    }
}

void vti_cluster_forget_steps(vt_cluster *c) { c->oldest_step = c->next_step; }
