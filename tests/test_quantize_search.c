/* I8 and I4 with a search for scales: never worse than rounding to the nearest step, much better on
 * average, the same bytes on every machine. */
#include "support.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/kernels.h"
#include "../src/quantize.h"
#include "../src/quantize_search.h"

enum { COLUMNS = 512, MOST_BYTES = 4 * COLUMNS };

typedef struct format {
    const char *name;
    vti_weight_type type;
    void (*search)(void *out, const float *x, size_t columns, const float *importance);
    vti_quantize_fn *plain;
    double better, better_weighted; /* loss on gaussian rows as a share of the plain one's */
    const char *hash;               /* of what the rows below become */
} format;

static const format formats[] = {
    {"I8", VTI_Q8_0, vti_quantize_i8, vti_quantize_q8_0, 0.82, 0.65,
     "d13ca50fd7a0095a5ce05390e8b5ee47"},
    {"I4", VTI_Q4_K, vti_quantize_i4, vti_quantize_q4_k, 0.78, 0.46,
     "eb759d964c51951534bce82f2534a35c"},
};

enum { FORMATS = sizeof formats / sizeof formats[0] };

static vti_kernels kernels;

/* --- rows ------------------------------------------------------------------------------------- */

static float gaussian(test_random *random)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += test_random_float(random, -0.5f, 0.5f);
    return sum;
}

static void fill_gaussian(float *x, size_t count, float size, test_random *random)
{
    for (size_t i = 0; i < count; i++) x[i] = gaussian(random) * size;
}

/* Now and then one that is a hundred times as large. */
static void fill_outliers(float *x, size_t count, float size, test_random *random)
{
    fill_gaussian(x, count, size, random);
    for (size_t i = 0; i < count; i += 1 + test_random_u64(random) % 60) x[i] *= 100;
}

static void fill_constant(float *x, size_t count, float size, test_random *random)
{
    float value = gaussian(random) * size;
    for (size_t i = 0; i < count; i++) x[i] = value;
}

static void fill_zero(float *x, size_t count, float size, test_random *random)
{
    (void)size;
    (void)random;
    memset(x, 0, count * sizeof *x);
}

/* All on one side of zero. */
static void fill_one_sided(float *x, size_t count, float size, test_random *random)
{
    float sign = test_random_u64(random) & 1 ? 1 : -1;
    for (size_t i = 0; i < count; i++) x[i] = sign * (10 + gaussian(random)) * size;
}

/* Blocks of very different sizes. */
static void fill_uneven(float *x, size_t count, float size, test_random *random)
{
    for (size_t i = 0; i < count; i += 32)
        fill_gaussian(x + i, 32, size * ldexpf(1, -(int)(test_random_u64(random) % 40)), random);
}

/* A few values only, as in rows that were quantised before. */
static void fill_steps(float *x, size_t count, float size, test_random *random)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((int)(test_random_u64(random) % 7) - 3) * size;
}

typedef void fill_fn(float *x, size_t count, float size, test_random *random);
static fill_fn *const fills[] = {fill_gaussian, fill_outliers, fill_constant, fill_zero,
                                 fill_one_sided, fill_uneven, fill_steps};
enum { FILLS = sizeof fills / sizeof fills[0] };

static void fill_importance(float *importance, size_t count, test_random *random)
{
    for (size_t i = 0; i < count; i++) {
        float g = gaussian(random);
        importance[i] = g * g * g * g;
    }
}

/* --- losses ----------------------------------------------------------------------------------- */

static double loss_of(const format *f, const void *bytes, const float *x, size_t columns,
                      const float *importance)
{
    float back[COLUMNS];
    double loss = 0;
    kernels.matmul[f->type].dequantize(back, bytes, columns);
    for (size_t i = 0; i < columns; i++) {
        double off = (double)back[i] - x[i];
        loss += (importance ? importance[i] : 1) * off * off;
    }
    return loss;
}

static double searched_loss(const format *f, const float *x, const float *importance,
                            const float *counted)
{
    unsigned char bytes[MOST_BYTES];
    f->search(bytes, x, COLUMNS, importance);
    return loss_of(f, bytes, x, COLUMNS, counted);
}

static double plain_loss(const format *f, const float *x, const float *counted)
{
    unsigned char bytes[MOST_BYTES];
    f->plain(bytes, x, COLUMNS);
    return loss_of(f, bytes, x, COLUMNS, counted);
}

