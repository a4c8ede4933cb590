#include "geometry.h"

#include <string.h>

#include "align.h"

/* HEAD: weights of a shard, so that at F16 it is as large as the FFN shard of a large model. */
enum {
    FFN_WIDTH = 256,
    FFN_SHARDS_WANTED = 8,
    VOCAB_WEIGHTS = 4 << 20,
    VOCAB_STEP = 256
};

const char *vti_precision_name(vti_precision precision)
{
    static const char *const names[VTI_PRECISION_COUNT] = {"F16", "I8", "I4"};
    return precision < VTI_PRECISION_COUNT ? names[precision] : "unknown";
}

static uint32_t parts(uint32_t whole, uint32_t part) { return (whole + part - 1) / part; }

/* What part `index` of `part` each has of the whole; the last may have less. */
static uint32_t part_of(uint32_t whole, uint32_t part, uint32_t index)
{
    uint32_t left = whole - index * part;
    return left < part ? left : part;
}

/* Halves of 256, so that a shard never begins within a block of 256 columns and another. */
static uint32_t ffn_width(uint32_t ff)
{
    uint32_t width = FFN_WIDTH;
    while (width > VTI_COLUMN_STEP && parts(ff, width) < FFN_SHARDS_WANTED) width /= 2;
    return width;
}

static uint32_t vocab_rows(const vti_hparams *p)
{
    uint32_t rows = VOCAB_WEIGHTS / p->d / VOCAB_STEP * VOCAB_STEP;
    return rows ? rows : VOCAB_STEP;
}

static uint32_t shard_kv_heads(const vti_hparams *p, bool quantised)
{
    uint32_t width = p->heads / p->kv_heads * p->head_dim, heads = 1;
    while (quantised && heads < p->kv_heads && heads * width % VTI_COLUMN_STEP) heads++;
    return heads;
}

void vti_geometry_init(vti_geometry *out, const vti_hparams *hparams, bool quantised)
{
    *out = (vti_geometry){
        .hparams = *hparams,
        .quantised = quantised,
        .units = 2 * hparams->layers + 2,
        .shard_kv_heads = shard_kv_heads(hparams, quantised),
        .ffn_width = ffn_width(hparams->ff),
        .vocab_rows = vocab_rows(hparams),
    };
}

vti_unit_kind vti_unit_kind_of(const vti_geometry *g, uint32_t unit)
{
    if (unit == vti_head_unit(g)) return VTI_UNIT_HEAD;
    if (unit == vti_embed_unit(g)) return VTI_UNIT_EMBED;
    return unit % 2 ? VTI_UNIT_FFN : VTI_UNIT_ATTN;
}

uint32_t vti_unit_shards(const vti_geometry *g, uint32_t unit)
{
    const vti_hparams *p = &g->hparams;
    switch (vti_unit_kind_of(g, unit)) {
    case VTI_UNIT_ATTN: return parts(p->kv_heads, g->shard_kv_heads);
    case VTI_UNIT_FFN: return p->experts + parts(p->ff, g->ffn_width);
    case VTI_UNIT_HEAD:
    case VTI_UNIT_EMBED: return parts(p->vocab, g->vocab_rows);
    }
    return 0;
}

/* --- pieces ------------------------------------------------------------------------------------ */

/* Rows of a matrix; the whole width of it. */
static vti_piece rows_of(const vti_geometry *g, vti_role role, uint32_t row, uint32_t rows)
{
    return (vti_piece){role, 0, row, rows, 0, vti_role_shape_of(&g->hparams, role).cols};
}

static vti_piece columns_of(const vti_geometry *g, vti_role role, uint32_t col, uint32_t cols)
{
    return (vti_piece){role, 0, 0, vti_role_shape_of(&g->hparams, role).rows, col, cols};
}

static vti_piece whole(const vti_geometry *g, vti_role role)
{
    vti_role_shape shape = vti_role_shape_of(&g->hparams, role);
    return (vti_piece){role, 0, 0, shape.rows, 0, shape.cols};
}

/* Elements of a vector. */
static vti_piece elements_of(vti_role role, uint32_t first, uint32_t count)
{
    return (vti_piece){role, 0, 0, 1, first, count};
}

