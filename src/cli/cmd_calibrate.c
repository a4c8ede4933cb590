/* cmd_calibrate.c: measures on a text which input channels of the weights matter. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "score.h"

/* A long run should not fail at its very end. */
static int check_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (!folder) return cli_error(VT_ERR_MEMORY, "no memory");
    int code = CLI_OK;
    if (access(folder, W_OK) != 0)
        code = cli_error(VT_ERR_IO, "cannot write %s: %s: %s", path, folder, strerror(errno));
    free(folder);
    return code;
}

static int report(const vt_calibration *calibration, const cli_score *score, const char *path,
                  bool json)
{
    vt_calibration_stats stats;
    vt_calibration_get_stats(calibration, &stats);
    if (json) {
        printf("{\"tokens\": %" PRIu64 ", \"inputs\": %" PRIu32 ", \"unseen\": %" PRIu32
               ", \"perplexity\": %.6f}\n",
               stats.tokens, stats.inputs, stats.unseen, exp(score->mean_nll));
        return CLI_OK;
    }
    printf("%s: %" PRIu32 " inputs of matrices over %" PRIu64 " tokens (perplexity %.4f)\n", path,
           stats.inputs, stats.tokens, exp(score->mean_nll));
    if (stats.unseen)
        printf("  %" PRIu32 " inputs of experts were never used: a longer text would help\n",
               stats.unseen);
    return CLI_OK;
}

static int calibrate(cli_compute *c, const char *text, size_t bytes, const char *path, bool json)
{
    vt_calibration *calibration;
    vt_error err;
    cli_score score;
    if (vt_calibration_open(c->handle, &calibration, &err) != VT_OK) return cli_fail(&err);
    int code = cli_score_text(c, text, bytes, "calibrating", &score);
    if (code == CLI_OK && vt_calibration_save(calibration, path, &err) != VT_OK)
        code = cli_fail(&err);
    if (code == CLI_OK) code = report(calibration, &score, path, json);
    vt_calibration_close(calibration);
    return code;
}

static int run(int argc, char **argv)
{
    cli_compute c;
    const char *text_path = NULL, *output = NULL;
    bool json = false;
    cli_compute_init(&c);
    const cli_option options[] = {
        {"text", 'f', CLI_STRING, &text_path, 0, 0, "FILE",
         "documents, separated by lines <|endoftext|>; - is stdin"},
        {"output", 'o', CLI_STRING, &output, 0, 0, "FILE", "the calibration file to write"},
        {"json", 0, CLI_FLAG, &json, 0, 0, NULL, "print one JSON object"},
        CLI_MODEL_OPTIONS(c),
        {0},
    };
    int code = cli_parse(&cli_calibrate, options, argc, argv, NULL, NULL);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    if (!text_path || !output)
        return cli_error(CLI_USAGE, "calibrate needs --text FILE and -o FILE");
    code = check_folder(output);
    if (code != CLI_OK) return code;
    vt_error err;
    if (vt_calibration_check_path(output, &err) != VT_OK) return cli_fail(&err);
    size_t bytes;
    char *text = cli_read_file(text_path, CLI_TEXT_MAX, &bytes);
    if (!text) return VT_ERR_IO;
    code = cli_open_compute(&c);
    if (code == CLI_OK) {
        code = calibrate(&c, text, bytes, output, json);
        cli_close_compute(&c);
    }
    free(text);
    return code;
}

const cli_command cli_calibrate = {
    "calibrate",
    "Measure on a text which weights matter, for better rounding by pack.",
    "calibrate [-m FILE] --text FILE -o FILE [--context N]",
    run,
    "Runs the model over the text and writes, for every matrix, the mean squares of the "
    "activations that its columns are multiplied with. Take a text of the kind that the model shall "
    "be used for; of a mixture of experts one that is long enough for every expert to be used.",
    "  voltron-run calibrate -m model.gguf --text examples.txt -o model.cal\n",
};
