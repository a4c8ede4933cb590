#include "profile_sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "profile_bed.h"
#include "profile_reader.h"

enum {
    BATCH_TOKENS = 128, /* a session's default */
    CONTEXTS_MAX = 4,
    LEAST_VOCAB = 256,  /* smaller ones are only there because a model needs one */
    REPEATS_MAX = 64,   /* of a point; each times all layers */
    POINT_NS = 300000000, /* that a point may take on a busy machine, … */
    HASTY_NS = 30000000,  /* … or when all of them took … */
    LONG_S = 10,          /* … so many seconds already */
    TRIAL_WIDTH = 400,   /* d of the shapes that a trial runs at most, … */
    TRIAL_TOKENS = 8     /* … and how many tokens */
};

/* Times that differ by less than this factor agree. */
#define AGREE 1.04

/* What a shape is measured at. Lists end with 0. */
typedef struct sweep_case {
    vti_bed_shape shape;
    bool cached; /* so few layers that they stay in the cache */
    uint16_t contexts[CONTEXTS_MAX]; /* tokens in the KV cache, of decoding */
    uint16_t prompts[CONTEXTS_MAX];  /* tokens */
} sweep_case;

/* A trial runs small shapes once. */
static bool is_left_out(const vti_sweep_params *p, const sweep_case *c)
{
    return p->tiny && (!c->cached || c->shape.d > TRIAL_WIDTH);
}

/* Widths and head counts of published models, or near them: MHA, GQA, SWA, dense and MoE;
 * vocabularies so small that HEAD takes no longer than a layer. */
static const sweep_case fitted[] = {
    {{VTI_ARCH_QWEN2, 896, 14, 2, 64, 4864, 0, 0, 0, 0, 32768},
     false, {16, 1024, 3000}, {32, 128, 512}},
    {{VTI_ARCH_LLAMA, 2048, 16, 16, 128, 5632, 0, 0, 0, 0, 8192},
     false, {64, 2000}, {64}},
    {{VTI_ARCH_GEMMA3, 640, 4, 2, 256, 2048, 256, 0, 0, 0, 16384},
     false, {16, 200, 2000}, {64, 512}},
    {{VTI_ARCH_LLAMA, 1024, 16, 16, 64, 2816, 0, 0, 0, 0, 16384},
     false, {64, 1024}, {16, 128, 384}},
    {{VTI_ARCH_QWEN2MOE, 1024, 16, 16, 64, 2816, 0, 10, 4, 704, 32},
     false, {1000}, {128}},
    {{VTI_ARCH_QWEN2MOE, 2048, 16, 4, 128, 1408, 0, 6, 2, 1408, 32},
     false, {500}, {64}},
    {{VTI_ARCH_QWEN2MOE, 768, 12, 12, 64, 1536, 0, 6, 2, 512, 32},
     false, {200}, {48, 256}},
    {{VTI_ARCH_QWEN2MOE, 1280, 10, 2, 128, 640, 0, 16, 6, 320, 32},
     false, {300}, {128}},
    {{VTI_ARCH_LLAMA, 256, 8, 4, 32, 688, 0, 0, 0, 0, 2048},
     true, {16, 256, 1000}, {32, 128, 256}},
    {{VTI_ARCH_QWEN2, 512, 8, 8, 64, 1408, 0, 0, 0, 0, 2048},
     true, {16, 500}, {32, 128, 256}},
    {{VTI_ARCH_QWEN2MOE, 256, 4, 4, 64, 512, 0, 8, 2, 256, 1024},
     true, {64}, {128}},
    {{VTI_ARCH_QWEN2MOE, 384, 6, 6, 64, 768, 0, 16, 4, 128, 2048},
     true, {64}, {64, 128}},
    {{VTI_ARCH_QWEN2MOE, 512, 8, 2, 64, 256, 0, 8, 3, 192, 4096},
     true, {200}, {100}},
};

static const sweep_case held_out[] = {
    {{VTI_ARCH_LLAMA, 1536, 12, 4, 128, 4096, 0, 0, 0, 0, 20000},
     false, {200, 1500}, {100, 256}},
    {{VTI_ARCH_QWEN2, 1280, 20, 20, 64, 3456, 0, 0, 0, 0, 12000},
     false, {100, 1800}, {48, 200}},
    {{VTI_ARCH_GEMMA3, 1536, 8, 4, 192, 5120, 700, 0, 0, 0, 10000},
     false, {300, 1200}, {100, 256}},
    {{VTI_ARCH_QWEN2MOE, 1536, 12, 12, 128, 2048, 0, 9, 4, 768, 32},
     false, {700}, {100}},
    {{VTI_ARCH_QWEN2, 384, 6, 2, 64, 1024, 0, 0, 0, 0, 4096},
     true, {100, 700}, {64, 200}},
    {{VTI_ARCH_QWEN2MOE, 320, 5, 5, 64, 640, 0, 12, 3, 192, 1500},
     true, {100}, {128}},
};

