/* inspect_store.c: what is in a shard store. */
#include <inttypes.h>

#include "inspect.h"

static double ratio(const vt_store_sum *sum)
{
    return sum->bytes ? 100.0 * (double)sum->stored_bytes / (double)sum->bytes : 100;
}

static void print_sum(const char *name, const vt_store_sum *sum)
{
    if (!sum->count) return;
    printf("  %-22s %8" PRIu64 "  %12s  %12s  %5.1f %%\n", name, sum->count, cli_bytes(sum->bytes),
           cli_bytes(sum->stored_bytes), ratio(sum));
}

static void print_sums(const vt_store_info *info)
{
    printf("\n  %-22s %8s  %12s  %12s  %7s\n", "precision", "shards", "in memory", "in the file",
           "");
    for (int i = 0; i < VT_PRECISION_COUNT; i++)
        print_sum(vt_precision_name((vt_precision)i), &info->precision[i]);
    print_sum("any (shared in a unit)", &info->shared);
    print_sum("embedding, as it was", &info->embedding);
    printf("  %-22s %8s  %12s  %12s\n", "metadata, tokenizer", "", "",
           cli_bytes(info->directory_bytes));
}

/* "ATTN(0)    2 shards   F16 1.5 MiB (F16)   I8 0.8 MiB (Q8_0)": of all shards, in memory. */
static void print_unit(const vt_store_unit *unit)
{
    printf("  %-10s %5" PRIu32 " shards", unit->name, unit->shards);
    for (int i = 0; i < VT_PRECISION_COUNT; i++)
        if (unit->precision[i].count)
            printf("   %s %s (%s)", vt_precision_name((vt_precision)i),
                   cli_bytes(unit->precision[i].bytes), unit->types[i]);
    if (!unit->precision[0].count && !unit->precision[1].count && !unit->precision[2].count)
        printf("   %s, rows as in the model's file", cli_bytes(unit->shared.bytes));
    putchar('\n');
}

/* What the model is, whatever the precision. */
static void print_facts(const char *path)
{
    vt_model *model;
    vt_model_info info;
    vt_model_params params = vt_model_params_default();
    params.threads = 1;
    if (vt_model_open(path, &params, &model, NULL) != VT_OK) return; /* it will be said below */
    vt_model_get_info(model, &info);
    printf("%s, %s: %.1f M parameters, %" PRIu32 " layers, width %" PRIu32 ", %" PRIu32
           " heads on %" PRIu32 " KV heads, %" PRIu32 " tokens\n",
           info.name[0] ? info.name : "no name", info.architecture, (double)info.parameters / 1e6,
           info.layers, info.embedding_length, info.heads, info.kv_heads, info.vocabulary_tokens);
    vt_model_close(model);
}

static void print_store(const vt_store *store, const char *path, bool all)
{
    vt_store_info info;
    vt_store_unit unit;
    vt_store_get_info(store, &info);
    printf("%s: shard store version %" PRIu32 ", weights in layout %" PRIu32 ", %s\n", path,
           info.version, info.layout_version, cli_bytes(info.file_bytes));
    print_facts(path);
    print_sums(&info);
    printf("\n%" PRIu32 " units, in memory\n", info.units);
    for (uint32_t i = 0; vt_store_get_unit(store, i, &unit) == VT_OK; i++) print_unit(&unit);
    cli_print_entries(vt_store_gguf(store), all);
    putchar('\n');
    cli_print_need(path);
}

/* --- JSON -------------------------------------------------------------------------------------- */

static json_t *sum_json(const vt_store_sum *sum)
{
    return json_pack("{s:I, s:I, s:I}", "shards", (json_int_t)sum->count, "bytes",
                     (json_int_t)sum->bytes, "stored_bytes", (json_int_t)sum->stored_bytes);
}

json_t *cli_precisions_json(const vt_store_sum sums[VT_PRECISION_COUNT])
{
    json_t *list = json_array();
    for (int i = 0; i < VT_PRECISION_COUNT; i++) {
        if (!sums[i].count) continue;
        json_t *object = sum_json(&sums[i]);
        json_object_set_new(object, "name", json_string(vt_precision_name((vt_precision)i)));
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *units_json(const vt_store *store)
{
    json_t *list = json_array();
    vt_store_unit unit;
    for (uint32_t i = 0; vt_store_get_unit(store, i, &unit) == VT_OK; i++) {
        json_t *precisions = cli_precisions_json(unit.precision);
        for (int p = 0, at = 0; p < VT_PRECISION_COUNT; p++)
            if (unit.precision[p].count)
                json_object_set_new(json_array_get(precisions, (size_t)at++), "types",
                                    json_string(unit.types[p]));
        json_array_append_new(list, json_pack("{s:s, s:I, s:o, s:o}", "name", unit.name, "shards",
                                              (json_int_t)unit.shards, "precisions", precisions,
                                              "shared", sum_json(&unit.shared)));
    }
    return list;
}

static int print_json(const vt_store *store, const char *path, bool all)
{
    vt_store_info info;
    int code = CLI_OK;
    vt_store_get_info(store, &info);
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "store_version",
        (json_int_t)info.version,
        "layout_version", (json_int_t)info.layout_version, "file_bytes",
        (json_int_t)info.file_bytes, "directory_bytes", (json_int_t)info.directory_bytes,
        "precisions", cli_precisions_json(info.precision), "shared", sum_json(&info.shared),
        "embedding", sum_json(&info.embedding), "units", units_json(store), "metadata",
        cli_entries_json(vt_store_gguf(store), all), "memory", cli_need_json(path));
    if (!object || json_dumpf(object, stdout, JSON_INDENT(1)) != 0)
        code = cli_error(VT_ERR_IO, "cannot write the listing");
    json_decref(object);
    putchar('\n');
    return code;
}

int cli_inspect_store(const char *path, bool all, bool json)
{
    vt_store *store;
    vt_error err;
    int code = CLI_OK;
    if (vt_store_open(path, &store, &err) != VT_OK) return cli_fail(&err);
    if (json)
        code = print_json(store, path, all);
    else
        print_store(store, path, all);
    vt_store_close(store);
    return code;
}
