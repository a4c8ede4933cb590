/* Weight types of files: what they mean, bit for bit, and what those without a kernel become. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/half.h"
#include "../src/gguf.h"
#include "../src/weight_types.h"

enum { WEIGHTS = 1024 };

static vti_kernels kernels;

static vti_dequantize_fn *reader_of(uint32_t number)
{
    vti_weight_type type;
    const vti_conversion *conversion;
    assert_true(vti_weight_type_find(number, &type, &conversion));
    return conversion ? conversion->dequantize : kernels.matmul[type].dequantize;
}

/* tests/data/README.md: blocks and floats as ggml has them. */
typedef struct reference {
    uint32_t number;
    const unsigned char *blocks;
    float weights[WEIGHTS];
} reference;

/* Calls `check` for every type in the file; returns how many there are. */
static unsigned for_each(void (*check)(const reference *))
{
    size_t bytes, at = 0;
    unsigned char *data = test_read_file("tests/data/dequantised.bin", &bytes);
    unsigned count = 0;
    for (; at < bytes; count++) {
        uint32_t head[3];
        reference r;
        memcpy(head, data + at, sizeof head);
        assert_int_equal(head[1], WEIGHTS);
        r.number = head[0];
        r.blocks = data + at + sizeof head;
        memcpy(r.weights, r.blocks + head[2], sizeof r.weights);
        at += sizeof head + head[2] + sizeof r.weights;
        check(&r);
    }
    assert_int_equal(at, bytes);
    free(data);
    return count;
}

static void check_bits(const reference *r)
{
    float weights[WEIGHTS];
    reader_of(r->number)(weights, r->blocks, WEIGHTS);
    for (int i = 0; i < WEIGHTS; i++)
        if (memcmp(&weights[i], &r->weights[i], sizeof *weights) != 0)
            fail_msg("%s: weight %d is %a, expected %a", vti_ggml_type_find(r->number)->name, i,
                     (double)weights[i], (double)r->weights[i]);
}

static void dequantisation_is_exact(void **state)
{
    (void)state;
    /* All that load but F32, which is itself. */
    assert_int_equal(for_each(check_bits), VTI_WEIGHT_TYPE_COUNT + VTI_CONVERSION_COUNT - 1);
}

static float largest(const float *x, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++) most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* What docs/numerics.md allows a conversion to lose of weight i. */
static float bound_of(const char *name, const float *x, size_t i)
{
    if (strcmp(name, "IQ4_NL") == 0 || strcmp(name, "Q3_K") == 0) return 0;
    if (strcmp(name, "IQ4_XS") == 0) return fabsf(x[i]) * 0x1p-11f;
    /* Half a step; the least step of a half is 2^-24, and rounding it up may add 1/1024. */
    if (strcmp(name, "Q2_K") != 0)
        return largest(x + i / 32 * 32, 32) / 254 * (1 + 0x1p-9f) + 0x1p-18f;
    /* Half a step of at most 1/15 of the largest weight, and of one d more. */
    float own = largest(x + i / 16 * 16, 16) / 31, all = largest(x + i / 256 * 256, 256) / 31 / 64;
    return (own + all) * (1 + 0x1p-9f) + 0x1p-18f;
}

static void check_converted(const vti_conversion *conversion, const unsigned char *blocks)
{
    unsigned char converted[WEIGHTS / 32 * 34];
    float exact[WEIGHTS], weights[WEIGHTS];
    double worst = 0;
    conversion->dequantize(exact, blocks, WEIGHTS);
    conversion->convert(converted, blocks, WEIGHTS);
    kernels.matmul[conversion->target].dequantize(weights, converted, WEIGHTS);
    for (size_t i = 0; i < WEIGHTS; i++) {
        float error = fabsf(weights[i] - exact[i]), bound = bound_of(conversion->name, exact, i);
        /* Scales beyond what a half holds: only random blocks have them. */
        if (isinf(weights[i]) && fabsf(exact[i]) > 65504) continue;
        if (!(error <= bound))
            fail_msg("%s: weight %zu is %a, should be %a, bound %a", conversion->name, i,
                     (double)weights[i], (double)exact[i], (double)bound);
        if (bound > 0) worst = fmax(worst, (double)(error / bound));
    }
    printf("%s: %.2f of the bound\n", conversion->name, worst);
}

