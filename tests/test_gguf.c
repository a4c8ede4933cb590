/* GGUF files as they should be: directory, look-ups, tensor data. */
#include "support.h"

#include "gguf_samples.h"
#include "fuzz/gguf_exercise.h"

#include <unistd.h>

static vt_gguf *open_memory(const unsigned char *data, size_t bytes)
{
    vt_error err = {VT_OK, ""};
    vt_gguf *gguf = NULL;
    if (vti_gguf_open_memory(data, bytes, "memory", &gguf, &err) != VT_OK)
        fail_msg("%s", err.message);
    return gguf;
}

/* Opens and checks every promise of the interface. */
static vt_gguf *open_file(const char *path)
{
    vt_error err = {VT_OK, ""};
    vt_gguf *gguf = NULL;
    if (vt_gguf_open(path, &gguf, &err) != VT_OK) fail_msg("%s", err.message);
    assert_string_equal(vti_gguf_name(gguf), path);
    size_t bytes;
    unsigned char *data = test_read_file(path, &bytes);
    for (uint64_t i = 0; i < vt_gguf_tensor_count(gguf); i++) {
        vt_gguf_tensor tensor;
        assert_int_equal(vt_gguf_get_tensor(gguf, i, &tensor), VT_OK);
        const vti_gguf_tensor *found = vti_gguf_find_tensor(gguf, tensor.name);
        assert_memory_equal(found->data, data + tensor.offset_bytes, (size_t)tensor.size_bytes);
    }
    free(data);
    gguf_exercise_entries(gguf);
    return gguf;
}

/* ---- files of others ------------------------------------------------------------------------- */

typedef struct file_facts {
    const char *path; /* in ../shared */
    uint64_t entries, tensors;
    const char *architecture;
    uint64_t tokens;
    const char *middle_token; /* token number tokens / 2 */
    const char *last_tensor;  /* in the file's order, with type, offset and first bytes */
    const char *type;
    uint64_t offset_bytes;
    const char *first_bytes;  /* eight of them, in hexadecimal */
} file_facts;

/* Read off the files by an independent script. */
static const file_facts golden[] = {
    {"golden/t-gemma3.gguf", 24, 93, "gemma3", 2048, "\xc4\xa0Mom", "blk.6.ffn_down.weight",
     "F16", 11899328, "c5a30f9fcfa4962e"},
    {"golden/t-llama.gguf", 24, 21, "llama", 2048, "\xc4\xa0Mom", "blk.1.ffn_down.weight",
     "F16", 4130080, "be1d00ae3324622c"},
    {"golden/t-qwen2-odd.gguf", 23, 38, "qwen2", 2048, "\xc4\xa0Mom", "blk.2.ffn_down.weight",
     "F16", 3857056, "e2a9db2af92880a8"},
    {"golden/t-qwen2.gguf", 23, 39, "qwen2", 2048, "\xc4\xa0Mom", "blk.2.ffn_down.weight",
     "F16", 6498496, "34a83e1eb9230dab"},
    {"golden/t-qwen2moe.gguf", 27, 37, "qwen2moe", 2048, "\xc4\xa0Mom",
     "blk.1.ffn_down_shexp.weight", "F16", 10840544, "802a8c2dfb2b4dae"},
    {"golden/t-qwen3.gguf", 23, 24, "qwen3", 2048, "\xc4\xa0Mom", "blk.1.ffn_down.weight",
     "F16", 4001184, "372e4eb04b2a131e"},
    {"golden/vocab-gemma3.gguf", 24, 0, "gemma3", 262144, "\xe2\x96\x81Leh", NULL, NULL, 0, NULL},
    {"golden/vocab-llama-spm.gguf", 22, 0, "llama", 32000, "\xe2\x96\x81" "deleg", NULL, NULL, 0,
     NULL},
    {"golden/vocab-qwen.gguf", 22, 0, "qwen2", 151936, "\xc4\xa0setColor", NULL, NULL, 0, NULL},
};

