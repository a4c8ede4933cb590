/* Session files that are damaged or made up: refused with a reason, and the session goes on. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fuzz/session_body.h"
#include "voltron.h"

static const char default_model[] = "src/assets/stories-4m-f16.gguf";
static const char blob_text[] = "[\"hello\"]";
static char folder[] = "/tmp/voltron-damage-XXXXXX";
static char path[64];

static vt_model *model;
static vt_session *session;
static unsigned char *file;
static size_t file_bytes;
static vt_token future[4]; /* what follows the saved session */

static void draw_future(vt_token *out)
{
    vt_error err;
    for (int i = 0; i < 4; i++)
        if (vt_session_next(session, &out[i], &err) != VT_OK) fail_msg("%s", err.message);
}

/* Another program writes to the file between the two times it is read: its new contents. The
 * library goes to the beginning of each with lseek, which is this one here. */
static struct {
    int file;
    int begun; /* times */
    const unsigned char *bytes;
    size_t count;
} intruder;

off_t lseek(int descriptor, off_t offset, int whence)
{
    if (intruder.bytes && ++intruder.begun == 2) {
        if (ftruncate(intruder.file, 0) != 0 ||
            pwrite(intruder.file, intruder.bytes, intruder.count, 0) < 0)
            return -1;
        intruder.bytes = NULL;
        intruder.begun = 0;
    }
    return syscall(SYS_lseek, descriptor, offset, whence);
}

/* Loads bytes without a disk. */
static vt_status load(const unsigned char *bytes, size_t count, vt_error *err)
{
    char name[64];
    const void *blob;
    size_t blob_bytes;
    int memory = memfd_create("session", MFD_CLOEXEC);
    assert_true(memory >= 0 && write(memory, bytes, count) == (ssize_t)count);
    intruder.file = memory;
    snprintf(name, sizeof name, "/proc/self/fd/%d", memory);
    *err = (vt_error){0};
    vt_status status = vt_session_load(session, name, &blob, &blob_bytes, err);
    close(memory);
    if (status == VT_OK) {
        assert_int_equal(blob_bytes, sizeof blob_text);
        assert_memory_equal(blob, blob_text, blob_bytes);
    }
    return status;
}

/* Something else, to see that a refused file leaves it. */
static void hold_something(void)
{
    static const vt_token other[] = {9, 8, 7, 6};
    assert_int_equal(vt_session_rewind(session, 0, NULL), VT_OK);
    assert_int_equal(vt_session_feed(session, other, 4, NULL), VT_OK);
}

static void assert_unchanged(void)
{
    size_t count;
    const vt_token *history = vt_session_history(session, &count);
    assert_int_equal(count, 4);
    assert_int_equal(history[0], 9);
    assert_int_equal(history[3], 6);
}

static void every_truncation(void **state)
{
    (void)state;
    vt_error err;
    hold_something();
    for (size_t bytes = 0; bytes < file_bytes; bytes++) {
        if (load(file, bytes, &err) != VT_ERR_FORMAT) fail_msg("%zu bytes: %s", bytes, err.message);
        assert_true(err.message[0]);
    }
    assert_unchanged();
    assert_int_equal(load(file, file_bytes, &err), VT_OK);
}

/* A bit of every byte. What is accepted nevertheless (zstd has a bit without meaning) is the same
 * session. */
static void every_byte_flipped(void **state)
{
    (void)state;
    vt_error err;
    vt_token text[4];
    int accepted = 0;
    hold_something();
    for (size_t at = 0; at < file_bytes; at++) {
        file[at] ^= (unsigned char)(1u << at % 8);
        vt_status status = load(file, file_bytes, &err);
        file[at] ^= (unsigned char)(1u << at % 8);
        if (status == VT_ERR_FORMAT) continue;
        if (status != VT_OK) fail_msg("byte %zu: %s", at, err.message);
        draw_future(text);
        assert_memory_equal(text, future, sizeof text);
        hold_something();
        accepted++;
    }
    assert_true(accepted < 3);
    assert_unchanged();
}

static void something_behind_the_end(void **state)
{
    (void)state;
    vt_error err;
    unsigned char *longer = calloc(1, 2 * file_bytes);
    assert_non_null(longer);
    memcpy(longer, file, file_bytes);
    assert_int_equal(load(longer, file_bytes + 1, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "follows its end"));
    memcpy(longer + file_bytes, file + SESSION_PREFIX_BYTES, file_bytes - SESSION_PREFIX_BYTES);
    assert_int_equal(load(longer, 2 * file_bytes - SESSION_PREFIX_BYTES, &err), VT_ERR_FORMAT);
    free(longer);
}

