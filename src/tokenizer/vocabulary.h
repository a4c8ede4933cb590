/* vocabulary.h: the tokens of a model file: their texts, what they stand for, their kinds. */
#ifndef VTI_VOCABULARY_H
#define VTI_VOCABULARY_H

#include "../gguf.h"
#include "strings.h"

/* More tokens than any published model has, few enough for 32-bit arithmetic. */
#define VTI_VOCABULARY_MAX (1u << 24)

/* tokenizer.ggml.token_type as numbered in the file. */
typedef enum vti_token_type {
    VTI_TOKEN_NORMAL = 1,
    VTI_TOKEN_UNKNOWN = 2,
    VTI_TOKEN_CONTROL = 3,
    VTI_TOKEN_USER_DEFINED = 4, /* found in any text by its name, before anything else */
    VTI_TOKEN_UNUSED = 5,
    VTI_TOKEN_BYTE = 6, /* "<0x0A>" */
} vti_token_type;

typedef struct vti_vocabulary {
    vti_strings texts; /* as the file writes them */
    vti_strings bytes; /* what they stand for in text; for named tokens their name */
    uint8_t *types;    /* vti_token_type, one per token */
} vti_vocabulary;

/* How the file writes ordinary tokens. */
typedef enum vti_spelling {
    VTI_SPELLING_BYTE_LEVEL, /* every byte as a printable character, GPT-2's alphabet */
    VTI_SPELLING_SPACE_MARK, /* U+2581 for a space */
} vti_spelling;

/* Reads tokenizer.ggml.tokens and .token_type. Token counts must agree, types be known and byte
 * tokens be two hexadecimal digits; the error names the token. */
vt_status vti_vocabulary_open(const vt_gguf *gguf, vti_spelling spelling, vti_vocabulary *out,
                              vt_error *err);
void vti_vocabulary_free(vti_vocabulary *vocabulary);

/* Named tokens stand in texts by their name only. */
static inline bool vti_token_is_named(unsigned type)
{
    return type == VTI_TOKEN_UNKNOWN || type == VTI_TOKEN_CONTROL || type == VTI_TOKEN_USER_DEFINED;
}

/* GPT-2's alphabet. `text` receives at most 2 bytes; returns their number. */
size_t vti_alphabet_spell(unsigned char byte, char text[2]);

/* Writes the bytes that `text` spells to `out` (room for `bytes`); false if it holds a character
 * that is not in the alphabet or is not UTF-8. */
bool vti_alphabet_read(const char *text, size_t bytes, char *out, size_t *out_bytes);

/* SentencePiece's spelling: copies `text` to `out` with a space for each U+2581; returns the
 * length, which is not more than `bytes`. */
size_t vti_spaces_from_marks(const char *text, size_t bytes, char *out);

#endif