static void check_conversion(const reference *r)
{
    vti_weight_type type;
    const vti_conversion *conversion;
    vti_weight_type_find(r->number, &type, &conversion);
    if (conversion) check_converted(conversion, r->blocks);
}

static void conversion_loses_little(void **state)
{
    (void)state;
    for_each(check_conversion);
}

/* A NaN or infinity in a damaged file must reach the logits, where it is noticed. */
static void what_is_no_number_stays_none(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t half; /* where its scale is */
    } cases[] = {{"Q4_1", 0},   {"Q4_1", 2},   {"Q5_1", 2},   {"Q2_K", 80},
                 {"Q2_K", 82},  {"Q3_K", 108}, {"IQ4_NL", 0}, {"IQ4_XS", 0}};
    static const uint16_t halves[] = {0x7c00, 0xfc00, 0x7e00};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const vti_conversion *c = vti_conversions;
        while (strcmp(c->name, cases[i].name) != 0) c++;
        for (size_t j = 0; j < 3; j++) {
            unsigned char block[256], converted[512];
            float weights[256];
            memset(block, 0x77, sizeof block);
            memcpy(block + cases[i].half, &halves[j], 2);
            c->convert(converted, block, c->block);
            kernels.matmul[c->target].dequantize(weights, converted, c->block);
            for (size_t k = 0; k < c->block; k++) assert_false(isfinite(weights[k]));
        }
    }
}

/* Random bytes, as of a damaged file: sound weights stay sound, others do not become so. */
static void any_bytes_convert(void **state)
{
    (void)state;
    test_random random = {4711};
    for (int i = 0; i < 3000; i++) {
        const vti_conversion *c = &vti_conversions[i % VTI_CONVERSION_COUNT];
        unsigned char block[256], converted[512];
        float exact[256], weights[256];
        for (size_t j = 0; j < sizeof block; j++)
            block[j] = (unsigned char)test_random_u64(&random);
        c->dequantize(exact, block, c->block);
        c->convert(converted, block, c->block);
        kernels.matmul[c->target].dequantize(weights, converted, c->block);
        bool finite = true, large = false, converted_finite = true;
        for (size_t j = 0; j < c->block; j++) {
            finite &= isfinite(exact[j]);
            large |= fabsf(exact[j]) > 65504;
            converted_finite &= isfinite(weights[j]);
        }
        if (finite && !large) assert_true(converted_finite);
        if (!finite) assert_false(converted_finite);
    }
}

static void types_are_known(void **state)
{
    (void)state;
    char list[256];
    vti_weight_type type;
    const vti_conversion *conversion;
    vti_weight_type_list(list, sizeof list);
    assert_string_equal(list, "F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q4_K, Q5_K, Q6_K, Q4_1, Q5_1, "
                              "Q2_K, Q3_K, IQ4_NL, IQ4_XS");
    for (int i = 0; i < VTI_CONVERSION_COUNT; i++) {
        const vti_conversion *c = &vti_conversions[i];
        const vti_ggml_type *facts = vti_ggml_type_find(c->number);
        assert_string_equal(c->name, facts->name);
        assert_int_equal(c->block, facts->block);
        assert_int_equal(c->block_bytes, facts->block_bytes);
        assert_true(vti_weight_type_find(c->number, &type, &conversion));
        assert_ptr_equal(conversion, c);
        assert_int_equal(type, c->target);
    }
    assert_true(vti_weight_type_find(8, &type, &conversion));
    assert_null(conversion);
    assert_int_equal(type, VTI_Q8_0);
    assert_false(vti_weight_type_find(24, &type, &conversion)); /* I8 */
    assert_false(vti_weight_type_find(99, &type, &conversion));
}

static int set_up(void **state)
{
    (void)state;
    vti_kernels_init(&kernels, 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_known),         cmocka_unit_test(dequantisation_is_exact),
        cmocka_unit_test(conversion_loses_little), cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(any_bytes_convert),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
