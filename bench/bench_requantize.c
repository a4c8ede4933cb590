/* voltron-bench requantize: a model file with its matrices in another weight type. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "bench.h"
#include "options.h"
#include "progress.h"
#include "requantize.h"

static const synth_type *find_type(const char *name)
{
    for (const synth_type *const *type = synth_types; *type; type++)
        if (strcasecmp((*type)->name, name) == 0) return *type;
    return NULL;
}

/* "f32 f16 …" */
static void list_types(char *out, size_t capacity)
{
    size_t at = 0;
    for (const synth_type *const *type = synth_types; *type && at < capacity; type++)
        at += (size_t)snprintf(out + at, capacity - at, "%s%s", at ? " " : "", (*type)->name);
    for (char *c = out; *c; c++) *c = (char)tolower((unsigned char)*c);
}

static double mebibytes(uint64_t bytes) { return (double)bytes / 1048576; }

static int write_file(const vt_gguf *gguf, const synth_type *type, const char *path)
{
    vt_error err;
    requantize_report r;
    bench_progress shown;
    vt_progress progress = bench_progress_begin(&shown);
    vt_status status = requantize(gguf, type, path, &progress, bench_catch_signals(), &r, &err);
    double seconds = bench_progress_end(&shown);
    if (status != VT_OK) return bench_error((int)status, "%s", err.message);
    printf("%s: %" PRIu64 " of %" PRIu64 " tensors to %s, %.1f MiB to %.1f MiB, %.1f s\n", path,
           r.changed, r.tensors, type->name, mebibytes(r.source_bytes), mebibytes(r.data_bytes),
           seconds);
    if (r.fallen_back)
        printf("  %" PRIu64 " of them are another type: blocks of %" PRIu32
               " do not fit their rows\n",
               r.fallen_back, type->block);
    return VT_OK;
}

int bench_requantize(int argc, char **argv)
{
    const char *model = NULL, *type_name = NULL, *output = NULL;
    char types[256], more[512];
    list_types(types, sizeof types);
    snprintf(more, sizeof more,
             "Types: %s.\nVectors and routers of experts stay as they are. q8_0 and q4_k get the "
             "scales that lose\nleast, as in a shard store, the others those that reach every "
             "weight, and are rounded to\nthe nearest step; a file that is quantised already loses "
             "once more.\n", types);
    const bench_option options[] = {
        {"-m", BENCH_TEXT, &model, 0, 0, "FILE", "the GGUF file to read"},
        {"--type", BENCH_TEXT, &type_name, 0, 0, "TYPE", "what its matrices become"},
        {"-o", BENCH_TEXT, &output, 0, 0, "FILE", "the file to write"},
        {0},
    };
    int code = bench_parse(options, argc, argv,
                           "a model file with its matrices in another weight type", more);
    if (code != VT_OK) return code < 0 ? 0 : code;
    if (!model || !type_name || !output)
        return bench_error(VT_ERR_ARGUMENT, "requantize needs -m, --type and -o; see --help");
    const synth_type *type = find_type(type_name);
    if (!type)
        return bench_error(VT_ERR_ARGUMENT, "--type: \"%s\" is not known; known: %s", type_name,
                           types);
    vt_gguf *gguf;
    vt_error err;
    vt_status status = vt_gguf_open(model, &gguf, &err);
    if (status != VT_OK) return bench_error((int)status, "%s", err.message);
    code = write_file(gguf, type, output);
    vt_gguf_close(gguf);
    return code;
}
