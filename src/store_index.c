#include "store_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "little_endian.h"
#include "tensor_source.h"

/* Where the walk through the index is. */
typedef struct walk {
    vt_store *store;
    const unsigned char *raw;
    uint64_t next;        /* entry */
    uint64_t end;         /* of the data of the entries before */
    uint64_t embed_row_bytes;
    vt_error *err;
} walk;

static void parse_entry(const unsigned char *raw, vti_store_entry *out)
{
    *out = (vti_store_entry){
        .unit = vti_load_u32(raw + VTI_STORE_AT_UNIT),
        .shard = vti_load_u32(raw + VTI_STORE_AT_SHARD),
        .precision = raw[VTI_STORE_AT_PRECISION],
        .encoding = raw[VTI_STORE_AT_ENCODING],
        .form = {.source_grid = raw[VTI_STORE_AT_GRID] == 1},
        .offset = vti_load_u64(raw + VTI_STORE_AT_OFFSET),
        .stored_bytes = vti_load_u64(raw + VTI_STORE_AT_STORED_BYTES),
        .shard_bytes = vti_load_u64(raw + VTI_STORE_AT_SHARD_BYTES),
    };
    if (out->precision < VTI_PRECISION_COUNT) out->form.precision = out->precision;
    memcpy(out->form.type, raw + VTI_STORE_AT_TYPES, VTI_PIECES);
    memcpy(out->content_hash, raw + VTI_STORE_AT_CONTENT_HASH, VTI_SHARD_HASH_BYTES);
    memcpy(out->stored_hash, raw + VTI_STORE_AT_STORED_HASH, VTI_SHARD_HASH_BYTES);
}

static vt_status bad_entry(const walk *w, const vti_store_entry *entry, const char *what)
{
    char name[64];
    vti_store_entry_name(&w->store->geometry, entry, name, sizeof name);
    return vti_store_damaged(w->store, w->err, "%s: %s", name, what);
}

/* --- one entry --------------------------------------------------------------------------------- */

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return false;
    return true;
}

static vt_status check_fields(const walk *w, const unsigned char *raw, const vti_store_entry *entry,
                              uint8_t encoding)
{
    if (raw[VTI_STORE_AT_GRID] > 1 ||
        !is_zero(raw + VTI_STORE_AT_ENTRY_ZERO, VTI_STORE_AT_TYPES - VTI_STORE_AT_ENTRY_ZERO) ||
        !is_zero(raw + VTI_STORE_AT_ENTRY_RESERVED,
                 VTI_STORE_ENTRY_BYTES - VTI_STORE_AT_ENTRY_RESERVED))
        return bad_entry(w, entry, "reserved bytes of its entry are not zero");
    if (entry->encoding != encoding) return bad_entry(w, entry, "it has another encoding than due");
    return VT_OK;
}

/* Its data follow those of the entry before, and end in the file. */
static vt_status check_place(walk *w, const vti_store_entry *entry, uint64_t offset)
{
    if (entry->offset != offset)
        return vti_store_damaged(w->store, w->err,
                                 "entry %" PRIu64 " has data at byte %" PRIu64
                                 ", expected at byte %" PRIu64 ", behind the entry before",
                                 w->next, entry->offset, offset);
    if (entry->stored_bytes == 0 || entry->stored_bytes > w->store->file.bytes ||
        offset > w->store->file.bytes - entry->stored_bytes)
        return bad_entry(w, entry, "its data would lie beyond the end of the file");
    w->end = offset + entry->stored_bytes;
    return VT_OK;
}

/* The shard has a piece of every tensor that the directory has, and of no other. */
static vt_status check_presence(const walk *w, const vti_store_entry *entry)
{
    const vti_geometry *g = &w->store->geometry;
    vti_piece pieces[VTI_PIECES];
    vti_shard_pieces(g, entry->unit, entry->shard, entry->form.source_grid, pieces);
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        char name[96];
        bool here = entry->form.type[i] != VTI_PIECE_ABSENT;
        if (!pieces[i].rows || pieces[i].role == VTI_OUTPUT) continue; /* which may be tied */
        vti_tensor_name(pieces[i].role, vti_unit_layer(entry->unit), name, sizeof name);
        if (here != (vti_gguf_find_tensor(w->store->gguf, name) != NULL))
            return bad_entry(w, entry, here ? "it has a tensor that the model has not"
                                            : "it lacks a tensor that the model has");
    }
    return VT_OK;
}

