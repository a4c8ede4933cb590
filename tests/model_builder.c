#include "model_builder.h"
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vocabulary.h"

typedef struct maker {
    const test_model *m;
    gguf_builder *builder;
    test_random random;
    bool used[TEST_EDITS_MAX];
} maker;

test_model test_model_of(const char *arch)
{
    return (test_model){
        .arch = arch,
        .layers = 6,
        .d = 64,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = strcmp(arch, "gemma3") == 0 || strcmp(arch, "qwen3") == 0 ? 32 : 16,
        .ff = 96,
        .context = 2048,
        .window = strcmp(arch, "gemma3") == 0 ? 8 : 0,
        .experts = strcmp(arch, "qwen2moe") == 0 ? 8 : 0,
        .experts_used = 3,
        .expert_ff = 32,
        .seed = 11,
    };
}

/* The edit of that name, marked as made; NULL if there is none. */
static const test_edit *edit_of(maker *k, const char *name)
{
    for (int i = 0; i < TEST_EDITS_MAX && k->m->edits[i].kind != TEST_EDIT_END; i++) {
        if (strcmp(k->m->edits[i].name, name) != 0) continue;
        k->used[i] = true;
        return &k->m->edits[i];
    }
    return NULL;
}

/* --- keys ------------------------------------------------------------------------------------ */

static void put_edited_key(maker *k, const char *key, const test_edit *edit)
{
    switch (edit->kind) {
    case TEST_KEY_U32: gguf_put_u32(k->builder, key, (uint32_t)edit->number); break;
    case TEST_KEY_F32: gguf_put_f32(k->builder, key, (float)edit->number); break;
    case TEST_KEY_BOOL: gguf_put_bool(k->builder, key, edit->number != 0); break;
    case TEST_KEY_TEXT: gguf_put_string(k->builder, key, edit->text); break;
    default: break;
    }
}

/* An edit's key under its full name; false if the key is to be put as it is. */
static bool put_edited(maker *k, const char *suffix, char *key, size_t capacity)
{
    const test_edit *edit = edit_of(k, suffix);
    snprintf(key, capacity, "%s.%s", k->m->arch, suffix);
    if (!edit) return false;
    put_edited_key(k, key, edit);
    return true;
}

static void put_u32(maker *k, const char *suffix, uint32_t value)
{
    char key[96];
    if (!put_edited(k, suffix, key, sizeof key)) gguf_put_u32(k->builder, key, value);
}

static void put_f32(maker *k, const char *suffix, float value)
{
    char key[96];
    if (!put_edited(k, suffix, key, sizeof key)) gguf_put_f32(k->builder, key, value);
}

static void put_keys(maker *k)
{
    const test_model *m = k->m;
    gguf_put_string(k->builder, "general.architecture", m->arch);
    put_u32(k, "block_count", m->layers);
    put_u32(k, "context_length", m->context);
    put_u32(k, "embedding_length", m->d);
    put_u32(k, "feed_forward_length", m->ff);
    put_u32(k, "attention.head_count", m->heads);
    put_u32(k, "attention.head_count_kv", m->kv_heads);
    put_u32(k, "attention.key_length", m->head_dim);
    put_u32(k, "attention.value_length", m->head_dim);
    put_f32(k, "attention.layer_norm_rms_epsilon", 1e-6f);
    put_f32(k, "rope.freq_base", 1e6f);
    if (m->window) put_u32(k, "attention.sliding_window", m->window);
    if (!m->experts) return;
    put_u32(k, "expert_count", m->experts);
    put_u32(k, "expert_used_count", m->experts_used);
    put_u32(k, "expert_feed_forward_length", m->expert_ff);
}

/* --- tensors --------------------------------------------------------------------------------- */

static float *make_weights(maker *k, size_t count, float mean, float deviation)
{
    float *weights = malloc(count * sizeof *weights);
    if (!weights) abort();
    for (size_t i = 0; i < count; i++)
        weights[i] = test_random_float(&k->random, mean - deviation, mean + deviation);
    return weights;
}

static void put_tensor(maker *k, const char *name, uint64_t cols, uint64_t rows, uint64_t slices,
                       float mean, float deviation)
{
    const test_edit *edit = edit_of(k, name);
    uint64_t dimensions[4] = {cols, rows, slices, 1};
    uint32_t type = 0;
    if (edit && edit->kind == TEST_TENSOR_DROP) return;
    if (edit && edit->kind == TEST_TENSOR_SHAPE)
        memcpy(dimensions, edit->dimensions, sizeof dimensions);
    if (edit && edit->kind == TEST_TENSOR_TYPE) type = (uint32_t)edit->number;
    uint32_t used = dimensions[3] > 1 ? 4 : dimensions[2] > 1 ? 3 : dimensions[1] > 1 ? 2 : 1;
    size_t count = dimensions[0] * dimensions[1] * dimensions[2] * dimensions[3];
    float *weights = make_weights(k, count, mean, deviation);
    for (size_t i = 0; edit && edit->kind == TEST_TENSOR_FILL && i < count; i++)
        weights[i] = (float)edit->number;
    bool quantise = k->m->quantize && rows > 8 && !type;
    if (quantise) type = k->m->matrix_type;
    const vti_ggml_type *facts = vti_ggml_type_find(type);
    size_t bytes = count / facts->block * facts->block_bytes;
    unsigned char *blocks = quantise ? malloc(bytes) : NULL;
    if (quantise) k->m->quantize(blocks, weights, count);
    gguf_put_tensor(k->builder, name, type, used, dimensions,
                    quantise ? (const void *)blocks : type ? NULL : weights, bytes);
    free(blocks);
    free(weights);
}

