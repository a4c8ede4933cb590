/* cmd_importance.c: measures on a text how much worse the model is without each of its parts. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "score.h"

typedef struct importance_options {
    cli_compute compute;
    vt_importance_params params;
    const char *text, *output;
    uint64_t tokens;
    bool json;
} importance_options;

/* Work that an earlier call has done says nothing about how long the rest takes. */
typedef struct work_progress {
    cli_progress line;
    bool begun;
    uint64_t before;
} work_progress;

static void report(void *user, const char *what, uint64_t done, uint64_t total)
{
    work_progress *p = user;
    if (!p->begun) {
        cli_progress_begin(&p->line);
        p->before = done;
        p->begun = true;
    }
    cli_progress_show(&p->line, what, done - p->before, total - p->before);
}

static bool cancelled(void *user)
{
    (void)user;
    return cli_interrupted() || cli_terminated();
}

/* --- results ---------------------------------------------------------------------------------- */

static int print_json(const vt_importance *importance, const vt_importance_stats *stats)
{
    json_t *units = json_array();
    vt_importance_unit unit;
    for (uint32_t i = 0; i < stats->units; i++) {
        if (vt_importance_get_unit(importance, i, &unit) != VT_OK) continue;
        json_array_append_new(units, json_pack("{s:s, s:f, s:i}", "unit", unit.name, "score",
                                               unit.score, "parts", (int)unit.parts));
    }
    json_t *object = json_pack("{s:f, s:I, s:I, s:I, s:I, s:o}", "perplexity", stats->perplexity,
                               "tokens", (json_int_t)stats->tokens, "windows",
                               (json_int_t)stats->windows, "runs", (json_int_t)stats->runs,
                               "resumed_runs", (json_int_t)stats->resumed_runs, "units", units);
    int written = object ? json_dumpf(object, stdout, JSON_REAL_PRECISION(9)) : -1;
    json_decref(object);
    putchar('\n');
    return written == 0 ? CLI_OK : cli_error(VT_ERR_IO, "cannot write the result");
}

static int print_table(const vt_importance *importance, const vt_importance_stats *stats,
                       const importance_options *o)
{
    vt_importance_unit unit;
    printf("%s: perplexity %.4f over %" PRIu64 " tokens; by how much it rises without a part\n",
           o->output, stats->perplexity, stats->tokens);
    printf("%-10s %12s   %s\n", "unit", "all parts", "least … most of one part");
    for (uint32_t i = 0; i < stats->units; i++) {
        if (vt_importance_get_unit(importance, i, &unit) != VT_OK) continue;
        printf("%-10s %12.4f   %.4f (%" PRIu32 ") … %.4f (%" PRIu32 ")\n", unit.name, unit.score,
               unit.least, unit.least_part, unit.most, unit.most_part);
    }
    return CLI_OK;
}

/* --- measuring -------------------------------------------------------------------------------- */

static int add_text(vt_importance *importance, const char *text, size_t bytes)
{
    const char *at = text, *end = text + bytes;
    vt_error err;
    while (at < end && !cli_interrupted()) {
        const char *document = at;
        size_t length = cli_next_document(&at, end);
        if (length && vt_importance_add(importance, document, length, &err) != VT_OK)
            return cli_fail(&err);
    }
    return CLI_OK;
}

static int measure(const importance_options *o, vt_importance *importance, work_progress *progress)
{
    vt_importance_stats stats;
    vt_error err;
    vt_status status = vt_importance_measure(importance, o->output, &err);
    cli_progress_end(&progress->line);
    if (status == VT_ERR_CANCELLED) {
        fprintf(stderr, "interrupted; the same command goes on from here (%s.progress)\n",
                o->output);
        return 130;
    }
    if (status != VT_OK) return cli_fail(&err);
    vt_importance_get_stats(importance, &stats);
    if (stats.resumed_runs && !o->json)
        printf("%" PRIu64 " of %" PRIu64 " runs were there from an earlier call\n",
               stats.resumed_runs, stats.runs);
    return o->json ? print_json(importance, &stats) : print_table(importance, &stats, o);
}

