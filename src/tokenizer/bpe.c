#include "bpe.h"
#include "merge.h"
#include "nfc.h"
#include "utf8.h"
#include "word_cache.h"

#include <stdlib.h>
#include <string.h>

#define MERGES_KEY "tokenizer.ggml.merges"
#define PRE_KEY "tokenizer.ggml.pre"

/* Two neighbours that may be joined. */
typedef struct merge_rule {
    uint32_t left, right; /* ids; left VTI_NO_ID: an empty slot */
    uint32_t rank, id;
} merge_rule;

struct vti_bpe {
    const vti_vocabulary *vocabulary;
    vti_pretokenizer *pretokenizer;
    vti_pretokenizer_traits traits;
    uint32_t byte_ids[256];
    uint32_t unknown;
    merge_rule *rules; /* hash table by (left, right) */
    uint32_t mask;
    vti_string_map words; /* token by its bytes; only where merges may be ignored */
};

struct vti_bpe_run {
    const vti_bpe *bpe;
    vti_sink *sink;
    vti_splitter *splitter;
    vti_merge_scratch scratch;
    vti_word_cache cache;
};

/* --- opening --------------------------------------------------------------------------------- */

static merge_rule *find_rule(const vti_bpe *bpe, uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    for (uint32_t i = (uint32_t)(hash >> 32) & bpe->mask;; i = (i + 1) & bpe->mask) {
        merge_rule *rule = &bpe->rules[i];
        if (rule->left == VTI_NO_ID || (rule->left == left && rule->right == right)) return rule;
    }
}

/* The ids of merge `rank`, "left right" in the spelling of the file. */
static vt_status resolve_merge(const vti_string_map *map, vti_gguf_string merge, uint32_t rank,
                               char *joined, merge_rule *rule, vt_error *err)
{
    size_t bytes = (size_t)merge.bytes;
    const char *space = bytes > 2 ? memchr(merge.data + 1, ' ', bytes - 2) : NULL;
    int shown = (int)(bytes < 64 ? bytes : 64);
    if (!space)
        return vti_fail(err, VT_ERR_FORMAT, MERGES_KEY " %u is \"%.*s\", expected two pieces with "
                        "a space between them", rank, shown, merge.data);
    size_t left_bytes = (size_t)(space - merge.data), right_bytes = bytes - left_bytes - 1;
    memcpy(joined, merge.data, left_bytes);
    memcpy(joined + left_bytes, space + 1, right_bytes);
    rule->rank = rank;
    rule->left = vti_string_map_find(map, merge.data, left_bytes);
    rule->right = vti_string_map_find(map, space + 1, right_bytes);
    rule->id = vti_string_map_find(map, joined, bytes - 1);
    if (rule->left != VTI_NO_ID && rule->right != VTI_NO_ID && rule->id != VTI_NO_ID) return VT_OK;
    const char *missing = rule->left == VTI_NO_ID    ? "its left piece is"
                          : rule->right == VTI_NO_ID ? "its right piece is"
                                                     : "what it joins to is";
    return vti_fail(err, VT_ERR_FORMAT, MERGES_KEY " %u \"%.*s\": %s not in tokenizer.ggml.tokens",
                    rank, shown, merge.data, missing);
}

static vt_status add_merges(vti_bpe *bpe, const vti_string_map *map, const vti_gguf_value *merges,
                            char *joined, vt_error *err)
{
    const unsigned char *cursor = merges->data;
    for (uint32_t rank = 0; rank < merges->count; rank++) {
        merge_rule rule;
        VTI_TRY(resolve_merge(map, vti_gguf_next_string(&cursor), rank, joined, &rule, err));
        merge_rule *slot = find_rule(bpe, rule.left, rule.right);
        if (slot->left == VTI_NO_ID) *slot = rule; /* of a repeated merge the first counts */
    }
    return VT_OK;
}

static vt_status read_merges(vti_bpe *bpe, const vt_gguf *gguf, const vti_string_map *map,
                             vt_error *err)
{
    const vti_gguf_value *merges;
    VTI_TRY(vti_gguf_get_array(gguf, MERGES_KEY, VTI_GGUF_STRING, true, &merges, err));
    if (merges->count > 4 * (uint64_t)VTI_VOCABULARY_MAX)
        return vti_fail(err, VT_ERR_FORMAT, MERGES_KEY " has %llu entries, expected at most %llu",
                        (unsigned long long)merges->count, 4ull * VTI_VOCABULARY_MAX);
    size_t slots = 16;
    while (slots < 2 * (size_t)merges->count) slots *= 2;
    uint64_t longest = 0;
    const unsigned char *cursor = merges->data;
    for (uint64_t i = 0; i < merges->count; i++) {
        uint64_t bytes = vti_gguf_next_string(&cursor).bytes;
        if (bytes > longest) longest = bytes;
    }
    char *joined = malloc((size_t)longest + 1);
    bpe->rules = malloc(slots * sizeof *bpe->rules);
    bpe->mask = (uint32_t)(slots - 1);
    vt_status status = VT_OK;
    if (!joined || !bpe->rules) {
        status = vti_fail(err, VT_ERR_MEMORY, "no memory for %llu merges",
                          (unsigned long long)merges->count);
    } else {
        for (size_t i = 0; i < slots; i++) bpe->rules[i].left = VTI_NO_ID;
        status = add_merges(bpe, map, merges, joined, err);
    }
    free(joined);
    return status;
}

