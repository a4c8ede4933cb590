#include "options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "voltron.h"

int bench_error(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("voltron-bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return code;
}

static void print_help(const bench_option *options, const char *command, const char *summary,
                       const char *more)
{
    printf("voltron-bench %s: %s\n\n", command, summary);
    for (const bench_option *o = options; o->name; o++) {
        int width = printf("  %s%s%s", o->name, o->argument ? " " : "",
                           o->argument ? o->argument : "");
        printf("%*s %s\n", width < 26 ? 26 - width : 0, "", o->help);
    }
    if (more) printf("\n%s", more);
}

static bool read_number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == 0 && errno == 0 && *out <= most;
}

static int set(const bench_option *o, const char *text)
{
    uint64_t number;
    switch (o->kind) {
    case BENCH_FLAG: *(bool *)o->target = true; return VT_OK;
    case BENCH_TEXT: *(const char **)o->target = text; return VT_OK;
    case BENCH_U32:
        if (!read_number(text, o->high, &number) || number < o->low)
            return bench_error(VT_ERR_ARGUMENT, "%s: \"%s\" is not a whole number from %u to %u",
                               o->name, text, o->low, o->high);
        *(uint32_t *)o->target = (uint32_t)number;
        return VT_OK;
    case BENCH_U64:
        if (!read_number(text, UINT64_MAX, &number))
            return bench_error(VT_ERR_ARGUMENT, "%s: \"%s\" is not a whole number", o->name, text);
        *(uint64_t *)o->target = number;
        return VT_OK;
    }
    return VT_ERR_INTERNAL;
}

static const bench_option *find(const bench_option *options, const char *name)
{
    for (const bench_option *o = options; o->name; o++)
        if (strcmp(o->name, name) == 0) return o;
    return NULL;
}

int bench_parse(const bench_option *options, int argc, char **argv, const char *summary,
                const char *more)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(options, argv[0], summary, more);
            return -1;
        }
        const bench_option *o = find(options, argv[i]);
        if (!o)
            return bench_error(VT_ERR_ARGUMENT, "%s has no option \"%s\"; --help lists them",
                               argv[0], argv[i]);
        if (o->kind != BENCH_FLAG && i + 1 == argc)
            return bench_error(VT_ERR_ARGUMENT, "%s needs a value", o->name);
        int code = set(o, o->kind == BENCH_FLAG ? NULL : argv[++i]);
        if (code != VT_OK) return code;
    }
    return VT_OK;
}
