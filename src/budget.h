/* budget.h: the memory of a device, as one number that everything large is taken from.
 *
 * Who allocates takes first, and gives back after freeing; over the limit is an error that says who
 * holds what. So a device plans with its budget instead of meeting the system's out-of-memory
 * killer. Only bookkeeping: nothing is allocated here. Safe to use from several threads. */
#ifndef VTI_BUDGET_H
#define VTI_BUDGET_H

#include <stdatomic.h>

#include "error.h"

typedef enum vti_budget_category {
    VTI_BUDGET_WEIGHTS,
    VTI_BUDGET_KV,      /* of the whole context, touched or not */
    VTI_BUDGET_SCRATCH, /* activations, logits, history */
    VTI_BUDGET_WIRE,    /* what queues to and from other devices may hold at most */
    VTI_BUDGET_CACHE,   /* what can be dropped at any time */
    VTI_BUDGET_CATEGORIES
} vti_budget_category;

/* Lives with the device it is of. The fields are for budget.c; others use the functions. */
typedef struct vti_budget {
    _Atomic uint64_t limit_bytes, total_bytes, peak_bytes;
    _Atomic uint64_t used_bytes[VTI_BUDGET_CATEGORIES];
} vti_budget;

/* Of one moment as long as nobody takes or gives meanwhile. */
typedef struct vti_budget_usage {
    uint64_t limit_bytes; /* 0: none */
    uint64_t total_bytes; /* sum of the categories */
    uint64_t peak_bytes;  /* largest total so far */
    uint64_t used_bytes[VTI_BUDGET_CATEGORIES];
} vti_budget_usage;

/* "weights", "KV cache", "scratch", "wire", "cache". */
const char *vti_budget_category_name(vti_budget_category category);

/* limit_bytes 0: unlimited. */
void vti_budget_init(vti_budget *budget, uint64_t limit_bytes);

/* Takes `bytes` for `what` ("layer 3's weights", begins the message), or nothing: VT_ERR_MEMORY
 * with a sentence that says what was wanted, what each category holds, the limit, and what would
 * help. `budget` NULL: not accounted, always VT_OK. */
vt_status vti_budget_take(vti_budget *budget, vti_budget_category category, uint64_t bytes,
                          const char *what, vt_error *err);

/* Whether all of `need` could be taken now; takes nothing. VT_ERR_MEMORY with each category's part
 * of it, what is missing, and what would help. */
vt_status vti_budget_check(const vti_budget *budget, const uint64_t need[VTI_BUDGET_CATEGORIES],
                           const char *what, vt_error *err);

/* The same as vti_budget_take without words. */
bool vti_budget_try(vti_budget *budget, vti_budget_category category, uint64_t bytes);

/* What was taken in that category, or a part of it. */
void vti_budget_give(vti_budget *budget, vti_budget_category category, uint64_t bytes);

/* Below what is used it does not fail: nothing more can be taken until enough was given back.
 * Returns the overshoot in bytes, which a planner has to free. */
uint64_t vti_budget_set_limit(vti_budget *budget, uint64_t limit_bytes);

/* Bytes over the limit; 0: none. */
uint64_t vti_budget_overshoot(const vti_budget *budget);

/* Bytes that could be taken now; UINT64_MAX: unlimited. */
uint64_t vti_budget_left(const vti_budget *budget);

vti_budget_usage vti_budget_get(const vti_budget *budget);

#endif
