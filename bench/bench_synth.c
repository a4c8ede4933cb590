/* voltron-bench synth: a model file of a published shape, filled with random weights. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "options.h"
#include "progress.h"
#include "synth.h"

typedef struct synth_options {
    const char *shape, *type, *output;
    uint32_t layers, vocab, context, experts;
    uint64_t seed;
    bool list, tensors;
} synth_options;

/* --- what was written ------------------------------------------------------------------------- */

static double mebibytes(uint64_t bytes) { return (double)bytes / 1048576; }

/* One line per type, and for how many matrices it stands in. */
static void print_types(const synth_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        const synth_type *type = plan->tensors[i].type, *wanted = plan->tensors[i].wanted;
        uint64_t bytes = 0;
        unsigned count = 0, before = 0;
        for (size_t j = 0; j < plan->count; j++) {
            const synth_tensor *t = &plan->tensors[j];
            if (t->type != type || t->wanted != wanted) continue;
            before += j < i;
            count++;
            bytes += t->size_bytes;
        }
        if (before) continue;
        printf("  %4u tensors %-5s %10.1f MiB", count, type->name, mebibytes(bytes));
        if (type != wanted)
            printf("   instead of %s, whose blocks of %u do not fit their rows", wanted->name,
                   wanted->block);
        printf("\n");
    }
}

static int list_tensors(const synth_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        const synth_tensor *t = &plan->tensors[i];
        printf("%-36s %-5s", t->name, t->type->name);
        for (uint32_t j = 0; j < t->dimension_count; j++)
            printf("%s%" PRIu64, j ? " x " : " ", t->dimensions[j]);
        printf("\n");
    }
    return VT_OK;
}

static int list_shapes(void)
{
    printf("%-18s %-9s %6s %5s %12s %8s %6s %7s %8s %10s\n", "shape", "arch", "layers", "d",
           "heads/kv/dim", "ff", "tied", "vocab", "experts", "parameters");
    for (const synth_shape *s = synth_shapes(); s->name; s++) {
        synth_plan plan = {.shape = s, .mix = synth_mix_find("f16")};
        vt_error err;
        if (synth_plan_make(&plan, &err) != VT_OK) {
            synth_plan_free(&plan);
            return bench_error((int)err.status, "%s", err.message);
        }
        printf("%-18s %-9s %6u %5u %5u/%2u/%3u %9u %6s %7u %8u %11" PRIu64 "\n", s->name,
               synth_architecture(s->family), s->layers, s->d, s->heads, s->kv_heads, s->head_dim,
               s->ff, s->tied ? "yes" : "no", s->vocab, s->experts, plan.parameters);
        synth_plan_free(&plan);
    }
    return VT_OK;
}

/* --- command ---------------------------------------------------------------------------------- */

static int unknown(const char *option, const char *value, const char *known)
{
    return bench_error(VT_ERR_ARGUMENT, "%s: \"%s\" is not known; known: %s", option, value, known);
}

static int unknown_shape(const char *name)
{
    char known[512] = "";
    for (const synth_shape *s = synth_shapes(); s->name; s++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s ", s->name);
    return unknown("--shape", name, known);
}

static int unknown_type(const char *name)
{
    char known[256] = "";
    for (const synth_mix *m = synth_mixes(); m->name; m++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s ", m->name);
    return unknown("--type", name, known);
}

/* The published shape with what the user changed of it. */
static int choose(const synth_options *o, synth_shape *shape, synth_plan *plan)
{
    if (!o->shape || !o->type || (!o->output && !o->tensors))
        return bench_error(VT_ERR_ARGUMENT, "synth needs --shape, --type and -o; see --help");
    const synth_shape *published = synth_shape_find(o->shape);
    if (!published) return unknown_shape(o->shape);
    if (!(plan->mix = synth_mix_find(o->type))) return unknown_type(o->type);
    *shape = *published;
    if (o->experts && !shape->experts)
        return bench_error(VT_ERR_ARGUMENT, "--experts: %s has no experts", shape->name);
    if (o->layers) shape->layers = o->layers;
    if (o->vocab) shape->vocab = o->vocab;
    if (o->context) shape->context = o->context;
    if (o->experts) shape->experts = o->experts;
    if (shape->experts_used > shape->experts) shape->experts_used = shape->experts;
    plan->shape = shape;
    plan->seed = o->seed;
    return VT_OK;
}

static int write_file(const synth_options *o, const synth_plan *plan)
{
    vt_error err;
    bench_progress shown;
    vt_progress progress = bench_progress_begin(&shown);
    vt_status status = synth_write(plan, o->output, &progress, bench_catch_signals(), &err);
    double seconds = bench_progress_end(&shown);
    if (status != VT_OK) return bench_error((int)status, "%s", err.message);
    printf("%s: %s, %s, %u layers, %.1f million parameters, %.1f MiB, %.1f s (%.0f MB/s)\n",
           o->output, plan->shape->name, plan->mix->name, plan->shape->layers,
           (double)plan->parameters * 1e-6, mebibytes(plan->data_bytes), seconds,
           (double)plan->data_bytes * 1e-6 / seconds);
    print_types(plan);
    return VT_OK;
}

int bench_synth(int argc, char **argv)
{
    synth_options o = {.seed = 1};
    const bench_option options[] = {
        {"--shape", BENCH_TEXT, &o.shape, 0, 0, "NAME", "published model, see --list"},
        {"--type", BENCH_TEXT, &o.type, 0, 0, "TYPE", "f32 f16 bf16 q8_0 q4_0 q4_k q4_k_m …"},
        {"-o", BENCH_TEXT, &o.output, 0, 0, "FILE", "the file to write"},
        {"--layers", BENCH_U32, &o.layers, 1, 1024, "N", "other than the model has"},
        {"--vocab", BENCH_U32, &o.vocab, SYNTH_LEAST_VOCABULARY, 400000, "N", "tokens, likewise"},
        {"--experts", BENCH_U32, &o.experts, 1, 1024, "N", "of a mixture of experts, likewise"},
        {"--context", BENCH_U32, &o.context, 1, 1 << 20, "N", "context_length, likewise"},
        {"--seed", BENCH_U64, &o.seed, 0, 0, "N", "of the random weights, default 1"},
        {"--tensors", BENCH_FLAG, &o.tensors, 0, 0, NULL, "write nothing, print the tensors"},
        {"--list", BENCH_FLAG, &o.list, 0, 0, NULL, "print the known shapes"},
        {0},
    };
    static const char more[] =
        "The same seed gives the same file on every machine, and the same weights for every type.\n"
        "q4_k, q5_k, q6_k: every matrix; q4_0, q4_k_m, q5_k_m: the mix of published files.\n";
    int code = bench_parse(options, argc, argv,
                           "a model file of a published shape with random weights", more);
    if (code != VT_OK) return code < 0 ? 0 : code;
    if (o.list) return list_shapes();
    synth_shape shape;
    synth_plan plan = {0};
    code = choose(&o, &shape, &plan);
    if (code != VT_OK) return code;
    vt_error err;
    vt_status status = synth_plan_make(&plan, &err);
    if (status != VT_OK)
        code = bench_error((int)status, "%s", err.message);
    else
        code = o.tensors ? list_tensors(&plan) : write_file(&o, &plan);
    synth_plan_free(&plan);
    return code;
}
