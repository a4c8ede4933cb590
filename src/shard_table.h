/* shard_table.h: the shards that a device computes with, exchanged while it computes.
 *
 * A table knows the slots of units: one per shard, and one more for what a unit's shards share.
 * Whoever computes is a reader: at the start of each unit it takes a copy of the unit's slots and
 * uses that until the next unit begins. A slot may be exchanged at any time, by any thread; a reader
 * sees it with the next unit that it enters, so a unit runs whole with one state. What was in the
 * slot may be freed once every reader has entered another unit, or left: readers never wait, take no
 * lock and free nothing. */
#ifndef VTI_SHARD_TABLE_H
#define VTI_SHARD_TABLE_H

#include "error.h"
#include "shard.h"

typedef struct vti_shard_table vti_shard_table;
typedef struct vti_shard_reader vti_shard_reader;

/* slots[u]: how many unit u has, with the one for what its shards share. */
vt_status vti_shard_table_open(uint32_t units, const uint32_t *slots, vti_shard_table **out,
                               vt_error *err);
/* All readers must be closed. */
void vti_shard_table_close(vti_shard_table *table);

/* Where the slots of a unit lie, which stay their owner's. Before anybody asks for that unit; from
 * then on nobody else writes them, and to read them is up to readers and to who exchanges. */
void vti_shard_table_attach(vti_shard_table *table, uint32_t unit, vti_shard **slots);

uint32_t vti_shard_table_units(const vti_shard_table *table);
uint32_t vti_shard_table_slots(const vti_shard_table *table, uint32_t unit);
bool vti_shard_table_has(const vti_shard_table *table, uint32_t unit); /* attached? */

/* What is in a slot, NULL: nothing. For those who know that it is not freed meanwhile. */
vti_shard *vti_shard_table_get(const vti_shard_table *table, uint32_t unit, uint32_t shard);

/* Puts `with` (NULL: nothing) into a slot; returns what was there. */
vti_shard *vti_shard_table_exchange(vti_shard_table *table, uint32_t unit, uint32_t shard,
                                    vti_shard *with);

/* --- for who computes -------------------------------------------------------------------------- */

/* A reader belongs to one thread at a time. */
vt_status vti_shard_reader_open(vti_shard_table *table, vti_shard_reader **out, vt_error *err);
void vti_shard_reader_close(vti_shard_reader *reader);

/* Begins a unit, which is attached: its slots as they are now, valid until the next call of enter or leave. */
vti_shard **vti_shard_reader_enter(vti_shard_reader *reader, uint32_t unit);

/* The last unit is done: until the next enter nobody need wait for this reader. */
void vti_shard_reader_leave(vti_shard_reader *reader);

/* --- for who exchanges, one thread at a time --------------------------------------------------- */

/* Remembers what the readers are doing now. */
void vti_shard_table_mark(vti_shard_table *table);

/* Has every reader begun something else since the last mark? Then no shard that was taken out of a
 * slot before that mark is in use. */
bool vti_shard_table_passed(vti_shard_table *table);

/* Sleeps until vti_shard_table_passed. */
void vti_shard_table_wait(vti_shard_table *table);

#endif
