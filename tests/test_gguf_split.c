/* Models in several files: any part opens all; what is missing or does not belong is named. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../src/gguf.h"
#include "cluster_support.h"
#include "gguf_builder.h"

static const char model_path[] = "src/assets/stories-4m-f16.gguf";
static char folder[] = "/tmp/voltron-split-XXXXXX";

/* Path of part `number` (from 1); valid until the fifth call after it. */
static const char *part_path(const char *stem, unsigned number, unsigned count)
{
    static char paths[5][128];
    static unsigned next;
    char *path = paths[next++ % 5];
    snprintf(path, sizeof paths[0], "%s/%s-%05u-of-%05u.gguf", folder, stem, number, count);
    return path;
}

static void put_u16(gguf_builder *builder, const char *key, uint16_t value)
{
    gguf_put_number(builder, key, VTI_GGUF_U16, &value);
}

/* --- small parts ---------------------------------------------------------------------------------- */

/* What a part says of itself. */
typedef struct part {
    int number, count; /* split.no, split.count; -1: no such key */
    int total;         /* split.tensors.count */
    const char *tensor;
} part;

static void write_part(const char *path, const part *p)
{
    static const float weights[4] = {1, 2, 3, 4};
    gguf_builder *builder = gguf_builder_new(3);
    if (p->number == 0) gguf_put_string(builder, "general.architecture", "qwen2");
    if (p->number >= 0) put_u16(builder, "split.no", (uint16_t)p->number);
    if (p->count >= 0) put_u16(builder, "split.count", (uint16_t)p->count);
    if (p->total >= 0) gguf_put_i32(builder, "split.tensors.count", p->total);
    gguf_put_f32_tensor(builder, p->tensor, 1, (const uint64_t[]){4}, weights);
    gguf_builder_write(builder, path);
}

static const part sound[3] = {{0, 3, 3, "a"}, {1, 3, 3, "b"}, {2, 3, 3, "c"}};

static void write_sound(void)
{
    for (unsigned i = 0; i < 3; i++) write_part(part_path("m", i + 1, 3), &sound[i]);
}

static void remove_parts(void)
{
    for (unsigned i = 0; i < 3; i++) unlink(part_path("m", i + 1, 3));
}

static void any_part_opens_all(void **state)
{
    (void)state;
    write_sound();
    for (unsigned i = 0; i < 3; i++) {
        vt_gguf *gguf;
        vt_error err;
        vt_gguf_tensor tensor;
        if (vt_gguf_open(part_path("m", i + 1, 3), &gguf, &err) != VT_OK)
            fail_msg("%s", err.message);
        assert_int_equal(vt_gguf_part_count(gguf), 3);
        assert_string_equal(vt_gguf_part_name(gguf, 2), part_path("m", 3, 3));
        assert_null(vt_gguf_part_name(gguf, 3));
        assert_int_equal(vt_gguf_tensor_count(gguf), 3);
        assert_non_null(vti_gguf_find(gguf, "general.architecture"));
        for (unsigned j = 0; j < 3; j++) {
            assert_int_equal(vt_gguf_get_tensor(gguf, j, &tensor), VT_OK);
            assert_string_equal(tensor.name, sound[j].tensor);
            assert_int_equal(tensor.part, j);
            assert_true(((const float *)vti_gguf_find_tensor(gguf, tensor.name)->data)[3] == 4);
        }
        vt_gguf_close(gguf);
    }
    remove_parts();
}