static void assert_facts(const file_facts *facts, const char *path)
{
    vt_gguf *gguf = open_file(path);
    assert_int_equal(vt_gguf_version(gguf), 3);
    assert_int_equal(vt_gguf_entry_count(gguf), facts->entries);
    assert_int_equal(vt_gguf_tensor_count(gguf), facts->tensors);
    vti_gguf_string text = {0};
    assert_int_equal(vti_gguf_get_string(gguf, "general.architecture", true, &text, NULL), VT_OK);
    assert_int_equal(text.bytes, strlen(facts->architecture));
    assert_memory_equal(text.data, facts->architecture, (size_t)text.bytes);
    const vti_gguf_value *tokens = NULL;
    assert_int_equal(vti_gguf_get_array(gguf, "tokenizer.ggml.tokens", VTI_GGUF_STRING, true,
                                        &tokens, NULL),
                     VT_OK);
    assert_int_equal(tokens->count, facts->tokens);
    const unsigned char *cursor = tokens->data;
    for (uint64_t i = 0; i <= tokens->count / 2; i++) text = vti_gguf_next_string(&cursor);
    assert_int_equal(text.bytes, strlen(facts->middle_token));
    assert_memory_equal(text.data, facts->middle_token, (size_t)text.bytes);
    if (facts->tensors > 0) {
        vt_gguf_tensor tensor;
        assert_int_equal(vt_gguf_get_tensor(gguf, facts->tensors - 1, &tensor), VT_OK);
        assert_string_equal(tensor.name, facts->last_tensor);
        assert_string_equal(tensor.type, facts->type);
        assert_int_equal(tensor.offset_bytes, facts->offset_bytes);
        const vti_gguf_tensor *found = vti_gguf_find_tensor(gguf, facts->last_tensor);
        char first_bytes[17];
        for (int i = 0; i < 8; i++)
            snprintf(first_bytes + 2 * i, 3, "%02x", ((const unsigned char *)found->data)[i]);
        assert_string_equal(first_bytes, facts->first_bytes);
    }
    vt_gguf_close(gguf);
}

static void golden_files_have_the_right_facts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        const char *path = test_shared_path(golden[i].path);
        if (!path) skip();
        assert_facts(&golden[i], path);
    }
}

static void default_model_has_the_right_facts(void **state)
{
    (void)state;
    const file_facts facts = {NULL,        25, 74, "qwen2", 2048, "\xc4\xa0Mom",
                              "output_norm.weight", "F32", 8215840, "36dbe33f7fe5cb3f"};
    const char *path = "src/assets/stories-4m-f16.gguf";
    assert_facts(&facts, path);
    vt_gguf *gguf = open_file(path);
    uint32_t layers = 0;
    assert_int_equal(vti_gguf_get_u32(gguf, "qwen2.block_count", true, &layers, NULL), VT_OK);
    assert_int_equal(layers, 6);
    vt_gguf_tensor first;
    assert_int_equal(vt_gguf_get_tensor(gguf, 0, &first), VT_OK);
    assert_string_equal(first.name, "token_embd.weight");
    assert_string_equal(first.type, "F16");
    assert_int_equal(first.dimension_count, 2);
    const uint64_t dimensions[4] = {256, 2048, 1, 1};
    assert_memory_equal(first.dimensions, dimensions, sizeof dimensions);
    assert_int_equal(first.offset_bytes, 64800);
    assert_int_equal(first.size_bytes, 256 * 2048 * 2);
    vt_gguf_close(gguf);
}

/* ---- what the builder wrote ------------------------------------------------------------------ */

static void both_versions_read_the_same(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        size_t bytes;
        unsigned char *data = gguf_sample_complete(version, &bytes);
        vt_gguf *gguf = open_memory(data, bytes);
        gguf_exercise(gguf, data, bytes);
        assert_int_equal(vt_gguf_version(gguf), version);
        assert_string_equal(vti_gguf_name(gguf), "memory");
        assert_int_equal(vt_gguf_entry_count(gguf), 19);
        assert_int_equal(vt_gguf_tensor_count(gguf), 4);
        vt_gguf_close(gguf);
        free(data);
    }
}

