/* cmd_tokenize.c: text to token ids and back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef struct tokenize_options {
    const char *model_path, *pre, *text, *file;
    bool decode, bos, special, pieces;
} tokenize_options;

static void print_piece(const vt_model *model, vt_token token)
{
    size_t bytes;
    const char *data = vt_token_bytes(model, token, &bytes);
    printf("%8" PRId32 "  \"", token);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c == '\n')
            fputs("\\n", stdout);
        else if (c < 32 || c == 127)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    puts("\"");
}

static int encode(const vt_model *model, const tokenize_options *o, const char *text, size_t bytes)
{
    size_t capacity = vt_tokenize_bound(model, bytes), count;
    vt_token *ids = malloc((capacity + 1) * sizeof *ids);
    vt_error err;
    unsigned flags = (o->bos ? VT_TOKENIZE_BOS : 0) | (o->special ? VT_TOKENIZE_SPECIAL : 0);
    if (!ids) return cli_error(VT_ERR_MEMORY, "no memory for %zu tokens", capacity);
    vt_status status = vt_tokenize(model, text, bytes, flags, ids, capacity, &count, &err);
    if (status == VT_OK && o->pieces) {
        for (size_t i = 0; i < count; i++) print_piece(model, ids[i]);
    } else if (status == VT_OK) {
        putchar('[');
        for (size_t i = 0; i < count; i++) printf("%s%" PRId32, i ? "," : "", ids[i]);
        puts("]");
    }
    free(ids);
    return status == VT_OK ? CLI_OK : cli_fail(&err);
}

static int decode(const vt_model *model, const char *text, size_t bytes_in, const char *source)
{
    size_t count;
    vt_token *ids = cli_parse_ids(text, bytes_in, source, &count);
    if (!ids) return VT_ERR_FORMAT;
    int code = CLI_OK;
    for (size_t i = 0; i < count && code == CLI_OK; i++) {
        size_t bytes;
        const char *data = vt_token_bytes(model, ids[i], &bytes);
        if (data)
            fwrite(data, 1, bytes, stdout);
        else
            code = cli_error(VT_ERR_ARGUMENT, "token %zu is %" PRId32 ": not in the vocabulary", i,
                             ids[i]);
    }
    free(ids);
    return code;
}

static int convert(const tokenize_options *o)
{
    int code;
    vt_model_params params = vt_model_params_default();
    params.vocabulary_only = true;
    params.pre_tokenizer = o->pre;
    vt_model *model = cli_open_model(o->model_path, &params, &code);
    if (!model) return code;
    const char *source = o->text ? "--prompt" : cli_path_name(o->file ? o->file : "-");
    size_t bytes = 0;
    char *text = o->text ? strdup(o->text)
                         : cli_read_file(o->file ? o->file : "-", CLI_TEXT_MAX, &bytes);
    if (o->text && text) bytes = strlen(text);
    if (!text)
        code = VT_ERR_IO;
    else if (o->decode)
        code = decode(model, text, bytes, source);
    else
        code = encode(model, o, text, bytes);
    free(text);
    vt_model_close(model);
    return code;
}

static int run(int argc, char **argv)
{
    tokenize_options o = {0};
    const cli_option options[] = {
        {"model", 'm', CLI_STRING, &o.model_path, 0, 0, "FILE",
         "GGUF file, with weights or without (default: the story model)"},
        {"pre", 0, CLI_STRING, &o.pre, 0, 0, "NAME",
         "pre-tokenizer, such as qwen2, instead of the one the file names"},
        {"prompt", 'p', CLI_STRING, &o.text, 0, 0, "TEXT", "the text (default: standard input)"},
        {"file", 'f', CLI_STRING, &o.file, 0, 0, "FILE", "the same from a file"},
        {"decode", 0, CLI_FLAG, &o.decode, 0, 0, NULL,
         "the input is token ids, JSON or separated by blanks; print their text"},
        {"bos", 0, CLI_FLAG, &o.bos, 0, 0, NULL, "put BOS first if the model wants one"},
        {"special", 0, CLI_FLAG, &o.special, 0, 0, NULL, "recognise control tokens in the text"},
        {"pieces", 0, CLI_FLAG, &o.pieces, 0, 0, NULL, "one line per token with its text"},
        {0},
    };
    int code = cli_parse(&cli_tokenize, options, argc, argv, NULL, NULL);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    return convert(&o);
}

const cli_command cli_tokenize = {
    "tokenize",
    "Show the token ids of a text, or the text of token ids.",
    "tokenize [-m FILE] [-p TEXT] [--decode]",
    run,
    NULL,
    "  voltron-run tokenize -p \"Once upon a time\"\n"
    "  voltron-run tokenize -p \"Once upon a time\" | voltron-run tokenize --decode\n",
};
