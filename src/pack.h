/* pack.h: a shard source becomes a shard store. */
#ifndef VTI_PACK_H
#define VTI_PACK_H

#include "model_identity.h"
#include "shard.h"

/* What vt_pack does with a model's parts. `gguf` has data for token_embd.weight. */
vt_status vti_pack(const vti_shard_source *source, const vt_gguf *gguf,
                   const vti_model_identity *identity, const char *path,
                   const vt_pack_params *params, vt_error *err);

#endif
