/* plan_json.h: plans as text, for `--plan FILE` and for people. One unit per line, EMBED first. */
#ifndef VTI_PLAN_JSON_H
#define VTI_PLAN_JSON_H

#include "../planner/planner.h"
#include "error.h"

/* The text, ending in a newline; to be freed. NULL without memory. */
char *vti_plan_write_json(const vti_plan *plan);

/* Reads what a plan decides: places, precisions, pruned shards, epoch. Its times and sums are what
 * vti_plan_adopt finds. Unknown and missing fields are errors. *plan is only written on success. */
vt_status vti_plan_read_json(const char *text, size_t bytes, vti_plan *plan, vt_error *err);

/* Fits request (its precisions and pruned shards become those of the plan) and plan to each other:
 * evaluates the plan and says why it cannot be carried out, if so. */
vt_status vti_plan_adopt(vti_plan_request *request, vti_plan *plan, vt_error *err);

#endif
