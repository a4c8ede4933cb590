/* voltron-bench tokenize: how fast text becomes tokens, and whether that is linear in its length. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "options.h"
#include "voltron.h"

enum { PARTS = 4, MOST_REPEATS = 101 }; /* the shorter texts are a 4th of the longer ones */

typedef struct tokenize_options {
    const char *model, *text, *pre;
    uint32_t kilobytes, repeats;
    bool csv;
} tokenize_options;

/* --- texts ------------------------------------------------------------------------------------ */

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

static void fill_letter(char *text, size_t bytes) { memset(text, 'a', bytes); }

/* Of 1 to 10 letters: hardly any comes twice. */
static void fill_words(char *text, size_t bytes)
{
    uint32_t random = 1;
    for (size_t i = 0, left = 0; i < bytes; i++, left--) {
        if (left == 0) left = 2 + next_random(&random) % 10;
        text[i] = left == 1 ? ' ' : (char)('a' + next_random(&random) % 26);
    }
}

static void fill_bytes(char *text, size_t bytes)
{
    uint32_t random = 2;
    for (size_t i = 0; i < bytes; i++) text[i] = (char)next_random(&random);
}

static void fill_spaces(char *text, size_t bytes) { memset(text, ' ', bytes); }

static const struct {
    const char *name;
    void (*fill)(char *text, size_t bytes);
} made_texts[] = {
    {"one letter", fill_letter},
    {"spaces", fill_spaces},
    {"random words", fill_words},
    {"random bytes", fill_bytes},
};

/* --- measuring -------------------------------------------------------------------------------- */

typedef struct speed {
    double seconds; /* median */
    size_t tokens;
} speed;

static int measure(const vt_model *model, const char *text, size_t bytes, uint32_t repeats,
                   speed *out)
{
    size_t capacity = vt_tokenize_bound(model, bytes);
    vt_token *tokens = malloc(capacity * sizeof *tokens);
    double seconds[MOST_REPEATS];
    vt_error err = {.message = "no memory for the tokens"};
    vt_status status = tokens ? VT_OK : VT_ERR_MEMORY;
    for (uint32_t i = 0; i < repeats && status == VT_OK; i++) {
        double start = bench_now();
        status = vt_tokenize(model, text, bytes, 0, tokens, capacity, &out->tokens, &err);
        seconds[i] = bench_now() - start;
    }
    free(tokens);
    if (status != VT_OK) return bench_error((int)status, "%s", err.message);
    out->seconds = bench_median(seconds, repeats);
    return VT_OK;
}

/* One line: the whole text, and how much longer it takes per byte than its first quarter. */
static int show(const vt_model *model, const tokenize_options *o, const char *name,
                const char *text, size_t bytes)
{
    speed part, whole;
    int code = measure(model, text, bytes / PARTS, o->repeats, &part);
    if (code == VT_OK) code = measure(model, text, bytes, o->repeats, &whole);
    if (code != VT_OK) return code;
    double rate = (double)bytes / whole.seconds * 1e-6;
    double growth = whole.seconds / (double)bytes / (part.seconds / (double)(bytes / PARTS));
    printf(o->csv ? "%s,%zu,%zu,%.3f,%.3f\n" : "%-14s %10zu %10zu %8.1f %10.2f\n", name, bytes,
           whole.tokens, rate, growth);
    return VT_OK;
}

static int show_file(const vt_model *model, const tokenize_options *o)
{
    FILE *file = fopen(o->text, "rb");
    if (!file) return bench_error(VT_ERR_IO, "%s: cannot be opened", o->text);
    size_t room = (size_t)o->kilobytes * 1024;
    char *text = malloc(room);
    size_t bytes = text ? fread(text, 1, room, file) : 0;
    bool failed = ferror(file) != 0;
    fclose(file);
    int code = VT_OK;
    if (!text)
        code = bench_error(VT_ERR_MEMORY, "no memory for a text");
    else if (failed || bytes < PARTS)
        code = bench_error(VT_ERR_IO, "%s: has no text that can be read", o->text);
    else
        code = show(model, o, "the file", text, bytes);
    free(text);
    return code;
}

static int show_all(const vt_model *model, const tokenize_options *o)
{
    size_t bytes = (size_t)o->kilobytes * 1024;
    char *text = malloc(bytes);
    int code = VT_OK;
    if (!text) return bench_error(VT_ERR_MEMORY, "no memory for a text");
    printf(o->csv ? "%s,%s,%s,%s,%s\n" : "%-14s %10s %10s %8s %10s\n", "text", "bytes", "tokens",
           "MB/s", "growth");
    if (o->text) code = show_file(model, o);
    for (size_t i = 0; i < sizeof made_texts / sizeof *made_texts && code == VT_OK; i++) {
        made_texts[i].fill(text, bytes);
        code = show(model, o, made_texts[i].name, text, bytes);
    }
    free(text);
    return code;
}

int bench_tokenize(int argc, char **argv)
{
    tokenize_options o = {.kilobytes = 1024, .repeats = 5};
    const bench_option options[] = {
        {"-m", BENCH_TEXT, &o.model, 0, 0, "FILE", "GGUF file, with weights or without"},
        {"--text", BENCH_TEXT, &o.text, 0, 0, "FILE", "a text of one's own, too"},
        {"--pre", BENCH_TEXT, &o.pre, 0, 0, "NAME", "pre-tokenizer instead of the file's"},
        {"-k", BENCH_U32, &o.kilobytes, 1, 1 << 20, "N", "KiB of a text (1024)"},
        {"-r", BENCH_U32, &o.repeats, 1, MOST_REPEATS, "N", "runs; the median counts (5)"},
        {"--csv", BENCH_FLAG, &o.csv, 0, 0, NULL, "as CSV"},
        {0},
    };
    static const char more[] =
        "growth: time per byte of the whole text over that of its first quarter; 1 is linear.\n";
    int code = bench_parse(options, argc, argv, "how fast text becomes tokens, on one core", more);
    if (code != VT_OK) return code < 0 ? 0 : code;
    if (!o.model) return bench_error(VT_ERR_ARGUMENT, "tokenize needs -m; see --help");
    vt_model_params params = vt_model_params_default();
    params.vocabulary_only = true;
    params.pre_tokenizer = o.pre;
    vt_model *model;
    vt_error err;
    vt_status status = vt_model_open(o.model, &params, &model, &err);
    if (status != VT_OK) return bench_error((int)status, "%s", err.message);
    code = show_all(model, &o);
    vt_model_close(model);
    return code;
}
