#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { HELP_COLUMNS = 80, HELP_LEFT = 30 };

static bool is_end(const cli_option *o) { return !o->name && o->kind != CLI_HEADING; }

/* --- help -------------------------------------------------------------------------------------- */

static void print_option(const cli_option *o)
{
    if (o->kind == CLI_HEADING) {
        printf("\n%s\n", o->help);
        return;
    }
    char left[64];
    snprintf(left, sizeof left, "%c%c%s --%s%s%s", o->letter ? '-' : ' ',
             o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name, o->argument ? " " : "",
             o->argument ? o->argument : "");
    int width = cli_columns(left);
    printf("  %s%*s ", left, width < HELP_LEFT ? HELP_LEFT - width : 0, "");
    cli_print_wrapped(o->help, HELP_COLUMNS, 3 + (width < HELP_LEFT ? HELP_LEFT : width),
                      3 + HELP_LEFT);
}

static void print_help(const cli_command *command, const cli_option *options)
{
    cli_print_wrapped(command->summary, HELP_COLUMNS, 0, 0);
    printf("\nUsage: voltron-run ");
    cli_print_wrapped(command->usage, HELP_COLUMNS, 19, 8);
    if (command->description) {
        putchar('\n');
        cli_print_wrapped(command->description, HELP_COLUMNS, 0, 0);
    }
    printf("\nOptions\n");
    for (const cli_option *o = options; !is_end(o); o++) print_option(o);
    printf("  %-*s show this\n", HELP_LEFT, "-h, --help");
    if (command->examples) printf("\nExamples\n%s", command->examples);
}

/* --- values ------------------------------------------------------------------------------------ */

static int bad_value(const cli_option *o, const char *text, const char *expected)
{
    return cli_error(CLI_USAGE, "--%s: \"%s\" is not right, expected %s", o->name, text, expected);
}

static int set_integer(const cli_option *o, const char *text)
{
    char *end, expected[64];
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool unlimited = o->kind == CLI_U64 && o->high == 0; /* up to what JSON can hold */
    bool fine = *text >= '0' && *text <= '9' && *end == 0 && errno == 0;
    bool high = unlimited ? value > INT64_MAX : (double)value > o->high;
    if (!fine || (double)value < o->low || high) {
        if (unlimited)
            snprintf(expected, sizeof expected, "a whole number below 2^63");
        else
            snprintf(expected, sizeof expected, "a whole number from %.0f to %.0f", o->low,
                     o->high);
        return bad_value(o, text, expected);
    }
    if (o->kind == CLI_U64)
        *(uint64_t *)o->target = value;
    else
        *(uint32_t *)o->target = (uint32_t)value;
    return CLI_OK;
}

static int set_float(const cli_option *o, const char *text)
{
    char *end, expected[64];
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= o->low && value <= o->high)) {
        snprintf(expected, sizeof expected, "a number from %g to %g", o->low, o->high);
        return bad_value(o, text, expected);
    }
    *(float *)o->target = (float)value;
    return CLI_OK;
}

/* Binary units: K, M, G, T, with or without "B" or "iB". */
static int set_size(const cli_option *o, const char *text)
{
    static const char units[] = "KMGT";
    const char *expected = "a size such as 800M or 1.5G";
    char *end;
    double value = strtod(text, &end);
    if (end == text || !isfinite(value) || value <= 0) return bad_value(o, text, expected);
    char letter = (char)(*end >= 'a' ? *end - 32 : *end);
    const char *unit = letter ? strchr(units, letter) : NULL;
    if (unit) {
        for (const char *u = units; u <= unit; u++) value *= 1024;
        end++;
        if (*end == 'i') end++;
    }
    if (*end == 'B' || *end == 'b') end++;
    if (*end || value < 1 || value > 1e18) return bad_value(o, text, expected);
    *(uint64_t *)o->target = (uint64_t)value;
    return CLI_OK;
}

static int set_kv(const cli_option *o, const char *text)
{
    static const struct {
        const char *name;
        vt_kv_type type;
    } types[] = {{"f16", VT_KV_F16}, {"f32", VT_KV_F32}, {"q8", VT_KV_Q8}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(text, types[i].name) != 0) continue;
        *(vt_kv_type *)o->target = types[i].type;
        return CLI_OK;
    }
    return bad_value(o, text, "f16, f32 or q8");
}

