/* bench.h: the commands of voltron-bench and what they share. */
#ifndef VTI_BENCH_H
#define VTI_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "../src/pool.h"

/* argv[0] is the command's name. Returns the exit code. */
typedef int bench_command(int argc, char **argv);
bench_command bench_kernels, bench_link, bench_plan, bench_predict, bench_requantize, bench_run;
bench_command bench_store, bench_swap, bench_synth, bench_tokenize;

/* Seconds from a clock that only goes forward. */
double bench_now(void);

/* Cycles per second this core runs at now, from a chain of additions of known latency. */
double bench_core_hz(void);

/* "AMD EPYC …", or "unknown processor". */
void bench_cpu_name(char *out, size_t capacity);

/* How fast the pool's threads together read memory, by the fastest of several loops in its best
 * pass: what nothing that reads memory can exceed for long. On a machine with neighbours that
 * changes from second to second. */
typedef struct bench_reader bench_reader;
bench_reader *bench_reader_open(vti_pool *pool); /* NULL if there is no memory to read */
double bench_reader_rate(bench_reader *reader);  /* bytes per second, measured now, for 0.1 s */
void bench_reader_close(bench_reader *reader);

/* The same for a single measurement. 0 if there is no memory to read. */
double bench_read_bandwidth(vti_pool *pool);

/* Sorts; the median of n values. */
double bench_median(double *values, size_t n);

#endif
