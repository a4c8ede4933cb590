/* cmd_profile.c: what this device computes how fast. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const char *const kind_names[VT_UNIT_KIND_COUNT] = {"ATTN", "FFN", "MOE", "HEAD"};

typedef struct profile_options {
    uint32_t threads;
    bool check, json, force, trial, where, list;
    const char *output, *class_name;
    cli_cache cache;
} profile_options;

/* --- showing ---------------------------------------------------------------------------------- */

/* "12.3" of a rate, "-" where the price is 0. */
static const char *rate(double seconds, char text[16])
{
    if (seconds > 0)
        snprintf(text, 16, "%.1f", 1e-9 / seconds);
    else
        snprintf(text, 16, "-");
    return text;
}

static const char *percent(double accuracy, char text[16])
{
    if (accuracy > 0)
        snprintf(text, 16, "%.1f %%", 100 * accuracy);
    else
        snprintf(text, 16, "-");
    return text;
}

static void print_row(const vt_profile *profile, vt_unit_kind kind, vt_precision precision)
{
    vt_profile_cost decode, prefill;
    char a[16], b[16], c[16], d[16], e[16], f[16];
    vt_profile_get_cost(profile, kind, precision, true, &decode);
    vt_profile_get_cost(profile, kind, precision, false, &prefill);
    bool head = kind == VT_UNIT_HEAD; /* of one token in prefill, too */
    printf("%-5s %-4s %8.1f %9s %9s %9s %12s %9s %9s\n", kind_names[kind],
           vt_precision_name(precision), 1e6 * decode.fixed_s, rate(decode.weight_byte_s, a),
           rate(decode.cached_byte_s, b), percent(decode.accuracy, c),
           head ? "" : rate(prefill.mac_s, d), head ? "" : rate(prefill.kv_mac_s, e),
           head ? "" : percent(prefill.accuracy, f));
}

static void print_table(const vt_profile *profile)
{
    vt_profile_info info;
    vt_profile_get_info(profile, &info);
    printf("%s%s%s, %u thread%s, %.1f GB/s from memory, %s of cache\n\n", cli_bold(), info.name,
           cli_plain(), info.threads, info.threads == 1 ? "" : "s", info.bytes_per_s * 1e-9,
           cli_bytes(info.cache_bytes));
    printf("           ------------ decode ------------    ------------ prefill ------------\n");
    printf("%-5s %-4s %8s %9s %9s %9s %12s %9s %9s\n", "", "", "fixed us", "GB/s",
           "cached", "accuracy", "GMAC/s", "attention", "accuracy");
    for (unsigned k = 0; k < VT_UNIT_KIND_COUNT; k++)
        for (unsigned p = 0; p < VT_PRECISION_COUNT; p++)
            print_row(profile, (vt_unit_kind)k, (vt_precision)p);
    if (info.accuracy > 0)
        printf("\non shapes that were not fitted: %.1f %%\n", 100 * info.accuracy);
}

static int print_classes(void)
{
    printf("%s%-22s %-12s %7s %8s  %s%s\n", cli_bold(), "class", "group", "RAM", "GB/s", "device",
           cli_plain());
    for (size_t i = 0; i < vt_device_class_count(); i++) {
        vt_device_class c;
        vt_profile *profile;
        vt_profile_info info;
        vt_error err;
        vt_device_class_get(i, &c);
        if (vt_profile_of_class(c.name, &profile, &err) != VT_OK) return cli_fail(&err);
        vt_profile_get_info(profile, &info);
        printf("%-22s %-12s %7s %8.1f  %s\n", c.name, c.group, cli_bytes(c.memory_bytes),
               info.bytes_per_s * 1e-9, c.title);
        vt_profile_close(profile);
    }
    return CLI_OK;
}

static int print_json(const vt_profile *profile)
{
    size_t bytes = vt_profile_text(profile, NULL, 0) + 1;
    char *text = malloc(bytes);
    if (!text || vt_profile_text(profile, text, bytes) == 0) {
        free(text);
        return cli_error(VT_ERR_MEMORY, "no memory");
    }
    fputs(text, stdout);
    free(text);
    return CLI_OK;
}

static int print_place(profile_options *o)
{
    char *path = cli_profile_path(&o->cache, o->threads);
    if (!path) return cli_error(VT_ERR_IO, "there is no cache folder; name one with --cache");
    puts(path);
    free(path);
    return CLI_OK;
}

/* --- measuring -------------------------------------------------------------------------------- */

static int measure(profile_options *o, vt_profile **out)
{
    vt_profile_params params;
    cli_progress progress;
    vt_error err;
    cli_profile_params(&params, o->threads, &progress);
    params.trial = o->trial;
    cli_catch_interrupts();
    cli_progress_begin(&progress);
    vt_status status = vt_profile_measure(&params, out, &err);
    cli_progress_end(&progress);
    if (status == VT_ERR_CANCELLED) return 130;
    if (status != VT_OK) return cli_fail(&err);
    if (!o->trial) cli_profile_keep(&o->cache, o->threads, *out);
    return CLI_OK;
}

