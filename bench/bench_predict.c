/* voltron-bench predict: TTFT and TPOT as the planner predicts them, and as they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "options.h"
#include "predict.h"

enum { LIST_MOST = 16 };

typedef struct predict_options {
    const char *models, *profile, *precisions, *contexts;
    uint32_t processes, decode, repeats;
    bool csv;
} predict_options;

typedef struct predict_state {
    predict_options o;
    vti_profile profile;
    vti_plan_link link; /* of the workers that were started last */
    predict_row *rows;
    size_t count;
    char *names[LIST_MOST]; /* of models, in o.models' copy */
    uint32_t contexts[LIST_MOST];
    size_t name_count, context_count;
} predict_state;

static int fail(const vt_error *err) { return bench_error((int)err->status, "%s", err->message); }

/* --- options ----------------------------------------------------------------------------------- */

static int read_profile(const char *path, vti_profile *out)
{
    vt_error err;
    static char text[65536];
    FILE *file = fopen(path, "rb");
    if (!file) return bench_error(VT_ERR_IO, "%s cannot be read", path);
    size_t bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    return vti_profile_read_json(text, bytes, out, &err) == VT_OK ? VT_OK : fail(&err);
}

static int read_lists(predict_state *s)
{
    char *models = strdup(s->o.models);
    if (!models) return bench_error(VT_ERR_MEMORY, "no memory");
    for (char *at = models, *name; (name = strsep(&at, ",")) && s->name_count < LIST_MOST;)
        s->names[s->name_count++] = name;
    for (const char *at = s->o.contexts; *at;) {
        char *end;
        unsigned long value = strtoul(at, &end, 10);
        if (end == at || (*end && *end != ',') || value < 1 || value > 1 << 17 ||
            s->context_count == LIST_MOST)
            return bench_error(VT_ERR_ARGUMENT,
                               "--contexts: \"%s\" is not a list of at most %d numbers", at,
                               LIST_MOST);
        s->contexts[s->context_count++] = (uint32_t)value;
        at = *end ? end + 1 : end;
    }
    return VT_OK;
}

/* --- alternatives ------------------------------------------------------------------------------ */

/* Shares of the layers in sixths: all here, halves either way and in thirds, none here. */
static const unsigned placements[][PREDICT_PROCESSES] = {
    {6, 0, 0}, {3, 3, 0}, {5, 1, 0}, {0, 6, 0}, {2, 2, 2}, {4, 1, 1},
};

enum { PLACEMENTS = sizeof placements / sizeof *placements };

static bool place(const unsigned *sixths, uint32_t layers, unsigned most_processes,
                  predict_row *row)
{
    uint32_t placed = 0;
    unsigned sum = 0;
    row->processes = 0;
    for (unsigned i = 0; i < PREDICT_PROCESSES; i++) {
        sum += sixths[i];
        row->layers[i] = layers * sum / 6 - placed;
        placed += row->layers[i];
        if (sixths[i]) row->processes = i + 1;
        if (sixths[i] && !row->layers[i]) return false;
    }
    return row->processes <= most_processes;
}

static void print_row(const predict_state *s, const predict_row *r)
{
    char layers[64];
    int at = snprintf(layers, sizeof layers, "%u", r->layers[0]);
    for (unsigned i = 1; i < r->processes; i++)
        at += snprintf(layers + at, sizeof layers - (size_t)at, "+%u", r->layers[i]);
    const char *name = strrchr(r->model, '/');
    printf(s->o.csv ? "%s,%s,%u,%s,%u,%.2f,%.2f,%.1f,%.3f,%.3f,%.1f\n"
                    : "%-24.24s %-3s %7u  %-8s %7u %9.2f %9.2f %+6.1f %9.3f %9.3f %+6.1f\n",
           name ? name + 1 : r->model, r->precision, r->threads, layers, r->context,
           1e3 * r->ttft, 1e3 * r->ttft_predicted, 100 * (r->ttft_predicted / r->ttft - 1),
           1e3 * r->tpot, 1e3 * r->tpot_predicted, 100 * (r->tpot_predicted / r->tpot - 1));
    fflush(stdout);
}

static int measure_rows(predict_state *s, const predict_case *c, const predict_workers *workers,
                        predict_row row)
{
    vt_error err;
    vt_model_info info;
    vt_model_get_info(c->model, &info);
    for (unsigned p = 0; p < PLACEMENTS; p++) {
        if (!place(placements[p], info.layers, s->o.processes, &row)) continue;
        for (size_t i = 0; i < s->context_count && s->count < PREDICT_MOST; i++) {
            row.context = s->contexts[i];
            if (row.context + c->decode_tokens + 2 > info.context_tokens) continue;
            if (predict_by_plan(c, &row, &err) != VT_OK) return fail(&err);
            if (predict_by_running(c, workers, &row, &err) != VT_OK) return fail(&err);
            s->rows[s->count++] = row;
            print_row(s, &row);
        }
    }
    return VT_OK;
}

