#include "model_identity.h"

#include <sodium.h>
#include <string.h>

/* Every tensor gives two pieces of this many bytes, from its beginning and its middle: a fine-tuned
 * model differs from its base in every matrix, and reading all weights would take as long as
 * loading them. */
enum { SAMPLE_BYTES = 256 };

static void add(crypto_generichash_state *hash, const void *data, size_t bytes)
{
    crypto_generichash_update(hash, data, bytes);
}

/* With its length, so that "ab","c" and "a","bc" differ. */
static void add_text(crypto_generichash_state *hash, const char *text)
{
    uint64_t bytes = strlen(text);
    add(hash, &bytes, sizeof bytes);
    add(hash, text, bytes);
}

/* Keys of the family ("qwen2.block_count") and of the tokenizer; of "general." only what changes
 * the arithmetic. */
static bool matters(const char *key)
{
    if (strncmp(key, "general.", 8) == 0) return strcmp(key, "general.architecture") == 0;
    if (strncmp(key, "split.", 6) == 0 || strncmp(key, "quantize.", 9) == 0) return false;
    return strncmp(key, "tokenizer.chat_template", 23) != 0;
}

static void hash_shape(const vt_gguf *gguf, uint8_t *out)
{
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, NULL, 0, VTI_IDENTITY_BYTES);
    vt_gguf_entry entry;
    for (uint64_t i = 0; vt_gguf_get_entry(gguf, i, &entry) == VT_OK; i++) {
        const vti_gguf_value *value = vti_gguf_find(gguf, entry.key);
        if (!value || !matters(entry.key)) continue;
        uint32_t type = (uint32_t)value->type << 1 | value->is_array;
        add_text(&hash, entry.key);
        add(&hash, &type, sizeof type);
        add(&hash, &value->count, sizeof value->count);
        add(&hash, value->data, (size_t)(value->end - value->data));
    }
    crypto_generichash_final(&hash, out, VTI_IDENTITY_BYTES);
}

static void add_sample(crypto_generichash_state *hash, const vti_gguf_tensor *tensor, uint64_t at)
{
    uint64_t left = tensor->size_bytes - at;
    add(hash, (const char *)tensor->data + at, left < SAMPLE_BYTES ? left : SAMPLE_BYTES);
}

static void hash_weights(const vt_gguf *gguf, uint8_t *out)
{
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, NULL, 0, VTI_IDENTITY_BYTES);
    vt_gguf_tensor entry;
    for (uint64_t i = 0; vt_gguf_get_tensor(gguf, i, &entry) == VT_OK; i++) {
        const vti_gguf_tensor *tensor = vti_gguf_find_tensor(gguf, entry.name);
        if (!tensor) continue;
        add_text(&hash, tensor->name);
        add(&hash, &tensor->type, sizeof tensor->type);
        add(&hash, tensor->dimensions, sizeof tensor->dimensions);
        if (!tensor->data || !tensor->size_bytes) continue;
        add_sample(&hash, tensor, 0);
        add_sample(&hash, tensor, tensor->size_bytes / 2);
    }
    crypto_generichash_final(&hash, out, VTI_IDENTITY_BYTES);
}

void vti_model_identity_of(const vt_gguf *gguf, vti_model_identity *out)
{
    hash_shape(gguf, out->shape);
    hash_weights(gguf, out->weights);
}

bool vti_file_stamp_of(const vt_gguf *gguf, vti_file_stamp *out)
{
    static const vti_file_facts none;
    crypto_generichash_state hash;
    memset(out, 0, sizeof *out);
    crypto_generichash_init(&hash, NULL, 0, sizeof out->bytes);
    for (uint32_t i = 0; i < vt_gguf_part_count(gguf); i++) {
        const vti_file_facts *facts = vti_gguf_part_file(gguf, i);
        if (memcmp(facts, &none, sizeof none) == 0) return false;
        add(&hash, facts, sizeof *facts);
    }
    crypto_generichash_final(&hash, out->bytes, sizeof out->bytes);
    return true;
}

bool vti_files_are_as_opened(const vt_gguf *gguf)
{
    for (uint32_t i = 0; i < vt_gguf_part_count(gguf); i++)
        if (!vti_file_is_as_it_was(vt_gguf_part_name(gguf, i), vti_gguf_part_file(gguf, i)))
            return false;
    return true;
}
