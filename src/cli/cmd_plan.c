/* cmd_plan.c: what would run where on a cluster that a file describes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

typedef struct plan_options {
    vt_plan_params params;
    const char *model, *cluster, *given, *save, *svg;
    float ttft_s, tpot_ms;
    bool json, compare;
} plan_options;

/* --- files ------------------------------------------------------------------------------------ */

static char *plan_text(const vt_plan *plan, vt_plan_form form)
{
    size_t bytes = vt_plan_text(plan, form, NULL, 0);
    char *text = bytes ? malloc(bytes + 1) : NULL;
    if (text) vt_plan_text(plan, form, text, bytes + 1);
    return text;
}

static int write_file(const vt_plan *plan, vt_plan_form form, const char *path)
{
    char *text = plan_text(plan, form);
    if (!text) return cli_error(VT_ERR_MEMORY, "no memory for %s", path);
    int code = cli_save_text(path, text);
    free(text);
    return code;
}

/* --- comparing -------------------------------------------------------------------------------- */

/* Of the units with weights. */
static void count_precisions(const vt_plan *plan, unsigned count[VT_PRECISION_COUNT])
{
    vt_plan_unit_info u;
    for (size_t i = 1; vt_plan_get_unit(plan, i, &u) == VT_OK; i++) count[u.precision]++;
}

static int print_planner(const vt_model *model, const plan_options *o, const char *planner)
{
    vt_plan *plan;
    vt_error err;
    vt_plan_info info;
    vt_plan_params params = o->params;
    params.planner = planner;
    if (vt_plan_open(model, o->cluster, &params, &plan, &err) != VT_OK) return cli_fail(&err);
    vt_plan_get_info(plan, &info);
    uint64_t lacks = 0;
    vt_plan_device_info d;
    unsigned used = 0;
    for (size_t i = 0; vt_plan_get_device(plan, i, &d) == VT_OK; i++) {
        lacks += d.shortfall_bytes;
        used += d.is_used;
    }
    unsigned count[VT_PRECISION_COUNT] = {0};
    count_precisions(plan, count);
    printf("%-10s %10s %10s %7u %4u %4u %4u  ", planner, cli_seconds(info.ttft_s),
           cli_seconds(info.tpot_s), used, count[VT_PRECISION_F16], count[VT_PRECISION_I8],
           count[VT_PRECISION_I4]);
    if (lacks)
        printf("does not fit: %s too little\n", cli_bytes(lacks));
    else
        puts(info.meets_qos ? "yes" : "fits, but is too slow");
    vt_plan_close(plan);
    return CLI_OK;
}

static int compare(const vt_model *model, const plan_options *o)
{
    const char *const *planners = vt_plan_planners();
    int code = CLI_OK;
    printf("%-10s %10s %10s %7s %4s %4s %4s  %s\n", "planner", "TTFT", "TPOT", "devices", "F16",
           "I8", "I4", "as asked for");
    for (unsigned i = 0; planners[i] && code == CLI_OK; i++)
        code = print_planner(model, o, planners[i]);
    return code;
}

/* --- the command ------------------------------------------------------------------------------ */

static int show(const vt_plan *plan, const plan_options *o)
{
    cli_canvas canvas = cli_canvas_of_output();
    vt_plan_info info;
    int code = CLI_OK;
    vt_plan_get_info(plan, &info);
    if (o->svg) code = write_file(plan, VT_PLAN_SVG, o->svg);
    if (code == CLI_OK && o->save) code = write_file(plan, VT_PLAN_JSON, o->save);
    if (code != CLI_OK) return code;
    if (o->json) {
        code = write_file(plan, VT_PLAN_REPORT, "-");
        putchar('\n');
    } else {
        cli_print_plan_map(plan, &canvas);
        cli_print_plan(plan, &canvas);
    }
    return code == CLI_OK && !info.is_feasible ? VT_ERR_MEMORY : code;
}

/* What a plan is made of may be known to be wrong. */
static void warn(const vt_plan *plan)
{
    vt_plan_device_info d;
    for (size_t i = 0; vt_plan_get_device(plan, i, &d) == VT_OK; i++)
        if (d.accuracy > 0 && d.accuracy < CLI_LEAST_ACCURACY)
            fprintf(stderr,
                    "voltron-run: predictions of %s, the profile of %s, were off by %.0f %% when "
                    "it was checked; voltron-run profile --force --check when it is idle\n",
                    d.kind, d.name, 100 - 100 * d.accuracy);
}

static int plan(plan_options *o)
{
    vt_model_params params = vt_model_params_default();
    vt_plan *made;
    vt_error err;
    int code = CLI_OK;
    params.threads = 1;
    vt_model *model = cli_open_model(o->model, &params, &code);
    if (!model) return code;
    if (o->compare) {
        code = compare(model, o);
    } else if (vt_plan_open(model, o->cluster, &o->params, &made, &err) != VT_OK) {
        code = cli_fail(&err);
    } else {
        warn(made);
        code = show(made, o);
        vt_plan_close(made);
    }
    vt_model_close(model);
    return code;
}

