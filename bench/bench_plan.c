/* voltron-bench plan: how long planning takes and how good the plans are. Clusters and models are
 * made up of round figures; nothing depends on this machine but the times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../planner/planner.h"
#include "bench.h"
#include "options.h"

enum { MOST_REPEATS = 1001 };

typedef struct plan_options {
    uint32_t repeats;
    bool csv;
} plan_options;

/* --- devices and models ----------------------------------------------------------------------- */

typedef struct device_class {
    double macs_per_s, bytes_per_s; /* of F16 weights; I8 and I4 compute faster */
} device_class;

/* Phone and tablet, car unit, board, watch. */
static const device_class device_classes[] = {
    {120e9, 30e9}, {90e9, 24e9}, {40e9, 15e9}, {12e9, 6e9},
};

enum { CLASSES = sizeof device_classes / sizeof *device_classes };

static void make_device(vti_plan_device *device, const device_class *class_)
{
    static const double faster[VTI_PLAN_PRECISIONS] = {1, 1.5, 1.5};
    device->scratch_bytes = 64 << 20;
    for (int kind = 0; kind < VTI_PLAN_KINDS; kind++)
        for (int p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (int phase = 0; phase < VTI_PHASES; phase++)
                device->cost[kind][p][phase] = (vti_plan_coefficients){
                    .fixed = 10e-6,
                    .per_mac = (phase == VTI_DECODE ? 2 : 1) / (class_->macs_per_s * faster[p]),
                    .per_weight_byte = 1 / class_->bytes_per_s,
                    /* 16 tokens of a prompt share what is read */
                    .per_kv_byte = 1 / (class_->bytes_per_s * (phase == VTI_DECODE ? 1 : 16)),
                    .per_kv_mac = (phase == VTI_DECODE ? 2 : 1) /
                                  (class_->macs_per_s * faster[p])};
}

/* Every second device is on the radio, the others are wired. */
static void make_cluster(vti_plan_cluster *cluster, unsigned devices)
{
    memset(cluster, 0, sizeof *cluster);
    cluster->devices = devices;
    for (unsigned d = 0; d < devices; d++) {
        make_device(&cluster->device[d], &device_classes[d % CLASSES]);
        for (unsigned e = 0; e < devices; e++) {
            bool radio = d % 2 || e % 2;
            cluster->link[d][e] = radio ? (vti_plan_link){1.5e-3, 40e6, 1}
                                        : (vti_plan_link){0.2e-3, 110e6, 0};
        }
    }
}

static void set_weights(vti_plan_class *class_, double values)
{
    class_->macs = values;
    class_->weight_bytes[VTI_PLAN_F16] = 2 * values;
    class_->weight_bytes[VTI_PLAN_I8] = values + values / 16;
    class_->weight_bytes[VTI_PLAN_I4] = values / 2 + values / 16;
}

/* A dense model of 14 B's width: 8 KV heads of 5 query heads, 54 blocks of hidden channels. With
 * `moe`, FFNs are 60 experts, 4 of them active. */
static void make_model(vti_plan_model *model, unsigned layers, bool moe)
{
    enum { WIDTH = 5120, HEAD = 128, VOCABULARY = 152064 };
    memset(model, 0, sizeof *model);
    model->classes = 4, model->units = 2 * layers + 2;
    for (unsigned u = 0; u < model->units; u++)
        model->unit_class[u] = u == 0 ? 0 : u + 1 == model->units ? 3 : u % 2 ? 1 : 2;
    vti_plan_class *c = model->class_;
    c[0] = (vti_plan_class){.kind = VTI_PLAN_EMBED, .shards = 1};
    c[1] = (vti_plan_class){.kind = VTI_PLAN_ATTN, .shards = 8, .kv_bytes = 4 * HEAD,
                            .kv_macs = 2 * 5 * HEAD, .shared_bytes = 4 * WIDTH};
    set_weights(&c[1], (double)WIDTH * (2 * 5 + 2) * HEAD);
    c[2] = (vti_plan_class){.kind = VTI_PLAN_FFN, .shards = 54, .shared_bytes = 4 * WIDTH};
    set_weights(&c[2], 3.0 * WIDTH * 256);
    if (moe) {
        c[2].kind = VTI_PLAN_MOE;
        c[2].shards = 60, c[2].active_shards = 4;
    }
    c[3] = (vti_plan_class){.kind = VTI_PLAN_HEAD, .shards = 594};
    set_weights(&c[3], (double)WIDTH * (VOCABULARY / 594));
    for (unsigned i = 0; i < model->classes; i++)
        c[i].input_width = WIDTH, c[i].output_width = i == 3 ? 64 : WIDTH;
}

/* All devices together hold `times` the model, the faster the more. */
static void share_memory(vti_plan_cluster *cluster, const vti_plan_request *r, double times)
{
    static const double parts[CLASSES] = {6, 4, 4, 1};
    double total = 0, sum = 0;
    for (unsigned u = 0; u < r->model->units; u++) {
        const vti_plan_class *c = &r->model->class_[r->model->unit_class[u]];
        total += c->shards * (c->weight_bytes[r->precision[u]] + c->kv_bytes * r->context_tokens);
    }
    for (unsigned d = 0; d < cluster->devices; d++) sum += parts[d % CLASSES];
    for (unsigned d = 0; d < cluster->devices; d++)
        cluster->device[d].memory_bytes =
            cluster->device[d].scratch_bytes +
            (double)(uint64_t)(total * times * parts[d % CLASSES] / sum);
}

/* --- measuring -------------------------------------------------------------------------------- */

typedef struct plan_case {
    unsigned devices, layers;
    bool moe;
    double memory; /* times the model */
} plan_case;

static const plan_case cases[] = {
    {4, 16, false, 16},   {4, 32, false, 16},   {4, 64, false, 16},   {4, 128, false, 16},
    {4, 64, true, 16},    {4, 64, false, 1.5},  {4, 64, false, 1.1},  {4, 64, false, 1.02},
    {4, 64, true, 1.1},   {4, 16, false, 1.1},  {4, 32, false, 1.1},  {4, 128, false, 1.1},
    {2, 64, false, 1.1},  {3, 64, false, 1.1},  {8, 32, false, 16},   {8, 64, false, 16},
    {8, 128, false, 16},  {8, 128, false, 1.5}, {8, 128, false, 1.1},
};

static const struct {
    plan_case of;
    double slack;
} precision_cases[] = {
    {{4, 64, false, 16}, 1.5}, {{4, 64, false, 3}, 1.5}, {{4, 64, false, 3}, 3},
    {{4, 64, false, 2}, 2},    {{4, 64, false, 1.2}, 2}, {{4, 64, true, 2}, 2},
    {{4, 32, false, 2}, 2},    {{8, 64, false, 2}, 2},
};

typedef struct plan_bench {
    vti_plan_cluster cluster;
    vti_plan_model model;
    vti_plan_request request;
    vti_plan_importance importance;
    vti_plan plan, greedy;
    void *scratch;
} plan_bench;

static double search_seconds(plan_bench *b, uint32_t repeats)
{
    double fastest = 0;
    for (uint32_t i = 0; i < repeats; i++) {
        double start = bench_now();
        vti_plan_search(&b->request, VTI_SEARCH_DP, NULL, b->scratch, &b->plan);
        double seconds = bench_now() - start;
        if (i == 0 || seconds < fastest) fastest = seconds;
    }
    return fastest;
}

static double allocate_seconds(plan_bench *b, vti_plan_allocation kind, uint32_t repeats)
{
    double fastest = 0;
    uint16_t order[VTI_PLAN_UNITS_MAX];
    for (uint32_t i = 0; i < repeats; i++) {
        double start = bench_now();
        unsigned n = vti_plan_lowering_order(&b->request, &b->importance, false, order);
        vti_plan_allocate(&b->request, &b->importance, order, n, kind, VTI_SEARCH_DP, b->scratch,
                          &b->plan);
        double seconds = bench_now() - start;
        if (i == 0 || seconds < fastest) fastest = seconds;
    }
    return fastest;
}

static void begin(plan_bench *b, const plan_case *c)
{
    make_cluster(&b->cluster, c->devices);
    make_model(&b->model, c->layers, c->moe);
    b->request = (vti_plan_request){.cluster = &b->cluster, .model = &b->model,
                                    .wire = VTI_WIRE_F16, .prompt_tokens = 256,
                                    .context_tokens = 4096, .ttft_s = 1000, .tpot_s = 1000};
    memset(b->request.precision, VTI_PLAN_I4, sizeof b->request.precision);
    share_memory(&b->cluster, &b->request, c->memory);
}

/* Precisions for as much memory as the model needs all in I4, times c->memory; important units at
 * the ends. `slack`: TPOT allowed, times that of the best plan all in I4. */
static void show_precisions(plan_bench *b, const plan_case *c, double slack, const plan_options *o)
{
    begin(b, c);
    vti_plan_search(&b->request, VTI_SEARCH_DP, NULL, b->scratch, &b->plan);
    b->request.tpot_s = slack * b->plan.tpot_s;
    memset(b->request.precision, VTI_PLAN_F16, sizeof b->request.precision);
    for (unsigned u = 0; u < b->model.units; u++)
        b->importance.unit[u] = u < b->model.units / 2 ? b->model.units - u : u;
    double enumerated = allocate_seconds(b, VTI_ALLOCATE_ENUMERATE, 1);
    vti_plan enumerated_plan = b->plan;
    double seconds = allocate_seconds(b, VTI_ALLOCATE_SEARCH, o->repeats);
    unsigned count[VTI_PLAN_PRECISIONS] = {0};
    for (unsigned u = 1; u < b->model.units; u++) count[b->plan.precision[u]]++;
    printf(o->csv ? "%u,%u,%s,%.2f,%.2f,%.1f,%.0f,%u,%u,%u,%s\n"
                  : "%7u %6u  %-5s %7.2f %6.2f %12.1f %12.0f %5u %5u %5u   %s\n",
           c->devices, c->layers, c->moe ? "moe" : "dense", c->memory, slack, 1e6 * seconds,
           1e6 * enumerated, count[VTI_PLAN_F16], count[VTI_PLAN_I8], count[VTI_PLAN_I4],
           memcmp(enumerated_plan.precision, b->plan.precision, b->plan.units) ? "no" : "yes");
}

static void show(plan_bench *b, const plan_case *c, const plan_options *o)
{
    begin(b, c);
    double seconds = search_seconds(b, o->repeats);
    bool greedy = vti_plan_search(&b->request, VTI_SEARCH_GREEDY, NULL, b->scratch, &b->greedy);
    const vti_plan *p = &b->plan;
    double gap = 100 * (p->tpot_s / p->bound_s - 1); /* rounding makes it -1e-14 */
    printf(o->csv ? "%u,%u,%s,%.2f,%.1f,%.2f,%.3f,%.2f,%.2f\n"
                  : "%7u %6u  %-5s %7.2f %9.1f %9.2f %7.3f %10.2f %9.2f\n",
           c->devices, c->layers, c->moe ? "moe" : "dense", c->memory, 1e6 * seconds,
           p->feasible ? 1e3 * p->tpot_s : -1, gap > 0 ? gap : 0,
           greedy ? 1e3 * b->greedy.tpot_s : -1, p->ttft_s);
}

int bench_plan(int argc, char **argv)
{
    plan_options o = {.repeats = 51};
    const bench_option options[] = {
        {"-r", BENCH_U32, &o.repeats, 1, MOST_REPEATS, "N", "runs; the fastest counts (51)"},
        {"--csv", BENCH_FLAG, &o.csv, 0, 0, NULL, "as CSV"},
        {0},
    };
    static const char more[] =
        "memory: of all devices together, times what the model needs. gap: how much the plan's\n"
        "TPOT is above a bound that no plan that fits can go below.\n";
    int code = bench_parse(options, argc, argv, "how long planning takes, on one core", more);
    if (code != 0) return code < 0 ? 0 : code;
    plan_bench *b = malloc(sizeof *b);
    void *scratch = malloc(vti_plan_scratch_bytes());
    if (b && scratch) {
        b->scratch = scratch;
        printf(o.csv ? "%s,%s,%s,%s,%s,%s,%s,%s,%s\n" : "%7s %6s  %-5s %7s %9s %9s %7s %10s %9s\n",
               "devices", "layers", "model", "memory", "search us", "TPOT ms", "gap %", "greedy ms",
               "TTFT s");
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) show(b, &cases[i], &o);
        printf(o.csv ? "\n%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s\n"
                     : "\n%7s %6s  %-5s %7s %6s %12s %12s %5s %5s %5s %s\n",
               "devices", "layers", "model", "memory", "TPOT", "precision us", "enumerate us",
               "F16", "I8", "I4", "same");
        for (size_t i = 0; i < sizeof precision_cases / sizeof *precision_cases; i++)
            show_precisions(b, &precision_cases[i].of, precision_cases[i].slack, &o);
    } else {
        code = bench_error(3, "no memory for the planner");
    }
    free(b), free(scratch);
    return code;
}
