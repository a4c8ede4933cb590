/* voltron-bench swap: what a token costs more while a plan changes every unit F16→I8→I4→F16, if
 * shards are loaded between tokens, and if they are loaded beside computing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/load_pace.h"
#include "options.h"
#include "swap.h"

enum { MOST_REPEATS = 25 };

enum { PLAIN, FOREGROUND, FOREGROUND_FREE, BACKGROUND, BACKGROUND_FREE, ROWS };

/* One run's figures; milliseconds. */
typedef struct figures {
    double tokens, median, p99, slowest, sum, slowest_ratio;
} figures;

typedef struct swap_options {
    const char *model, *pace;
    uint32_t tokens, threads, repeats, extra_mib, most_tokens;
    bool at_once, cold;
} swap_options;

typedef struct results {
    figures row[ROWS][MOST_REPEATS];
    double stall[ROWS][MOST_REPEATS]; /* sum over what the same answer takes without loading */
    vti_shard_loader_stats stats[ROWS];
} results;

/* --- figures ----------------------------------------------------------------------------------- */

static figures figures_of(const swap_run *run)
{
    figures f = {.tokens = run->tokens};
    double *sorted = malloc(run->tokens * sizeof *sorted);
    if (!sorted) return f;
    memcpy(sorted, run->ms, run->tokens * sizeof *sorted);
    f.median = bench_median(sorted, run->tokens);
    f.p99 = sorted[(size_t)ceil(0.99 * run->tokens) - 1];
    f.slowest = sorted[run->tokens - 1];
    for (uint32_t i = 0; i < run->tokens; i++) f.sum += run->ms[i];
    f.slowest_ratio = f.slowest / f.median;
    free(sorted);
    return f;
}

static figures middle(const figures *of, uint32_t repeats)
{
    figures out;
    size_t fields = sizeof out / sizeof(double);
    for (size_t field = 0; field < fields; field++) {
        double values[MOST_REPEATS];
        for (uint32_t i = 0; i < repeats; i++) values[i] = ((const double *)&of[i])[field];
        ((double *)&out)[field] = bench_median(values, repeats);
    }
    return out;
}

/* --- measuring --------------------------------------------------------------------------------- */

static vt_status measure_pair(swap_bench *b, swap_mode mode, int row, uint32_t repeat,
                              results *r)
{
    swap_run run = {0}, free_run = {0};
    vt_status status = swap_write(b, mode, &run);
    if (status == VT_OK) status = swap_repeat(b, &run, &free_run);
    if (status == VT_OK) {
        r->row[row][repeat] = figures_of(&run);
        r->row[row + 1][repeat] = figures_of(&free_run);
        r->stall[row][repeat] = r->row[row][repeat].sum - r->row[row + 1][repeat].sum;
        r->stats[row] = run.stats;
    }
    swap_run_free(&run);
    swap_run_free(&free_run);
    return status;
}

static vt_status measure_once(swap_bench *b, uint32_t repeat, results *r)
{
    swap_run plain = {0};
    vt_status status = swap_write(b, SWAP_NONE, &plain);
    if (status == VT_OK) r->row[PLAIN][repeat] = figures_of(&plain);
    swap_run_free(&plain);
    if (status == VT_OK) status = measure_pair(b, SWAP_FOREGROUND, FOREGROUND, repeat, r);
    if (status == VT_OK) status = measure_pair(b, SWAP_BACKGROUND, BACKGROUND, repeat, r);
    return status;
}

/* Nanoseconds that the beginning of a unit takes when nothing is exchanged. */
static double boundary_ns(swap_bench *b)
{
    enum { TIMES = 200000 };
    vti_shard_reader *reader;
    if (vti_shard_reader_open(b->model->table, &reader, &b->err) != VT_OK) return NAN;
    double start = bench_now();
    for (int i = 0; i < TIMES; i++) vti_shard_reader_enter(reader, 1);
    double ns = (bench_now() - start) * 1e9 / TIMES;
    vti_shard_reader_close(reader);
    return ns;
}

/* --- telling ----------------------------------------------------------------------------------- */

static void print_row(const char *name, const figures *f)
{
    printf("| %s | %.0f | %.2f | %.2f | %.2f | %.2f |\n", name, f->tokens, f->median, f->p99,
           f->slowest, f->slowest_ratio);
}

static void print_stats(const char *name, const vti_shard_loader_stats *s)
{
    printf("%s: %" PRIu64 " shards, %.1f MiB, loaded in %.0f ms; waited for readers %.0f ms; at "
           "most %.1f MiB beyond the slots\n", name, s->loaded, (double)s->bytes / 1048576,
           (double)s->busy_ns * 1e-6, (double)s->waited_ns * 1e-6,
           (double)s->peak_extra_bytes / 1048576);
}

static void print(const swap_bench *b, const swap_options *o, results *r)
{
    static const char *const names[ROWS] = {
        "a. no changes", "b. foreground", "b. again, all resident", "c. background",
        "c. again, all resident"};
    figures f[ROWS];
    double stall[ROWS] = {0};
    char cpu[128];
    bench_cpu_name(cpu, sizeof cpu);
    printf("%s on %s, %u threads, %u changes of units %s%s, pace %s, medians of %u\n\n", b->path,
           cpu, vti_pool_threads(b->model->pool), swap_change_count(b),
           o->at_once ? "as fast as it goes" : "spread evenly",
           o->cold ? ", from the medium" : ", from the page cache", o->pace, o->repeats);
    printf("| run | tokens | median ms | p99 ms | slowest ms | slowest / median |\n"
           "|---|---:|---:|---:|---:|---:|\n");
    for (int i = 0; i < ROWS; i++) {
        f[i] = middle(r->row[i], o->repeats);
        print_row(names[i], &f[i]);
        stall[i] = bench_median(r->stall[i], o->repeats);
    }
    double fore = stall[FOREGROUND] / f[FOREGROUND].tokens;
    double back = stall[BACKGROUND] / f[BACKGROUND].tokens;
    printf("\nadded by (b): %.1f ms, %.3f ms per token; by (c): %.1f ms, %.3f ms per token\n"
           "(c) / (b): %.1f %% per token, %.1f %% in all; slowest token of (c) / median of (a): "
           "%.2f\n", stall[FOREGROUND], fore, stall[BACKGROUND], back, 100 * back / fore,
           100 * stall[BACKGROUND] / stall[FOREGROUND], f[BACKGROUND].slowest / f[PLAIN].median);
    print_stats("(b)", &r->stats[FOREGROUND]);
    print_stats("(c)", &r->stats[BACKGROUND]);
}

