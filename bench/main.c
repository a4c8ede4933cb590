/* voltron-bench: measurements of this machine. Each command lives in its own file. */
#include <stdio.h>
#include <string.h>

#include "bench.h"

static const struct {
    const char *name;
    bench_command *run;
    const char *summary;
} commands[] = {
    {"kernels", bench_kernels, "time, GB/s and multiply-accumulates per cycle of every kernel"},
    {"link", bench_link, "what a probe says of loopback, against plain sockets"},
    {"plan", bench_plan, "how long the planner takes, and how good its plans are"},
    {"predict", bench_predict, "TTFT and TPOT as the planner predicts them, and as they are"},
    {"run", bench_run, "prefill and decode speed of a model, against the read bandwidth"},
    {"synth", bench_synth, "a model file of a published shape with random weights"},
    {"tokenize", bench_tokenize, "how fast text becomes tokens"},
    {"store", bench_store, "size and load speed of a shard store"},
    {"swap", bench_swap, "what a token costs while the model's precision changes"},
    {"requantize", bench_requantize, "a model file with its matrices in another weight type"},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static int usage(FILE *to)
{
    fprintf(to, "voltron-bench COMMAND [OPTION ...]     COMMAND --help says more\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return usage(stdout);
    for (size_t i = 0; argc > 1 && i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    if (argc > 1) fprintf(stderr, "voltron-bench: there is no command '%s'\n", argv[1]);
    return usage(stderr);
}