static int run(int argc, char **argv)
{
    plan_options o = {.params = vt_plan_params_default()};
    vt_plan_params *p = &o.params;
    o.ttft_s = (float)p->ttft_s;
    o.tpot_ms = (float)(1e3 * p->tpot_s);
    const cli_option options[] = {
        {"model", 'm', CLI_STRING, &o.model, 0, 0, "FILE",
         "GGUF model or shard store; its weights are not loaded (default: the "
         "small story model in this program)"},
        {"cluster", 0, CLI_STRING, &o.cluster, 0, 0, "FILE",
         "devices and links, as JSON; docs/cluster-file.md describes it"},
        {"context", 'c', CLI_U32, &p->context_tokens, 1, 16777216, "N",
         "tokens in the KV cache (default: the model's, at most 4096)"},
        {"prompt", 0, CLI_U32, &p->prompt_tokens, 1, 16777216, "N",
         "tokens of the question (default: 256)"},
        {"batch", 0, CLI_U32, &p->batch_tokens, 1, 65536, "N",
         "tokens of it computed at once (default: 128)"},
        {"ttft", 0, CLI_F32, &o.ttft_s, 1e-6, 1e6, "S", "seconds to the first token (10)"},
        {"tpot", 0, CLI_F32, &o.tpot_ms, 1e-3, 1e9, "MS", "milliseconds per later token (400)"},
        {"precision", 0, CLI_STRING, &p->precision, 0, 0, "NAME",
         "F16, I8 or I4; or mixed: of each unit the highest that memory and times "
         "allow (mixed)"},
        {"allocate", 0, CLI_STRING, &p->allocation, 0, 0, "NAME",
         "how mixed looks for it: search, uniform, enumerate (search)"},
        {"importance", 0, CLI_STRING, &p->importance_path, 0, 0, "FILE",
         "which units keep their precision longest, as importance wrote it"},
        {"order", 0, CLI_STRING, &p->order, 0, 0, "NAME",
         "mixed lowers first what matters least per byte saved: per-byte; or at all: "
         "plain (per-byte)"},
        {"planner", 0, CLI_STRING, &p->planner, 0, 0, "NAME",
         "dp, greedy, single, even-mp, even-tp, aware-mp, aware-tp, layers (dp)"},
        {"wire", 0, CLI_STRING, &p->wire, 0, 0, "NAME", "F32, F16, I8 or I4 on the wire (F16)"},
        {"kv", 0, CLI_KV, &p->kv_type, 0, 0, "f16|f32|q8",
         "precision of the KV cache (f16)"},
        {"replicate-kv", 0, CLI_FLAG, &p->replicate_kv, 0, 0, NULL,
         "copy keys and values to a second device where memory is left"},
        {"plan", 0, CLI_STRING, &o.given, 0, 0, "FILE",
         "show this plan instead of searching one"},
        {NULL, 0, CLI_HEADING, NULL, 0, 0, NULL, "Output"},
        {"output", 'o', CLI_STRING, &o.save, 0, 0, "FILE", "write the plan, for --plan"},
        {"svg", 0, CLI_STRING, &o.svg, 0, 0, "FILE", "draw it"},
        {"json", 0, CLI_FLAG, &o.json, 0, 0, NULL, "print everything as one JSON object"},
        {"compare", 0, CLI_FLAG, &o.compare, 0, 0, NULL, "a table of all planners"},
        {0},
    };
    int code = cli_parse(&cli_plan, options, argc, argv, NULL, NULL);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    if (!o.cluster) return cli_error(CLI_USAGE, "plan needs --cluster FILE");
    if (o.compare && (o.given || o.save || o.svg || o.json))
        return cli_error(CLI_USAGE, "--compare only prints a table; leave out --plan, -o, --svg, "
                                    "--json");
    p->ttft_s = o.ttft_s;
    p->tpot_s = 1e-3 * o.tpot_ms;
    size_t bytes;
    char *given = o.given ? cli_read_file(o.given, CLI_PLAN_MAX, &bytes) : NULL;
    if (o.given && !given) return VT_ERR_IO;
    p->plan_json = given;
    code = plan(&o);
    free(given);
    return code;
}

const cli_command cli_plan = {
    "plan",
    "Show what would run where on devices that a file describes, and how fast.",
    "plan [-m FILE] --cluster FILE [--svg FILE] [--json]",
    run,
    "Plans without any device: times are predicted from the devices' profiles or classes, and from "
    "links as they are described. Exit code 6: the model does not fit.",
    "  voltron-run plan -m model.gguf --cluster docs/clusters/office.json\n"
    "  voltron-run plan -m model.gguf --cluster home.json --compare\n"
    "  voltron-run plan -m model.gguf --cluster home.json --svg plan.svg\n",
};