static int check(profile_options *o, vt_profile *profile)
{
    vt_profile_params params;
    cli_progress progress;
    vt_error err;
    cli_profile_params(&params, o->threads, &progress);
    params.trial = o->trial;
    cli_catch_interrupts();
    cli_progress_begin(&progress);
    vt_status status = vt_profile_check(profile, &params, &err);
    cli_progress_end(&progress);
    if (status == VT_ERR_CANCELLED) return 130;
    if (status != VT_OK) return cli_fail(&err);
    if (!o->trial) cli_profile_keep(&o->cache, o->threads, profile);
    return CLI_OK;
}

static int show(const profile_options *o, const vt_profile *profile)
{
    vt_error err;
    vt_profile_info info;
    vt_profile_get_info(profile, &info);
    if (o->output && vt_profile_save(profile, o->output, &err) != VT_OK) return cli_fail(&err);
    int code = CLI_OK;
    if (o->json)
        code = print_json(profile);
    else if (!o->output)
        print_table(profile);
    if (code == CLI_OK && o->check && info.accuracy < CLI_LEAST_ACCURACY)
        code = cli_error(VT_ERR_INTERNAL,
                         "predictions are right to %.1f %%, less than %.0f %%: was the device "
                         "busy? Try again with --force",
                         100 * info.accuracy, 100 * CLI_LEAST_ACCURACY);
    return code;
}

/* A bad check is an error of its own. */
static void warn(const profile_options *o, const vt_profile *profile)
{
    vt_profile_info info;
    vt_profile_get_info(profile, &info);
    if (!o->check || info.disturbance > 0) cli_profile_warn(profile);
}

static int get(profile_options *o)
{
    vt_profile *profile = NULL;
    int code = CLI_OK;
    vt_error err;
    if (o->class_name && vt_profile_of_class(o->class_name, &profile, &err) != VT_OK)
        return cli_fail(&err);
    if (!profile && !o->force && !o->trial) profile = cli_profile_cached(&o->cache, o->threads);
    if (!profile) code = measure(o, &profile);
    if (code == CLI_OK && o->check) code = check(o, profile);
    if (code == CLI_OK) warn(o, profile);
    if (code == CLI_OK) code = show(o, profile);
    vt_profile_close(profile);
    return code;
}

static int run(int argc, char **argv)
{
    profile_options o = {.cache = {.max_bytes = CLI_CACHE_USUAL}};
    const cli_option options[] = {
        {"threads", 'T', CLI_U32, &o.threads, 1, 1024, "N",
         "threads that sessions will have (default: one per big core)"},
        {"check", 0, CLI_FLAG, &o.check, 0, 0, NULL,
         "measure other shapes, too, and say how well they are predicted"},
        {"force", 0, CLI_FLAG, &o.force, 0, 0, NULL, "measure anew what is in the cache"},
        {"output", 'o', CLI_STRING, &o.output, 0, 0, "FILE", "write the profile as JSON"},
        {"json", 0, CLI_FLAG, &o.json, 0, 0, NULL, "print it as JSON"},
        {"list", 0, CLI_FLAG, &o.list, 0, 0, NULL, "list the classes of devices that are known"},
        {"class", 0, CLI_STRING, &o.class_name, 0, 0, "NAME",
         "of a device of that class, from published figures, instead of this one"},
        {"where", 0, CLI_FLAG, &o.where, 0, 0, NULL, "only say which file keeps it"},
        {"trial", 0, CLI_FLAG, &o.trial, 0, 0, NULL,
         "everything once, in a moment: only whether it works; is not kept"},
        {"cache", 0, CLI_STRING, &o.cache.path, 0, 0, "DIR",
         "keep it here (default: ~/.cache/voltron)"},
        {"no-cache", 0, CLI_FLAG, &o.cache.none, 0, 0, NULL, "do not keep it"},
        {0},
    };
    int code = cli_parse(&cli_profile_command, options, argc, argv, NULL, NULL);
    if (code != CLI_OK) return code == CLI_DONE ? CLI_OK : code;
    code = o.list ? print_classes() : o.where ? print_place(&o) : get(&o);
    cli_cache_free(&o.cache);
    return code;
}

const cli_command cli_profile_command = {
    "profile",
    "Measure how fast this device computes, for planning; then it is kept.",
    "profile [--check] [-T N] [--json] [-o FILE] [--force] [--list]",
    run,
    "What a unit costs is fitted to measurements of the code that runs models: see "
    "docs/profile.md. Nothing else should be running meanwhile.",
    "  voltron-run profile --check\n"
    "  voltron-run profile -o phone.json\n",
};
