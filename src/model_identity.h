/* model_identity.h: is this the model that a file was made with? */
#ifndef VTI_MODEL_IDENTITY_H
#define VTI_MODEL_IDENTITY_H

#include "gguf.h"

enum { VTI_IDENTITY_BYTES = 32 };

/* Hashes of what a KV cache depends on. Names, licences, chat templates and the place of the file
 * do not count. */
typedef struct vti_model_identity {
    uint8_t shape[VTI_IDENTITY_BYTES];   /* hyperparameters and tokenizer keys */
    uint8_t weights[VTI_IDENTITY_BYTES]; /* name, type, shape of each tensor, some of its bytes */
} vti_model_identity;

void vti_model_identity_of(const vt_gguf *gguf, vti_model_identity *out);

/* Of the files themselves, as they were on this machine when they were opened: equal only for the
 * same ones in the same state. False: the model is not of files. */
typedef struct vti_file_stamp {
    uint8_t bytes[VTI_IDENTITY_BYTES];
} vti_file_stamp;
bool vti_file_stamp_of(const vt_gguf *gguf, vti_file_stamp *out);

/* Are the files at these paths still those that were opened, unchanged? */
bool vti_files_are_as_opened(const vt_gguf *gguf);

#endif
