/* GGUF files as they should not be: each fault has its message, none does harm. */
#include "support.h"

#include "gguf_samples.h"
#include "fuzz/gguf_exercise.h"

#include <sys/stat.h>
#include <unistd.h>

/* Fails to open, with this status and the message "memory: " and `expected`; a star at the end of
 * `expected` stands for anything. Frees `data`. */
static void assert_refused(unsigned char *data, size_t bytes, vt_status status,
                           const char *expected)
{
    vt_error err;
    vt_status found = gguf_exercise_memory(data, bytes, &err);
    if (found == VT_OK) fail_msg("opened, expected: %s", expected);
    const char *message = err.message + strlen("memory: ");
    size_t compared = strlen(expected);
    if (expected[compared - 1] == '*') {
        if (strncmp(message, expected, compared - 1) != 0) fail_msg("%s != %s", message, expected);
    } else {
        assert_string_equal(message, expected);
    }
    assert_int_equal(found, status);
    free(data);
}

static void assert_builder_refused(gguf_builder *builder, vt_status status, const char *expected)
{
    size_t bytes;
    unsigned char *data = gguf_builder_finish(builder, &bytes);
    assert_refused(data, bytes, status, expected);
}

/* Where `name` stands in the file; its length is 8 bytes before, its type or dimensions behind. */
static size_t find_name(const unsigned char *data, size_t bytes, const char *name)
{
    const unsigned char *at = memmem(data, bytes, name, strlen(name));
    if (!at) fail_msg("the file has no %s", name);
    return (size_t)(at - data);
}

static void patch(unsigned char *data, size_t at, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) data[at + i] = (unsigned char)(number >> 8 * i);
}

/* Places relative to the end of a key or name, for the next function. */
#define NAME_LENGTH(name) (-8 - (long)strlen(name))
#define NAME_BEGIN(name) (-(long)strlen(name))

/* The complete sample with the low `bytes` bytes of `number` written `distance` bytes behind the
 * end of `name`. */
static void assert_patched_refused(const char *name, long distance, uint64_t number, size_t bytes,
                                   vt_status status, const char *expected)
{
    size_t file_bytes;
    unsigned char *data = gguf_sample_complete(3, &file_bytes);
    long end = (long)(find_name(data, file_bytes, name) + strlen(name));
    patch(data, (size_t)(end + distance), number, bytes);
    assert_refused(data, file_bytes, status, expected);
}

/* ---- header ---------------------------------------------------------------------------------- */

static void assert_header_refused(size_t at, uint64_t number, size_t patch_bytes, vt_status status,
                                  const char *expected)
{
    size_t bytes;
    unsigned char *data = gguf_sample_complete(3, &bytes);
    patch(data, at, number, patch_bytes);
    assert_refused(data, bytes, status, expected);
}

static void other_formats_are_named(void **state)
{
    (void)state;
    assert_header_refused(0, 0x67676d6c, 4, VT_ERR_UNSUPPORTED,
                          "header: this is a GGML file, the format before GGUF; a GGUF file is "
                          "needed");
    assert_header_refused(0, 0x04034b50, 4, VT_ERR_FORMAT,
                          "header: this is not a GGUF file: it starts with the bytes 50 4b 03 04, "
                          "expected 47 47 55 46 (\"GGUF\")");
    const char *big_endian = "header: this is a big-endian GGUF file, only little-endian ones can "
                             "be read";
    assert_header_refused(0, 0x47475546, 4, VT_ERR_UNSUPPORTED, big_endian);
    assert_header_refused(4, 0x03000000, 4, VT_ERR_UNSUPPORTED, big_endian);
}

static void other_versions_are_named(void **state)
{
    (void)state;
    assert_header_refused(4, 0, 4, VT_ERR_UNSUPPORTED,
                          "header: GGUF version 0 cannot be read, only versions 2 and 3");
    assert_header_refused(4, 1, 4, VT_ERR_UNSUPPORTED,
                          "header: GGUF version 1 cannot be read, only versions 2 and 3");
    assert_header_refused(4, 4, 4, VT_ERR_UNSUPPORTED,
                          "header: GGUF version 4 cannot be read, only versions 2 and 3");
}

