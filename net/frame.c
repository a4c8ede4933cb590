#include "frame.h"

#include "bytes.h"

#include <stdlib.h>
#include <string.h>

void vti_frame_encode(uint8_t wire[VTI_FRAME_HEADER_BYTES], const vti_frame_header *header)
{
    put_u32(wire, header->magic);
    wire[4] = header->version;
    wire[5] = header->type;
    put_u16(wire + 6, header->flags);
    put_u32(wire + 8, header->epoch);
    put_u32(wire + 12, header->step);
    put_u32(wire + 16, header->unit);
    put_u32(wire + 20, header->token_begin);
    put_u32(wire + 24, header->token_count);
    put_u32(wire + 28, header->message_bytes);
    put_u32(wire + 32, header->chunk_offset);
    put_u32(wire + 36, header->chunk_bytes);
    put_u64(wire + 40, header->reserved);
}

void vti_frame_decode(vti_frame_header *header, const uint8_t wire[VTI_FRAME_HEADER_BYTES])
{
    header->magic = get_u32(wire);
    header->version = wire[4];
    header->type = wire[5];
    header->flags = get_u16(wire + 6);
    header->epoch = get_u32(wire + 8);
    header->step = get_u32(wire + 12);
    header->unit = get_u32(wire + 16);
    header->token_begin = get_u32(wire + 20);
    header->token_count = get_u32(wire + 24);
    header->message_bytes = get_u32(wire + 28);
    header->chunk_offset = get_u32(wire + 32);
    header->chunk_bytes = get_u32(wire + 36);
    header->reserved = get_u64(wire + 40);
}

static uint32_t full_chunk(uint32_t message_bytes, uint32_t chunk_offset)
{
    uint32_t rest = message_bytes - chunk_offset;
    return rest < VTI_FRAME_CHUNK_MAX ? rest : VTI_FRAME_CHUNK_MAX;
}

void vti_frame_set_chunk(vti_frame_header *header, uint32_t message_bytes, uint32_t chunk_offset)
{
    header->magic = VTI_FRAME_MAGIC;
    header->version = VTI_WIRE_VERSION;
    header->message_bytes = message_bytes;
    header->chunk_offset = chunk_offset;
    header->chunk_bytes = full_chunk(message_bytes, chunk_offset);
    header->reserved = 0;
}

static const char *own_frame_invalid(const vti_frame_header *header)
{
    if (header->flags || header->epoch || header->step || header->unit || header->token_begin ||
        header->token_count)
        return "a field is set that this frame type does not have";
    uint32_t bytes = header->message_bytes;
    switch (header->type) {
    case VTI_FRAME_HEARTBEAT: return bytes > 0 ? "text is too long" : NULL;
    case VTI_FRAME_PING:
    case VTI_FRAME_PONG: return bytes != VTI_FRAME_PING_BYTES ? "ping is not 8 bytes" : NULL;
    case VTI_FRAME_PADDING: return bytes > VTI_FRAME_PADDING_MAX ? "padding is too long" : NULL;
    default: return bytes > VTI_FRAME_TEXT_MAX ? "text is too long" : NULL;
    }
}

const char *vti_frame_invalid(const vti_frame_header *header)
{
    if (header->magic != VTI_FRAME_MAGIC) return "wrong magic number";
    if (header->version != VTI_WIRE_VERSION) return "wrong version";
    if (header->type == 0 || (header->type > VTI_FRAME_PADDING && header->type < VTI_FRAME_USER))
        return "unknown frame type";
    if (header->reserved != 0) return "reserved bytes are not zero";
    if (header->message_bytes > VTI_FRAME_MESSAGE_MAX) return "message is too large";
    if (header->chunk_offset > header->message_bytes) return "chunk begins past the message";
    if (header->chunk_offset == header->message_bytes && header->message_bytes > 0)
        return "chunk begins at the end of the message";
    if (header->chunk_offset % VTI_FRAME_CHUNK_MAX != 0) return "chunk offset is not a whole chunk";
    if (header->chunk_bytes != full_chunk(header->message_bytes, header->chunk_offset))
        return "chunk is not as long as it should be";
    if (header->token_count > UINT32_MAX - header->token_begin) return "token range overflows";
    if (header->type < VTI_FRAME_USER) return own_frame_invalid(header);
    return NULL;
}

static bool fail(vti_frame_parser *parser, const char *reason)
{
    parser->reason = reason;
    return false;
}

static uint8_t *allocate_payload(uint32_t bytes)
{
    return aligned_alloc(64, (bytes + 63u) & ~(size_t)63u);
}

