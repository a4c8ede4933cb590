/* model.h: an opened model file. */
#ifndef VTI_MODEL_H
#define VTI_MODEL_H

#include <pthread.h>

#include "memory.h"
#include "model_identity.h"
#include "pool.h"
#include "shard_build.h"
#include "shard_supply.h"
#include "tensor_source.h"
#include "tokenizer/tokenizer.h"
#include "weights.h"

struct vt_model {
    vt_gguf *gguf;       /* of a shard store: its directory, with data of the embedding only */
    vt_store *store;     /* the file if it is one, which then owns gguf; or NULL */
    vti_tokenizer *tokenizer;
    vti_hparams hparams; /* zero if vocabulary_only, like geometry and all about weights */
    vti_geometry geometry;
    vti_shard_builder builder;
    const vti_shard_source *shards; /* where weights come from */
    vti_composition composition;    /* what sessions compute with */
    bool vocabulary_only;
    vti_kernels kernels;
    vti_pool *pool;      /* of all sessions on this model */
    vt_log log;
    vt_progress progress;
    char *name;
    uint64_t parameters;
    uint64_t weight_bytes; /* in the file */
    uint64_t token_bytes;  /* what decoding one token reads */
    uint64_t layer_bytes, head_bytes; /* as loaded: all layers; output norm and matrix */
    vti_source embedding; /* vocab × d, read row by row from the file */

    /* Loaded when first needed, under the lock; then immutable until the model closes. */
    pthread_mutex_t lock;
    vti_device_memory device;   /* of everything large: weights, sessions, queues */
    vti_shard_memory *memory;   /* of all weights in this process */
    vti_weights *all_layers;    /* for sessions that run in this process alone */
    vti_weights *head;          /* HEAD */

    /* Through which the shards of both may be exchanged (model_shards.h). */
    vti_shard_table *table;
    vti_shard_supplier supplier;
    vti_shard_loader *loader;   /* NULL: not asked for yet */
};

/* Looks up and checks every tensor that a run would touch, so that a damaged file is refused
 * when it is opened and not in the middle of an answer; refuses tensors that are not known.
 * Fills geometry, builder and the sums above. */
vt_status vti_model_check_tensors(vt_model *model, vt_error *err);

/* Geometry and shards of a model that is a shard store. */
void vti_model_set_up_store(vt_model *model);

/* Sets what sessions compute with, and what that takes: a plan's text, or a precision for all, or for
 * NULL the highest. ERR_ARGUMENT if it is not offered. */
vt_status vti_model_compose(vt_model *model, const char *precision, const char *plan_json,
                            vt_error *err);

/* Of the GGUF file that the model is, or was packed from. */
void vti_model_get_identity(const vt_model *model, vti_model_identity *out);

/* The model looks const outside; what changes in its memory guards itself. */
static inline vti_device_memory *vti_model_device(const vt_model *model)
{
    return &((vt_model *)(uintptr_t)model)->device;
}

/* Weights that a session would have to load: the output's, and those of all layers if asked for. */
uint64_t vti_model_unloaded_bytes(vt_model *model, bool with_layers);

/* All layers; loads them on the first call. Belongs to the model. */
vt_status vti_model_layers(vt_model *model, const vti_weights **out, vt_error *err);

/* HEAD; loads it on the first call. Belongs to the model. */
vt_status vti_model_head(vt_model *model, const vti_weights **out, vt_error *err);

/* Row `token` (inside the vocabulary) of the embedding matrix, read from the file: d floats. */
void vti_model_embed(const vt_model *model, vt_token token, float *out);

#endif