static void attention_pieces(const vti_geometry *g, uint32_t shard, bool source_grid,
                             vti_piece *out)
{
    const vti_hparams *p = &g->hparams;
    uint32_t kv_heads = part_of(p->kv_heads, g->shard_kv_heads, shard);
    uint32_t kv = shard * g->shard_kv_heads * p->head_dim, kv_rows = kv_heads * p->head_dim;
    uint32_t group = p->heads / p->kv_heads, q = kv * group, q_rows = kv_rows * group;
    out[VTI_PIECE_Q] = rows_of(g, VTI_ATTN_Q, q, q_rows);
    out[VTI_PIECE_K] = rows_of(g, VTI_ATTN_K, kv, kv_rows);
    out[VTI_PIECE_V] = rows_of(g, VTI_ATTN_V, kv, kv_rows);
    out[VTI_PIECE_Q_BIAS] = elements_of(VTI_ATTN_Q_BIAS, q, q_rows);
    out[VTI_PIECE_K_BIAS] = elements_of(VTI_ATTN_K_BIAS, kv, kv_rows);
    out[VTI_PIECE_V_BIAS] = elements_of(VTI_ATTN_V_BIAS, kv, kv_rows);
    uint32_t begun = source_grid ? (VTI_K_BLOCK - q % VTI_K_BLOCK) % VTI_K_BLOCK : 0;
    uint32_t first = begun && begun < q_rows ? begun : q_rows;
    out[VTI_PIECE_OUT] = columns_of(g, VTI_ATTN_OUT, q, first);
    if (first < q_rows)
        out[VTI_PIECE_OUT_REST] = columns_of(g, VTI_ATTN_OUT, q + first, q_rows - first);
}

static void expert_pieces(const vti_geometry *g, uint32_t expert, vti_piece *out)
{
    out[VTI_PIECE_GATE] = whole(g, VTI_EXPERTS_GATE);
    out[VTI_PIECE_UP] = whole(g, VTI_EXPERTS_UP);
    out[VTI_PIECE_DOWN] = whole(g, VTI_EXPERTS_DOWN);
    for (unsigned i = VTI_PIECE_GATE; i <= VTI_PIECE_DOWN; i++) out[i].slice = expert;
}

static void hidden_pieces(const vti_geometry *g, uint32_t block, vti_piece *out)
{
    const vti_hparams *p = &g->hparams;
    bool shared = p->experts != 0;
    uint32_t first = block * g->ffn_width, width = part_of(p->ff, g->ffn_width, block);
    out[VTI_PIECE_GATE] = rows_of(g, shared ? VTI_SHARED_GATE : VTI_FFN_GATE, first, width);
    out[VTI_PIECE_UP] = rows_of(g, shared ? VTI_SHARED_UP : VTI_FFN_UP, first, width);
    out[VTI_PIECE_DOWN] = columns_of(g, shared ? VTI_SHARED_DOWN : VTI_FFN_DOWN, first, width);
}

/* What all shards of a unit need. */
static void shared_pieces(const vti_geometry *g, vti_unit_kind kind, vti_piece *out)
{
    switch (kind) {
    case VTI_UNIT_ATTN:
        out[VTI_PIECE_NORM] = whole(g, VTI_ATTN_NORM);
        out[VTI_PIECE_POST_NORM] = whole(g, VTI_ATTN_POST_NORM);
        out[VTI_PIECE_Q_NORM] = whole(g, VTI_ATTN_Q_NORM);
        out[VTI_PIECE_K_NORM] = whole(g, VTI_ATTN_K_NORM);
        out[VTI_PIECE_ROPE_FREQS] = whole(g, VTI_ROPE_FREQS);
        break;
    case VTI_UNIT_FFN:
        out[VTI_PIECE_NORM] = whole(g, VTI_FFN_NORM);
        out[VTI_PIECE_POST_NORM] = whole(g, VTI_FFN_POST_NORM);
        if (!g->hparams.experts) break;
        out[VTI_PIECE_ROUTER] = whole(g, VTI_ROUTER);
        out[VTI_PIECE_SHARED_ROUTER] = whole(g, VTI_SHARED_ROUTER);
        break;
    case VTI_UNIT_HEAD: out[VTI_PIECE_NORM] = whole(g, VTI_OUTPUT_NORM); break;
    case VTI_UNIT_EMBED: break;
    }
}

