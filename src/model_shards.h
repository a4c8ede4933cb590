/* model_shards.h: the precision of an open model's units, changed while sessions compute with it.
 *
 * For sessions that run in this process alone. Of a cluster the devices decide. */
#ifndef VTI_MODEL_SHARDS_H
#define VTI_MODEL_SHARDS_H

#include "model.h"

/* The end of a unit's change: once, on the thread that loads. Not VT_OK: some of its shards stay as
 * they were, and the sentence is about the first of them. VT_ERR_CANCELLED: cancelled, or there was
 * a newer change. */
typedef void vti_precision_done(void *user, uint32_t unit, vti_precision precision,
                                vt_status status, const char *sentence);

/* The empty table, when the model is opened. */
vt_status vti_model_open_table(vt_model *model, vt_error *err);

/* The loader of the model's shards, made by the first call, whose pace and bound count. */
vt_status vti_model_open_loader(vt_model *model, vti_load_pace pace, uint64_t extra_bytes,
                                vt_error *err);

/* Asks for all shards of a unit (but those that are pruned) at another precision, in the background; vti_shard_loader_finish of
 * model->loader does it at once instead, between steps. Replaces an earlier wish for that unit.
 * `done` may be NULL. VT_ERR_ARGUMENT: no such unit, it is not loaded, or the file does not offer the
 * precision. */
vt_status vti_model_set_precision(vt_model *model, uint32_t unit, vti_precision precision,
                                  uint32_t priority, vti_precision_done *done, void *user,
                                  vt_error *err);

/* What is not loaded yet of a unit's change stays as it is. */
void vti_model_cancel_precision(vt_model *model, uint32_t unit);

/* How many of a unit's shards are at each precision now; those that its shards share do not count. */
vt_status vti_model_count_precisions(const vt_model *model, uint32_t unit,
                                     uint32_t out[VTI_PRECISION_COUNT], vt_error *err);

#endif
