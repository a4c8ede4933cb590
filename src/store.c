#include "store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "little_endian.h"

vt_status vti_store_damaged(const vt_store *store, vt_error *err, const char *format, ...)
{
    char how[384];
    va_list args;
    va_start(args, format);
    vsnprintf(how, sizeof how, format, args);
    va_end(args);
    return vti_fail(err, VT_ERR_FORMAT, "%s: this shard store is damaged: %s", store->name, how);
}

/* --- header ------------------------------------------------------------------------------------ */

static const unsigned char *header_of(const vt_store *s) { return s->file.data; }

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return false;
    return true;
}

static vt_status check_magic(const vt_store *s, vt_error *err)
{
    const unsigned char *h = header_of(s);
    if (s->file.bytes < 4 || memcmp(h, VTI_STORE_MAGIC, 4) != 0)
        return vti_fail(err, VT_ERR_FORMAT,
                        "%s: this is not a shard store: it does not begin with \"%s\"", s->name,
                        VTI_STORE_MAGIC);
    if (s->file.bytes < VTI_STORE_HEADER_BYTES)
        return vti_store_damaged(s, err, "it has %zu bytes, its header alone takes %d",
                                 s->file.bytes, VTI_STORE_HEADER_BYTES);
    uint32_t version = vti_load_u32(h + VTI_STORE_AT_VERSION);
    if (version == VTI_STORE_VERSION) return VT_OK;
    return vti_fail(err, VT_ERR_UNSUPPORTED,
                    "%s: this shard store has version %" PRIu32
                    ", this Voltron reads version %d; pack the model again",
                    s->name, version, VTI_STORE_VERSION);
}

static bool hash_fits(const void *data, uint64_t bytes, const unsigned char *expected)
{
    uint8_t hash[VTI_SHARD_HASH_BYTES];
    vti_stored_hash(data, bytes, hash);
    return memcmp(hash, expected, sizeof hash) == 0;
}

static vt_status check_header(const vt_store *s, vt_error *err)
{
    const unsigned char *h = header_of(s);
    VTI_TRY(check_magic(s, err));
    if (!hash_fits(h, VTI_STORE_AT_HASH, h + VTI_STORE_AT_HASH))
        return vti_store_damaged(s, err, "the header's checksum is wrong");
    uint32_t layout = vti_load_u32(h + VTI_STORE_AT_LAYOUT);
    if (layout != VTI_LAYOUT_VERSION)
        return vti_fail(err, VT_ERR_UNSUPPORTED,
                        "%s: weights in layout %" PRIu32
                        ", this Voltron's kernels read layout %d; pack the model again",
                        s->name, layout, VTI_LAYOUT_VERSION);
    if (!is_zero(h + VTI_STORE_AT_ZERO, 4) ||
        !is_zero(h + VTI_STORE_AT_RESERVED, VTI_STORE_AT_HASH - VTI_STORE_AT_RESERVED))
        return vti_store_damaged(s, err, "reserved bytes of the header are not zero");
    uint64_t bytes = vti_load_u64(h + VTI_STORE_AT_FILE_BYTES);
    if (bytes != s->file.bytes)
        return vti_store_damaged(s, err, "it has %zu bytes, its header says %" PRIu64,
                                 s->file.bytes, bytes);
    return VT_OK;
}

/* That directory and index lie within the file. */
static vt_status check_front(vt_store *s, vt_error *err)
{
    const unsigned char *h = header_of(s);
    uint64_t bytes = s->file.bytes, directory = vti_load_u64(h + VTI_STORE_AT_DIRECTORY_BYTES);
    uint64_t entries = vti_load_u64(h + VTI_STORE_AT_ENTRY_COUNT);
    if (directory > bytes || entries > bytes / VTI_STORE_ENTRY_BYTES ||
        vti_store_data_offset(directory, entries) > bytes)
        return vti_store_damaged(s, err,
                                 "%" PRIu64 " bytes of metadata and an index of %" PRIu64
                                 " entries are more than the file has",
                                 directory, entries);
    s->directory_bytes = directory;
    s->entry_count = entries;
    uint64_t index = vti_store_index_offset(directory);
    uint64_t index_end = index + entries * VTI_STORE_ENTRY_BYTES;
    uint64_t directory_end = VTI_STORE_HEADER_BYTES + directory;
    if (!hash_fits(h + VTI_STORE_HEADER_BYTES, directory, h + VTI_STORE_AT_DIRECTORY_HASH))
        return vti_store_damaged(s, err, "the metadata's checksum is wrong");
    if (!hash_fits(h + index, index_end - index, h + VTI_STORE_AT_INDEX_HASH))
        return vti_store_damaged(s, err, "the index's checksum is wrong");
    if (!is_zero(h + directory_end, index - directory_end) ||
        !is_zero(h + index_end, vti_store_data_offset(directory, entries) - index_end))
        return vti_store_damaged(s, err, "bytes around the index are not zero");
    return VT_OK;
}

