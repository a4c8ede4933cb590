#include "wire.h"

#include <string.h>

/* The residual stream and weights travel as the bytes they are in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "Voltron needs a little-endian machine");

void vti_write_bytes(vti_writer *w, const void *data, size_t bytes)
{
    if (w->failed || bytes > w->capacity - w->bytes) {
        w->failed = true;
        return;
    }
    memcpy(w->data + w->bytes, data, bytes);
    w->bytes += bytes;
}

static void write_le(vti_writer *w, uint64_t value, size_t bytes)
{
    uint8_t le[8];
    for (size_t i = 0; i < bytes; i++) le[i] = (uint8_t)(value >> (8 * i));
    vti_write_bytes(w, le, bytes);
}

void vti_write_u32(vti_writer *w, uint32_t value) { write_le(w, value, 4); }
void vti_write_u64(vti_writer *w, uint64_t value) { write_le(w, value, 8); }

void vti_read_bytes(vti_reader *r, void *out, size_t bytes)
{
    if (r->failed || bytes > r->bytes - r->at) {
        r->failed = true;
        memset(out, 0, bytes);
        return;
    }
    memcpy(out, r->data + r->at, bytes);
    r->at += bytes;
}

static uint64_t read_le(vti_reader *r, size_t bytes)
{
    uint8_t le[8] = {0};
    uint64_t value = 0;
    vti_read_bytes(r, le, bytes);
    for (size_t i = 0; i < bytes; i++) value |= (uint64_t)le[i] << (8 * i);
    return value;
}

uint32_t vti_read_u32(vti_reader *r) { return (uint32_t)read_le(r, 4); }
uint64_t vti_read_u64(vti_reader *r) { return read_le(r, 8); }

static void write_f32(vti_writer *w, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    vti_write_u32(w, bits);
}

static float read_f32(vti_reader *r)
{
    uint32_t bits = vti_read_u32(r);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A number below `count`, or the reader fails. */
static uint32_t read_enum(vti_reader *r, uint32_t count)
{
    uint32_t value = vti_read_u32(r);
    if (value >= count) {
        r->failed = true;
        return 0;
    }
    return value;
}

static bool finished(const vti_reader *r) { return !r->failed && r->at == r->bytes; }

/* The numbers of hparams that travel as they are, in this order. */
#define HPARAMS_U32(X, p)                                                                          \
    X(p->layers) X(p->d) X(p->heads) X(p->kv_heads) X(p->head_dim) X(p->ff) X(p->vocab)            \
    X(p->context) X(p->rope_dims) X(p->window) X(p->window_period) X(p->experts)                   \
    X(p->experts_used) X(p->expert_ff) X(p->expert_norm) X(p->rope.original_context)
#define HPARAMS_F32(X, p)                                                                          \
    X(p->expert_scale) X(p->rms_eps) X(p->attention_scale) X(p->local_rope_base) X(p->rope.base)   \
    X(p->rope.factor) X(p->rope.beta_fast) X(p->rope.beta_slow) X(p->rope.extrapolation)           \
    X(p->rope.magnitude)

static void write_hparams(vti_writer *w, const vti_hparams *p)
{
    vti_write_u32(w, (uint32_t)p->arch);
    vti_write_u32(w, (uint32_t)p->rope.scaling);
#define X(field) vti_write_u32(w, field);
    HPARAMS_U32(X, p)
#undef X
#define X(field) write_f32(w, field);
    HPARAMS_F32(X, p)
#undef X
}

static void read_hparams(vti_reader *r, vti_hparams *p)
{
    p->arch = (vti_arch)read_enum(r, VTI_ARCH_COUNT);
    p->rope.scaling = (vti_rope_scaling)read_enum(r, VTI_ROPE_SCALING_COUNT);
#define X(field) field = vti_read_u32(r);
    HPARAMS_U32(X, p)
#undef X
#define X(field) field = read_f32(r);
    HPARAMS_F32(X, p)
#undef X
}

