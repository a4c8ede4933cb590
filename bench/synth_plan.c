/* Which tensors a file has: names and order as llama.cpp's converter writes them, types as its
 * quantiser chooses them. */
#include "synth.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- types ------------------------------------------------------------------------------------ */

static const synth_mix mixes[] = {
    {"f32", 0, &synth_f32, false, false},    {"f16", 1, &synth_f16, false, false},
    {"bf16", 32, &synth_bf16, false, false}, {"q8_0", 7, &synth_q8_0, false, false},
    {"q4_0", 2, &synth_q4_0, true, false},   {"q4_k", 14, &synth_q4_k, false, false},
    {"q4_k_m", 15, &synth_q4_k, true, true}, {"q5_k", 16, &synth_q5_k, false, false},
    {"q5_k_m", 17, &synth_q5_k, true, true}, {"q6_k", 18, &synth_q6_k, false, false},
    {NULL, 0, NULL, false, false},
};

const synth_mix *synth_mixes(void) { return mixes; }

const synth_mix *synth_mix_find(const char *name)
{
    for (const synth_mix *m = mixes; m->name; m++)
        if (strcmp(m->name, name) == 0) return m;
    return NULL;
}

/* The first and last eighth of the layers, and every third between them, get more bits. */
static bool layer_gets_more_bits(uint32_t layer, uint32_t layers)
{
    uint32_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static synth_tensor *add(synth_plan *plan)
{
    static synth_tensor nowhere;
    if (plan->count == plan->room) {
        size_t room = plan->room ? plan->room * 2 : 64;
        synth_tensor *more = realloc(plan->tensors, room * sizeof *more);
        if (!more) {
            plan->failed = true;
            return &nowhere;
        }
        plan->tensors = more;
        plan->room = room;
    }
    synth_tensor *tensor = &plan->tensors[plan->count++];
    memset(tensor, 0, sizeof *tensor);
    tensor->dimensions[1] = tensor->dimensions[2] = 1;
    return tensor;
}

static void set_name(synth_tensor *tensor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void set_name(synth_tensor *tensor, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(tensor->name, sizeof tensor->name, format, arguments);
    va_end(arguments);
}

/* A vector, or a matrix that is kept in floats. */
static synth_tensor *add_floats(synth_plan *plan, uint64_t cols, uint64_t rows, float mean,
                                float deviation)
{
    synth_tensor *tensor = add(plan);
    tensor->type = tensor->wanted = &synth_f32;
    tensor->dimension_count = rows > 1 ? 2 : 1;
    tensor->dimensions[0] = cols;
    tensor->dimensions[1] = rows;
    tensor->mean = mean;
    tensor->deviation = deviation;
    return tensor;
}

static synth_tensor *add_norm(synth_plan *plan, uint64_t count)
{
    return add_floats(plan, count, 1, 1, 0.05f);
}

/* Weights as large as keep a normalised input's variance at 1. */
static synth_tensor *add_matrix(synth_plan *plan, uint64_t cols, uint64_t rows, uint64_t experts,
                                const synth_type *wanted)
{
    synth_tensor *tensor = add(plan);
    tensor->wanted = wanted;
    tensor->type = synth_fitting_type(wanted, cols);
    tensor->dimension_count = experts ? 3 : 2;
    tensor->dimensions[0] = cols;
    tensor->dimensions[1] = rows;
    tensor->dimensions[2] = experts ? experts : 1;
    tensor->deviation = 1 / sqrtf((float)cols);
    return tensor;
}

static void add_qkv(synth_plan *plan, uint32_t layer)
{
    const synth_shape *s = plan->shape;
    const synth_type *base = plan->mix->base, *v_type = base;
    uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
    bool biased = s->family == SYNTH_QWEN2 || s->family == SYNTH_QWEN2MOE;
    if (plan->mix->more_bits && layer_gets_more_bits(layer, s->layers)) v_type = &synth_q6_k;
    const struct {
        char letter;
        uint64_t rows;
        const synth_type *type;
    } parts[] = {{'q', q, base}, {'k', kv, base}, {'v', kv, v_type}};
    for (int i = 0; i < 3; i++) {
        set_name(add_matrix(plan, s->d, parts[i].rows, 0, parts[i].type),
                 "blk.%" PRIu32 ".attn_%c.weight", layer, parts[i].letter);
        if (biased)
            set_name(add_floats(plan, parts[i].rows, 1, 0, 0.1f), "blk.%" PRIu32 ".attn_%c.bias",
                     layer, parts[i].letter);
    }
}

static void add_attention(synth_plan *plan, uint32_t layer)
{
    const synth_shape *s = plan->shape;
    set_name(add_norm(plan, s->d), "blk.%" PRIu32 ".attn_norm.weight", layer);
    add_qkv(plan, layer);
    if (s->family == SYNTH_GEMMA3 || s->family == SYNTH_QWEN3) {
        set_name(add_norm(plan, s->head_dim), "blk.%" PRIu32 ".attn_q_norm.weight", layer);
        set_name(add_norm(plan, s->head_dim), "blk.%" PRIu32 ".attn_k_norm.weight", layer);
    }
    set_name(add_matrix(plan, (uint64_t)s->heads * s->head_dim, s->d, 0, plan->mix->base),
             "blk.%" PRIu32 ".attn_output.weight", layer);
    if (s->family == SYNTH_GEMMA3) {
        set_name(add_norm(plan, s->d), "blk.%" PRIu32 ".post_attention_norm.weight", layer);
        set_name(add_norm(plan, s->d), "blk.%" PRIu32 ".post_ffw_norm.weight", layer);
    }
    set_name(add_norm(plan, s->d), "blk.%" PRIu32 ".ffn_norm.weight", layer);
}

/* gate, up and down: of a dense FFN, of all experts together or of the shared expert (`suffix`). */
static void add_ffn(synth_plan *plan, uint32_t layer, const char *suffix, uint64_t ff,
                    uint64_t experts)
{
    const synth_shape *s = plan->shape;
    const synth_type *base = plan->mix->base, *down = base;
    if (plan->mix->more_bits && layer_gets_more_bits(layer, s->layers)) down = &synth_q6_k;
    set_name(add_matrix(plan, s->d, ff, experts, base), "blk.%" PRIu32 ".ffn_gate%s.weight", layer,
             suffix);
    set_name(add_matrix(plan, s->d, ff, experts, base), "blk.%" PRIu32 ".ffn_up%s.weight", layer,
             suffix);
    set_name(add_matrix(plan, ff, s->d, experts, down), "blk.%" PRIu32 ".ffn_down%s.weight", layer,
             suffix);
}

static void add_experts(synth_plan *plan, uint32_t layer)
{
    const synth_shape *s = plan->shape;
    float deviation = 1 / sqrtf((float)s->d);
    set_name(add_floats(plan, s->d, s->experts, 0, deviation),
             "blk.%" PRIu32 ".ffn_gate_inp.weight", layer);
    add_ffn(plan, layer, "_exps", s->expert_ff, s->experts);
    set_name(add_floats(plan, s->d, 1, 0, deviation), "blk.%" PRIu32 ".ffn_gate_inp_shexp.weight",
             layer);
    add_ffn(plan, layer, "_shexp", s->ff, 0);
}

static void add_outer(synth_plan *plan)
{
    const synth_shape *s = plan->shape;
    const synth_type *output = plan->mix->output_q6 ? &synth_q6_k : plan->mix->base;
    if (s->family == SYNTH_LLAMA && s->rope_factor > 0) {
        synth_tensor *factors = add_floats(plan, s->head_dim / 2, 1, 0, 0);
        factors->filling = SYNTH_ROPE_FACTORS;
        set_name(factors, "rope_freqs.weight");
    }
    set_name(add_matrix(plan, s->d, s->vocab, 0, s->tied ? output : plan->mix->base),
             "token_embd.weight");
    set_name(add_norm(plan, s->d), "output_norm.weight");
    if (!s->tied) set_name(add_matrix(plan, s->d, s->vocab, 0, output), "output.weight");
}

static void place(synth_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        synth_tensor *t = &plan->tensors[i];
        uint64_t weights = t->dimensions[0] * t->dimensions[1] * t->dimensions[2];
        t->offset_bytes = plan->data_bytes;
        t->size_bytes = weights / t->type->block * t->type->block_bytes;
        plan->parameters += weights;
        plan->data_bytes += (t->size_bytes + SYNTH_ALIGNMENT - 1) / SYNTH_ALIGNMENT *
                            SYNTH_ALIGNMENT;
    }
}

vt_status synth_plan_make(synth_plan *plan, vt_error *err)
{
    add_outer(plan);
    for (uint32_t layer = 0; layer < plan->shape->layers; layer++) {
        add_attention(plan, layer);
        if (plan->shape->experts)
            add_experts(plan, layer);
        else
            add_ffn(plan, layer, "", plan->shape->ff, 0);
    }
    if (plan->failed) return vti_fail(err, VT_ERR_MEMORY, "no memory for the list of tensors");
    place(plan);
    return VT_OK;
}

void synth_plan_free(synth_plan *plan)
{
    free(plan->tensors);
    plan->tensors = NULL;
}