/* Sizes around and below the least halves, and up to where d still is one. */
static const float sizes[] = {1, 0.02f, 1e-4f, 1e-6f, 3e-8f, 1e-30f, 1e-41f, 300, 60000, 2e6f};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Block by block, as the sum of a row would hide a small one. */
static void compare_blocks(const format *f, const float *x, const float *importance, int fill,
                           float size)
{
    size_t block = f->type == VTI_Q8_0 ? 32 : 256;
    for (size_t c = 0; c < COLUMNS; c += block) {
        unsigned char searched[MOST_BYTES], plain[MOST_BYTES];
        const float *weights = importance ? importance + c : NULL;
        f->search(searched, x + c, block, weights);
        f->plain(plain, x + c, block);
        double now = loss_of(f, searched, x + c, block, weights);
        double before = loss_of(f, plain, x + c, block, weights), power = 0;
        for (size_t i = c; i < c + block; i++)
            power += (importance ? importance[i] : 1) * (double)x[i] * x[i];
        assert_true(isfinite(now));
        if (isfinite(before) && now > before * (1 + 1e-4) + power * 1e-12)
            fail_msg("%s, rows of kind %d, size %g, column %zu: loses %g, nearest steps %g",
                     f->name, fill, (double)size, c, now, before);
    }
}

static void never_worse_than_nearest(void **state)
{
    (void)state;
    test_random random = {1};
    float x[COLUMNS], importance[COLUMNS];
    for (int i = 0; i < FORMATS * FILLS * SIZES * 4; i++) {
        const format *f = &formats[i % FORMATS];
        int fill = i / FORMATS % FILLS;
        float size = sizes[i / FORMATS / FILLS % SIZES];
        fills[fill](x, COLUMNS, size, &random);
        fill_importance(importance, COLUMNS, &random);
        compare_blocks(f, x, NULL, fill, size);
        compare_blocks(f, x, importance, fill, size);
    }
}

static void much_better_on_average(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        test_random random = {2};
        float x[COLUMNS], importance[COLUMNS];
        double plain = 0, searched = 0, blind = 0, weighted = 0;
        for (int row = 0; row < 40; row++) {
            fill_gaussian(x, COLUMNS, 0.02f, &random);
            fill_importance(importance, COLUMNS, &random);
            plain += plain_loss(f, x, NULL);
            searched += searched_loss(f, x, NULL, NULL);
            blind += searched_loss(f, x, NULL, importance);
            weighted += searched_loss(f, x, importance, importance);
        }
        printf("%s: %.3f of the loss of nearest steps; importance: %.3f of the loss without\n",
               f->name, searched / plain, weighted / blind);
        assert_true(searched < f->better * plain);
        assert_true(weighted < f->better_weighted * blind);
    }
}

/* --- shapes ----------------------------------------------------------------------------------- */

static void narrower_last_blocks(void **state)
{
    (void)state;
    test_random random = {3};
    float x[COLUMNS];
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (size_t columns = 32; columns <= COLUMNS; columns += 32) {
            unsigned char bytes[MOST_BYTES], head[MOST_BYTES];
            size_t size = kernels.matmul[f->type].source_bytes(columns), whole = columns / 256;
            fill_gaussian(x, columns, 1, &random);
            memset(bytes, 0xA5, sizeof bytes);
            f->search(bytes, x, columns, NULL);
            for (size_t at = size; at < sizeof bytes; at++) assert_int_equal(bytes[at], 0xA5);
            double power = 0, loss = loss_of(f, bytes, x, columns, NULL);
            for (size_t c = 0; c < columns; c++) power += (double)x[c] * x[c];
            assert_true(loss < power * (f->type == VTI_Q8_0 ? 1e-4 : 0.012));
            f->search(head, x, whole * 256, NULL);
            assert_memory_equal(head, bytes, kernels.matmul[f->type].source_bytes(whole * 256));
        }
    }
}

static void packed_and_back(void **state)
{
    (void)state;
    enum { ROWS = 19 };
    static const size_t widths[] = {32, 96, 256, 416};
    test_random random = {4};
    float x[COLUMNS], from_row[COLUMNS], from_panel[COLUMNS];
    for (int i = 0; i < FORMATS * 4; i++) {
        const format *f = &formats[i % FORMATS];
        const vti_matmul_kernel *k = &kernels.matmul[f->type];
        size_t columns = widths[i / FORMATS], stride = k->source_bytes(columns);
        unsigned char *rows = malloc(ROWS * stride);
        void *packed = aligned_alloc(64, (k->packed_bytes(ROWS, columns) + 63) / 64 * 64);
        for (size_t r = 0; r < ROWS; r++) {
            fill_gaussian(x, columns, 0.1f, &random);
            f->search(rows + r * stride, x, columns, NULL);
        }
        k->pack(packed, rows, stride, ROWS, columns, 0, ROWS);
        for (size_t r = 0; r < ROWS; r++) {
            k->dequantize(from_row, rows + r * stride, columns);
            k->unpack(from_panel, packed, columns, r);
            assert_memory_equal(from_row, from_panel, columns * sizeof *from_row);
        }
        free(rows);
        free(packed);
    }
}

