/* Loading beside computing: order, cancelling, when a shard is seen and when it is freed, errors. */
#include "shard_fake.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

typedef struct fixture {
    fake_supply fake;
    vti_shard_table *table;
    vti_shard_loader *loader;
    vti_shard_reader *reader;
} fixture;

/* How a request ended. */
typedef struct ending {
    int calls;
    vt_status status;
    char sentence[128];
} ending;

static void note_end(void *user, vti_shard_id id, vt_status status, const char *sentence)
{
    ending *e = user;
    (void)id;
    e->calls++;
    e->status = status;
    snprintf(e->sentence, sizeof e->sentence, "%s", sentence);
}

static void open_fixture(fixture *f, bool held, vti_load_pace pace, uint64_t extra_bytes)
{
    fake_supply_init(&f->fake, held);
    f->table = fake_table(&f->fake);
    vti_shard_loader_params params = {f->table, fake_supply_get(&f->fake), pace, extra_bytes};
    assert_int_equal(vti_shard_loader_open(&params, &f->loader, NULL), VT_OK);
    assert_int_equal(vti_shard_reader_open(f->table, &f->reader, NULL), VT_OK);
}

static void close_fixture(fixture *f)
{
    fake_open_gate(&f->fake);
    vti_shard_loader_close(f->loader);
    vti_shard_reader_close(f->reader);
    fake_table_close(&f->fake, f->table);
    fake_supply_destroy(&f->fake);
}

static uint64_t request(fixture *f, vti_shard_id id, uint32_t priority, uint64_t group, ending *end)
{
    uint64_t ticket = 0;
    vti_load_request r = {id, false, priority, group, end ? note_end : NULL, end};
    assert_int_equal(vti_shard_loader_request(f->loader, &r, &ticket, NULL), VT_OK);
    return ticket;
}

static vti_shard_id at(uint32_t unit, uint32_t shard, vti_precision precision)
{
    return (vti_shard_id){unit, shard, precision};
}

static vti_precision precision_in(fixture *f, uint32_t unit, uint32_t shard)
{
    return vti_shard_table_get(f->table, unit, shard)->id.precision;
}

static void await_waiting(fixture *f)
{
    while (vti_shard_loader_get_stats(f->loader).now != VTI_LOAD_WAITING) sched_yield();
}

/* Urgent ones first, among equals the oldest; what is being loaded is not interrupted. */
static void order(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, true, VTI_PACE_EQUAL, 0);
    request(&f, at(0, 0, VTI_PRECISION_I8), 9, 0, NULL);
    fake_wait_held(&f.fake);
    static const struct {
        uint32_t unit, shard, priority;
    } wanted[] = {{0, 1, 5}, {0, 2, 5}, {1, 0, 1}, {1, 1, 7}, {1, 2, 1}, {2, 0, 0}, {2, 1, 5}};
    for (size_t i = 0; i < 7; i++)
        request(&f, at(wanted[i].unit, wanted[i].shard, VTI_PRECISION_I4), wanted[i].priority, 0,
                NULL);
    assert_int_equal(vti_shard_loader_get_stats(f.loader).pending, 8);
    fake_open_gate(&f.fake);
    vti_shard_loader_wait(f.loader);
    static const uint32_t expected[][2] = {{0, 0}, {2, 0}, {1, 0}, {1, 2},
                                           {0, 1}, {0, 2}, {2, 1}, {1, 1}};
    assert_int_equal(f.fake.made, 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(f.fake.order[i].unit, expected[i][0]);
        assert_int_equal(f.fake.order[i].shard, expected[i][1]);
    }
    assert_int_equal(vti_shard_loader_get_stats(f.loader).pending, 0);
    close_fixture(&f);
}

