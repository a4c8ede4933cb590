#include "synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/gguf.h"

/* --- bytes ------------------------------------------------------------------------------------ */

void synth_put(synth_bytes *to, const void *data, size_t bytes)
{
    if (to->failed || bytes == 0) return;
    if (bytes > to->room - to->count) {
        size_t room = to->room + bytes + (to->room / 2) + 4096;
        unsigned char *more = realloc(to->data, room);
        if (!more) {
            to->failed = true;
            return;
        }
        to->data = more;
        to->room = room;
    }
    memcpy(to->data + to->count, data, bytes);
    to->count += bytes;
}

void synth_put_u32(synth_bytes *to, uint32_t value)
{
    unsigned char bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(value >> 8 * i);
    synth_put(to, bytes, sizeof bytes);
}

void synth_put_u64(synth_bytes *to, uint64_t value)
{
    synth_put_u32(to, (uint32_t)value);
    synth_put_u32(to, (uint32_t)(value >> 32));
}

void synth_put_f32(synth_bytes *to, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    synth_put_u32(to, bits);
}

void synth_put_text(synth_bytes *to, const char *text)
{
    size_t bytes = strlen(text);
    synth_put_u64(to, bytes);
    synth_put(to, text, bytes);
}

void synth_put_key(synth_bytes *to, const char *key, uint32_t type)
{
    synth_put_text(to, key);
    synth_put_u32(to, type);
    to->entries++;
}

void synth_key_u32(synth_bytes *to, const char *key, uint32_t value)
{
    synth_put_key(to, key, VTI_GGUF_U32);
    synth_put_u32(to, value);
}

void synth_key_f32(synth_bytes *to, const char *key, float value)
{
    synth_put_key(to, key, VTI_GGUF_F32);
    synth_put_f32(to, value);
}

void synth_key_bool(synth_bytes *to, const char *key, bool value)
{
    synth_put_key(to, key, VTI_GGUF_BOOL);
    synth_put(to, value ? "\1" : "\0", 1);
}

void synth_key_text(synth_bytes *to, const char *key, const char *value)
{
    synth_put_key(to, key, VTI_GGUF_STRING);
    synth_put_text(to, value);
}

void synth_key_array(synth_bytes *to, const char *key, uint32_t type, uint64_t count)
{
    synth_put_key(to, key, VTI_GGUF_ARRAY);
    synth_put_u32(to, type);
    synth_put_u64(to, count);
}

/* --- hyperparameters -------------------------------------------------------------------------- */

/* Keys that begin with the architecture's name. */
typedef struct arch_keys {
    synth_bytes *to;
    const char *architecture;
    char key[96];
} arch_keys;

static const char *key(arch_keys *keys, const char *suffix)
{
    snprintf(keys->key, sizeof keys->key, "%s.%s", keys->architecture, suffix);
    return keys->key;
}

static void put_common(arch_keys *k, const synth_shape *s)
{
    synth_key_u32(k->to, key(k, "context_length"), s->context);
    synth_key_u32(k->to, key(k, "embedding_length"), s->d);
    synth_key_u32(k->to, key(k, "block_count"), s->layers);
    synth_key_u32(k->to, key(k, "feed_forward_length"), s->ff);
    synth_key_u32(k->to, key(k, "attention.head_count"), s->heads);
    synth_key_u32(k->to, key(k, "attention.head_count_kv"), s->kv_heads);
    synth_key_f32(k->to, key(k, "attention.layer_norm_rms_epsilon"), s->rms_eps);
    synth_key_f32(k->to, key(k, "rope.freq_base"), s->rope_base);
}

static void put_special(arch_keys *k, const synth_shape *s)
{
    if (s->family != SYNTH_QWEN2 && s->family != SYNTH_QWEN2MOE) {
        synth_key_u32(k->to, key(k, "attention.key_length"), s->head_dim);
        synth_key_u32(k->to, key(k, "attention.value_length"), s->head_dim);
    }
    if (s->family == SYNTH_LLAMA) {
        synth_key_u32(k->to, key(k, "rope.dimension_count"), s->head_dim);
        synth_key_u32(k->to, key(k, "vocab_size"), s->vocab);
    }
    if (s->window) synth_key_u32(k->to, key(k, "attention.sliding_window"), s->window);
    if (s->family == SYNTH_GEMMA3 && s->rope_factor > 0) {
        synth_key_text(k->to, key(k, "rope.scaling.type"), "linear");
        synth_key_f32(k->to, key(k, "rope.scaling.factor"), s->rope_factor);
    }
    if (s->experts) {
        synth_key_u32(k->to, key(k, "expert_count"), s->experts);
        synth_key_u32(k->to, key(k, "expert_used_count"), s->experts_used);
        synth_key_u32(k->to, key(k, "expert_feed_forward_length"), s->expert_ff);
        synth_key_u32(k->to, key(k, "expert_shared_feed_forward_length"), s->ff);
    }
}

static void put_metadata(synth_bytes *to, const synth_plan *plan)
{
    char name[96];
    arch_keys keys = {to, synth_architecture(plan->shape->family), ""};
    snprintf(name, sizeof name, "%s with random weights", plan->shape->name);
    synth_key_text(to, "general.architecture", keys.architecture);
    synth_key_text(to, "general.type", "model");
    synth_key_text(to, "general.name", name);
    put_common(&keys, plan->shape);
    put_special(&keys, plan->shape);
    synth_key_u32(to, "general.file_type", plan->mix->file_type);
    synth_put_vocabulary(to, plan);
    synth_key_u32(to, "general.quantization_version", 2);
}

/* --- header ----------------------------------------------------------------------------------- */

static void put_directory(synth_bytes *to, const synth_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        const synth_tensor *t = &plan->tensors[i];
        synth_put_text(to, t->name);
        synth_put_u32(to, t->dimension_count);
        for (uint32_t j = 0; j < t->dimension_count; j++) synth_put_u64(to, t->dimensions[j]);
        synth_put_u32(to, t->type->number);
        synth_put_u64(to, t->offset_bytes);
    }
}

void synth_put_file_head(synth_bytes *to, uint64_t tensors, const synth_bytes *metadata)
{
    synth_put(to, "GGUF", 4);
    synth_put_u32(to, 3);
    synth_put_u64(to, tensors);
    synth_put_u64(to, metadata->entries);
    synth_put(to, metadata->data, metadata->count);
    to->failed |= metadata->failed;
}

void synth_put_padding(synth_bytes *to)
{
    static const unsigned char zeros[SYNTH_ALIGNMENT];
    synth_put(to, zeros, (SYNTH_ALIGNMENT - to->count % SYNTH_ALIGNMENT) % SYNTH_ALIGNMENT);
}

void synth_put_header(synth_bytes *to, const synth_plan *plan)
{
    synth_bytes metadata = {0};
    put_metadata(&metadata, plan);
    synth_put_file_head(to, plan->count, &metadata);
    free(metadata.data);
    put_directory(to, plan);
    synth_put_padding(to);
}
