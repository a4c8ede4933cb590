/* cmd_inspect.c: what is in a GGUF file; of shard stores, see inspect_store.c. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"

enum { SHOWN_ELEMENTS = 6 }; /* of an array, unless --all */

typedef struct inspect_options {
    bool json, all;
} inspect_options;

/* Malloc'd text of an entry's value, as long as it is. */
static char *entry_text(const vt_gguf *gguf, uint64_t index, uint64_t max_elements)
{
    size_t bytes = vt_gguf_entry_text(gguf, index, max_elements, NULL, 0);
    char *text = malloc(bytes + 1);
    if (text) vt_gguf_entry_text(gguf, index, max_elements, text, bytes + 1);
    return text;
}

/* Cuts after `columns` bytes, not within a UTF-8 sequence. */
static void shorten(char *text, size_t columns)
{
    if (strlen(text) <= columns) return;
    size_t at = columns;
    while (at && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
    strcpy(text + at, "…");
}

static void dimensions_text(const vt_gguf_tensor *t, char *buffer, size_t capacity)
{
    size_t at = 0;
    buffer[0] = 0;
    for (uint32_t i = 0; i < t->dimension_count && at < capacity; i++)
        at += (size_t)snprintf(buffer + at, capacity - at, "%s%" PRIu64, i ? " x " : "",
                               t->dimensions[i]);
}

void cli_print_entries(const vt_gguf *gguf, bool all)
{
    uint64_t count = vt_gguf_entry_count(gguf);
    printf("\n%" PRIu64 " metadata entries\n", count);
    for (uint64_t i = 0; i < count; i++) {
        vt_gguf_entry entry;
        char *text = entry_text(gguf, i, all ? UINT64_MAX : SHOWN_ELEMENTS);
        if (!text || vt_gguf_get_entry(gguf, i, &entry) != VT_OK) continue;
        char *room = realloc(text, strlen(text) + 8); /* for the ellipsis */
        if (room) text = room;
        if (!all && room) shorten(text, 100);
        printf("  %-42s %-12s %s\n", entry.key, entry.type, text);
        free(text);
    }
}

/* One line per type that does not load as what it is. `first` has it first. */
static void print_conversion(const vt_gguf *gguf, const vt_gguf_tensor *first, uint64_t at)
{
    uint64_t count = 0;
    vt_gguf_tensor t;
    if (first->loads_as && strcmp(first->loads_as, first->type) == 0) return;
    for (uint64_t i = 0; i < vt_gguf_tensor_count(gguf); i++) {
        if (vt_gguf_get_tensor(gguf, i, &t) != VT_OK || strcmp(t.type, first->type) != 0) continue;
        if (i < at) return;
        count++;
    }
    if (first->loads_as)
        printf("%" PRIu64 " tensors of type %s are converted to %s as they load\n", count,
               first->type, first->loads_as);
    else
        printf("%" PRIu64 " tensors of type %s cannot be loaded\n", count, first->type);
}

static void print_conversions(const vt_gguf *gguf)
{
    vt_gguf_tensor t;
    for (uint64_t i = 0; i < vt_gguf_tensor_count(gguf); i++)
        if (vt_gguf_get_tensor(gguf, i, &t) == VT_OK) print_conversion(gguf, &t, i);
}

static void print_tensors(const vt_gguf *gguf)
{
    uint64_t count = vt_gguf_tensor_count(gguf), parameters = 0, bytes = 0;
    printf("\n%" PRIu64 " tensors\n", count);
    for (uint64_t i = 0; i < count; i++) {
        vt_gguf_tensor t;
        char dimensions[96];
        if (vt_gguf_get_tensor(gguf, i, &t) != VT_OK) continue;
        dimensions_text(&t, dimensions, sizeof dimensions);
        printf("  %-34s %-8s %-18s %12" PRIu64 " bytes at %" PRIu64, t.name, t.type, dimensions,
               t.size_bytes, t.offset_bytes);
        if (vt_gguf_part_count(gguf) > 1) printf(" of part %" PRIu32, t.part + 1);
        putchar('\n');
        parameters += t.dimensions[0] * t.dimensions[1] * t.dimensions[2] * t.dimensions[3];
        bytes += t.size_bytes;
    }
    printf("\n%.2f million parameters, %s of weights", (double)parameters / 1e6, cli_bytes(bytes));
    if (parameters) printf(", %.2f bits each", (double)bytes * 8 / (double)parameters);
    putchar('\n');
    print_conversions(gguf);
}

/* The value itself; long arrays are null unless all was asked for. */
static json_t *value_json(const vt_gguf *gguf, uint64_t index, const vt_gguf_entry *entry, bool all)
{
    if (entry->count > SHOWN_ELEMENTS && !all) return json_null();
    char *text = entry_text(gguf, index, UINT64_MAX);
    json_t *value = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    /* What JSON has no form for (a text that is not UTF-8, infinity) stays as it is shown. */
    if (!value) value = text ? json_string(text) : json_null();
    free(text);
    return value;
}

json_t *cli_entries_json(const vt_gguf *gguf, bool all)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < vt_gguf_entry_count(gguf); i++) {
        vt_gguf_entry entry;
        if (vt_gguf_get_entry(gguf, i, &entry) != VT_OK) continue;
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:o}", "key", entry.key, "type",
                                              entry.type, "count", (json_int_t)entry.count,
                                              "value", value_json(gguf, i, &entry, all)));
    }
    return list;
}

