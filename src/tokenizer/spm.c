/* A piece is joined from two neighbours whenever the vocabulary has it; the best score first. Text
 * keeps its spaces: vocabulary.c has put them in place of U+2581 in all pieces.
 *
 * SentencePiece knows no words, but no piece reaches across two bytes that no piece has side by
 * side. Text is cut there, which makes long texts fast and lets repeated words be looked up. */
#include "spm.h"
#include "merge.h"
#include "utf8.h"
#include "word_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SCORES_KEY "tokenizer.ggml.scores"

struct vti_spm {
    const vti_vocabulary *vocabulary;
    vti_string_map pieces; /* ordinary tokens by their bytes */
    uint32_t *ranks;       /* by token: its score, the best one lowest */
    uint32_t byte_ids[256];
    uint32_t unknown;
    bool space_prefix;
    uint8_t joined[256][32]; /* bit b of row a: some piece has byte b behind byte a */
};

struct vti_spm_run {
    const vti_spm *spm;
    vti_sink *sink;
    vti_merge_scratch scratch;
    vti_word_cache cache;
};

/* --- opening --------------------------------------------------------------------------------- */

/* Bits of a float, ordered as the numbers are, the largest lowest. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : 0x7FFFFFFFu - bits;
}

static vt_status read_scores(vti_spm *spm, const vt_gguf *gguf, vt_error *err)
{
    uint32_t count = spm->vocabulary->bytes.count;
    const vti_gguf_value *scores;
    VTI_TRY(vti_gguf_get_array(gguf, SCORES_KEY, VTI_GGUF_F32, true, &scores, err));
    if (scores->count != count)
        return vti_fail(err, VT_ERR_FORMAT, SCORES_KEY " has %llu entries, expected one for each "
                        "of the %u tokens", (unsigned long long)scores->count, count);
    spm->ranks = malloc(count * sizeof *spm->ranks);
    if (!spm->ranks) return vti_fail(err, VT_ERR_MEMORY, "no memory for %u scores", count);
    for (uint32_t i = 0; i < count; i++) {
        double score = vti_gguf_number_at(scores, i);
        if (!isfinite(score))
            return vti_fail(err, VT_ERR_FORMAT, SCORES_KEY " %u is not a number", i);
        spm->ranks[i] = rank_of_score((float)score);
    }
    return VT_OK;
}

static void note_joined_bytes(vti_spm *spm, const char *piece, size_t bytes)
{
    for (size_t i = 1; i < bytes; i++) {
        unsigned byte = (unsigned char)piece[i];
        spm->joined[(unsigned char)piece[i - 1]][byte / 8] |= (uint8_t)(1u << byte % 8);
    }
}

/* As in SentencePiece, only ordinary tokens come out of merges: control tokens never do, and
 * user-defined ones were cut out of the text before. */
static vt_status map_pieces(vti_spm *spm, vt_error *err)
{
    const vti_vocabulary *vocabulary = spm->vocabulary;
    VTI_TRY(vti_string_map_init(&spm->pieces, &vocabulary->bytes, err));
    for (unsigned byte = 0; byte < 256; byte++) spm->byte_ids[byte] = VTI_NO_ID;
    for (uint32_t id = 0; id < vocabulary->bytes.count; id++) {
        size_t bytes;
        const char *piece = vti_strings_get(&vocabulary->bytes, id, &bytes);
        if (vocabulary->types[id] == VTI_TOKEN_BYTE) {
            uint32_t *byte_id = &spm->byte_ids[(unsigned char)piece[0]];
            if (*byte_id == VTI_NO_ID) *byte_id = id;
        } else if (vocabulary->types[id] == VTI_TOKEN_NORMAL) {
            vti_string_map_add(&spm->pieces, id);
            note_joined_bytes(spm, piece, bytes);
        }
    }
    return VT_OK;
}

static vt_status open_spm(vti_spm *spm, const vt_gguf *gguf, vt_error *err)
{
    VTI_TRY(read_scores(spm, gguf, err));
    spm->space_prefix = true;
    VTI_TRY(vti_gguf_get_bool(gguf, "tokenizer.ggml.add_space_prefix", false, &spm->space_prefix,
                              err));
    return map_pieces(spm, err);
}

vt_status vti_spm_open(const vt_gguf *gguf, const vti_vocabulary *vocabulary, uint32_t unknown,
                       vti_spm **out, vt_error *err)
{
    *out = NULL;
    vti_spm *spm = calloc(1, sizeof *spm);
    if (!spm) return vti_fail(err, VT_ERR_MEMORY, "no memory for the tokenizer");
    spm->vocabulary = vocabulary;
    spm->unknown = unknown;
    vt_status status = open_spm(spm, gguf, err);
    if (status == VT_OK)
        *out = spm;
    else
        vti_spm_close(spm);
    return status;
}

void vti_spm_close(vti_spm *spm)
{
    if (!spm) return;
    vti_string_map_free(&spm->pieces);
    free(spm->ranks);
    free(spm);
}

/* --- encoding -------------------------------------------------------------------------------- */