/* --- model ------------------------------------------------------------------------------------- */

/* A cut of today's: of a model whose weights are quantised already, or not. */
static bool find_cut(vt_store *s, const vti_hparams *hparams)
{
    const unsigned char *cut = header_of(s) + VTI_STORE_AT_CUT;
    for (int quantised = 0; quantised < 2; quantised++) {
        vti_geometry *g = &s->geometry;
        vti_geometry_init(g, hparams, quantised);
        if (vti_load_u32(cut) == g->units && vti_load_u32(cut + 4) == g->shard_kv_heads &&
            vti_load_u32(cut + 8) == g->ffn_width && vti_load_u32(cut + 12) == g->vocab_rows)
            return true;
    }
    return false;
}

static vt_status read_directory(vt_store *s, vt_error *err)
{
    const unsigned char *h = header_of(s);
    vti_hparams hparams;
    VTI_TRY(vti_gguf_open_directory(h + VTI_STORE_HEADER_BYTES, (size_t)s->directory_bytes, s->name,
                                    &s->gguf, err));
    vti_gguf_set_file(s->gguf, &s->file.facts);
    VTI_TRY(vti_hparams_read(s->gguf, &hparams, err));
    memcpy(s->identity.shape, h + VTI_STORE_AT_SHAPE_ID, sizeof s->identity.shape);
    memcpy(s->identity.weights, h + VTI_STORE_AT_WEIGHTS_ID, sizeof s->identity.weights);
    if (find_cut(s, &hparams)) return VT_OK;
    return vti_fail(err, VT_ERR_UNSUPPORTED,
                    "%s: the model is not cut into shards as this Voltron does it; pack it again",
                    s->name);
}

/* --- open -------------------------------------------------------------------------------------- */

static vt_status open_descriptor(const char *path, int *out, vt_error *err)
{
    /* O_NONBLOCK: opening a pipe without a writer would wait for one. */
    *out = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*out >= 0) return VT_OK;
    return vti_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
}

static vt_status read_store(vt_store *s, vt_error *err)
{
    VTI_TRY(open_descriptor(s->name, &s->descriptor, err));
    VTI_TRY(vti_mapped_file_of(s->descriptor, s->name, &s->file, err));
    VTI_TRY(check_header(s, err));
    VTI_TRY(check_front(s, err));
    VTI_TRY(read_directory(s, err));
    vti_kernels_init(&s->kernels, VTI_CPU_EXACT);
    VTI_TRY(vti_store_read_index(s, err));
    vti_store_open_source(s);
    return VT_OK;
}

vt_status vt_store_open(const char *path, vt_store **out, vt_error *err)
{
    if (!out) return vti_fail(err, VT_ERR_ARGUMENT, "vt_store_open: out is NULL");
    *out = NULL;
    if (!path) return vti_fail(err, VT_ERR_ARGUMENT, "vt_store_open: path is NULL");
    vt_store *s = calloc(1, sizeof *s);
    if (s) s->name = strdup(path);
    if (!s || !s->name || pthread_mutex_init(&s->lock, NULL) != 0) {
        if (s) free(s->name);
        free(s);
        return vti_fail(err, VT_ERR_MEMORY, "no memory to open %s", path);
    }
    s->descriptor = -1;
    vt_status status = read_store(s, err);
    if (status == VT_OK)
        *out = s;
    else
        vt_store_close(s);
    return status;
}

void vt_store_close(vt_store *s)
{
    if (!s) return;
    for (unsigned i = 0; i < s->idle_count; i++) vti_block_decoder_close(s->idle[i]);
    pthread_mutex_destroy(&s->lock);
    free(s->entries);
    vt_gguf_close(s->gguf);
    vti_mapped_file_close(&s->file);
    if (s->descriptor >= 0) close(s->descriptor);
    free(s->name);
    free(s);
}

bool vt_store_is(const char *path)
{
    char magic[4];
    int descriptor = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (descriptor < 0) return false;
    bool is = read(descriptor, magic, sizeof magic) == sizeof magic &&
              memcmp(magic, VTI_STORE_MAGIC, sizeof magic) == 0;
    close(descriptor);
    return is;
}

const vti_shard_source *vti_store_source(const vt_store *s) { return &s->source; }

const vti_model_identity *vti_store_identity(const vt_store *s) { return &s->identity; }

vt_gguf *vti_store_gguf(vt_store *s) { return s->gguf; }

const vt_gguf *vt_store_gguf(const vt_store *s) { return s->gguf; }
