/* voltron-bench requantize: the new file says the same in another type. tests/test_accuracy.c runs
 * such files. */
#include "bench_support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../src/gguf.h"

static const char model[] = "src/assets/stories-4m-f16.gguf";

static vt_gguf *open_in_folder(const char *name, char *path, size_t capacity)
{
    vt_gguf *gguf;
    vt_error err;
    snprintf(path, capacity, "%s/%s", bench_folder(), name);
    if (vt_gguf_open(path, &gguf, &err) != VT_OK) fail_msg("%s", err.message);
    return gguf;
}

static void check_metadata(const vt_gguf *before, const vt_gguf *after, uint32_t file_type)
{
    uint32_t found = 0;
    assert_int_equal(vt_gguf_entry_count(before), vt_gguf_entry_count(after));
    for (uint64_t i = 0; i < vt_gguf_entry_count(before); i++) {
        vt_gguf_entry entry;
        vt_gguf_get_entry(before, i, &entry);
        if (strcmp(entry.key, "general.file_type") == 0) continue;
        const vti_gguf_value *a = vti_gguf_find(before, entry.key);
        const vti_gguf_value *b = vti_gguf_find(after, entry.key);
        assert_non_null(b);
        assert_int_equal(a->type, b->type);
        assert_int_equal(a->is_array, b->is_array);
        assert_int_equal(a->count, b->count);
        assert_int_equal(a->end - a->data, b->end - b->data);
        assert_memory_equal(a->data, b->data, (size_t)(a->end - a->data));
    }
    assert_int_equal(vti_gguf_get_u32(after, "general.file_type", true, &found, NULL), VT_OK);
    assert_int_equal(found, file_type);
}

/* Matrices change, vectors do not. */
static void check_tensors(const vt_gguf *before, const vt_gguf *after, const char *type)
{
    assert_int_equal(vt_gguf_tensor_count(before), vt_gguf_tensor_count(after));
    for (uint64_t i = 0; i < vt_gguf_tensor_count(before); i++) {
        vt_gguf_tensor a, b;
        vt_gguf_get_tensor(before, i, &a);
        vt_gguf_get_tensor(after, i, &b);
        assert_string_equal(a.name, b.name);
        assert_memory_equal(a.dimensions, b.dimensions, sizeof a.dimensions);
        assert_string_equal(b.type, a.dimensions[1] > 1 ? type : a.type);
        if (a.dimensions[1] > 1) continue;
        assert_memory_equal(vti_gguf_find_tensor(before, a.name)->data,
                            vti_gguf_find_tensor(after, a.name)->data, (size_t)a.size_bytes);
    }
}

static void only_matrices_change(void **state)
{
    (void)state;
    char path[128], line[256];
    vt_gguf *before;
    vt_error err;
    assert_int_equal(vt_gguf_open(model, &before, &err), VT_OK);
    snprintf(line, sizeof line, "BENCH requantize -m %s --type q5_k -o DIR/a.gguf", model);
    bench_expect(line, 0, "43 of 74 tensors to Q5_K");
    vt_gguf *after = open_in_folder("a.gguf", path, sizeof path);
    check_metadata(before, after, 16);
    check_tensors(before, after, "Q5_K");
    vt_gguf_close(after);
    vt_gguf_close(before);
    unlink(path);
}

/* F16 weights survive F32 and the way back. */
static void floats_come_back(void **state)
{
    (void)state;
    char line[512];
    snprintf(line, sizeof line,
             "BENCH requantize -m %s --type f16 -o DIR/a && "
             "BENCH requantize -m DIR/a --type f32 -o DIR/b && ! cmp -s DIR/a DIR/b && "
             "BENCH requantize -m DIR/b --type f16 -o DIR/b && cmp DIR/a DIR/b && rm DIR/a DIR/b",
             model);
    bench_expect(line, 0, NULL);
}

/* Rows of 896 are no whole number of super-blocks. */
static void rows_that_do_not_fit(void **state)
{
    (void)state;
    char path[128];
    bench_synth("b.gguf", "--shape qwen2.5-0.5b --layers 1 --vocab 320 --type f16");
    bench_expect("BENCH requantize -m DIR/b.gguf --type q4_k -o DIR/c.gguf", 0,
                 "7 of them are another type: blocks of 256 do not fit");
    vt_gguf *gguf = open_in_folder("c.gguf", path, sizeof path);
    assert_int_equal(vti_gguf_find_tensor(gguf, "blk.0.ffn_up.weight")->type, 6);
    assert_int_equal(vti_gguf_find_tensor(gguf, "blk.0.ffn_down.weight")->type, 12);
    vt_gguf_close(gguf);
    bench_expect("rm DIR/b.gguf DIR/c.gguf", 0, NULL);
}

static void wrong_usage(void **state)
{
    (void)state;
    char line[256];
    bench_expect("BENCH requantize --help", 0, "Types: f32 f16");
    bench_expect("BENCH requantize", 2, "needs -m, --type and -o");
    snprintf(line, sizeof line, "BENCH requantize -m %s --type q9 -o DIR/x", model);
    bench_expect(line, 2, "\"q9\" is not known; known: f32");
    bench_expect("BENCH requantize -m DIR/none --type f16 -o DIR/x", 3, "none");
    snprintf(line, sizeof line, "BENCH requantize -m %s --type f16 -o DIR/none/x", model);
    bench_expect(line, 3, "none/x");
    snprintf(line, sizeof line, "ulimit -f 1000; BENCH requantize -m %s --type f32 -o DIR/x",
             model);
    bench_expect(line, 3, "x: ");
    bench_expect_empty_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_matrices_change),
        cmocka_unit_test(floats_come_back),
        cmocka_unit_test(rows_that_do_not_fit),
        cmocka_unit_test(wrong_usage),
    };
    return cmocka_run_group_tests(tests, bench_make_folder, bench_remove_folder);
}
