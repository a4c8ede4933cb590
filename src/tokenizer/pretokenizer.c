/* The expressions are those of the published tokenizer.json files (Hugging Face "Split" and
 * "ByteLevel" pre-tokenizers), each applied to the pieces that the one before it left, matches and
 * the text between matches alike.
 *
 * \s is spelled out as Unicode's White_Space because PCRE2's \s also takes U+180E. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pretokenizer.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define WHITE "\\t-\\r\\x{85}\\p{Z}"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS " ?[^" WHITE "\\p{L}\\p{N}]+"
#define NEWLINES "[" WHITE "]*[\\r\\n]+"
#define SPACES "[" WHITE "]+(?![^" WHITE "])|[" WHITE "]+"

#define QWEN2                                                                                      \
    CONTRACTION "|" WORD "|\\p{N}|" SYMBOLS "[\\r\\n]*|" NEWLINES "|" SPACES
#define LLAMA3                                                                                     \
    CONTRACTION "|" WORD "|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" NEWLINES "|" SPACES
#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" SPACES
#define SEED_CODER                                                                                 \
    CONTRACTION "|" WORD "|\\p{N}| ?[^" WHITE "\\p{L}\\p{N}\\r\\n]+|" NEWLINES "|" SPACES

#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER     \
    "]*|\\p{N}|" SYMBOLS "[\\r\\n/]*|" NEWLINES "|" SPACES

#define PATTERNS_MAX 5

typedef struct family {
    const char *names; /* of tokenizer.ggml.pre, separated by spaces */
    const char *patterns[PATTERNS_MAX];
    vti_pretokenizer_traits traits;
} family;