static json_t *tensors_json(const vt_gguf *gguf)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < vt_gguf_tensor_count(gguf); i++) {
        vt_gguf_tensor t;
        if (vt_gguf_get_tensor(gguf, i, &t) != VT_OK) continue;
        json_t *dimensions = json_array();
        for (uint32_t j = 0; j < t.dimension_count; j++)
            json_array_append_new(dimensions, json_integer((json_int_t)t.dimensions[j]));
        json_array_append_new(list, json_pack("{s:s, s:s, s:s?, s:o, s:I, s:I, s:I}", "name",
                                              t.name, "type", t.type, "loads_as", t.loads_as,
                                              "dimensions", dimensions, "part",
                                              (json_int_t)t.part + 1, "offset_bytes",
                                              (json_int_t)t.offset_bytes, "size_bytes",
                                              (json_int_t)t.size_bytes));
    }
    return list;
}

void cli_print_need(const char *path)
{
    vt_model *model;
    vt_error err;
    vt_memory_need need;
    vt_model_params params = vt_model_params_default();
    params.threads = 1;
    if (vt_model_open(path, &params, &model, &err) != VT_OK) {
        printf("cannot be run: %s\n", err.message);
        return;
    }
    vt_model_memory(model, NULL, &need);
    printf("memory on one device: %s of weights", cli_bytes(need.weight_bytes));
    printf(" + %s of KV cache (%" PRIu32 " tokens, F16)", cli_bytes(need.kv_bytes),
           need.context_tokens);
    printf(" + %s of scratch\n", cli_bytes(need.scratch_bytes));
    vt_model_close(model);
}

json_t *cli_need_json(const char *path)
{
    vt_model *model;
    vt_memory_need need;
    vt_model_params params = vt_model_params_default();
    params.threads = 1;
    if (vt_model_open(path, &params, &model, NULL) != VT_OK) return json_null();
    vt_model_memory(model, NULL, &need);
    vt_model_close(model);
    return json_pack("{s:I, s:I, s:I, s:I}", "weight_bytes", (json_int_t)need.weight_bytes,
                     "kv_bytes", (json_int_t)need.kv_bytes, "scratch_bytes",
                     (json_int_t)need.scratch_bytes, "context_tokens",
                     (json_int_t)need.context_tokens);
}

static int inspect(const char *path, const inspect_options *o)
{
    vt_gguf *gguf;
    vt_error err;
    int code = CLI_OK;
    if (vt_gguf_open(path, &gguf, &err) != VT_OK) return cli_fail(&err);
    if (o->json) {
        json_t *object = json_pack("{s:I, s:o, s:o, s:o}", "version", (json_int_t)vt_gguf_version(gguf),
                                   "metadata", cli_entries_json(gguf, o->all), "tensors",
                                   tensors_json(gguf), "memory", cli_need_json(path));
        if (!object || json_dumpf(object, stdout, JSON_INDENT(1)) != 0)
            code = cli_error(VT_ERR_IO, "cannot write the listing");
        json_decref(object);
        putchar('\n');
    } else {
        printf("%s: GGUF version %" PRIu32 "\n", path, vt_gguf_version(gguf));
        for (uint32_t i = 0; vt_gguf_part_count(gguf) > 1 && i < vt_gguf_part_count(gguf); i++)
            printf("  part %" PRIu32 ": %s\n", i + 1, vt_gguf_part_name(gguf, i));
        cli_print_entries(gguf, o->all);
        print_tensors(gguf);
        cli_print_need(path);
    }
    vt_gguf_close(gguf);
    return code;
}

static int run(int argc, char **argv)
{
    inspect_options o = {0};
    const char *path;
    int count = 1;
    const cli_option options[] = {
        {"all", 'a', CLI_FLAG, &o.all, 0, 0, NULL, "whole arrays and long texts"},
        {"json", 0, CLI_FLAG, &o.json, 0, 0, NULL, "as JSON"},
        {0},
    };
    int code = cli_parse(&cli_inspect, options, argc, argv, &path, &count);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    if (!count) return cli_error(CLI_USAGE, "inspect needs a file");
    return vt_store_is(path) ? cli_inspect_store(path, o.all, o.json) : inspect(path, &o);
}

const cli_command cli_inspect = {
    "inspect",
    "Show a GGUF file's metadata and tensors, or what a shard store holds.",
    "inspect FILE [--all] [--json]",
    run,
    NULL,
    "  voltron-run inspect model.gguf\n"
    "  voltron-run inspect model.vts --json\n",
};
