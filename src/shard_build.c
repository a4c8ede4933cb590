#include "shard_build.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/cut.h"
#include "quantize_search.h"
#include "tensor_source.h"

/* --- forms ------------------------------------------------------------------------------------- */

/* Halfway, in bits, between 16 and 8.5, and between Q6_K's 6.6 and Q4_K's 4.5 with some Q6_K. */
vti_precision vti_precision_of_bits(double bits)
{
    if (bits > 12) return VTI_PRECISION_F16;
    return bits > 5.3 ? VTI_PRECISION_I8 : VTI_PRECISION_I4;
}

/* The file's tensor for a role; a tied output matrix is the embedding. */
static vt_status find(const vti_shard_builder *b, vti_role role, uint32_t unit, vti_source *out,
                      vt_error *err)
{
    const vti_hparams *p = &b->source.geometry->hparams;
    uint32_t layer = vti_unit_layer(unit);
    VTI_TRY(vti_source_find(b->gguf, p, role, layer, out, err));
    if (role != VTI_OUTPUT || out->data) return VT_OK;
    return vti_source_find(b->gguf, p, VTI_TOKEN_EMBD, layer, out, err);
}

/* Bytes of 256 columns. */
static uint64_t weight_bytes(vti_weight_type type) { return vti_source_bytes(type, 1, 1, 256); }

static vti_weight_type type_at(const vti_shard_builder *b, vti_role role, vti_weight_type own,
                               vti_precision precision)
{
    if (vti_role_is_vector(role)) return VTI_F32;
    if (role == VTI_ROUTER) return own; /* small, and decides much */
    if (b->halves && own == VTI_F32) own = VTI_F16;
    if (precision <= b->own) return own;
    vti_weight_type smaller = precision == VTI_PRECISION_I8 ? VTI_Q8_0 : VTI_Q4_K;
    return weight_bytes(own) <= weight_bytes(smaller) ? own : smaller;
}

static bool has_k_blocks(const vti_kernels *kernels, vti_weight_type type)
{
    return kernels->matmul[type].block == VTI_K_BLOCK;
}

static bool form_of(void *self, vti_shard_id id, vti_shard_form *out)
{
    const vti_shard_builder *b = self;
    const vti_geometry *g = b->source.geometry;
    vti_piece pieces[VTI_PIECES];
    if (id.precision < b->own || id.precision >= VTI_PRECISION_COUNT) return false;
    if (id.unit >= vti_embed_unit(g) || id.shard > vti_unit_shards(g, id.unit)) return false;
    *out = (vti_shard_form){.precision = id.precision};
    bool attention = vti_unit_kind_of(g, id.unit) == VTI_UNIT_ATTN;
    if (attention && id.shard < vti_unit_shards(g, id.unit)) {
        vti_source wo;
        if (find(b, VTI_ATTN_OUT, id.unit, &wo, NULL) != VT_OK) return false;
        vti_weight_type type = type_at(b, VTI_ATTN_OUT, wo.type, id.precision);
        out->source_grid = type == wo.type && has_k_blocks(b->source.kernels, type);
    }
    vti_shard_pieces(g, id.unit, id.shard, out->source_grid, pieces);
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        vti_source source = {.data = NULL};
        out->type[i] = VTI_PIECE_ABSENT;
        if (!pieces[i].rows) continue;
        if (find(b, pieces[i].role, id.unit, &source, NULL) != VT_OK) return false;
        if (source.data)
            out->type[i] = (uint8_t)type_at(b, pieces[i].role, source.type, id.precision);
    }
    return true;
}

/* --- matrices ---------------------------------------------------------------------------------- */

/* A piece of a matrix on its way into a shard, a panel of rows at a time. Columns are taken from
 * the file in whole blocks of 256 that cover the piece: `skipped` of them come before it. */
typedef struct build {
    const vti_shard_builder *b;
    uint32_t unit;
    const vti_source *from;
    const vti_placed_piece *to;
    const vti_matmul_kernel *kernel; /* of the piece's type */
    uint32_t covered, skipped;
    bool quantised;          /* the piece's type is smaller than the file's */
    const float *importance; /* of the piece's columns; zeros behind it */
    unsigned char *rows;     /* 16 rows of the piece as a file has them */
    unsigned char *row;      /* one covered row, converted */
    float *floats;           /* the same as floats, zeros behind it */
} build;