static void counts_are_held_against_the_file(void **state)
{
    (void)state;
    assert_header_refused(8, UINT64_MAX, 8, VT_ERR_FORMAT,
                          "header: tensors at byte 24: a count of 18446744073709551615 is "
                          "impossible, the 1004 bytes left hold at most 40");
    assert_header_refused(16, (uint64_t)1 << 61, 8, VT_ERR_FORMAT,
                          "header: metadata entries at byte 24: a count of 2305843009213693952 is "
                          "impossible, the 1004 bytes left hold at most 71");
    assert_header_refused(8, 41, 8, VT_ERR_FORMAT,
                          "header: tensors at byte 24: 1025 bytes are needed, 1004 are left; at "
                          "least 21 bytes are missing, the file is truncated or damaged");
    assert_header_refused(8, 15, 8, VT_ERR_FORMAT,
                          "tensor directory: tensors at byte 672: 375 bytes are needed, 356 are "
                          "left; at least 19 bytes are missing, the file is truncated or damaged");
    /* One entry more: the first tensor is read as that entry. */
    assert_header_refused(16, 20, 8, VT_ERR_FORMAT,
                          "tensor 0: the name has 562949953421312 bytes, at most 64 are allowed");
}

static void a_cut_header_is_said_to_be_one(void **state)
{
    (void)state;
    assert_refused(gguf_copy_exact("GGUF\3\0\0\0\0\0", 10), 10, VT_ERR_FORMAT,
                   "header: counts at byte 8: 16 bytes are needed, 2 are left; at least 14 bytes "
                   "are missing, the file is truncated or damaged");
}

static void counts_have_a_limit_in_large_files_too(void **state)
{
    (void)state;
    /* 1048577 tensors of at least 25 bytes would fit: the limit must come before any allocation. */
    size_t bytes = 24 + 25 * ((size_t)(1 << 20) + 1);
    void *zeros = calloc(1, bytes);
    assert_non_null(zeros);
    unsigned char *data = gguf_copy_exact(zeros, bytes);
    free(zeros);
    memcpy(data, "GGUF\3", 5);
    patch(data, 8, (1 << 20) + 1, 8);
    assert_refused(data, bytes, VT_ERR_UNSUPPORTED,
                   "header: 1048577 tensors, at most 1048576 are read");
}

/* ---- metadata -------------------------------------------------------------------------------- */

static void bad_keys_are_refused(void **state)
{
    (void)state;
    const char *first = "general.architecture";
    assert_patched_refused(first, NAME_LENGTH(first), 0, 8, VT_ERR_FORMAT,
                           "metadata entry 0: the key is empty");
    assert_patched_refused(first, NAME_LENGTH(first), 5000, 8, VT_ERR_FORMAT,
                           "metadata entry 0: key at byte 32: 5000 bytes are needed, 996 are left; "
                           "at least 4004 bytes are missing, the file is truncated or damaged");
    assert_patched_refused("scalar.i8", NAME_LENGTH("scalar.i8"), UINT64_MAX, 8, VT_ERR_FORMAT,
                           "metadata entry 2: the key has 18446744073709551615 bytes, at most "
                           "65535 are allowed");
    gguf_builder *builder = gguf_builder_new(3);
    gguf_put_raw(builder, "a\0b", 3, VTI_GGUF_U8, "", 1);
    assert_builder_refused(builder, VT_ERR_FORMAT,
                           "metadata entry 0: the key has the byte 0x00 at position 1, expected "
                           "printable ASCII");
    builder = gguf_builder_new(3);
    gguf_put_u32(builder, "caf\xc3\xa9", 1);
    assert_builder_refused(builder, VT_ERR_FORMAT,
                           "metadata entry 0: the key has the byte 0xc3 at position 3, expected "
                           "printable ASCII");
}

static void only_printable_ascii_makes_a_key(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        const char key[3] = {'k', (char)byte, 'y'};
        gguf_builder *builder = gguf_builder_new(3);
        gguf_put_raw(builder, key, 3, VTI_GGUF_U8, "", 1);
        size_t bytes;
        unsigned char *data = gguf_builder_finish(builder, &bytes);
        vt_error err;
        vt_status expected = byte >= ' ' && byte <= '~' ? VT_OK : VT_ERR_FORMAT;
        assert_int_equal(gguf_exercise_memory(data, bytes, &err), expected);
        free(data);
    }
}

