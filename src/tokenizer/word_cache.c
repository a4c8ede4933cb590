#include "word_cache.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 4096u
#define MIN_TEXT_BYTES 1024u

struct vti_word_entry {
    uint32_t hash;
    uint32_t count; /* tokens; 0: an empty slot */
    size_t first;   /* index in the sink */
};

void vti_word_cache_init(vti_word_cache *cache, const vti_strings *bytes, vti_sink *sink,
                         size_t text_bytes)
{
    *cache = (vti_word_cache){.bytes = bytes, .sink = sink};
    if (text_bytes >= MIN_TEXT_BYTES) cache->entries = calloc(SLOTS, sizeof *cache->entries);
}

void vti_word_cache_free(vti_word_cache *cache)
{
    free(cache->entries);
    *cache = (vti_word_cache){0};
}

static bool spells(const vti_word_cache *cache, const vti_word_entry *entry, const char *word,
                   size_t bytes)
{
    size_t done = 0;
    for (uint32_t i = 0; i < entry->count; i++) {
        size_t length;
        uint32_t id = (uint32_t)cache->sink->tokens[entry->first + i];
        const char *piece = vti_strings_get(cache->bytes, id, &length);
        if (length > bytes - done || memcmp(word + done, piece, length) != 0) return false;
        done += length;
    }
    return done == bytes;
}

bool vti_word_cache_replay(vti_word_cache *cache, const char *word, size_t bytes)
{
    if (!cache->entries) return false;
    uint32_t hash = (uint32_t)vti_hash(word, bytes);
    const vti_word_entry *entry = &cache->entries[hash % SLOTS];
    if (entry->count == 0 || entry->hash != hash || !spells(cache, entry, word, bytes))
        return false;
    for (uint32_t i = 0; i < entry->count; i++)
        vti_sink_put(cache->sink, (uint32_t)cache->sink->tokens[entry->first + i]);
    return true;
}

void vti_word_cache_note(vti_word_cache *cache, const char *word, size_t bytes, size_t first)
{
    const vti_sink *sink = cache->sink;
    if (!cache->entries || sink->count > sink->capacity) return;
    uint32_t hash = (uint32_t)vti_hash(word, bytes);
    cache->entries[hash % SLOTS] = (vti_word_entry){
        .hash = hash, .count = (uint32_t)(sink->count - first), .first = first};
}
