#include "shard_block.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "little_endian.h"

/* docs/decisions.md has the measurements behind these. */
enum {
    LEVEL_PACKED = 1, LEVEL_RAW = -1, /* the second has no entropy coding: decoding is copying */
    LEAST_SAVING = 16, /* a frame is packed if that saves at least one byte of so many */
    MIN_MATCH = 7, HASH_LOG = 10, /* weights hardly repeat: look for repetitions, but quickly */
    STRETCH_BYTES = 2 * VTI_FRAME_BYTES,
    FRAME_BOUND = ZSTD_COMPRESSBOUND(VTI_FRAME_BYTES),
    INPUT_BYTES = 3 * FRAME_BOUND
};

/* --- hashes ------------------------------------------------------------------------------------ */

static void hash_as(const char *person, const void *data, uint64_t bytes, uint8_t *hash)
{
    static const unsigned char salt[crypto_generichash_blake2b_SALTBYTES];
    unsigned char personal[crypto_generichash_blake2b_PERSONALBYTES] = {0};
    memcpy(personal, person, strlen(person));
    int ready = sodium_init(); /* chooses the fastest implementation; works without */
    (void)ready;
    crypto_generichash_blake2b_salt_personal(hash, VTI_SHARD_HASH_BYTES, data, bytes, NULL, 0, salt,
                                             personal);
}

void vti_shard_hash(const void *data, uint64_t bytes, uint8_t hash[VTI_SHARD_HASH_BYTES])
{
    _Static_assert(VTI_LAYOUT_VERSION == 1, "the layout's version is part of the name below");
    hash_as("voltron shard 1", data, bytes, hash);
}

void vti_stored_hash(const void *data, uint64_t bytes, uint8_t hash[VTI_SHARD_HASH_BYTES])
{
    hash_as("voltron stored 1", data, bytes, hash);
}

/* --- geometry of a block ----------------------------------------------------------------------- */

/* Low and high bytes apart? */
static bool is_split(const vti_placed_piece *piece)
{
    return piece->type == VTI_F16 || piece->type == VTI_BF16;
}

/* Content of the frame that `left` bytes of a piece begin with. */
static size_t frame_content(uint64_t left, bool split)
{
    uint64_t content = split ? left / 2 : left;
    return content < VTI_FRAME_BYTES ? (size_t)content : VTI_FRAME_BYTES;
}

uint64_t vti_block_bound(const vti_shard_layout *layout)
{
    uint64_t frames = 0;
    for (unsigned i = 0; i < VTI_PIECES; i++)
        frames += layout->at[i].bytes / VTI_FRAME_BYTES + 2;
    return frames * FRAME_BOUND;
}

uint64_t vti_block_least(const vti_shard_layout *layout)
{
    enum { LEAST_FRAME_BYTES = 14 }; /* header 6, one block of one repeated byte 4, checksum 4 */
    uint64_t frames = 0;
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        bool split = is_split(&layout->at[i]);
        uint64_t step = split ? STRETCH_BYTES : VTI_FRAME_BYTES;
        frames += (layout->at[i].bytes + step - 1) / step * (split ? 2 : 1);
    }
    return frames * LEAST_FRAME_BYTES;
}

/* --- encoding ---------------------------------------------------------------------------------- */

struct vti_block_encoder {
    ZSTD_CCtx *zstd;
    unsigned char planes[2][VTI_FRAME_BYTES];
};

vti_block_encoder *vti_block_encoder_open(void)
{
    vti_block_encoder *e = malloc(sizeof *e);
    if (!e) return NULL;
    e->zstd = ZSTD_createCCtx();
    if (e->zstd) return e;
    free(e);
    return NULL;
}

void vti_block_encoder_close(vti_block_encoder *e)
{
    if (!e) return;
    ZSTD_freeCCtx(e->zstd);
    free(e);
}

static size_t encode_at(ZSTD_CCtx *zstd, int level, const void *content, size_t bytes, void *out)
{
    ZSTD_CCtx_reset(zstd, ZSTD_reset_session_and_parameters);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_minMatch, MIN_MATCH);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_hashLog, HASH_LOG);
    return ZSTD_compress2(zstd, out, FRAME_BOUND, content, bytes);
}

static vt_status encode_frame(vti_block_encoder *e, const void *content, size_t bytes,
                              unsigned char *block, uint64_t *at, vt_error *err)
{
    size_t packed = encode_at(e->zstd, LEVEL_PACKED, content, bytes, block + *at);
    if (!ZSTD_isError(packed) && packed > bytes - bytes / LEAST_SAVING)
        packed = encode_at(e->zstd, LEVEL_RAW, content, bytes, block + *at);
    if (ZSTD_isError(packed))
        return vti_fail(err, VT_ERR_MEMORY, "zstd: %s", ZSTD_getErrorName(packed));
    *at += packed;
    return VT_OK;
}

static void split_planes(unsigned char *restrict low, unsigned char *restrict high,
                         const unsigned char *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        low[i] = from[2 * i];
        high[i] = from[2 * i + 1];
    }
}

static vt_status encode_piece(vti_block_encoder *e, const vti_placed_piece *piece,
                              const unsigned char *from, unsigned char *block, uint64_t *at,
                              vt_error *err)
{
    bool split = is_split(piece);
    for (uint64_t done = 0; done < piece->bytes;) {
        size_t content = frame_content(piece->bytes - done, split);
        if (split) {
            split_planes(e->planes[0], e->planes[1], from + done, content);
            for (int i = 0; i < 2; i++)
                VTI_TRY(encode_frame(e, e->planes[i], content, block, at, err));
        } else {
            VTI_TRY(encode_frame(e, from + done, content, block, at, err));
        }
        done += split ? 2 * content : content;
    }
    return VT_OK;
}

