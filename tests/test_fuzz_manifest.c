/* Lists of shards: the fuzz target over its corpus, and every field that may be wrong.
 *   test_fuzz_manifest FILE …                 runs these files instead (a crash the fuzzer found)
 *   test_fuzz_manifest --write-seeds FOLDER   writes a good list of each model there */
#define FUZZ_NAME "manifest"
#include "fuzz/fuzz_manifest.c"
#include "fuzz/replay.h"

#include "../src/little_endian.h"

typedef struct list {
    vti_geometry geometry;
    vti_kernels kernels;
    vti_manifest manifest;
    uint8_t *data;
    size_t bytes;
} list;

/* Every matrix of one type, in a form as sources give it. */
static void make_list(list *l, unsigned which)
{
    static const uint8_t types[] = {VTI_F16, VTI_Q8_0, VTI_Q4_K};
    fuzz_geometry(which, &l->geometry);
    vti_kernels_init(&l->kernels, VTI_CPU_EXACT);
    assert_int_equal(vti_manifest_new(&l->geometry, &l->kernels, 1, 2, &l->manifest, NULL), VT_OK);
    for (uint32_t i = 0; i < l->manifest.count; i++) {
        vti_manifest_entry *entry = &l->manifest.entries[i];
        vti_piece pieces[VTI_PIECES];
        vti_shard_layout layout;
        bool shared = entry->id.shard == vti_unit_shards(&l->geometry, entry->id.unit);
        entry->id.precision = entry->form.precision = (vti_precision)which;
        vti_shard_pieces(&l->geometry, entry->id.unit, entry->id.shard, false, pieces);
        for (unsigned p = 0; p < VTI_PIECES; p++)
            entry->form.type[p] = pieces[p].rows == 0 ? VTI_PIECE_ABSENT
                                  : vti_role_is_vector(pieces[p].role) || shared ? VTI_F32
                                                                                 : types[which];
        assert_true(vti_manifest_lay_out(&l->manifest, i, &layout));
        entry->bytes = layout.bytes;
        entry->stored_bytes = 1 + layout.bytes / 2;
        memset(&entry->hash, (int)i, sizeof entry->hash);
    }
    l->bytes = (size_t)l->manifest.count * VTI_MANIFEST_ENTRY_BYTES;
    l->data = malloc(l->bytes);
    vti_manifest_encode(&l->manifest, l->data);
}

static void free_list(list *l)
{
    vti_manifest_free(&l->manifest);
    free(l->data);
}

/* What a device that expects the same layers says to these bytes. */
static vt_status decode(const list *l, const uint8_t *data, size_t bytes, vt_error *err)
{
    vti_manifest out;
    assert_int_equal(vti_manifest_new(&l->geometry, &l->kernels, 1, 2, &out, NULL), VT_OK);
    vt_status status = vti_manifest_decode(&out, data, bytes, err);
    if (status == VT_OK) {
        assert_int_equal(out.count, l->manifest.count);
        assert_int_equal(vti_manifest_bytes(&out), vti_manifest_bytes(&l->manifest));
        for (uint32_t i = 0; i < out.count; i++) {
            assert_true(vti_shard_form_is(&out.entries[i].form, &l->manifest.entries[i].form));
            assert_memory_equal(&out.entries[i].hash, &l->manifest.entries[i].hash,
                                sizeof out.entries[i].hash);
            assert_int_equal(out.entries[i].left_out, l->manifest.entries[i].left_out);
            assert_int_equal(out.entries[i].stored_bytes, l->manifest.entries[i].stored_bytes);
        }
    }
    vti_manifest_free(&out);
    return status;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    for (unsigned which = 0; which < FUZZ_MODELS; which++) {
        list l;
        vt_error err = {.message = ""};
        make_list(&l, which);
        if (decode(&l, l.data, l.bytes, &err) != VT_OK) fail_msg("%s", err.message);
        assert_int_equal(decode(&l, l.data, l.bytes - 1, &err), VT_ERR_PROTOCOL);
        assert_int_equal(decode(&l, l.data, l.bytes - VTI_MANIFEST_ENTRY_BYTES, &err),
                         VT_ERR_PROTOCOL);
        assert_int_equal(decode(&l, l.data, 0, &err), VT_ERR_PROTOCOL);
        free_list(&l);
    }
}

/* Changes one byte of entry 5, which the message then names. */
static void expect_refused(list *l, size_t at, uint8_t value, const char *why)
{
    char name[VTI_SHARD_TEXT];
    vt_error err = {.message = ""};
    uint8_t *byte = l->data + 5 * VTI_MANIFEST_ENTRY_BYTES + at, before = *byte;
    assert_int_not_equal(before, value);
    *byte = value;
    assert_int_equal(decode(l, l->data, l->bytes, &err), VT_ERR_PROTOCOL);
    vti_manifest_name(&l->manifest, 5, name);
    if (!strstr(err.message, name) || !strstr(err.message, why))
        fail_msg("no \"%s\" or \"%s\" in: %s", name, why, err.message);
    *byte = before;
}

