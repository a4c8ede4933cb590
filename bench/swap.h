/* swap.h: what voltron-bench swap runs, and what it found. */
#ifndef VTI_BENCH_SWAP_H
#define VTI_BENCH_SWAP_H

#include "../src/model.h"
#include "bench.h"

/* A shard that came into its slot while token `token` was made. */
typedef struct swap_event {
    uint32_t token;
    vti_shard_id id;
} swap_event;

/* One answer, and what was exchanged meanwhile. */
typedef struct swap_run {
    double *ms;          /* per token, in order */
    uint32_t tokens;     /* at least those asked for, more until every change is made */
    uint32_t capacity;
    swap_event *events;
    uint32_t event_count;
    vti_shard_loader_stats stats;
} swap_run;

typedef enum swap_mode {
    SWAP_NONE,       /* nothing changes */
    SWAP_FOREGROUND, /* between two tokens, on the thread that computes */
    SWAP_BACKGROUND,
} swap_mode;

typedef struct swap_bench {
    const char *path;
    vt_model *model;
    vt_session *session;
    vt_token prompt[16];
    uint32_t tokens;    /* over which the changes are spread */
    bool at_once;       /* instead: each as soon as the one before is made */
    bool cold;          /* the file is dropped from the page cache before a run */
    vti_load_pace pace;
    uint64_t extra_bytes;
    vti_shard_supplier supplier;
    vti_shard **resident; /* every shard at every precision, for runs that repeat another's events */
    vt_error err;
} swap_bench;

/* F16→I8→I4→F16, unit by unit. */
enum { SWAP_ROUNDS = 3 };

uint32_t swap_change_count(const swap_bench *bench);

/* Loads what `resident` is. */
vt_status swap_make_resident(swap_bench *bench);
void swap_free_resident(swap_bench *bench);

/* Writes an answer in that mode. */
vt_status swap_write(swap_bench *bench, swap_mode mode, swap_run *out);

/* The same answer with the same shards in every token, which cost nothing as they are all there. */
vt_status swap_repeat(swap_bench *bench, const swap_run *of, swap_run *out);

void swap_run_free(swap_run *run);

#endif
