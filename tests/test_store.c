/* Shard stores: what is written is what is read, whatever the family, threads and precisions. */
#include "store_support.h"
#include "support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const families[] = {"qwen2", "llama", "qwen3", "gemma3", "qwen2moe"};

enum { FAMILIES = sizeof families / sizeof families[0] };

static vt_store *open_store(const char *path)
{
    vt_error err = {.message = ""};
    vt_store *store;
    if (vt_store_open(path, &store, &err) != VT_OK) fail_msg("%s", err.message);
    return store;
}

/* Loads a shard from both; they must be the same bytes in the same form. */
static void compare_shard(const test_source *t, const vti_shard_source *store, vti_shard_id id)
{
    vti_shard_form a, b;
    vti_shard_layout layout;
    vt_error err = {.message = ""};
    assert_true(t->source.form(t->source.self, id, &a));
    assert_true(store->form(store->self, id, &b));
    assert_int_equal(a.precision, b.precision);
    assert_int_equal(a.source_grid, b.source_grid);
    assert_memory_equal(a.type, b.type, sizeof a.type);
    assert_true(vti_shard_lay_out(store->geometry, store->kernels, id.unit, id.shard, &b, &layout));
    unsigned char *from = aligned_alloc(64, layout.bytes), *to = aligned_alloc(64, layout.bytes);
    bool shared = id.shard == vti_unit_shards(&t->geometry, id.unit);
    vti_shard_id first = {id.unit, id.shard, shared ? VTI_PRECISION_F16 : id.precision};
    memset(to, 0xa5, layout.bytes);
    assert_int_equal(t->source.load(t->source.self, first, from, NULL), VT_OK);
    if (store->load(store->self, id, to, &err) != VT_OK) fail_msg("%s", err.message);
    assert_memory_equal(from, to, layout.bytes);
    free(from);
    free(to);
}

static void compare_shards(const test_source *t, const vti_shard_source *store)
{
    for (uint32_t unit = 0; unit < vti_embed_unit(&t->geometry); unit++)
        for (uint32_t shard = 0; shard <= vti_unit_shards(&t->geometry, unit); shard++)
            for (unsigned p = 0; p < VTI_PRECISION_COUNT; p++)
                compare_shard(t, store, (vti_shard_id){unit, shard, (vti_precision)p});
}

/* Metadata and tensors are all there, as they were, and the embedding has its rows. */
static void compare_directories(const test_source *t, const vt_gguf *gguf)
{
    vt_gguf_entry entry;
    vt_gguf_tensor tensor, other;
    assert_int_equal(vt_gguf_entry_count(gguf), vt_gguf_entry_count(t->gguf));
    for (uint64_t i = 0; vt_gguf_get_entry(t->gguf, i, &entry) == VT_OK; i++) {
        const vti_gguf_value *a = vti_gguf_find(t->gguf, entry.key);
        const vti_gguf_value *b = vti_gguf_find(gguf, entry.key);
        assert_non_null(b);
        assert_true(a->type == b->type && a->is_array == b->is_array && a->count == b->count);
        assert_int_equal(a->end - a->data, b->end - b->data);
        assert_memory_equal(a->data, b->data, (size_t)(a->end - a->data));
    }
    assert_int_equal(vt_gguf_tensor_count(gguf), vt_gguf_tensor_count(t->gguf));
    for (uint64_t i = 0; vt_gguf_get_tensor(t->gguf, i, &tensor) == VT_OK; i++) {
        assert_int_equal(vt_gguf_get_tensor(gguf, i, &other), VT_OK);
        assert_string_equal(tensor.name, other.name);
        assert_string_equal(tensor.type, other.type);
        assert_memory_equal(tensor.dimensions, other.dimensions, sizeof tensor.dimensions);
        bool rows = strcmp(tensor.name, "token_embd.weight") == 0;
        const vti_gguf_tensor *place = vti_gguf_find_tensor(gguf, tensor.name);
        assert_int_equal(place->data != NULL, rows);
        if (rows)
            assert_memory_equal(place->data, vti_gguf_find_tensor(t->gguf, tensor.name)->data,
                                tensor.size_bytes);
    }
}

