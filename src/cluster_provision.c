/* cluster_provision.c: claims the workers and gives each the weights of its layers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster_internal.h"
#include "memory.h"
#include "stage.h"

enum { ANSWER_TIMEOUT_MS = 5000, READY_TIMEOUT_MS = 60000 };

/* Tensors that a device gets: all roles of its layers, and rope_freqs (as layer 0). */
typedef struct tensor_walk {
    const vt_cluster *cluster;
    uint32_t first, count;
    uint32_t index; /* 0: rope_freqs; then layer by layer, role by role */
} tensor_walk;

typedef struct walked_tensor {
    vti_source source;
    vti_role role;
    uint32_t layer;
} walked_tensor;

/* The next tensor that is there; false at the end. */
static bool next_tensor(tensor_walk *walk, walked_tensor *out)
{
    const vt_model *m = walk->cluster->model;
    while (walk->index <= walk->count * VTI_LAYER_ROLE_COUNT) {
        uint32_t at = walk->index++;
        out->role = at ? (vti_role)((at - 1) % VTI_LAYER_ROLE_COUNT) : VTI_ROPE_FREQS;
        out->layer = at ? walk->first + (at - 1) / VTI_LAYER_ROLE_COUNT : 0;
        /* All were checked when the model was opened. */
        if (vti_source_find(m->gguf, &m->hparams, out->role, out->layer, &out->source, NULL) ==
                VT_OK &&
            out->source.data)
            return true;
    }
    return false;
}

typedef struct totals {
    uint32_t tensors;
    uint64_t source_bytes, loaded_bytes, largest_source_bytes;
} totals;

static totals count_tensors(const vt_cluster *c, const vti_device *device)
{
    tensor_walk walk = {c, device->first, device->count, 0};
    walked_tensor tensor;
    totals sum = {0};
    while (next_tensor(&walk, &tensor)) {
        sum.tensors++;
        sum.source_bytes += tensor.source.size_bytes;
        sum.loaded_bytes += vti_tensor_bytes(&c->model->kernels, tensor.role, &tensor.source);
        if (tensor.source.size_bytes > sum.largest_source_bytes)
            sum.largest_source_bytes = tensor.source.size_bytes;
    }
    return sum;
}

static vt_status send_simple(vt_cluster *c, vti_device *device, vti_message type,
                             const vti_writer *w, vt_error *err)
{
    vti_frame_header header = {.type = (uint8_t)type};
    vti_net_part part = {w ? w->data : NULL, w ? w->bytes : 0};
    return vti_cluster_send_message(c, device, &header, &part, part.bytes ? 1 : 0, err);
}

/* --- claim ------------------------------------------------------------------------------------- */

/* The number in an OFFER or READY. */
static vt_status read_number(const vti_device *device, const vti_net_event *event, uint64_t *out,
                             vt_error *err)
{
    vti_reader r = {event->payload, event->header.message_bytes, 0, false};
    *out = vti_read_u64(&r);
    if (!r.failed && r.at == r.bytes) return VT_OK;
    return vti_fail(err, VT_ERR_PROTOCOL, "device %s sent a malformed answer", device->address);
}

/* Waits until every device of the chain has sent a message of `type`, and takes its number. */
static vt_status collect(vt_cluster *c, vti_message type, uint32_t timeout_ms, const char *what,
                         size_t bool_offset, size_t number_offset, vt_error *err)
{
    uint64_t deadline = vti_net_after_ms(timeout_ms);
    for (uint32_t missing = c->chain_count; missing;) {
        vti_net_event event;
        vti_device *device;
        vt_status status = vti_cluster_wait(c, deadline, NULL, what, &event, &device, err);
        if (status == VT_ERR_TIMEOUT) return vti_cluster_name_silent(c, bool_offset, what, err);
        VTI_TRY(status);
        bool *seen = (bool *)((char *)device + bool_offset);
        if (event.type != VTI_NET_MESSAGE || event.header.type != type || *seen)
            status = vti_fail(err, VT_ERR_PROTOCOL,
                              "device %s sent a message of type %u while we waited for %s",
                              device->address, event.header.type, what);
        else
            status = read_number(device, &event, (uint64_t *)((char *)device + number_offset), err);
        *seen = true;
        missing--;
        vti_net_event_clear(&event);
        VTI_TRY(status);
    }
    return VT_OK;
}

