#include "shard_table.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "align.h"

typedef struct unit_slots {
    uint32_t count;
    _Atomic(vti_shard **) slot; /* NULL: not attached; elements are for __atomic functions only */
} unit_slots;

struct vti_shard_reader {
    /* The number of the unit it is in, counted since it was opened; 0: in none. Sequentially
     * consistent with the slots: a reader that still found the old shard in a slot announced its
     * unit before, so whoever then looks at `unit` sees it. */
    _Alignas(64) _Atomic uint64_t unit;
    uint64_t entered;
    vti_shard_table *table;
    vti_shard_reader *next;
    uint64_t marked;
    vti_shard *view[]; /* as many as the widest unit has slots */
};

struct vti_shard_table {
    uint32_t units, widest;
    pthread_mutex_t lock; /* of the list of readers */
    vti_shard_reader *readers;
    _Atomic bool wanted;  /* somebody waits for `moved`: who moves on posts it */
    sem_t moved;
    unit_slots unit[];
};

vt_status vti_shard_table_open(uint32_t units, const uint32_t *slots, vti_shard_table **out,
                               vt_error *err)
{
    vti_shard_table *t = *out = calloc(1, sizeof *t + units * sizeof t->unit[0]);
    if (!t) return vti_fail(err, VT_ERR_MEMORY, "no memory for a table of shards");
    t->units = units;
    for (uint32_t u = 0; u < units; u++) {
        t->unit[u].count = slots[u];
        if (slots[u] > t->widest) t->widest = slots[u];
    }
    pthread_mutex_init(&t->lock, NULL);
    sem_init(&t->moved, 0, 0);
    return VT_OK;
}

void vti_shard_table_close(vti_shard_table *t)
{
    if (!t) return;
    sem_destroy(&t->moved);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void vti_shard_table_attach(vti_shard_table *t, uint32_t unit, vti_shard **slots)
{
    atomic_store(&t->unit[unit].slot, slots);
}

uint32_t vti_shard_table_units(const vti_shard_table *t) { return t->units; }

uint32_t vti_shard_table_slots(const vti_shard_table *t, uint32_t unit)
{
    return unit < t->units ? t->unit[unit].count : 0;
}

bool vti_shard_table_has(const vti_shard_table *t, uint32_t unit)
{
    return unit < t->units && atomic_load(&t->unit[unit].slot) != NULL;
}

static vti_shard **slots_of(const vti_shard_table *t, uint32_t unit)
{
    return atomic_load_explicit(&t->unit[unit].slot, memory_order_acquire);
}

vti_shard *vti_shard_table_get(const vti_shard_table *t, uint32_t unit, uint32_t shard)
{
    return __atomic_load_n(&slots_of(t, unit)[shard], __ATOMIC_SEQ_CST);
}

vti_shard *vti_shard_table_exchange(vti_shard_table *t, uint32_t unit, uint32_t shard,
                                    vti_shard *with)
{
    return __atomic_exchange_n(&slots_of(t, unit)[shard], with, __ATOMIC_SEQ_CST);
}

/* --- readers ----------------------------------------------------------------------------------- */

vt_status vti_shard_reader_open(vti_shard_table *t, vti_shard_reader **out, vt_error *err)
{
    vti_shard_reader *r;
    size_t bytes = sizeof *r + t->widest * sizeof r->view[0];
    r = *out = aligned_alloc(VTI_ALIGNMENT, (size_t)vti_align_up(bytes, VTI_ALIGNMENT));
    if (!r) return vti_fail(err, VT_ERR_MEMORY, "no memory for a reader of shards");
    atomic_init(&r->unit, 0);
    r->entered = r->marked = 0;
    r->table = t;
    pthread_mutex_lock(&t->lock);
    r->next = t->readers;
    t->readers = r;
    pthread_mutex_unlock(&t->lock);
    return VT_OK;
}

static void move_to(vti_shard_reader *r, uint64_t unit)
{
    vti_shard_table *t = r->table;
    atomic_store(&r->unit, unit);
    if (atomic_load(&t->wanted) && atomic_exchange(&t->wanted, false)) sem_post(&t->moved);
}

void vti_shard_reader_close(vti_shard_reader *r)
{
    if (!r) return;
    vti_shard_table *t = r->table;
    pthread_mutex_lock(&t->lock);
    vti_shard_reader **link = &t->readers;
    while (*link != r) link = &(*link)->next;
    *link = r->next;
    pthread_mutex_unlock(&t->lock);
    move_to(r, 0);
    free(r);
}

vti_shard **vti_shard_reader_enter(vti_shard_reader *r, uint32_t unit)
{
    const vti_shard_table *t = r->table;
    move_to(r, ++r->entered);
    vti_shard **from = slots_of(t, unit);
    uint32_t count = t->unit[unit].count;
    for (uint32_t i = 0; i < count; i++) r->view[i] = __atomic_load_n(&from[i], __ATOMIC_SEQ_CST);
    return r->view;
}

void vti_shard_reader_leave(vti_shard_reader *r) { move_to(r, 0); }

/* --- waiting for them -------------------------------------------------------------------------- */

void vti_shard_table_mark(vti_shard_table *t)
{
    pthread_mutex_lock(&t->lock);
    for (vti_shard_reader *r = t->readers; r; r = r->next) r->marked = atomic_load(&r->unit);
    pthread_mutex_unlock(&t->lock);
}

bool vti_shard_table_passed(vti_shard_table *t)
{
    bool passed = true;
    pthread_mutex_lock(&t->lock);
    for (vti_shard_reader *r = t->readers; r && passed; r = r->next)
        passed = !r->marked || atomic_load(&r->unit) != r->marked;
    pthread_mutex_unlock(&t->lock);
    return passed;
}

void vti_shard_table_wait(vti_shard_table *t)
{
    while (!vti_shard_table_passed(t)) {
        atomic_store(&t->wanted, true);
        if (vti_shard_table_passed(t)) break;
        while (sem_wait(&t->moved) != 0 && errno == EINTR) {}
    }
}