static void other_version(void **state)
{
    (void)state;
    vt_error err;
    file[4]++;
    assert_int_equal(load(file, file_bytes, &err), VT_ERR_FORMAT);
    file[4]--;
    assert_non_null(strstr(err.message, "version 2; this Voltron reads version 1"));
}

/* --- made up, with a right checksum ----------------------------------------------------------- */

/* Where things are in the body of this file: two hashes, a name, five numbers, … */
static size_t numbers_at;

static size_t find_numbers(const uint8_t *body)
{
    uint32_t name_bytes;
    memcpy(&name_bytes, body + SESSION_IDENTITY_BYTES, 4);
    return SESSION_IDENTITY_BYTES + 4 + name_bytes;
}

/* The body with `bytes` at `at` replaced. */
static void refuses(size_t at, const void *data, size_t bytes, vt_status status, const char *word)
{
    vt_error err;
    size_t body_bytes, packed_bytes;
    uint8_t *body = session_body_unpack(file, file_bytes, &body_bytes);
    assert_true(body && at + bytes <= body_bytes);
    memcpy(body + at, data, bytes);
    uint8_t *packed = session_body_pack(body, body_bytes, &packed_bytes);
    hold_something();
    vt_status found = load(packed, packed_bytes, &err);
    if (found != status || !strstr(err.message, word))
        fail_msg("status %d, expected %d with \"%s\": %s", found, status, word, err.message);
    assert_unchanged();
    free(packed);
    free(body);
}

static void refuses_number(size_t at, uint32_t value, vt_status status, const char *word)
{
    refuses(at, &value, sizeof value, status, word);
}

static void wrong_numbers(void **state)
{
    (void)state;
    const uint64_t none[4] = {0}, huge = UINT64_MAX, large = (uint64_t)VT_SESSION_BLOB_MAX + 1;
    size_t n = numbers_at, blob = n + 20 + 32, tokens = blob + 8 + sizeof blob_text;
    refuses(0, none, 1, VT_ERR_ARGUMENT, "hyperparameters or tokenizer");
    refuses(32, none, 32, VT_ERR_ARGUMENT, "weights differ");
    refuses_number(SESSION_IDENTITY_BYTES, 257, VT_ERR_FORMAT, "name of 257 bytes");
    refuses_number(SESSION_IDENTITY_BYTES, UINT32_MAX, VT_ERR_FORMAT, "name");
    refuses_number(n, VT_KV_Q8, VT_ERR_ARGUMENT, "KV cache of q8");
    refuses_number(n, 77, VT_ERR_ARGUMENT, "unknown type");
    refuses_number(n + 4, 2047, VT_ERR_FORMAT, "size of the vocabulary");
    refuses_number(n + 8, 17, VT_ERR_CONTEXT_FULL, "17 tokens");
    refuses_number(n + 8, UINT32_MAX, VT_ERR_CONTEXT_FULL, "room for 16");
    refuses_number(n + 8, 1, VT_ERR_FORMAT, "number of computed tokens");
    refuses_number(n + 8, 4, VT_ERR_FORMAT, "damaged"); /* a token more than there is */
    refuses_number(n + 12, 4, VT_ERR_FORMAT, "number of computed tokens");
    refuses_number(n + 12, 1, VT_ERR_FORMAT, "damaged"); /* rows behind the end */
    refuses_number(n + 16, 1, VT_ERR_FORMAT, "flag of the logits");
    refuses_number(n + 16, 0x80, VT_ERR_FORMAT, "flags");
    refuses(n + 20, none, 32, VT_ERR_FORMAT, "random state");
    refuses(blob, &large, 8, VT_ERR_FORMAT, "caller's data");
    refuses(blob, &huge, 8, VT_ERR_FORMAT, "caller's data");
    refuses_number(tokens, 2048, VT_ERR_FORMAT, "token 0 is 2048");
    refuses_number(tokens + 4, UINT32_MAX, VT_ERR_FORMAT, "token 1");
    size_t shape = tokens + 3 * 4;
    refuses_number(shape, 5, VT_ERR_FORMAT, "another shape");
    refuses_number(shape + 4, 1, VT_ERR_FORMAT, "another shape");
    refuses(shape + 8, &huge, 8, VT_ERR_FORMAT, "another shape");
    refuses_number(shape + 16, 1, VT_ERR_FORMAT, "another shape"); /* layer 0 from token 1 on */
}