static void cancelling(void **state)
{
    (void)state;
    fixture f;
    ending end[6] = {{0}};
    open_fixture(&f, true, VTI_PACE_EQUAL, 0);
    uint64_t first = request(&f, at(0, 0, VTI_PRECISION_I8), 0, 1, &end[0]);
    fake_wait_held(&f.fake);
    request(&f, at(0, 1, VTI_PRECISION_I8), 0, 1, &end[1]);
    uint64_t third = request(&f, at(0, 2, VTI_PRECISION_I8), 0, 2, &end[2]);
    request(&f, at(1, 0, VTI_PRECISION_I8), 0, 1, &end[3]);
    request(&f, at(1, 1, VTI_PRECISION_I8), 0, 2, &end[4]);
    vti_shard_loader_cancel(f.loader, third);
    vti_shard_loader_cancel_group(f.loader, 1); /* also what is being loaded */
    vti_shard_loader_cancel(f.loader, 12345);   /* nobody's */
    fake_open_gate(&f.fake);
    vti_shard_loader_wait(f.loader);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(end[i].calls, 1);
        assert_int_equal(end[i].status, i == 4 ? VT_OK : VT_ERR_CANCELLED);
    }
    assert_int_equal(f.fake.made, 2);
    assert_int_equal(precision_in(&f, 0, 0), VTI_PRECISION_F16);
    assert_int_equal(precision_in(&f, 1, 1), VTI_PRECISION_I8);
    assert_int_equal(f.fake.live, FAKE_UNITS * FAKE_SLOTS);

    vti_shard_loader_cancel(f.loader, first); /* over already */
    request(&f, at(2, 0, VTI_PRECISION_I8), 0, 7, &end[5]);
    vti_shard_loader_wait(f.loader);
    assert_int_equal(end[5].status, VT_OK);
    vti_shard_loader_stats stats = vti_shard_loader_get_stats(f.loader);
    assert_int_equal(stats.cancelled, 4);
    assert_int_equal(stats.loaded, 3);
    assert_int_equal(stats.dropped, 3);
    close_fixture(&f);
}

/* A unit keeps what it began with; the next one sees the new shard, and only then the old one goes,
 * and only after that the next load takes memory. */
static void boundaries(void **state)
{
    (void)state;
    fixture f;
    ending end[2] = {{0}};
    open_fixture(&f, true, VTI_PACE_EQUAL, 0);
    vti_shard **view = vti_shard_reader_enter(f.reader, 1);
    const vti_shard *before = view[2];
    request(&f, at(1, 2, VTI_PRECISION_I4), 0, 0, &end[0]);
    request(&f, at(1, 1, VTI_PRECISION_I4), 0, 0, &end[1]);
    fake_wait_held(&f.fake);
    fake_let_go(&f.fake);
    await_waiting(&f);
    assert_int_equal(precision_in(&f, 1, 2), VTI_PRECISION_I4);
    assert_ptr_equal(view[2], before);
    fake_check(before, 1, 2);
    assert_int_equal(before->id.precision, VTI_PRECISION_F16);
    assert_int_equal(f.fake.live, FAKE_UNITS * FAKE_SLOTS + 1);
    assert_int_equal(f.fake.made, 1);

    view = vti_shard_reader_enter(f.reader, 1);
    assert_int_equal(view[2]->id.precision, VTI_PRECISION_I4);
    assert_int_equal(view[1]->id.precision, VTI_PRECISION_F16);
    fake_wait_held(&f.fake); /* the second load: the old shard is freed */
    assert_int_equal(f.fake.live, FAKE_UNITS * FAKE_SLOTS + 1);
    fake_let_go(&f.fake);
    await_waiting(&f);
    vti_shard_reader_leave(f.reader); /* the step is over: nobody needs to wait */
    vti_shard_loader_wait(f.loader);
    assert_int_equal(end[0].status + end[1].status, VT_OK);
    assert_int_equal(f.fake.live, FAKE_UNITS * FAKE_SLOTS);
    close_fixture(&f);
}

/* Two readers: the slower one decides. */
static void two_readers(void **state)
{
    (void)state;
    fixture f;
    vti_shard_reader *other;
    open_fixture(&f, false, VTI_PACE_EQUAL, 0);
    assert_int_equal(vti_shard_reader_open(f.table, &other, NULL), VT_OK);
    const vti_shard *old = vti_shard_reader_enter(other, 0)[0];
    vti_shard_reader_enter(f.reader, 0);
    request(&f, at(0, 0, VTI_PRECISION_I8), 0, 0, NULL);
    await_waiting(&f);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(vti_shard_reader_enter(f.reader, 0)[0]->id.precision, VTI_PRECISION_I8);
        fake_check(old, 0, 0);
        sched_yield();
    }
    assert_int_equal(vti_shard_loader_get_stats(f.loader).now, VTI_LOAD_WAITING);
    vti_shard_reader_close(other); /* as good as leaving */
    vti_shard_loader_wait(f.loader);
    vti_shard_reader_leave(f.reader);
    close_fixture(&f);
}

