/* The loader against a model of it: random requests, cancels, loads that end well or badly, and
 * readers that come and go, one after the other; then all of that at the same time. */
#include "shard_fake.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    RUNS = 60, STEPS = 250, READERS = 2, EMPTY = -1, NOBODY = -1, BAD_PRECISION = 7, GROUPS = 3,
    MOST_RETIRED = 64
};

typedef struct ending {
    int calls;
    vt_status status;
} ending;

typedef struct wish {
    vti_load_request r;
    uint64_t ticket;
    bool queued, cancelled;
    ending expected, seen;
} wish;

typedef enum model_state { ASLEEP, LOADING, WAITING } model_state;

typedef struct model {
    test_random random;
    uint64_t extra_bytes;
    int slot[FAKE_UNITS][FAKE_SLOTS]; /* precision */
    int newest[FAKE_UNITS][FAKE_SLOTS];
    wish wish[STEPS];
    int wishes, current; /* the one that is served */
    bool abandon;
    model_state state;
    uint32_t retired;
    uint64_t retired_bytes;
    uint32_t at[READERS], marked[READERS], entered[READERS]; /* as shard_table.c counts */
    vti_shard_reader *reader[READERS];
    vti_shard **view[READERS];
    uint32_t unit[READERS];
    fake_supply fake;
    vti_shard_table *table;
    vti_shard_loader *loader;
} model;

static uint32_t below(model *m, uint32_t n) { return (uint32_t)(test_random_u64(&m->random) % n); }

static void note_end(void *user, vti_shard_id id, vt_status status, const char *sentence)
{
    ending *e = user;
    (void)id;
    (void)sentence;
    e->calls++;
    e->status = status;
}

/* --- what the loader should do ----------------------------------------------------------------- */

static bool passed(const model *m)
{
    for (int i = 0; i < READERS; i++)
        if (m->marked[i] && m->at[i] == m->marked[i]) return false;
    return true;
}

static void end(model *m, int i, vt_status status)
{
    m->wish[i].expected.calls++;
    m->wish[i].expected.status = status;
    m->current = NOBODY;
    m->state = ASLEEP;
}

static int *slot_of(model *m, int i)
{
    return &m->slot[m->wish[i].r.id.unit][m->wish[i].r.id.shard];
}

static void install(model *m)
{
    int i = m->current, *slot = slot_of(m, i);
    vti_shard_id old = m->wish[i].r.id;
    if (m->abandon) {
        end(m, i, VT_ERR_CANCELLED);
        return;
    }
    if (*slot != EMPTY) {
        old.precision = (vti_precision)*slot;
        m->retired++;
        m->retired_bytes += fake_bytes(old);
        memcpy(m->marked, m->at, sizeof m->marked);
    }
    *slot = m->wish[i].r.remove ? EMPTY : (int)m->wish[i].r.id.precision;
    end(m, i, VT_OK);
}

static void go_on_with_room(model *m)
{
    if (m->wish[m->current].r.remove)
        install(m);
    else if (m->abandon)
        end(m, m->current, VT_ERR_CANCELLED);
    else
        m->state = LOADING;
}

static int next_wish(model *m)
{
    int best = NOBODY;
    for (int i = 0; i < m->wishes; i++) {
        const wish *a = &m->wish[i], *b = &m->wish[best == NOBODY ? i : best];
        if (!a->queued) continue;
        if (best == NOBODY || (a->cancelled && !b->cancelled) ||
            (a->cancelled == b->cancelled && a->r.priority < b->r.priority))
            best = i;
    }
    return best;
}

static void free_retired(model *m) { m->retired_bytes = m->retired = 0; }

