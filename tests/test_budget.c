/* The budget: what it lets through, what it says, and that threads cannot overdraw it. */
#include "support.h"

#include <pthread.h>
#include <string.h>

#include "../src/budget.h"

enum { MEBI = 1 << 20, THREADS = 4, ROUNDS = 4000 };

static void takes_up_to_the_limit(void **state)
{
    (void)state;
    vti_budget b;
    vti_budget_init(&b, 1000);
    assert_int_equal(vti_budget_take(&b, VTI_BUDGET_WEIGHTS, 600, "a", NULL), VT_OK);
    assert_int_equal(vti_budget_take(&b, VTI_BUDGET_KV, 400, "b", NULL), VT_OK);
    assert_int_equal(vti_budget_left(&b), 0);
    assert_int_equal(vti_budget_take(&b, VTI_BUDGET_WIRE, 1, "c", NULL), VT_ERR_MEMORY);
    assert_int_equal(vti_budget_take(&b, VTI_BUDGET_WIRE, 0, "nothing", NULL), VT_OK);
    vti_budget_give(&b, VTI_BUDGET_WEIGHTS, 200);
    assert_false(vti_budget_try(&b, VTI_BUDGET_SCRATCH, 201));
    assert_true(vti_budget_try(&b, VTI_BUDGET_SCRATCH, 150));
    vti_budget_usage u = vti_budget_get(&b);
    assert_int_equal(u.limit_bytes, 1000);
    assert_int_equal(u.used_bytes[VTI_BUDGET_WEIGHTS], 400);
    assert_int_equal(u.used_bytes[VTI_BUDGET_KV], 400);
    assert_int_equal(u.used_bytes[VTI_BUDGET_SCRATCH], 150);
    assert_int_equal(u.used_bytes[VTI_BUDGET_WIRE], 0);
    assert_int_equal(u.total_bytes, 950);
    assert_int_equal(u.peak_bytes, 1000);
    assert_int_equal(vti_budget_left(&b), 50);
}

/* Sums that would wrap are over any limit. */
static void huge_sizes(void **state)
{
    (void)state;
    vti_budget b;
    vti_budget_init(&b, 0);
    assert_int_equal(vti_budget_left(&b), UINT64_MAX);
    assert_true(vti_budget_try(&b, VTI_BUDGET_CACHE, UINT64_MAX - 10));
    assert_false(vti_budget_try(&b, VTI_BUDGET_CACHE, 11));
    assert_true(vti_budget_try(&b, VTI_BUDGET_CACHE, 10));
    vti_budget_init(&b, 100);
    assert_true(vti_budget_try(&b, VTI_BUDGET_KV, 50));
    assert_false(vti_budget_try(&b, VTI_BUDGET_KV, UINT64_MAX));
    assert_int_equal(vti_budget_take(NULL, VTI_BUDGET_KV, UINT64_MAX, "x", NULL), VT_OK);
    vti_budget_give(NULL, VTI_BUDGET_KV, 5);
}

static void the_limit_moves(void **state)
{
    (void)state;
    vti_budget b;
    vti_budget_init(&b, 0);
    assert_true(vti_budget_try(&b, VTI_BUDGET_WEIGHTS, 900));
    assert_int_equal(vti_budget_overshoot(&b), 0);
    assert_int_equal(vti_budget_set_limit(&b, 700), 200);
    assert_int_equal(vti_budget_overshoot(&b), 200);
    assert_int_equal(vti_budget_left(&b), 0);
    assert_false(vti_budget_try(&b, VTI_BUDGET_WEIGHTS, 1));
    vti_budget_give(&b, VTI_BUDGET_WEIGHTS, 250);
    assert_int_equal(vti_budget_overshoot(&b), 0);
    assert_int_equal(vti_budget_left(&b), 50);
    assert_true(vti_budget_try(&b, VTI_BUDGET_WEIGHTS, 50));
    assert_int_equal(vti_budget_set_limit(&b, 2000), 0);
    assert_true(vti_budget_try(&b, VTI_BUDGET_WEIGHTS, 1300));
}

