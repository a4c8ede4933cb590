/* bench_run.h: what voltron-bench run found out, and how it is printed. */
#ifndef VTI_BENCH_RUN_H
#define VTI_BENCH_RUN_H

#include "bench.h"
#include "voltron.h"

enum { BENCH_MOST_PLACES = 16, BENCH_MOST_REPEATS = 1000 };

/* A context length at which was measured; rates in tokens per second. */
typedef struct bench_place {
    uint32_t context;
    double prefill[BENCH_MOST_REPEATS], decode[BENCH_MOST_REPEATS]; /* sorted once summarised */
    double bandwidth[BENCH_MOST_REPEATS]; /* bytes per second, before and after decoding */
    double prefill_median, decode_median, bandwidth_median;
    double bytes_per_second; /* that decoding read, by its median */
    double percent;          /* of the bandwidth around it, median */
} bench_place;

typedef struct bench_run_report {
    const char *model, *kv;
    vt_model_info info;
    uint32_t threads, decode_tokens, repeats;
    char cpu[128];
    double load_seconds;
    uint64_t weight_bytes_per_token, logits_hash;
    bench_place places[BENCH_MOST_PLACES];
    uint32_t place_count;
} bench_run_report;

void bench_run_print(const bench_run_report *report);
void bench_run_print_csv(const bench_run_report *report);
int bench_run_print_json(const bench_run_report *report); /* exit code */

#endif
