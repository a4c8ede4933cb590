/* voltron-bench run: how fast a model reads a prompt and writes an answer. The model is used
 * through the public header only. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_run.h"
#include "options.h"

enum { WARM_UP_TOKENS = 32 };

typedef struct run_options {
    const char *model, *kv, *frontiers;
    uint32_t prefill, decode, threads, repeats, batch, seed;
    bool json, csv;
} run_options;

typedef struct bench_run_state {
    run_options o;
    vt_kv_type kv_type;
    vti_pool *pool; /* to measure the read bandwidth with */
    bench_reader *reader;
    vt_model *model;
    vt_session *session;
    vt_token *tokens; /* a random text of the longest context */
    bench_run_report report;
} run_state;

static int fail(const vt_error *err) { return bench_error((int)err->status, "%s", err->message); }

/* --- what to measure -------------------------------------------------------------------------- */

/* Ascending numbers, separated by commas. */
static int read_frontiers(const char *text, bench_run_report *report)
{
    uint32_t before = 0;
    report->place_count = 0;
    for (const char *at = text;;) {
        char *end;
        unsigned long value = strtoul(at, &end, 10);
        bool fine = *at >= '0' && *at <= '9' && (*end == 0 || *end == ',') && value <= 1 << 20;
        if (!fine || value <= before || report->place_count == BENCH_MOST_PLACES)
            return bench_error(VT_ERR_ARGUMENT,
                               "--context-frontiers: \"%s\" is not a list of at most %d ascending "
                               "numbers such as 256,1024,4096", text, BENCH_MOST_PLACES);
        report->places[report->place_count++].context = before = (uint32_t)value;
        if (*end == 0) return VT_OK;
        at = end + 1;
    }
}

static int choose(run_state *s)
{
    static const struct {
        const char *name;
        vt_kv_type type;
    } kv_types[] = {{"f16", VT_KV_F16}, {"f32", VT_KV_F32}, {"q8", VT_KV_Q8}};
    bool known = false;
    if (!s->o.model) return bench_error(VT_ERR_ARGUMENT, "run needs -m FILE; see --help");
    for (int i = 0; i < 3; i++) {
        if (strcmp(s->o.kv, kv_types[i].name) != 0) continue;
        s->kv_type = kv_types[i].type;
        known = true;
    }
    if (!known)
        return bench_error(VT_ERR_ARGUMENT, "--kv: \"%s\" is not known; known: f16 f32 q8",
                           s->o.kv);
    s->report.place_count = 1;
    s->report.places[0].context = s->o.prefill;
    if (s->o.frontiers) return read_frontiers(s->o.frontiers, &s->report);
    return VT_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

static int open_machine(run_state *s)
{
    vt_error err;
    if (vti_pool_open(s->o.threads, &s->pool, &err) != VT_OK) return fail(&err);
    s->o.threads = s->report.threads = vti_pool_threads(s->pool);
    bench_cpu_name(s->report.cpu, sizeof s->report.cpu);
    s->reader = bench_reader_open(s->pool);
    if (s->reader) return VT_OK;
    return bench_error(VT_ERR_MEMORY, "no memory to measure the read bandwidth");
}

/* Any ids do, but control tokens are not what a text is made of. */
static void make_tokens(run_state *s, size_t count)
{
    uint64_t random = s->o.seed * 2654435761u + 1;
    for (size_t i = 0; i < count;) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        vt_token token = (vt_token)((random >> 16) % s->report.info.vocabulary_tokens);
        if (!vt_token_is_control(s->model, token)) s->tokens[i++] = token;
    }
}

