/* Values of a GGUF file: as text, and through the typed getters. */
#include "support.h"

#include "gguf_samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static vt_gguf *open_memory(const unsigned char *data, size_t bytes)
{
    vt_error err = {VT_OK, ""};
    vt_gguf *gguf = NULL;
    if (vti_gguf_open_memory(data, bytes, "memory", &gguf, &err) != VT_OK)
        fail_msg("%s", err.message);
    return gguf;
}

static void assert_text(const vt_gguf *gguf, const char *key, uint64_t max_elements,
                        const char *expected)
{
    for (uint64_t i = 0; i < vt_gguf_entry_count(gguf); i++) {
        vt_gguf_entry entry;
        assert_int_equal(vt_gguf_get_entry(gguf, i, &entry), VT_OK);
        if (strcmp(entry.key, key) != 0) continue;
        char text[512];
        size_t bytes = vt_gguf_entry_text(gguf, i, max_elements, text, sizeof text);
        assert_string_equal(text, expected);
        assert_int_equal(bytes, strlen(expected));
        return;
    }
    fail_msg("no key %s", key);
}

static void values_become_text(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = gguf_sample_complete(3, &bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    assert_text(gguf, "general.architecture", 3, "\"sample\"");
    assert_text(gguf, "scalar.u8", 3, "200");
    assert_text(gguf, "scalar.i8", 3, "-100");
    assert_text(gguf, "scalar.u16", 3, "60000");
    assert_text(gguf, "scalar.i16", 3, "-30000");
    assert_text(gguf, "scalar.u32", 3, "4000000000");
    assert_text(gguf, "scalar.i32", 0, "-2000000000");
    assert_text(gguf, "scalar.f32", 3, "0.1");
    assert_text(gguf, "scalar.bool", 3, "true");
    assert_text(gguf, "scalar.str", 3, "\"line\\n\\\"quoted\\\" \\\\ \\x1b[31m \xc3\xa9 \\xff\"");
    assert_text(gguf, "scalar.u64", 3, "18446744073709551615");
    assert_text(gguf, "scalar.i64", 3, "-9223372036854775808");
    assert_text(gguf, "scalar.f64", 3, "-2.5e+300");
    assert_text(gguf, "array.str", 3, "[\"a\", \"\", \"longer\"]");
    assert_text(gguf, "array.i32", 2, "[1, -2, … 1 more]");
    assert_text(gguf, "array.f32", UINT64_MAX, "[0.5, -1e-06]");
    assert_text(gguf, "array.bool", 1, "[true, … 1 more]");
    assert_text(gguf, "array.u64", 0, "[… 1 more]");
    assert_text(gguf, "array.empty", 3, "[]");
    vt_gguf_close(gguf);
    free(data);
}

/* Terminals obey C1 controls in UTF-8 too; a character cut off by the end of the file must not make
 * the reader look behind it. */
static void text_escapes_what_a_terminal_would_obey(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_new(3);
    gguf_put_string(builder, "controls", "\x7f\xc2\x9b\xc2\xa0\t\r\x01");
    gguf_put_string(builder, "cut", "\xf0\x9f\x98\x80 \xf0\x9f\x98");
    size_t bytes;
    unsigned char *data = gguf_builder_finish(builder, &bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    assert_text(gguf, "controls", 1, "\"\\x7f\\xc2\\x9b\xc2\xa0\\t\\r\\x01\"");
    assert_text(gguf, "cut", 1, "\"\xf0\x9f\x98\x80 \\xf0\\x9f\\x98\"");
    vt_gguf_close(gguf);
    free(data);
}

static void text_is_cut_to_the_buffer(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = gguf_sample_vocabulary(&bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    const char *whole = "\"gpt2\"";
    for (size_t capacity = 0; capacity <= 8; capacity++) {
        char text[10];
        memset(text, '#', sizeof text);
        assert_int_equal(vt_gguf_entry_text(gguf, 0, 1, text, capacity), strlen(whole));
        size_t room = capacity > 0 ? capacity - 1 : 0;
        size_t kept = room < strlen(whole) ? room : strlen(whole);
        assert_memory_equal(text, whole, kept);
        if (capacity > 0) assert_int_equal(text[kept], 0);
        assert_int_equal(text[capacity], '#');
    }
    char text[4] = "###";
    assert_int_equal(vt_gguf_entry_text(gguf, 3, 1, text, sizeof text), 0);
    assert_string_equal(text, "");
    vt_gguf_close(gguf);
    free(data);
}

static void floats_keep_all_their_digits(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_new(3);
    const float singles[] = {1.0f / 3, 16777217.0f, INFINITY, -INFINITY, 1e-45f};
    const double doubles[] = {1.0 / 3, 0.1, 123456789012.5};
    gguf_put_array(builder, "f32", VTI_GGUF_F32, 5, singles);
    gguf_put_array(builder, "f64", VTI_GGUF_F64, 3, doubles);
    size_t bytes;
    unsigned char *data = gguf_builder_finish(builder, &bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    assert_text(gguf, "f32", 9, "[0.33333334, 16777216, inf, -inf, 1.4013e-45]");
    assert_text(gguf, "f64", 9, "[0.3333333333333333, 0.1, 123456789012.5]");
    const vti_gguf_value *value = vti_gguf_find(gguf, "f64");
    for (uint64_t i = 0; i < 3; i++) assert_true(vti_gguf_number_at(value, i) == doubles[i]);
    vt_gguf_close(gguf);
    free(data);
}

static void u32_takes_every_integer_that_fits(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = gguf_sample_complete(3, &bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    uint32_t out = 1;
    vt_error err = {VT_OK, ""};
    assert_int_equal(vti_gguf_get_u32(gguf, "scalar.u8", true, &out, &err), VT_OK);
    assert_int_equal(out, 200);
    assert_int_equal(vti_gguf_get_u32(gguf, "scalar.u16", true, &out, &err), VT_OK);
    assert_int_equal(out, 60000);
    assert_int_equal(vti_gguf_get_u32(gguf, "scalar.u32", false, &out, &err), VT_OK);
    assert_int_equal(out, 4000000000u);
    assert_int_equal(err.status, VT_OK);

    const struct { const char *key, *message; } refused[] = {
        {"scalar.i8", "memory: key 'scalar.i8': found -100, expected 0 to 4294967295"},
        {"scalar.i16", "memory: key 'scalar.i16': found -30000, expected 0 to 4294967295"},
        {"scalar.u64",
         "memory: key 'scalar.u64': found 18446744073709551615, expected 0 to 4294967295"},
        {"scalar.i64",
         "memory: key 'scalar.i64': found -9223372036854775808, expected 0 to 4294967295"},
        {"scalar.str", "memory: key 'scalar.str': found type str, expected an integer"},
        {"scalar.bool", "memory: key 'scalar.bool': found type bool, expected an integer"},
        {"scalar.f32", "memory: key 'scalar.f32': found type f32, expected an integer"},
        {"array.i32", "memory: key 'array.i32': found type i32[], expected an integer"},
        {"array.empty", "memory: key 'array.empty': found type u16[], expected an integer"},
        {"absent", "memory: key 'absent' is missing"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        out = 77;
        assert_int_equal(vti_gguf_get_u32(gguf, refused[i].key, true, &out, &err), VT_ERR_FORMAT);
        assert_int_equal(err.status, VT_ERR_FORMAT);
        assert_string_equal(err.message, refused[i].message);
        assert_int_equal(vti_gguf_get_u32(gguf, refused[i].key, true, &out, NULL), VT_ERR_FORMAT);
        assert_int_equal(out, 77);
    }
    assert_int_equal(vti_gguf_get_u32(gguf, "absent", false, &out, &err), VT_OK);
    assert_int_equal(out, 77);
    vt_gguf_close(gguf);
    free(data);
}

static void f32_takes_finite_floats(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_new(3);
    gguf_put_f32(builder, "single", 0.1f);
    gguf_put_number(builder, "double", VTI_GGUF_F64, &(double){-0.25});
    gguf_put_number(builder, "large", VTI_GGUF_F64, &(double){1e39});
    gguf_put_f32(builder, "nan", NAN);
    gguf_put_f32(builder, "infinite", -INFINITY);
    gguf_put_u32(builder, "integer", 1);
    size_t bytes;
    unsigned char *data = gguf_builder_finish(builder, &bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    float out = 0;
    assert_int_equal(vti_gguf_get_f32(gguf, "single", true, &out, NULL), VT_OK);
    assert_true(out == 0.1f);
    assert_int_equal(vti_gguf_get_f32(gguf, "double", true, &out, NULL), VT_OK);
    assert_true(out == -0.25f);
    assert_int_equal(vti_gguf_get_f32(gguf, "absent", false, &out, NULL), VT_OK);
    const struct { const char *key, *message; } refused[] = {
        {"large", "memory: key 'large': found 1e+39, expected a finite f32"},
        {"nan", "memory: key 'nan': found nan, expected a finite f32"},
        {"infinite", "memory: key 'infinite': found -inf, expected a finite f32"},
        {"integer", "memory: key 'integer': found type u32, expected f32"},
        {"absent", "memory: key 'absent' is missing"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        vt_error err;
        assert_int_equal(vti_gguf_get_f32(gguf, refused[i].key, true, &out, &err), VT_ERR_FORMAT);
        assert_string_equal(err.message, refused[i].message);
    }
    assert_true(out == -0.25f);
    vt_gguf_close(gguf);
    free(data);
}

static void bool_string_and_array_take_their_type_only(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = gguf_sample_complete(3, &bytes);
    vt_gguf *gguf = open_memory(data, bytes);
    bool boolean = false;
    vti_gguf_string text = {0};
    const vti_gguf_value *array = NULL;
    vt_error err;
    assert_int_equal(vti_gguf_get_bool(gguf, "scalar.bool", true, &boolean, &err), VT_OK);
    assert_true(boolean);
    assert_int_equal(vti_gguf_get_bool(gguf, "scalar.u8", false, &boolean, &err), VT_ERR_FORMAT);
    assert_string_equal(err.message, "memory: key 'scalar.u8': found type u8, expected bool");
    assert_int_equal(vti_gguf_get_string(gguf, "general.architecture", true, &text, &err), VT_OK);
    assert_int_equal(text.bytes, 6);
    assert_memory_equal(text.data, "sample", 6);
    assert_int_equal(vti_gguf_get_string(gguf, "array.str", true, &text, &err), VT_ERR_FORMAT);
    assert_string_equal(err.message, "memory: key 'array.str': found type str[], expected str");
    assert_int_equal(vti_gguf_get_array(gguf, "array.i32", VTI_GGUF_I32, true, &array, &err),
                     VT_OK);
    assert_int_equal(array->count, 3);
    assert_true(vti_gguf_number_at(array, 1) == -2);
    assert_int_equal(vti_gguf_get_array(gguf, "array.i32", VTI_GGUF_F32, true, &array, &err),
                     VT_ERR_FORMAT);
    assert_string_equal(err.message, "memory: key 'array.i32': found type i32[], expected f32[]");
    assert_null(array);
    assert_int_equal(vti_gguf_get_array(gguf, "scalar.i32", VTI_GGUF_I32, true, &array, &err),
                     VT_ERR_FORMAT);
    assert_string_equal(err.message, "memory: key 'scalar.i32': found type i32, expected i32[]");
    array = (const vti_gguf_value *)&err;
    assert_int_equal(vti_gguf_get_array(gguf, "absent", VTI_GGUF_I32, false, &array, &err), VT_OK);
    assert_null(array);
    vt_gguf_close(gguf);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_become_text),
        cmocka_unit_test(text_escapes_what_a_terminal_would_obey),
        cmocka_unit_test(text_is_cut_to_the_buffer),
        cmocka_unit_test(floats_keep_all_their_digits),
        cmocka_unit_test(u32_takes_every_integer_that_fits),
        cmocka_unit_test(f32_takes_finite_floats),
        cmocka_unit_test(bool_string_and_array_take_their_type_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
