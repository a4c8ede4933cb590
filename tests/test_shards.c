/* Units cut into shards: every weight is in exactly one, as the file has it, and what the shards
 * compute adds up to what the unit computes. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/model.h"
#include "../src/stage_internal.h"
#include "model_builder.h"

static const char *const families[] = {"qwen2", "llama", "qwen3", "gemma3", "qwen2moe"};
enum { FAMILIES = sizeof families / sizeof families[0] };

/* --- tiling ------------------------------------------------------------------------------------ */

static vti_hparams random_shape(test_random *random, vti_arch arch)
{
    vti_hparams p = {.arch = arch, .layers = 2, .context = 64, .rope_dims = 4};
    p.d = 8 + (uint32_t)(test_random_u64(random) % 90);
    p.kv_heads = 1 + (uint32_t)(test_random_u64(random) % 6);
    p.heads = p.kv_heads * (1 + (uint32_t)(test_random_u64(random) % 5));
    p.head_dim = 4 * (1 + (uint32_t)(test_random_u64(random) % 20));
    p.ff = 1 + (uint32_t)(test_random_u64(random) % 600);
    p.vocab = 10 + (uint32_t)(test_random_u64(random) % 300);
    p.window = arch == VTI_ARCH_GEMMA3 ? 8 : 0;
    if (arch != VTI_ARCH_QWEN2MOE) return p;
    p.experts = 1 + (uint32_t)(test_random_u64(random) % 5);
    p.experts_used = 1;
    p.expert_ff = 1 + (uint32_t)(test_random_u64(random) % 60);
    return p;
}

/* Counts how often a unit's pieces have each weight of each tensor. */
static void mark_unit(const vti_geometry *g, uint32_t unit, bool source_grid,
                      unsigned char *marks[VTI_ROLE_COUNT])
{
    for (uint32_t shard = 0; shard <= vti_unit_shards(g, unit); shard++) {
        vti_piece pieces[VTI_PIECES];
        vti_shard_pieces(g, unit, shard, source_grid, pieces);
        for (unsigned i = 0; i < VTI_PIECES; i++) {
            const vti_piece *piece = &pieces[i];
            if (!piece->rows) continue;
            vti_role_shape shape = vti_role_shape_of(&g->hparams, piece->role);
            size_t weights = (size_t)shape.slices * shape.rows * shape.cols;
            if (!marks[piece->role]) marks[piece->role] = calloc(1, weights);
            assert_true(piece->slice < shape.slices && piece->row + piece->rows <= shape.rows &&
                        piece->col + piece->cols <= shape.cols && piece->cols);
            for (uint32_t r = piece->row; r < piece->row + piece->rows; r++)
                for (uint32_t c = piece->col; c < piece->col + piece->cols; c++)
                    marks[piece->role][((size_t)piece->slice * shape.rows + r) * shape.cols + c]++;
        }
    }
}

/* Roles of a unit that the family has must be there, and whole. */
static void check_tiling(const vti_geometry *g, uint32_t unit, bool source_grid)
{
    unsigned char *marks[VTI_ROLE_COUNT] = {0};
    mark_unit(g, unit, source_grid, marks);
    for (unsigned role = 0; role < VTI_ROLE_COUNT; role++) {
        vti_unit_kind kind = vti_unit_kind_of(g, unit);
        vti_role_shape shape = vti_role_shape_of(&g->hparams, (vti_role)role);
        bool attention = role <= VTI_ATTN_POST_NORM || role == VTI_ROPE_FREQS;
        bool head = role == VTI_OUTPUT || role == VTI_OUTPUT_NORM;
        bool here = kind == VTI_UNIT_ATTN   ? attention
                    : kind == VTI_UNIT_HEAD ? head
                    : kind == VTI_UNIT_FFN  ? !attention && !head && role != VTI_TOKEN_EMBD
                                            : role == VTI_TOKEN_EMBD;
        here = here && vti_role_allowed(&g->hparams, (vti_role)role);
        if (here != (marks[role] != NULL)) fail_msg("unit %u, %s", unit, vti_role_name(role));
        size_t weights = (size_t)shape.slices * shape.rows * shape.cols;
        for (size_t i = 0; here && i < weights; i++) assert_int_equal(marks[role][i], 1);
        free(marks[role]);
    }
}

