/* shard_intake.h: how a worker comes to the shards of a manifest: from a model file of its own,
 * from its cache, or from the main device. One thread at a time. */
#ifndef VTI_SHARD_INTAKE_H
#define VTI_SHARD_INTAKE_H

#include "manifest.h"
#include "model_identity.h"
#include "pool.h"
#include "weights.h"

/* A model file that a worker has itself. It may be replaced or changed while it is open. */
typedef struct vti_local_model vti_local_model;

/* A GGUF file or a shard store. */
vt_status vti_local_model_open(const char *path, const vt_log *log, vti_local_model **out,
                               vt_error *err);
/* NULL is fine. */
void vti_local_model_close(vti_local_model *model);

/* Opens the file anew if it is not any more what was opened; one that cannot be is as none. While
 * nobody uses the model. */
void vti_local_model_refresh(vti_local_model *model, const vt_log *log);

/* Is it, unchanged and cut in the same way, the file that this stamp is of, with this model? */
bool vti_local_model_is(const vti_local_model *model, const vti_geometry *geometry,
                        const vti_model_identity *identity, const vti_file_stamp *stamp);

typedef struct vti_shard_intake vti_shard_intake;

/* What it works with; stays with the caller. */
typedef struct vti_shard_intake_params {
    const vti_manifest *manifest;
    const vti_model_identity *identity; /* of the model that the manifest is of */
    vti_weights *weights;               /* new, of the manifest's units; gets the shards */
    vti_budget *budget;                 /* of the device; or NULL */
    vti_pool *pool;
    vti_shard_cache *cache;             /* or NULL */
    const vti_local_model *local;       /* or NULL */
    const vt_log *log;
} vti_shard_intake_params;

/* Takes memory for all shards and looks what is here. */
vt_status vti_shard_intake_open(const vti_shard_intake_params *params, vti_shard_intake **out,
                                vt_error *err);
/* NULL is fine. */
void vti_shard_intake_close(vti_shard_intake *intake);

/* Next entry that has to be asked of the main device, once; UINT32_MAX: none more now. */
uint32_t vti_shard_intake_want(vti_shard_intake *intake);

/* Are there shards that can be loaded from here? If one of them turns out not to be right, it has
 * to be asked for. */
bool vti_shard_intake_has_work(const vti_shard_intake *intake);
/* Loads some of them, with all threads. */
vt_status vti_shard_intake_work(vti_shard_intake *intake, vt_error *err);

/* The next bytes of the blocks that were asked for, in that order: of entry `index`, from `offset`.
 * ERR_PROTOCOL: others were due; ERR_FORMAT: a block was wrong, twice. */
vt_status vti_shard_intake_take(vti_shard_intake *intake, uint32_t index, uint64_t offset,
                                const void *data, size_t bytes, vt_error *err);

/* Of all shards; equal once everything is there. */
uint64_t vti_shard_intake_loaded_bytes(const vti_shard_intake *intake);
uint64_t vti_shard_intake_total_bytes(const vti_shard_intake *intake);

#endif