static void begin(model *m, int i)
{
    const wish *w = &m->wish[i];
    int there = *slot_of(m, i);
    m->current = i;
    m->abandon = false;
    if (w->cancelled || m->newest[w->r.id.unit][w->r.id.shard] != i) {
        end(m, i, VT_ERR_CANCELLED);
    } else if (w->r.remove ? there == EMPTY
                           : there == (int)w->r.id.precision ||
                                 (there != EMPTY && w->r.id.shard == FAKE_SLOTS - 1)) {
        end(m, i, VT_OK);
    } else if (!w->r.remove && (int)w->r.id.precision == BAD_PRECISION) {
        end(m, i, VT_ERR_UNSUPPORTED);
    } else {
        uint64_t bytes = w->r.remove ? 0 : fake_bytes(w->r.id);
        bool full = m->retired == MOST_RETIRED || m->retired_bytes + bytes > m->extra_bytes;
        if (m->retired && full) {
            m->state = WAITING;
            return;
        }
        if (passed(m)) free_retired(m);
        go_on_with_room(m);
    }
}

/* As far as it gets without the test's doing. */
static void advance(model *m)
{
    while (m->state != LOADING) {
        if (m->state == WAITING) {
            if (!passed(m)) return;
            free_retired(m);
            m->state = ASLEEP;
            if (m->current != NOBODY) go_on_with_room(m);
            continue;
        }
        int i = next_wish(m);
        if (i != NOBODY) {
            m->wish[i].queued = false;
            begin(m, i);
        } else if (m->retired) {
            m->state = WAITING;
        } else {
            return;
        }
    }
}

/* --- what happens to both ---------------------------------------------------------------------- */

static void make_wish(model *m)
{
    int i = m->wishes++;
    wish *w = &m->wish[i];
    vti_shard_id id = {below(m, FAKE_UNITS), below(m, FAKE_SLOTS), (vti_precision)below(m, 3)};
    if (below(m, 20) == 0) id.precision = (vti_precision)BAD_PRECISION;
    w->r = (vti_load_request){id, below(m, 8) == 0, below(m, 4), below(m, GROUPS), note_end,
                              &w->seen};
    w->queued = true;
    int *newest = &m->newest[id.unit][id.shard];
    if (m->current != NOBODY && m->current == *newest) m->abandon = true;
    *newest = i;
    assert_int_equal(vti_shard_loader_request(m->loader, &w->r, &w->ticket, NULL), VT_OK);
}

/* kind 0: one; 1: a group; 2: all. */
static void cancel(model *m, uint32_t kind)
{
    uint64_t group = below(m, GROUPS);
    int one = m->wishes ? (int)below(m, (uint32_t)m->wishes) : NOBODY;
    if (one == NOBODY) return;
    for (int i = 0; i < m->wishes; i++) {
        wish *w = &m->wish[i];
        if ((kind == 0 && i != one) || (kind == 1 && w->r.group != group)) continue;
        if (w->queued) w->cancelled = true;
        if (i == m->current) m->abandon = true;
    }
    if (kind == 0) vti_shard_loader_cancel(m->loader, m->wish[one].ticket);
    if (kind == 1) vti_shard_loader_cancel_group(m->loader, group);
    if (kind == 2) vti_shard_loader_cancel_all(m->loader);
}

static void let_go(model *m)
{
    if (m->state != LOADING) return;
    bool fails = below(m, 8) == 0;
    if (fails) {
        fake_fail_next(&m->fake, 1);
        end(m, m->current, VT_ERR_FORMAT);
    } else {
        install(m);
    }
    fake_let_go(&m->fake);
}

/* What a reader sees is the slots as they were or, if its coming let the loader go on, as they are
 * then. */