/* With room for more, loading goes on while replaced shards wait. */
static void more_in_flight(void **state)
{
    (void)state;
    fixture f;
    uint64_t room = 2 * fake_bytes(at(3, 3, VTI_PRECISION_F16)) +
                    fake_bytes(at(3, 3, VTI_PRECISION_I8));
    open_fixture(&f, true, VTI_PACE_EQUAL, room);
    vti_shard_reader_enter(f.reader, 3);
    uint64_t base = f.fake.live_bytes;
    for (uint32_t s = 0; s < FAKE_SLOTS - 1; s++)
        request(&f, at(3, s, VTI_PRECISION_I8), 0, 0, NULL);
    request(&f, at(2, 0, VTI_PRECISION_I8), 0, 0, NULL);
    fake_open_gate(&f.fake);
    await_waiting(&f);
    assert_int_equal(f.fake.made, 3); /* two waited for it, the fourth has no room */
    assert_true(f.fake.peak_bytes <= base + room);
    vti_shard_reader_leave(f.reader);
    vti_shard_loader_wait(f.loader);
    uint64_t extra = vti_shard_loader_get_stats(f.loader).peak_extra_bytes;
    assert_true(extra > 2 * fake_bytes(at(3, 0, VTI_PRECISION_F16)) && extra <= room);
    close_fixture(&f);
}

static void failures(void **state)
{
    (void)state;
    fixture f;
    ending end[3] = {{0}};
    open_fixture(&f, false, VTI_PACE_EQUAL, 0);
    fake_fail_next(&f.fake, 1);
    request(&f, at(2, 1, VTI_PRECISION_I8), 0, 0, &end[0]);
    request(&f, at(2, 2, (vti_precision)7), 0, 0, &end[1]);
    request(&f, at(2, 1, VTI_PRECISION_I4), 0, 0, NULL); /* of the same slot: the last one counts */
    vti_shard_loader_wait(f.loader);
    request(&f, at(2, 3, VTI_PRECISION_I8), 0, 0, &end[2]);
    vti_shard_loader_wait(f.loader);
    if (end[0].status != VT_ERR_CANCELLED) { /* it was served before the newer one came */
        assert_int_equal(end[0].status, VT_ERR_FORMAT);
        assert_string_equal(end[0].sentence, "shard 1 of unit 2 is damaged");
    }
    assert_int_equal(end[1].status, VT_ERR_UNSUPPORTED);
    assert_string_equal(end[1].sentence, "no precision 7");
    assert_int_equal(precision_in(&f, 2, 2), VTI_PRECISION_F16);
    assert_int_equal(end[2].status, VT_OK);

    vt_error err;
    vti_load_request nowhere = {.id = at(FAKE_UNITS, 0, VTI_PRECISION_I8)};
    assert_int_equal(vti_shard_loader_request(f.loader, &nowhere, NULL, &err), VT_ERR_ARGUMENT);
    assert_string_equal(err.message, "shard 0 of unit 4 has no place on this device");
    nowhere.id = at(0, FAKE_SLOTS, VTI_PRECISION_I8);
    assert_int_equal(vti_shard_loader_request(f.loader, &nowhere, NULL, &err), VT_ERR_ARGUMENT);
    close_fixture(&f);
}

/* What is there already is not loaded; what its shards share serves every precision; a slot can be
 * emptied and filled; of two requests for a slot the newer one counts, also while the older one is
 * being loaded. */
