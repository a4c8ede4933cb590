/* cmd_logits.c: logits of given tokens, for comparing implementations. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef struct logits_output {
    FILE *file;
    uint32_t vocabulary;
    bool failed;
} logits_output;

static bool write_row(void *user, uint32_t position, const float *logits)
{
    logits_output *out = user;
    (void)position;
    out->failed = fwrite(logits, sizeof *logits, out->vocabulary, out->file) != out->vocabulary;
    return !out->failed;
}

static int compute(cli_compute *c, const vt_token *ids, size_t count, const char *path)
{
    vt_model_info info;
    vt_error err;
    vt_model_get_info(c->model, &info);
    logits_output out = {fopen(path, "wb"), info.vocabulary_tokens, false};
    if (!out.file) return cli_error(VT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    cli_cancel_on_interrupt(c->handle);
    vt_status status = vt_session_feed_logits(c->handle, ids, count, write_row, &out, &err);
    if (fclose(out.file) != 0) out.failed = true;
    if (out.failed) return cli_error(VT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (status != VT_OK) {
        remove(path);
        return cli_fail(&err);
    }
    fprintf(stderr, "%zu x %" PRIu32 " logits in %s\n", count, info.vocabulary_tokens, path);
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    cli_compute c;
    const char *ids_path = NULL, *out_path = NULL;
    cli_compute_init(&c);
    const cli_option options[] = {
        {"ids", 'i', CLI_STRING, &ids_path, 0, 0, "FILE", "JSON array of token ids; - is stdin"},
        {"output", 'o', CLI_STRING, &out_path, 0, 0, "FILE",
         "float32, little-endian, positions x vocabulary"},
        CLI_COMPUTE_OPTIONS(c),
        {0},
    };
    int code = cli_parse(&cli_logits, options, argc, argv, NULL, NULL);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    if (!ids_path || !out_path) return cli_error(CLI_USAGE, "logits needs --ids and -o");
    size_t bytes, count = 0;
    char *text = cli_read_file(ids_path, &bytes);
    vt_token *ids = text ? cli_parse_ids(text, cli_path_name(ids_path), &count) : NULL;
    code = !text ? VT_ERR_IO : ids ? CLI_OK : VT_ERR_FORMAT;
    if (code == CLI_OK) code = cli_open_compute(&c);
    if (code == CLI_OK) {
        code = compute(&c, ids, count, out_path);
        cli_close_compute(&c);
    }
    free(ids);
    free(text);
    return code;
}

const cli_command cli_logits = {
    "logits",
    "Write the logits of given token ids at every position.",
    "logits [-m FILE] --ids FILE.json -o OUT.f32 [--kv f32] [--devices …]",
    run,
    "No BOS is added. --kv f32 keeps the KV cache exact.",
    "  voltron-run logits -m model.gguf --ids ids.json -o out.f32 --kv f32\n",
};
