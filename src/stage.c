#include "stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "linear.h"

/* Keys and values that a thread should get at least; below, handing over costs more. */
enum { LEAST_ATTENTION_BYTES = 16384 };

/* Scratch buffers, each for `batch_tokens` rows. */
struct vti_stage {
    vti_stage_params p;
    vti_kv_cache cache;
    float *norm;    /* tokens × d: normed input of a unit */
    float *q;       /* tokens × heads × head_dim */
    float *k, *v;   /* tokens × kv_heads × head_dim */
    float *mix;     /* tokens × heads × head_dim: attention's output */
    float *gate;    /* tokens × ff */
    float *up;      /* tokens × ff */
    float *out;     /* tokens × d: a unit's contribution to the residual */
    float *cos_sin; /* tokens × rope_dims */
    double *frequency; /* rope_dims / 2: radians per position */
    void *act[VTI_ACT_TYPE_COUNT];
    void *memory;
    /* The input that act[] was made of, per form. */
    const float *input;
    uint32_t input_cols, input_tokens;
    bool act_ready[VTI_ACT_TYPE_COUNT];
};

/* One pass lays out the scratch: with memory NULL it only counts. */
typedef struct layout {
    unsigned char *memory;
    size_t bytes;
} layout;

static void *place(layout *l, size_t bytes)
{
    void *at = l->memory ? l->memory + l->bytes : NULL;
    l->bytes += (bytes + 63) / 64 * 64;
    return at;
}

static float *place_rows(layout *l, size_t tokens, size_t cols)
{
    return place(l, tokens * cols * sizeof(float));
}

static uint32_t widest_input(const vti_hparams *p)
{
    uint32_t q = p->heads * p->head_dim;
    uint32_t widest = p->d > p->ff ? p->d : p->ff;
    return widest > q ? widest : q;
}

static size_t lay_out(vti_stage *s, const vti_stage_params *params, void *memory)
{
    const vti_hparams *p = params->hparams;
    size_t tokens = params->batch_tokens;
    size_t q_width = (size_t)p->heads * p->head_dim, kv_width = (size_t)p->kv_heads * p->head_dim;
    layout l = {memory, 0};
    s->norm = place_rows(&l, tokens, p->d);
    s->q = place_rows(&l, tokens, q_width);
    s->k = place_rows(&l, tokens, kv_width);
    s->v = place_rows(&l, tokens, kv_width);
    s->mix = place_rows(&l, tokens, q_width);
    s->gate = place_rows(&l, tokens, p->ff);
    s->up = place_rows(&l, tokens, p->ff);
    s->out = place_rows(&l, tokens, p->d);
    s->cos_sin = place_rows(&l, tokens, p->rope_dims);
    s->frequency = place(&l, p->rope_dims / 2 * sizeof(double));
    for (unsigned i = 0; i < VTI_ACT_TYPE_COUNT; i++)
        s->act[i] = place(&l, params->kernels->act[i].bytes(tokens, widest_input(p)));
    return l.bytes;
}

uint64_t vti_stage_bytes(const vti_stage_params *params, uint32_t layer_count)
{
    vti_stage counted;
    return lay_out(&counted, params, NULL) +
           vti_kv_cache_bytes(params->kernels, params->hparams, layer_count,
                              params->context_tokens, params->kv_type);
}

/* Frequency of pair i is base^(-2i / rope_dims), divided by the file's factor for it if it has
 * some, and by the linear scale (RoFormer; llama-3 rope_freqs). */
static void fill_frequencies(vti_stage *s)
{
    const vti_hparams *p = s->p.hparams;
    const vti_tensor *factors = &s->p.weights->rope_freqs;
    for (uint32_t i = 0; i < p->rope_dims / 2; i++) {
        double factor = factors->rows ? ((const float *)factors->data)[i] : 1.0;
        s->frequency[i] = pow(p->rope_base, -2.0 * i / p->rope_dims) / (factor * p->rope_scale);
    }
}

