/* Shard stores that are damaged or lie: an error that says what and where, and nothing worse. */
#include "store_support.h"
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../src/little_endian.h"

/* A small store, and a path to write changed copies to. */
static struct {
    test_source source;
    unsigned char *file;
    size_t bytes;
    uint64_t index, data;
    uint64_t entries;
    const char *path;
} small;

static int set_up(void **state)
{
    static char path[512];
    if (test_store_set_up(state) != 0) return -1;
    snprintf(path, sizeof path, "%s", test_store_path("damaged.vts"));
    small.path = path;
    test_source_open(&small.source, "llama", 1);
    test_store_write(&small.source, path, 1);
    small.file = test_read_file(path, &small.bytes);
    small.entries = vti_load_u64(small.file + VTI_STORE_AT_ENTRY_COUNT);
    uint64_t directory = vti_load_u64(small.file + VTI_STORE_AT_DIRECTORY_BYTES);
    small.index = vti_store_index_offset(directory);
    small.data = vti_store_data_offset(directory, small.entries);
    return 0;
}

static int tear_down(void **state)
{
    free(small.file);
    test_source_close(&small.source);
    return test_store_tear_down(state);
}

/* Opens and verifies what is at the path. */
static vt_status check(vt_error *err)
{
    vt_store *store;
    vt_pack_params params = vt_pack_params_default();
    params.threads = 1;
    err->message[0] = 0;
    vt_status status = vt_store_open(small.path, &store, err);
    if (status != VT_OK) {
        assert_null(store);
        return status;
    }
    status = vt_store_verify(store, &params, err);
    vt_store_close(store);
    return status;
}

/* --- any damage -------------------------------------------------------------------------------- */

static void put_byte(FILE *file, long at, int value)
{
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(value, file), value);
    assert_int_equal(fflush(file), 0);
}

/* Every byte of the header, some of the rest. */
static size_t next_step(test_random *random, size_t at, size_t most)
{
    return at < VTI_STORE_HEADER_BYTES ? 1 : 1 + test_random_u64(random) % most;
}

static void every_flipped_bit_is_found(void **state)
{
    (void)state;
    test_random random = {20261130};
    vt_error err;
    test_store_write_file(small.path, small.file, small.bytes);
    assert_int_equal(check(&err), VT_OK);
    FILE *file = fopen(small.path, "r+b");
    assert_non_null(file);
    size_t step = small.bytes / 1500 + 1;
    for (size_t at = 0; at < small.bytes; at += next_step(&random, at, step)) {
        unsigned bit = (unsigned)(test_random_u64(&random) % 8);
        put_byte(file, (long)at, small.file[at] ^ 1 << bit);
        vt_status status = check(&err);
        if (status == VT_OK) fail_msg("bit %u of byte %zu was flipped, nobody noticed", bit, at);
        if (!strstr(err.message, "damaged.vts")) fail_msg("byte %zu: %s", at, err.message);
        put_byte(file, (long)at, small.file[at]);
    }
    fclose(file);
    assert_int_equal(check(&err), VT_OK);
}

/* Loading does without the hashes: it fails, or gives what was packed. */
static void a_flipped_bit_never_gives_other_weights(void **state)
{
    (void)state;
    test_random random = {31};
    vt_store *store;
    test_store_write_file(small.path, small.file, small.bytes);
    assert_int_equal(vt_store_open(small.path, &store, NULL), VT_OK);
    const vti_shard_source *source = vti_store_source(store);
    vti_shard_id id = {0, 1, VTI_PRECISION_F16};
    const vti_store_entry *entry = vti_store_find(store, id);
    unsigned char *right = malloc(entry->shard_bytes), *got = malloc(entry->shard_bytes);
    assert_int_equal(source->load(source->self, id, right, NULL), VT_OK);
    FILE *file = fopen(small.path, "r+b");
    unsigned refused = 0, tries = 0;
    for (uint64_t i = 0; i < entry->stored_bytes; i += 1 + test_random_u64(&random) % 16, tries++) {
        vt_error err = {.message = ""};
        size_t at = (size_t)(entry->offset + i);
        put_byte(file, (long)at, small.file[at] ^ 1 << test_random_u64(&random) % 8);
        if (source->load(source->self, id, got, &err) == VT_OK)
            assert_memory_equal(got, right, entry->shard_bytes);
        else if (strstr(err.message, "damaged.vts") &&
                 strstr(err.message, "ATTN(0), shard 1 at F16"))
            refused++;
        else
            fail_msg("byte %zu: %s", at, err.message);
        put_byte(file, (long)at, small.file[at]);
    }
    assert_true(refused > tries * 9 / 10);
    fclose(file);
    free(right);
    free(got);
    vt_store_close(store);
}