static void what_is_packed_is_read(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FAMILIES; i++) {
        test_source t;
        test_source_open(&t, families[i], 2);
        const char *path = test_store_path("all.vts");
        test_store_write(&t, path, 2);
        vt_store *store = open_store(path);
        vt_error err = {.message = ""};
        if (vt_store_verify(store, NULL, &err) != VT_OK) fail_msg("%s", err.message);
        assert_memory_equal(vti_store_identity(store), &t.identity, sizeof t.identity);
        assert_memory_equal(vti_store_source(store)->geometry, &t.geometry, sizeof t.geometry);
        compare_shards(&t, vti_store_source(store));
        compare_directories(&t, vt_store_gguf(store));
        vt_store_close(store);
        test_source_close(&t);
    }
}

static void threads_do_not_change_the_file(void **state)
{
    (void)state;
    test_source t;
    size_t bytes[3];
    unsigned char *files[3];
    static const uint32_t threads[] = {1, 2, 7};
    test_source_open(&t, "qwen2moe", 3);
    for (int i = 0; i < 3; i++) {
        test_store_write(&t, test_store_path("same.vts"), threads[i]);
        files[i] = test_read_file(test_store_path("same.vts"), &bytes[i]);
        assert_int_equal(bytes[i], bytes[0]);
        assert_memory_equal(files[i], files[0], bytes[0]);
    }
    for (int i = 0; i < 3; i++) free(files[i]);
    test_source_close(&t);
}

static void only_the_precisions_asked_for(void **state)
{
    (void)state;
    test_source t;
    vt_pack_params params = vt_pack_params_default();
    const char *path = test_store_path("some.vts");
    test_source_open(&t, "llama", 1);
    params.precisions = 1u << VT_PRECISION_F16 | 1u << VT_PRECISION_I4;
    assert_int_equal(vti_pack(&t.source, t.gguf, &t.identity, path, &params, NULL), VT_OK);
    vt_store *store = open_store(path);
    const vti_shard_source *source = vti_store_source(store);
    vti_shard_form form;
    vt_error err = {.message = ""};
    vti_shard_id id = {0, 0, VTI_PRECISION_I8};
    unsigned char memory[64];
    assert_false(source->form(source->self, id, &form));
    assert_int_equal(source->load(source->self, id, memory, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "ATTN(0), shard 0 at I8"));
    compare_shard(&t, source, (vti_shard_id){0, 0, VTI_PRECISION_F16});
    compare_shard(&t, source, (vti_shard_id){1, 1, VTI_PRECISION_I4});
    vt_store_info info;
    vt_store_get_info(store, &info);
    assert_int_equal(info.precision[VT_PRECISION_I8].count, 0);
    assert_true(info.precision[VT_PRECISION_F16].stored_bytes <
                info.precision[VT_PRECISION_F16].bytes);
    vt_store_close(store);
    params.precisions = 1u << VT_PRECISION_F16;
    t.offered = 6;
    assert_int_equal(vti_pack(&t.source, t.gguf, &t.identity, path, &params, &err),
                     VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "ATTN(0) is not offered"));
    assert_non_null(strstr(err.message, "only at I8 I4"));
    test_source_close(&t);
}