/* Sound parts, the one at `place` replaced; opening the first fails with `expected` in the message. */
static void assert_refused(unsigned place, const part *replaced, vt_status status,
                           const char *expected)
{
    vt_gguf *gguf;
    vt_error err;
    write_sound();
    if (replaced)
        write_part(part_path("m", place, 3), replaced);
    else
        unlink(part_path("m", place, 3));
    vt_status found = vt_gguf_open(part_path("m", place == 1 ? 2 : 1, 3), &gguf, &err);
    if (found == VT_OK) fail_msg("opened, expected: %s", expected);
    assert_null(gguf);
    if (!strstr(err.message, expected)) fail_msg("no \"%s\" in: %s", expected, err.message);
    assert_int_equal(found, status);
    remove_parts();
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    assert_refused(2, NULL, VT_ERR_IO, "part 2 of 3 of the model: ");
    assert_refused(2, NULL, VT_ERR_IO, "m-00002-of-00003.gguf: No such file");
    assert_refused(1, NULL, VT_ERR_IO, "part 1 of 3 of the model: ");
    assert_refused(3, &(part){2, 4, 3, "c"}, VT_ERR_FORMAT,
                   "part 3 of 3 of the model: ");
    assert_refused(3, &(part){2, 4, 3, "c"}, VT_ERR_FORMAT,
                   "split.count is 4, in another part it is 3");
    assert_refused(3, &(part){1, 3, 3, "c"}, VT_ERR_FORMAT,
                   "split.no is 1: part 2, expected part 3");
    assert_refused(2, &(part){-1, -1, -1, "b"}, VT_ERR_FORMAT, "no part of a model");
    assert_refused(2, &(part){1, 1, 3, "b"}, VT_ERR_FORMAT, "no part of a model");
    assert_refused(2, &(part){3, 3, 3, "b"}, VT_ERR_FORMAT, "split.no 3 and split.count 3");
    assert_refused(2, &(part){-1, 3, 3, "b"}, VT_ERR_FORMAT, "split.no");
    assert_refused(3, &(part){2, 3, 3, "a"}, VT_ERR_FORMAT, "tensor 'a' is in ");
    assert_refused(1, &(part){0, 3, 4, "a"}, VT_ERR_FORMAT,
                   "split.tensors.count is 4, but the parts have 3 tensors");
}

/* A part by another name cannot find the others. */
static void names_matter(void **state)
{
    (void)state;
    vt_gguf *gguf;
    vt_error err;
    static const char *const names[] = {"x.gguf", "m-00001-of-00003.gguf", "-of-00003.gguf"};
    for (int i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        write_part(path, &sound[1]);
        assert_int_equal(vt_gguf_open(path, &gguf, &err), VT_ERR_FORMAT);
        assert_non_null(strstr(err.message, "part 2 of 3 of a model; its name must end with "
                                            "-00002-of-00003.gguf"));
        unlink(path);
    }
    /* One part is a whole model, whatever it is called. */
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, "whole.gguf");
    write_part(path, &(part){0, 1, 1, "a"});
    assert_int_equal(vt_gguf_open(path, &gguf, &err), VT_OK);
    assert_int_equal(vt_gguf_part_count(gguf), 1);
    assert_string_equal(vt_gguf_part_name(gguf, 0), path);
    vt_gguf_close(gguf);
    unlink(path);
}

static void not_from_memory(void **state)
{
    (void)state;
    vt_gguf *gguf;
    vt_error err;
    size_t bytes;
    const char *path = part_path("m", 1, 3);
    write_part(path, &sound[0]);
    unsigned char *data = test_read_file(path, &bytes), *exact = gguf_copy_exact(data, bytes);
    assert_int_equal(vti_gguf_open_memory(exact, bytes, "memory", &gguf, &err),
                     VT_ERR_UNSUPPORTED);
    assert_null(gguf);
    assert_non_null(strstr(err.message, "part 1 of 3"));
    free(exact);
    free(data);
    unlink(path);
}

/* Every byte of the second part damaged: an error that names a file, or a model that can be used. */
static void damaged_parts(void **state)
{
    (void)state;
    size_t bytes;
    write_sound();
    const char *path = part_path("m", 2, 3), *first = part_path("m", 1, 3);
    unsigned char *data = test_read_file(path, &bytes);
    unsigned refused = 0;
    for (size_t i = 0; i < 2 * bytes; i++) {
        vt_gguf *gguf;
        vt_error err = {0};
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        unsigned char kept = data[i / 2];
        data[i / 2] = i % 2 ? (unsigned char)~kept : (unsigned char)(kept + 1);
        fwrite(data, 1, i % 3 ? bytes : i / 2, file); /* some cut there */
        fclose(file);
        data[i / 2] = kept;
        if (vt_gguf_open(first, &gguf, &err) == VT_OK) {
            assert_int_equal(vt_gguf_tensor_count(gguf), 3);
            vt_gguf_close(gguf);
            continue;
        }
        refused++;
        if (!strstr(err.message, "m-0000")) fail_msg("no file named: %s", err.message);
    }
    assert_true(refused > bytes / 2);
    free(data);
    remove_parts();
}

