#include "tokenizer.h"
#include "bpe.h"
#include "special.h"
#include "spm.h"

#include <stdlib.h>
#include <string.h>

#define MODEL_KEY "tokenizer.ggml.model"
#define ADD_BOS_KEY "tokenizer.ggml.add_bos_token"
#define STOPS_MAX 32

/* The longest text one call takes: places and counts of a call then fit 32 bits, normalisation's
 * growth included. */
#define TEXT_MAX ((size_t)1 << 28)

struct vti_tokenizer {
    vti_vocabulary vocabulary;
    vti_special_set user_defined; /* what any text is searched for */
    vti_special_set named;        /* with VT_TOKENIZE_SPECIAL: control tokens as well */
    vti_bpe *bpe; /* this one or */
    vti_spm *spm; /* this one */
    uint32_t bos, eos, unknown; /* VTI_NO_ID: none */
    bool add_bos;
    uint32_t stops[STOPS_MAX];
    uint32_t stop_count;
};

/* Names under which published models end a turn or a text. */
static const char *const stop_names[] = {
    "<|im_end|>",      "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>",
    "<end_of_turn>",   "<|end|>",    "<EOT>",      "<|EOT|>",         "<end_of_utterance>",
    "<|end_of_turn|>",
};

#define STOP_NAME_COUNT (sizeof stop_names / sizeof stop_names[0])

/* Names with which published templates begin or enclose turns. */
static const char *const turn_names[] = {
    "<|im_start|>", "<start_of_turn>", "<|start_header_id|>", "<|end_header_id|>",
    "[INST]",       "[/INST]",         "[SYSTEM_PROMPT]",     "[/SYSTEM_PROMPT]",
    "<|user|>",     "<|assistant|>",   "<|system|>",
};

#define TURN_NAME_COUNT (sizeof turn_names / sizeof turn_names[0])

static vt_token public_id(uint32_t id) { return id == VTI_NO_ID ? VT_TOKEN_NONE : (vt_token)id; }

/* --- opening --------------------------------------------------------------------------------- */

/* *id is VTI_NO_ID where the file has no such key. */
static vt_status read_id(const vti_tokenizer *tokenizer, const vt_gguf *gguf, const char *key,
                         uint32_t *id, vt_error *err)
{
    *id = VTI_NO_ID;
    VTI_TRY(vti_gguf_get_u32(gguf, key, false, id, err));
    uint32_t count = tokenizer->vocabulary.texts.count;
    if (*id < count) return VT_OK;
    if (*id == VTI_NO_ID && !vti_gguf_find(gguf, key)) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT, "%s is %u, but there are only %u tokens", key, *id, count);
}

static void add_stop(vti_tokenizer *tokenizer, uint32_t id)
{
    if (id == VTI_NO_ID || vti_tokenizer_is_stop(tokenizer, (vt_token)id)) return;
    if (tokenizer->stop_count < STOPS_MAX) tokenizer->stops[tokenizer->stop_count++] = id;
}

static bool is_one_of(const char *const *names, size_t count, const char *text, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(names[i]) == bytes && memcmp(names[i], text, bytes) == 0) return true;
    return false;
}

/* Some files have the tokens around turns among the user-defined ones. They end turns all the same,
 * and must not come out of a user's text. */
static void add_named_stops(vti_tokenizer *tokenizer)
{
    for (uint32_t id = 0; id < tokenizer->vocabulary.texts.count; id++) {
        uint8_t *type = &tokenizer->vocabulary.types[id];
        if (*type != VTI_TOKEN_CONTROL && *type != VTI_TOKEN_USER_DEFINED) continue;
        size_t bytes;
        const char *text = vti_strings_get(&tokenizer->vocabulary.texts, id, &bytes);
        bool stop = is_one_of(stop_names, STOP_NAME_COUNT, text, bytes);
        if (stop) add_stop(tokenizer, id);
        if (stop || is_one_of(turn_names, TURN_NAME_COUNT, text, bytes))
            *type = VTI_TOKEN_CONTROL;
    }
}