static vt_status check_block(walk *w, const unsigned char *raw, const vti_store_entry *entry)
{
    const vt_store *s = w->store;
    vti_shard_layout layout;
    VTI_TRY(check_fields(w, raw, entry, VTI_STORE_BLOCK));
    if (!vti_shard_lay_out(&s->geometry, &s->kernels, entry->unit, entry->shard, &entry->form,
                           &layout))
        return bad_entry(w, entry, "tensors of these types are not possible");
    VTI_TRY(check_presence(w, entry));
    if (layout.bytes != entry->shard_bytes)
        return vti_store_damaged(s, w->err,
                                 "entry %" PRIu64 " is of %" PRIu64
                                 " bytes for the kernels, its tensors take %" PRIu64,
                                 w->next, entry->shard_bytes, layout.bytes);
    if (entry->stored_bytes > vti_block_bound(&layout))
        return bad_entry(w, entry, "it takes more bytes in the file than possible");
    /* So that a short file cannot make anybody reserve memory for a huge shard. */
    if (entry->stored_bytes < vti_block_least(&layout))
        return bad_entry(w, entry, "it takes fewer bytes in the file than possible");
    return check_place(w, entry, vti_store_aligned(w->end));
}

static vt_status check_rows(walk *w, const unsigned char *raw, const vti_store_entry *entry)
{
    vti_piece pieces[VTI_PIECES];
    vti_shard_pieces(&w->store->geometry, entry->unit, entry->shard, false, pieces);
    uint64_t bytes = pieces[VTI_PIECE_ROWS].rows * w->embed_row_bytes;
    VTI_TRY(check_fields(w, raw, entry, VTI_STORE_RAW));
    if (!is_zero(entry->form.type, VTI_PIECES) || entry->form.source_grid)
        return bad_entry(w, entry, "rows as in the model's file have no types of their own");
    if (entry->shard_bytes != bytes || entry->stored_bytes != bytes)
        return bad_entry(w, entry, "its rows take another number of bytes");
    return check_place(w, entry, entry->shard ? w->end : vti_store_aligned(w->end));
}

/* --- which entries ----------------------------------------------------------------------------- */

/* The next entry if it is one of this shard with a precision number of at least `least`. */
static bool take(walk *w, uint32_t unit, uint32_t shard, unsigned least, vti_store_entry **out,
                 const unsigned char **raw)
{
    if (w->next == w->store->entry_count) return false;
    *raw = w->raw + w->next * VTI_STORE_ENTRY_BYTES;
    *out = &w->store->entries[w->next];
    parse_entry(*raw, *out);
    return (*out)->unit == unit && (*out)->shard == shard && (*out)->precision >= least;
}

static vt_status not_there(const walk *w, uint32_t unit, uint32_t shard)
{
    const vt_store *s = w->store;
    vti_store_entry due = {.unit = unit, .shard = shard, .precision = VTI_STORE_ANY_PRECISION}, is;
    char name[64], found[64];
    vti_store_entry_name(&s->geometry, &due, name, sizeof name);
    if (w->next == s->entry_count)
        return vti_store_damaged(s, w->err, "the index ends before %s", name);
    parse_entry(w->raw + w->next * VTI_STORE_ENTRY_BYTES, &is);
    vti_store_entry_name(&s->geometry, &is, found, sizeof found);
    return vti_store_damaged(s, w->err, "entry %" PRIu64 " of the index is %s, expected %s",
                             w->next, found, name);
}

/* All precisions of a shard; *offered gets their bits. */
static vt_status take_precisions(walk *w, uint32_t unit, uint32_t shard, unsigned *offered)
{
    const unsigned char *raw;
    vti_store_entry *entry;
    unsigned least = 0;
    *offered = 0;
    while (take(w, unit, shard, least, &entry, &raw) && entry->precision < VTI_PRECISION_COUNT) {
        VTI_TRY(check_block(w, raw, entry));
        *offered |= 1u << entry->precision;
        least = entry->precision + 1u;
        w->next++;
    }
    return *offered ? VT_OK : not_there(w, unit, shard);
}