static void every_weight_is_in_one_shard(void **state)
{
    (void)state;
    test_random random = {31};
    for (int i = 0; i < 60; i++) {
        vti_hparams p = random_shape(&random, (vti_arch)(i % VTI_ARCH_COUNT));
        vti_geometry g;
        vti_geometry_init(&g, &p, i % 4 >= 2);
        assert_int_equal(g.units, 6);
        for (uint32_t unit = 0; unit < g.units; unit++) check_tiling(&g, unit, i % 2);
    }
}

/* Qwen2.5 0.5B. */
static void a_published_shape(void **state)
{
    (void)state;
    vti_hparams p = {.arch = VTI_ARCH_QWEN2, .layers = 24, .d = 896, .heads = 14, .kv_heads = 2,
                     .head_dim = 64, .ff = 4864, .vocab = 151936, .rope_dims = 64};
    vti_kernels kernels;
    vti_geometry g;
    vti_shard_layout layout;
    vti_kernels_init(&kernels, 0);
    vti_geometry_init(&g, &p, false);
    assert_int_equal(vti_unit_shards(&g, 0), 2);
    assert_int_equal(vti_unit_shards(&g, 1), 19);
    assert_int_equal(vti_unit_shards(&g, vti_head_unit(&g)), 33);
    vti_shard_form form = {VTI_PRECISION_F16, false, {VTI_F16, VTI_F16, VTI_F16, VTI_F32, VTI_F32,
                                                      VTI_F32, VTI_F16, VTI_PIECE_ABSENT}};
    assert_true(vti_shard_lay_out(&g, &kernels, 0, 1, &form, &layout));
    assert_int_equal(layout.bytes, (448 + 64 + 64) * 896 * 2 + (448 + 64 + 64) * 4 + 896 * 448 * 2);
    assert_int_equal(vti_shard_macs(&g, 0, 0), (448 + 64 + 64) * 896 + 896 * 448);
    assert_int_equal(vti_shard_macs(&g, 1, 18), 3 * 256 * 896);
    assert_int_equal(vti_shard_macs(&g, 0, 2), 0); /* norms multiply nothing worth counting */
    assert_int_equal(vti_shard_kv_bytes(&g, 0, 0, 2), 2 * 64 * 2);
    assert_int_equal(vti_shard_kv_bytes(&g, 1, 0, 2), 0);
    assert_int_equal(vti_shard_output_width(&g, 1, 0), 896);
    assert_int_equal(vti_shard_output_width(&g, vti_head_unit(&g), 32), 151936 - 32 * 4608);
    /* 448 columns are a block of 256 and one of 192. */
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        if (form.type[i] == VTI_F16) form.type[i] = VTI_Q4_K;
    }
    assert_true(vti_shard_lay_out(&g, &kernels, 0, 0, &form, &layout));
    assert_int_equal(layout.at[VTI_PIECE_OUT].bytes, 56 * vti_panel_bytes_q4_k(448));
    assert_int_equal(layout.at[VTI_PIECE_OUT].packed_cols, 448);
}

