/* stage.h: a run of consecutive layers on one device: weights, KV cache, scratch, forward pass. */
#ifndef VTI_STAGE_H
#define VTI_STAGE_H

#include "kv_cache.h"
#include "pool.h"
#include "shard_table.h"
#include "weights.h"

typedef struct vti_stage vti_stage;

/* Sees what matrices are multiplied with. `role`: the first matrix of a unit that is multiplied with
 * it (VTI_ATTN_Q, VTI_ATTN_OUT, VTI_FFN_GATE, VTI_FFN_DOWN, …; `slice`: the expert). x: tokens rows,
 * `stride` floats apart, of columns [col, col + cols) of its input. Called in the thread of
 * vti_stage_forward; input NULL: nobody looks. */
typedef struct vti_observer {
    void (*input)(void *user, uint32_t layer, vti_role role, uint32_t slice, const float *x,
                  size_t stride, uint32_t tokens, uint32_t col, uint32_t cols);
    /* When a unit begins and when it ends; unit NULL: the same. */
    void (*unit)(void *user, uint32_t unit, bool ends);
    void *user;
} vti_observer;

typedef struct vti_stage_params {
    const vti_kernels *kernels;
    vti_pool *pool;             /* NULL: one thread */
    const vti_geometry *geometry;
    const vti_weights *weights; /* whole layers; may hold none */
    vti_budget *budget;         /* that KV cache and scratch are taken from; NULL: not counted */
    vti_shard_table *table;     /* their shards may be exchanged through it; NULL: never */
    uint32_t context_tokens;
    uint32_t batch_tokens;      /* most tokens of one forward call */
    vt_kv_type kv_type;
} vti_stage_params;

/* Bytes of KV cache and of scratch that a stage of layers [first, first + count) takes; of the
 * parameters, pool and weights are ignored. */
typedef struct vti_stage_sizes {
    uint64_t kv_bytes, scratch_bytes;
} vti_stage_sizes;
vti_stage_sizes vti_stage_size(const vti_stage_params *params, uint32_t first, uint32_t count);
uint64_t vti_stage_bytes(const vti_stage_params *params, uint32_t first, uint32_t count);

/* Copies *params; what it points to must outlive the stage. */
vt_status vti_stage_open(const vti_stage_params *params, vti_stage **out, vt_error *err);
void vti_stage_close(vti_stage *stage);

/* The largest position up to `position` (which was computed) from which computing can go on: 0
 * if layers with a sliding window have dropped what it needs. All stages of a model that were
 * given the same steps say the same. */
uint32_t vti_stage_resume(const vti_stage *stage, uint32_t position);

/* Runs all layers of the stage. h: the residual stream, tokens × d floats, changed in place, of the
 * tokens at [position, position + tokens). Positions before it must have been computed, and
 * vti_stage_resume let `position` stand. tokens <= batch_tokens, position + tokens <=
 * context_tokens. */
void vti_stage_forward(vti_stage *stage, float *h, uint32_t position, uint32_t tokens);

/* The same of units [first, first + count) alone, numbered as in the geometry and all in this
 * stage. */
void vti_stage_forward_units(vti_stage *stage, uint32_t first, uint32_t count, float *h,
                             uint32_t position, uint32_t tokens);

/* Leaves a shard of this stage's units out from now on, or takes it in again: the unit's sum is
 * that of the others, and a mixture chooses among its other experts, as if the router had no such
 * row. It need not be in memory meanwhile. */
vt_status vti_stage_prune(vti_stage *stage, uint32_t unit, uint32_t shard, bool pruned,
                          vt_error *err);

/* A shard's channel: one column of Wo, or of the FFN's down, and what is multiplied with it. */
typedef struct vti_channel {
    uint32_t unit, shard, channel;
} vti_channel;

/* Channels of an ATTN or FFN shard. */
uint32_t vti_shard_channels(const vti_geometry *g, uint32_t unit, uint32_t shard);

/* Leaves out one channel and no other one; NULL: none. */
void vti_stage_prune_channel(vti_stage *stage, const vti_channel *channel);

/* Of the steps from now on. */
void vti_stage_observe(vti_stage *stage, const vti_observer *observer);

uint64_t vti_stage_kv_bytes(const vti_stage *stage);

/* Its layers are counted from the stage's first. */
vti_kv_cache *vti_stage_cache(vti_stage *stage);

#endif