static const family families[] = {
    {"qwen2 deepseek-r1-qwen", {QWEN2}, {.nfc = true}},
    {"megrez", {QWEN2}, {0}},
    {"llama-bpe llama-v3 llama3 falcon3 pixtral midm-2.0",
     {LLAMA3},
     {.ignore_merges = true, .add_bos = true}},
    {"smaug-bpe dbrx", {LLAMA3}, {0}},
    {"gpt-2 phi-2 olmo jais mellum trillion a.x-4.0", {GPT2}, {0}},
    {"smollm starcoder refact codeshell minerva-7b", {"\\p{N}", GPT2}, {0}},
    {"command-r", {"\\p{N}", GPT2}, {.nfc = true}},
    {"tekken", {TEKKEN}, {.ignore_merges = true, .add_bos = true}},
    {"seed-coder", {SEED_CODER}, {0}},
    {"deepseek-coder",
     {"[\\r\\n]", "[" WHITE "]?\\p{L}+", "[" WHITE "]?\\p{P}+",
      "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}"},
     {0}},
    {"default", {"[\\p{P}$+<=>\\^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, {0}},
};

#define FAMILY_COUNT (sizeof families / sizeof families[0])

struct vti_pretokenizer {
    const family *family;
    size_t pattern_count;
    pcre2_code *patterns[PATTERNS_MAX];
    pcre2_match_context *context;
};

struct vti_splitter {
    const vti_pretokenizer *pretokenizer;
    pcre2_match_data *match;
    vti_word_fn on_word;
    void *user;
};

static bool has_name(const char *names, const char *name, size_t name_bytes)
{
    while (*names) {
        size_t length = strcspn(names, " ");
        if (length == name_bytes && memcmp(names, name, length) == 0) return true;
        names += length;
        names += strspn(names, " ");
    }
    return false;
}

static vt_status fail_unknown(const char *name, size_t name_bytes, vt_error *err)
{
    char shown[49] = "", known[400] = "";
    for (size_t i = 0; i < name_bytes && i < sizeof shown - 1; i++)
        shown[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (i > 0) strncat(known, " ", sizeof known - strlen(known) - 1);
        strncat(known, families[i].names, sizeof known - strlen(known) - 1);
    }
    return vti_fail(err, VT_ERR_UNSUPPORTED,
                    "tokenizer.ggml.pre \"%s\" is not known; known, to be chosen with --pre: %s",
                    shown, known);
}

static vt_status compile(const char *pattern, pcre2_code **out, vt_error *err)
{
    int code;
    PCRE2_SIZE offset;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &code, &offset, NULL);
    if (!*out) {
        PCRE2_UCHAR reason[128];
        pcre2_get_error_message(code, reason, sizeof reason);
        return vti_fail(err, VT_ERR_INTERNAL, "pre-tokenizer expression: %s at %zu",
                        (const char *)reason, (size_t)offset);
    }
    /* Where code cannot be generated (no executable memory), pcre2_match interprets. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return VT_OK;
}

static vt_status compile_all(vti_pretokenizer *pretokenizer, vt_error *err)
{
    pretokenizer->context = pcre2_match_context_create(NULL);
    if (!pretokenizer->context)
        return vti_fail(err, VT_ERR_MEMORY, "no memory for the pre-tokenizer");
    /* None of the expressions backtracks more than linearly; long runs of spaces may do that. */
    pcre2_set_match_limit(pretokenizer->context, UINT32_MAX);
    pcre2_set_depth_limit(pretokenizer->context, UINT32_MAX);
    for (size_t i = 0; i < PATTERNS_MAX && pretokenizer->family->patterns[i]; i++) {
        VTI_TRY(compile(pretokenizer->family->patterns[i], &pretokenizer->patterns[i], err));
        pretokenizer->pattern_count++;
    }
    return VT_OK;
}

vt_status vti_pretokenizer_open(const char *name, size_t name_bytes, vti_pretokenizer **out,
                                vt_error *err)
{
    *out = NULL;
    const family *found = NULL;
    for (size_t i = 0; i < FAMILY_COUNT && !found; i++)
        if (has_name(families[i].names, name, name_bytes)) found = &families[i];
    if (!found) return fail_unknown(name, name_bytes, err);
    vti_pretokenizer *pretokenizer = calloc(1, sizeof *pretokenizer);
    if (!pretokenizer) return vti_fail(err, VT_ERR_MEMORY, "no memory for the pre-tokenizer");
    pretokenizer->family = found;
    vt_status status = compile_all(pretokenizer, err);
    if (status == VT_OK)
        *out = pretokenizer;
    else
        vti_pretokenizer_close(pretokenizer);
    return status;
}

void vti_pretokenizer_close(vti_pretokenizer *pretokenizer)
{
    if (!pretokenizer) return;
    for (size_t i = 0; i < PATTERNS_MAX; i++) pcre2_code_free(pretokenizer->patterns[i]);
    pcre2_match_context_free(pretokenizer->context);
    free(pretokenizer);
}

vti_pretokenizer_traits vti_pretokenizer_get_traits(const vti_pretokenizer *pretokenizer)
{
    return pretokenizer->family->traits;
}

vt_status vti_splitter_open(const vti_pretokenizer *pretokenizer, vti_splitter **out, vt_error *err)
{
    *out = NULL;
    vti_splitter *splitter = calloc(1, sizeof *splitter);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (!splitter || !match) {
        free(splitter);
        pcre2_match_data_free(match);
        return vti_fail(err, VT_ERR_MEMORY, "no memory to split text into words");
    }
    *splitter = (vti_splitter){.pretokenizer = pretokenizer, .match = match};
    *out = splitter;
    return VT_OK;
}

void vti_splitter_close(vti_splitter *splitter)
{
    if (!splitter) return;
    pcre2_match_data_free(splitter->match);
    free(splitter);
}

/* Finds the next match of pattern `level` at or after `from`: *start and *end, both `bytes` where
 * there is none. */
static vt_status find_match(vti_splitter *splitter, size_t level, const char *text, size_t bytes,
                            size_t from, size_t *start, size_t *end, vt_error *err)
{
    const vti_pretokenizer *pretokenizer = splitter->pretokenizer;
    const pcre2_code *code = pretokenizer->patterns[level];
    int result = pcre2_match(code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK,
                             splitter->match, pretokenizer->context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
        result = pcre2_match(code, (PCRE2_SPTR)text, bytes, from,
                             PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, splitter->match,
                             pretokenizer->context);
    *start = *end = bytes;
    if (result == PCRE2_ERROR_NOMATCH) return VT_OK;
    if (result == PCRE2_ERROR_NOMEMORY || result == PCRE2_ERROR_HEAPLIMIT)
        return vti_fail(err, VT_ERR_MEMORY, "no memory to split %zu bytes into words", bytes);
    if (result < 0) return vti_fail(err, VT_ERR_INTERNAL, "splitting words: PCRE2 says %d", result);
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(splitter->match);
    *start = bounds[0];
    *end = bounds[1];
    return VT_OK;
}

/* Splits by pattern `level` and hands the pieces to the next level. Depth: PATTERNS_MAX. */
static vt_status split(vti_splitter *splitter, size_t level, const char *text, size_t bytes,
                       vt_error *err)
{
    if (bytes == 0) return VT_OK;
    if (level == splitter->pretokenizer->pattern_count)
        return splitter->on_word(splitter->user, text, bytes, err);
    for (size_t from = 0; from < bytes;) {
        size_t start, end;
        VTI_TRY(find_match(splitter, level, text, bytes, from, &start, &end, err));
        VTI_TRY(split(splitter, level + 1, text + from, start - from, err));
        VTI_TRY(split(splitter, level + 1, text + start, end - start, err));
        if (end <= from) return vti_fail(err, VT_ERR_INTERNAL, "splitting words: empty match");
        from = end;
    }
    return VT_OK;
}

vt_status vti_splitter_run(vti_splitter *splitter, const char *text, size_t bytes,
                           vti_word_fn on_word, void *user, vt_error *err)
{
    splitter->on_word = on_word;
    splitter->user = user;
    return split(splitter, 0, text, bytes, err);
}
