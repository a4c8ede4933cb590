/* spm.h: SentencePiece byte-pair encoding with byte fallback (tokenizer.ggml.model "llama"). */
#ifndef VTI_SPM_H
#define VTI_SPM_H

#include "sink.h"
#include "vocabulary.h"

typedef struct vti_spm vti_spm;

/* Reads tokenizer.ggml.scores and .add_space_prefix. `vocabulary` must outlive the result.
 * `unknown` takes the place of characters without token and byte tokens; VTI_NO_ID: such a
 * character is an error when it turns up. */
vt_status vti_spm_open(const vt_gguf *gguf, const vti_vocabulary *vocabulary, uint32_t unknown,
                       vti_spm **out, vt_error *err);
void vti_spm_close(vti_spm *spm);

/* One encode call's working memory. */
typedef struct vti_spm_run vti_spm_run;
vt_status vti_spm_run_open(const vti_spm *spm, size_t text_bytes, vti_sink *sink, vti_spm_run **out,
                           vt_error *err);
void vti_spm_run_close(vti_spm_run *run);

/* Encodes text that holds no named tokens and stands at the beginning or behind one; the space
 * prefix, if the model has one, comes before it. Any bytes. ERR_MEMORY, ERR_FORMAT (no token). */
vt_status vti_spm_encode(vti_spm_run *run, const char *text, size_t bytes, vt_error *err);

#endif