static const unsigned char *covered_row(const build *j, uint32_t row)
{
    const vti_piece *piece = &j->to->piece;
    const unsigned char *at = vti_source_row(j->from, piece->slice, piece->row + row);
    return at + vti_source_columns_bytes(j->from, piece->col - j->skipped);
}

static bool all_finite(const float *x, size_t count)
{
    float sum = 0; /* of zeros, or not a number */
    for (size_t i = 0; i < count; i++) sum += x[i] * 0.0f;
    return sum == 0;
}

static bool quantise_row(const build *j, const unsigned char *from, unsigned char *out)
{
    const vti_conversion *conversion = j->from->conversion;
    const vti_kernels *kernels = j->b->source.kernels;
    const vti_piece *piece = &j->to->piece;
    if (conversion)
        conversion->dequantize(j->floats, from, j->covered);
    else
        kernels->matmul[j->from->type].dequantize(j->floats, from, j->covered);
    float *x = j->floats + j->skipped;
    if (!all_finite(x, piece->cols)) return false;
    memset(x + piece->cols, 0, (j->to->packed_cols - piece->cols) * sizeof *x);
    if (j->to->type == VTI_Q8_0)
        vti_quantize_i8(out, x, j->to->packed_cols, j->importance);
    else
        vti_quantize_i4(out, x, j->to->packed_cols, j->importance);
    return true;
}

static void cut_row(const build *j, const unsigned char *from, unsigned char *out)
{
    vti_cut_fn *cut = j->to->type == VTI_Q4_K   ? vti_cut_q4_k
                      : j->to->type == VTI_Q5_K ? vti_cut_q5_k
                                                : vti_cut_q6_k;
    cut(out, from, j->skipped, j->to->piece.cols);
}

/* The file's own type, or the one that takes its place. */
static void copy_row(const build *j, const unsigned char *from, unsigned char *out)
{
    const vti_piece *piece = &j->to->piece;
    if (j->from->conversion) {
        j->from->conversion->convert(j->row, from, j->covered);
        from = j->row;
    }
    if (j->skipped && has_k_blocks(j->b->source.kernels, j->to->type)) {
        cut_row(j, from, out);
        return;
    }
    size_t bytes = j->kernel->source_bytes(piece->cols);
    memcpy(out, from + j->kernel->source_bytes(j->skipped), bytes);
    memset(out + bytes, 0, j->kernel->source_bytes(j->to->packed_cols) - bytes);
}

static void halve_row(const build *j, const unsigned char *from, unsigned char *out)
{
    const vti_piece *piece = &j->to->piece;
    memset(j->floats, 0, j->to->packed_cols * sizeof *j->floats);
    memcpy(j->floats, from + j->skipped * sizeof(float), piece->cols * sizeof(float));
    j->b->source.kernels->f16_from_f32((uint16_t *)(void *)out, j->floats, j->to->packed_cols);
}

static vt_status build_panels(const build *j, unsigned char *packed, vt_error *err)
{
    const vti_piece *piece = &j->to->piece;
    size_t row_bytes = j->kernel->source_bytes(j->to->packed_cols);
    for (uint32_t row = 0; row < piece->rows; row += VTI_PANEL_ROWS) {
        uint32_t count = piece->rows - row < VTI_PANEL_ROWS ? piece->rows - row : VTI_PANEL_ROWS;
        for (uint32_t i = 0; i < count; i++) {
            const unsigned char *from = covered_row(j, row + i);
            unsigned char *out = j->rows + i * row_bytes;
            if (j->quantised && j->to->type == VTI_F16) {
                halve_row(j, from, out);
            } else if (!j->quantised) {
                copy_row(j, from, out);
            } else if (!quantise_row(j, from, out)) {
                char name[96];
                vti_tensor_name(piece->role, vti_unit_layer(j->unit), name, sizeof name);
                return vti_fail(err, VT_ERR_FORMAT,
                                "%s: row %" PRIu32 " of %s has weights that are no finite numbers",
                                j->b->source.name, piece->row + row + i, name);
            }
        }
        j->kernel->pack(packed + j->kernel->packed_offset(row, j->to->packed_cols), j->rows,
                        row_bytes, count, j->to->packed_cols, 0, count);
    }
    return VT_OK;
}

/* Nothing but packing: straight from the file. */
static bool is_plain(const build *j)
{
    const vti_piece *piece = &j->to->piece;
    return !j->from->conversion && !j->quantised && piece->cols == j->to->packed_cols &&
           piece->col % j->kernel->block == 0;
}

