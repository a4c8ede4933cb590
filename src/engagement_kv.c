/* engagement_kv.c: rows of a worker's KV cache on their way into a session file and back. */
#include <inttypes.h>
#include <string.h>

#include "engagement.h"

static vt_status send_chunk(vti_engagement *e, const vti_kv_cache *cache,
                            const vti_kv_chunk *chunk, vt_error *err)
{
    uint8_t slot[VTI_WIRE_SLOT_BYTES];
    vti_frame_header header = {.type = VTI_MSG_KV, .epoch = e->epoch};
    vti_kv_message(&e->assignment.hparams, chunk, &header, slot);
    vti_net_part parts[] = {{slot, sizeof slot},
                            {vti_kv_chunk_rows(cache, chunk), chunk->rows * cache->row_bytes}};
    return vti_engagement_send(e, e->main, &header, parts, 2, err);
}

static vt_status on_get(vti_engagement *e, const vti_frame_header *h, vt_error *err)
{
    const vti_kv_cache *cache = vti_stage_cache(e->stage);
    vti_kv_shape shape = {&e->assignment.hparams, h->unit, 1, h->token_count, cache->row_bytes};
    vti_kv_chunk chunk = {0};
    if (e->arriving_kv.layers || shape.end > e->end ||
        vti_kv_cache_resume(cache, shape.end) != shape.end)
        return vti_fail(err, VT_ERR_PROTOCOL, "the KV cache does not have the rows asked for");
    while (vti_kv_next_chunk(&shape, &chunk)) VTI_TRY(send_chunk(e, cache, &chunk, err));
    return VT_OK;
}

/* Expects the next piece, or says that all are there. */
static vt_status await_chunk(vti_engagement *e, vt_error *err)
{
    if (vti_kv_next_chunk(&e->arriving_kv, &e->next_chunk)) return VT_OK;
    e->end = e->arriving_kv.end;
    e->arriving_kv.layers = 0;
    vti_frame_header header = {.type = VTI_MSG_KV_OK, .epoch = e->epoch};
    return vti_engagement_send(e, e->main, &header, NULL, 0, err);
}

static vt_status on_put(vti_engagement *e, const vti_frame_header *h, vt_error *err)
{
    vti_kv_cache *cache = vti_stage_cache(e->stage);
    const vti_assignment *a = &e->assignment;
    if (e->end || e->arriving_kv.layers)
        return vti_fail(err, VT_ERR_PROTOCOL, "a KV cache came into a session that has begun");
    e->arriving_kv =
        (vti_kv_shape){&a->hparams, a->first, a->count, h->token_count, cache->row_bytes};
    e->next_chunk = (vti_kv_chunk){0};
    vti_kv_cache_restore(cache, h->token_count);
    return await_chunk(e, err);
}

static vt_status on_rows(vti_engagement *e, const vti_net_event *event, vt_error *err)
{
    if (!e->arriving_kv.layers ||
        !vti_kv_message_is(&e->arriving_kv, &e->next_chunk, &event->header, event->payload))
        return vti_fail(err, VT_ERR_PROTOCOL, "a part of a KV cache came out of order");
    memcpy(vti_kv_chunk_rows(vti_stage_cache(e->stage), &e->next_chunk),
           event->payload + VTI_WIRE_SLOT_BYTES, event->header.message_bytes - VTI_WIRE_SLOT_BYTES);
    return await_chunk(e, err);
}

vt_status vti_engagement_kv(vti_engagement *e, vti_net_event *event, vt_error *err)
{
    const vti_frame_header *h = &event->header;
    if (!e->stage || h->epoch != e->epoch || h->token_count > e->session.context_tokens ||
        event->peer != e->main)
        return vti_fail(err, VT_ERR_PROTOCOL, "a part of a KV cache does not fit the session");
    if (h->type == VTI_MSG_KV_GET) return on_get(e, h, err);
    if (h->type == VTI_MSG_KV_PUT) return on_put(e, h, err);
    return on_rows(e, event, err);
}