static void put_norm(maker *k, const char *name, uint64_t cols)
{
    put_tensor(k, name, cols, 1, 1, 1, 0.2f);
}

static void put_matrix(maker *k, const char *name, uint64_t cols, uint64_t rows, uint64_t slices)
{
    put_tensor(k, name, cols, rows, slices, 0, 1.7f / sqrtf((float)cols));
}

static const char *layer_name(char *buffer, uint32_t layer, const char *name)
{
    snprintf(buffer, 64, "blk.%u.%s", layer, name);
    return buffer;
}

static void put_attention(maker *k, uint32_t layer)
{
    const test_model *m = k->m;
    char name[64];
    uint32_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    bool gemma = strcmp(m->arch, "gemma3") == 0, qwen3 = strcmp(m->arch, "qwen3") == 0;
    put_norm(k, layer_name(name, layer, "attn_norm.weight"), m->d);
    put_matrix(k, layer_name(name, layer, "attn_q.weight"), m->d, q, 1);
    put_matrix(k, layer_name(name, layer, "attn_k.weight"), m->d, kv, 1);
    put_matrix(k, layer_name(name, layer, "attn_v.weight"), m->d, kv, 1);
    if (strncmp(m->arch, "qwen2", 5) == 0) {
        put_tensor(k, layer_name(name, layer, "attn_q.bias"), q, 1, 1, 0, 0.3f);
        put_tensor(k, layer_name(name, layer, "attn_k.bias"), kv, 1, 1, 0, 0.3f);
        put_tensor(k, layer_name(name, layer, "attn_v.bias"), kv, 1, 1, 0, 0.3f);
    }
    if (gemma || qwen3) {
        put_norm(k, layer_name(name, layer, "attn_q_norm.weight"), m->head_dim);
        put_norm(k, layer_name(name, layer, "attn_k_norm.weight"), m->head_dim);
    }
    put_matrix(k, layer_name(name, layer, "attn_output.weight"), q, m->d, 1);
    if (gemma) put_norm(k, layer_name(name, layer, "post_attention_norm.weight"), m->d);
    if (gemma) put_norm(k, layer_name(name, layer, "post_ffw_norm.weight"), m->d);
    put_norm(k, layer_name(name, layer, "ffn_norm.weight"), m->d);
}

static void put_ffn(maker *k, uint32_t layer, const char *suffix, uint32_t ff, uint32_t slices)
{
    char name[64], part[48];
    snprintf(part, sizeof part, "ffn_gate%s.weight", suffix);
    put_matrix(k, layer_name(name, layer, part), k->m->d, ff, slices);
    snprintf(part, sizeof part, "ffn_up%s.weight", suffix);
    put_matrix(k, layer_name(name, layer, part), k->m->d, ff, slices);
    snprintf(part, sizeof part, "ffn_down%s.weight", suffix);
    put_matrix(k, layer_name(name, layer, part), ff, k->m->d, slices);
}

static void put_layer(maker *k, uint32_t layer)
{
    const test_model *m = k->m;
    char name[64];
    put_attention(k, layer);
    if (!m->experts) {
        put_ffn(k, layer, "", m->ff, 1);
        return;
    }
    put_matrix(k, layer_name(name, layer, "ffn_gate_inp.weight"), m->d, m->experts, 1);
    put_ffn(k, layer, "_exps", m->expert_ff, m->experts);
    put_matrix(k, layer_name(name, layer, "ffn_gate_inp_shexp.weight"), m->d, 1, 1);
    put_ffn(k, layer, "_shexp", m->ff, 1);
}

/* Edits of what the family does not have. */
static void put_rest(maker *k)
{
    for (int i = 0; i < TEST_EDITS_MAX && k->m->edits[i].kind != TEST_EDIT_END; i++) {
        const test_edit *edit = &k->m->edits[i];
        char key[96];
        if (k->used[i]) continue;
        if (edit->kind == TEST_TENSOR_SHAPE)
            put_tensor(k, edit->name, 1, 1, 1, 0, 0.1f);
        else if (edit->kind >= TEST_KEY_U32 && edit->kind <= TEST_KEY_TEXT)
            put_edited(k, edit->name, key, sizeof key);
        else
            fail_msg("the model has no %s to edit", edit->name);
    }
}

static gguf_builder *make(const test_model *model)
{
    test_vocabulary vocabulary;
    test_vocabulary_bytes(&vocabulary, "qwen2");
    maker k = {.m = model, .builder = test_vocabulary_builder(&vocabulary),
               .random = {model->seed}};
    put_keys(&k);
    put_matrix(&k, "token_embd.weight", model->d, TEST_MODEL_TOKENS, 1);
    put_norm(&k, "output_norm.weight", model->d);
    for (uint32_t layer = 0; layer < model->layers; layer++) put_layer(&k, layer);
    put_rest(&k);
    return k.builder;
}

unsigned char *test_model_build(const test_model *model, size_t *bytes)
{
    return gguf_builder_finish(make(model), bytes);
}

void test_model_write(const test_model *model, const char *path)
{
    gguf_builder_write(make(model), path);
}
