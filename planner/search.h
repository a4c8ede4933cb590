/* search.h: what the files of planner/ share. */
#ifndef VTI_PLANNER_SEARCH_H
#define VTI_PLANNER_SEARCH_H

#include "planner.h"

enum { OPTIONS_MAX = 48 };

/* A way to spread a unit's shards; the home comes on top. */
typedef struct plan_option {
    double compute_s;
    unsigned mask;
    uint16_t shares[VTI_PLAN_DEVICES_MAX];
    double bytes[VTI_PLAN_DEVICES_MAX];
} plan_option;

/* What units that cost the same have in common, and the best way between two homes for the
 * current prices of memory. */
typedef struct plan_class {
    unsigned unit; /* the first of them */
    unsigned options;
    plan_option option[OPTIONS_MAX];
    double wire_s[OPTIONS_MAX][VTI_PLAN_DEVICES_MAX][VTI_PLAN_DEVICES_MAX]; /* [][from][home] */
    double best[VTI_PLAN_DEVICES_MAX][VTI_PLAN_DEVICES_MAX];
    uint8_t choice[VTI_PLAN_DEVICES_MAX][VTI_PLAN_DEVICES_MAX];
} plan_class;

/* Another place for a unit. */
typedef struct plan_move {
    vti_plan_place place;
    double seconds; /* what it adds to the phase */
    double over;    /* what it adds to the overflow, in bytes */
} plan_move;

/* A search of one phase. In prefill, the places of decode are given and what they hold is free. */
typedef struct plan_search {
    const vti_plan_request *request;
    vti_plan_phase phase;
    const vti_plan_place *decode; /* NULL in decode */
    double budget[VTI_PLAN_DEVICES_MAX];
    double used[VTI_PLAN_DEVICES_MAX];
    vti_plan_place place[VTI_PLAN_UNITS_MAX]; /* the current one */
    vti_plan_place best[VTI_PLAN_UNITS_MAX];
    double best_s, best_over;
    bool have_best;
    unsigned usable; /* devices whose scratch memory fits, and the main device */
    unsigned classes;
    uint16_t class_of[VTI_PLAN_UNITS_MAX];
    uint8_t came_from[VTI_PLAN_UNITS_MAX][VTI_PLAN_DEVICES_MAX];
    plan_move bargain[VTI_PLAN_UNITS_MAX];
    plan_class class_[VTI_PLAN_UNITS_MAX];
} plan_search;

double vti_plan_compute_seconds(const vti_plan_request *r, vti_plan_phase phase, unsigned unit,
                                unsigned device, unsigned share);
double vti_plan_wire_seconds(const vti_plan_request *r, vti_plan_phase phase, unsigned unit,
                             unsigned mask, unsigned wire, unsigned from, unsigned home);
double vti_plan_seconds(const vti_plan_request *r, vti_plan_phase phase,
                        const vti_plan_place *places);

/* Bytes per device: the weights of both places, KV rows by the decode place. */
void vti_plan_unit_bytes(const vti_plan_request *r, unsigned unit, const vti_plan_place *decode,
                         const vti_plan_place *prefill, double *bytes);

/* baselines.c: every search but dp. Fills the places of both phases. */
void vti_plan_baseline(const vti_plan_request *r, vti_plan_search_kind kind, vti_plan *plan);

/* The spread over `mask` whose slowest device is fastest; no device gets more than `room[d]` shards
 * (NULL: no bound). False if they do not fit. */
bool vti_plan_balance(const vti_plan_request *r, vti_plan_phase phase, unsigned unit, unsigned mask,
                      const unsigned *room, uint16_t *shares);

/* search.c: begins a phase with nothing placed. */
void vti_plan_begin(plan_search *s, const vti_plan_request *r, vti_plan_phase phase,
                    const vti_plan_place *decode);
/* What this place of a unit takes on each device, beyond what is there anyway. */
void vti_plan_place_bytes(const plan_search *s, unsigned unit, const vti_plan_place *place,
                          double *bytes);
/* Remembers s->place if it is the best so far: the least overflow, then the least time. */
void vti_plan_keep(plan_search *s);

/* repair.c: changes s->place unit by unit, until it fits (or nothing helps), then while it gets
 * faster. */
void vti_plan_repair(plan_search *s);
void vti_plan_improve(plan_search *s);

#endif