static void impossible_forms_are_refused(void **state)
{
    (void)state;
    test_random random = {5};
    vti_hparams p = random_shape(&random, VTI_ARCH_QWEN3);
    vti_kernels kernels;
    vti_geometry g;
    vti_shard_layout layout;
    vti_kernels_init(&kernels, 0);
    vti_geometry_init(&g, &p, false);
    vti_shard_form good = {VTI_PRECISION_I8, false, {VTI_Q8_0, VTI_Q8_0, VTI_Q8_0}};
    memset(good.type + 3, VTI_PIECE_ABSENT, VTI_PIECES - 3);
    assert_true(vti_shard_lay_out(&g, &kernels, 1, 0, &good, &layout));
    vti_shard_form bad = good;
    bad.type[1] = VTI_WEIGHT_TYPE_COUNT;
    assert_false(vti_shard_lay_out(&g, &kernels, 1, 0, &bad, &layout));
    bad.type[1] = VTI_PIECE_ABSENT; /* required */
    assert_false(vti_shard_lay_out(&g, &kernels, 1, 0, &bad, &layout));
    bad = good;
    bad.type[5] = VTI_F32; /* nothing there */
    assert_false(vti_shard_lay_out(&g, &kernels, 1, 0, &bad, &layout));
    bad = good;
    bad.precision = VTI_PRECISION_COUNT;
    assert_false(vti_shard_lay_out(&g, &kernels, 1, 0, &bad, &layout));
    assert_false(vti_shard_lay_out(&g, &kernels, g.units, 0, &good, &layout));
    assert_false(vti_shard_lay_out(&g, &kernels, 1, vti_unit_shards(&g, 1) + 1, &good, &layout));
    /* A norm is a vector. */
    vti_shard_form norms = {VTI_PRECISION_I8, false, {VTI_F16}};
    memset(norms.type + 1, VTI_PIECE_ABSENT, VTI_PIECES - 1);
    assert_false(vti_shard_lay_out(&g, &kernels, 1, vti_unit_shards(&g, 1), &norms, &layout));
    norms.type[0] = VTI_F32;
    assert_true(vti_shard_lay_out(&g, &kernels, 1, vti_unit_shards(&g, 1), &norms, &layout));
}

/* --- contents ---------------------------------------------------------------------------------- */

typedef struct opened {
    unsigned char *file;
    vt_model *model;
} opened;

static opened open_shape(const test_model *shape)
{
    opened o;
    vt_error err;
    size_t bytes;
    o.file = test_model_build(shape, &bytes);
    if (vt_model_open_memory(o.file, bytes, NULL, &o.model, &err) != VT_OK)
        fail_msg("%s", err.message);
    return o;
}

static void close_shape(opened *o)
{
    vt_model_close(o->model);
    free(o->file);
}

static vti_shard *load_shard(const vt_model *m, vti_shard_id id)
{
    const vti_shard_source *s = m->shards;
    vti_shard_layout layout;
    vti_shard *shard;
    vt_error err;
    assert_true(vti_shard_source_lay_out(s, id, &layout));
    assert_int_equal(vti_shard_new(m->memory, id, &layout, &shard, NULL), VT_OK);
    memset(shard->memory, 0xa5, (size_t)shard->bytes); /* all of it is to be written */
    if (s->load(s->self, id, shard->memory, &err) != VT_OK) fail_msg("%s", err.message);
    return shard;
}

/* Row of the piece as the file has it, in the type that takes its place if there is no kernel. */
static void file_row(const vt_model *m, const vti_source *from, const vti_piece *piece,
                     uint32_t row, float *out)
{
    static float whole[4096];
    static unsigned char converted[8192];
    const vti_matmul_kernel *kernel = &m->kernels.matmul[from->type];
    const void *stored = vti_source_row(from, piece->slice, piece->row + row);
    if (from->conversion) {
        from->conversion->convert(converted, stored, from->cols);
        stored = converted;
    }
    kernel->dequantize(whole, stored, from->cols);
    memcpy(out, whole + piece->col, piece->cols * sizeof *out);
}

