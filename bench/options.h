/* options.h: command lines of voltron-bench's commands. */
#ifndef VTI_BENCH_OPTIONS_H
#define VTI_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bench_option_kind {
    BENCH_FLAG, /* bool * */
    BENCH_TEXT, /* const char ** */
    BENCH_U32,  /* uint32_t *, low … high */
    BENCH_U64,  /* uint64_t * */
} bench_option_kind;

typedef struct bench_option {
    const char *name;          /* "--shape", or "-p" */
    bench_option_kind kind;
    void *target;              /* keeps its value if the option is not given */
    uint32_t low, high;        /* of BENCH_U32 */
    const char *argument, *help;
} bench_option;

/* Says it on stderr behind "voltron-bench: "; returns `code`, an exit code (vt_status numbers). */
int bench_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parses argv[1 …]; the table ends with an option without name. VT_OK, or VT_ERR_ARGUMENT after a
 * line on stderr, or -1 after --help has been printed: `summary`, the options, `more`. */
int bench_parse(const bench_option *options, int argc, char **argv, const char *summary,
                const char *more);

#endif
