/* cluster_kv.c: the KV rows of other devices, for session files. */
#include <inttypes.h>
#include <stdlib.h>

#include "cluster_internal.h"

/* The next message of type `type` from `from` (NULL: anyone). Results of steps that nobody waits
 * for any more may come in between. */
static vt_status await(vt_cluster *c, vti_message type, const vti_device *from, const char *what,
                       vti_net_event *event, vti_device **device, vt_error *err)
{
    uint64_t deadline = vti_net_after_ms(c->step_timeout_ms);
    for (;;) {
        VTI_TRY(vti_cluster_wait(c, deadline, NULL, what, event, device, err));
        bool message = event->type == VTI_NET_MESSAGE;
        if (message && event->header.type == type && event->header.epoch == c->epoch &&
            (!from || *device == from))
            return VT_OK;
        bool late = message && event->header.type == VTI_MSG_STEP;
        uint8_t found = event->header.type;
        vti_net_event_clear(event);
        if (!late)
            return vti_fail(err, VT_ERR_PROTOCOL,
                            "device %s sent a message of type %u while we waited for %s",
                            (*device)->address, found, what);
    }
}

/* --- fetching --------------------------------------------------------------------------------- */

/* Asks for one layer; its rows may come from now on. */
static vt_status ask(vt_cluster *c, vti_device *device, const vti_kv_shape *all, uint32_t layer,
                     vt_error *err)
{
    vti_kv_shape shape = *all;
    shape.first = layer;
    shape.layers = 1;
    pthread_mutex_lock(&c->admission.lock);
    c->admission.kv_left += vti_kv_message_bytes(&shape);
    pthread_mutex_unlock(&c->admission.lock);
    vti_frame_header header = {
        .type = VTI_MSG_KV_GET, .epoch = c->epoch, .unit = layer, .token_count = all->end};
    return vti_cluster_send_message(c, device, &header, NULL, 0, err);
}

static vt_status take_chunk(vt_cluster *c, const vti_device *from, const vti_kv_shape *shape,
                            const vti_kv_chunk *chunk, const vti_kv_stream *stream, vt_error *err)
{
    vti_net_event event;
    vti_device *device;
    VTI_TRY(await(c, VTI_MSG_KV, from, "rows of the KV cache", &event, &device, err));
    vt_status status;
    if (vti_kv_message_is(shape, chunk, &event.header, event.payload))
        status = stream->rows(stream->user, chunk, event.payload + VTI_WIRE_SLOT_BYTES,
                              event.header.message_bytes - VTI_WIRE_SLOT_BYTES, err);
    else
        status = vti_fail(err, VT_ERR_PROTOCOL, "device %s sent other rows of its KV cache than "
                          "those it was asked for", from->address);
    vti_net_event_clear(&event);
    return status;
}

static void expect_kv(vt_cluster *c, vti_net_peer from, size_t row_bytes)
{
    pthread_mutex_lock(&c->admission.lock);
    c->admission.kv_from = from;
    c->admission.kv_row_bytes = row_bytes;
    c->admission.kv_left = 0;
    pthread_mutex_unlock(&c->admission.lock);
}

/* One layer is asked for ahead: the link is busy while the rows of another are worked on, and no
 * more than two layers wait in memory. */
static vt_status fetch_from(vt_cluster *c, vti_device *device, const vti_kv_shape *shape,
                            const vti_kv_stream *stream, vt_error *err)
{
    uint32_t asked = shape->first, end = shape->first + shape->layers;
    vti_kv_chunk chunk = {0};
    expect_kv(c, device->peer, shape->row_bytes);
    while (vti_kv_next_chunk(shape, &chunk)) {
        while (asked < end && asked < chunk.layer + 2)
            VTI_TRY(ask(c, device, shape, asked++, err));
        VTI_TRY(take_chunk(c, device, shape, &chunk, stream, err));
    }
    return VT_OK;
}

static vti_kv_shape shape_of(const vt_cluster *c, const vti_device *device, uint32_t end,
                             size_t row_bytes)
{
    return (vti_kv_shape){&c->model->hparams, device->first, device->count, end, row_bytes};
}

