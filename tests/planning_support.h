/* planning_support.h: cluster files and the plans for them. */
#ifndef VTI_TEST_PLANNING_SUPPORT_H
#define VTI_TEST_PLANNING_SUPPORT_H

#include "support.h"
#include "voltron.h"

/* The default model, opened once. */
const vt_model *planning_model(void);

/* A tablet, a phone and a board with so many MiB. */
const char *planning_cluster(unsigned tablet, unsigned phone, unsigned board);

/* A plan for the cluster file `text`, which must be good; the caller closes it. */
vt_plan *planning_open(const char *text, const vt_plan_params *params);

/* Expects that it fails with this status and a message with these words. */
void planning_expect_error(const char *text, const vt_plan_params *params, vt_status status,
                           const char *words);

/* malloc'd text of a plan. */
char *planning_text(const vt_plan *plan, vt_plan_form form);

/* The first remark with these words, or NULL. */
const char *planning_remark(const vt_plan *plan, const char *words);

/* NULL if it is well-formed XML (without DTD), else what is wrong. */
const char *planning_check_xml(const char *xml);

#endif
