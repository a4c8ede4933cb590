/* swap_run.c: answers whose model changes its precision meanwhile. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "../src/session_internal.h"
#include "swap.h"

/* Changes of units that may be asked for and not made yet: enough that the loader need not wait for
 * the next token. */
enum { MOST_OPEN = 8, WARM_UP = 8 };

typedef struct state {
    swap_bench *bench;
    swap_run *run;
    vti_shard_loader *loader;
    uint32_t next;         /* change to be asked for */
    _Atomic uint32_t token;
    _Atomic uint32_t open; /* shards that were asked for and are not over */
    _Atomic bool failed;
    vt_error why;          /* if so */
} state;

uint32_t swap_change_count(const swap_bench *b)
{
    return SWAP_ROUNDS * (vti_head_unit(&b->model->geometry) + 1);
}

static vti_shard_id id_of(const swap_bench *b, uint32_t change)
{
    static const vti_precision to[SWAP_ROUNDS] = {VTI_PRECISION_I8, VTI_PRECISION_I4,
                                                  VTI_PRECISION_F16};
    uint32_t units = vti_head_unit(&b->model->geometry) + 1;
    return (vti_shard_id){change % units, 0, to[change / units]};
}

/* On the thread that loads, one at a time. */
static void note(void *user, vti_shard_id id, vt_status status, const char *sentence)
{
    state *s = user;
    swap_run *run = s->run;
    if (status == VT_OK)
        run->events[run->event_count++] = (swap_event){s->token, id};
    else if (!s->failed)
        s->failed = vti_fail(&s->why, status, "%s", sentence) != VT_OK;
    atomic_fetch_sub(&s->open, 1);
}

static vt_status ask(state *s, uint32_t change)
{
    vti_shard_id id = id_of(s->bench, change);
    uint32_t shards = vti_unit_shards(&s->bench->model->geometry, id.unit);
    for (; id.shard < shards; id.shard++) {
        vti_load_request request = {.id = id, .done = note, .user = s};
        atomic_fetch_add(&s->open, 1);
        VTI_TRY(vti_shard_loader_request(s->loader, &request, NULL, &s->bench->err));
    }
    return VT_OK;
}

/* Number of changes that should have been asked for before this token. */
static uint32_t due(const swap_bench *b, uint32_t token)
{
    uint64_t changes = swap_change_count(b);
    if (b->at_once || token >= b->tokens) return (uint32_t)changes;
    return (uint32_t)(changes * (token + 1) / b->tokens);
}

static uint32_t shard_count(const swap_bench *b)
{
    uint32_t shards = 0;
    for (uint32_t u = 0; u <= vti_head_unit(&b->model->geometry); u++)
        shards += vti_unit_shards(&b->model->geometry, u);
    return shards;
}

/* Changes that may wait: so few that none overtakes another of the same shard, which would be
 * dropped. */
static uint32_t most_open(const swap_bench *b)
{
    uint32_t some = MOST_OPEN * vti_shard_table_slots(b->model->table, 1), half = shard_count(b) / 2;
    return some < half ? some : half;
}

/* Between two tokens. */
static vt_status change(state *s, swap_mode mode, uint32_t token)
{
    if (mode == SWAP_NONE) return VT_OK;
    uint32_t wanted = due(s->bench, token);
    s->token = token;
    while (s->next < wanted) {
        if (mode == SWAP_BACKGROUND && s->open > most_open(s->bench)) break;
        VTI_TRY(ask(s, s->next++));
    }
    if (mode == SWAP_FOREGROUND) vti_shard_loader_finish(s->loader);
    return VT_OK;
}

static bool is_done(const state *s, swap_mode mode)
{
    if (mode == SWAP_NONE) return true;
    return s->next == swap_change_count(s->bench) && s->open == 0;
}

/* --- answers ----------------------------------------------------------------------------------- */

static vt_status begin(swap_bench *b)
{
    vt_token drawn;
    VTI_TRY(vt_session_rewind(b->session, 0, &b->err));
    VTI_TRY(vt_session_feed(b->session, b->prompt, 16, &b->err));
    for (int i = 0; i < WARM_UP; i++) VTI_TRY(vt_session_next(b->session, &drawn, &b->err));
    return VT_OK;
}

static vt_status allocate(swap_bench *b, swap_run *run)
{
    *run = (swap_run){.capacity = b->session->context - 16 - WARM_UP - 1};
    run->ms = malloc(run->capacity * sizeof *run->ms);
    run->events = malloc((size_t)SWAP_ROUNDS * shard_count(b) * sizeof *run->events);
    if (run->ms && run->events) return VT_OK;
    return vti_fail(&b->err, VT_ERR_MEMORY, "no memory for a run of %u tokens", run->capacity);
}

static void drop_from_cache(const swap_bench *b)
{
    int file = b->cold ? open(b->path, O_RDONLY) : -1;
    if (file < 0) return;
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
}

static vt_status write_tokens(state *s, swap_mode mode)
{
    swap_bench *b = s->bench;
    swap_run *run = s->run;
    while (run->tokens < b->tokens || !is_done(s, mode)) {
        vt_token drawn;
        if (s->failed) return vti_fail(&b->err, s->why.status, "%s", s->why.message);
        if (run->tokens == run->capacity)
            return vti_fail(&b->err, VT_ERR_CONTEXT_FULL,
                            "not all changes were made within %u tokens", run->capacity);
        double start = bench_now();
        VTI_TRY(change(s, mode, run->tokens));
        VTI_TRY(vt_session_next(b->session, &drawn, &b->err));
        run->ms[run->tokens++] = (bench_now() - start) * 1e3;
    }
    return VT_OK;
}

