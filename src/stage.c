#include "stage_internal.h"

#include <math.h>
#include <stdlib.h>

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
    size_t parts = vti_attention_parts(params->context_tokens);
    s->partial = place_rows(&l, parts, q_width);
    s->part_sums = place_rows(&l, parts, 2 * (size_t)p->heads);
    for (unsigned i = 0; i < VTI_ACT_TYPE_COUNT; i++)
        if (params->kernels->act[i].bytes)
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

vti_kv_cache *vti_stage_cache(vti_stage *stage) { return &stage->cache; }