static void units_add_up(void **state)
{
    (void)state;
    test_source t;
    test_source_open(&t, "gemma3", 2);
    test_store_write(&t, test_store_path("units.vts"), 1);
    vt_store *store = open_store(test_store_path("units.vts"));
    vt_store_info info;
    vt_store_unit unit;
    vt_store_get_info(store, &info);
    uint64_t bytes = 0, shared = 0;
    for (uint32_t i = 0; i < info.units; i++) {
        assert_int_equal(vt_store_get_unit(store, i, &unit), VT_OK);
        bytes += unit.precision[VT_PRECISION_I4].stored_bytes;
        shared += unit.shared.stored_bytes;
        if (i == 3) assert_string_equal(unit.name, "FFN(1)");
        if (i == 3) assert_string_equal(unit.types[VT_PRECISION_I8], "Q8_0");
    }
    assert_string_equal(unit.name, "EMBED");
    assert_int_equal(bytes, info.precision[VT_PRECISION_I4].stored_bytes);
    assert_int_equal(shared, info.shared.stored_bytes + info.embedding.stored_bytes);
    assert_int_equal(vt_store_get_unit(store, info.units, &unit), VT_ERR_ARGUMENT);
    vt_store_close(store);
    test_source_close(&t);
}

/* --- what does not work leaves nothing behind -------------------------------------------------- */

static bool after_some(void *user)
{
    unsigned *left = user;
    return *left == 0 || --*left == 0;
}

static void a_pack_that_ends_early_leaves_nothing(void **state)
{
    (void)state;
    test_source t;
    vt_error err = {.message = ""};
    vt_pack_params params = vt_pack_params_default();
    unsigned files = test_store_files(), left = 5;
    const char *path = test_store_path("never.vts");
    test_source_open(&t, "qwen2", 2);
    params.threads = 2;
    params.cancelled = after_some;
    params.user = &left;
    assert_int_equal(vti_pack(&t.source, t.gguf, &t.identity, path, &params, &err),
                     VT_ERR_CANCELLED);
    assert_int_equal(test_store_files(), files);
    params.cancelled = NULL;
    t.broken_unit = 2;
    assert_int_equal(vti_pack(&t.source, t.gguf, &t.identity, path, &params, &err), VT_ERR_FORMAT);
    assert_string_equal(err.message, "this unit is broken");
    assert_int_equal(test_store_files(), files);
    t.broken_unit = UINT32_MAX;
    assert_int_equal(vti_pack(&t.source, t.gguf, &t.identity, "/nowhere/x.vts", &params, &err),
                     VT_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere/x.vts"));
    test_source_close(&t);
}

static void only_a_store_is_replaced(void **state)
{
    (void)state;
    test_source t;
    vt_error err = {.message = ""};
    vt_pack_params params = vt_pack_params_default();
    const char *path = test_store_path("replaced.vts");
    test_source_open(&t, "llama", 1);
    test_store_write_file(path, "GGUF and what follows", 20);
    assert_int_equal(vti_pack(&t.source, t.gguf, &t.identity, path, &params, &err),
                     VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "is not a shard store"));
    assert_false(vt_store_is(path));
    test_store_write_file(path, "VTST", 4);
    test_store_write(&t, path, 1);
    vt_store_close(open_store(path));
    test_source_close(&t);
}

/* --- several threads --------------------------------------------------------------------------- */

typedef struct loader {
    const test_source *t;
    const vti_shard_source *store;
} loader;

static void *load_all(void *context)
{
    loader *l = context;
    compare_shards(l->t, l->store);
    return NULL;
}

static void threads_load_at_the_same_time(void **state)
{
    (void)state;
    test_source t;
    pthread_t threads[3];
    test_source_open(&t, "qwen3", 2);
    test_store_write(&t, test_store_path("threads.vts"), 2);
    vt_store *store = open_store(test_store_path("threads.vts"));
    loader l = {&t, vti_store_source(store)};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_all, &l), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    vt_store_close(store);
    test_source_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_packed_is_read),
        cmocka_unit_test(threads_do_not_change_the_file),
        cmocka_unit_test(only_the_precisions_asked_for),
        cmocka_unit_test(units_add_up),
        cmocka_unit_test(a_pack_that_ends_early_leaves_nothing),
        cmocka_unit_test(only_a_store_is_replaced),
        cmocka_unit_test(threads_load_at_the_same_time),
    };
    return cmocka_run_group_tests(tests, test_store_set_up, test_store_tear_down);
}
