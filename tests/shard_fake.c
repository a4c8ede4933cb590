#include "shard_fake.h"

#include <stdlib.h>
#include <string.h>

void fake_supply_init(fake_supply *f, bool held)
{
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    f->held = held;
}

void fake_supply_destroy(fake_supply *f)
{
    assert_int_equal(f->live, 0);
    assert_int_equal(f->live_bytes, 0);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
}

uint64_t fake_bytes(vti_shard_id id)
{
    static const uint64_t share[] = {400, 200, 100};
    return share[id.precision] + 16 * id.unit + 2 * id.shard;
}

static unsigned char content(vti_shard_id id)
{
    return (unsigned char)(1 + id.unit * 50 + id.shard * 10 + (unsigned)id.precision);
}

vti_shard *fake_make(fake_supply *f, vti_shard_id id)
{
    vti_shard *shard = malloc(sizeof *shard);
    *shard = (vti_shard){.id = id, .bytes = fake_bytes(id)};
    shard->memory = malloc(shard->bytes);
    memset(shard->memory, content(id), shard->bytes);
    pthread_mutex_lock(&f->lock);
    f->live++;
    f->live_bytes += shard->bytes;
    if (f->live_bytes > f->peak_bytes) f->peak_bytes = f->live_bytes;
    pthread_mutex_unlock(&f->lock);
    return shard;
}

static vt_status bytes_of(void *self, vti_shard_id id, uint64_t *out, vt_error *err)
{
    (void)self;
    if (id.precision >= VTI_PRECISION_COUNT)
        return vti_fail(err, VT_ERR_UNSUPPORTED, "no precision %d", (int)id.precision);
    *out = fake_bytes(id);
    return VT_OK;
}

static bool pass_gate(fake_supply *f, vti_shard_id id)
{
    pthread_mutex_lock(&f->lock);
    if (f->made < FAKE_MOST_EVENTS) f->order[f->made] = id;
    f->made++;
    f->at_gate = f->held && !f->permits;
    pthread_cond_broadcast(&f->changed);
    while (f->held && !f->permits) pthread_cond_wait(&f->changed, &f->lock);
    if (f->held) f->permits--;
    bool fails = f->fail_next > 0;
    if (fails) f->fail_next--;
    pthread_mutex_unlock(&f->lock);
    return !fails;
}

static vt_status make(void *self, vti_shard_id id, vti_shard **out, vt_error *err)
{
    fake_supply *f = self;
    vti_shard *shard = fake_make(f, id); /* it takes memory while it is loaded */
    if (pass_gate(f, id)) {
        *out = shard;
        return VT_OK;
    }
    fake_supply_get(f).drop(f, shard);
    return vti_fail(err, VT_ERR_FORMAT, "shard %u of unit %u is damaged", id.shard, id.unit);
}

static void drop(void *self, vti_shard *shard)
{
    fake_supply *f = self;
    pthread_mutex_lock(&f->lock);
    f->live--;
    f->live_bytes -= shard->bytes;
    pthread_mutex_unlock(&f->lock);
    memset(shard->memory, 0, shard->bytes); /* so that who still reads it is caught */
    free(shard->memory);
    free(shard);
}

vti_shard_supply fake_supply_get(fake_supply *f)
{
    return (vti_shard_supply){f, bytes_of, make, drop};
}

void fake_wait_held(fake_supply *f)
{
    pthread_mutex_lock(&f->lock);
    while (!f->at_gate) pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

bool fake_is_held(fake_supply *f)
{
    pthread_mutex_lock(&f->lock);
    bool held = f->at_gate;
    pthread_mutex_unlock(&f->lock);
    return held;
}

void fake_let_go(fake_supply *f)
{
    pthread_mutex_lock(&f->lock);
    f->permits++;
    f->at_gate = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void fake_open_gate(fake_supply *f)
{
    pthread_mutex_lock(&f->lock);
    f->held = f->at_gate = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void fake_fail_next(fake_supply *f, uint32_t loads)
{
    pthread_mutex_lock(&f->lock);
    f->fail_next = loads;
    pthread_mutex_unlock(&f->lock);
}

bool fake_is_right(const vti_shard *shard, uint32_t unit, uint32_t slot)
{
    if (!shard || shard->id.unit != unit || shard->id.shard != slot) return false;
    const unsigned char *at = shard->memory;
    for (uint64_t i = 0; i < shard->bytes; i++)
        if (at[i] != content(shard->id)) return false;
    return true;
}

void fake_check(const vti_shard *shard, uint32_t unit, uint32_t slot)
{
    assert_true(fake_is_right(shard, unit, slot));
}

vti_shard_table *fake_table(fake_supply *f)
{
    vti_shard_table *table;
    const uint32_t slots[FAKE_UNITS] = {FAKE_SLOTS, FAKE_SLOTS, FAKE_SLOTS, FAKE_SLOTS};
    assert_int_equal(vti_shard_table_open(FAKE_UNITS, slots, &table, NULL), VT_OK);
    for (uint32_t u = 0; u < FAKE_UNITS; u++) vti_shard_table_attach(table, u, f->slot[u]);
    for (uint32_t u = 0; u < FAKE_UNITS; u++)
        for (uint32_t s = 0; s < FAKE_SLOTS; s++) {
            vti_shard *shard = fake_make(f, (vti_shard_id){u, s, VTI_PRECISION_F16});
            assert_null(vti_shard_table_exchange(table, u, s, shard));
        }
    return table;
}

void fake_table_close(fake_supply *f, vti_shard_table *table)
{
    for (uint32_t u = 0; u < FAKE_UNITS; u++)
        for (uint32_t s = 0; s < FAKE_SLOTS; s++) {
            vti_shard *shard = vti_shard_table_exchange(table, u, s, NULL);
            if (!shard) continue;
            fake_check(shard, u, s);
            drop(f, shard);
        }
    vti_shard_table_close(table);
}
