/* fuzz_frame.c: any bytes as what a peer sends. Byte 0 chooses how far it got, byte 1 how the
 * stream is cut; the rest is the stream. What comes out must not depend on the cuts. */
#include "../../net/channel.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef enum fuzz_mode {
    FUZZ_FRAMES,     /* frames alone */
    FUZZ_CONNECTED,  /* to a connecting side without a key */
    FUZZ_LISTENING,  /* to a listening side without a key */
    FUZZ_KEYED,      /* to a listening side with a key */
    FUZZ_SEALED,     /* after a keyed handshake; the bytes are sealed as a peer would */
    FUZZ_RECORDS,    /* after a keyed handshake, as they are */
    FUZZ_MODES,
} fuzz_mode;

/* Everything the receiving side did, in short. */
typedef struct fuzz_trace {
    uint64_t hash;
    size_t messages;
    bool failed;
} fuzz_trace;

static void fuzz_mix(fuzz_trace *trace, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    for (size_t i = 0; i < size; i++) trace->hash = (trace->hash ^ from[i]) * 1099511628211u;
}

static void fuzz_take(fuzz_trace *trace, vti_frame_message *message)
{
    if (vti_frame_invalid(&message->header) && message->header.chunk_offset == 0) abort();
    if (message->header.message_bytes > 0 && !message->payload) abort();
    fuzz_mix(trace, &message->header, sizeof message->header);
    fuzz_mix(trace, message->payload, message->header.message_bytes);
    free(message->payload);
    trace->messages++;
}

static const char *fuzz_admit(void *user, const vti_frame_header *header)
{
    (void)user;
    return header->message_bytes > 300000 ? "too large for a fuzzer" : NULL;
}

static size_t fuzz_cut(uint8_t cuts, size_t left, size_t round)
{
    size_t piece = cuts == 0 ? left : 1 + (cuts * (round + 1)) % 97;
    return piece < left ? piece : left;
}

static fuzz_trace fuzz_frames(const uint8_t *stream, size_t size, uint8_t cuts)
{
    fuzz_trace trace = { .hash = 14695981039346656037u };
    vti_frame_parser parser = { .admit = fuzz_admit };
    for (size_t at = 0, round = 0; at < size && !trace.failed; round++) {
        size_t end = at + fuzz_cut(cuts, size - at, round);
        for (;;) {
            vti_frame_message message;
            size_t used;
            vti_frame_result result = vti_frame_feed(&parser, stream + at, end - at, &used,
                                                     &message);
            if (used > end - at || (result == VTI_FRAME_MORE && used < end - at)) abort();
            at += used;
            if (result == VTI_FRAME_MESSAGE) fuzz_take(&trace, &message);
            trace.failed = result == VTI_FRAME_FAILED;
            if (result != VTI_FRAME_MESSAGE) break;
        }
    }
    if (trace.failed != (parser.reason != NULL)) abort();
    vti_frame_parser_clear(&parser);
    return trace;
}

static fuzz_trace fuzz_channel(vti_channel *channel, const uint8_t *stream, size_t size,
                               uint8_t cuts)
{
    fuzz_trace trace = { .hash = 14695981039346656037u };
    for (size_t at = 0, round = 0; at < size && !trace.failed; round++) {
        size_t end = at + fuzz_cut(cuts, size - at, round);
        for (;;) {
            vti_frame_message message;
            size_t used;
            vti_channel_result result = vti_channel_feed(channel, stream + at, end - at, &used,
                                                         &message);
            if (used > end - at || (result == VTI_CHANNEL_MORE && used < end - at)) abort();
            at += used;
            fuzz_mix(&trace, channel->handshake.output, channel->handshake.output_bytes);
            channel->handshake.output_bytes = 0;
            if (result == VTI_CHANNEL_MESSAGE) fuzz_take(&trace, &message);
            trace.failed = result == VTI_CHANNEL_FAILED;
            if (result == VTI_CHANNEL_FAILED || result == VTI_CHANNEL_MORE) break;
        }
    }
    if (trace.failed) fuzz_mix(&trace, channel->reason, strlen(channel->reason));
    if (trace.failed && (channel->status == VTI_NET_OK || !channel->reason[0])) abort();
    vti_channel_clear(channel);
    return trace;
}

/* Two channels with the same key after their handshake. */
static void fuzz_join(vti_channel *ours, vti_channel *theirs)
{
    static const vti_net_key key = { "one cluster key for the fuzzers" };
    static const vti_handshake_secret one = { "initiator secret initiator secr" };
    static const vti_handshake_secret two = { "responder secret responder secr" };
    vti_channel_start(theirs, true, &key, &one, NULL, NULL);
    vti_channel_start(ours, false, &key, &two, fuzz_admit, NULL);
    for (int i = 0; i < 4; i++) {
        vti_channel *from = i % 2 ? ours : theirs, *to = i % 2 ? theirs : ours;
        vti_frame_message message;
        size_t used, size = from->handshake.output_bytes;
        from->handshake.output_bytes = 0;
        vti_channel_feed(to, from->handshake.output, size, &used, &message);
    }
    if (!ours->ready || !theirs->ready) abort();
}

/* Records of 1 to 97 bytes around the stream; malloc'd. */
static uint8_t *fuzz_seal(vti_channel *theirs, const uint8_t *stream, size_t size, uint8_t cuts,
                          size_t *sealed_bytes)
{
    uint8_t *sealed = malloc(size * 24 + 1);
    *sealed_bytes = 0;
    for (size_t at = 0, round = 0; at < size; round++) {
        size_t piece = fuzz_cut(cuts | 1, size - at, round);
        uint8_t *record = sealed + *sealed_bytes;
        memcpy(record + VTI_RECORD_PREFIX_BYTES, stream + at, piece);
        *sealed_bytes += vti_record_seal(&theirs->sealer, record, piece);
        at += piece;
    }
    return sealed;
}

static fuzz_trace fuzz_run(fuzz_mode mode, const uint8_t *stream, size_t size, uint8_t cuts)
{
    static const vti_net_key key = { "one cluster key for the fuzzers" };
    static const vti_handshake_secret secret = { "responder secret responder secr" };
    vti_channel channel, theirs;
    if (mode == FUZZ_FRAMES) return fuzz_frames(stream, size, cuts);
    if (mode < FUZZ_SEALED) {
        vti_channel_start(&channel, mode == FUZZ_CONNECTED, mode == FUZZ_KEYED ? &key : NULL,
                          &secret, fuzz_admit, NULL);
        return fuzz_channel(&channel, stream, size, cuts);
    }
    fuzz_join(&channel, &theirs);
    size_t sealed_bytes = size;
    uint8_t *sealed = NULL;
    if (mode == FUZZ_SEALED) sealed = fuzz_seal(&theirs, stream, size, 31, &sealed_bytes);
    fuzz_trace trace = fuzz_channel(&channel, sealed ? sealed : stream, sealed_bytes, cuts);
    free(sealed);
    vti_channel_clear(&theirs);
    return trace;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2 || sodium_init() < 0) return 0;
    size_t size = bytes - 2;
    uint8_t *stream = malloc(size ? size : 1); /* exact, so that ASan sees a read past it */
    if (size > 0) memcpy(stream, data + 2, size);
    fuzz_trace whole = fuzz_run((fuzz_mode)(data[0] % FUZZ_MODES), stream, size, 0);
    fuzz_trace cut = fuzz_run((fuzz_mode)(data[0] % FUZZ_MODES), stream, size, data[1] | 1);
    if (whole.hash != cut.hash || whole.messages != cut.messages || whole.failed != cut.failed)
        abort();
    free(stream);
    return 0;
}