typedef struct sweep {
    const vti_sweep_params *p;
    vti_profile_samples *out;
    vt_error *err;
    uint64_t stream_bytes; /* weights that a model needs so that none stay in the cache */
    vti_reader *reader;
    uint64_t begin_ns;
    double done, all;      /* points, for progress */
    uint32_t point;        /* the number of the one that is next */
} sweep;

typedef struct setting {
    vti_bed *bed;
    vti_precision precision;
    bool cached;
} setting;

/* --- times of a point ------------------------------------------------------------------------- */

/* Of ATTN, FFN and HEAD, in the repeats of one point. */
typedef struct point {
    double *seconds[3];
    size_t count[3], room;
    double sum[3]; /* of the batches of a prompt */
    double rates[REPEATS_MAX]; /* of memory: seconds per byte */
    unsigned rate_count;
} point;

/* The three shortest times, in order. */
enum { SHORTEST = 3 };

static void find_shortest(const double *seconds, size_t count, double shortest[SHORTEST])
{
    for (unsigned i = 0; i < SHORTEST; i++) shortest[i] = INFINITY;
    for (size_t i = 0; i < count; i++) {
        double t = seconds[i];
        for (unsigned k = 0; k < SHORTEST; k++)
            if (t < shortest[k]) {
                double longer = shortest[k];
                shortest[k] = t;
                t = longer;
            }
    }
}

/* What another program delayed is longer, so the shortest count; the very shortest may be luck. */
static double typical(const double *seconds, size_t count)
{
    double shortest[SHORTEST];
    find_shortest(seconds, count, shortest);
    return shortest[count > 2 ? 1 : 0];
}

/* Three that nearly agree were not delayed. */
static bool is_settled(const double *seconds, size_t count)
{
    double shortest[SHORTEST];
    find_shortest(seconds, count, shortest);
    return shortest[SHORTEST - 1] <= shortest[0] * AGREE;
}

/* Of what was measured once it is not known. */
static double spread_of(const double *seconds, size_t count)
{
    double shortest[SHORTEST];
    find_shortest(seconds, count, shortest);
    return count < 2 ? 0 : shortest[count < SHORTEST ? 1 : SHORTEST - 1] / shortest[0] - 1;
}

static void note(point *t, unsigned part, double seconds)
{
    if (t->count[part] < t->room) t->seconds[part][t->count[part]++] = seconds;
}

static void note_unit(void *user, uint32_t unit, double seconds) { note(user, unit % 2, seconds); }

static void add_unit(void *user, uint32_t unit, double seconds)
{
    point *t = user;
    t->sum[unit % 2] += seconds;
}

/* Memory of a virtual machine may be half as fast a second later. */
static void look_at_memory(const sweep *s, const setting *at, point *t)
{
    if (!at->cached && t->rate_count < REPEATS_MAX)
        t->rates[t->rate_count++] = 1 / vti_reader_rate(s->reader);
}

static bool open_point(point *t, size_t room)
{
    double *all = calloc(3 * room, sizeof *all);
    *t = (point){.room = room};
    for (unsigned i = 0; i < 3; i++) t->seconds[i] = all ? all + i * room : NULL;
    return all != NULL;
}

static void close_point(point *t) { free(t->seconds[0]); }

/* --- features --------------------------------------------------------------------------------- */

/* What the planner multiplies each coefficient with: the unit's time where all others are 0. */
static void features_of(const vti_plan_model *model, const vti_plan_request *request,
                        vti_plan_phase phase, unsigned unit, bool cached, double *feature)
{
    static const vti_plan_coefficients one[VTI_PROFILE_TERMS] = {
        {.fixed = 1}, {.per_mac = 1}, {.per_weight_byte = 1}, {.per_weight_byte = 1},
        {.per_kv_byte = 1}, {.per_kv_byte = 1}, {.per_kv_mac = 1},
        {.per_shard = 1}, {.per_value = 1}};
    vti_plan_cluster cluster = {.devices = 1};
    vti_plan_request r = *request;
    r.cluster = &cluster;
    r.model = model;
    vti_plan_place place = {.shares = {(uint16_t)vti_plan_shards(&r, unit)}};
    vti_plan_kind kind = model->class_[model->unit_class[unit]].kind;
    for (unsigned t = 0; t < VTI_PROFILE_TERMS; t++) {
        cluster.device[0].cost[kind][r.precision[unit]][phase] = one[t];
        feature[t] = vti_plan_unit_seconds(&r, phase, unit, &place, 1);
    }
    feature[cached ? VTI_TERM_WEIGHT_BYTE : VTI_TERM_CACHED_BYTE] = 0;
    feature[cached ? VTI_TERM_KV_BYTE : VTI_TERM_CACHED_KV_BYTE] = 0;
}

