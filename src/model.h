/* model.h: an opened model file. */
#ifndef VTI_MODEL_H
#define VTI_MODEL_H

#include <pthread.h>

#include "pool.h"
#include "tokenizer/tokenizer.h"
#include "weights.h"

struct vt_model {
    vt_gguf *gguf;
    vti_tokenizer *tokenizer;
    vti_hparams hparams; /* zero if vocabulary_only */
    bool vocabulary_only;
    vti_kernels kernels;
    vti_pool *pool;      /* of all sessions on this model */
    vt_log log;
    char *name;
    uint64_t parameters, weight_bytes;
    uint64_t loaded_weight_bytes; /* weight_bytes with every tensor as a type that has a kernel */
    vti_source embedding; /* vocab × d, read row by row from the file */

    /* Loaded when first needed, under the lock; then immutable until the model closes. */
    pthread_mutex_t lock;
    vti_weights *all_layers;    /* for sessions that run in this process alone */
    vti_arena *head_arena;      /* of the two; NULL: not loaded */
    vti_tensor output_norm;     /* [d] */
    vti_tensor output;          /* vocab × d */
};

/* All layers; loads them on the first call. Belongs to the model. */
vt_status vti_model_layers(vt_model *model, const vti_weights **out, vt_error *err);

/* Loads output norm and output matrix on the first call. */
vt_status vti_model_load_head(vt_model *model, vt_error *err);

/* Row `token` (inside the vocabulary) of the embedding matrix, read from the file: d floats. */
void vti_model_embed(const vt_model *model, vt_token token, float *out);

#endif