static void every_field_is_checked(void **state)
{
    (void)state;
    for (unsigned which = 0; which < FUZZ_MODELS; which++) {
        list l;
        make_list(&l, which);
        const vti_manifest_entry *entry = &l.manifest.entries[5];
        expect_refused(&l, 0, (uint8_t)(entry->id.unit + 1), "another one");
        expect_refused(&l, 3, 0xff, "another one");
        expect_refused(&l, 4, (uint8_t)(entry->id.shard + 1), "another one");
        expect_refused(&l, 8, VTI_PRECISION_COUNT, "not known");
        expect_refused(&l, 9, 2, "not known");
        expect_refused(&l, 10, 1, "not known");
        expect_refused(&l, 11, 1, "not known");
        expect_refused(&l, 12, VTI_WEIGHT_TYPE_COUNT, "cannot have");
        expect_refused(&l, 12, 0xfe, "cannot have");
        expect_refused(&l, 20, (uint8_t)(entry->bytes + 64), "a size that");
        expect_refused(&l, 27, 0x80, "a size that");
        expect_refused(&l, 35, 0x80, "a stored size"); /* far too large */
        memset(l.data + 5 * VTI_MANIFEST_ENTRY_BYTES + 28, 0, 8);
        vt_error err;
        assert_int_equal(decode(&l, l.data, l.bytes, &err), VT_ERR_PROTOCOL);
        free_list(&l);
    }
}

/* A worker that has the very same file is sent no sizes and hashes of blocks. */
static void lists_without_blocks(void **state)
{
    (void)state;
    list l;
    vti_manifest out;
    make_list(&l, 0);
    assert_int_equal(vti_manifest_new(&l.geometry, &l.kernels, 1, 2, &out, NULL), VT_OK);
    out.same_file = true;
    assert_int_equal(vti_manifest_decode(&out, l.data, l.bytes, NULL), VT_ERR_PROTOCOL);
    for (uint32_t i = 0; i < l.manifest.count; i++) l.manifest.entries[i].stored_bytes = 0;
    vti_manifest_encode(&l.manifest, l.data);
    assert_int_equal(vti_manifest_decode(&out, l.data, l.bytes, NULL), VT_OK);
    assert_int_equal(decode(&l, l.data, l.bytes, NULL), VT_ERR_PROTOCOL);
    vti_manifest_free(&out);
    free_list(&l);
}

/* Of a shard that is left out an entry says nothing else. */
static void shards_that_are_left_out(void **state)
{
    (void)state;
    for (unsigned which = 0; which < FUZZ_MODELS; which++) {
        list l;
        make_list(&l, which);
        vti_manifest_entry *entry = &l.manifest.entries[5];
        vti_shard_id id = entry->id;
        assert_int_not_equal(id.shard, vti_unit_shards(&l.geometry, id.unit));
        expect_refused(&l, 8, 0xff, "left out");
        *entry = (vti_manifest_entry){.id = id, .left_out = true};
        vti_manifest_encode(&l.manifest, l.data);
        assert_int_equal(decode(&l, l.data, l.bytes, NULL), VT_OK);
        static const size_t at[] = {9, 10, 11, 12, 19, 20, 28, 36, 67};
        for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
            expect_refused(&l, at[i], 1, "left out");
        uint32_t shared = 5;
        while (l.manifest.entries[shared].id.shard !=
               vti_unit_shards(&l.geometry, l.manifest.entries[shared].id.unit))
            shared++;
        entry = &l.manifest.entries[shared];
        *entry = (vti_manifest_entry){.id = entry->id, .left_out = true};
        vti_manifest_encode(&l.manifest, l.data);
        assert_int_equal(decode(&l, l.data, l.bytes, NULL), VT_ERR_PROTOCOL);
        free_list(&l);
    }
}

/* Assigned by a peer: no list that would not fit a message, and no endless counting. */
static void too_many_shards(void **state)
{
    (void)state;
    vti_hparams p = fuzz_hparams(1);
    vti_geometry geometry;
    vti_manifest out;
    vt_error err;
    list l;
    make_list(&l, 0);
    p.layers = 4000000;
    p.experts = 4000000;
    vti_geometry_init(&geometry, &p, false);
    assert_int_equal(vti_manifest_count(&geometry, 0, p.layers), 0);
    assert_int_equal(vti_manifest_new(&geometry, &l.kernels, 0, 2, &out, &err), VT_ERR_UNSUPPORTED);
    vti_manifest_free(&out);
    free_list(&l);
}

static int write_seeds(const char *folder)
{
    for (unsigned which = 0; which < FUZZ_MODELS; which++) {
        char name[32];
        list l;
        make_list(&l, which);
        snprintf(name, sizeof name, "model-%u", which);
        int failed = fuzz_write_seed(folder, name, (int)which, l.data, l.bytes);
        free_list(&l);
        if (failed) return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read), cmocka_unit_test(every_field_is_checked),
        cmocka_unit_test(lists_without_blocks), cmocka_unit_test(shards_that_are_left_out),
        cmocka_unit_test(too_many_shards),
        cmocka_unit_test(corpus_runs_through_the_target),
    };
    return fuzz_run_main(argc, argv, write_seeds, tests, sizeof tests / sizeof tests[0]);
}
