/* predict.h: alternatives for one model, how long they take, and how long they should take. */
#ifndef VTI_BENCH_PREDICT_H
#define VTI_BENCH_PREDICT_H

#include <stdbool.h>

#include "../src/plan_model.h"
#include "../src/profile.h"
#include "voltron.h"

enum { PREDICT_PROCESSES = 3, PREDICT_REPEATS = 25, PREDICT_MOST = 4096 };

/* One placement of a model at one precision and context, in seconds. */
typedef struct predict_row {
    const char *model;
    const char *precision;
    uint32_t threads, context;
    unsigned processes;
    uint32_t layers[PREDICT_PROCESSES]; /* of each; main first */
    double ttft, tpot;                  /* measured, medians */
    double ttft_predicted, tpot_predicted;
} predict_row;

/* What both sides need to know of a case. */
typedef struct predict_case {
    vt_model *model;
    const vti_profile *profile; /* of every process */
    vti_plan_link link;         /* between any two */
    vt_precision precision;
    uint32_t decode_tokens, repeats;
} predict_case;

/* Worker processes, each with a model file of its own to read from. */
typedef struct predict_workers {
    unsigned count;
    int pids[PREDICT_PROCESSES];
    char addresses[PREDICT_PROCESSES][64];
} predict_workers;

/* To be called while this process has no threads. False after a line on stderr. */
bool predict_workers_start(predict_workers *workers, unsigned count, uint32_t threads,
                           const char *model_path);
void predict_workers_stop(predict_workers *workers);

/* Latency and bandwidth to the first of them, by a probe. False after a line on stderr. */
bool predict_measure_link(const predict_workers *workers, vti_plan_link *out);

/* Fills ttft_predicted and tpot_predicted. */
vt_status predict_by_plan(const predict_case *c, predict_row *row, vt_error *err);

/* Fills ttft and tpot. */
vt_status predict_by_running(const predict_case *c, const predict_workers *workers,
                             predict_row *row, vt_error *err);

/* How good the predictions are: mean of |predicted / measured - 1| (of each), and of the pairs of
 * alternatives that differ by more than a tenth those whose order was predicted. Alternatives: same
 * model, threads and context. */
typedef struct predict_summary {
    double ttft_error, tpot_error;
    unsigned pairs, right;
} predict_summary;
predict_summary predict_sum_up(const predict_row *rows, size_t count);

#endif