/* The sentence has every number that one needs to decide. */
static void a_refusal_explains(void **state)
{
    (void)state;
    vti_budget b;
    vti_budget_init(&b, (uint64_t)3 << 30);
    assert_true(vti_budget_try(&b, VTI_BUDGET_WEIGHTS, (uint64_t)2560 * MEBI));
    assert_true(vti_budget_try(&b, VTI_BUDGET_SCRATCH, 12 * MEBI));
    assert_true(vti_budget_try(&b, VTI_BUDGET_WIRE, 512 * 1024));
    vt_error err = {0};
    vt_status status = vti_budget_take(&b, VTI_BUDGET_KV, (uint64_t)600 * MEBI,
                                       "a context of 4096 tokens", &err);
    assert_int_equal(status, VT_ERR_MEMORY);
    assert_int_equal(err.status, VT_ERR_MEMORY);
    assert_string_equal(err.message,
                        "a context of 4096 tokens needs 600.0 MiB more (KV cache), but 2.51 GiB of "
                        "the device's 3.00 GiB of memory are taken (weights 2.50 GiB, KV cache 0, "
                        "scratch 12.0 MiB, wire 512.0 KiB, cache 0); a smaller context, a KV cache "
                        "of lower precision (q8), weights of fewer bits or a higher memory limit "
                        "would help");
    /* However long the name: the end of the sentence is there. */
    char name[600];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (unsigned i = 0; i < VTI_BUDGET_CATEGORIES; i++) {
        vti_budget_take(&b, i, (uint64_t)1 << 60, name, &err);
        assert_non_null(strstr(err.message, "limit would help"));
        assert_non_null(strstr(err.message, vti_budget_category_name(i)));
    }
    assert_string_equal(vti_budget_category_name(VTI_BUDGET_CATEGORIES), "?");
}

typedef struct account {
    vti_budget *budget;
    uint64_t seed, held[VTI_BUDGET_CATEGORIES];
    bool overdrawn;
} account;

static void *take_and_give(void *argument)
{
    account *a = argument;
    test_random random = {a->seed};
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t r = test_random_u64(&random), bytes = r % 400;
        unsigned category = (unsigned)(r >> 32) % VTI_BUDGET_CATEGORIES;
        if (r >> 63 && a->held[category] >= bytes) {
            vti_budget_give(a->budget, category, bytes);
            a->held[category] -= bytes;
        } else if (vti_budget_take(a->budget, category, bytes, "a thread", NULL) == VT_OK) {
            a->held[category] += bytes;
        }
        a->overdrawn |= vti_budget_overshoot(a->budget) != 0;
    }
    return NULL;
}

static void threads_cannot_overdraw(void **state)
{
    (void)state;
    vti_budget b;
    vti_budget_init(&b, 5000);
    account accounts[THREADS];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        accounts[i] = (account){.budget = &b, .seed = 0x9e3779b97f4a7c15u + i};
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &accounts[i]), 0);
    }
    uint64_t held[VTI_BUDGET_CATEGORIES] = {0}, total = 0;
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(accounts[i].overdrawn);
        for (unsigned j = 0; j < VTI_BUDGET_CATEGORIES; j++) held[j] += accounts[i].held[j];
    }
    vti_budget_usage u = vti_budget_get(&b);
    for (unsigned j = 0; j < VTI_BUDGET_CATEGORIES; j++) {
        assert_int_equal(u.used_bytes[j], held[j]);
        total += held[j];
    }
    assert_int_equal(u.total_bytes, total);
    assert_int_equal(vti_budget_left(&b), 5000 - total);
    assert_in_range(u.peak_bytes, total, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_up_to_the_limit), cmocka_unit_test(huge_sizes),
        cmocka_unit_test(the_limit_moves),       cmocka_unit_test(a_refusal_explains),
        cmocka_unit_test(threads_cannot_overdraw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