static void key_length_has_a_limit(void **state)
{
    (void)state;
    char *key = malloc(65537);
    memset(key, 'k', 65536);
    key[65536] = 0;
    gguf_builder *builder = gguf_builder_new(3);
    gguf_put_u32(builder, key, 1);
    assert_builder_refused(builder, VT_ERR_FORMAT,
                           "metadata entry 0: the key has 65536 bytes, at most 65535 are allowed");
    key[65535] = 0;
    builder = gguf_builder_new(3);
    gguf_put_u32(builder, key, 1);
    size_t bytes;
    unsigned char *data = gguf_builder_finish(builder, &bytes);
    vt_error err;
    assert_int_equal(gguf_exercise_memory(data, bytes, &err), VT_OK);
    patch(data, 24 + 8 + 65535, 99, 4); /* the value type */
    char expected[200];
    snprintf(expected, sizeof expected,
             "key '%.80s': value type 99 does not exist, expected 0 to 12", key);
    assert_refused(data, bytes, VT_ERR_FORMAT, expected);
    free(key);
}

static void a_key_may_be_there_once(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_new(3);
    gguf_put_u32(builder, "twin", 1);
    gguf_put_u32(builder, "other", 1);
    gguf_put_string(builder, "twin", "2");
    assert_builder_refused(builder, VT_ERR_FORMAT, "key 'twin': the key is there twice");
}

static void bad_types_are_refused(void **state)
{
    (void)state;
    assert_patched_refused("scalar.u8", 0, 13, 4, VT_ERR_FORMAT,
                           "key 'scalar.u8': value type 13 does not exist, expected 0 to 12");
    assert_patched_refused("scalar.u8", 0, UINT32_MAX, 4, VT_ERR_FORMAT,
                           "key 'scalar.u8': value type 4294967295 does not exist, expected 0 to "
                           "12");
    assert_patched_refused("array.i32", 4, 13, 4, VT_ERR_FORMAT,
                           "key 'array.i32': array element type 13 does not exist, expected 0 to "
                           "12");
    assert_patched_refused("array.i32", 4, VTI_GGUF_ARRAY, 4, VT_ERR_UNSUPPORTED,
                           "key 'array.i32': an array of arrays cannot be read, expected numbers "
                           "or strings");
}

static void bools_are_0_or_1(void **state)
{
    (void)state;
    assert_patched_refused("scalar.bool", 4, 2, 1, VT_ERR_FORMAT,
                           "key 'scalar.bool': bool 0 has the value 2, expected 0 or 1");
    assert_patched_refused("array.bool", 17, 255, 1, VT_ERR_FORMAT,
                           "key 'array.bool': bool 1 has the value 255, expected 0 or 1");
}

static void lengths_are_held_against_the_file(void **state)
{
    (void)state;
    assert_patched_refused("scalar.str", 4, 5000, 8, VT_ERR_FORMAT,
                           "key 'scalar.str': string at byte 294: 5000 bytes are needed, 734 are "
                           "left; at least 4266 bytes are missing, the file is truncated or "
                           "damaged");
    assert_patched_refused("scalar.str", 4, UINT64_MAX - 7, 8, VT_ERR_FORMAT,
                           "key 'scalar.str': string at byte 294: a count of 18446744073709551608 "
                           "is impossible, the 734 bytes left hold at most 734");
    assert_patched_refused("array.i32", 8, 1000, 8, VT_ERR_FORMAT,
                           "key 'array.i32': array at byte*");
    assert_patched_refused("array.f32", 8, (uint64_t)1 << 62, 8, VT_ERR_FORMAT,
                           "key 'array.f32': array at byte*");
    assert_patched_refused("array.str", 8, 1000, 8, VT_ERR_FORMAT,
                           "key 'array.str': array of strings at byte*");
    assert_patched_refused("array.str", 8, (uint64_t)1 << 61, 8, VT_ERR_FORMAT,
                           "key 'array.str': array of strings at byte*");
    assert_patched_refused("array.str", 16, 5000, 8, VT_ERR_FORMAT,
                           "key 'array.str': string at byte*");
}

