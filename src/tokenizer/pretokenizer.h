/* pretokenizer.h: splits text into the words that byte-pair encoding never joins across, as the
 * family named by tokenizer.ggml.pre does. */
#ifndef VTI_PRETOKENIZER_H
#define VTI_PRETOKENIZER_H

#include "../error.h"

typedef struct vti_pretokenizer vti_pretokenizer;

/* What else the name in the file decides. */
typedef struct vti_pretokenizer_traits {
    bool nfc;           /* text is normalised to NFC first */
    bool ignore_merges; /* a word that is a token is taken whole, whatever the merges say */
    bool add_bos;       /* what holds where the file has no tokenizer.ggml.add_bos_token */
} vti_pretokenizer_traits;

/* ERR_UNSUPPORTED lists the names that are known. */
vt_status vti_pretokenizer_open(const char *name, size_t name_bytes, vti_pretokenizer **out,
                                vt_error *err);
void vti_pretokenizer_close(vti_pretokenizer *pretokenizer);
vti_pretokenizer_traits vti_pretokenizer_get_traits(const vti_pretokenizer *pretokenizer);

/* Takes one word; another status than VT_OK ends the split and is returned from it. */
typedef vt_status (*vti_word_fn)(void *user, const char *word, size_t bytes, vt_error *err);

/* Working memory of one thread. */
typedef struct vti_splitter vti_splitter;
vt_status vti_splitter_open(const vti_pretokenizer *pretokenizer, vti_splitter **out,
                            vt_error *err);
void vti_splitter_close(vti_splitter *splitter);

/* Hands out the words of `text`, which is valid UTF-8, in order and without gaps. */
vt_status vti_splitter_run(vti_splitter *splitter, const char *text, size_t bytes,
                           vti_word_fn on_word, void *user, vt_error *err);

#endif