static vt_status claim_all(vt_cluster *c, vt_error *err)
{
    for (size_t i = 0; i < c->device_count; i++) {
        vti_writer w = {c->id.bytes, sizeof c->id.bytes, sizeof c->id.bytes, false};
        if (c->devices[i].count) VTI_TRY(send_simple(c, &c->devices[i], VTI_MSG_CLAIM, &w, err));
    }
    return collect(c, VTI_MSG_OFFER, ANSWER_TIMEOUT_MS, "its offer",
                   offsetof(vti_device, offered), offsetof(vti_device, memory_bytes), err);
}

static double mib(uint64_t bytes) { return (double)bytes / 1048576; }

/* Weights, one tensor on its way to become one, KV cache and scratch of the expected session. */
static uint64_t device_needs(const vt_cluster *c, const vti_device *device)
{
    totals sum = count_tensors(c, device);
    vti_stage_params params = {
        .hparams = &c->model->hparams,
        .kernels = &c->model->kernels,
        .context_tokens = c->context_tokens,
        .batch_tokens = c->batch_tokens,
        .kv_type = c->kv_type,
    };
    uint64_t session = vti_stage_bytes(&params, device->first, device->count);
    uint64_t more = session > sum.largest_source_bytes ? session : sum.largest_source_bytes;
    return sum.loaded_bytes + more;
}

/* Every device that lacks memory is named, with how much. */
static vt_status check_memory(const vt_cluster *c, vt_error *err)
{
    char text[400] = "";
    size_t at = 0;
    for (size_t i = 0; i < c->device_count; i++) {
        const vti_device *device = &c->devices[i];
        if (!device->count || !device->memory_bytes) continue;
        uint64_t need = device_needs(c, device);
        if (need <= device->memory_bytes || at >= sizeof text) continue;
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "%s%s lends %.1f MiB and its %" PRIu32
                               " layers need %.1f MiB (%.1f MiB short)",
                               at ? "; " : "", device->address, mib(device->memory_bytes),
                               device->count, mib(need), mib(need - device->memory_bytes));
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
    uint64_t need = device_needs(c, &own) + c->model->head_bytes, spare = vti_memory_spare_bytes();
    if (!spare || need <= spare) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY,
                    "not enough memory: this device has %.1f MiB free, and its %" PRIu32
                    " layers and the output need %.1f MiB; fewer layers here, a smaller context "
                    "or more devices would help",
                    mib(spare), c->main_layers, mib(need));
}

/* --- weights ----------------------------------------------------------------------------------- */

/* Address of the device that comes after `hop`; "" for the last. */
static const char *next_address(const vt_cluster *c, uint32_t hop)
{
    for (size_t i = 0; i < c->device_count; i++)
        if (c->devices[i].count && c->devices[i].hop == hop + 1) return c->devices[i].address;
    return "";
}

static vt_status send_assignment(vt_cluster *c, vti_device *device, uint32_t tensors, vt_error *err)
{
    vti_assignment a = {
        .hparams = c->model->hparams,
        .first = device->first,
        .count = device->count,
        .hop = device->hop,
        .tensor_count = tensors,
    };
    snprintf(a.next, sizeof a.next, "%s", next_address(c, device->hop));
    uint8_t payload[VTI_WIRE_SMALL_MAX];
    vti_writer w = {payload, sizeof payload, 0, false};
    if (!vti_encode_assignment(&w, &a))
        return vti_fail(err, VT_ERR_INTERNAL, "the assignment does not fit its message");
    return send_simple(c, device, VTI_MSG_ASSIGN, &w, err);
}

typedef struct transfer {
    char what[VTI_NET_ADDRESS_MAX + 16];
    uint64_t done_bytes, total_bytes; /* over all devices */
} transfer;

/* A tensor travels in blocks, so that neither side needs a buffer for all of it and signs of life
 * pass between them. `data` are `bytes` of it that begin at `offset`. */