/* A frame that asks for more memory than ours do. */
static void huge_window(void **state)
{
    (void)state;
    vt_error err;
    size_t body_bytes;
    uint8_t *body = session_body_unpack(file, file_bytes, &body_bytes);
    size_t capacity = ZSTD_compressBound(body_bytes) + 100, packed;
    uint8_t *made = malloc(capacity);
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    assert_true(body && made && zstd);
    memcpy(made, file, SESSION_PREFIX_BYTES);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_windowLog, 21);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_contentSizeFlag, 0);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
    ZSTD_inBuffer in = {body, body_bytes, 0};
    ZSTD_outBuffer out = {made, capacity, SESSION_PREFIX_BYTES};
    assert_int_equal(ZSTD_compressStream2(zstd, &out, &in, ZSTD_e_flush), 0);
    packed = ZSTD_compressStream2(zstd, &out, &in, ZSTD_e_end);
    assert_int_equal(packed, 0);
    assert_int_equal(load(made, out.pos, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "memory"));
    ZSTD_freeCCtx(zstd);
    free(made);
    free(body);
}

/* Rows that are no numbers give an error when they are used. */
static void rows_that_are_no_numbers(void **state)
{
    (void)state;
    vt_error err;
    vt_token token;
    size_t body_bytes, packed_bytes;
    uint8_t *body = session_body_unpack(file, file_bytes, &body_bytes);
    memset(body + body_bytes - 1000, 0xFF, 1000); /* halves: NaN */
    uint8_t *packed = session_body_pack(body, body_bytes, &packed_bytes);
    assert_int_equal(load(packed, packed_bytes, &err), VT_OK);
    assert_int_equal(vt_session_next(session, &token, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "not finite"));
    free(packed);
    free(body);
}

static void longer_session(const char *name)
{
    static const vt_token ids[200] = {1, 2, 3};
    vt_session_params params = vt_session_params_default();
    vt_session *longer;
    params.context_tokens = 256;
    assert_int_equal(vt_session_open(model, &params, &longer, NULL), VT_OK);
    assert_int_equal(vt_session_feed(longer, ids, 200, NULL), VT_OK);
    assert_int_equal(vt_session_save(longer, name, blob_text, sizeof blob_text, NULL), VT_OK);
    vt_session_close(longer);
}

/* A session that was not checked must not get in behind the back of one that was. */
static void changed_while_it_is_read(void **state)
{
    (void)state;
    vt_error err;
    char name[80];
    size_t count;
    snprintf(name, sizeof name, "%s/longer.vts", folder);
    longer_session(name);
    hold_something();
    unsigned char *longer = test_read_file(name, &intruder.count);
    intruder.bytes = longer;
    assert_int_equal(load(file, file_bytes, &err), VT_ERR_IO);
    assert_null(intruder.bytes); /* it was written */
    assert_non_null(strstr(err.message, "changed while it was read"));
    assert_unchanged();
    free(longer);
    unlink(name);
    /* The same numbers, other rows behind them. */
    size_t body_bytes, packed_bytes;
    uint8_t *body = session_body_unpack(file, file_bytes, &body_bytes);
    body[body_bytes - 1] ^= 1;
    uint8_t *packed = session_body_pack(body, body_bytes, &packed_bytes);
    packed[packed_bytes - 1] ^= 1; /* of the checksum */
    intruder.bytes = packed;
    intruder.count = packed_bytes;
    assert_int_equal(load(file, file_bytes, &err), VT_ERR_FORMAT);
    vt_session_history(session, &count);
    assert_int_equal(count, 0);
    free(packed);
    free(body);
    assert_int_equal(load(file, file_bytes, &err), VT_OK);
}

static int set_up(void **state)
{
    (void)state;
    static const vt_token ids[] = {3, 70};
    vt_token token;
    vt_session_params params = vt_session_params_default();
    vt_model_params model_params = vt_model_params_default();
    model_params.threads = 1;
    params.context_tokens = 16;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/talk.vts", folder);
    if (vt_model_open(default_model, &model_params, &model, NULL) != VT_OK ||
        vt_session_open(model, &params, &session, NULL) != VT_OK ||
        vt_session_feed(session, ids, 2, NULL) != VT_OK ||
        vt_session_next(session, &token, NULL) != VT_OK ||
        vt_session_save(session, path, blob_text, sizeof blob_text, NULL) != VT_OK)
        return -1;
    draw_future(future);
    file = test_read_file(path, &file_bytes);
    size_t body_bytes;
    uint8_t *body = session_body_unpack(file, file_bytes, &body_bytes);
    numbers_at = find_numbers(body);
    free(body);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(file);
    vt_session_close(session);
    vt_model_close(model);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_truncation), cmocka_unit_test(every_byte_flipped),
        cmocka_unit_test(something_behind_the_end), cmocka_unit_test(other_version),
        cmocka_unit_test(wrong_numbers), cmocka_unit_test(huge_window),
        cmocka_unit_test(rows_that_are_no_numbers), cmocka_unit_test(changed_while_it_is_read),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