vt_status vti_block_encode(vti_block_encoder *e, const vti_shard_layout *layout, const void *memory,
                           void *block, uint64_t *block_bytes, vt_error *err)
{
    *block_bytes = 0;
    for (unsigned i = 0; i < VTI_PIECES; i++)
        VTI_TRY(encode_piece(e, &layout->at[i],
                             (const unsigned char *)memory + layout->at[i].offset, block,
                             block_bytes, err));
    return VT_OK;
}

/* --- decoding ---------------------------------------------------------------------------------- */

struct vti_block_decoder {
    ZSTD_DCtx *zstd;
    /* Stored bytes not decoded yet, and where more come from. */
    const unsigned char *at;
    size_t have;
    uint64_t left;
    vti_block_read_fn *read;
    void *context;
    unsigned char planes[2][VTI_FRAME_BYTES];
    unsigned char input[INPUT_BYTES];
};

vti_block_decoder *vti_block_decoder_open(void)
{
    vti_block_decoder *d = malloc(sizeof *d);
    if (!d) return NULL;
    d->zstd = ZSTD_createDCtx();
    if (d->zstd) return d;
    free(d);
    return NULL;
}

void vti_block_decoder_close(vti_block_decoder *d)
{
    if (!d) return;
    ZSTD_freeDCtx(d->zstd);
    free(d);
}

/* Has at least one whole frame at hand, if the block has. */
static vt_status refill(vti_block_decoder *d, vt_error *err)
{
    if (!d->left || d->have >= FRAME_BOUND) return VT_OK;
    memmove(d->input, d->at, d->have);
    d->at = d->input;
    size_t room = sizeof d->input - d->have;
    size_t more = d->left < room ? (size_t)d->left : room;
    VTI_TRY(d->read(d->context, d->input + d->have, more, err));
    d->have += more;
    d->left -= more;
    return VT_OK;
}

/* A frame as the encoder makes them: content size and checksum given, no dictionary, no bit that
 * decoders would ignore. */
static bool is_our_frame(const unsigned char *frame, size_t bytes, size_t content)
{
    enum { DESCRIPTOR = 4, DESCRIPTOR_MASK = 0x3f, SINGLE_SEGMENT_AND_CHECKSUM = 0x24 };
    return bytes > DESCRIPTOR && vti_load_u32(frame) == ZSTD_MAGICNUMBER &&
           (frame[DESCRIPTOR] & DESCRIPTOR_MASK) == SINGLE_SEGMENT_AND_CHECKSUM &&
           ZSTD_getFrameContentSize(frame, bytes) == content;
}

static vt_status decode_frame(vti_block_decoder *d, void *out, size_t content, vt_error *err)
{
    VTI_TRY(refill(d, err));
    if (!is_our_frame(d->at, d->have, content))
        return vti_fail(err, VT_ERR_FORMAT, "no frame of %zu bytes where one is due", content);
    size_t bytes = ZSTD_findFrameCompressedSize(d->at, d->have);
    size_t got = ZSTD_isError(bytes) ? bytes
                                     : ZSTD_decompressDCtx(d->zstd, out, content, d->at, bytes);
    if (ZSTD_isError(got)) return vti_fail(err, VT_ERR_FORMAT, "%s", ZSTD_getErrorName(got));
    if (got != content)
        return vti_fail(err, VT_ERR_FORMAT, "a frame has %zu bytes, expected %zu", got, content);
    d->at += bytes;
    d->have -= bytes;
    return VT_OK;
}

static void join_planes(unsigned char *restrict to, const unsigned char *restrict low,
                        const unsigned char *restrict high, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[2 * i] = low[i];
        to[2 * i + 1] = high[i];
    }
}

static vt_status decode_piece(vti_block_decoder *d, const vti_placed_piece *piece,
                              unsigned char *to, vt_error *err)
{
    bool split = is_split(piece);
    for (uint64_t done = 0; done < piece->bytes;) {
        size_t content = frame_content(piece->bytes - done, split);
        if (split) {
            for (int i = 0; i < 2; i++) VTI_TRY(decode_frame(d, d->planes[i], content, err));
            join_planes(to + done, d->planes[0], d->planes[1], content);
        } else {
            VTI_TRY(decode_frame(d, to + done, content, err));
        }
        done += split ? 2 * content : content;
    }
    return VT_OK;
}

static vt_status decode(vti_block_decoder *d, const vti_shard_layout *layout, void *memory,
                        vt_error *err)
{
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        vt_error why = {.status = VT_OK};
        vt_status status = decode_piece(d, &layout->at[i],
                                        (unsigned char *)memory + layout->at[i].offset, &why);
        if (status == VT_ERR_FORMAT)
            return vti_fail(err, status, "%s: %s", vti_role_name(layout->at[i].piece.role),
                            why.message);
        if (status != VT_OK) return vti_fail(err, status, "%s", why.message);
    }
    if (!d->have && !d->left) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT, "%" PRIu64 " bytes too many", d->have + d->left);
}

vt_status vti_block_decode(vti_block_decoder *d, const vti_shard_layout *layout,
                           vti_block_read_fn *read, void *context, uint64_t block_bytes,
                           void *memory, vt_error *err)
{
    d->at = d->input;
    d->have = 0;
    d->left = block_bytes;
    d->read = read;
    d->context = context;
    return decode(d, layout, memory, err);
}

vt_status vti_block_decode_memory(vti_block_decoder *d, const vti_shard_layout *layout,
                                  const void *block, uint64_t block_bytes, void *memory,
                                  vt_error *err)
{
    d->at = block;
    d->have = (size_t)block_bytes;
    d->left = 0;
    return decode(d, layout, memory, err);
}