static vt_status send_blocks(vt_cluster *c, vti_device *device, const walked_tensor *tensor,
                             const void *data, uint64_t offset, uint64_t bytes, transfer *t,
                             vt_error *err)
{
    const vti_source *s = &tensor->source;
    vti_frame_header header = {.type = VTI_MSG_WEIGHTS, .unit = tensor->layer};
    for (uint64_t done = 0; done < bytes;) {
        uint64_t left = bytes - done;
        size_t part = left < VTI_WIRE_BLOCK_MAX ? (size_t)left : VTI_WIRE_BLOCK_MAX;
        uint8_t head[VTI_WIRE_BLOCK_HEADER_BYTES];
        vti_writer w = {head, sizeof head, 0, false};
        vti_weights_block block = {tensor->role, s->type, s->slices, s->rows, s->cols, offset + done};
        vti_encode_block(&w, &block);
        vti_net_part parts[] = {{head, w.bytes}, {(const char *)data + done, part}};
        VTI_TRY(vti_cluster_send_message(c, device, &header, parts, 2, err));
        done += part;
        t->done_bytes += part;
        if (c->progress.report)
            c->progress.report(c->progress.user, t->what, t->done_bytes, t->total_bytes);
    }
    return VT_OK;
}

/* Rows of a type without a kernel are converted here, some at a time: workers know only types that
 * have one. */
static vt_status send_converted(vt_cluster *c, vti_device *device, const walked_tensor *tensor,
                                transfer *t, vt_error *err)
{
    const vti_source *s = &tensor->source;
    uint64_t row_bytes = vti_source_bytes(s->type, 1, 1, s->cols), rows = s->size_bytes / row_bytes;
    uint64_t batch = row_bytes < VTI_WIRE_BLOCK_MAX ? VTI_WIRE_BLOCK_MAX / row_bytes : 1;
    void *buffer = malloc((size_t)(batch * row_bytes));
    vt_status status = VT_OK;
    if (!buffer) return vti_fail(err, VT_ERR_MEMORY, "no memory to convert weights");
    for (uint64_t row = 0; row < rows && status == VT_OK; row += batch) {
        uint64_t count = rows - row < batch ? rows - row : batch;
        status = send_blocks(c, device, tensor, vti_source_rows(s, row, count, buffer),
                             row * row_bytes, count * row_bytes, t, err);
    }
    free(buffer);
    return status;
}

static vt_status send_tensor(vt_cluster *c, vti_device *device, const walked_tensor *tensor,
                             transfer *t, vt_error *err)
{
    const vti_source *s = &tensor->source;
    if (s->conversion) return send_converted(c, device, tensor, t, err);
    return send_blocks(c, device, tensor, s->data, 0, s->size_bytes, t, err);
}

static vt_status send_weights(vt_cluster *c, vti_device *device, transfer *t, vt_error *err)
{
    tensor_walk walk = {c, device->first, device->count, 0};
    walked_tensor tensor;
    snprintf(t->what, sizeof t->what, "weights to %s", device->address);
    VTI_TRY(send_assignment(c, device, count_tensors(c, device).tensors, err));
    vti_log(&c->log, VT_LOG_INFO, "layers %" PRIu32 " to %" PRIu32 " go to %s", device->first,
            device->first + device->count - 1, device->address);
    while (next_tensor(&walk, &tensor)) VTI_TRY(send_tensor(c, device, &tensor, t, err));
    return send_simple(c, device, VTI_MSG_LOADED, NULL, err);
}

vt_status vti_cluster_provision(vt_cluster *c, vt_error *err)
{
    transfer t = {0};
    VTI_TRY(claim_all(c, err));
    VTI_TRY(check_memory(c, err));
    VTI_TRY(check_own_memory(c, err));
    for (size_t i = 0; i < c->device_count; i++)
        if (c->devices[i].count) t.total_bytes += count_tensors(c, &c->devices[i]).source_bytes;
    for (size_t i = 0; i < c->device_count; i++)
        if (c->devices[i].count) VTI_TRY(send_weights(c, &c->devices[i], &t, err));
    return collect(c, VTI_MSG_READY, READY_TIMEOUT_MS, "it to load its weights",
                   offsetof(vti_device, ready), offsetof(vti_device, weight_bytes), err);
}