static void move_reader(model *m, bool leaves)
{
    uint32_t r = below(m, READERS), unit = below(m, FAKE_UNITS);
    int before[FAKE_SLOTS];
    for (uint32_t s = 0; m->at[r] && s < FAKE_SLOTS; s++) /* what it read so far is still there */
        if (m->view[r][s]) fake_check(m->view[r][s], m->unit[r], s);
    if (leaves) {
        m->at[r] = 0;
        vti_shard_reader_leave(m->reader[r]);
        return;
    }
    memcpy(before, m->slot[unit], sizeof before);
    m->at[r] = ++m->entered[r];
    vti_shard **view = m->view[r] = vti_shard_reader_enter(m->reader[r], unit);
    m->unit[r] = unit;
    advance(m);
    for (uint32_t s = 0; s < FAKE_SLOTS; s++) {
        int seen = view[s] ? (int)view[s]->id.precision : EMPTY;
        if (view[s]) fake_check(view[s], unit, s);
        assert_true(seen == before[s] || seen == m->slot[unit][s]);
    }
}

static void act(model *m)
{
    uint32_t what = below(m, 100);
    if (what < 35)
        make_wish(m);
    else if (what < 65)
        let_go(m);
    else if (what < 90)
        move_reader(m, what >= 82);
    else
        cancel(m, what < 96 ? 0 : what < 99 ? 1 : 2);
}

/* --- are they alike? --------------------------------------------------------------------------- */

/* Waits until the loader can do nothing more by itself. */
static void await_rest(model *m)
{
    for (;; sched_yield()) {
        vti_shard_loader_stats stats = vti_shard_loader_get_stats(m->loader);
        vti_load_activity now = stats.now;
        if (now == VTI_LOAD_NONE && stats.pending == 0) return;
        if (now == VTI_LOAD_SERVING && fake_is_held(&m->fake)) return;
        /* Marks may have been set since `stats` were read. */
        if (now == VTI_LOAD_WAITING && !vti_shard_table_passed(m->table) &&
            vti_shard_loader_get_stats(m->loader).now == VTI_LOAD_WAITING)
            return;
    }
}

static void compare(model *m)
{
    uint32_t live = m->retired, pending = m->current != NOBODY;
    uint64_t bytes = m->retired_bytes;
    for (uint32_t u = 0; u < FAKE_UNITS; u++)
        for (uint32_t s = 0; s < FAKE_SLOTS; s++) {
            const vti_shard *shard = vti_shard_table_get(m->table, u, s);
            assert_int_equal(shard ? (int)shard->id.precision : EMPTY, m->slot[u][s]);
            if (!shard) continue;
            live++;
            bytes += shard->bytes;
        }
    if (m->state == LOADING) {
        uint64_t loading = fake_bytes(m->wish[m->current].r.id);
        assert_true(m->retired_bytes == 0 || m->retired_bytes + loading <= m->extra_bytes);
        live++;
        bytes += loading;
    }
    for (int i = 0; i < m->wishes; i++) {
        pending += m->wish[i].queued;
        assert_int_equal(m->wish[i].seen.calls, m->wish[i].expected.calls);
        assert_int_equal(m->wish[i].seen.status, m->wish[i].expected.status);
    }
    assert_int_equal(m->fake.live, live);
    assert_int_equal(m->fake.live_bytes, bytes);
    assert_int_equal(vti_shard_loader_get_stats(m->loader).pending, pending);
}

static void open_model(model *m, uint64_t seed)
{
    static const uint64_t extras[] = {0, 500, 1300};
    *m = (model){.random = {seed * 7919}, .current = NOBODY, .extra_bytes = extras[seed % 3]};
    memset(m->newest, 0xFF, sizeof m->newest);
    fake_supply_init(&m->fake, true);
    m->table = fake_table(&m->fake);
    vti_shard_loader_params params = {m->table, fake_supply_get(&m->fake), VTI_PACE_EQUAL,
                                      m->extra_bytes};
    assert_int_equal(vti_shard_loader_open(&params, &m->loader, NULL), VT_OK);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(vti_shard_reader_open(m->table, &m->reader[i], NULL), VT_OK);
}

static void close_model(model *m)
{
    for (int i = 0; i < READERS; i++) vti_shard_reader_leave(m->reader[i]);
    fake_open_gate(&m->fake);
    vti_shard_loader_close(m->loader);
    for (int i = 0; i < READERS; i++) vti_shard_reader_close(m->reader[i]);
    for (int i = 0; i < m->wishes; i++) assert_int_equal(m->wish[i].seen.calls, 1);
    fake_table_close(&m->fake, m->table);
    fake_supply_destroy(&m->fake);
}