/* How far a weight may be from the file's, given the 32 around it. */
static float allowed(vti_weight_type own, vti_weight_type type, const float *x, uint32_t count)
{
    float low = 0, high = 0;
    for (uint32_t i = 0; i < count; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    if (own == type) return 0;
    if (type == VTI_F16) return fmaxf(-low, high) * 0x1p-11f;
    if (type == VTI_Q8_0) return fmaxf(-low, high) / 127 * 0.75f; /* scales are searched */
    return (high - low) / 15 * 2; /* and the ends may be cut off */
}

static void check_piece(const vt_model *m, const vti_shard *shard, unsigned at,
                        const vti_piece *piece)
{
    static float expected[4096], found[4096];
    const vti_tensor *t = &shard->tensor[at];
    vti_source from;
    vti_role role = piece->role;
    assert_int_equal(vti_source_find(m->gguf, &m->hparams, role, vti_unit_layer(shard->id.unit),
                                     &from, NULL), VT_OK);
    if (role == VTI_OUTPUT && !from.data) from = m->embedding;
    assert_int_equal(t->rows, from.data ? piece->rows : 0);
    for (uint32_t row = 0; row < t->rows; row++) {
        memset(expected, 0, sizeof expected);
        file_row(m, &from, piece, row, expected);
        if (vti_role_is_vector(role))
            memcpy(found, t->data, piece->cols * sizeof *found);
        else
            m->kernels.matmul[t->type].unpack(found, t->data, t->cols, row);
        for (uint32_t c = 0; c < t->cols; c++) {
            const float *block = expected + c / 32 * 32;
            float error = fabsf(found[c] - expected[c]);
            if (!(error <= allowed(from.type, t->type, block, 32)))
                fail_msg("%s %s, row %u, column %u: %g instead of %g",
                         vti_arch_name(m->hparams.arch),
                         vti_role_name(role), row, c, found[c], expected[c]);
        }
    }
}

/* What alignment leaves free is zero: the same weights are to be the same bytes. */
static void check_gaps(const vt_model *m, const vti_shard *shard)
{
    vti_shard_layout layout;
    assert_true(vti_shard_source_lay_out(m->shards, shard->id, &layout));
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        const vti_placed_piece *at = &layout.at[i];
        if (!at->piece.rows) continue;
        const unsigned char *bytes = (const unsigned char *)shard->memory + at->offset;
        size_t used = vti_role_is_vector(at->piece.role)
                          ? at->piece.cols * sizeof(float)
                          : m->kernels.matmul[at->type].packed_bytes(at->piece.rows,
                                                                     at->packed_cols);
        for (; used < at->bytes; used++) assert_int_equal(bytes[used], 0);
    }
}

static void check_contents(const test_model *shape, vti_precision precision, bool halves)
{
    opened o = open_shape(shape);
    o.model->builder.halves = halves;
    const vti_geometry *g = &o.model->geometry;
    for (uint32_t unit = 0; unit < vti_embed_unit(g); unit++) {
        for (uint32_t i = 0; i <= vti_unit_shards(g, unit); i++) {
            vti_shard_form form;
            vti_piece pieces[VTI_PIECES];
            vti_shard_id id = {unit, i, precision};
            assert_true(o.model->shards->form(o.model->shards->self, id, &form));
            vti_shard *shard = load_shard(o.model, id);
            vti_shard_pieces(g, unit, i, form.source_grid, pieces);
            for (unsigned at = 0; at < VTI_PIECES; at++)
                if (pieces[at].rows) check_piece(o.model, shard, at, &pieces[at]);
            check_gaps(o.model, shard);
            vti_shard_free(o.model->memory, shard);
        }
    }
    close_shape(&o);
}

static const struct {
    uint32_t number;
    vti_quantize_fn *quantize;
} types[] = {
    {1, vti_quantize_f16},   {30, vti_quantize_bf16}, {8, vti_quantize_q8_0}, {6, vti_quantize_q5_0},
    {7, vti_quantize_q5_1},  {2, vti_quantize_q4_0},  {3, vti_quantize_q4_1}, {14, vti_quantize_q6_k},
    {13, vti_quantize_q5_k}, {12, vti_quantize_q4_k}, {11, vti_quantize_q3_k},
    {10, vti_quantize_q2_k}, {20, vti_quantize_iq4_nl}, {23, vti_quantize_iq4_xs},
};
enum { TYPES = sizeof types / sizeof types[0] };

/* Rows of whole blocks of 256, in which the shards of 192 columns begin and end anywhere. */
static test_model blocky_shape(const char *arch, unsigned type)
{
    test_model shape = test_model_of(arch);
    shape.layers = 1;
    shape.d = 256;
    shape.heads = 8;
    shape.kv_heads = 4;
    shape.head_dim = 96;
    shape.ff = 512;
    shape.expert_ff = 256;
    shape.matrix_type = types[type].number;
    shape.quantize = types[type].quantize;
    return shape;
}