static bool append(vti_profile_samples *out, const vti_profile_sample *sample)
{
    if (out->count == out->room) {
        size_t room = out->room ? 2 * out->room : 256;
        vti_profile_sample *grown = realloc(out->sample, room * sizeof *grown);
        if (!grown) return false;
        out->sample = grown;
        out->room = room;
    }
    out->sample[out->count++] = *sample;
    return true;
}

/* Keeps what a point measured of ATTN, FFN and HEAD. */
static vt_status keep(const sweep *s, const setting *at, vti_plan_phase phase, uint32_t tokens,
                      point *t)
{
    const vti_geometry *g = &at->bed->model->geometry;
    const uint32_t units[3] = {0, 1, vti_head_unit(g)};
    for (unsigned i = 0; i < 3; i++) {
        vti_plan_request r = {.prompt_tokens = tokens, .context_tokens = tokens,
                              .batch_tokens = BATCH_TOKENS};
        unsigned unit = vti_plan_unit_of(g, units[i]);
        vti_profile_sample sample = {
            .kind = at->bed->plan.class_[at->bed->plan.unit_class[unit]].kind,
            .precision = (vti_plan_precision)at->precision,
            .phase = phase,
            .point = s->point,
        };
        if (!t->count[i] || (i == 2 && at->bed->model->hparams.vocab < LEAST_VOCAB)) continue;
        r.precision[unit] = (uint8_t)at->precision;
        features_of(&at->bed->plan, &r, phase, unit, at->cached, sample.feature);
        sample.seconds = typical(t->seconds[i], t->count[i]);
        sample.spread = spread_of(t->seconds[i], t->count[i]);
        if (!at->cached) sample.bytes_per_s = 1 / typical(t->rates, t->rate_count);
        if (!append(s->out, &sample))
            return vti_fail(s->err, VT_ERR_MEMORY, "no memory for measurements");
    }
    return VT_OK;
}

/* --- points ----------------------------------------------------------------------------------- */

static bool goes_on(const sweep *s, unsigned repeat, const point *t, uint64_t begin_ns)
{
    bool settled = true;
    uint64_t now = vti_now_ns();
    uint64_t most = now - s->begin_ns < LONG_S * UINT64_C(1000000000) ? POINT_NS : HASTY_NS;
    if (repeat == 0) return true;
    for (unsigned i = 0; i < 3; i++)
        settled &= t->count[i] == 0 || is_settled(t->seconds[i], t->count[i]);
    if (t->rate_count > 0) settled &= is_settled(t->rates, t->rate_count);
    return !s->p->tiny && !settled && repeat < REPEATS_MAX && now - begin_ns < most;
}

/* One token with `context` tokens in the cache, itself included: all layers, then HEAD. */
static vt_status decode(const sweep *s, const setting *at, uint32_t context)
{
    uint32_t layers = at->bed->model->hparams.layers;
    point t;
    if (!open_point(&t, (size_t)REPEATS_MAX * layers))
        return vti_fail(s->err, VT_ERR_MEMORY, "no memory for measurements");
    vti_bed_step(at->bed, 0, 2 * layers, context - 1, 1, note_unit, &t);
    memset(t.count, 0, sizeof t.count); /* that was for warming up */
    uint64_t begin = vti_now_ns();
    for (unsigned i = 0; goes_on(s, i, &t, begin); i++) {
        look_at_memory(s, at, &t);
        vti_bed_step(at->bed, 0, 2 * layers, context - 1, 1, note_unit, &t);
        note(&t, 2, vti_bed_head(at->bed));
    }
    vt_status status = keep(s, at, VTI_DECODE, context, &t);
    close_point(&t);
    return status;
}

/* A prompt of `tokens` through one layer, another one each time. */
static vt_status prefill(const sweep *s, const setting *at, uint32_t tokens)
{
    uint32_t layers = at->bed->model->hparams.layers;
    point t;
    if (!open_point(&t, REPEATS_MAX))
        return vti_fail(s->err, VT_ERR_MEMORY, "no memory for measurements");
    uint64_t begin = vti_now_ns();
    for (unsigned i = 0; goes_on(s, i, &t, begin); i++) {
        memset(t.sum, 0, sizeof t.sum);
        look_at_memory(s, at, &t);
        for (uint32_t from = 0; from < tokens; from += BATCH_TOKENS) {
            uint32_t count = tokens - from < BATCH_TOKENS ? tokens - from : BATCH_TOKENS;
            vti_bed_step(at->bed, 2 * (i % layers), 2, from, count, add_unit, &t);
        }
        note(&t, 0, t.sum[0]);
        note(&t, 1, t.sum[1]);
    }
    vt_status status = keep(s, at, VTI_PREFILL, tokens, &t);
    close_point(&t);
    return status;
}