static void slots(void **state)
{
    (void)state;
    fixture f;
    ending end[4] = {{0}};
    open_fixture(&f, true, VTI_PACE_EQUAL, 0);
    request(&f, at(0, 1, VTI_PRECISION_F16), 0, 0, &end[0]);
    request(&f, at(0, FAKE_SLOTS - 1, VTI_PRECISION_I4), 0, 0, &end[1]);
    vti_shard_loader_wait(f.loader);
    assert_int_equal(f.fake.made, 0);
    assert_int_equal(end[0].calls + end[1].calls, 2);

    request(&f, at(0, 1, VTI_PRECISION_I8), 0, 0, &end[2]);
    fake_wait_held(&f.fake);
    request(&f, at(0, 1, VTI_PRECISION_I4), 0, 0, &end[3]);
    fake_open_gate(&f.fake);
    vti_shard_loader_wait(f.loader);
    assert_int_equal(end[2].status, VT_ERR_CANCELLED);
    assert_int_equal(end[3].status, VT_OK);
    assert_int_equal(precision_in(&f, 0, 1), VTI_PRECISION_I4);

    vti_load_request removal = {.id = at(0, 1, VTI_PRECISION_F16), .remove = true};
    assert_int_equal(vti_shard_loader_request(f.loader, &removal, NULL, NULL), VT_OK);
    vti_shard_loader_wait(f.loader);
    assert_null(vti_shard_reader_enter(f.reader, 0)[1]);
    vti_shard_reader_leave(f.reader);
    assert_int_equal(f.fake.live, FAKE_UNITS * FAKE_SLOTS - 1);
    request(&f, at(0, 1, VTI_PRECISION_F16), 0, 0, NULL);
    vti_shard_loader_wait(f.loader);
    assert_int_equal(precision_in(&f, 0, 1), VTI_PRECISION_F16);
    close_fixture(&f);
}

static void on_the_calling_thread(void **state)
{
    (void)state;
    fixture f;
    ending end[FAKE_SLOTS] = {{0}};
    open_fixture(&f, false, VTI_PACE_NONE, 0);
    for (uint32_t s = 0; s < FAKE_SLOTS; s++)
        request(&f, at(0, s, VTI_PRECISION_I8), 0, 0, &end[s]);
    assert_int_equal(f.fake.made, 0);
    assert_int_equal(end[0].calls, 0);
    vti_shard_loader_finish(f.loader);
    for (uint32_t s = 0; s < FAKE_SLOTS; s++) assert_int_equal(end[s].calls, 1);
    assert_int_equal(f.fake.made, FAKE_SLOTS - 1);
    request(&f, at(1, 0, VTI_PRECISION_I8), 0, 0, NULL);
    vti_shard_loader_wait(f.loader); /* nobody else would do it */
    assert_int_equal(precision_in(&f, 1, 0), VTI_PRECISION_I8);
    close_fixture(&f);
}

static void *finish(void *loader)
{
    vti_shard_loader_finish(loader);
    return NULL;
}

/* Whoever hurries takes over what the loader's thread has not begun. */
static void hurrying(void **state)
{
    (void)state;
    fixture f;
    pthread_t thread;
    open_fixture(&f, true, VTI_PACE_SHARED, 0);
    for (uint32_t u = 0; u < FAKE_UNITS; u++) request(&f, at(u, 0, VTI_PRECISION_I8), 0, 0, NULL);
    assert_int_equal(pthread_create(&thread, NULL, finish, f.loader), 0);
    fake_wait_held(&f.fake);
    fake_open_gate(&f.fake);
    pthread_join(thread, NULL);
    for (uint32_t u = 0; u < FAKE_UNITS; u++)
        assert_int_equal(precision_in(&f, u, 0), VTI_PRECISION_I8);
    assert_int_equal(f.fake.live, FAKE_UNITS * FAKE_SLOTS);
    close_fixture(&f);
}

static void closing_with_work_left(void **state)
{
    (void)state;
    static const vti_load_pace paces[] = {VTI_PACE_IDLE, VTI_PACE_SHARED, VTI_PACE_EQUAL,
                                          VTI_PACE_NONE};
    for (size_t i = 0; i < 4; i++) {
        fixture f;
        ending end[FAKE_UNITS] = {{0}};
        open_fixture(&f, false, paces[i], 0);
        for (uint32_t u = 0; u < FAKE_UNITS; u++)
            request(&f, at(u, 1, VTI_PRECISION_I8), 0, 0, &end[u]);
        close_fixture(&f);
        for (uint32_t u = 0; u < FAKE_UNITS; u++) {
            assert_int_equal(end[u].calls, 1);
            assert_true(end[u].status == VT_OK || end[u].status == VT_ERR_CANCELLED);
        }
    }
    vti_shard_loader_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(boundaries),
        cmocka_unit_test(two_readers),
        cmocka_unit_test(more_in_flight),
        cmocka_unit_test(failures),
        cmocka_unit_test(slots),
        cmocka_unit_test(on_the_calling_thread),
        cmocka_unit_test(hurrying),
        cmocka_unit_test(closing_with_work_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