static vt_status read_ids(vti_tokenizer *tokenizer, const vt_gguf *gguf, vt_error *err)
{
    uint32_t eot, eom;
    VTI_TRY(read_id(tokenizer, gguf, "tokenizer.ggml.bos_token_id", &tokenizer->bos, err));
    VTI_TRY(read_id(tokenizer, gguf, "tokenizer.ggml.eos_token_id", &tokenizer->eos, err));
    VTI_TRY(read_id(tokenizer, gguf, "tokenizer.ggml.unknown_token_id", &tokenizer->unknown, err));
    VTI_TRY(read_id(tokenizer, gguf, "tokenizer.ggml.eot_token_id", &eot, err));
    VTI_TRY(read_id(tokenizer, gguf, "tokenizer.ggml.eom_token_id", &eom, err));
    add_stop(tokenizer, tokenizer->eos);
    add_stop(tokenizer, eot);
    add_stop(tokenizer, eom);
    add_named_stops(tokenizer);
    return VT_OK;
}

static vt_status read_add_bos(vti_tokenizer *tokenizer, const vt_gguf *gguf, bool otherwise,
                              vt_error *err)
{
    tokenizer->add_bos = otherwise && tokenizer->bos != VTI_NO_ID;
    VTI_TRY(vti_gguf_get_bool(gguf, ADD_BOS_KEY, false, &tokenizer->add_bos, err));
    if (!tokenizer->add_bos || tokenizer->bos != VTI_NO_ID) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT,
                    ADD_BOS_KEY " is true, but tokenizer.ggml.bos_token_id is missing");
}

static vt_status collect_special(vti_tokenizer *tokenizer, vt_error *err)
{
    const vti_vocabulary *vocabulary = &tokenizer->vocabulary;
    uint32_t count = vocabulary->texts.count, user_defined = 0, named = 0;
    uint32_t *ids = malloc(2 * (size_t)count * sizeof *ids);
    if (!ids) return vti_fail(err, VT_ERR_MEMORY, "no memory for %u tokens", count);
    for (uint32_t id = 0; id < count; id++) {
        if (vocabulary->types[id] == VTI_TOKEN_USER_DEFINED) ids[user_defined++] = id;
        if (vti_token_is_named(vocabulary->types[id])) ids[count + named++] = id;
    }
    vt_status status = vti_special_init(&tokenizer->user_defined, &vocabulary->bytes, ids,
                                        user_defined, err);
    if (status == VT_OK)
        status = vti_special_init(&tokenizer->named, &vocabulary->bytes, ids + count, named, err);
    free(ids);
    return status;
}

static vt_status open_gpt2(vti_tokenizer *tokenizer, const vt_gguf *gguf, const char *pre,
                           vt_error *err)
{
    VTI_TRY(vti_vocabulary_open(gguf, VTI_SPELLING_BYTE_LEVEL, &tokenizer->vocabulary, err));
    VTI_TRY(read_ids(tokenizer, gguf, err));
    VTI_TRY(
        vti_bpe_open(gguf, pre, &tokenizer->vocabulary, tokenizer->unknown, &tokenizer->bpe, err));
    return read_add_bos(tokenizer, gguf, vti_bpe_adds_bos(tokenizer->bpe), err);
}

static vt_status open_llama(vti_tokenizer *tokenizer, const vt_gguf *gguf, vt_error *err)
{
    VTI_TRY(vti_vocabulary_open(gguf, VTI_SPELLING_SPACE_MARK, &tokenizer->vocabulary, err));
    VTI_TRY(read_ids(tokenizer, gguf, err));
    VTI_TRY(vti_spm_open(gguf, &tokenizer->vocabulary, tokenizer->unknown, &tokenizer->spm, err));
    return read_add_bos(tokenizer, gguf, true, err);
}

static vt_status open_model(vti_tokenizer *tokenizer, const vt_gguf *gguf, const char *pre,
                            vt_error *err)
{
    vti_gguf_string model;
    VTI_TRY(vti_gguf_get_string(gguf, MODEL_KEY, true, &model, err));
    if (model.bytes == 4 && memcmp(model.data, "gpt2", 4) == 0)
        return open_gpt2(tokenizer, gguf, pre, err);
    if (pre)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "the pre-tokenizer \"%.48s\" was chosen, but only " MODEL_KEY
                        " \"gpt2\" has one and this is \"%.*s\"",
                        pre, (int)(model.bytes < 48 ? model.bytes : 48), model.data);
    if (model.bytes == 5 && memcmp(model.data, "llama", 5) == 0)
        return open_llama(tokenizer, gguf, err);
    return vti_fail(err, VT_ERR_UNSUPPORTED, MODEL_KEY " \"%.*s\" is not known; known: gpt2 llama",
                    (int)(model.bytes < 48 ? model.bytes : 48), model.data);
}