/* Tokens that merges and bytes may name. A control token must not come out of plain text. */
static vt_status map_texts(const vti_vocabulary *vocabulary, vti_string_map *map, vt_error *err)
{
    VTI_TRY(vti_string_map_init(map, &vocabulary->texts, err));
    for (int named = 0; named < 2; named++) { /* of equal texts ordinary tokens come first */
        for (uint32_t id = 0; id < vocabulary->texts.count; id++) {
            unsigned type = vocabulary->types[id];
            if (type == VTI_TOKEN_CONTROL || type == VTI_TOKEN_UNKNOWN) continue;
            if ((type == VTI_TOKEN_USER_DEFINED) == (named == 1)) vti_string_map_add(map, id);
        }
    }
    return VT_OK;
}

static void find_byte_ids(vti_bpe *bpe, const vti_string_map *map)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[2];
        size_t bytes = vti_alphabet_spell((unsigned char)byte, text);
        uint32_t id = vti_string_map_find(map, text, bytes);
        /* A user-defined token of that name stands for the character, not for the byte. */
        bool ordinary = id != VTI_NO_ID && bpe->vocabulary->types[id] != VTI_TOKEN_USER_DEFINED;
        bpe->byte_ids[byte] = ordinary ? id : VTI_NO_ID;
    }
}

static vt_status map_words(vti_bpe *bpe, vt_error *err)
{
    VTI_TRY(vti_string_map_init(&bpe->words, &bpe->vocabulary->bytes, err));
    for (uint32_t id = 0; id < bpe->vocabulary->bytes.count; id++)
        if (bpe->vocabulary->types[id] == VTI_TOKEN_NORMAL) vti_string_map_add(&bpe->words, id);
    return VT_OK;
}

/* Files from before tokenizer.ggml.pre existed lack it. A Qwen architecture then still tells. */
static vt_status read_pre(const vt_gguf *gguf, vti_gguf_string *pre, vt_error *err)
{
    static const char qwen2[] = "qwen2";
    *pre = (vti_gguf_string){0};
    VTI_TRY(vti_gguf_get_string(gguf, PRE_KEY, false, pre, err));
    if (pre->data) return VT_OK;
    vti_gguf_string architecture = {0};
    VTI_TRY(vti_gguf_get_string(gguf, "general.architecture", false, &architecture, err));
    if (!architecture.data || architecture.bytes < 5 || memcmp(architecture.data, "qwen", 4) != 0)
        return vti_fail(err, VT_ERR_FORMAT, PRE_KEY " is missing, expected the name of the "
                        "pre-tokenizer (files made before May 2024 lack it: use a newer one, or "
                        "choose with --pre)");
    *pre = (vti_gguf_string){.data = qwen2, .bytes = sizeof qwen2 - 1};
    return VT_OK;
}

static vt_status open_bpe(vti_bpe *bpe, const vt_gguf *gguf, const char *chosen_pre, vt_error *err)
{
    vti_gguf_string pre;
    if (chosen_pre)
        pre = (vti_gguf_string){chosen_pre, strlen(chosen_pre)};
    else
        VTI_TRY(read_pre(gguf, &pre, err));
    VTI_TRY(vti_pretokenizer_open(pre.data, (size_t)pre.bytes, &bpe->pretokenizer, err));
    bpe->traits = vti_pretokenizer_get_traits(bpe->pretokenizer);
    vti_string_map map;
    vt_status status = map_texts(bpe->vocabulary, &map, err);
    if (status == VT_OK) {
        find_byte_ids(bpe, &map);
        status = read_merges(bpe, gguf, &map, err);
    }
    vti_string_map_free(&map);
    if (status == VT_OK && bpe->traits.ignore_merges) status = map_words(bpe, err);
    return status;
}

vt_status vti_bpe_open(const vt_gguf *gguf, const char *pre, const vti_vocabulary *vocabulary,
                       uint32_t unknown, vti_bpe **out, vt_error *err)
{
    *out = NULL;
    vti_bpe *bpe = calloc(1, sizeof *bpe);
    if (!bpe) return vti_fail(err, VT_ERR_MEMORY, "no memory for the tokenizer");
    bpe->vocabulary = vocabulary;
    bpe->unknown = unknown;
    vt_status status = open_bpe(bpe, gguf, pre, err);
    if (status == VT_OK)
        *out = bpe;
    else
        vti_bpe_close(bpe);
    return status;
}

void vti_bpe_close(vti_bpe *bpe)
{
    if (!bpe) return;
    vti_pretokenizer_close(bpe->pretokenizer);
    vti_string_map_free(&bpe->words);
    free(bpe->rules);
    free(bpe);
}