vt_status vti_cluster_fetch_kv(vt_cluster *c, uint32_t end, size_t row_bytes,
                               const vti_kv_stream *stream, vt_error *err)
{
    VTI_TRY(vti_cluster_check_usable(c, err));
    vt_status status = VT_OK;
    for (uint32_t hop = 0; hop < c->chain_count && status == VT_OK; hop++) {
        vti_device *device = vti_cluster_device_at(c, hop);
        vti_kv_shape shape = shape_of(c, device, end, row_bytes);
        status = fetch_from(c, device, &shape, stream, err);
    }
    /* What was asked for and not taken would come at the wrong time. */
    if (status != VT_OK) c->broken = true;
    return status;
}

/* --- storing ---------------------------------------------------------------------------------- */

static vt_status send_chunk(vt_cluster *c, vti_device *device, const vti_kv_chunk *chunk,
                            const void *rows, size_t bytes, vt_error *err)
{
    uint8_t slot[VTI_WIRE_SLOT_BYTES];
    vti_frame_header header = {.type = VTI_MSG_KV, .epoch = c->epoch};
    vti_kv_message(&c->model->hparams, chunk, &header, slot);
    vti_net_part parts[] = {{slot, sizeof slot}, {rows, bytes}};
    return vti_cluster_send_message(c, device, &header, parts, 2, err);
}

static vt_status store_at(vt_cluster *c, vti_device *device, const vti_kv_shape *shape,
                          const vti_kv_stream *stream, void *rows, vt_error *err)
{
    vti_frame_header header = {
        .type = VTI_MSG_KV_PUT, .epoch = c->epoch, .token_count = shape->end};
    vti_kv_chunk chunk = {0};
    device->kv_ok = false;
    VTI_TRY(vti_cluster_send_message(c, device, &header, NULL, 0, err));
    while (vti_kv_next_chunk(shape, &chunk)) {
        size_t bytes = chunk.rows * shape->row_bytes;
        VTI_TRY(stream->rows(stream->user, &chunk, rows, bytes, err));
        VTI_TRY(send_chunk(c, device, &chunk, rows, bytes, err));
    }
    return VT_OK;
}

/* Steps reach a worker from another one: all must be ready before the first is sent. */
static vt_status await_stored(vt_cluster *c, vt_error *err)
{
    for (uint32_t missing = c->chain_count; missing; missing--) {
        vti_net_event event;
        vti_device *device;
        vt_status status = await(c, VTI_MSG_KV_OK, NULL, "it to take its KV cache", &event,
                                 &device, err);
        if (status == VT_ERR_TIMEOUT)
            return vti_cluster_name_silent(c, offsetof(vti_device, kv_ok),
                                           "it to take its KV cache", err);
        VTI_TRY(status);
        vti_net_event_clear(&event);
        if (device->kv_ok)
            return vti_fail(err, VT_ERR_PROTOCOL, "device %s took its KV cache twice",
                            device->address);
        device->kv_ok = true;
    }
    return VT_OK;
}

vt_status vti_cluster_store_kv(vt_cluster *c, uint32_t end, size_t row_bytes,
                               const vti_kv_stream *stream, vt_error *err)
{
    VTI_TRY(vti_cluster_check_usable(c, err));
    void *rows = malloc(row_bytes > VTI_KV_CHUNK_MAX ? row_bytes : VTI_KV_CHUNK_MAX);
    if (!rows) return vti_fail(err, VT_ERR_MEMORY, "no memory for a part of a KV cache");
    vt_status status = VT_OK;
    for (uint32_t hop = 0; hop < c->chain_count && status == VT_OK; hop++) {
        vti_device *device = vti_cluster_device_at(c, hop);
        vti_kv_shape shape = shape_of(c, device, end, row_bytes);
        status = store_at(c, device, &shape, stream, rows, err);
    }
    free(rows);
    return status == VT_OK ? await_stored(c, err) : status;
}
