/* tokenizer.h: text to token ids and back, as the model file's tokenizer.ggml.* keys say. */
#ifndef VTI_TOKENIZER_H
#define VTI_TOKENIZER_H

#include "../gguf.h"

/* Immutable once open; any number of threads may use one. Keeps no pointer into the GGUF. */
typedef struct vti_tokenizer vti_tokenizer;

/* `pre`: to be used instead of tokenizer.ggml.pre; NULL: as the file says. ERR_FORMAT names the key;
 * ERR_UNSUPPORTED names a tokenizer.ggml.model or .pre that is not known and lists those that are;
 * ERR_ARGUMENT: `pre` is given for a tokenizer that has no such thing. */
vt_status vti_tokenizer_open(const vt_gguf *gguf, const char *pre, vti_tokenizer **out,
                             vt_error *err);
void vti_tokenizer_close(vti_tokenizer *tokenizer);

uint32_t vti_tokenizer_size(const vti_tokenizer *tokenizer);

/* As vt_tokenize; flags are vt_tokenize_flags. */
size_t vti_tokenizer_bound(const vti_tokenizer *tokenizer, size_t text_bytes);
vt_status vti_tokenizer_encode(const vti_tokenizer *tokenizer, const char *text, size_t text_bytes,
                               unsigned flags, vt_token *tokens, size_t capacity, size_t *count,
                               vt_error *err);

/* A stretch of a text that was put together from a template and from what people wrote. */
typedef enum vti_part_kind {
    VTI_PART_PLAIN,    /* somebody's words: control tokens in it are ordinary characters */
    VTI_PART_TEMPLATE, /* the template's own: control tokens have their meaning */
    VTI_PART_TOKEN,    /* one token, no text */
} vti_part_kind;

typedef struct vti_part {
    vti_part_kind kind;
    vt_token token; /* VTI_PART_TOKEN */
    size_t bytes;   /* the others: behind the text of the part before */
} vti_part;

/* Encodes parts that lie one behind the other in `text`. What is between two control tokens is
 * encoded as one text, across parts: the ids are those of the whole text at once, but for control
 * tokens that a plain part, or a seam, spells. No BOS is added; a capacity of
 * vti_tokenizer_bound(all bytes) + 2 * part_count always suffices. */
vt_status vti_tokenizer_encode_parts(const vti_tokenizer *tokenizer, const char *text,
                                     const vti_part *parts, size_t part_count, vt_token *tokens,
                                     size_t capacity, size_t *count, vt_error *err);

/* Does the file ask for BOS before every text? */
bool vti_tokenizer_adds_bos(const vti_tokenizer *tokenizer);

/* Is it SentencePiece? */
bool vti_tokenizer_is_spm(const vti_tokenizer *tokenizer);

/* As vt_token_bytes. */
const char *vti_tokenizer_bytes(const vti_tokenizer *tokenizer, vt_token token, size_t *bytes);
bool vti_tokenizer_is_control(const vti_tokenizer *tokenizer, vt_token token);
vt_token vti_tokenizer_bos(const vti_tokenizer *tokenizer); /* VT_TOKEN_NONE: none */
vt_token vti_tokenizer_eos(const vti_tokenizer *tokenizer);
bool vti_tokenizer_is_stop(const vti_tokenizer *tokenizer, vt_token token);

/* Streaming: bytes go in as tokens come, whole UTF-8 sequences come out. A sequence that can no
 * longer become valid is passed on as U+FFFD. Zero-initialise;
 * at the end vti_utf8_flush gives what is left (U+FFFD for a cut sequence). */
typedef struct vti_utf8_stream {
    unsigned char pending[4];
    uint8_t pending_bytes;
} vti_utf8_stream;

/* Writes to `out`, which has room for vti_utf8_bound(bytes); returns the bytes written. */
size_t vti_utf8_bound(size_t bytes);
size_t vti_utf8_push(vti_utf8_stream *stream, const char *data, size_t bytes, char *out);
size_t vti_utf8_flush(vti_utf8_stream *stream, char *out);

#endif
