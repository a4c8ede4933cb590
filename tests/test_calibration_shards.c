/* Importance on its way into shards: each piece gets that of its own columns. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/calibration.h"
#include "../src/shard_build.h"
#include "../src/tensor_source.h"
#include "model_builder.h"

enum { BUILDERS = 2 };

/* A model with ragged widths, and a source of its shards without and one with importance. */
typedef struct fixture {
    unsigned char *bytes;
    vt_gguf *gguf;
    vti_kernels kernels;
    vti_geometry geometry;
    vti_calibration *importance;
    vti_shard_builder builders[BUILDERS];
} fixture;

static void open_fixture(fixture *f, const char *arch)
{
    test_model m = test_model_of(arch);
    vti_hparams p;
    size_t bytes;
    vt_error err = {0};
    m.layers = 2;
    m.d = 72;
    m.head_dim = 20;
    m.ff = 600;
    m.expert_ff = 88;
    f->bytes = test_model_build(&m, &bytes);
    if (vti_gguf_open_memory(f->bytes, bytes, "model", &f->gguf, &err) != VT_OK ||
        vti_hparams_read(f->gguf, &p, &err) != VT_OK ||
        vti_calibration_new(&p, &f->importance, &err) != VT_OK)
        fail_msg("%s", err.message);
    vti_kernels_init(&f->kernels, 0);
    vti_geometry_init(&f->geometry, &p, false);
    for (int i = 0; i < BUILDERS; i++)
        vti_shard_builder_init(&f->builders[i], f->gguf, &f->geometry, &f->kernels,
                               VTI_PRECISION_F16);
    f->builders[1].importance = vti_calibration_of;
    f->builders[1].importance_user = f->importance;
}

static void close_fixture(fixture *f)
{
    vti_calibration_free(f->importance);
    vt_gguf_close(f->gguf);
    free(f->bytes);
}

/* Few channels matter much, in every input others. */
static void invent_importance(vti_calibration *im)
{
    test_random random = {17};
    for (uint32_t i = 0; i < im->count; i++) {
        im->inputs[i].tokens = 1;
        for (uint32_t c = 0; c < im->inputs[i].cols; c++) {
            float u = test_random_float(&random, 0, 1);
            im->inputs[i].mean[c] = u * u * u * u * u * u;
        }
    }
}

/* Sum over a piece's weights of importance × square of what is off. */
static double piece_loss(const fixture *f, uint32_t unit, const vti_placed_piece *at,
                         const unsigned char *memory)
{
    const vti_piece *piece = &at->piece;
    vti_source source;
    vt_error err;
    uint32_t layer = vti_unit_layer(unit);
    const float *importance = vti_calibration_of(f->importance, layer, piece->role, piece->slice);
    if (!importance) fail_msg("%s has no importance", vti_role_name(piece->role));
    vti_role role = piece->role == VTI_OUTPUT ? VTI_TOKEN_EMBD : piece->role;
    if (vti_source_find(f->gguf, &f->geometry.hparams, role, layer, &source, &err) != VT_OK)
        fail_msg("%s", err.message);
    float *row = malloc(at->packed_cols * sizeof *row);
    double loss = 0;
    for (uint32_t r = 0; r < piece->rows; r++) {
        const float *x = (const float *)(const void *)vti_source_row(&source, piece->slice,
                                                                     piece->row + r);
        f->kernels.matmul[at->type].unpack(row, memory + at->offset, at->packed_cols, r);
        for (uint32_t c = 0; c < piece->cols; c++) {
            double off = (double)row[c] - x[piece->col + c];
            loss += importance[piece->col + c] * off * off;
        }
    }
    free(row);
    return loss;
}

/* Losses of a shard's matrices, by role. */
static void shard_losses(const fixture *f, const vti_shard_builder *b, vti_shard_id id,
                         double loss[VTI_ROLE_COUNT])
{
    vti_shard_form form;
    vti_shard_layout layout;
    vt_error err;
    assert_true(b->source.form(b->source.self, id, &form));
    assert_true(vti_shard_lay_out(&f->geometry, &f->kernels, id.unit, id.shard, &form, &layout));
    unsigned char *memory = aligned_alloc(64, layout.bytes);
    if (b->source.load(b->source.self, id, memory, &err) != VT_OK) fail_msg("%s", err.message);
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        const vti_placed_piece *at = &layout.at[i];
        if (!at->piece.rows || (at->type != VTI_Q8_0 && at->type != VTI_Q4_K)) continue;
        loss[at->piece.role] += piece_loss(f, id.unit, at, memory);
    }
    free(memory);
}

static void check_unit(const fixture *f, uint32_t unit, vti_precision precision)
{
    double loss[BUILDERS][VTI_ROLE_COUNT] = {{0}};
    int matrices = 0;
    for (int i = 0; i < BUILDERS; i++)
        for (uint32_t shard = 0; shard < vti_unit_shards(&f->geometry, unit); shard++)
            shard_losses(f, &f->builders[i], (vti_shard_id){unit, shard, precision}, loss[i]);
    for (unsigned role = 0; role < VTI_ROLE_COUNT; role++) {
        if (!loss[0][role]) continue;
        matrices++;
        if (!(loss[1][role] < 0.8 * loss[0][role]))
            fail_msg("%s at %s: %g with importance, %g without", vti_role_name((vti_role)role),
                     vti_precision_name(precision), loss[1][role], loss[0][role]);
    }
    vti_unit_kind kind = vti_unit_kind_of(&f->geometry, unit);
    assert_true(matrices >= (kind == VTI_UNIT_HEAD ? 1 : 3));
}

static void pieces_get_their_columns(void **state)
{
    (void)state;
    static const char *const archs[] = {"qwen2", "qwen2moe"};
    for (int a = 0; a < 2; a++) {
        fixture f;
        open_fixture(&f, archs[a]);
        invent_importance(f.importance);
        for (uint32_t unit = 0; unit <= vti_head_unit(&f.geometry); unit++) {
            check_unit(&f, unit, VTI_PRECISION_I8);
            check_unit(&f, unit, VTI_PRECISION_I4);
        }
        close_fixture(&f);
    }
}

/* Nothing was seen: the very bytes that there are without importance. */
static void nothing_known_changes_nothing(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, "qwen2");
    for (uint32_t unit = 0; unit <= vti_head_unit(&f.geometry); unit++) {
        vti_shard_id id = {unit, 0, VTI_PRECISION_I4};
        unsigned char *memory[BUILDERS];
        vti_shard_layout layout;
        for (int i = 0; i < BUILDERS; i++) {
            vti_shard_form form;
            const vti_shard_source *source = &f.builders[i].source;
            assert_true(source->form(source->self, id, &form));
            assert_true(vti_shard_lay_out(&f.geometry, &f.kernels, unit, 0, &form, &layout));
            memory[i] = aligned_alloc(64, layout.bytes);
            assert_int_equal(source->load(source->self, id, memory[i], NULL), VT_OK);
        }
        assert_memory_equal(memory[0], memory[1], layout.bytes);
        free(memory[0]);
        free(memory[1]);
    }
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_get_their_columns),
        cmocka_unit_test(nothing_known_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