/* The one entry of what shards share, or of embedding rows. */
static vt_status take_single(walk *w, uint32_t unit, uint32_t shard, bool rows)
{
    const unsigned char *raw;
    vti_store_entry *entry;
    if (!take(w, unit, shard, VTI_STORE_ANY_PRECISION, &entry, &raw))
        return not_there(w, unit, shard);
    VTI_TRY(rows ? check_rows(w, raw, entry) : check_block(w, raw, entry));
    w->next++;
    return VT_OK;
}

static vt_status take_unit(walk *w, uint32_t unit)
{
    uint32_t shards = vti_unit_shards(&w->store->geometry, unit);
    unsigned first = 0, offered;
    for (uint32_t shard = 0; shard < shards; shard++) {
        VTI_TRY(take_precisions(w, unit, shard, &offered));
        if (shard == 0) first = offered;
        if (offered != first)
            return vti_store_damaged(w->store, w->err,
                                     "shards 0 and %" PRIu32 " of unit %" PRIu32
                                     " are not there at the same precisions", shard, unit);
    }
    return take_single(w, unit, shards, false);
}

static vt_status take_all(walk *w)
{
    const vti_geometry *g = &w->store->geometry;
    uint32_t embed = vti_embed_unit(g);
    for (uint32_t unit = 0; unit < embed; unit++) VTI_TRY(take_unit(w, unit));
    for (uint32_t shard = 0; shard < vti_unit_shards(g, embed); shard++)
        VTI_TRY(take_single(w, embed, shard, true));
    if (w->next != w->store->entry_count)
        return vti_store_damaged(w->store, w->err,
                                 "the index has %" PRIu64 " entries, expected %" PRIu64,
                                 w->store->entry_count, w->next);
    if (w->end == w->store->file.bytes) return VT_OK;
    return vti_store_damaged(w->store, w->err,
                             "it has %zu bytes, its shards end at byte %" PRIu64,
                             w->store->file.bytes, w->end);
}

vt_status vti_store_read_index(vt_store *s, vt_error *err)
{
    const unsigned char *file = s->file.data;
    vti_source embedding;
    VTI_TRY(vti_source_find(s->gguf, &s->geometry.hparams, VTI_TOKEN_EMBD, 0, &embedding, err));
    s->entries = calloc((size_t)s->entry_count + 1, sizeof *s->entries);
    if (!s->entries) return vti_fail(err, VT_ERR_MEMORY, "no memory for the index of %s", s->name);
    walk w = {
        .store = s,
        .raw = file + vti_store_index_offset(s->directory_bytes),
        .end = vti_store_data_offset(s->directory_bytes, s->entry_count),
        .embed_row_bytes = embedding.file_bytes / embedding.rows,
        .err = err,
    };
    VTI_TRY(take_all(&w));
    vti_shard_id rows = {vti_embed_unit(&s->geometry), 0, VTI_PRECISION_F16};
    vti_gguf_place(s->gguf, vti_role_name(VTI_TOKEN_EMBD),
                   file + vti_store_find(s, rows)->offset);
    return VT_OK;
}

/* --- finding ----------------------------------------------------------------------------------- */

static bool is_shared(const vti_geometry *g, uint32_t unit, uint32_t shard)
{
    return unit == vti_embed_unit(g) || shard == vti_unit_shards(g, unit);
}

static int compare(const void *key, const void *element)
{
    const vti_store_entry *a = key, *b = element;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    if (a->shard != b->shard) return a->shard < b->shard ? -1 : 1;
    return (a->precision > b->precision) - (a->precision < b->precision);
}

const vti_store_entry *vti_store_find(const vt_store *s, vti_shard_id id)
{
    const vti_geometry *g = &s->geometry;
    if (id.unit >= g->units || id.precision >= VTI_PRECISION_COUNT) return NULL;
    vti_store_entry key = {.unit = id.unit, .shard = id.shard, .precision = id.precision};
    if (is_shared(g, id.unit, id.shard)) key.precision = VTI_STORE_ANY_PRECISION;
    return bsearch(&key, s->entries, (size_t)s->entry_count, sizeof *s->entries, compare);
}

void vti_store_lay_out(const vt_store *s, const vti_store_entry *entry, vti_shard_layout *out)
{
    vti_shard_lay_out(&s->geometry, &s->kernels, entry->unit, entry->shard, &entry->form, out);
}
