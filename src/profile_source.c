#include "profile_source.h"

#include <stdlib.h>
#include <string.h>

#include "../kernels/layout.h"
#include "quantize.h"
#include "quantize_search.h"

static const vti_weight_type types[VTI_PRECISION_COUNT] = {VTI_F16, VTI_Q8_0, VTI_Q4_K};

/* Numerical Recipes' generator: its high bits are random enough. */
void vti_random_floats(uint32_t *state, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        *state = *state * 1664525u + 1013904223u;
        out[i] = (float)(int32_t)*state * 0x1p-31f;
    }
}

static bool is_here(const vti_geometry *g, const vti_piece *piece)
{
    return piece->rows &&
           (piece->role == VTI_OUTPUT || vti_role_required(&g->hparams, piece->role));
}

/* Routers are F32 in published files. */
static vti_weight_type type_of(vti_role role, vti_precision precision)
{
    return vti_role_is_vector(role) || role == VTI_ROUTER ? VTI_F32 : types[precision];
}

static bool form_of(void *self, vti_shard_id id, vti_shard_form *out)
{
    const vti_random_source *s = self;
    const vti_geometry *g = s->source.geometry;
    vti_piece pieces[VTI_PIECES];
    if (id.precision >= VTI_PRECISION_COUNT || id.unit >= vti_embed_unit(g) ||
        id.shard > vti_unit_shards(g, id.unit))
        return false;
    *out = (vti_shard_form){.precision = id.precision};
    vti_shard_pieces(g, id.unit, id.shard, false, pieces);
    for (unsigned i = 0; i < VTI_PIECES; i++)
        out->type[i] = is_here(g, &pieces[i]) ? (uint8_t)type_of(pieces[i].role, id.precision)
                                              : VTI_PIECE_ABSENT;
    return true;
}

/* All panels of a matrix are the same, and a narrow one is how a wide one begins: its bytes are
 * finite numbers in either. */
static void fill_matrix(const vti_random_source *s, const vti_placed_piece *to,
                        vti_precision precision, unsigned char *at)
{
    const vti_matmul_kernel *kernel = &s->source.kernels->matmul[to->type];
    size_t step = kernel->packed_bytes(VTI_PANEL_ROWS, to->packed_cols);
    for (uint32_t row = 0; row < to->piece.rows; row += VTI_PANEL_ROWS)
        memcpy(at + kernel->packed_offset(row, to->packed_cols), s->panel[precision], step);
}

/* A router's rows must differ, or all tokens would go to the same experts. */
static vt_status fill_router(const vti_random_source *s, const vti_placed_piece *to,
                             uint32_t seed, unsigned char *at, vt_error *err)
{
    size_t count = (size_t)to->piece.rows * to->packed_cols;
    float *rows = malloc(count * sizeof *rows);
    if (!rows) return vti_fail(err, VT_ERR_MEMORY, "no memory for random weights");
    vti_random_floats(&seed, rows, count);
    s->source.kernels->matmul[VTI_F32].pack(at, rows, to->packed_cols * sizeof *rows,
                                            to->piece.rows, to->packed_cols, 0, to->piece.rows);
    free(rows);
    return VT_OK;
}

static vt_status load(void *self, vti_shard_id id, void *memory, vt_error *err)
{
    const vti_random_source *s = self;
    vti_shard_layout layout;
    if (!vti_shard_source_lay_out(&s->source, id, &layout))
        return vti_fail(err, VT_ERR_ARGUMENT, "random weights have no such shard");
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        const vti_placed_piece *to = &layout.at[i];
        unsigned char *at = (unsigned char *)memory + to->offset;
        if (!to->piece.rows) continue;
        if (vti_role_is_vector(to->piece.role))
            memcpy(at, s->ones, to->piece.cols * sizeof(float));
        else if (to->type == VTI_F32)
            VTI_TRY(fill_router(s, to, id.unit, at, err));
        else
            fill_matrix(s, to, id.precision, at);
    }
    return VT_OK;
}

/* --- panels ----------------------------------------------------------------------------------- */

static uint32_t widest(const vti_hparams *p)
{
    uint32_t most = p->d > p->ff ? p->d : p->ff;
    if (p->heads * p->head_dim > most) most = p->heads * p->head_dim;
    if (p->expert_ff > most) most = p->expert_ff;
    return (most + VTI_K_BLOCK - 1) / VTI_K_BLOCK * VTI_K_BLOCK;
}

static void quantise(vti_precision precision, void *out, const float *x, size_t cols)
{
    if (precision == VTI_PRECISION_F16)
        vti_quantize_f16(out, x, cols);
    else if (precision == VTI_PRECISION_I8)
        vti_quantize_i8(out, x, cols, NULL);
    else
        vti_quantize_i4(out, x, cols, NULL);
}

static bool make_panel(vti_random_source *s, vti_precision precision, uint32_t *seed)
{
    const vti_matmul_kernel *kernel = &s->source.kernels->matmul[types[precision]];
    size_t cols = s->panel_cols, stride = kernel->source_bytes(cols);
    unsigned char *rows = malloc(VTI_PANEL_ROWS * stride);
    float *x = malloc(cols * sizeof *x);
    s->panel[precision] = malloc(kernel->packed_bytes(VTI_PANEL_ROWS, cols));
    bool made = rows && x && s->panel[precision];
    for (uint32_t row = 0; made && row < VTI_PANEL_ROWS; row++) {
        vti_random_floats(seed, x, cols);
        for (size_t i = 0; i < cols; i++) x[i] *= 0x1p-6f; /* so that the stream stays small */
        quantise(precision, rows + row * stride, x, cols);
    }
    if (made)
        kernel->pack(s->panel[precision], rows, stride, VTI_PANEL_ROWS, cols, 0, VTI_PANEL_ROWS);
    free(rows);
    free(x);
    return made;
}

vt_status vti_random_source_open(vti_random_source *out, const vti_geometry *geometry,
                                 const vti_kernels *kernels, vt_error *err)
{
    uint32_t seed = 1;
    *out = (vti_random_source){
        .source = {.geometry = geometry, .kernels = kernels, .name = "random weights",
                   .self = out, .form = form_of, .load = load},
        .panel_cols = widest(&geometry->hparams),
    };
    out->ones = malloc(out->panel_cols * sizeof *out->ones);
    bool made = out->ones != NULL;
    for (uint32_t i = 0; made && i < out->panel_cols; i++) out->ones[i] = 1;
    for (unsigned p = 0; made && p < VTI_PRECISION_COUNT; p++) made = make_panel(out, p, &seed);
    return made ? VT_OK : vti_fail(err, VT_ERR_MEMORY, "no memory for random weights");
}

void vti_random_source_close(vti_random_source *s)
{
    for (unsigned p = 0; p < VTI_PRECISION_COUNT; p++) free(s->panel[p]);
    free(s->ones);
    *s = (vti_random_source){.panel_cols = 0};
}