static int add_to_list(const cli_option *o, const char *text)
{
    cli_list *list = o->target;
    if (list->count == CLI_LIST_MAX)
        return cli_error(CLI_USAGE, "--%s was given too often; at most %d times", o->name,
                         CLI_LIST_MAX);
    list->items[list->count++] = text;
    return CLI_OK;
}

static int set_value(const cli_option *o, const char *text)
{
    switch (o->kind) {
    case CLI_STRING: *(const char **)o->target = text; return CLI_OK;
    case CLI_U32:
    case CLI_U64: return set_integer(o, text);
    case CLI_F32: return set_float(o, text);
    case CLI_SIZE: return set_size(o, text);
    case CLI_KV: return set_kv(o, text);
    case CLI_LIST: return add_to_list(o, text);
    case CLI_FLAG:
    case CLI_HEADING: break;
    }
    return CLI_OK;
}

/* --- finding ----------------------------------------------------------------------------------- */

/* Levenshtein distance, for "did you mean". */
static int distance(const char *a, const char *b)
{
    size_t n = strlen(b);
    int row[64];
    if (n >= 63 || strlen(a) >= 63) return 99;
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (size_t i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

static int unknown(const cli_command *command, const cli_option *options, const char *argument)
{
    const char *name = argument + (argument[1] == '-' ? 2 : 1), *nearest = NULL;
    int least = 3;
    for (const cli_option *o = options; !is_end(o); o++) {
        int d = o->name ? distance(name, o->name) : 99;
        if (o->name && name[0] && name[1] && strncmp(o->name, name, strlen(name)) == 0) d = 0;
        if (d < least) {
            least = d;
            nearest = o->name;
        }
    }
    if (nearest)
        return cli_error(CLI_USAGE, "unknown option %s; did you mean --%s?", argument, nearest);
    return cli_error(CLI_USAGE, "unknown option %s; see voltron-run %s --help", argument,
                     command->name);
}

static const cli_option *find(const cli_option *options, const char *argument, size_t name_bytes)
{
    for (const cli_option *o = options; !is_end(o); o++) {
        if (!o->name) continue;
        if (argument[1] == '-' && strlen(o->name) == name_bytes &&
            strncmp(argument + 2, o->name, name_bytes) == 0)
            return o;
        if (argument[1] != '-' && o->letter && argument[1] == o->letter && !argument[2]) return o;
    }
    return NULL;
}

/* Takes options[…] at argv[*i] and, if it has one, its value. */
static int take_option(const cli_command *command, const cli_option *options, int argc, char **argv,
                       int *i)
{
    const char *argument = argv[*i];
    const char *equals = argument[1] == '-' ? strchr(argument, '=') : NULL;
    size_t name_bytes = equals ? (size_t)(equals - argument - 2) : strlen(argument) - 2;
    const cli_option *o = find(options, argument, name_bytes);
    if (!o) return unknown(command, options, argument);
    if (o->kind == CLI_FLAG) {
        if (equals) return cli_error(CLI_USAGE, "--%s takes no value", o->name);
        *(bool *)o->target = true;
        return CLI_OK;
    }
    if (equals) return set_value(o, equals + 1);
    if (*i + 1 >= argc) return cli_error(CLI_USAGE, "--%s needs a value: %s", o->name, o->argument);
    return set_value(o, argv[++*i]);
}

int cli_parse(const cli_command *command, const cli_option *options, int argc, char **argv,
              const char **positional, int *positional_count)
{
    int room = positional_count ? *positional_count : 0, count = 0;
    bool only_positional = false;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        bool option = !only_positional && argument[0] == '-' && argument[1];
        if (option && strcmp(argument, "--") == 0) {
            only_positional = true;
        } else if (option && (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0)) {
            print_help(command, options);
            return CLI_DONE;
        } else if (option) {
            int code = take_option(command, options, argc, argv, &i);
            if (code != CLI_OK) return code;
        } else if (count < room) {
            positional[count++] = argument;
        } else {
            return cli_error(CLI_USAGE, "unexpected argument \"%s\"; usage: voltron-run %s",
                             argument, command->usage);
        }
    }
    if (positional_count) *positional_count = count;
    return CLI_OK;
}