/* --- a whole model -------------------------------------------------------------------------------- */

static void copy_metadata(gguf_builder *builder, const vt_gguf *gguf)
{
    for (uint64_t i = 0; i < vt_gguf_entry_count(gguf); i++) {
        vt_gguf_entry entry;
        vt_gguf_get_entry(gguf, i, &entry);
        const vti_gguf_value *value = vti_gguf_find(gguf, entry.key);
        /* An array's element type and length stand before its elements. */
        const unsigned char *begin = value->data - (value->is_array ? 12 : 0);
        gguf_put_raw(builder, entry.key, strlen(entry.key),
                     value->is_array ? VTI_GGUF_ARRAY : value->type, begin,
                     (size_t)(value->end - begin));
    }
}

/* The embedded model in `count` parts. */
static void split_model(unsigned count)
{
    vt_gguf *gguf;
    assert_int_equal(vt_gguf_open(model_path, &gguf, NULL), VT_OK);
    uint64_t tensors = vt_gguf_tensor_count(gguf);
    for (unsigned i = 0; i < count; i++) {
        gguf_builder *builder = gguf_builder_new(3);
        if (i == 0) copy_metadata(builder, gguf);
        put_u16(builder, "split.no", (uint16_t)i);
        put_u16(builder, "split.count", (uint16_t)count);
        gguf_put_i32(builder, "split.tensors.count", (int32_t)tensors);
        for (uint64_t j = tensors * i / count; j < tensors * (i + 1) / count; j++) {
            vt_gguf_tensor t;
            vt_gguf_get_tensor(gguf, j, &t);
            const vti_gguf_tensor *tensor = vti_gguf_find_tensor(gguf, t.name);
            gguf_put_tensor(builder, t.name, tensor->type, t.dimension_count, t.dimensions,
                            tensor->data, (size_t)t.size_bytes);
        }
        gguf_builder_write(builder, part_path("m", i + 1, count));
    }
    vt_gguf_close(gguf);
}

/* A few greedy tokens; `worker` may be NULL. */
static void generate(const char *path, const test_worker *worker, vt_token *out, size_t count)
{
    vt_model *model;
    vt_cluster *cluster = NULL;
    vt_session *session;
    vt_error err;
    if (vt_model_open(path, NULL, &model, &err) != VT_OK) fail_msg("%s", err.message);
    if (worker && test_cluster_open(model, worker, 1, NULL, 0, &cluster, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_session_params params = vt_session_params_default();
    params.sampling.temperature = 0;
    params.cluster = cluster;
    if (vt_session_open(model, &params, &session, &err) != VT_OK) fail_msg("%s", err.message);
    assert_int_equal(vt_session_feed(session, (const vt_token[]){5, 600, 70}, 3, &err), VT_OK);
    for (size_t i = 0; i < count; i++)
        if (vt_session_next(session, &out[i], &err) != VT_OK) fail_msg("%s", err.message);
    vt_session_close(session);
    vt_cluster_close(cluster);
    vt_model_close(model);
}

/* Here and on a worker: the same text as from one file. */
static void split_models_run(void **state)
{
    (void)state;
    vt_token whole[16], split[16], spread[16];
    test_worker worker = test_worker_start(0, NULL);
    split_model(3);
    generate(model_path, NULL, whole, 16);
    generate(part_path("m", 1, 3), NULL, split, 16);
    generate(part_path("m", 3, 3), &worker, spread, 16);
    assert_memory_equal(whole, split, sizeof whole);
    assert_memory_equal(whole, spread, sizeof whole);
    test_worker_end(&worker, 15);
    remove_parts();
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_models_run), cmocka_unit_test(any_part_opens_all),
        cmocka_unit_test(what_is_wrong_is_named), cmocka_unit_test(names_matter),
        cmocka_unit_test(not_from_memory), cmocka_unit_test(damaged_parts),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