static int open_session(run_state *s, uint32_t longest)
{
    vt_error err;
    vt_session_params params = vt_session_params_default();
    params.context_tokens = longest + s->o.decode + 2;
    if (params.context_tokens < WARM_UP_TOKENS + 2) params.context_tokens = WARM_UP_TOKENS + 2;
    params.batch_tokens = s->o.batch;
    params.kv_type = s->kv_type;
    params.sampling.temperature = 0;
    params.sampling.repeat_penalty = 1;
    if (vt_session_open(s->model, &params, &s->session, &err) != VT_OK) return fail(&err);
    size_t count = longest > WARM_UP_TOKENS ? longest : WARM_UP_TOKENS;
    s->tokens = malloc(count * sizeof *s->tokens);
    if (!s->tokens) return bench_error(VT_ERR_MEMORY, "no memory for %zu tokens", count);
    make_tokens(s, count);
    return VT_OK;
}

static int open_model(run_state *s)
{
    vt_error err;
    vt_model_params params = vt_model_params_default();
    params.threads = s->o.threads;
    double start = bench_now();
    if (vt_model_open(s->o.model, &params, &s->model, &err) != VT_OK) return fail(&err);
    vt_model_get_info(s->model, &s->report.info);
    int code = open_session(s, s->report.places[s->report.place_count - 1].context);
    s->report.load_seconds = bench_now() - start;
    return code;
}

/* --- measuring -------------------------------------------------------------------------------- */

/* From `from` tokens to `place`'s context, then an answer, then back to that context. */
static vt_status measure_place(run_state *s, uint32_t from, bench_place *place, uint32_t repeat,
                               vt_error *err)
{
    vt_token drawn;
    double start = bench_now();
    VTI_TRY(vt_session_feed(s->session, s->tokens + from, place->context - from, err));
    place->prefill[repeat] = (place->context - from) / (bench_now() - start);
    /* The first token is drawn from what the prompt's computation left; each one after that
     * computes the one before. */
    VTI_TRY(vt_session_next(s->session, &drawn, err));
    double bandwidth = bench_reader_rate(s->reader);
    start = bench_now();
    for (uint32_t i = 0; i < s->o.decode; i++)
        VTI_TRY(vt_session_next(s->session, &drawn, err));
    place->decode[repeat] = s->o.decode / (bench_now() - start);
    place->bandwidth[repeat] = (bandwidth + bench_reader_rate(s->reader)) / 2;
    return VT_OK;
}

static uint64_t hash_of(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001B3u;
    return hash;
}

static vt_status measure_once(run_state *s, uint32_t repeat, vt_error *err)
{
    const float *logits;
    VTI_TRY(vt_session_rewind(s->session, 0, err));
    for (uint32_t i = 0, from = 0; i < s->report.place_count; i++) {
        bench_place *place = &s->report.places[i];
        VTI_TRY(vt_session_rewind(s->session, from, err));
        VTI_TRY(measure_place(s, from, place, repeat, err));
        from = place->context;
    }
    VTI_TRY(vt_session_logits(s->session, &logits, err));
    s->report.logits_hash =
        hash_of(logits, s->report.info.vocabulary_tokens * sizeof *logits);
    return VT_OK;
}

static vt_status measure(run_state *s, vt_error *err)
{
    vt_token drawn;
    VTI_TRY(vt_session_feed(s->session, s->tokens, WARM_UP_TOKENS, err));
    for (int i = 0; i < 2; i++) VTI_TRY(vt_session_next(s->session, &drawn, err));
    for (uint32_t i = 0; i < s->o.repeats; i++) VTI_TRY(measure_once(s, i, err));
    return VT_OK;
}

/* Bytes of keys and values that decoding one token reads per token before it, all layers. */
static double kv_bytes(const run_state *s)
{
    const vt_model_info *info = &s->report.info;
    double f16 = (double)info->kv_bytes_per_token_f16;
    uint32_t row_bytes = 2 * info->head_dim;
    if (s->kv_type == VT_KV_F32) row_bytes = 4 * info->head_dim;
    if (s->kv_type == VT_KV_Q8) row_bytes = info->head_dim + 2 * ((info->head_dim + 31) / 32);
    return f16 * row_bytes / (2 * info->head_dim);
}

