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

/* `tightness` 0: every device holds everything; 1: all together hold a little more than the model. */
void planner_random(planner_case *c, test_random *random, unsigned devices, unsigned layers,
                    unsigned shards_max, double tightness);

unsigned planner_below(test_random *random, unsigned n);

/* Works out times and memory of a plan from the meaning of its fields, apart from planner/, and
 * fails the test if a field of the plan says something else or a rule is broken. */
void planner_check(const vti_plan_request *r, const vti_plan *plan);

/* The same opinion on the time of one unit. */
double planner_unit_seconds(const vti_plan_request *r, bool decode, unsigned u,
                            const vti_plan_place *place, unsigned from);

#endif