static void shards_have_the_weights_of_the_file(void **state)
{
    (void)state;
    for (unsigned type = 0; type < TYPES; type++) {
        test_model shape = blocky_shape(families[type % FAMILIES], type);
        opened o = open_shape(&shape);
        vti_precision own = o.model->composition.precision[0];
        close_shape(&o);
        for (unsigned precision = own; precision < VTI_PRECISION_COUNT; precision++)
            check_contents(&shape, (vti_precision)precision, false);
        if (own == VTI_PRECISION_F16) continue;
        o = open_shape(&shape);
        vti_shard_form form;
        assert_false(o.model->shards->form(o.model->shards->self,
                                           (vti_shard_id){0, 0, VTI_PRECISION_F16}, &form));
        close_shape(&o);
    }
}

/* What a file's own types count as. */
static void precisions_of_files(void **state)
{
    (void)state;
    static const vti_precision own[TYPES] = {
        VTI_PRECISION_F16, VTI_PRECISION_F16, VTI_PRECISION_I8, VTI_PRECISION_I8, VTI_PRECISION_I8,
        VTI_PRECISION_I4,  VTI_PRECISION_I8,  VTI_PRECISION_I8, VTI_PRECISION_I8, VTI_PRECISION_I4,
        VTI_PRECISION_I8,  VTI_PRECISION_I8,  VTI_PRECISION_I8, VTI_PRECISION_I8,
    };
    for (unsigned type = 0; type < TYPES; type++) {
        test_model shape = blocky_shape("llama", type);
        opened o = open_shape(&shape);
        assert_int_equal(o.model->composition.precision[0], own[type]);
        close_shape(&o);
    }
}

/* Widths that are multiples of nothing. */
static test_model ragged(test_model shape)
{
    shape.d = 52;
    shape.heads = 6;
    shape.kv_heads = 3;
    shape.head_dim = 20;
    shape.ff = 77;
    shape.expert_ff = 19;
    return shape;
}

/* They are filled up with zeros inside the shard. */
static void ragged_shards_are_padded(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FAMILIES; i++) {
        test_model shape = ragged(test_model_of(families[i]));
        shape.layers = 2;
        check_contents(&shape, VTI_PRECISION_F16, false);
        check_contents(&shape, VTI_PRECISION_F16, true);
        check_contents(&shape, VTI_PRECISION_I8, false);
        check_contents(&shape, VTI_PRECISION_I4, false);
    }
}

static void weights_that_are_no_numbers(void **state)
{
    (void)state;
    test_model shape = test_model_of("qwen2");
    shape.edits[0] = (test_edit){TEST_TENSOR_FILL, "blk.1.ffn_up.weight", INFINITY, NULL, {0}};
    opened o = open_shape(&shape);
    const vti_shard_source *s = o.model->shards;
    unsigned char *memory = aligned_alloc(64, 1 << 20);
    vt_error err;
    assert_int_equal(s->load(s->self, (vti_shard_id){3, 0, VTI_PRECISION_I4}, memory, &err),
                     VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "row 0 of blk.1.ffn_up.weight"));
    assert_int_equal(s->load(s->self, (vti_shard_id){3, 0, VTI_PRECISION_F16}, memory, &err), VT_OK);
    assert_int_equal(s->load(s->self, (vti_shard_id){99, 0, VTI_PRECISION_I4}, memory, &err),
                     VT_ERR_ARGUMENT);
    free(memory);
    close_shape(&o);
}

/* --- sums -------------------------------------------------------------------------------------- */

enum { TOKENS = 5, MOST_D = 256 };

typedef struct bench {
    opened o;
    vti_stage *stage;
    vti_weights weights; /* the model's, with slots that can be emptied */
    vti_unit units[4];
    vti_shard *slots[4][64];
    float h[TOKENS * MOST_D];
} bench;