static void every_cut_is_found(void **state)
{
    (void)state;
    test_random random = {7};
    vt_error err;
    size_t step = small.bytes / 500 + 1;
    for (size_t left = 0; left < small.bytes; left += next_step(&random, left, step)) {
        test_store_write_file(small.path, small.file, left);
        vt_store *store;
        assert_int_equal(vt_store_open(small.path, &store, &err), VT_ERR_FORMAT);
        assert_non_null(strstr(err.message, "damaged.vts"));
    }
    unsigned char *longer = malloc(small.bytes + 1);
    memcpy(longer, small.file, small.bytes);
    longer[small.bytes] = 0;
    test_store_write_file(small.path, longer, small.bytes + 1);
    assert_int_equal(check(&err), VT_ERR_FORMAT);
    free(longer);
}

static void a_file_that_shrinks_while_open(void **state)
{
    (void)state;
    vt_store *store;
    vt_error err = {.message = ""};
    test_store_write_file(small.path, small.file, small.bytes);
    assert_int_equal(vt_store_open(small.path, &store, NULL), VT_OK);
    const vti_shard_source *source = vti_store_source(store);
    vti_shard_id id = {0, 0, VTI_PRECISION_I8};
    void *memory = malloc(vti_store_find(store, id)->shard_bytes);
    assert_int_equal(truncate(small.path, (off_t)small.data), 0);
    assert_int_equal(source->load(source->self, id, memory, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "shorter"));
    free(memory);
    vt_store_close(store);
}

/* --- lies, with right checksums ---------------------------------------------------------------- */

/* A number put into the header (entry -1) or into an entry of the index. */
typedef struct lie {
    const char *what;
    int entry;
    unsigned at, size;
    uint64_t value;
    vt_status status;
    const char *message;
} lie;

static const lie lies[] = {
    {"format version", -1, VTI_STORE_AT_VERSION, 4, 9, VT_ERR_UNSUPPORTED, "version 9"},
    {"layout version", -1, VTI_STORE_AT_LAYOUT, 4, 7, VT_ERR_UNSUPPORTED, "layout 7"},
    {"reserved", -1, VTI_STORE_AT_RESERVED + 3, 1, 1, VT_ERR_FORMAT, "reserved bytes"},
    {"reserved", -1, VTI_STORE_AT_ZERO, 1, 1, VT_ERR_FORMAT, "reserved bytes"},
    {"file size", -1, VTI_STORE_AT_FILE_BYTES, 8, 1000000, VT_ERR_FORMAT, "says 1000000"},
    {"shard width", -1, VTI_STORE_AT_CUT + 8, 4, 8, VT_ERR_UNSUPPORTED, "not cut into shards"},
    {"units", -1, VTI_STORE_AT_CUT, 4, 40, VT_ERR_UNSUPPORTED, "not cut into shards"},
    {"unit", 3, VTI_STORE_AT_UNIT, 4, 1, VT_ERR_FORMAT, "is FFN(0), shard 1 at F16, expected"},
    {"no such unit", 3, VTI_STORE_AT_UNIT, 4, 999, VT_ERR_FORMAT, "unit 999"},
    {"shard", 0, VTI_STORE_AT_SHARD, 4, 1, VT_ERR_FORMAT, "expected ATTN(0), shard 0"},
    {"duplicate", 1, VTI_STORE_AT_PRECISION, 1, 0, VT_ERR_FORMAT, "expected ATTN(0), shard 1"},
    {"precision", 1, VTI_STORE_AT_PRECISION, 1, 3, VT_ERR_FORMAT, "expected ATTN(0), shard 1"},
    {"encoding", 0, VTI_STORE_AT_ENCODING, 1, 0, VT_ERR_FORMAT, "another encoding"},
    {"encoding", 0, VTI_STORE_AT_ENCODING, 1, 2, VT_ERR_FORMAT, "another encoding"},
    {"grid", 0, VTI_STORE_AT_GRID, 1, 2, VT_ERR_FORMAT, "reserved bytes"},
    {"entry's reserved", 0, VTI_STORE_AT_ENTRY_RESERVED + 15, 1, 1, VT_ERR_FORMAT, "reserved"},
    {"type", 0, VTI_STORE_AT_TYPES, 1, 100, VT_ERR_FORMAT, "types are not possible"},
    {"lacking type", 0, VTI_STORE_AT_TYPES, 1, 255, VT_ERR_FORMAT, "types are not possible"},
    {"other type", 0, VTI_STORE_AT_TYPES, 1, VTI_Q8_0, VT_ERR_FORMAT, "its tensors take"},
    {"added type", 6, VTI_STORE_AT_TYPES + VTI_PIECE_ROPE_FREQS, 1, VTI_F32, VT_ERR_FORMAT,
     "a tensor that the model has not"},
    {"offset", 1, VTI_STORE_AT_OFFSET, 8, 0, VT_ERR_FORMAT, "behind the entry before"},
    {"offset", 1, VTI_STORE_AT_OFFSET, 8, UINT64_MAX - 63, VT_ERR_FORMAT, "behind the entry"},
    {"no data", 0, VTI_STORE_AT_STORED_BYTES, 8, 0, VT_ERR_FORMAT, "fewer bytes in"},
    {"much data", 0, VTI_STORE_AT_STORED_BYTES, 8, UINT64_MAX, VT_ERR_FORMAT, "more bytes in"},
    {"size", 0, VTI_STORE_AT_SHARD_BYTES, 8, 1ull << 40, VT_ERR_FORMAT, "its tensors take"},
    {"content hash", 2, VTI_STORE_AT_CONTENT_HASH, 1, 1, VT_ERR_FORMAT, "at I4: its content"},
    {"stored hash", 2, VTI_STORE_AT_STORED_HASH, 1, 1, VT_ERR_FORMAT, "shard 0 at I4: its bytes"},
};