bool vti_encode_assignment(vti_writer *w, const vti_assignment *a)
{
    write_hparams(w, &a->hparams);
    vti_write_bytes(w, a->identity.shape, sizeof a->identity.shape);
    vti_write_bytes(w, a->identity.weights, sizeof a->identity.weights);
    vti_write_bytes(w, a->stamp.bytes, sizeof a->stamp.bytes);
    vti_write_u32(w, a->first);
    vti_write_u32(w, a->count);
    vti_write_u32(w, a->hop);
    vti_write_u32(w, a->quantised);
    size_t length = strlen(a->next);
    vti_write_u32(w, (uint32_t)length);
    vti_write_bytes(w, a->next, length);
    return !w->failed;
}

bool vti_decode_assignment(const uint8_t *data, size_t bytes, vti_assignment *out)
{
    vti_reader r = {data, bytes, 0, false};
    memset(out, 0, sizeof *out);
    read_hparams(&r, &out->hparams);
    vti_read_bytes(&r, out->identity.shape, sizeof out->identity.shape);
    vti_read_bytes(&r, out->identity.weights, sizeof out->identity.weights);
    vti_read_bytes(&r, out->stamp.bytes, sizeof out->stamp.bytes);
    out->first = vti_read_u32(&r);
    out->count = vti_read_u32(&r);
    out->hop = vti_read_u32(&r);
    out->quantised = read_enum(&r, 2);
    uint32_t length = read_enum(&r, VTI_WIRE_ADDRESS_MAX + 1);
    vti_read_bytes(&r, out->next, length);
    return finished(&r) && strlen(out->next) == length;
}

bool vti_encode_offer(vti_writer *w, const vti_offer *offer)
{
    uint8_t profile[VTI_PROFILE_WIRE_BYTES];
    vti_write_u64(w, offer->memory_bytes);
    vti_write_u32(w, offer->page_bytes);
    vti_write_u32(w, offer->has_profile);
    if (!offer->has_profile) return !w->failed;
    vti_profile_encode(&offer->profile, profile);
    vti_write_bytes(w, profile, sizeof profile);
    return !w->failed;
}

bool vti_decode_offer(const uint8_t *data, size_t bytes, vti_offer *out)
{
    uint8_t profile[VTI_PROFILE_WIRE_BYTES];
    vti_reader r = {data, bytes, 0, false};
    memset(out, 0, sizeof *out);
    out->memory_bytes = vti_read_u64(&r);
    out->page_bytes = vti_read_u32(&r);
    out->has_profile = read_enum(&r, 2);
    if (out->page_bytes < 1 || out->page_bytes > VTI_WIRE_PAGE_MAX ||
        (out->page_bytes & (out->page_bytes - 1)))
        return false;
    if (!out->has_profile) return finished(&r);
    vti_read_bytes(&r, profile, sizeof profile);
    return finished(&r) && vti_profile_decode(profile, &out->profile);
}

bool vti_encode_session(vti_writer *w, const vti_session_request *s)
{
    vti_write_u32(w, s->context_tokens);
    vti_write_u32(w, s->batch_tokens);
    vti_write_u32(w, (uint32_t)s->kv_type);
    return !w->failed;
}

bool vti_decode_session(const uint8_t *data, size_t bytes, vti_session_request *out)
{
    vti_reader r = {data, bytes, 0, false};
    out->context_tokens = vti_read_u32(&r);
    out->batch_tokens = vti_read_u32(&r);
    out->kv_type = (vt_kv_type)read_enum(&r, VT_KV_Q8 + 1);
    return finished(&r);
}

bool vti_encode_refusal(vti_writer *w, vt_status status, const char *text)
{
    vti_write_u32(w, (uint32_t)status);
    size_t room = w->capacity - w->bytes, length = strlen(text);
    vti_write_bytes(w, text, length < room ? length : room);
    return !w->failed;
}