vt_status vti_tokenizer_open(const vt_gguf *gguf, const char *pre, vti_tokenizer **out,
                             vt_error *err)
{
    *out = NULL;
    vti_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) return vti_fail(err, VT_ERR_MEMORY, "no memory for the tokenizer");
    vt_status status = open_model(tokenizer, gguf, pre, err);
    if (status == VT_OK) status = collect_special(tokenizer, err);
    if (status != VT_OK) {
        vti_tokenizer_close(tokenizer);
        return status;
    }
    vti_strings_free(&tokenizer->vocabulary.texts); /* from here on `bytes` suffices */
    *out = tokenizer;
    return VT_OK;
}

void vti_tokenizer_close(vti_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    vti_bpe_close(tokenizer->bpe);
    vti_spm_close(tokenizer->spm);
    vti_special_free(&tokenizer->user_defined);
    vti_special_free(&tokenizer->named);
    vti_vocabulary_free(&tokenizer->vocabulary);
    free(tokenizer);
}

/* --- encoding -------------------------------------------------------------------------------- */

/* SentencePiece: at most a token per byte, and a space for each text behind a named token. */
size_t vti_tokenizer_bound(const vti_tokenizer *tokenizer, size_t text_bytes)
{
    size_t expansion = tokenizer->spm ? 2 : vti_bpe_expansion(tokenizer->bpe);
    return text_bytes <= (SIZE_MAX - 2) / expansion ? text_bytes * expansion + 2 : SIZE_MAX;
}

/* What one call works with: one of the two runs. */
typedef struct encode_call {
    const vti_tokenizer *tokenizer;
    vti_sink sink;
    vti_bpe_run *bpe;
    vti_spm_run *spm;
} encode_call;

static vt_status open_call(encode_call *call, size_t text_bytes, vt_error *err)
{
    const vti_tokenizer *tokenizer = call->tokenizer;
    if (text_bytes > TEXT_MAX)
        return vti_fail(err, VT_ERR_ARGUMENT, "text of %zu bytes, expected at most %zu", text_bytes,
                        TEXT_MAX);
    if (tokenizer->spm)
        return vti_spm_run_open(tokenizer->spm, text_bytes, &call->sink, &call->spm, err);
    return vti_bpe_run_open(tokenizer->bpe, text_bytes, &call->sink, &call->bpe, err);
}

/* `status` so far → of the call, and how many tokens the text has. */
static vt_status end_call(encode_call *call, vt_status status, size_t *count, vt_error *err)
{
    vti_bpe_run_close(call->bpe);
    vti_spm_run_close(call->spm);
    if (status != VT_OK) return status;
    *count = call->sink.count;
    if (call->sink.count > call->sink.capacity)
        return vti_fail(err, VT_ERR_ARGUMENT, "the text has %zu tokens, there is room for %zu",
                        call->sink.count, call->sink.capacity);
    return VT_OK;
}

static vt_status encode_text(encode_call *call, const char *text, size_t bytes, vt_error *err)
{
    return call->spm ? vti_spm_encode(call->spm, text, bytes, err)
                     : vti_bpe_encode(call->bpe, text, bytes, err);
}

/* Encodes named tokens and the texts between them. */
static vt_status encode_parts(encode_call *call, const char *text, size_t bytes, unsigned flags,
                              vt_error *err)
{
    const vti_tokenizer *tokenizer = call->tokenizer;
    const vti_special_set *set =
        flags & VT_TOKENIZE_SPECIAL ? &tokenizer->named : &tokenizer->user_defined;
    bool add_bos = flags & VT_TOKENIZE_BOS && tokenizer->add_bos;
    for (size_t i = 0; add_bos || i < bytes;) {
        vti_special_match match = vti_special_find(set, text, bytes, i);
        bool has_bos = i == 0 && match.start == 0 && match.id == tokenizer->bos;
        if (add_bos && !has_bos) vti_sink_put(&call->sink, tokenizer->bos);
        add_bos = false;
        VTI_TRY(encode_text(call, text + i, match.start - i, err));
        if (match.id != VTI_NO_ID) vti_sink_put(&call->sink, match.id);
        i = match.start + match.bytes;
    }
    return VT_OK;
}

