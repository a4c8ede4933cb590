/* cluster_provision.c: claims the workers and gives each the weights of its layers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster_internal.h"
#include "stage.h"

enum { ANSWER_TIMEOUT_MS = 5000 };

/* Bytes of the weights that a device gets. */
static uint64_t weight_bytes(const vt_cluster *c, const vti_device *device)
{
    return vti_weights_bytes(c->model->shards, &c->model->composition,
                             vti_attn_unit(device->first), 2 * device->count);
}

static vt_status send_simple(vt_cluster *c, vti_device *device, vti_message type,
                             const vti_writer *w, vt_error *err)
{
    vti_frame_header header = {.type = (uint8_t)type};
    vti_net_part part = {w ? w->data : NULL, w ? w->bytes : 0};
    return vti_cluster_send_message(c, device, &header, &part, part.bytes ? 1 : 0, err);
}

/* --- claim ------------------------------------------------------------------------------------- */

static vt_status take_offer(vti_device *device, const vti_net_event *event, vt_error *err)
{
    if (event->type != VTI_NET_MESSAGE || event->header.type != VTI_MSG_OFFER || device->offered)
        return vti_fail(err, VT_ERR_PROTOCOL,
                        "device %s sent a message of type %u while we waited for its offer",
                        device->address, event->header.type);
    device->offered = true;
    if (vti_decode_offer(event->payload, event->header.message_bytes, &device->offer)) return VT_OK;
    return vti_fail(err, VT_ERR_PROTOCOL, "device %s sent a malformed offer", device->address);
}

vt_status vti_cluster_claim(vt_cluster *c, vt_error *err)
{
    uint32_t missing = 0;
    for (size_t i = 0; i < c->device_count; i++) {
        vti_writer w = {c->id.bytes, sizeof c->id.bytes, sizeof c->id.bytes, false};
        if (!c->devices[i].in_use) continue;
        VTI_TRY(send_simple(c, &c->devices[i], VTI_MSG_CLAIM, &w, err));
        missing++;
    }
    uint64_t deadline = vti_net_after_ms(ANSWER_TIMEOUT_MS);
    for (; missing; missing--) {
        vti_net_event event;
        vti_device *device;
        vt_status status = vti_cluster_wait(c, deadline, NULL, "its offer", &event, &device, err);
        if (status == VT_ERR_TIMEOUT)
            return vti_cluster_name_silent(c, offsetof(vti_device, offered), "its offer", err);
        VTI_TRY(status);
        status = take_offer(device, &event, err);
        vti_net_event_clear(&event);
        VTI_TRY(status);
    }
    return VT_OK;
}

static double mib(uint64_t bytes) { return (double)bytes / 1048576; }

/* Weights, KV cache and scratch of the expected session. */
static uint64_t device_needs(const vt_cluster *c, const vti_device *device)
{
    vti_stage_params params = {
        .geometry = &c->model->geometry,
        .kernels = &c->model->kernels,
        .context_tokens = c->context_tokens,
        .batch_tokens = c->batch_tokens,
        .kv_type = c->kv_type,
    };
    return weight_bytes(c, device) + vti_stage_bytes(&params, device->first, device->count);
}

/* Every device that lacks memory is named, with how much. */
static vt_status check_memory(const vt_cluster *c, vt_error *err)
{
    char text[400] = "";
    size_t at = 0;
    for (size_t i = 0; i < c->device_count; i++) {
        const vti_device *device = &c->devices[i];
        if (!device->count || !device->offer.memory_bytes) continue;
        uint64_t need = device_needs(c, device);
        if (need <= device->offer.memory_bytes || at >= sizeof text) continue;
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "%s%s lends %.1f MiB and its %" PRIu32
                               " layers need %.1f MiB (%.1f MiB short)",
                               at ? "; " : "", device->address, mib(device->offer.memory_bytes),
                               device->count, mib(need), mib(need - device->offer.memory_bytes));
    }
    if (!at) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY,
                    "not enough memory: %s; fewer layers there, a smaller context or more devices "
                    "would help",
                    text);
}

/* The main device's own layers, and the output matrix. */
static vt_status check_own_memory(const vt_cluster *c, vt_error *err)
{
    vti_device own = {.first = 0, .count = c->main_layers};
    uint64_t need = device_needs(c, &own) + c->model->head_bytes;
    vti_device_memory_refresh(vti_model_device(c->model));
    uint64_t spare = vti_budget_left(&vti_model_device(c->model)->budget);
    if (need <= spare) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY,
                    "not enough memory: this device has %.1f MiB free, and its %" PRIu32
                    " layers and the output need %.1f MiB; fewer layers here, a smaller context "
                    "or more devices would help",
                    mib(spare), c->main_layers, mib(need));
}

/* --- assignment ----------------------------------------------------------------------------------- */

/* Address of the device that comes after `hop`; "" for the last. */
static const char *next_address(const vt_cluster *c, uint32_t hop)
{
    for (size_t i = 0; i < c->device_count; i++)
        if (c->devices[i].count && c->devices[i].hop == hop + 1) return c->devices[i].address;
    return "";
}

static vt_status send_assignment(vt_cluster *c, vti_device *device, vt_error *err)
{
    vti_assignment a = {
        .hparams = c->model->hparams,
        .first = device->first,
        .count = device->count,
        .hop = device->hop,
        .quantised = c->model->geometry.quantised,
    };
    vti_model_get_identity(c->model, &a.identity);
    /* Quantised by a profile of importance, shards do not follow from the file alone. */
    if (!c->model->builder.importance) vti_file_stamp_of(c->model->gguf, &a.stamp);
    snprintf(a.next, sizeof a.next, "%s", next_address(c, device->hop));
    uint8_t payload[VTI_WIRE_SMALL_MAX];
    vti_writer w = {payload, sizeof payload, 0, false};
    if (!vti_encode_assignment(&w, &a))
        return vti_fail(err, VT_ERR_INTERNAL, "the assignment does not fit its message");
    vti_log(&c->log, VT_LOG_INFO, "layers %" PRIu32 " to %" PRIu32 " go to %s", device->first,
            device->first + device->count - 1, device->address);
    return send_simple(c, device, VTI_MSG_ASSIGN, &w, err);
}

vt_status vti_cluster_provision(vt_cluster *c, vt_error *err)
{
    VTI_TRY(check_memory(c, err));
    VTI_TRY(check_own_memory(c, err));
    for (size_t i = 0; i < c->device_count; i++)
        if (c->devices[i].count) VTI_TRY(send_assignment(c, &c->devices[i], err));
    return vti_cluster_send_weights(c, err);
}
