/* word_cache.h: words that came before in the same call are taken from the tokens already put out.
 * An entry is only a place there: whether the tokens spell the word is read off their bytes. */
#ifndef VTI_WORD_CACHE_H
#define VTI_WORD_CACHE_H

#include "sink.h"
#include "strings.h"

typedef struct vti_word_entry vti_word_entry;

typedef struct vti_word_cache {
    const vti_strings *bytes; /* of all tokens */
    vti_sink *sink;
    vti_word_entry *entries; /* NULL: no cache */
} vti_word_cache;

/* Short texts hardly repeat themselves and get no cache; so does a call without memory for one. */
void vti_word_cache_init(vti_word_cache *cache, const vti_strings *bytes, vti_sink *sink,
                         size_t text_bytes);
void vti_word_cache_free(vti_word_cache *cache);

/* Puts the tokens of `word` into the sink and returns true if it has them. */
bool vti_word_cache_replay(vti_word_cache *cache, const char *word, size_t bytes);

/* Remembers that the tokens of `word` are in the sink from `first` on. */
void vti_word_cache_note(vti_word_cache *cache, const char *word, size_t bytes, size_t first);

#endif