static void open_bench(bench *b, const test_model *shape)
{
    const vti_weights *all;
    test_random random = {77};
    memset(b, 0, sizeof *b);
    b->o = open_shape(shape);
    vt_model *m = b->o.model;
    assert_int_equal(vti_model_layers(m, &all, NULL), VT_OK);
    b->weights = *all;
    b->weights.units = b->units;
    for (uint32_t i = 0; i < all->count; i++) {
        assert_true(all->units[i].shards < 64);
        memcpy(b->slots[i], all->units[i].shard, (all->units[i].shards + 1) * sizeof(vti_shard *));
        b->units[i] = (vti_unit){all->units[i].shards, b->slots[i]};
    }
    vti_stage_params params = {.geometry = &m->geometry, .kernels = &m->kernels, .pool = m->pool,
                                .weights = &b->weights, .context_tokens = 32,
                                .batch_tokens = TOKENS, .kv_type = VT_KV_F32};
    assert_int_equal(vti_stage_open(&params, &b->stage, NULL), VT_OK);
    for (size_t i = 0; i < TOKENS * MOST_D; i++) b->h[i] = test_random_float(&random, -1, 1);
}

static void close_bench(bench *b)
{
    vti_stage_close(b->stage);
    close_shape(&b->o);
}

/* Output of a unit's shards before it is normed and added. */
static void run_unit(bench *b, uint32_t unit, float *out)
{
    const vti_hparams *p = &b->o.model->hparams;
    float h[TOKENS * MOST_D];
    memcpy(h, b->h, sizeof h);
    vti_kv_cache_make_room(&b->stage->cache, NULL, 0, TOKENS);
    vti_rope_fill(&b->stage->rope, p->rope_dims, 0, TOKENS);
    if (p->window) vti_rope_fill(&b->stage->local_rope, p->rope_dims, 0, TOKENS);
    vti_block block = {.s = b->stage, .unit = b->units[unit], .layer = unit / 2, .h = h,
                       .local = vti_layer_is_local(p, unit / 2), .tokens = TOKENS};
    if (unit % 2 == 0)
        vti_attention_unit(&block);
    else if (p->experts)
        vti_moe_unit(&block);
    else
        vti_dense_unit(&block);
    memcpy(out, b->stage->out, (size_t)TOKENS * p->d * sizeof *out);
}

/* Deals the shards out to `devices`, in any order, and adds up what each computes. */
static void run_parts(bench *b, uint32_t unit, uint32_t devices, test_random *random, float *sum)
{
    vti_unit *u = &b->units[unit];
    vti_shard *all[64];
    uint32_t owner[64];
    float part[TOKENS * MOST_D];
    memcpy(all, u->shard, sizeof all);
    memset(sum, 0, sizeof part);
    for (uint32_t i = 0; i < u->shards; i++)
        owner[i] = i < devices ? i : (uint32_t)(test_random_u64(random) % devices);
    for (uint32_t i = u->shards - 1; i > 0; i--) {
        uint32_t j = (uint32_t)(test_random_u64(random) % (i + 1)), other = owner[i];
        owner[i] = owner[j];
        owner[j] = other;
    }
    for (uint32_t device = 0; device < devices; device++) {
        for (uint32_t i = 0; i < u->shards; i++) u->shard[i] = owner[i] == device ? all[i] : NULL;
        run_unit(b, unit, part);
        for (size_t i = 0; i < TOKENS * b->o.model->hparams.d; i++) sum[i] += part[i];
    }
    memcpy(u->shard, all, (u->shards + 1) * sizeof *all);
}

static double apart(const float *a, const float *b, size_t count)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    assert_true(size > 0);
    return sqrt(error / size);
}

/* From one to all shards per device. */
static void check_sums(bench *b)
{
    test_random random = {13};
    float whole[TOKENS * MOST_D], sum[TOKENS * MOST_D];
    for (uint32_t unit = 0; unit < b->weights.count; unit++) {
        run_unit(b, unit, whole);
        for (uint32_t devices = 1; devices <= b->units[unit].shards; devices++) {
            run_parts(b, unit, devices, &random, sum);
            double error = apart(sum, whole, TOKENS * b->o.model->hparams.d);
            if (!(error < 2e-6))
                fail_msg("%s, unit %u on %u devices: off by %g",
                         vti_arch_name(b->o.model->hparams.arch), unit, devices, error);
        }
        run_unit(b, unit, sum);
        assert_memory_equal(sum, whole, TOKENS * b->o.model->hparams.d * sizeof *sum);
    }
}