/* --- opening ----------------------------------------------------------------------------------- */

static vt_status check_offer(const swap_bench *b, vt_error *err)
{
    for (vti_precision p = VTI_PRECISION_F16; p < VTI_PRECISION_COUNT; p++) {
        vti_shard_form form;
        const vti_shard_source *source = b->model->shards;
        if (!source->form(source->self, (vti_shard_id){0, 0, p}, &form))
            return vti_fail(err, VT_ERR_ARGUMENT, "%s does not have its weights at %s", b->path,
                            vti_precision_name(p));
    }
    return VT_OK;
}

static vt_status open_bench(swap_bench *b, const swap_options *o)
{
    vt_model_params params = vt_model_params_default();
    vt_session_params session = vt_session_params_default();
    params.threads = o->threads;
    VTI_TRY(vt_model_open(o->model, &params, &b->model, &b->err));
    VTI_TRY(check_offer(b, &b->err));
    session.context_tokens = o->most_tokens + 32;
    session.sampling.temperature = 0;
    session.sampling.repeat_penalty = 1;
    VTI_TRY(vt_session_open(b->model, &session, &b->session, &b->err));
    for (int i = 0; i < 16; i++) b->prompt[i] = 100 + 37 * i;
    b->supplier = (vti_shard_supplier){b->model->shards, b->model->memory};
    return swap_make_resident(b);
}

/* Not given: what the model would choose. */
static int read_pace(const char **text, uint32_t threads, vti_load_pace *out)
{
    static const char *const names[] = {"equal", "shared", "idle"};
    if (!*text)
        *text = names[vti_load_pace_beside(threads ? threads : vti_pool_default_threads())];
    for (int i = 0; i < 3; i++) {
        *out = (vti_load_pace)i;
        if (strcmp(*text, names[i]) == 0) return VT_OK;
    }
    return bench_error(VT_ERR_ARGUMENT, "--pace: \"%s\" is not one of equal, shared, idle", *text);
}

static vt_status run(swap_bench *b, const swap_options *o)
{
    static results r;
    VTI_TRY(open_bench(b, o));
    printf("beginning a unit (%u slots): %.1f ns\n", vti_shard_table_slots(b->model->table, 1),
           boundary_ns(b));
    fflush(stdout);
    for (uint32_t i = 0; i < o->repeats; i++) VTI_TRY(measure_once(b, i, &r));
    print(b, o, &r);
    return VT_OK;
}

int bench_swap(int argc, char **argv)
{
    swap_options o = {.pace = NULL, .tokens = 300, .repeats = 3, .most_tokens = 4000};
    const bench_option options[] = {
        {"-m", BENCH_TEXT, &o.model, 0, 0, "FILE", "a shard store, or a GGUF of 16-bit weights"},
        {"-n", BENCH_U32, &o.tokens, 1, 4000, "N", "tokens that the changes are spread over (300)"},
        {"-t", BENCH_U32, &o.threads, 1, 1024, "N", "threads that compute, default one per big core"},
        {"-r", BENCH_U32, &o.repeats, 1, MOST_REPEATS, "N", "repeats (3)"},
        {"--pace", BENCH_TEXT, &o.pace, 0, 0, "NAME", "of the loading thread: equal, shared, idle"},
        {"--extra", BENCH_U32, &o.extra_mib, 0, 1 << 20, "MIB", "for shards beyond the slots (0: one)"},
        {"--at-once", BENCH_FLAG, &o.at_once, 0, 0, NULL, "changes follow each other without a pause"},
        {"--cold", BENCH_FLAG, &o.cold, 0, 0, NULL, "not from the page cache"},
        {"--most", BENCH_U32, &o.most_tokens, 1, 65536, "N", "tokens at most (4000)"},
        {0},
    };
    int code = bench_parse(options, argc, argv, "what a token costs while precisions change",
                           "The cost is what an answer takes longer than the same one, of the same "
                           "shards in every token,\nwhen all of them lie in memory at all "
                           "precisions.\n");
    if (code != VT_OK) return code < 0 ? 0 : code;
    if (!o.model) return bench_error(VT_ERR_ARGUMENT, "swap needs -m FILE; see --help");
    if (o.most_tokens < o.tokens) o.most_tokens = o.tokens;
    swap_bench b = {.path = o.model, .tokens = o.tokens, .at_once = o.at_once, .cold = o.cold,
                    .extra_bytes = (uint64_t)o.extra_mib << 20};
    code = read_pace(&o.pace, o.threads, &b.pace);
    if (code != VT_OK) return code;
    vt_status status = run(&b, &o);
    if (status != VT_OK) code = bench_error((int)status, "%s", b.err.message);
    if (b.model) swap_free_resident(&b);
    vt_session_close(b.session);
    vt_model_close(b.model);
    return code;
}