static void directory_lists_types_and_counts(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = gguf_sample_complete(3, &bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    vt_gguf_entry entry;
    assert_int_equal(vt_gguf_get_entry(gguf, 0, &entry), VT_OK);
    assert_string_equal(entry.key, "general.architecture");
    assert_string_equal(entry.type, "str");
    assert_int_equal(entry.count, 1);
    assert_int_equal(vt_gguf_get_entry(gguf, 14, &entry), VT_OK);
    assert_string_equal(entry.key, "array.i32");
    assert_string_equal(entry.type, "i32[3]");
    assert_int_equal(entry.count, 3);
    assert_int_equal(vt_gguf_get_entry(gguf, 19, &entry), VT_ERR_ARGUMENT);
    vt_gguf_tensor tensor;
    assert_int_equal(vt_gguf_get_tensor(gguf, 1, &tensor), VT_OK);
    assert_string_equal(tensor.name, "blocks");
    assert_string_equal(tensor.type, "Q8_0");
    assert_int_equal(tensor.size_bytes, 68);
    assert_int_equal(vt_gguf_get_tensor(gguf, 3, &tensor), VT_OK);
    assert_int_equal(tensor.dimension_count, 0);
    assert_int_equal(tensor.dimensions[0] * tensor.dimensions[3], 1);
    assert_int_equal(tensor.size_bytes, 4);
    assert_int_equal(vt_gguf_get_tensor(gguf, 4, &tensor), VT_ERR_ARGUMENT);
    const vti_gguf_tensor *matrix = vti_gguf_find_tensor(gguf, "matrix");
    const float ramp[6] = {0, 1, 2, 3, 4, 5};
    assert_memory_equal(matrix->data, ramp, sizeof ramp);
    assert_null(vti_gguf_find_tensor(gguf, "matri"));
    assert_null(vti_gguf_find_tensor(gguf, "matrix "));
    assert_null(vti_gguf_find(gguf, ""));
    vt_gguf_close(gguf);
    free(data);
}

static void larger_alignment_is_used(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = gguf_sample_aligned(&bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    gguf_exercise(gguf, data, bytes);
    const vti_gguf_tensor *tensor = vti_gguf_find_tensor(gguf, "i");
    assert_int_equal(tensor->offset_bytes % 64, 0);
    assert_memory_equal(tensor->data, "hello", 5);
    vt_gguf_close(gguf);
    free(data);
}

static void alignment_may_be_any_power_of_two_from_32(void **state)
{
    (void)state;
    for (uint32_t alignment = 32; alignment <= 1u << 20; alignment *= 2) {
        gguf_builder *builder = gguf_builder_new(3);
        gguf_put_alignment(builder, alignment);
        gguf_put_f32_tensor(builder, "one", 1, (uint64_t[]){1}, (float[]){1.5f});
        gguf_put_f32_tensor(builder, "two", 1, (uint64_t[]){1}, (float[]){2.5f});
        size_t bytes;
        unsigned char *data = gguf_builder_finish(builder, &bytes);
        vt_gguf *gguf = open_memory(data, bytes);
        const vti_gguf_tensor *one = vti_gguf_find_tensor(gguf, "one");
        const vti_gguf_tensor *two = vti_gguf_find_tensor(gguf, "two");
        assert_int_equal(one->offset_bytes % alignment, 0);
        assert_int_equal(two->offset_bytes, one->offset_bytes + alignment);
        assert_true(*(const float *)two->data == 2.5f);
        vt_gguf_close(gguf);
        free(data);
    }
}

/* ---- the tables ------------------------------------------------------------------------------ */

/* Bytes of a block, added up from the parts that the formats are made of. */
static void ggml_types_have_the_published_sizes(void **state)
{
    (void)state;
    enum { half = 2, quarter = 256 / 4, eighth = 256 / 8, sixteenth = 256 / 16 };
    const vti_ggml_type expected[] = {
        {0, "F32", 1, 4},
        {1, "F16", 1, 2},
        {2, "Q4_0", 32, half + 16},
        {3, "Q4_1", 32, 2 * half + 16},
        {6, "Q5_0", 32, half + 4 + 16},
        {7, "Q5_1", 32, 2 * half + 4 + 16},
        {8, "Q8_0", 32, half + 32},
        {9, "Q8_1", 32, 2 * half + 32},
        {10, "Q2_K", 256, sixteenth + quarter + 2 * half},
        {11, "Q3_K", 256, quarter + eighth + 12 + half},
        {12, "Q4_K", 256, 2 * half + 256 / 2 + 12},
        {13, "Q5_K", 256, 2 * half + 256 / 2 + eighth + 12},
        {14, "Q6_K", 256, half + 256 / 2 + quarter + sixteenth},
        {15, "Q8_K", 256, 4 + 256 + eighth},
        {16, "IQ2_XXS", 256, half + quarter},
        {17, "IQ2_XS", 256, half + quarter + 256 / 32},
        {18, "IQ3_XXS", 256, half + quarter + eighth},
        {19, "IQ1_S", 256, half + eighth + sixteenth},
        {20, "IQ4_NL", 32, half + 16},
        {21, "IQ3_S", 256, half + quarter + eighth + 256 / 32 + 4},
        {22, "IQ2_S", 256, half + quarter + sixteenth},
        {23, "IQ4_XS", 256, 2 * half + 256 / 2 + 256 / 64},
        {24, "I8", 1, 1},
        {25, "I16", 1, 2},
        {26, "I32", 1, 4},
        {27, "I64", 1, 8},
        {28, "F64", 1, 8},
        {29, "IQ1_M", 256, eighth + sixteenth + 256 / 32},
        {30, "BF16", 1, 2},
        {31, "Q4_0_4_4", 32, half + 16},
        {32, "Q4_0_4_8", 32, half + 16},
        {33, "Q4_0_8_8", 32, half + 16},
        {34, "TQ1_0", 256, half + 4 * 13},
        {35, "TQ2_0", 256, half + quarter},
        {39, "MXFP4", 32, 1 + 16},
        {40, "NVFP4", 64, 4 + 32},
        {41, "Q1_0", 128, half + 16},
    };
    size_t next = 0;
    for (uint32_t number = 0; number < 1000; number++) {
        const vti_ggml_type *type = vti_ggml_type_find(number);
        if (next == sizeof expected / sizeof expected[0] || expected[next].number != number) {
            assert_null(type);
            continue;
        }
        assert_non_null(type);
        assert_string_equal(type->name, expected[next].name);
        assert_int_equal(type->block, expected[next].block);
        assert_int_equal(type->block_bytes, expected[next].block_bytes);
        next++;
    }
    assert_int_equal(next, sizeof expected / sizeof expected[0]);
    assert_null(vti_ggml_type_find(UINT32_MAX));
}

static void every_ggml_type_can_be_listed(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_new(3);
    uint32_t count = 0;
    for (uint32_t number = 0; number < 64; number++) {
        const vti_ggml_type *type = vti_ggml_type_find(number);
        if (!type) continue;
        const uint64_t dimensions[2] = {3 * type->block, 2};
        gguf_put_tensor(builder, type->name, number, 2, dimensions, NULL, 6 * type->block_bytes);
        count++;
    }
    size_t bytes;
    unsigned char *data = gguf_builder_finish(builder, &bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    gguf_exercise(gguf, data, bytes);
    assert_int_equal(vt_gguf_tensor_count(gguf), count);
    for (uint64_t i = 0; i < count; i++) {
        vt_gguf_tensor tensor;
        assert_int_equal(vt_gguf_get_tensor(gguf, i, &tensor), VT_OK);
        assert_string_equal(tensor.name, tensor.type);
        const vti_gguf_tensor *found = vti_gguf_find_tensor(gguf, tensor.name);
        assert_int_equal(tensor.size_bytes, 6 * vti_ggml_type_find(found->type)->block_bytes);
    }
    vt_gguf_close(gguf);
    free(data);
}

/* Look-ups among many keys and tensors whose names differ in one place only. */
static void many_names_are_told_apart(void **state)
{
    (void)state;
    enum { count = 3000 };
    gguf_builder *builder = gguf_builder_new(3);
    char name[32];
    for (uint32_t i = 0; i < count; i++) {
        /* 1009 and 3000 have no common divisor: the order is anything but sorted. */
        uint32_t shuffled = i * 1009 % count;
        snprintf(name, sizeof name, "key.%u", shuffled);
        gguf_put_u32(builder, name, shuffled * 7);
        snprintf(name, sizeof name, "blk.%u.weight", shuffled);
        gguf_put_f32_tensor(builder, name, 1, (uint64_t[]){1}, &(float){(float)shuffled});
    }
    size_t bytes;
    unsigned char *data = gguf_builder_finish(builder, &bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t out = 0;
        snprintf(name, sizeof name, "key.%u", i);
        assert_int_equal(vti_gguf_get_u32(gguf, name, true, &out, NULL), VT_OK);
        assert_int_equal(out, i * 7);
        snprintf(name, sizeof name, "blk.%u.weight", i);
        assert_true(*(const float *)vti_gguf_find_tensor(gguf, name)->data == (float)i);
    }
    assert_null(vti_gguf_find(gguf, "key.3000"));
    assert_null(vti_gguf_find_tensor(gguf, "blk.3000.weight"));
    vt_gguf_close(gguf);
    free(data);
}

/* The next free descriptor: grows when one is left open. */
static int next_descriptor(void)
{
    int descriptor = dup(STDOUT_FILENO);
    close(descriptor);
    return descriptor;
}

static bool is_mapped(const char *path)
{
    char line[8192];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) found |= strstr(line, path) != NULL;
    fclose(maps);
    return found;
}

static void closing_gives_everything_back(void **state)
{
    (void)state;
    const char *path = "stories-4m-f16.gguf";
    int descriptor = next_descriptor();
    vt_gguf *gguf = open_file("src/assets/stories-4m-f16.gguf");
    assert_int_equal(next_descriptor(), descriptor);
    assert_true(is_mapped(path));
    vt_gguf_close(gguf);
    assert_false(is_mapped(path));
    vt_error err;
    assert_int_equal(vt_gguf_open("Makefile", &gguf, &err), VT_ERR_FORMAT);
    assert_int_equal(next_descriptor(), descriptor);
    assert_false(is_mapped("Makefile"));
}

static void a_written_file_opens(void **state)
{
    (void)state;
    char path[] = "/tmp/voltron-gguf-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    gguf_builder *builder = gguf_builder_new(2);
    gguf_put_i32(builder, "answer", 42);
    gguf_put_tensor(builder, "w", 30, 2, (uint64_t[]){5, 3}, NULL, 30);
    gguf_builder_write(builder, path);
    vt_gguf *gguf = open_file(path);
    unlink(path); /* the mapping keeps the data */
    uint32_t answer = 0;
    assert_int_equal(vti_gguf_get_u32(gguf, "answer", true, &answer, NULL), VT_OK);
    assert_int_equal(answer, 42);
    assert_int_equal((uintptr_t)vti_gguf_find_tensor(gguf, "w")->data % 32, 0);
    vt_gguf_close(gguf);
    vt_gguf_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_files_have_the_right_facts),
        cmocka_unit_test(default_model_has_the_right_facts),
        cmocka_unit_test(both_versions_read_the_same),
        cmocka_unit_test(directory_lists_types_and_counts),
        cmocka_unit_test(larger_alignment_is_used),
        cmocka_unit_test(alignment_may_be_any_power_of_two_from_32),
        cmocka_unit_test(ggml_types_have_the_published_sizes),
        cmocka_unit_test(every_ggml_type_can_be_listed),
        cmocka_unit_test(many_names_are_told_apart),
        cmocka_unit_test(closing_gives_everything_back),
        cmocka_unit_test(a_written_file_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
