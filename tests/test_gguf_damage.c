/* Damage at every place of a small complete GGUF file: an error or a success, never harm. Run under
 * ASan and UBSan; gguf_exercise() then touches whatever an opened file offers. */
#include "support.h"

#include "gguf_samples.h"
#include "fuzz/gguf_exercise.h"

#include <sys/mman.h>
#include <unistd.h>

/* A copy whose end is followed, at most 31 bytes later, by a page that must not be touched. Makes
 * over-reads crash in builds without ASan too. */
static void exercise_before_guard_page(const unsigned char *data, size_t bytes, vt_error *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (bytes + page - 1) / page * page;
    unsigned char *map = mmap(NULL, room + page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + room, page, PROT_NONE), 0);
    unsigned char *copy = map + (room - bytes) / 32 * 32;
    memcpy(copy, data, bytes);
    gguf_exercise_memory(copy, bytes, err);
    munmap(map, room + page);
}

static void every_truncation_says_what_is_missing(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        size_t bytes;
        unsigned char *data = gguf_sample_complete(version, &bytes);
        for (size_t kept = 0; kept < bytes; kept++) {
            unsigned char *cut = gguf_copy_exact(data, kept);
            vt_error err;
            assert_int_equal(gguf_exercise_memory(cut, kept, &err), VT_ERR_FORMAT);
            const char *missing = strstr(err.message, " bytes are missing");
            if (!missing) fail_msg("%zu bytes kept: %s", kept, err.message);
            free(cut);
            exercise_before_guard_page(data, kept, &err);
            assert_int_equal(err.status, VT_ERR_FORMAT);
        }
        free(data);
    }
}

/* A string that ends within a character, as the last thing of the file: all 32 distances from the
 * guard page, 0 among them. utf8proc is not instrumented, ASan would not see it read on. */
static void a_cut_character_may_end_the_file(void **state)
{
    (void)state;
    char text[40] = "";
    for (int length = 0; length < 32; length++) {
        strcpy(text + length, "\xf0\x9f\x98");
        gguf_builder *builder = gguf_builder_new(3);
        gguf_put_string(builder, "text", text);
        size_t bytes;
        unsigned char *data = gguf_builder_finish(builder, &bytes);
        vt_error err;
        exercise_before_guard_page(data, bytes, &err);
        assert_int_equal(err.status, VT_OK);
        free(data);
        text[length] = 'a';
    }
}

/* Counts outcomes, so that the sweeps below cannot all end at the same check. */
typedef struct outcome_counts {
    unsigned opened, format, unsupported;
} outcome_counts;

static void count_outcome(outcome_counts *outcomes, vt_status status)
{
    outcomes->opened += status == VT_OK;
    outcomes->format += status == VT_ERR_FORMAT;
    outcomes->unsupported += status == VT_ERR_UNSUPPORTED;
}

static void every_byte_may_be_anything(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = gguf_sample_complete(3, &bytes);
    outcome_counts outcomes = {0};
    for (size_t at = 0; at < bytes; at++) {
        const unsigned char good = data[at];
        for (int variant = 0; variant < 12; variant++) {
            const unsigned char fixed[4] = {0x00, 0xff, 0x7f, 0x80};
            data[at] = variant < 8 ? good ^ (unsigned char)(1 << variant) : fixed[variant - 8];
            vt_error err;
            count_outcome(&outcomes, gguf_exercise_memory(data, bytes, &err));
        }
        exercise_before_guard_page(data, bytes, &(vt_error){0});
        data[at] = good;
    }
    assert_int_equal(outcomes.opened + outcomes.format + outcomes.unsupported, bytes * 12);
    assert_true(outcomes.opened > 1000 && outcomes.format > 1000 && outcomes.unsupported > 50);
    free(data);
}

static void every_eight_bytes_may_be_a_wild_number(void **state)
{
    (void)state;
    const uint64_t wild[] = {0, 1, 0xffffffff, 0x80000000, 0x100000000, (uint64_t)1 << 31,
                             (uint64_t)1 << 60, (uint64_t)1 << 61, (uint64_t)1 << 63,
                             UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 31, UINT64_MAX / 8,
                             UINT64_MAX / 34};
    size_t bytes;
    unsigned char *data = gguf_sample_complete(3, &bytes);
    unsigned char *good = gguf_copy_exact(data, bytes);
    outcome_counts outcomes = {0};
    for (size_t at = 0; at + 8 <= bytes; at++) {
        for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
            memcpy(data + at, &wild[i], 8);
            vt_error err;
            count_outcome(&outcomes, gguf_exercise_memory(data, bytes, &err));
            memcpy(data + at, good + at, 8);
        }
    }
    assert_true(outcomes.opened > 1000 && outcomes.format > 1000 && outcomes.unsupported > 50);
    free(good);
    free(data);
}

static void random_damage_does_no_harm(void **state)
{
    (void)state;
    test_random random = {20250607};
    size_t bytes;
    unsigned char *data = gguf_sample_complete(3, &bytes);
    unsigned char *good = gguf_copy_exact(data, bytes);
    outcome_counts outcomes = {0};
    for (int round = 0; round < 5000; round++) {
        for (uint64_t n = 1 + test_random_u64(&random) % 4; n > 0; n--)
            data[test_random_u64(&random) % bytes] = (unsigned char)test_random_u64(&random);
        vt_error err;
        count_outcome(&outcomes, gguf_exercise_memory(data, bytes, &err));
        memcpy(data, good, bytes);
    }
    assert_int_equal(outcomes.opened + outcomes.format + outcomes.unsupported, 5000);
    assert_true(outcomes.opened > 100 && outcomes.format > 100);
    free(good);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_truncation_says_what_is_missing),
        cmocka_unit_test(a_cut_character_may_end_the_file),
        cmocka_unit_test(every_byte_may_be_anything),
        cmocka_unit_test(every_eight_bytes_may_be_a_wild_number),
        cmocka_unit_test(random_damage_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