bool vti_bpe_adds_bos(const vti_bpe *bpe) { return bpe->traits.add_bos; }

size_t vti_bpe_expansion(const vti_bpe *bpe) { return bpe->traits.nfc ? VTI_NFC_EXPANSION : 1; }

/* --- encoding -------------------------------------------------------------------------------- */

vt_status vti_bpe_run_open(const vti_bpe *bpe, size_t text_bytes, vti_sink *sink, vti_bpe_run **out,
                           vt_error *err)
{
    *out = NULL;
    vti_bpe_run *run = calloc(1, sizeof *run);
    if (!run) return vti_fail(err, VT_ERR_MEMORY, "no memory to encode text");
    run->bpe = bpe;
    run->sink = sink;
    vti_word_cache_init(&run->cache, &bpe->vocabulary->bytes, sink, text_bytes);
    vt_status status = vti_splitter_open(bpe->pretokenizer, &run->splitter, err);
    if (status == VT_OK)
        *out = run;
    else
        vti_bpe_run_close(run);
    return status;
}

void vti_bpe_run_close(vti_bpe_run *run)
{
    if (!run) return;
    vti_splitter_close(run->splitter);
    vti_merge_free(&run->scratch);
    vti_word_cache_free(&run->cache);
    free(run);
}

static vt_status put_byte(vti_bpe_run *run, unsigned char byte, vt_error *err)
{
    uint32_t id = run->bpe->byte_ids[byte];
    if (id == VTI_NO_ID) id = run->bpe->unknown;
    if (id == VTI_NO_ID)
        return vti_fail(err, VT_ERR_FORMAT, "the vocabulary has no token for byte 0x%02X", byte);
    vti_sink_put(run->sink, id);
    return VT_OK;
}

static bool find_merge(const void *user, const char *text, const vti_symbol *left,
                       const vti_symbol *right, uint32_t *rank, uint32_t *id)
{
    (void)text;
    if (left->id == VTI_NO_ID || right->id == VTI_NO_ID) return false;
    const merge_rule *rule = find_rule(user, left->id, right->id);
    *rank = rule->rank;
    *id = rule->id;
    return rule->left != VTI_NO_ID;
}

static vt_status merge_word(vti_bpe_run *run, const char *word, size_t bytes, vt_error *err)
{
    VTI_TRY(vti_merge_reserve(&run->scratch, bytes, err));
    vti_symbol *symbols = run->scratch.symbols;
    for (size_t i = 0; i < bytes; i++)
        symbols[i] = (vti_symbol){.start = (uint32_t)i, .bytes = 1,
                                  .id = run->bpe->byte_ids[(unsigned char)word[i]]};
    vti_merge(&run->scratch, word, bytes, find_merge, run->bpe);
    for (uint32_t i = 0; i != VTI_NO_SYMBOL; i = symbols[i].next) {
        if (symbols[i].id != VTI_NO_ID)
            vti_sink_put(run->sink, symbols[i].id);
        else
            VTI_TRY(put_byte(run, (unsigned char)word[symbols[i].start], err));
    }
    return VT_OK;
}

static vt_status encode_word(vti_bpe_run *run, const char *word, size_t bytes, vt_error *err)
{
    if (vti_word_cache_replay(&run->cache, word, bytes)) return VT_OK;
    size_t first = run->sink->count;
    VTI_TRY(merge_word(run, word, bytes, err));
    vti_word_cache_note(&run->cache, word, bytes, first);
    return VT_OK;
}

static vt_status on_word(void *user, const char *word, size_t bytes, vt_error *err)
{
    vti_bpe_run *run = user;
    if (run->bpe->traits.ignore_merges) {
        uint32_t id = vti_string_map_find(&run->bpe->words, word, bytes);
        if (id != VTI_NO_ID) {
            vti_sink_put(run->sink, id);
            return VT_OK;
        }
    }
    if (bytes == 1) return put_byte(run, (unsigned char)word[0], err);
    return encode_word(run, word, bytes, err);
}

static vt_status encode_valid(vti_bpe_run *run, const char *text, size_t bytes, vt_error *err)
{
    char *normal = NULL;
    size_t normal_bytes = 0;
    if (run->bpe->traits.nfc) VTI_TRY(vti_nfc(text, bytes, &normal, &normal_bytes, err));
    vt_status status = normal ? vti_splitter_run(run->splitter, normal, normal_bytes, on_word, run,
                                                 err)
                              : vti_splitter_run(run->splitter, text, bytes, on_word, run, err);
    free(normal);
    return status;
}

vt_status vti_bpe_encode(vti_bpe_run *run, const char *text, size_t bytes, vt_error *err)
{
    for (size_t i = 0; i < bytes;) {
        size_t valid = vti_utf8_valid_prefix(text + i, bytes - i);
        if (valid > 0) VTI_TRY(encode_valid(run, text + i, valid, err));
        i += valid;
        if (i < bytes) VTI_TRY(put_byte(run, (unsigned char)text[i++], err));
    }
    return VT_OK;
}