static vt_status report(sweep *s)
{
    s->done++;
    if (s->p->progress) s->p->progress(s->p->user, s->done / s->all);
    if (s->p->cancelled && s->p->cancelled(s->p->user))
        return vti_fail(s->err, VT_ERR_CANCELLED, "measuring was cancelled");
    return VT_OK;
}

static uint32_t largest(const uint16_t *list)
{
    uint32_t most = 0;
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        if (list[i] > most) most = list[i];
    return most;
}

static bool is_wanted(const sweep *s) { return !s->p->only || s->p->only[s->point]; }

static vt_status run_points(sweep *s, const sweep_case *c, const setting *at)
{
    for (unsigned i = 0; i < CONTEXTS_MAX && c->contexts[i]; i++, s->point++) {
        if (is_wanted(s)) VTI_TRY(decode(s, at, c->contexts[i]));
        VTI_TRY(report(s));
    }
    for (unsigned i = 0; i < CONTEXTS_MAX && c->prompts[i]; i++, s->point++) {
        uint32_t tokens = s->p->tiny ? TRIAL_TOKENS : c->prompts[i];
        if (is_wanted(s)) VTI_TRY(prefill(s, at, tokens));
        VTI_TRY(report(s));
    }
    return VT_OK;
}

static unsigned points_of(const sweep_case *c)
{
    unsigned points = 0;
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        points += (c->contexts[i] > 0) + (c->prompts[i] > 0);
    return points;
}

static bool any_wanted(const sweep *s, const sweep_case *c)
{
    unsigned points = points_of(c);
    bool any = !s->p->only;
    for (unsigned i = 0; i < points && !any; i++) any = s->p->only[s->point + i];
    return any;
}

/* So many layers that they do not fit into the cache, or do; 0: even one does not. */
static uint32_t layers_of(const sweep *s, const sweep_case *c, uint64_t layer_bytes)
{
    if (s->p->tiny) return 1;
    if (c->cached) return layer_bytes <= s->p->cache_bytes / 4 ? 1 : 0;
    uint64_t layers = (s->stream_bytes + layer_bytes - 1) / layer_bytes;
    return layers < 1 ? 1 : layers > 32 ? 32 : (uint32_t)layers;
}

static vt_status run_case(sweep *s, const sweep_case *c, vti_precision precision)
{
    uint32_t context = largest(c->contexts), prompt = largest(c->prompts);
    vti_bed_params params = {
        .kernels = s->p->kernels, .pool = s->p->pool, .shape = c->shape, .precision = precision,
        .context_tokens = context > prompt ? context : prompt, .batch_tokens = BATCH_TOKENS,
    };
    vti_bed bed;
    setting at = {&bed, precision, c->cached};
    params.layers = layers_of(s, c, vti_bed_token_bytes(&params));
    if (!params.layers || !any_wanted(s, c)) {
        s->point += points_of(c);
        return VT_OK;
    }
    VTI_TRY(vti_bed_open(&bed, &params, s->err));
    vt_status status = run_points(s, c, &at);
    vti_bed_close(&bed);
    return status;
}

vt_status vti_profile_sweep(const vti_sweep_params *params, vti_profile_samples *out,
                            vt_error *err)
{
    const sweep_case *cases = params->held_out ? held_out : fitted;
    size_t count = params->held_out ? sizeof held_out / sizeof *held_out
                                    : sizeof fitted / sizeof *fitted;
    sweep s = {.p = params, .out = out, .err = err, .stream_bytes = params->cache_bytes * 5 / 2,
               .begin_ns = vti_now_ns()};
    if (params->tiny) s.stream_bytes = 1;
    VTI_TRY(vti_reader_open(params->pool, s.stream_bytes, &s.reader, err));
    vt_status status = VT_OK;
    for (size_t i = 0; i < count; i++)
        if (!is_left_out(params, &cases[i])) s.all += VTI_PRECISION_COUNT * points_of(&cases[i]);
    for (size_t i = 0; status == VT_OK && i < VTI_PRECISION_COUNT * count; i++) {
        const sweep_case *c = &cases[i / VTI_PRECISION_COUNT];
        if (!is_left_out(params, c)) status = run_case(&s, c, i % VTI_PRECISION_COUNT);
    }
    vti_reader_close(s.reader);
    return status;
}
