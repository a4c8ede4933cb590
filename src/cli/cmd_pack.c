/* cmd_pack.c: a model becomes a shard store. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "inspect.h"

typedef struct pack_options {
    const char *output, *precisions, *calibration;
    uint32_t threads;
    bool json, verbose;
} pack_options;

static bool cancelled(void *user)
{
    (void)user;
    return cli_interrupted();
}

/* "F16,I4" → bits; 0 for NULL. */
static int parse_precisions(const char *text, uint32_t *out)
{
    *out = 0;
    while (text && *text) {
        size_t bytes = strcspn(text, ",");
        uint32_t bit = 0;
        for (int p = 0; p < VT_PRECISION_COUNT; p++) {
            const char *name = vt_precision_name((vt_precision)p);
            if (strlen(name) == bytes && strncasecmp(name, text, bytes) == 0) bit = 1u << p;
        }
        if (!bit)
            return cli_error(CLI_USAGE, "--precision: \"%.*s\" is not one of F16, I8, I4",
                             (int)bytes, text);
        *out |= bit;
        text += bytes;
        if (*text == ',' && !*++text) return cli_error(CLI_USAGE, "--precision ends with a comma");
    }
    return CLI_OK;
}

static int tell(const pack_options *o, double seconds)
{
    vt_store *store;
    vt_store_info info;
    vt_error err;
    if (vt_store_open(o->output, &store, &err) != VT_OK) return cli_fail(&err);
    vt_store_get_info(store, &info);
    vt_store_close(store);
    if (o->json) {
        json_t *object = json_pack("{s:s, s:I, s:f, s:o}", "file", o->output, "file_bytes",
                                   (json_int_t)info.file_bytes, "seconds", seconds, "precisions",
                                   cli_precisions_json(info.precision));
        int written = object ? json_dumpf(object, stdout, JSON_INDENT(1)) : -1;
        json_decref(object);
        putchar('\n');
        return written == 0 ? CLI_OK : cli_error(VT_ERR_IO, "cannot write the result");
    }
    printf("%s: %s in %.1f s", o->output, cli_bytes(info.file_bytes), seconds);
    for (int p = 0; p < VT_PRECISION_COUNT; p++)
        if (info.precision[p].count)
            printf("; %s %s", vt_precision_name((vt_precision)p),
                   cli_bytes(info.precision[p].stored_bytes));
    putchar('\n');
    return CLI_OK;
}

static int pack(const char *path, const pack_options *o)
{
    vt_pack_params params = vt_pack_params_default();
    vt_model_params model_params = vt_model_params_default();
    vt_model *model;
    vt_error err;
    cli_progress progress;
    int code = parse_precisions(o->precisions, &params.precisions);
    if (code != CLI_OK) return code;
    model_params.threads = 1;
    model_params.log = params.log = cli_log(o->verbose);
    model = cli_open_model(path, &model_params, &code);
    if (!model) return code;
    params.threads = o->threads;
    params.calibration_path = o->calibration;
    params.cancelled = cancelled;
    params.progress = cli_progress_callback(&progress);
    cli_catch_interrupts();
    cli_progress_begin(&progress);
    uint64_t start = cli_now_ns();
    vt_status status = vt_pack(model, o->output, &params, &err);
    cli_progress_end(&progress);
    vt_model_close(model);
    if (status == VT_ERR_CANCELLED) return 130;
    if (status != VT_OK) return cli_fail(&err);
    return tell(o, (double)(cli_now_ns() - start) / 1e9);
}

static int run(int argc, char **argv)
{
    pack_options o = {0};
    const char *path = NULL;
    int count = 1;
    const cli_option options[] = {
        {"output", 'o', CLI_STRING, &o.output, 0, 0, "FILE", "the store to write (NAME.vts)"},
        {"precision", 0, CLI_STRING, &o.precisions, 0, 0, "F16,I8,I4",
         "which of them (default: all that the model offers)"},
        {"calibration", 0, CLI_STRING, &o.calibration, 0, 0, "FILE",
         "what \"calibrate\" measured, for better rounding"},
        {"threads", 'T', CLI_U32, &o.threads, 1, 256, "N",
         "threads that quantise and compress (default: one per big core)"},
        {"json", 0, CLI_FLAG, &o.json, 0, 0, NULL, "print one JSON object"},
        {"verbose", 'v', CLI_FLAG, &o.verbose, 0, 0, NULL, "say more on stderr"},
        {0},
    };
    int code = cli_parse(&cli_pack, options, argc, argv, &path, &count);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    if (!o.output) return cli_error(CLI_USAGE, "pack needs -o FILE");
    return pack(count ? path : NULL, &o);
}

const cli_command cli_pack = {
    "pack",
    "Write a model as a shard store: every piece, loadable alone.",
    "pack [FILE.gguf] -o FILE.vts [--precision F16,I8,I4]",
    run,
    "Without FILE the small story model in this program is packed. The store appears whole or not "
    "at all; one of that name is replaced, any other file is not.",
    "  voltron-run pack model.gguf -o model.vts\n"
    "  voltron-run pack model.gguf -o small.vts --precision I4\n",
};
