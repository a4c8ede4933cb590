/* cluster_plan.h: which layers run where, as the planner says, and why. */
#ifndef VTI_CLUSTER_PLAN_H
#define VTI_CLUSTER_PLAN_H

#include "../planner/planner.h"
#include "cluster_internal.h"

/* A cluster as the planner sees it: device 0 is the main device, d is devices[d - 1]. */
struct vti_cluster_plan {
    vti_plan_cluster cluster;
    vti_plan_model model;
    vti_plan_request request; /* points to the two above */
    vti_plan plan;
    bool is_timed; /* speeds and links are known, or taken for granted: its times mean something */
};

/* Fills cluster, model and request for sessions of `context_tokens` with every unit at `precision`
 * (VTI_PRECISION_COUNT: as the model was opened). */
vt_status vti_cluster_describe(const vt_cluster *c, uint32_t context_tokens,
                               vti_precision precision, vti_cluster_plan *out, vt_error *err);

/* VT_ERR_MEMORY for a plan that does not fit: who lacks how much, and what would help. */
vt_status vti_cluster_explain_shortfall(const vt_cluster *c, const vti_cluster_plan *p,
                                        void *scratch, vt_error *err);

/* Says of each device what it runs or why it is left out. */
void vti_cluster_explain(vt_cluster *c, const vti_cluster_plan *p, void *scratch);

/* NULL, or why today's runtime cannot carry the plan out; *unit is the first that it cannot. */
const char *vti_plan_is_chain(const vti_plan *plan, unsigned *unit);

#endif
