/* planning.h: what a vt_plan is made of. */
#ifndef VTI_PLANNING_H
#define VTI_PLANNING_H

#include "cluster_file.h"

enum { VTI_PLAN_REMARKS_MAX = 24, VTI_PLAN_REMARK_BYTES = 320, VTI_PLAN_UNIT_NAME = 24 };

typedef struct vti_plan_device_facts {
    double weight_bytes, kv_bytes; /* of the plan's memory_bytes; the rest is scratch */
    double busy_s[VTI_PHASES];
    unsigned units[VTI_PHASES];
    char left_out[VTI_PLAN_REMARK_BYTES]; /* why; or "" */
} vti_plan_device_facts;

struct vt_plan {
    vti_cluster_file file;
    vti_plan_model model;
    vti_plan_request request; /* what the plan is for, with its precisions and pruned shards */
    vti_plan found;

    const char *planner;      /* its name, or "given" */
    vti_plan_search_kind kind;
    vti_plan_allocation allocation;
    bool per_byte;            /* units are lowered by their importance per byte */
    bool mixed;               /* precisions are chosen here */
    bool has_importance;
    uint8_t highest[VTI_PLAN_UNITS_MAX], lowest[VTI_PLAN_UNITS_MAX]; /* that the model offers */
    uint8_t offered[VTI_PLAN_UNITS_MAX];                             /* bits 1 << precision */
    uint64_t file_types[VTI_PLAN_PRECISIONS]; /* bits 1 << vti_weight_type: of units that have no
                                                 higher precision */
    double budget_bytes[VTI_PLAN_DEVICES_MAX]; /* the file's, of devices not reached too */
    void *scratch;            /* of searches while the plan is made */

    double compute_s[VTI_PHASES][VTI_PLAN_UNITS_MAX], wire_s[VTI_PHASES][VTI_PLAN_UNITS_MAX];
    vti_plan_device_facts device[VTI_PLAN_DEVICES_MAX];
    char remark[VTI_PLAN_REMARKS_MAX][VTI_PLAN_REMARK_BYTES];
    unsigned remarks;
};

/* "EMBED", "ATTN(3)"; "FFN(3)" of mixtures too. */
void vti_planning_unit_name(const vt_plan *plan, unsigned unit, char name[VTI_PLAN_UNIT_NAME]);

bool vti_planning_uses(const vt_plan *plan, unsigned device);

/* planning_fewer.c: plans again without the devices that the plan leaves out, and keeps what is
 * better. Nothing without memory for it. */
void vti_planning_try_fewer(vt_plan *plan);

/* planning_advice.c: fills the remarks, and why devices are left out. */
void vti_planning_advise(vt_plan *plan);

/* planning_text.c, planning_svg.c: malloc'd text, NULL without memory. */
char *vti_planning_report(const vt_plan *plan);
char *vti_planning_svg(const vt_plan *plan);

#endif