vt_status vti_tokenizer_encode(const vti_tokenizer *tokenizer, const char *text, size_t text_bytes,
                               unsigned flags, vt_token *tokens, size_t capacity, size_t *count,
                               vt_error *err)
{
    *count = 0;
    if (flags & ~(unsigned)(VT_TOKENIZE_BOS | VT_TOKENIZE_SPECIAL))
        return vti_fail(err, VT_ERR_ARGUMENT, "tokenize flags 0x%X are not known", flags);
    encode_call call = {.tokenizer = tokenizer, .sink = {.tokens = tokens, .capacity = capacity}};
    vt_status status = open_call(&call, text_bytes, err);
    if (status == VT_OK) status = encode_parts(&call, text, text_bytes, flags, err);
    return end_call(&call, status, count, err);
}

/* Encodes all text up to `end` that was not encoded yet, then a token. */
static vt_status encode_up_to(encode_call *call, const char *text, size_t *done, size_t end,
                              uint32_t token, vt_error *err)
{
    VTI_TRY(encode_text(call, text + *done, end - *done, err));
    if (token != VTI_NO_ID) vti_sink_put(&call->sink, token);
    *done = end;
    return VT_OK;
}

/* Cuts at the named tokens of each part; text goes on over the seams. */
static vt_status encode_marked(encode_call *call, const char *text, const vti_part *parts,
                               size_t part_count, vt_error *err)
{
    const vti_tokenizer *tokenizer = call->tokenizer;
    size_t done = 0, at = 0;
    for (size_t i = 0; i < part_count; i++) {
        if (parts[i].kind == VTI_PART_TOKEN) {
            VTI_TRY(encode_up_to(call, text, &done, at, (uint32_t)parts[i].token, err));
            continue;
        }
        const vti_special_set *set =
            parts[i].kind == VTI_PART_TEMPLATE ? &tokenizer->named : &tokenizer->user_defined;
        size_t end = at + parts[i].bytes;
        for (;;) {
            vti_special_match match = vti_special_find(set, text, end, at);
            if (match.id == VTI_NO_ID) break;
            VTI_TRY(encode_up_to(call, text, &done, match.start, match.id, err));
            at = done = match.start + match.bytes;
        }
        at = end;
    }
    return encode_up_to(call, text, &done, at, VTI_NO_ID, err);
}

vt_status vti_tokenizer_encode_parts(const vti_tokenizer *tokenizer, const char *text,
                                     const vti_part *parts, size_t part_count, vt_token *tokens,
                                     size_t capacity, size_t *count, vt_error *err)
{
    size_t bytes = 0;
    *count = 0;
    for (size_t i = 0; i < part_count; i++)
        if (parts[i].kind != VTI_PART_TOKEN) bytes += parts[i].bytes;
    encode_call call = {.tokenizer = tokenizer, .sink = {.tokens = tokens, .capacity = capacity}};
    vt_status status = open_call(&call, bytes, err);
    if (status == VT_OK) status = encode_marked(&call, text, parts, part_count, err);
    return end_call(&call, status, count, err);
}

/* --- questions ------------------------------------------------------------------------------- */

static bool is_token(const vti_tokenizer *tokenizer, vt_token token)
{
    return token >= 0 && (uint32_t)token < tokenizer->vocabulary.bytes.count;
}

bool vti_tokenizer_adds_bos(const vti_tokenizer *tokenizer) { return tokenizer->add_bos; }

bool vti_tokenizer_is_spm(const vti_tokenizer *tokenizer) { return tokenizer->spm != NULL; }

uint32_t vti_tokenizer_size(const vti_tokenizer *tokenizer)
{
    return tokenizer->vocabulary.bytes.count;
}

const char *vti_tokenizer_bytes(const vti_tokenizer *tokenizer, vt_token token, size_t *bytes)
{
    *bytes = 0;
    if (!is_token(tokenizer, token)) return NULL;
    return vti_strings_get(&tokenizer->vocabulary.bytes, (uint32_t)token, bytes);
}

bool vti_tokenizer_is_control(const vti_tokenizer *tokenizer, vt_token token)
{
    if (!is_token(tokenizer, token)) return false;
    unsigned type = tokenizer->vocabulary.types[token];
    return type == VTI_TOKEN_CONTROL || type == VTI_TOKEN_UNKNOWN;
}

vt_token vti_tokenizer_bos(const vti_tokenizer *tokenizer) { return public_id(tokenizer->bos); }

vt_token vti_tokenizer_eos(const vti_tokenizer *tokenizer) { return public_id(tokenizer->eos); }

bool vti_tokenizer_is_stop(const vti_tokenizer *tokenizer, vt_token token)
{
    for (uint32_t i = 0; i < tokenizer->stop_count; i++)
        if (public_id(tokenizer->stops[i]) == token) return true;
    return false;
}
