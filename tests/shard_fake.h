/* shard_fake.h: a supply of shards whose loads a test holds back and lets go. */
#ifndef VTI_TEST_SHARD_FAKE_H
#define VTI_TEST_SHARD_FAKE_H

#include <pthread.h>

#include "support.h"
#include "../src/shard_loader.h"

enum { FAKE_UNITS = 4, FAKE_SLOTS = 4, FAKE_MOST_EVENTS = 4096 };

typedef struct fake_supply {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held;                 /* loads wait until they are let go */
    bool at_gate;              /* one does */
    uint32_t permits;          /* loads that may go on */
    uint32_t fail_next;        /* the next loads that fail */
    uint64_t live_bytes, peak_bytes;
    uint32_t live, made;
    vti_shard *slot[FAKE_UNITS][FAKE_SLOTS];
    vti_shard_id order[FAKE_MOST_EVENTS]; /* of the loads that began */
} fake_supply;

void fake_supply_init(fake_supply *fake, bool held);
void fake_supply_destroy(fake_supply *fake); /* fails if a shard is left */
vti_shard_supply fake_supply_get(fake_supply *fake);

/* Bytes of a shard: by unit, shard and precision all different. */
uint64_t fake_bytes(vti_shard_id id);

/* A shard made on the calling thread, at once. */
vti_shard *fake_make(fake_supply *fake, vti_shard_id id);

/* Waits until a load is held, or only looks; lets the held one go. */
void fake_wait_held(fake_supply *fake);
bool fake_is_held(fake_supply *fake);
void fake_let_go(fake_supply *fake);
void fake_open_gate(fake_supply *fake); /* for all that come */
void fake_fail_next(fake_supply *fake, uint32_t loads);

/* Does memory say what it should for that id? The other one fails the test. */
bool fake_is_right(const vti_shard *shard, uint32_t unit, uint32_t slot);
void fake_check(const vti_shard *shard, uint32_t unit, uint32_t slot);

/* A table of FAKE_UNITS × FAKE_SLOTS with a shard at F16 in each slot; and its end. */
vti_shard_table *fake_table(fake_supply *fake);
void fake_table_close(fake_supply *fake, vti_shard_table *table);

#endif
