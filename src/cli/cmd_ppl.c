/* cmd_ppl.c: perplexity of a text. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "score.h"

static int measure(cli_compute *c, const char *text, size_t bytes, bool json)
{
    cli_score score;
    int code = cli_score_text(c, text, bytes, "perplexity", &score);
    if (code != CLI_OK) return code;
    if (json)
        printf("{\"perplexity\": %.6f, \"tokens\": %" PRIu64 ", \"nll\": %.6f}\n",
               exp(score.mean_nll), score.tokens, score.mean_nll);
    else
        printf("perplexity %.4f over %" PRIu64 " tokens\n", exp(score.mean_nll), score.tokens);
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    cli_compute c;
    const char *path = NULL;
    bool json = false;
    cli_compute_init(&c);
    const cli_option options[] = {
        {"text", 'f', CLI_STRING, &path, 0, 0, "FILE",
         "documents, separated by lines <|endoftext|>; - is stdin"},
        {"json", 0, CLI_FLAG, &json, 0, 0, NULL, "print one JSON object"},
        CLI_COMPUTE_OPTIONS(c),
        {0},
    };
    int code = cli_parse(&cli_ppl, options, argc, argv, NULL, NULL);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    if (!path) return cli_error(CLI_USAGE, "ppl needs --text FILE");
    size_t bytes;
    char *text = cli_read_file(path, CLI_TEXT_MAX, &bytes);
    if (!text) return VT_ERR_IO;
    code = cli_open_compute(&c);
    if (code == CLI_OK) {
        code = measure(&c, text, bytes, json);
        cli_close_compute(&c);
    }
    free(text);
    return code;
}

const cli_command cli_ppl = {
    "ppl",
    "Measure how well the model predicts a text: perplexity per token.",
    "ppl [-m FILE] --text FILE [--context N] [--devices …]",
    run,
    "Every document and every window of --context tokens (default: the model's context, at most "
    "4096) begins with BOS; BOS itself is not scored.",
    "  voltron-run ppl --text heldout.txt --context 256\n",
};
