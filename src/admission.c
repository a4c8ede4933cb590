/* admission.c: which headers a worker lets in, given what it is doing. */
#include "engagement.h"

#include <stdlib.h>

static const char *check_size(const vti_frame_header *h, uint32_t least, uint32_t most)
{
    return h->message_bytes >= least && h->message_bytes <= most ? NULL
                                                                 : "a message of the wrong size";
}

/* A header that moves the phase on if its size is right. */
static const char *advance(vti_admission *a, const vti_frame_header *h, uint32_t least,
                           uint32_t most, vti_phase next)
{
    const char *reason = check_size(h, least, most);
    if (!reason) a->phase = next;
    return reason;
}

/* Parts of a KV cache, to and from a session file. */
static const char *check_kv(vti_admission *a, const vti_frame_header *h)
{
    if (a->phase != VTI_PHASE_SESSION || h->epoch != a->epoch)
        return "a part of a KV cache at the wrong time";
    if (h->type == VTI_MSG_KV) {
        const char *reason = vti_kv_message_admit(h, a->row_bytes, a->kv_left);
        if (!reason) a->kv_left -= h->message_bytes;
        return reason;
    }
    bool put = h->type == VTI_MSG_KV_PUT;
    if (put ? a->end > 0 || a->next_step > 0 || h->token_count > a->context
            : h->token_count > a->end || h->unit < a->first || h->unit - a->first >= a->layers)
        return "a KV cache that this session cannot have";
    if (put) {
        vti_kv_shape shape = {&a->hparams, a->first, a->layers, h->token_count, a->row_bytes};
        a->kv_left = vti_kv_message_bytes(&shape);
        a->end = h->token_count;
    }
    return check_size(h, 0, 0);
}

bool vti_admission_order(vti_admission *a, uint32_t index, uint64_t bytes)
{
    pthread_mutex_lock(&a->lock);
    if (a->order_count == a->order_capacity) {
        size_t capacity = a->order_capacity ? 2 * a->order_capacity : 256;
        vti_block_order *more = realloc(a->orders, capacity * sizeof *more);
        if (more) a->orders = more;
        if (more) a->order_capacity = capacity;
    }
    bool fits = a->order_count < a->order_capacity;
    if (fits) a->orders[a->order_count++] = (vti_block_order){index, bytes};
    pthread_mutex_unlock(&a->lock);
    return fits;
}

void vti_admission_forget_orders(vti_admission *a)
{
    pthread_mutex_lock(&a->lock);
    free(a->orders);
    a->orders = NULL;
    a->order_count = a->order_capacity = a->orders_done = 0;
    a->next_part = 0;
    a->manifest_bytes = 0;
    pthread_mutex_unlock(&a->lock);
}

/* Exactly the next part of the next block that was asked for. */
static const char *check_block(vti_admission *a, const vti_frame_header *h)
{
    if (a->phase != VTI_PHASE_LOADING) return "weights at the wrong time";
    if (a->orders_done == a->order_count) return "weights that nobody asked for";
    const vti_block_order *order = &a->orders[a->orders_done];
    if (h->unit != order->index || h->step != a->next_part) return "weights out of order";
    if (h->message_bytes != vti_block_part_bytes(order->bytes, a->next_part))
        return "weights of the wrong size";
    a->next_part++;
    if (vti_block_part_bytes(order->bytes, a->next_part)) return NULL;
    a->orders_done++;
    a->next_part = 0;
    return NULL;
}

static const char *check_main(vti_admission *a, const vti_frame_header *h)
{
    switch ((int)h->type) {
    case VTI_MSG_ASSIGN:
        if (a->phase != VTI_PHASE_CLAIMED) return "an assignment at the wrong time";
        return advance(a, h, 1, VTI_WIRE_SMALL_MAX, VTI_PHASE_ASSIGNED);
    case VTI_MSG_MANIFEST:
        if (a->phase != VTI_PHASE_ASSIGNED || !a->manifest_bytes)
            return "a list of shards at the wrong time";
        return advance(a, h, (uint32_t)a->manifest_bytes, (uint32_t)a->manifest_bytes,
                       VTI_PHASE_LOADING);
    case VTI_MSG_BLOCK: return check_block(a, h);
    case VTI_MSG_SESSION:
        if (a->phase != VTI_PHASE_READY) return "a session at the wrong time";
        return check_size(h, 1, VTI_WIRE_SMALL_MAX);
    case VTI_MSG_SESSION_END:
        if (a->phase != VTI_PHASE_READY && a->phase != VTI_PHASE_SESSION)
            return "an end of a session at the wrong time";
        a->ends++;
        return advance(a, h, 0, 0, VTI_PHASE_READY);
    case VTI_MSG_KV_GET:
    case VTI_MSG_KV_PUT:
    case VTI_MSG_KV: return check_kv(a, h);
    default: return "a message of a type that a main device does not send";
    }
}

static const char *check_step(vti_admission *a, const vti_frame_header *h)
{
    /* A session that was asked for but not yet opened has an epoch that we do not know. */
    if (h->epoch > a->epoch) return "a step of a session that has not begun";
    /* Left over from a session that was broken off: dropped when it is handled. */
    if (h->epoch < a->epoch || a->phase != VTI_PHASE_SESSION)
        return h->message_bytes <= a->largest_step_bytes ? NULL : "a late step of the wrong size";
    if (h->step != a->next_step) return "a step out of order";
    if (h->unit != a->first) return "a step for layers that are not here";
    if (h->token_count < 1 || h->token_count > a->batch)
        return "a step with no tokens or too many";
    if (h->token_begin > a->end || h->token_count > a->context - h->token_begin)
        return "a step at a position that is not next";
    if (h->message_bytes != vti_step_bytes(h->token_count, a->d, a->hop))
        return "a step of the wrong size";
    a->next_step++;
    a->end = h->token_begin + h->token_count;
    return NULL;
}

static const char *check_locked(vti_admission *a, vti_net_peer peer, const vti_frame_header *h)
{
    if (a->engaged && h->type == VTI_MSG_STEP && peer == a->source) return check_step(a, h);
    if (a->engaged && peer == a->main) return check_main(a, h);
    /* Everybody else may introduce itself, and the device after us may answer that. */
    if (h->type == VTI_MSG_CLAIM || h->type == VTI_MSG_LINK)
        return check_size(h, VTI_CLUSTER_ID_BYTES, VTI_CLUSTER_ID_BYTES);
    if (h->type == VTI_MSG_LINKED) return check_size(h, 0, 0);
    return "a message before the claim";
}

const char *vti_admission_check(vti_admission *admission, vti_net_peer peer,
                                const vti_frame_header *header)
{
    pthread_mutex_lock(&admission->lock);
    const char *reason = check_locked(admission, peer, header);
    pthread_mutex_unlock(&admission->lock);
    return reason;
}