vt_status vti_stage_open(const vti_stage_params *params, vti_stage **out, vt_error *err)
{
    *out = NULL;
    vti_stage *s = calloc(1, sizeof *s);
    if (!s) return vti_fail(err, VT_ERR_MEMORY, "no memory for a stage");
    s->p = *params;
    size_t bytes = lay_out(s, params, NULL);
    s->memory = aligned_alloc(64, bytes);
    vt_status status = VT_OK;
    if (!s->memory)
        status = vti_fail(err, VT_ERR_MEMORY,
                          "no memory for %zu bytes of scratch; a smaller batch needs less", bytes);
    else
        status = vti_kv_cache_open(&s->cache, params->kernels, params->hparams,
                                   params->weights->count, params->context_tokens,
                                   params->kv_type, err);
    if (status != VT_OK) {
        vti_stage_close(s);
        return status;
    }
    lay_out(s, params, s->memory);
    fill_frequencies(s);
    *out = s;
    return VT_OK;
}

void vti_stage_close(vti_stage *stage)
{
    if (!stage) return;
    vti_kv_cache_close(&stage->cache);
    free(stage->memory);
    free(stage);
}

uint64_t vti_stage_kv_bytes(const vti_stage *stage) { return stage->cache.size_bytes; }

/* Names what linear() multiplies with next: x is tokens × cols. */
static void set_input(vti_stage *s, const float *x, uint32_t tokens, uint32_t cols)
{
    s->input = x;
    s->input_cols = cols;
    s->input_tokens = tokens;
    memset(s->act_ready, 0, sizeof s->act_ready);
}

/* y[t] = W x[t] for the input set before; y is tokens × rows. */
static void linear(vti_stage *s, float *y, const vti_tensor *w)
{
    const vti_matmul_kernel *kernel = &s->p.kernels->matmul[w->type];
    if (!s->act_ready[kernel->act]) {
        s->p.kernels->act[kernel->act].pack(s->act[kernel->act], s->input, s->input_cols,
                                            s->input_tokens, s->input_cols);
        s->act_ready[kernel->act] = true;
    }
    vti_linear(s->p.kernels, s->p.pool, y, w, s->act[kernel->act], s->input_tokens);
}

static void add_bias(vti_stage *s, float *y, const vti_tensor *bias, uint32_t tokens)
{
    if (!bias->rows) return;
    for (uint32_t t = 0; t < tokens; t++)
        s->p.kernels->add(y + (size_t)t * bias->cols, bias->data, bias->cols);
}

static void norm_rows(vti_stage *s, const float *h, const vti_tensor *weight, uint32_t tokens)
{
    size_t d = s->p.hparams->d;
    for (uint32_t t = 0; t < tokens; t++)
        s->p.kernels->rms_norm(s->norm + t * d, h + t * d, weight->data, d,
                               s->p.hparams->rms_eps);
}

static void fill_cos_sin(vti_stage *s, uint32_t position, uint32_t tokens)
{
    uint32_t pairs = s->p.hparams->rope_dims / 2;
    float *pair = s->cos_sin;
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t i = 0; i < pairs; i++, pair += 2) {
            double angle = (double)(position + t) * s->frequency[i];
            pair[0] = (float)cos(angle);
            pair[1] = (float)sin(angle);
        }
    }
}

static void rotate(vti_stage *s, uint32_t tokens)
{
    const vti_hparams *p = s->p.hparams;
    vti_rope_fn *rope = p->arch == VTI_ARCH_LLAMA ? s->p.kernels->rope_interleaved
                                                  : s->p.kernels->rope_half;
    for (uint32_t t = 0; t < tokens; t++) {
        const float *cos_sin = s->cos_sin + (size_t)t * p->rope_dims;
        rope(s->q + (size_t)t * p->heads * p->head_dim, cos_sin, p->heads, p->head_dim,
             p->rope_dims);
        rope(s->k + (size_t)t * p->kv_heads * p->head_dim, cos_sin, p->kv_heads, p->head_dim,
             p->rope_dims);
    }
}

static void store_kv(vti_stage *s, uint32_t layer, uint32_t position, uint32_t tokens)
{
    size_t width = (size_t)s->p.hparams->kv_heads * s->p.hparams->head_dim;
    for (uint32_t t = 0; t < tokens; t++)
        vti_kv_cache_store(&s->cache, layer, position + t, s->k + t * width,
                           s->v + t * width);
}

/* Query tokens of one unit of work: they share what is done once per row of keys and values. */
enum { ATTENTION_TOKENS = 16 };

typedef struct attention_job {
    vti_stage *s;
    uint32_t layer, position, tokens;
} attention_job;

/* Unit: one KV head and up to ATTENTION_TOKENS tokens. Causal: the token at position p sees
 * positions 0 … p. */