static void lies_are_refused(void **state)
{
    (void)state;
    unsigned char *file = malloc(small.bytes);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        const lie *l = &lies[i];
        vt_error err;
        unsigned char number[8];
        memcpy(file, small.file, small.bytes);
        vti_put_u64(number, l->value);
        unsigned char *at = file + l->at;
        if (l->entry >= 0) at += small.index + (unsigned)l->entry * VTI_STORE_ENTRY_BYTES;
        if (memcmp(at, number, l->size) == 0) number[0] ^= 0xff; /* a hash's byte */
        memcpy(at, number, l->size);
        test_store_seal(file);
        test_store_write_file(small.path, file, small.bytes);
        vt_status status = check(&err);
        if (status != l->status || !strstr(err.message, l->message))
            fail_msg("%s: status %d, \"%s\"", l->what, status, err.message);
    }
    free(file);
}

static void a_directory_that_lies_is_refused(void **state)
{
    (void)state;
    vt_error err;
    unsigned char *file = malloc(small.bytes);
    for (unsigned i = 0; i < 2; i++) { /* counts that would make any sum overflow */
        memcpy(file, small.file, small.bytes);
        vti_put_u64(file + (i ? VTI_STORE_AT_ENTRY_COUNT : VTI_STORE_AT_DIRECTORY_BYTES),
                    UINT64_MAX - 100);
        vti_stored_hash(file, VTI_STORE_AT_HASH, file + VTI_STORE_AT_HASH);
        test_store_write_file(small.path, file, small.bytes);
        assert_int_equal(check(&err), VT_ERR_FORMAT);
        assert_non_null(strstr(err.message, "more than the file has"));
    }
    memcpy(file, small.file, small.bytes);
    file[VTI_STORE_HEADER_BYTES + 4] = 77; /* GGUF version */
    test_store_seal(file);
    test_store_write_file(small.path, file, small.bytes);
    assert_int_equal(check(&err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "GGUF version 77"));
    /* One entry less, and the index ends early; the byte where its data began is still there. */
    memcpy(file, small.file, small.bytes);
    vti_put_u64(file + VTI_STORE_AT_ENTRY_COUNT, small.entries - 1);
    memset(file + small.index + (small.entries - 1) * VTI_STORE_ENTRY_BYTES, 0,
           VTI_STORE_ENTRY_BYTES);
    test_store_seal(file);
    test_store_write_file(small.path, file, small.bytes);
    assert_int_not_equal(check(&err), VT_OK);
    free(file);
}


static void other_files(void **state)
{
    (void)state;
    vt_error err;
    vt_store *store;
    assert_int_equal(vt_store_open("/nowhere/a.vts", &store, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere/a.vts"));
    assert_int_equal(vt_store_open("/tmp", &store, &err), VT_ERR_IO);
    assert_int_equal(vt_store_open(NULL, &store, &err), VT_ERR_ARGUMENT);
    test_store_write_file(small.path, "GGUF", 4);
    assert_int_equal(check(&err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "not a shard store"));
    assert_false(vt_store_is(small.path));
    assert_false(vt_store_is("/nowhere/a.vts"));
}

/* --- full disk --------------------------------------------------------------------------------- */

static void a_full_disk_leaves_nothing(void **state)
{
    (void)state;
    struct rlimit old, limit;
    vt_error err = {.message = ""};
    vt_pack_params params = vt_pack_params_default();
    const char *path = test_store_path("full.vts");
    unsigned files = test_store_files();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    size_t rooms[] = {0, 1000, small.data + 100, small.bytes / 2, small.bytes - 1};
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        limit = (struct rlimit){rooms[i], old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        vt_status status = vti_pack(&small.source.source, small.source.gguf, &small.source.identity,
                                    path, &params, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, VT_ERR_IO);
        assert_non_null(strstr(err.message, "full.vts"));
        assert_non_null(strstr(err.message, strerror(EFBIG)));
        assert_non_null(strstr(err.message, "MiB of at most"));
        assert_int_equal(test_store_files(), files);
    }
    signal(SIGXFSZ, handler);
    test_store_write(&small.source, path, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(a_flipped_bit_never_gives_other_weights),
        cmocka_unit_test(every_cut_is_found),
        cmocka_unit_test(a_file_that_shrinks_while_open),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(a_directory_that_lies_is_refused),
        cmocka_unit_test(other_files),
        cmocka_unit_test(a_full_disk_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
