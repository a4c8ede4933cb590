/* planner_support.h: random clusters and models, and a second opinion on plans. */
#ifndef VTI_TEST_PLANNER_SUPPORT_H
#define VTI_TEST_PLANNER_SUPPORT_H

#include "../planner/planner.h"
#include "support.h"

typedef struct planner_case {
    vti_plan_cluster cluster;
    vti_plan_model model;
    vti_plan_request request;
} planner_case;

/* `tightness` 0: every device holds everything; 1: all together hold a little more than the model.
 * Up to 7 layers may differ, more are alike. */
void planner_random(planner_case *c, test_random *random, unsigned devices, unsigned layers,
                    unsigned shards_max, double tightness);

/* So many; a tenth of it where programs are emulated. */
unsigned planner_cases(unsigned cases);

unsigned planner_below(test_random *random, unsigned n);

/* Works out times and memory of a plan from the meaning of its fields, apart from planner/. NULL,
 * or which field says something else or what rule is broken. */
const char *planner_judge(const vti_plan_request *r, const vti_plan *plan);

/* The same opinion on the time of one unit. */
double planner_unit_seconds(const vti_plan_request *r, bool decode, unsigned u,
                            const vti_plan_place *place, unsigned holders);

const vti_plan_class *planner_class(const vti_plan_request *r, unsigned u);
double planner_shard_bytes(const vti_plan_request *r, unsigned u); /* weights and KV rows */

#endif