void vti_shard_pieces(const vti_geometry *g, uint32_t unit, uint32_t shard, bool source_grid,
                      vti_piece out[VTI_PIECES])
{
    const vti_hparams *p = &g->hparams;
    vti_unit_kind kind = vti_unit_kind_of(g, unit);
    memset(out, 0, VTI_PIECES * sizeof *out);
    if (shard == vti_unit_shards(g, unit)) {
        shared_pieces(g, kind, out);
    } else if (kind == VTI_UNIT_ATTN) {
        attention_pieces(g, shard, source_grid, out);
    } else if (kind == VTI_UNIT_FFN) {
        if (shard < p->experts)
            expert_pieces(g, shard, out);
        else
            hidden_pieces(g, shard - p->experts, out);
    } else {
        out[VTI_PIECE_ROWS] = rows_of(g, kind == VTI_UNIT_HEAD ? VTI_OUTPUT : VTI_TOKEN_EMBD,
                                      shard * g->vocab_rows,
                                      part_of(p->vocab, g->vocab_rows, shard));
    }
    for (unsigned i = 0; i < VTI_PIECES; i++)
        if (!vti_role_allowed(p, out[i].role)) out[i].rows = 0;
}

/* --- layout ------------------------------------------------------------------------------------ */

/* A piece of a form that is not there, or must not be. */
static bool may_lack(const vti_geometry *g, const vti_piece *piece)
{
    /* A tied output matrix is the embedding. */
    return piece->rows == 0 ||
           (piece->role != VTI_OUTPUT && !vti_role_required(&g->hparams, piece->role));
}

static bool place(const vti_kernels *kernels, vti_placed_piece *to, uint64_t offset)
{
    const vti_piece *piece = &to->piece;
    to->offset = offset;
    if (vti_role_is_vector(piece->role)) {
        to->packed_cols = piece->cols;
        to->bytes = vti_align_up((uint64_t)piece->cols * sizeof(float), VTI_SHARD_ALIGNMENT);
        return to->type == VTI_F32;
    }
    if (to->type >= VTI_WEIGHT_TYPE_COUNT) return false;
    to->packed_cols = vti_padded(piece->cols);
    size_t bytes = kernels->matmul[to->type].packed_bytes(piece->rows, to->packed_cols);
    to->bytes = vti_align_up(bytes, VTI_SHARD_ALIGNMENT);
    return true;
}

bool vti_shard_lay_out(const vti_geometry *g, const vti_kernels *kernels, uint32_t unit,
                       uint32_t shard, const vti_shard_form *form, vti_shard_layout *out)
{
    vti_piece pieces[VTI_PIECES];
    memset(out, 0, sizeof *out);
    if (unit >= g->units || shard > vti_unit_shards(g, unit)) return false;
    if (form->precision >= VTI_PRECISION_COUNT) return false;
    vti_shard_pieces(g, unit, shard, form->source_grid, pieces);
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        if (form->type[i] == VTI_PIECE_ABSENT) {
            if (!may_lack(g, &pieces[i])) return false;
            continue;
        }
        out->at[i] = (vti_placed_piece){.piece = pieces[i], .type = form->type[i]};
        if (pieces[i].rows == 0 || !place(kernels, &out->at[i], out->bytes)) return false;
        out->bytes += out->at[i].bytes;
    }
    return true;
}

/* --- sums -------------------------------------------------------------------------------------- */

uint64_t vti_shard_macs(const vti_geometry *g, uint32_t unit, uint32_t shard)
{
    vti_piece pieces[VTI_PIECES];
    uint64_t macs = 0;
    if (vti_unit_kind_of(g, unit) == VTI_UNIT_EMBED) return 0;
    vti_shard_pieces(g, unit, shard, false, pieces);
    for (unsigned i = 0; i < VTI_PIECES; i++)
        if (pieces[i].rows && !vti_role_is_vector(pieces[i].role))
            macs += (uint64_t)pieces[i].rows * pieces[i].cols;
    return macs;
}

uint64_t vti_shard_kv_bytes(const vti_geometry *g, uint32_t unit, uint32_t shard,
                            uint32_t element_bytes)
{
    const vti_hparams *p = &g->hparams;
    if (vti_unit_kind_of(g, unit) != VTI_UNIT_ATTN || shard >= vti_unit_shards(g, unit)) return 0;
    uint64_t heads = part_of(p->kv_heads, g->shard_kv_heads, shard);
    return 2 * heads * p->head_dim * element_bytes;
}

uint32_t vti_shard_output_width(const vti_geometry *g, uint32_t unit, uint32_t shard)
{
    if (vti_unit_kind_of(g, unit) != VTI_UNIT_HEAD) return g->hparams.d;
    if (shard >= vti_unit_shards(g, unit)) return 0;
    return part_of(g->hparams.vocab, g->vocab_rows, shard);
}