static void bad_alignments_are_refused(void **state)
{
    (void)state;
    const uint32_t refused[] = {0, 1, 8, 16, 31, 33, 48, 1u << 21, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        gguf_builder *builder = gguf_builder_new(3);
        gguf_put_u32(builder, "general.alignment", refused[i]);
        char expected[200];
        snprintf(expected, sizeof expected,
                 "key 'general.alignment': found %u, expected a power of two from 32 to 1048576",
                 refused[i]);
        assert_builder_refused(builder, VT_ERR_FORMAT, expected);
    }
    gguf_builder *builder = gguf_builder_new(3);
    gguf_put_i32(builder, "general.alignment", -32);
    assert_builder_refused(builder, VT_ERR_FORMAT,
                           "key 'general.alignment': found -32, expected a power of two from 32 to "
                           "1048576");
    builder = gguf_builder_new(3);
    gguf_put_string(builder, "general.alignment", "32");
    assert_builder_refused(builder, VT_ERR_FORMAT,
                           "key 'general.alignment': found str, expected u32");
    builder = gguf_builder_new(3);
    gguf_put_array(builder, "general.alignment", VTI_GGUF_U32, 0, NULL);
    assert_builder_refused(builder, VT_ERR_FORMAT,
                           "key 'general.alignment': found u32[], expected u32");
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Behind a tensor's name: dimension count, dimensions, weight type, data offset. "matrix" has two
 * dimensions, "blocks" one. */
enum { DIMENSIONS = 0, FIRST = 4, MATRIX_TYPE = 20, MATRIX_OFFSET = 24, BLOCKS_TYPE = 12 };

static void bad_tensor_names_are_refused(void **state)
{
    (void)state;
    assert_patched_refused("matrix", NAME_LENGTH("matrix"), 0, 8, VT_ERR_FORMAT,
                           "tensor 0: the name is empty");
    assert_patched_refused("matrix", NAME_LENGTH("matrix"), 65, 8, VT_ERR_FORMAT,
                           "tensor 0: the name has 65 bytes, at most 64 are allowed");
    assert_patched_refused("matrix", NAME_BEGIN("matrix"), 0, 1, VT_ERR_FORMAT,
                           "tensor 0: the name has the byte 0x00 at position 0, expected printable "
                           "ASCII");
    assert_patched_refused("blocks", NAME_BEGIN("blocks") + 5, 0x1b, 1, VT_ERR_FORMAT,
                           "tensor 1: the name has the byte 0x1b at position 5, expected printable "
                           "ASCII");
    assert_patched_refused("blocks", NAME_LENGTH("blocks"), 3000, 8, VT_ERR_FORMAT,
                           "tensor 1: the name has 3000 bytes, at most 64 are allowed");
}

static void longest_tensor_name_is_64_bytes(void **state)
{
    (void)state;
    const char *name = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    gguf_builder *builder = gguf_builder_new(3);
    gguf_put_f32_tensor(builder, name, 1, (uint64_t[]){1}, (float[]){1});
    size_t bytes;
    unsigned char *data = gguf_builder_finish(builder, &bytes);
    vt_gguf *gguf = NULL;
    assert_int_equal(vti_gguf_open_memory(data, bytes, "memory", &gguf, NULL), VT_OK);
    assert_non_null(vti_gguf_find_tensor(gguf, name));
    vt_gguf_close(gguf);
    free(data);
}

static void a_tensor_may_be_there_once(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_new(3);
    gguf_put_f32_tensor(builder, "twin", 1, (uint64_t[]){1}, (float[]){1});
    gguf_put_f32_tensor(builder, "other", 1, (uint64_t[]){1}, (float[]){1});
    gguf_put_f32_tensor(builder, "twin", 1, (uint64_t[]){1}, (float[]){1});
    assert_builder_refused(builder, VT_ERR_FORMAT, "tensor 'twin': the tensor is there twice");
}

static void bad_dimensions_are_refused(void **state)
{
    (void)state;
    assert_patched_refused("matrix", DIMENSIONS, 5, 4, VT_ERR_FORMAT,
                           "tensor 'matrix': 5 dimensions, expected at most 4");
    assert_patched_refused("matrix", DIMENSIONS, UINT32_MAX, 4, VT_ERR_FORMAT,
                           "tensor 'matrix': 4294967295 dimensions, expected at most 4");
    assert_patched_refused("matrix", FIRST, 0, 8, VT_ERR_FORMAT,
                           "tensor 'matrix': dimension 0 is 0, expected at least 1");
    assert_patched_refused("matrix", FIRST + 8, 0, 8, VT_ERR_FORMAT,
                           "tensor 'matrix': dimension 1 is 0, expected at least 1");
    assert_patched_refused("blocks", FIRST, 33, 8, VT_ERR_FORMAT,
                           "tensor 'blocks': rows of 33 elements, Q8_0 needs a multiple of 32");
    assert_patched_refused("blocks", BLOCKS_TYPE, 12, 4, VT_ERR_FORMAT,
                           "tensor 'blocks': rows of 64 elements, Q4_K needs a multiple of 256");
}

static void size_overflows_are_refused(void **state)
{
    (void)state;
    assert_patched_refused("matrix", FIRST, (uint64_t)1 << 62, 8, VT_ERR_FORMAT,
                           "tensor 'matrix': 4611686018427387904 x 2 x 1 x 1 elements of F32 are "
                           "more than 64 bits can count");
    assert_patched_refused("matrix", FIRST + 8, (uint64_t)1 << 61, 8, VT_ERR_FORMAT,
                           "tensor 'matrix': 3 x 2305843009213693952 x 1 x 1 elements of F32 are "
                           "more than 64 bits can count");
    /* 3 * 4 * 2^60 fits 64 bits, with the place in the file added it does too: past the end. */
    assert_patched_refused("matrix", FIRST + 8, (uint64_t)1 << 60, 8, VT_ERR_FORMAT,
                           "tensor 'matrix': data at bytes 864 to 13835058055282164576 overlaps "
                           "tensor 'blocks' at byte 896");
    assert_patched_refused("matrix", MATRIX_OFFSET, UINT64_MAX - 31, 8, VT_ERR_FORMAT,
                           "tensor 'matrix': data of 24 bytes at offset 18446744073709551584 is "
                           "impossible, the file has 1028 bytes");
    /* The four corners of the product: only the last factor overflows. */
    gguf_builder *builder = gguf_builder_new(3);
    const uint64_t corners[4] = {65536, 65536, 65536, 65536};
    gguf_put_tensor(builder, "corners", 24, 4, corners, NULL, 4);
    assert_builder_refused(builder, VT_ERR_FORMAT,
                           "tensor 'corners': 65536 x 65536 x 65536 x 65536 elements of I8 are "
                           "more than 64 bits can count");
}

static void unknown_weight_types_are_named(void **state)
{
    (void)state;
    const uint32_t unknown[] = {4, 5, 36, 38, 99, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        char expected[200];
        snprintf(expected, sizeof expected,
                 "tensor 'blocks': weight type %u is unknown (tensor data at offset 32)",
                 unknown[i]);
        assert_patched_refused("blocks", BLOCKS_TYPE, unknown[i], 4, VT_ERR_UNSUPPORTED, expected);
    }
}

static void bad_offsets_are_refused(void **state)
{
    (void)state;
    assert_patched_refused("matrix", MATRIX_OFFSET, 4, 8, VT_ERR_FORMAT,
                           "tensor 'matrix': data offset 4, expected a multiple of the alignment "
                           "32");
    assert_patched_refused("matrix", MATRIX_OFFSET, 32, 8, VT_ERR_FORMAT, "tensor '*");
    assert_patched_refused("matrix", MATRIX_OFFSET, 64, 8, VT_ERR_FORMAT,
                           "tensor 'blocks': data at bytes 896 to 964 overlaps tensor 'matrix' at "
                           "byte 928");
    assert_patched_refused("matrix", MATRIX_OFFSET, 4096, 8, VT_ERR_FORMAT,
                           "tensor 'matrix': data ends at byte 4984, the file at byte 1028: 3956 "
                           "bytes are missing, the file is truncated or damaged");
}

/* Data that ends with the file is fine, one byte less is not. */
static void last_byte_of_data_is_needed(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = gguf_sample_complete(3, &bytes);
    unsigned char *cut = gguf_copy_exact(data, bytes - 1);
    assert_refused(cut, bytes - 1, VT_ERR_FORMAT,
                   "tensor 'scalar': data ends at byte 1028, the file at byte 1027: 1 bytes are "
                   "missing, the file is truncated or damaged");
    free(data);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void memory_must_be_there_and_aligned(void **state)
{
    (void)state;
    vt_error err;
    vt_gguf *gguf = (vt_gguf *)&err;
    assert_int_equal(vti_gguf_open_memory(NULL, 0, "asset", &gguf, &err), VT_ERR_ARGUMENT);
    assert_string_equal(err.message, "asset: no data was given");
    assert_null(gguf);
    size_t bytes;
    unsigned char *data = gguf_sample_empty(&bytes);
    unsigned char *copy = gguf_copy_exact(data, bytes);
    unsigned char room[64] = "";
    unsigned char *moved = gguf_copy_exact(room, sizeof room);
    for (int shift = 1; shift < 32; shift++) {
        memcpy(moved + shift, copy, bytes);
        gguf = (vt_gguf *)&err;
        assert_int_equal(vti_gguf_open_memory(moved + shift, bytes, "asset", &gguf, &err),
                         VT_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, ", expected a multiple of 32"));
        assert_null(gguf);
    }
    free(moved);
    assert_int_equal(gguf_exercise_memory(copy, bytes, &err), VT_OK);
    free(copy);
    assert_refused(data, 0, VT_ERR_FORMAT,
                   "header: magic number at byte 0: 4 bytes are needed, 0 are left; at least 4 "
                   "bytes are missing, the file is truncated or damaged");
}

static void assert_file_refused(const char *path, vt_status status, const char *expected)
{
    vt_error err = {VT_OK, ""};
    vt_gguf *gguf = (vt_gguf *)&err;
    assert_int_equal(vt_gguf_open(path, &gguf, &err), status);
    assert_string_equal(err.message, expected);
    assert_null(gguf);
    gguf = (vt_gguf *)&err;
    assert_int_equal(vt_gguf_open(path, &gguf, NULL), status);
    assert_null(gguf);
}

static void files_that_cannot_be_mapped_are_named(void **state)
{
    (void)state;
    char folder[] = "/tmp/voltron-gguf-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[256], expected[512];
    assert_file_refused(NULL, VT_ERR_ARGUMENT, "no file name was given");
    snprintf(expected, sizeof expected, "%s: is a folder, not a file", folder);
    assert_file_refused(folder, VT_ERR_IO, expected);
    snprintf(path, sizeof path, "%s/absent.gguf", folder);
    snprintf(expected, sizeof expected, "%s: No such file or directory", path);
    assert_file_refused(path, VT_ERR_IO, expected);
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(expected, sizeof expected, "%s: is not a regular file", path);
    assert_file_refused(path, VT_ERR_IO, expected);
    unlink(path);
    snprintf(path, sizeof path, "%s/empty.gguf", folder);
    fclose(fopen(path, "w"));
    snprintf(expected, sizeof expected,
             "%s: header: magic number at byte 0: 4 bytes are needed, 0 are left; at least 4 bytes "
             "are missing, the file is truncated or damaged", path);
    assert_file_refused(path, VT_ERR_FORMAT, expected);
    unlink(path);
    rmdir(folder);
}

/* A long path must not push the reason out of the message. */
static void long_paths_are_shortened_in_messages(void **state)
{
    (void)state;
    char name[1200];
    for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xc3\xa9", 2);
    memcpy(name + sizeof name - 8, "/x.gguf", 8);
    size_t bytes;
    unsigned char *data = gguf_sample_empty(&bytes);
    data[4] = 9;
    vt_error err;
    vt_gguf *gguf;
    assert_int_equal(vti_gguf_open_memory(data, bytes, name, &gguf, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "\xc3\xa9/x.gguf: header: GGUF version 9 cannot be read"));
    assert_memory_equal(err.message, "...\xc3\xa9", 5);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(other_versions_are_named),
        cmocka_unit_test(counts_are_held_against_the_file),
        cmocka_unit_test(a_cut_header_is_said_to_be_one),
        cmocka_unit_test(counts_have_a_limit_in_large_files_too),
        cmocka_unit_test(bad_keys_are_refused),
        cmocka_unit_test(only_printable_ascii_makes_a_key),
        cmocka_unit_test(key_length_has_a_limit),
        cmocka_unit_test(a_key_may_be_there_once),
        cmocka_unit_test(bad_types_are_refused),
        cmocka_unit_test(bools_are_0_or_1),
        cmocka_unit_test(lengths_are_held_against_the_file),
        cmocka_unit_test(bad_alignments_are_refused),
        cmocka_unit_test(bad_tensor_names_are_refused),
        cmocka_unit_test(longest_tensor_name_is_64_bytes),
        cmocka_unit_test(a_tensor_may_be_there_once),
        cmocka_unit_test(bad_dimensions_are_refused),
        cmocka_unit_test(size_overflows_are_refused),
        cmocka_unit_test(unknown_weight_types_are_named),
        cmocka_unit_test(bad_offsets_are_refused),
        cmocka_unit_test(last_byte_of_data_is_needed),
        cmocka_unit_test(memory_must_be_there_and_aligned),
        cmocka_unit_test(files_that_cannot_be_mapped_are_named),
        cmocka_unit_test(long_paths_are_shortened_in_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