static test_model two_layers(const char *arch)
{
    test_model shape = test_model_of(arch);
    shape.layers = 2;
    shape.heads = 8;
    shape.kv_heads = 4;
    shape.ff = 300;
    return shape;
}

static void check_sums_of_all(bool as_ragged)
{
    for (unsigned i = 0; i < FAMILIES; i++) {
        test_model shape = two_layers(families[i]);
        bench b;
        if (as_ragged) shape = ragged(shape);
        open_bench(&b, &shape);
        check_sums(&b);
        close_bench(&b);
    }
}

static void shards_add_up_to_their_unit(void **state)
{
    (void)state;
    check_sums_of_all(false);
}

static void ragged_shards_add_up(void **state)
{
    (void)state;
    check_sums_of_all(true);
}

/* Shards of one unit at different precisions, as while a unit's precision is being changed. */
static void precisions_mix(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FAMILIES; i++) {
        test_model shape = two_layers(families[i]);
        bench b;
        vti_shard *made[4 * 64];
        size_t count = 0;
        open_bench(&b, &shape);
        for (uint32_t unit = 0; unit < b.weights.count; unit++)
            for (uint32_t shard = 0; shard < b.units[unit].shards; shard++) {
                vti_shard_id id = {unit, shard, (vti_precision)((unit + shard) % 3)};
                made[count] = load_shard(b.o.model, id);
                b.slots[unit][shard] = made[count++];
            }
        check_sums(&b);
        for (size_t j = 0; j < count; j++) vti_shard_free(b.o.model->memory, made[j]);
        close_bench(&b);
    }
}

/* Of shards that begin within a block of 256 columns, both parts are multiplied with what is theirs. */
static void parted_blocks_compute(void **state)
{
    (void)state;
    static float row[4096], out[TOKENS * MOST_D];
    for (unsigned type = 0; type < TYPES; type++) {
        test_model shape = blocky_shape("llama", type);
        bench b;
        vti_source wo;
        double error = 0, size = 0;
        open_bench(&b, &shape);
        const vt_model *m = b.o.model;
        run_unit(&b, 0, out);
        assert_int_equal(vti_source_find(m->gguf, &m->hparams, VTI_ATTN_OUT, 0, &wo, NULL), VT_OK);
        const vti_piece whole = {VTI_ATTN_OUT, 0, 0, wo.rows, 0, wo.cols};
        for (uint32_t i = 0; i < wo.rows; i++) {
            file_row(m, &wo, &whole, i, row);
            for (uint32_t t = 0; t < TOKENS; t++) {
                const float *mix = b.stage->mix + (size_t)t * vti_mix_width(&m->geometry);
                double sum = 0;
                for (uint32_t c = 0; c < wo.cols; c++) sum += (double)row[c] * mix[c];
                double apart = out[(size_t)t * m->hparams.d + i] - sum;
                error += apart * apart;
                size += sum * sum;
            }
        }
        if (!(sqrt(error / size) < 0.02)) /* INT8 activations */
            fail_msg("type %u: off by %g", types[type].number, sqrt(error / size));
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_is_in_one_shard),
        cmocka_unit_test(a_published_shape),
        cmocka_unit_test(impossible_forms_are_refused),
        cmocka_unit_test(shards_have_the_weights_of_the_file),
        cmocka_unit_test(precisions_of_files),
        cmocka_unit_test(ragged_shards_are_padded),
        cmocka_unit_test(weights_that_are_no_numbers),
        cmocka_unit_test(shards_add_up_to_their_unit),
        cmocka_unit_test(parted_blocks_compute),
        cmocka_unit_test(ragged_shards_add_up),
        cmocka_unit_test(precisions_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