static void summarise_place(bench_place *p, uint32_t repeats, double bytes_per_token)
{
    double percents[BENCH_MOST_REPEATS];
    for (uint32_t i = 0; i < repeats; i++)
        percents[i] = 100 * p->decode[i] * bytes_per_token / p->bandwidth[i];
    p->percent = bench_median(percents, repeats);
    p->bandwidth_median = bench_median(p->bandwidth, repeats);
    p->prefill_median = bench_median(p->prefill, repeats);
    p->decode_median = bench_median(p->decode, repeats);
    p->bytes_per_second = p->decode_median * bytes_per_token;
}

static void summarise(run_state *s)
{
    vt_session_stats stats;
    vt_session_get_stats(s->session, &stats);
    s->report.weight_bytes_per_token = stats.weight_bytes_per_token;
    for (uint32_t i = 0; i < s->report.place_count; i++)
        summarise_place(&s->report.places[i], s->o.repeats,
                        (double)stats.weight_bytes_per_token +
                            kv_bytes(s) * (s->report.places[i].context + (s->o.decode + 1) / 2.0));
}

static int run(run_state *s)
{
    vt_error err;
    int code = choose(s);
    if (code == VT_OK) code = open_machine(s);
    if (code == VT_OK) code = open_model(s);
    if (code != VT_OK) return code;
    if (measure(s, &err) != VT_OK) return fail(&err);
    summarise(s);
    s->report.model = s->o.model;
    s->report.kv = s->o.kv;
    s->report.decode_tokens = s->o.decode;
    s->report.repeats = s->o.repeats;
    if (s->o.json) return bench_run_print_json(&s->report);
    if (s->o.csv)
        bench_run_print_csv(&s->report);
    else
        bench_run_print(&s->report);
    return VT_OK;
}

int bench_run(int argc, char **argv)
{
    static run_state state; /* the series are long */
    run_options *o = &state.o;
    *o = (run_options){.kv = "f16", .prefill = 256, .decode = 64, .repeats = 3, .seed = 1};
    const bench_option options[] = {
        {"-m", BENCH_TEXT, &o->model, 0, 0, "FILE", "model, GGUF"},
        {"-p", BENCH_U32, &o->prefill, 1, 1 << 20, "N", "tokens of the prompt, default 256"},
        {"-n", BENCH_U32, &o->decode, 1, 1 << 20, "N", "tokens of the answer, default 64"},
        {"-t", BENCH_U32, &o->threads, 1, 1024, "N", "threads, default one per big core"},
        {"-r", BENCH_U32, &o->repeats, 1, BENCH_MOST_REPEATS, "N", "repeats, default 3"},
        {"--context-frontiers", BENCH_TEXT, &o->frontiers, 0, 0, "LIST",
         "instead of -p: decode at each of these contexts, e.g. 256,1024,4096"},
        {"--kv", BENCH_TEXT, &o->kv, 0, 0, "TYPE", "KV cache: f16 (default), q8 or f32"},
        {"--batch", BENCH_U32, &o->batch, 1, 65536, "N", "tokens of a prefill batch"},
        {"--seed", BENCH_U32, &o->seed, 0, UINT32_MAX, "N", "of the random prompt, default 1"},
        {"--json", BENCH_FLAG, &o->json, 0, 0, NULL, "print JSON"},
        {"--csv", BENCH_FLAG, &o->csv, 0, 0, NULL, "print CSV"},
        {0},
    };
    static const char more[] =
        "GB/s is what decoding reads, weights and KV cache; the read bandwidth is measured just\n"
        "before and after it, with the same threads. The hash is of the last logits: same model, options and\n"
        "machine, same hash.\n";
    int code = bench_parse(options, argc, argv, "prefill and decode speed of a model", more);
    if (code != VT_OK) return code < 0 ? 0 : code;
    code = run(&state);
    free(state.tokens);
    vt_session_close(state.session);
    vt_model_close(state.model);
    bench_reader_close(state.reader);
    vti_pool_close(state.pool);
    return code;
}