/* A precision that the file does not have is left out. */
static int measure_precision(predict_state *s, const predict_workers *workers, const char *path,
                             vt_precision precision)
{
    vt_error err;
    vt_model_params params = vt_model_params_default();
    predict_case c = {.profile = &s->profile, .link = s->link, .precision = precision,
                      .decode_tokens = s->o.decode, .repeats = s->o.repeats};
    predict_row row = {.model = path, .precision = vt_precision_name(precision),
                       .threads = s->profile.threads};
    params.threads = s->profile.threads;
    params.precision = row.precision;
    vt_status status = vt_model_open(path, &params, &c.model, &err);
    if (status == VT_ERR_ARGUMENT) return VT_OK;
    if (status != VT_OK) return fail(&err);
    int code = measure_rows(s, &c, workers, row);
    vt_model_close(c.model);
    return code;
}

static int measure_models(predict_state *s)
{
    int code = VT_OK;
    for (size_t m = 0; m < s->name_count && code == VT_OK; m++) {
        predict_workers workers;
        if (!predict_workers_start(&workers, s->o.processes - 1, s->profile.threads, s->names[m]))
            return VT_ERR_NETWORK;
        if (workers.count && !predict_measure_link(&workers, &s->link)) code = VT_ERR_NETWORK;
        for (unsigned p = 0; p < VT_PRECISION_COUNT && code == VT_OK; p++)
            if (strstr(s->o.precisions, vt_precision_name(p)))
                code = measure_precision(s, &workers, s->names[m], p);
        predict_workers_stop(&workers);
    }
    return code;
}

static int run(predict_state *s)
{
    if (!s->o.models || !s->o.profile)
        return bench_error(VT_ERR_ARGUMENT, "predict needs -m and --profile; see --help");
    int code = read_profile(s->o.profile, &s->profile);
    if (code == VT_OK) code = read_lists(s);
    if (code != VT_OK) return code;
    printf(s->o.csv ? "%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s\n"
                    : "%-24s %-3s %7s  %-8s %7s %9s %9s %6s %9s %9s %6s\n",
           "model", "at", "threads", "layers", "context", "TTFT ms", "predicted", "%", "TPOT ms",
           "predicted", "%");
    code = measure_models(s);
    if (code != VT_OK || s->count == 0) return code;
    predict_summary sum = predict_sum_up(s->rows, s->count);
    printf("%smean error: TTFT %.1f %%, TPOT %.1f %%; order of alternatives right in %u of %u pairs "
           "(%.1f %%)\n", s->o.csv ? "# " : "\n", 100 * sum.ttft_error, 100 * sum.tpot_error,
           sum.right, sum.pairs, sum.pairs ? 100.0 * sum.right / sum.pairs : 100.0);
    return VT_OK;
}

int bench_predict(int argc, char **argv)
{
    predict_state s = {.o = {.precisions = "F16,I8,I4", .contexts = "64,512", .processes = 3,
                             .decode = 32, .repeats = 3}};
    const bench_option options[] = {
        {"-m", BENCH_TEXT, &s.o.models, 0, 0, "FILE,…", "models"},
        {"--profile", BENCH_TEXT, &s.o.profile, 0, 0, "FILE",
         "of this machine, from voltron-run profile -o FILE; its threads are used"},
        {"--precisions", BENCH_TEXT, &s.o.precisions, 0, 0, "LIST", "default F16,I8,I4"},
        {"--contexts", BENCH_TEXT, &s.o.contexts, 0, 0, "LIST", "tokens of the prompt (64,512)"},
        {"--processes", BENCH_U32, &s.o.processes, 1, PREDICT_PROCESSES, "N",
         "layers are split over up to so many (3)"},
        {"-n", BENCH_U32, &s.o.decode, 1, 4096, "N", "tokens of the answer (32)"},
        {"-r", BENCH_U32, &s.o.repeats, 1, PREDICT_REPEATS, "N", "repeats; the median counts (3)"},
        {"--csv", BENCH_FLAG, &s.o.csv, 0, 0, NULL, "as CSV"},
        {0},
    };
    static const char more[] =
        "Alternatives are the precisions and placements of one model at one context; pairs count\n"
        "whose measured times differ by more than a tenth, by TTFT and by TPOT.\n";
    int code = bench_parse(options, argc, argv, "TTFT and TPOT, predicted and measured", more);
    if (code != 0) return code < 0 ? 0 : code;
    s.rows = malloc(PREDICT_MOST * sizeof *s.rows);
    code = s.rows ? run(&s) : bench_error(VT_ERR_MEMORY, "no memory for the results");
    free(s.rows);
    free(s.names[0]);
    return code;
}
