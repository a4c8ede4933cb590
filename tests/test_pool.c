/* The thread pool: everything once, whatever the sizes, under contention and after sleep. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../src/pool.h"

enum { MOST = 5000 };

typedef struct tally {
    _Atomic int count[MOST];
    _Atomic int calls;
    _Atomic size_t shortest;
} tally;

static void count_units(void *context, size_t begin, size_t end)
{
    tally *t = context;
    atomic_fetch_add(&t->calls, 1);
    size_t shortest = t->shortest;
    while (end - begin < shortest &&
           !atomic_compare_exchange_weak(&t->shortest, &shortest, end - begin)) {}
    for (size_t i = begin; i < end; i++) atomic_fetch_add(&t->count[i], 1);
}

static void check_once(vti_pool *pool, size_t units, size_t grain)
{
    static tally t;
    for (size_t i = 0; i < MOST; i++) t.count[i] = 0;
    t.calls = 0;
    t.shortest = MOST;
    vti_pool_run(pool, units, grain, count_units, &t);
    for (size_t i = 0; i < MOST; i++) assert_int_equal(t.count[i], i < units);
    assert_true(t.calls <= 1 || t.shortest >= grain);
}

static void every_unit_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        vti_pool *pool;
        assert_int_equal(vti_pool_open(threads, &pool, NULL), VT_OK);
        assert_int_equal(vti_pool_threads(pool), threads);
        test_random random = {threads};
        for (int i = 0; i < 400; i++)
            check_once(pool, test_random_u64(&random) % 300, 1 + test_random_u64(&random) % 40);
        check_once(pool, MOST, 1);
        vti_pool_close(pool);
    }
    check_once(NULL, 100, 1);
}

/* Threads that went to sleep wake up again. */
static void after_sleep(void **state)
{
    (void)state;
    vti_pool *pool;
    assert_int_equal(vti_pool_open(3, &pool, NULL), VT_OK);
    for (int i = 0; i < 20; i++) {
        usleep(2000);
        check_once(pool, 200, 1);
    }
    vti_pool_close(pool);
}

typedef struct caller {
    vti_pool *pool;
    _Atomic uint64_t sum;
} caller;

static void add_units(void *context, size_t begin, size_t end)
{
    uint64_t sum = 0;
    for (size_t i = begin; i < end; i++) sum += i;
    atomic_fetch_add((_Atomic uint64_t *)context, sum);
}

static void *call_often(void *argument)
{
    caller *c = argument;
    for (int i = 0; i < 2000; i++) {
        _Atomic uint64_t sum = 0;
        vti_pool_run(c->pool, 100, 1, add_units, &sum);
        atomic_fetch_add(&c->sum, atomic_load(&sum));
    }
    return NULL;
}

/* Several sessions on one pool: who finds it busy computes alone. */
static void many_callers(void **state)
{
    (void)state;
    vti_pool *pool;
    pthread_t thread[3];
    caller c[3];
    assert_int_equal(vti_pool_open(2, &pool, NULL), VT_OK);
    for (int i = 0; i < 3; i++) {
        c[i].pool = pool;
        c[i].sum = 0;
        assert_int_equal(pthread_create(&thread[i], NULL, call_often, &c[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(c[i].sum, 2000 * 4950);
    }
    vti_pool_close(pool);
}

static void default_threads(void **state)
{
    (void)state;
    vti_pool *pool;
    assert_true(vti_pool_default_threads() >= 1);
    assert_int_equal(vti_pool_open(0, &pool, NULL), VT_OK);
    assert_int_equal(vti_pool_threads(pool), vti_pool_default_threads());
    vti_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_unit_once), cmocka_unit_test(after_sleep),
        cmocka_unit_test(many_callers), cmocka_unit_test(default_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