static int run_on_model(importance_options *o, const vt_model *model, const char *text,
                        size_t bytes)
{
    vt_importance *importance;
    vt_error err;
    work_progress progress = {.begun = false};
    o->params.context_tokens = o->compute.session.context_tokens;
    o->params.batch_tokens = o->compute.session.batch_tokens;
    o->params.kv_type = o->compute.session.kv_type;
    o->params.max_tokens = o->tokens;
    o->params.cancelled = cancelled;
    o->params.progress = (vt_progress){report, &progress};
    cli_catch_interrupts();
    if (vt_importance_open(model, &o->params, &importance, &err) != VT_OK) return cli_fail(&err);
    int code = add_text(importance, text, bytes);
    if (code == CLI_OK) code = measure(o, importance, &progress);
    vt_importance_close(importance);
    return code;
}

static int run_on_text(importance_options *o, const char *text, size_t bytes)
{
    cli_compute *c = &o->compute;
    int code;
    vt_model_params params = vt_model_params_default();
    params.threads = c->threads;
    params.memory_bytes = c->memory_bytes;
    params.pre_tokenizer = c->pre;
    params.precision = c->precision;
    params.log = cli_log(c->verbose);
    vt_model *model = cli_open_model(c->model_path, &params, &code);
    if (!model) return code;
    code = run_on_model(o, model, text, bytes);
    vt_model_close(model);
    return code;
}

static int run(int argc, char **argv)
{
    importance_options o = {.params = vt_importance_params_default()};
    cli_compute_init(&o.compute);
    const cli_option options[] = {
        {"text", 'f', CLI_STRING, &o.text, 0, 0, "FILE",
         "documents, separated by lines <|endoftext|>; - is stdin"},
        {"task", 0, CLI_STRING, &o.params.task, 0, 0, "NAME", "what the text is an example of"},
        {"output", 'o', CLI_STRING, &o.output, 0, 0, "FILE", "the file to write"},
        {"tokens", 0, CLI_U64, &o.tokens, 0, 0, "N", "measure on the first N tokens only"},
        {"units", 0, CLI_STRING, &o.params.units, 0, 0, "LIST",
         "only these, such as \"ATTN(0),FFN,HEAD\"; plans need all"},
        {"exact", 0, CLI_FLAG, &o.params.exact, 0, 0, NULL,
         "channel by channel instead of shard by shard; for small models"},
        {"json", 0, CLI_FLAG, &o.json, 0, 0, NULL, "print one JSON object"},
        CLI_MODEL_OPTIONS(o.compute),
        {0},
    };
    int code = cli_parse(&cli_importance, options, argc, argv, NULL, NULL);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    if (!o.text || !o.output || !o.params.task)
        return cli_error(CLI_USAGE, "importance needs --text FILE, --task NAME and -o FILE");
    vt_error err;
    if (vt_importance_check_path(o.output, &err) != VT_OK) return cli_fail(&err);
    size_t bytes;
    char *text = cli_read_file(o.text, CLI_TEXT_MAX, &bytes);
    if (!text) return VT_ERR_IO;
    code = run_on_text(&o, text, bytes);
    free(text);
    return code;
}

const cli_command cli_importance = {
    "importance",
    "Measure on a text how much each part of a model matters, for plans.",
    "importance [-m FILE] --text FILE --task NAME -o FILE [--exact]",
    run,
    "For every shard, the rise of the perplexity when it is left out: that takes about as long as "
    "\"ppl\" on the text, times half the number of shards. --tokens 2000 gives an idea, 20000 are "
    "good. Ctrl-C saves what was done so far to FILE.progress, from where the same command goes on.",
    "  voltron-run importance -m model.gguf --text a.txt --task notes -o notes.imp\n"
    "  voltron-run plan -m model.gguf --cluster home.json --importance notes.imp\n",
};