static void attend_units(void *context, size_t begin, size_t end)
{
    const attention_job *j = context;
    vti_stage *s = j->s;
    const vti_hparams *p = s->p.hparams;
    size_t width = (size_t)p->heads * p->head_dim, group = p->heads / p->kv_heads;
    for (size_t unit = begin; unit < end; unit++) {
        uint32_t kv_head = (uint32_t)(unit % p->kv_heads);
        uint32_t first = (uint32_t)(unit / p->kv_heads) * ATTENTION_TOKENS;
        uint32_t left = j->tokens - first;
        size_t at = first * width + kv_head * group * p->head_dim;
        vti_attention_args args = {
            .out = s->mix + at,
            .out_stride = width,
            .q = s->q + at,
            .q_stride = width,
            .tokens = left < ATTENTION_TOKENS ? left : ATTENTION_TOKENS,
            .heads = group,
            .head_dim = p->head_dim,
            .k = vti_kv_cache_keys(&s->cache, j->layer, kv_head),
            .v = vti_kv_cache_values(&s->cache, j->layer, kv_head),
            .position = j->position + first,
            .kv_end = j->position + j->tokens,
            .scale = 1.0f / sqrtf((float)p->head_dim),
        };
        s->cache.kernel->attention(&args);
    }
}

static void attend(vti_stage *s, uint32_t layer, uint32_t position, uint32_t tokens)
{
    attention_job job = {s, layer, position, tokens};
    size_t blocks = (tokens + ATTENTION_TOKENS - 1) / ATTENTION_TOKENS;
    size_t unit_bytes = 2 * (size_t)(position + tokens) * s->cache.row_bytes;
    vti_pool_run(s->p.pool, s->p.hparams->kv_heads * blocks,
                 LEAST_ATTENTION_BYTES / unit_bytes + 1, attend_units, &job);
}

/* ATTN(l): h += Wo · attention(RoPE(Wq x + bq), RoPE(Wk x + bk), Wv x + bv), x = RMSNorm(h) */
static void attention_unit(vti_stage *s, const vti_layer *layer, uint32_t index, float *h,
                           uint32_t position, uint32_t tokens)
{
    const vti_hparams *p = s->p.hparams;
    const vti_tensor *w = layer->tensor;
    norm_rows(s, h, &w[VTI_ATTN_NORM], tokens);
    set_input(s, s->norm, tokens, p->d);
    linear(s, s->q, &w[VTI_ATTN_Q]);
    linear(s, s->k, &w[VTI_ATTN_K]);
    linear(s, s->v, &w[VTI_ATTN_V]);
    add_bias(s, s->q, &w[VTI_ATTN_Q_BIAS], tokens);
    add_bias(s, s->k, &w[VTI_ATTN_K_BIAS], tokens);
    add_bias(s, s->v, &w[VTI_ATTN_V_BIAS], tokens);
    rotate(s, tokens);
    store_kv(s, index, position, tokens);
    attend(s, index, position, tokens);
    set_input(s, s->mix, tokens, p->heads * p->head_dim);
    linear(s, s->out, &w[VTI_ATTN_OUT]);
    s->p.kernels->add(h, s->out, (size_t)tokens * p->d);
}

/* FFN(l): h += Wdown · (SiLU(Wgate x) ⊙ Wup x), x = RMSNorm(h) */
static void ffn_unit(vti_stage *s, const vti_layer *layer, float *h, uint32_t tokens)
{
    const vti_hparams *p = s->p.hparams;
    const vti_tensor *w = layer->tensor;
    norm_rows(s, h, &w[VTI_FFN_NORM], tokens);
    set_input(s, s->norm, tokens, p->d);
    linear(s, s->gate, &w[VTI_FFN_GATE]);
    linear(s, s->up, &w[VTI_FFN_UP]);
    s->p.kernels->silu_gate(s->gate, s->gate, s->up, (size_t)tokens * p->ff);
    set_input(s, s->gate, tokens, p->ff);
    linear(s, s->out, &w[VTI_FFN_DOWN]);
    s->p.kernels->add(h, s->out, (size_t)tokens * p->d);
}

void vti_stage_forward(vti_stage *s, float *h, uint32_t position, uint32_t tokens)
{
    fill_cos_sin(s, position, tokens);
    for (uint32_t i = 0; i < s->p.weights->count; i++) {
        const vti_layer *layer = &s->p.weights->layers[i];
        attention_unit(s, layer, i, h, position, tokens);
        ffn_unit(s, layer, h, tokens);
    }
}