bool vti_decode_refusal(const uint8_t *data, size_t bytes, vt_error *out)
{
    vti_reader r = {data, bytes, 0, false};
    uint32_t status = vti_read_u32(&r);
    if (r.failed) return false;
    /* Only codes that we know, and never success. */
    out->status = VT_ERR_REMOTE;
#define X(name, number, text)                                                                      \
    if (status == (number) && status != VT_OK) out->status = VT_##name;
    VT_STATUS_MAP(X)
#undef X
    size_t length = bytes - r.at, most = sizeof out->message - 1;
    if (length > most) length = most;
    memcpy(out->message, data + r.at, length);
    out->message[length] = 0;
    vti_make_printable(out->message);
    return true;
}

uint32_t vti_block_part_bytes(uint64_t block_bytes, uint32_t part)
{
    uint64_t offset = (uint64_t)part * VTI_WIRE_BLOCK_MAX;
    if (offset >= block_bytes) return 0;
    uint64_t left = block_bytes - offset;
    return left < VTI_WIRE_BLOCK_MAX ? (uint32_t)left : VTI_WIRE_BLOCK_MAX;
}

uint64_t vti_step_bytes(uint32_t rows, uint32_t d, uint32_t hops)
{
    return (uint64_t)rows * d * sizeof(float) + (uint64_t)hops * VTI_WIRE_BUSY_BYTES;
}

static uint32_t slot_of(const vti_hparams *hparams, const vti_kv_chunk *chunk)
{
    return chunk->half * hparams->kv_heads + chunk->kv_head;
}

void vti_kv_message(const vti_hparams *hparams, const vti_kv_chunk *chunk, vti_frame_header *header,
                    uint8_t slot[VTI_WIRE_SLOT_BYTES])
{
    vti_writer w = {slot, VTI_WIRE_SLOT_BYTES, 0, false};
    header->unit = chunk->layer;
    header->token_begin = chunk->position;
    header->token_count = chunk->rows;
    vti_write_u32(&w, slot_of(hparams, chunk));
}

bool vti_kv_message_is(const vti_kv_shape *shape, const vti_kv_chunk *expected,
                       const vti_frame_header *header, const uint8_t *payload)
{
    vti_reader r = {payload, header->message_bytes, 0, false};
    return header->unit == expected->layer && header->token_begin == expected->position &&
           header->token_count == expected->rows &&
           header->message_bytes == VTI_WIRE_SLOT_BYTES + expected->rows * shape->row_bytes &&
           vti_read_u32(&r) == slot_of(shape->hparams, expected);
}

uint64_t vti_kv_message_bytes(const vti_kv_shape *shape)
{
    return vti_kv_row_bytes(shape) + vti_kv_chunk_count(shape) * VTI_WIRE_SLOT_BYTES;
}

const char *vti_kv_message_admit(const vti_frame_header *header, size_t row_bytes, uint64_t left)
{
    if (header->message_bytes > left) return "more of a KV cache than was announced";
    if (header->token_count < 1 ||
        header->message_bytes != VTI_WIRE_SLOT_BYTES + (uint64_t)header->token_count * row_bytes)
        return "a part of a KV cache of the wrong size";
    return NULL;
}

vt_status vti_from_net_status(vti_net_status status)
{
    switch (status) {
    case VTI_NET_OK: return VT_OK;
    case VTI_NET_ERR_ARGUMENT:
    case VTI_NET_ERR_KEY: return VT_ERR_ARGUMENT;
    case VTI_NET_ERR_MEMORY: return VT_ERR_MEMORY;
    case VTI_NET_ERR_HANDSHAKE:
    case VTI_NET_ERR_PROTOCOL: return VT_ERR_PROTOCOL;
    case VTI_NET_ERR_REMOTE: return VT_ERR_REMOTE;
    case VTI_NET_ERR_TIMEOUT: return VT_ERR_TIMEOUT;
    case VTI_NET_ERR_INTERRUPTED: return VT_ERR_CANCELLED;
    case VTI_NET_ERR_SYSTEM:
    case VTI_NET_ERR_ADDRESS:
    case VTI_NET_ERR_UNREACHABLE:
    case VTI_NET_ERR_LOST:
    case VTI_NET_ERR_GONE:
    case VTI_NET_ERR_FULL: return VT_ERR_NETWORK;
    }
    return VT_ERR_INTERNAL;
}
