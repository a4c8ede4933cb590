/* Least squares that are not negative, against solutions that are known or can be judged. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../src/nnls.h"
#include "support.h"

enum { MOST = 16 };

static bool solve(size_t rows, size_t columns, const double *a, const double *b, double *x)
{
    double *scratch = malloc(vti_nnls_scratch(rows, columns) * sizeof *scratch);
    bool solved = vti_nnls(rows, columns, a, b, x, scratch);
    free(scratch);
    return solved;
}

static void near(double x, double wanted)
{
    if (!(fabs(x - wanted) <= 1e-9 * fmax(1, fabs(wanted))))
        fail_msg("%.17g, not %.17g", x, wanted);
}

static void known(void **state)
{
    (void)state;
    double x[MOST];
    /* a line through three points: 11/12 + 9/4 t */
    assert_true(solve(3, 2, (double[]){1, 1, 1, 0, 1, 2}, (double[]){1, 3, 5.5}, x));
    near(x[0], 11.0 / 12), near(x[1], 2.25);
    /* free, the first would be -1: without it, the mean of b along (1, 2) is 8/5 */
    assert_true(solve(2, 2, (double[]){1, 1, 1, 2}, (double[]){0, 1}, x));
    near(x[0], 0), near(x[1], 0.4);
    /* all against b: nothing helps */
    assert_true(solve(2, 2, (double[]){1, 0, 1, 1}, (double[]){-1, -2}, x));
    near(x[0], 0), near(x[1], 0);
    assert_true(solve(2, 1, (double[]){0, 0}, (double[]){1, 2}, x)); /* a column of zeros */
    near(x[0], 0);
    assert_true(solve(3, 1, (double[]){1e-12, 2e-12, 3e-12}, (double[]){1e9, 2e9, 3e9}, x));
    near(x[0] / 1e21, 1);
}

static void rank_deficient(void **state)
{
    (void)state;
    double x[MOST];
    /* twice the same column, one scaled: any split is a solution */
    assert_true(solve(3, 2, (double[]){1, 2, 3, 1e6, 2e6, 3e6}, (double[]){2, 4, 6}, x));
    near(x[0] + 1e6 * x[1], 2);
    assert_true(x[0] >= 0 && x[1] >= 0);
    /* more columns than rows */
    assert_true(solve(1, 3, (double[]){1, 2, 3}, (double[]){6}, x));
    near(x[0] + 2 * x[1] + 3 * x[2], 6);
    /* the third is the sum of the others */
    assert_true(solve(3, 3, (double[]){1, 0, 0, 0, 1, 0, 1, 1, 0}, (double[]){3, 5, 1}, x));
    near(x[0] + x[2], 3), near(x[1] + x[2], 5);
}

static void refuses(void **state)
{
    (void)state;
    double x[MOST];
    assert_false(solve(2, 1, (double[]){1, NAN}, (double[]){1, 2}, x));
    assert_false(solve(2, 1, (double[]){1, 1}, (double[]){1, INFINITY}, x));
}

/* Optimal by Kuhn and Tucker: no coefficient is negative, the gradient is 0 where one is positive,
 * and nowhere negative. Sizes of columns differ by powers of ten; some depend on others. */
static void random_problems(void **state)
{
    (void)state;
    test_random random = {0x2215};
    static double a[40 * MOST], b[40], r[40];
    for (unsigned i = 0; i < 400; i++) {
        size_t rows = 1 + test_random_u64(&random) % 40;
        size_t columns = 1 + test_random_u64(&random) % MOST;
        double x[MOST], size[MOST];
        for (size_t c = 0; c < columns; c++) {
            size[c] = pow(10, (int)(test_random_u64(&random) % 25) - 12);
            for (size_t k = 0; k < rows; k++)
                a[c * rows + k] = size[c] * (double)test_random_float(&random, -0.3f, 1);
            if (c && test_random_u64(&random) % 5 == 0)
                for (size_t k = 0; k < rows; k++)
                    a[c * rows + k] = a[(c - 1) * rows + k] / size[c - 1] * size[c];
        }
        for (size_t k = 0; k < rows; k++) b[k] = (double)test_random_float(&random, -1, 3);
        if (!solve(rows, columns, a, b, x)) fail_msg("case %u is not solved", i);
        memcpy(r, b, sizeof r);
        for (size_t c = 0; c < columns; c++)
            for (size_t k = 0; k < rows; k++) r[k] -= x[c] * a[c * rows + k];
        for (size_t c = 0; c < columns; c++) {
            double slope = 0;
            for (size_t k = 0; k < rows; k++) slope += a[c * rows + k] * r[k] / size[c];
            if (x[c] < 0 || slope > 1e-6 || (x[c] > 0 && slope < -1e-6))
                fail_msg("case %u: x[%zu] = %g, slope %g", i, c, x[c], slope);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known),
        cmocka_unit_test(rank_deficient),
        cmocka_unit_test(refuses),
        cmocka_unit_test(random_problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
