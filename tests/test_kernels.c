/* The kernel table: meaning of the scalar versions. tests/checkkern compares all others. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/kernels.h"

static vti_kernels kernels;

static int setup(void **state)
{
    (void)state;
    vti_kernels_init(&kernels, 0);
    return 0;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* By the definition of the format, in arithmetic that is exact in double. */
static double value_of_half(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(mantissa + 1024, exponent - 25);
    if (exponent == 31) magnitude = mantissa ? NAN : INFINITY;
    return half & 0x8000 ? -magnitude : magnitude;
}

static void every_half_becomes_the_float_it_stands_for(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t half = (uint16_t)i, back;
        float value;
        kernels.f32_from_f16(&value, &half, 1);
        double expected = value_of_half(half);
        if (isnan(expected)) {
            assert_true(isnan(value));
            continue;
        }
        assert_true((double)value == expected && (signbit(value) != 0) == half >> 15);
        kernels.f16_from_f32(&back, &value, 1);
        assert_int_equal(back, half);
    }
}

/* A float between two neighbouring halves goes to the nearer one, from the middle to the even. */
static void floats_round_to_the_nearest_half(void **state)
{
    (void)state;
    for (uint16_t half = 0; half < 0x7c00; half++) {
        double low = value_of_half(half);
        double high = half == 0x7bff ? 65536.0 : value_of_half(half + 1);
        float middle = (float)((low + high) / 2); /* exact: one more bit than a half has */
        float in[3] = {nextafterf(middle, 0), middle, nextafterf(middle, 1e9f)};
        uint16_t out[3];
        kernels.f16_from_f32(out, in, 3);
        assert_int_equal(out[0], half);
        assert_int_equal(out[1], half + (half & 1));
        assert_int_equal(out[2], half + 1);
    }
    float extremes[4] = {3e38f, -INFINITY, float_of(0x7fa00000), float_of(1)};
    uint16_t out[4];
    kernels.f16_from_f32(out, extremes, 4);
    assert_int_equal(out[0], 0x7c00);
    assert_int_equal(out[1], 0xfc00);
    assert_int_equal(out[2], 0x7f00); /* quiet, payload kept */
    assert_int_equal(out[3], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_becomes_the_float_it_stands_for),
        cmocka_unit_test(floats_round_to_the_nearest_half),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