static bool begin_message(vti_frame_parser *parser)
{
    const vti_frame_header *chunk = &parser->chunk;
    if (chunk->chunk_offset != 0)
        return fail(parser, "a chunk without the beginning of its message");
    const char *refusal = parser->admit ? parser->admit(parser->user, chunk) : NULL;
    if (refusal) {
        parser->refused = true;
        return fail(parser, refusal);
    }
    parser->message = (vti_frame_message){ .header = *chunk };
    if (chunk->message_bytes > 0) {
        parser->message.payload = allocate_payload(chunk->message_bytes);
        if (!parser->message.payload) return fail(parser, "no memory for a message");
    }
    parser->message_done_bytes = 0;
    parser->in_message = true;
    return true;
}

static bool continues_message(const vti_frame_parser *parser)
{
    vti_frame_header expected = parser->message.header;
    vti_frame_set_chunk(&expected, expected.message_bytes, parser->message_done_bytes);
    return memcmp(&expected, &parser->chunk, sizeof expected) == 0;
}

static bool begin_chunk(vti_frame_parser *parser)
{
    vti_frame_decode(&parser->chunk, parser->wire);
    parser->wire_bytes = 0;
    const char *reason = vti_frame_invalid(&parser->chunk);
    if (reason) return fail(parser, reason);
    if (parser->chunk.type >= VTI_FRAME_USER) {
        if (!parser->in_message) {
            if (!begin_message(parser)) return false;
        } else if (!continues_message(parser)) {
            return fail(parser, "a chunk that does not continue the message under way");
        }
    }
    parser->chunk_done_bytes = 0;
    parser->in_chunk = true;
    return true;
}

/* To nowhere, if `to` is NULL. */
static size_t take(uint8_t *to, uint32_t *have, uint32_t want, const uint8_t *bytes, size_t size)
{
    size_t count = want - *have;
    if (count > size) count = size;
    if (count > 0 && to) memcpy(to + *have, bytes, count);
    *have += (uint32_t)count;
    return count;
}

/* Where the payload of this frame goes; NULL: nowhere. */
static uint8_t *place(vti_frame_parser *parser)
{
    if (parser->chunk.type == VTI_FRAME_PADDING) return NULL;
    if (parser->chunk.type < VTI_FRAME_USER) return parser->text;
    uint8_t *payload = parser->message.payload;
    return payload ? payload + parser->chunk.chunk_offset : NULL;
}

/* The frame is complete: fills *out if its message is, too. */
static bool finish_chunk(vti_frame_parser *parser, vti_frame_message *out)
{
    const vti_frame_header *chunk = &parser->chunk;
    parser->in_chunk = false;
    if (chunk->type >= VTI_FRAME_USER) {
        parser->message_done_bytes += chunk->chunk_bytes;
        if (parser->message_done_bytes < chunk->message_bytes) return false;
        *out = parser->message;
        parser->message.payload = NULL;
        parser->in_message = false;
        return true;
    }
    if (chunk->type == VTI_FRAME_PADDING) {
        parser->padding_bytes += VTI_FRAME_HEADER_BYTES + chunk->chunk_bytes;
        return false;
    }
    *out = (vti_frame_message){ .header = *chunk };
    if (chunk->message_bytes == 0) return true;
    out->payload = allocate_payload(chunk->message_bytes);
    if (!out->payload) return fail(parser, "no memory for a message");
    memcpy(out->payload, parser->text, chunk->message_bytes);
    return true;
}

vti_frame_result vti_frame_feed(vti_frame_parser *parser, const uint8_t *bytes, size_t size,
                                size_t *used, vti_frame_message *out)
{
    *used = 0;
    while (!parser->reason) {
        if (!parser->in_chunk) {
            *used += take(parser->wire, &parser->wire_bytes, VTI_FRAME_HEADER_BYTES, bytes + *used,
                          size - *used);
            if (parser->wire_bytes < VTI_FRAME_HEADER_BYTES) return VTI_FRAME_MORE;
            if (!begin_chunk(parser)) break;
        }
        *used += take(place(parser), &parser->chunk_done_bytes, parser->chunk.chunk_bytes,
                      bytes + *used, size - *used);
        if (parser->chunk_done_bytes < parser->chunk.chunk_bytes) return VTI_FRAME_MORE;
        if (finish_chunk(parser, out)) return VTI_FRAME_MESSAGE;
    }
    return VTI_FRAME_FAILED;
}

void vti_frame_parser_clear(vti_frame_parser *parser)
{
    free(parser->message.payload);
    *parser = (vti_frame_parser){ .reason = "closed" };
}
