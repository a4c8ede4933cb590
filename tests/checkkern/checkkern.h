/* checkkern.h: comparing every kernel of the table with an oracle in double.
 *
 * A check gets a table and calls one of its functions on many inputs: odd shapes, ragged tails,
 * misaligned buffers that end at (or begin after) a page nobody may touch, random and worst-case
 * values. The first deviation leaves the check through ck_fail(); so does a crash inside a kernel.
 * Checks therefore allocate only with ck_buffer() and ck_scratch(), which ck_run() frees. */
#ifndef VTI_CHECKKERN_H
#define VTI_CHECKKERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../kernels/kernels.h"

#define CK_UNIT (1.0 / 16777216.0) /* unit roundoff of a float: 2^-24 */

/* `index` says which of the table's entries (weight type, activation form, …). */
typedef void ck_check_fn(const vti_kernels *kernels, unsigned index);

/* Runs one check from `seed`. False: `message` says what was wrong. */
bool ck_run(ck_check_fn *check, const vti_kernels *kernels, unsigned index, uint64_t seed,
            char *message, size_t message_bytes);

/* --- inside a check --------------------------------------------------------------------------- */

_Noreturn void ck_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t ck_random(void);
size_t ck_random_below(size_t limit);
float ck_random_float(float low, float high);

/* `bytes` whose end touches a forbidden page (or, now and then, whose start does); what lies around
 * them up to the page borders holds a pattern. */
void *ck_buffer(size_t bytes);
/* Nobody may write to that buffer from now on. */
void ck_seal(const void *buffer);
/* Fails if any pattern around any buffer has changed. */
void ck_check_margins(void);
/* Plain zeroed memory for the oracle. */
void *ck_scratch(size_t bytes);
/* Frees all of them, to begin the next case. */
void ck_free_all(void);

/* Fails unless |got - want| <= bound. NaN is equal to NaN only. */
void ck_close(const char *what, size_t i, size_t j, double got, double want, double bound);

/* --- what there is to check ------------------------------------------------------------------- */

typedef struct ck_entry {
    char name[64];
    ck_check_fn *check;
    unsigned index;
    void (*function)(void); /* the pointer under test, to see whether a level brought a new one */
} ck_entry;

enum { CK_MAX_ENTRIES = 64 };

/* Lists the functions of a table, always in the same order; returns how many. */
size_t ck_entries(const vti_kernels *kernels, ck_entry *entries);

ck_check_fn ck_check_matmul, ck_check_pack, ck_check_act;
ck_check_fn ck_check_rms_norm, ck_check_rope, ck_check_gate, ck_check_add, ck_check_add_scaled,
    ck_check_softmax, ck_check_f16_from_f32, ck_check_f32_from_f16, ck_check_argmax;
ck_check_fn ck_check_kv_store, ck_check_attention, ck_check_attention_merge;

/* --- the oracle's own reading of the formats (reference.c) ------------------------------------ */

double ck_half_value(uint16_t half);
/* What an IEEE conversion gives, by search over the definition. */
uint16_t ck_half_nearest(float value);

/* A weight and the sum of the absolute values it is made of (|d scale q| + |dmin min|). */
typedef struct ck_weight {
    double value, magnitude;
} ck_weight;

/* Column c of a row of `cols` weights as in the file. */
ck_weight ck_source_weight(vti_weight_type type, const unsigned char *row, size_t cols, size_t c);

/* Fills one row with random weights; with `extreme` only the largest integers there are. */
void ck_fill_source(vti_weight_type type, unsigned char *row, size_t cols, bool extreme);

/* Column c of token t in converted activations. */
double ck_act_value(vti_act_type type, const unsigned char *act, size_t tokens, size_t cols,
                    size_t t, size_t c);

/* Element i of a KV row. */
double ck_kv_value(vti_kv_form form, const unsigned char *row, size_t head_dim, size_t i);

#endif