vt_status vti_spm_run_open(const vti_spm *spm, size_t text_bytes, vti_sink *sink, vti_spm_run **out,
                           vt_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return vti_fail(err, VT_ERR_MEMORY, "no memory to encode text");
    (*out)->spm = spm;
    (*out)->sink = sink;
    vti_word_cache_init(&(*out)->cache, &spm->vocabulary->bytes, sink, text_bytes);
    return VT_OK;
}

void vti_spm_run_close(vti_spm_run *run)
{
    if (!run) return;
    vti_merge_free(&run->scratch);
    vti_word_cache_free(&run->cache);
    free(run);
}

static bool find_piece(const void *user, const char *text, const vti_symbol *left,
                       const vti_symbol *right, uint32_t *rank, uint32_t *id)
{
    const vti_spm *spm = user;
    *id = vti_string_map_find(&spm->pieces, text + left->start, left->bytes + right->bytes);
    if (*id == VTI_NO_ID) return false;
    *rank = spm->ranks[*id];
    return true;
}

/* A character that no piece has: its bytes, or the unknown token where the file has no bytes. */
static vt_status put_bytes(vti_spm_run *run, const char *text, size_t bytes, vt_error *err)
{
    const vti_spm *spm = run->spm;
    for (size_t i = 0; i < bytes; i++) {
        unsigned byte = (unsigned char)text[i];
        if (spm->byte_ids[byte] != VTI_NO_ID) continue;
        if (spm->unknown == VTI_NO_ID)
            return vti_fail(err, VT_ERR_FORMAT, "the vocabulary has no token for byte 0x%02X",
                            byte);
        vti_sink_put(run->sink, spm->unknown);
        return VT_OK;
    }
    for (size_t i = 0; i < bytes; i++)
        vti_sink_put(run->sink, spm->byte_ids[(unsigned char)text[i]]);
    return VT_OK;
}

static size_t split_characters(const vti_spm *spm, const char *text, size_t bytes,
                               vti_symbol *symbols)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes;) {
        vti_utf8_kind kind;
        size_t length = vti_utf8_next(text + i, bytes - i, &kind);
        if (kind != VTI_UTF8_VALID) length = 1;
        symbols[count++] = (vti_symbol){.start = (uint32_t)i, .bytes = (uint32_t)length,
                                        .id = vti_string_map_find(&spm->pieces, text + i, length)};
        i += length;
    }
    return count;
}

/* Encodes text that no piece reaches out of. */
static vt_status merge_text(vti_spm_run *run, const char *text, size_t bytes, vt_error *err)
{
    VTI_TRY(vti_merge_reserve(&run->scratch, bytes, err));
    vti_symbol *symbols = run->scratch.symbols;
    size_t count = split_characters(run->spm, text, bytes, symbols);
    vti_merge(&run->scratch, text, count, find_piece, run->spm);
    for (uint32_t i = 0; i != VTI_NO_SYMBOL; i = symbols[i].next) {
        if (symbols[i].id != VTI_NO_ID)
            vti_sink_put(run->sink, symbols[i].id);
        else
            VTI_TRY(put_bytes(run, text + symbols[i].start, symbols[i].bytes, err));
    }
    return VT_OK;
}

static vt_status encode_word(vti_spm_run *run, const char *word, size_t bytes, vt_error *err)
{
    if (vti_word_cache_replay(&run->cache, word, bytes)) return VT_OK;
    size_t first = run->sink->count;
    VTI_TRY(merge_text(run, word, bytes, err));
    vti_word_cache_note(&run->cache, word, bytes, first);
    return VT_OK;
}

/* Whether text may be cut between these two bytes: no piece has them side by side, and the second
 * one does not continue a character. */
static bool may_cut(const vti_spm *spm, char left, char right)
{
    unsigned byte = (unsigned char)right;
    return (byte & 0xC0) != 0x80 && !(spm->joined[(unsigned char)left][byte / 8] >> byte % 8 & 1);
}

/* Encodes `text` word by word, which is what such cuts mostly leave. */
static vt_status encode_words(vti_spm_run *run, const char *text, size_t bytes, vt_error *err)
{
    size_t start = 0;
    for (size_t i = 1; i < bytes; i++) {
        if (!may_cut(run->spm, text[i - 1], text[i])) continue;
        VTI_TRY(encode_word(run, text + start, i - start, err));
        start = i;
    }
    return encode_word(run, text + start, bytes - start, err);
}

vt_status vti_spm_encode(vti_spm_run *run, const char *text, size_t bytes, vt_error *err)
{
    if (bytes == 0) return VT_OK;
    size_t prefix = run->spm->space_prefix ? 1 : 0;
    char *copy = malloc(bytes + prefix);
    if (!copy) return vti_fail(err, VT_ERR_MEMORY, "no memory to encode %zu bytes", bytes);
    copy[0] = ' ';
    size_t length = prefix + vti_spaces_from_marks(text, bytes, copy + prefix);
    vt_status status = encode_words(run, copy, length, err);
    free(copy);
    return status;
}
