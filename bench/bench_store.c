/* voltron-bench store: how small a shard store is, and how fast its shards are loaded. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../src/store.h"
#include "bench.h"
#include "options.h"
#include "progress.h"

typedef struct store_options {
    const char *model;
    uint32_t repeats;
    uint32_t threads; /* that pack */
} store_options;

/* All shards of a precision, in memory of their own as on a device. */
typedef struct load {
    const vti_shard_source *source;
    vti_precision precision;
    unsigned char *memory;
    uint64_t bytes, weights;
} load;

static uint64_t shard_bytes(const load *l, vti_shard_id id)
{
    vti_shard_layout layout;
    return vti_shard_source_lay_out(l->source, id, &layout) ? layout.bytes : 0;
}

/* Of this thread: what else the machine does costs it nothing, so that it is per core. */
static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Loads everything once; with memory NULL it only counts. */
static vt_status load_all(load *l, vt_error *err)
{
    const vti_geometry *g = l->source->geometry;
    l->bytes = l->weights = 0;
    for (uint32_t unit = 0; unit < vti_embed_unit(g); unit++)
        for (uint32_t shard = 0; shard < vti_unit_shards(g, unit); shard++) {
            vti_shard_id id = {unit, shard, l->precision};
            uint64_t bytes = shard_bytes(l, id);
            if (l->memory)
                VTI_TRY(l->source->load(l->source->self, id, l->memory + l->bytes, err));
            l->bytes += bytes;
            l->weights += vti_shard_macs(g, unit, shard); /* one multiplication per weight */
        }
    return VT_OK;
}

static int measure(const vt_store *store, vti_precision precision, uint32_t repeats,
                   const vt_store_sum *sum)
{
    load l = {.source = vti_store_source(store), .precision = precision};
    vt_error err;
    double *seconds = malloc(repeats * sizeof *seconds);
    load_all(&l, NULL);
    l.memory = aligned_alloc(64, (size_t)l.bytes);
    if (!seconds || !l.memory) return bench_error(VT_ERR_MEMORY, "no memory for the shards");
    vt_status status = load_all(&l, &err); /* brings file and memory in */
    for (uint32_t i = 0; i < repeats && status == VT_OK; i++) {
        double start = processor_seconds();
        status = load_all(&l, &err);
        seconds[i] = processor_seconds() - start;
    }
    if (status == VT_OK) {
        double median = bench_median(seconds, repeats);
        printf("| %s | %" PRIu64 " | %.1f | %.1f | %.3f | %.1f | %.2f | %.2f |\n",
               vti_precision_name(precision), sum->count, (double)sum->bytes / 1048576,
               (double)sum->stored_bytes / 1048576, (double)sum->stored_bytes / (double)sum->bytes,
               median * 1e3, (double)l.bytes / median / 1e9, (double)l.weights / median / 1e9);
    }
    free(l.memory);
    free(seconds);
    return status == VT_OK ? VT_OK : bench_error((int)status, "%s", err.message);
}

static int measure_store(const char *path, const char *name, uint32_t repeats)
{
    vt_store *store;
    vt_error err;
    vt_store_info info;
    char cpu[128];
    int code = VT_OK;
    vt_status status = vt_store_open(path, &store, &err);
    if (status != VT_OK) return bench_error((int)status, "%s", err.message);
    vt_store_get_info(store, &info);
    bench_cpu_name(cpu, sizeof cpu);
    printf("%s on %s, one core's time, median of %" PRIu32 "; store of %.1f MiB\n\n", name, cpu,
           repeats, (double)info.file_bytes / 1048576);
    printf("| precision | shards | MiB in memory | MiB in the file | ratio | ms | GB/s | "
           "10⁹ weights/s |\n|---|---|---|---|---|---|---|---|\n");
    for (unsigned p = 0; p < VTI_PRECISION_COUNT && code == VT_OK; p++)
        if (info.precision[p].count)
            code = measure(store, (vti_precision)p, repeats, &info.precision[p]);
    vt_store_close(store);
    return code;
}

static bool cancelled(void *user) { return *(const volatile int *)user != 0; }

static int pack(const store_options *o, const char *path)
{
    vt_model *model;
    vt_error err;
    bench_progress shown;
    vt_model_params model_params = vt_model_params_default();
    vt_pack_params params = vt_pack_params_default();
    model_params.threads = 1;
    vt_status status = vt_model_open(o->model, &model_params, &model, &err);
    if (status != VT_OK) return bench_error((int)status, "%s", err.message);
    params.threads = o->threads;
    params.cancelled = cancelled;
    params.user = (void *)bench_catch_signals();
    params.progress = bench_progress_begin(&shown);
    status = vt_pack(model, path, &params, &err);
    double seconds = bench_progress_end(&shown);
    vt_model_close(model);
    if (status != VT_OK) return bench_error((int)status, "%s", err.message);
    printf("packed in %.1f s\n", seconds);
    return VT_OK;
}

/* A GGUF file is packed into a store that goes when it was measured. */
static int measure_gguf(const store_options *o)
{
    char path[512];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/voltron-bench-%ld.vts", folder ? folder : "/tmp",
             (long)getpid());
    int code = pack(o, path);
    if (code == VT_OK) code = measure_store(path, o->model, o->repeats);
    unlink(path);
    return code;
}

int bench_store(int argc, char **argv)
{
    store_options o = {.repeats = 5};
    const bench_option options[] = {
        {"-m", BENCH_TEXT, &o.model, 0, 0, "FILE", "a GGUF file or a shard store"},
        {"-n", BENCH_U32, &o.repeats, 1, 1000, "N", "repeats (5)"},
        {"-t", BENCH_U32, &o.threads, 1, 256, "N", "threads that pack a GGUF file (all big cores)"},
        {0},
    };
    int code = bench_parse(options, argc, argv, "size and load speed of a shard store",
                           "Shards are loaded one by one, from the page cache into memory as on a "
                           "device.\n");
    if (code != VT_OK) return code < 0 ? 0 : code;
    if (!o.model) return bench_error(VT_ERR_ARGUMENT, "store needs -m FILE; see --help");
    return vt_store_is(o.model) ? measure_store(o.model, o.model, o.repeats) : measure_gguf(&o);
}
