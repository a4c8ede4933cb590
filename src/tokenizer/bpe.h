/* bpe.h: byte-level byte-pair encoding (tokenizer.ggml.model "gpt2"). */
#ifndef VTI_BPE_H
#define VTI_BPE_H

#include "pretokenizer.h"
#include "sink.h"
#include "vocabulary.h"

typedef struct vti_bpe vti_bpe;

/* Reads tokenizer.ggml.pre, unless `pre` is given, and .merges. `vocabulary` must outlive the result;
 * its texts are used during this call only. `unknown` takes the place of bytes without a token;
 * VTI_NO_ID: such a byte is an error when it turns up. */
vt_status vti_bpe_open(const vt_gguf *gguf, const char *pre, const vti_vocabulary *vocabulary,
                       uint32_t unknown, vti_bpe **out, vt_error *err);
void vti_bpe_close(vti_bpe *bpe);
bool vti_bpe_adds_bos(const vti_bpe *bpe); /* where the file does not say */

/* Tokens per byte of text at most. */
size_t vti_bpe_expansion(const vti_bpe *bpe);

/* One encode call's working memory. */
typedef struct vti_bpe_run vti_bpe_run;
vt_status vti_bpe_run_open(const vti_bpe *bpe, size_t text_bytes, vti_sink *sink, vti_bpe_run **out,
                           vt_error *err);
void vti_bpe_run_close(vti_bpe_run *run);

/* Encodes text that holds no special tokens. Bytes that are not UTF-8 become byte tokens; what lies
 * between them is encoded as texts of their own. ERR_MEMORY; ERR_FORMAT: a byte has no token. */
vt_status vti_bpe_encode(vti_bpe_run *run, const char *text, size_t bytes, vt_error *err);

#endif