vt_status swap_write(swap_bench *b, swap_mode mode, swap_run *run)
{
    state s = {.bench = b, .run = run, .loader = NULL};
    vti_shard_loader_params params = {b->model->table, vti_shard_supply_of(&b->supplier),
                                      mode == SWAP_BACKGROUND ? b->pace : VTI_PACE_NONE,
                                      b->extra_bytes};
    VTI_TRY(allocate(b, run));
    VTI_TRY(vti_shard_loader_open(&params, &s.loader, &b->err));
    drop_from_cache(b);
    vt_status status = begin(b);
    if (status == VT_OK) status = write_tokens(&s, mode);
    run->stats = vti_shard_loader_get_stats(s.loader);
    vti_shard_loader_close(s.loader);
    return status;
}

/* --- the same without loading ------------------------------------------------------------------ */

static vti_shard **resident_slot(const swap_bench *b, vti_shard_id id)
{
    uint32_t widest = 0;
    for (uint32_t u = 0; u <= vti_head_unit(&b->model->geometry); u++)
        if (vti_unit_shards(&b->model->geometry, u) > widest)
            widest = vti_unit_shards(&b->model->geometry, u);
    return &b->resident[((size_t)id.unit * widest + id.shard) * VTI_PRECISION_COUNT + id.precision];
}

static size_t resident_count(const swap_bench *b)
{
    vti_shard_id end = {vti_head_unit(&b->model->geometry) + 1, 0, VTI_PRECISION_F16};
    return (size_t)(resident_slot(b, end) - b->resident);
}

vt_status swap_make_resident(swap_bench *b)
{
    vti_shard_supply supply = vti_shard_supply_of(&b->supplier);
    vti_shard *none = NULL;
    b->resident = &none; /* to count from */
    size_t count = resident_count(b);
    b->resident = calloc(count, sizeof *b->resident);
    if (!b->resident) return vti_fail(&b->err, VT_ERR_MEMORY, "no memory for %zu shards", count);
    for (uint32_t u = 0; u <= vti_head_unit(&b->model->geometry); u++)
        for (uint32_t i = 0; i < vti_unit_shards(&b->model->geometry, u); i++)
            for (vti_precision p = VTI_PRECISION_F16; p < VTI_PRECISION_COUNT; p++) {
                vti_shard_id id = {u, i, p};
                VTI_TRY(supply.make(supply.self, id, resident_slot(b, id), &b->err));
            }
    return VT_OK;
}

void swap_free_resident(swap_bench *b)
{
    for (size_t i = 0; b->resident && i < resident_count(b); i++)
        vti_shard_free(b->supplier.memory, b->resident[i]);
    free(b->resident);
    b->resident = NULL;
}

/* Takes the place of what the other run had loaded by then. */
static void put_resident(swap_bench *b, const swap_run *of, uint32_t *next, uint32_t token,
                         vti_shard **own)
{
    for (; *next < of->event_count && of->events[*next].token <= token; ++*next) {
        vti_shard_id id = of->events[*next].id, first = id;
        first.precision = VTI_PRECISION_F16;
        vti_shard *old = vti_shard_table_exchange(b->model->table, id.unit, id.shard,
                                                  *resident_slot(b, id));
        size_t at = (size_t)(resident_slot(b, first) - b->resident) / VTI_PRECISION_COUNT;
        if (!own[at]) own[at] = old;
    }
}

static void put_back(swap_bench *b, vti_shard **own)
{
    for (uint32_t u = 0; u <= vti_head_unit(&b->model->geometry); u++)
        for (uint32_t i = 0; i < vti_unit_shards(&b->model->geometry, u); i++) {
            vti_shard_id id = {u, i, VTI_PRECISION_F16};
            size_t at = (size_t)(resident_slot(b, id) - b->resident) / VTI_PRECISION_COUNT;
            if (own[at]) vti_shard_table_exchange(b->model->table, u, i, own[at]);
        }
}

static vt_status repeat_tokens(swap_bench *b, const swap_run *of, swap_run *run, vti_shard **own)
{
    uint32_t next = 0;
    while (run->tokens < of->tokens) {
        vt_token drawn;
        put_resident(b, of, &next, run->tokens, own);
        double start = bench_now();
        VTI_TRY(vt_session_next(b->session, &drawn, &b->err));
        run->ms[run->tokens++] = (bench_now() - start) * 1e3;
    }
    return VT_OK;
}

vt_status swap_repeat(swap_bench *b, const swap_run *of, swap_run *run)
{
    VTI_TRY(allocate(b, run));
    vti_shard **own = calloc(resident_count(b) / VTI_PRECISION_COUNT, sizeof *own);
    if (!own) return vti_fail(&b->err, VT_ERR_MEMORY, "no memory for a run");
    vt_status status = begin(b);
    if (status == VT_OK) status = repeat_tokens(b, of, run, own);
    put_back(b, own);
    free(own);
    return status;
}

void swap_run_free(swap_run *run)
{
    free(run->ms);
    free(run->events);
    *run = (swap_run){0};
}