static vt_status build_matrix(build *j, unsigned char *packed, vt_error *err)
{
    const vti_piece *piece = &j->to->piece;
    if (is_plain(j)) {
        size_t stride = j->kernel->source_bytes(j->from->cols);
        const unsigned char *first = vti_source_row(j->from, piece->slice, piece->row);
        j->kernel->pack(packed, first + j->kernel->source_bytes(piece->col), stride, piece->rows,
                        j->to->packed_cols, 0, piece->rows);
        return VT_OK;
    }
    size_t floats = (size_t)j->covered + VTI_K_BLOCK;
    j->rows = malloc(VTI_PANEL_ROWS * floats * sizeof(float));
    j->row = malloc(floats * sizeof(float));
    j->floats = malloc(floats * sizeof(float));
    float *importance = calloc(floats, sizeof(float));
    if (importance && j->importance) {
        memcpy(importance, j->importance, piece->cols * sizeof(float));
        j->importance = importance;
    }
    vt_status status = j->rows && j->row && j->floats && importance
                           ? build_panels(j, packed, err)
                           : vti_fail(err, VT_ERR_MEMORY, "no memory to pack weights");
    free(j->rows);
    free(j->row);
    free(j->floats);
    free(importance);
    return status;
}

/* --- shards ------------------------------------------------------------------------------------ */

static const float *importance_of(const vti_shard_builder *b, uint32_t unit, const vti_piece *piece)
{
    if (!b->importance) return NULL;
    const float *of_row = b->importance(b->importance_user, vti_unit_layer(unit), piece->role,
                                        piece->slice);
    return of_row ? of_row + piece->col : NULL;
}

static vt_status build_piece(const vti_shard_builder *b, uint32_t unit, const vti_placed_piece *to,
                             unsigned char *memory, vt_error *err)
{
    const vti_piece *piece = &to->piece;
    vti_source from;
    VTI_TRY(find(b, piece->role, unit, &from, err));
    if (vti_role_is_vector(piece->role)) {
        const vti_matmul_kernel *kernel = &b->source.kernels->matmul[from.type];
        const unsigned char *first = from.data;
        kernel->dequantize((float *)(void *)memory, first + kernel->source_bytes(piece->col),
                           piece->cols);
        return VT_OK;
    }
    uint32_t begin = piece->col / VTI_K_BLOCK * VTI_K_BLOCK, end = piece->col + piece->cols;
    uint32_t up = (end + VTI_K_BLOCK - 1) / VTI_K_BLOCK * VTI_K_BLOCK;
    build job = {
        .b = b,
        .unit = unit,
        .from = &from,
        .to = to,
        .kernel = &b->source.kernels->matmul[to->type],
        .covered = (up < from.cols ? up : from.cols) - begin,
        .skipped = piece->col - begin,
        .quantised = to->type != from.type,
        .importance = importance_of(b, unit, piece),
    };
    return build_matrix(&job, memory, err);
}

static vt_status load(void *self, vti_shard_id id, void *memory, vt_error *err)
{
    const vti_shard_builder *b = self;
    vti_shard_layout layout;
    if (!vti_shard_source_lay_out(&b->source, id, &layout))
        return vti_fail(err, VT_ERR_ARGUMENT, "%s has no unit %" PRIu32 ", shard %" PRIu32 " at %s",
                        b->source.name, id.unit, id.shard, vti_precision_name(id.precision));
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        const vti_placed_piece *at = &layout.at[i];
        if (!at->piece.rows) continue;
        unsigned char *to = (unsigned char *)memory + at->offset;
        memset(to + at->bytes - VTI_SHARD_ALIGNMENT, 0, VTI_SHARD_ALIGNMENT); /* what stays free */
        VTI_TRY(build_piece(b, id.unit, at, to, err));
    }
    return VT_OK;
}

void vti_shard_builder_init(vti_shard_builder *builder, const vt_gguf *gguf,
                            const vti_geometry *geometry, const vti_kernels *kernels,
                            vti_precision own)
{
    *builder = (vti_shard_builder){
        .source = {.geometry = geometry, .kernels = kernels, .name = vti_gguf_name(gguf),
                   .self = builder, .form = form_of, .load = load},
        .gguf = gguf,
        .own = own,
    };
}