/* --- bytes ------------------------------------------------------------------------------------ */

static void hash_text(const format *f, char out[33])
{
    unsigned char digest[16];
    crypto_generichash_state hash;
    test_random random = {5};
    crypto_generichash_init(&hash, NULL, 0, sizeof digest);
    for (int i = 0; i < FILLS * SIZES * 2; i++) {
        float x[COLUMNS], importance[COLUMNS];
        unsigned char bytes[MOST_BYTES];
        size_t columns = i % 3 ? COLUMNS : 288;
        fills[i % FILLS](x, columns, sizes[i / FILLS % SIZES], &random);
        fill_importance(importance, columns, &random);
        f->search(bytes, x, columns, i & 1 ? importance : NULL);
        crypto_generichash_update(&hash, bytes, kernels.matmul[f->type].source_bytes(columns));
    }
    crypto_generichash_final(&hash, digest, sizeof digest);
    sodium_bin2hex(out, 33, digest, sizeof digest);
}

static void same_bytes_everywhere(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        char text[33];
        hash_text(&formats[i], text);
        assert_string_equal(text, formats[i].hash);
    }
}

static void importance_of_zero_is_none(void **state)
{
    (void)state;
    test_random random = {6};
    float x[COLUMNS], importance[COLUMNS] = {0};
    fill_gaussian(x, COLUMNS, 1, &random);
    for (int i = 0; i < FORMATS; i++) {
        unsigned char a[MOST_BYTES], b[MOST_BYTES];
        formats[i].search(a, x, COLUMNS, importance);
        formats[i].search(b, x, COLUMNS, NULL);
        assert_memory_equal(a, b, kernels.matmul[formats[i].type].source_bytes(COLUMNS));
    }
}

/* Importance may be as small or large as floats are. */
static void importance_of_any_size(void **state)
{
    (void)state;
    static const float factors[] = {0x1p-120f, 0x1p60f};
    test_random random = {7};
    float x[COLUMNS], importance[COLUMNS], scaled[COLUMNS];
    fill_gaussian(x, COLUMNS, 1, &random);
    fill_importance(importance, COLUMNS, &random);
    for (size_t k = 0; k < COLUMNS; k++) importance[k] += 1e-3f;
    for (int i = 0; i < FORMATS * 2; i++) {
        const format *f = &formats[i % FORMATS];
        unsigned char a[MOST_BYTES], b[MOST_BYTES];
        for (size_t k = 0; k < COLUMNS; k++) scaled[k] = importance[k] * factors[i / FORMATS];
        f->search(a, x, COLUMNS, importance);
        f->search(b, x, COLUMNS, scaled);
        assert_memory_equal(a, b, kernels.matmul[f->type].source_bytes(COLUMNS));
    }
}

/* Weights that no half can scale are cut off, but stay numbers. */
static void too_large_for_halves(void **state)
{
    (void)state;
    test_random random = {8};
    float x[COLUMNS], back[COLUMNS];
    for (int i = 0; i < FORMATS; i++) {
        unsigned char bytes[MOST_BYTES];
        fill_gaussian(x, COLUMNS, 1e37f, &random);
        formats[i].search(bytes, x, COLUMNS, NULL);
        kernels.matmul[formats[i].type].dequantize(back, bytes, COLUMNS);
        for (size_t c = 0; c < COLUMNS; c++) assert_true(isfinite(back[c]));
    }
}

static void no_number_in_no_number_out(void **state)
{
    (void)state;
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    test_random random = {9};
    float x[COLUMNS], back[COLUMNS];
    for (int i = 0; i < FORMATS * 3; i++) {
        const format *f = &formats[i % FORMATS];
        unsigned char bytes[MOST_BYTES];
        fill_gaussian(x, COLUMNS, 1, &random);
        x[256 + 77] = wrong[i / FORMATS];
        f->search(bytes, x, COLUMNS, NULL);
        kernels.matmul[f->type].dequantize(back, bytes, COLUMNS);
        for (size_t c = 0; c < COLUMNS; c++) assert_int_equal(isfinite(back[c]) != 0, c < 256);
    }
}

int main(void)
{
    vti_kernels_init(&kernels, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_worse_than_nearest),
        cmocka_unit_test(much_better_on_average),
        cmocka_unit_test(narrower_last_blocks),
        cmocka_unit_test(packed_and_back),
        cmocka_unit_test(same_bytes_everywhere),
        cmocka_unit_test(importance_of_zero_is_none),
        cmocka_unit_test(importance_of_any_size),
        cmocka_unit_test(too_large_for_halves),
        cmocka_unit_test(no_number_in_no_number_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