static void like_its_model(void **state)
{
    (void)state;
    static model m;
    int installed = 0, cancelled = 0;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        open_model(&m, seed);
        for (int step = 0; step < STEPS; step++) {
            act(&m);
            advance(&m);
            await_rest(&m);
            compare(&m);
        }
        vti_shard_loader_stats stats = vti_shard_loader_get_stats(m.loader);
        installed += (int)stats.loaded;
        cancelled += (int)stats.cancelled;
        close_model(&m);
    }
    assert_true(installed > 10 * RUNS && cancelled > 5 * RUNS); /* it did meet them */
}

/* --- all at the same time ---------------------------------------------------------------------- */

typedef struct crowd {
    vti_shard_table *table;
    _Atomic bool stop;
    _Atomic uint32_t wrong, units, endings;
} crowd;

static void *read_units(void *argument)
{
    crowd *c = argument;
    vti_shard_reader *reader;
    if (vti_shard_reader_open(c->table, &reader, NULL) != VT_OK) return NULL;
    for (uint32_t i = 0; !c->stop; i++) {
        uint32_t unit = i % FAKE_UNITS;
        vti_shard **view = vti_shard_reader_enter(reader, unit);
        for (int pass = 0; pass < 2; pass++) {
            for (uint32_t s = 0; s < FAKE_SLOTS; s++)
                if (view[s] && !fake_is_right(view[s], unit, s)) c->wrong++;
            if (i % 8 == 0) sched_yield();
        }
        c->units++;
        if (i % 16 == 15) vti_shard_reader_leave(reader);
    }
    vti_shard_reader_close(reader);
    return NULL;
}

static void count_end(void *user, vti_shard_id id, vt_status status, const char *sentence)
{
    crowd *c = user;
    (void)id;
    (void)status;
    (void)sentence;
    c->endings++;
}

static void in_a_crowd(void **state)
{
    (void)state;
    enum { REQUESTS = 1500 };
    fake_supply fake;
    crowd c = {0};
    test_random random = {99};
    pthread_t thread[READERS];
    vti_shard_loader *loader;
    fake_supply_init(&fake, false);
    c.table = fake_table(&fake);
    uint64_t base = fake.live_bytes;
    vti_shard_loader_params params = {c.table, fake_supply_get(&fake), VTI_PACE_EQUAL, 900};
    assert_int_equal(vti_shard_loader_open(&params, &loader, NULL), VT_OK);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_units, &c), 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint64_t r = test_random_u64(&random) >> 8;
        vti_shard_id id = {r % FAKE_UNITS, r / 7 % (FAKE_SLOTS - 1), (vti_precision)(r / 31 % 3)};
        vti_load_request q = {id, r / 101 % 9 == 0, r / 211 % 4, r / 307 % 3, count_end, &c};
        assert_int_equal(vti_shard_loader_request(loader, &q, NULL, NULL), VT_OK);
        if (r / 401 % 40 == 0) vti_shard_loader_cancel_group(loader, r % 3);
        if (i % 4 == 0) sched_yield();
        while (vti_shard_loader_get_stats(loader).pending > 50) sched_yield();
    }
    vti_shard_loader_wait(loader);
    c.stop = true;
    for (int i = 0; i < READERS; i++) pthread_join(thread[i], NULL);
    assert_int_equal(c.wrong, 0);
    assert_int_equal(c.endings, REQUESTS);
    assert_true(fake.peak_bytes <= base + 900);
    assert_true(c.units > 0 && vti_shard_loader_get_stats(loader).loaded > 100);
    vti_shard_loader_close(loader);
    fake_table_close(&fake, c.table);
    fake_supply_destroy(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_its_model),
        cmocka_unit_test(in_a_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
