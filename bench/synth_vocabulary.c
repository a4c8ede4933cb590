/* Tokenizers of the right kind and size, of made-up words. Byte-level BPE: a token per byte, a few
 * merges, words that no merge leads to, control tokens at the end. SentencePiece (gemma): control
 * tokens, byte tokens, words. Text becomes tokens mostly byte by byte, and comes back whole. */
#include "synth.h"

#include <stdio.h>
#include <string.h>

#include "../src/gguf.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6, MERGES = 12, CONTROLS = 3 };

static const char *const merges[MERGES][2] = {
    {"Ġ", "t"}, {"h", "e"}, {"Ġ", "a"},  {"i", "n"}, {"r", "e"}, {"Ġt", "he"},
    {"e", "r"}, {"Ġ", "s"}, {"in", "g"}, {"o", "n"}, {"a", "n"}, {"an", "d"},
};

/* The character (UTF-8) that stands for a byte in byte-level BPE: printable Latin-1 for itself, the
 * other bytes in order for U+0100 and up. */
static void byte_name(unsigned byte, char *out)
{
    static const char printable[][2] = {{33, 126}, {(char)161, (char)172}, {(char)174, (char)255}};
    unsigned others = 0, code = byte;
    for (unsigned b = 0; b <= byte; b++) {
        bool own = false;
        for (int i = 0; i < 3; i++)
            own |= b >= (unsigned char)printable[i][0] && b <= (unsigned char)printable[i][1];
        if (b == byte && !own) code = 256 + others;
        others += !own;
    }
    if (code < 128) {
        out[0] = (char)code, out[1] = 0;
    } else {
        out[0] = (char)(0xC0 | code >> 6), out[1] = (char)(0x80 | (code & 63)), out[2] = 0;
    }
}

/* Word `index`: five letters, every other one behind `space`. */
static void made_up_word(uint32_t index, const char *space, char *out, size_t capacity)
{
    char letters[6] = "xaaaa";
    for (uint32_t i = 4, rest = index; i >= 1; i--, rest /= 26)
        letters[i] = (char)('a' + rest % 26);
    snprintf(out, capacity, "%s%s", index % 2 ? space : "", letters);
}

/* --- byte-level BPE --------------------------------------------------------------------------- */

static const char *const qwen_controls[CONTROLS] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
static const char *const llama_controls[CONTROLS] = {"<|begin_of_text|>", "<|end_of_text|>",
                                                     "<|eot_id|>"};

static void bpe_token(uint32_t id, uint32_t vocab, const char *const *controls, char *out,
                      size_t capacity)
{
    if (id < 256)
        byte_name(id, out);
    else if (id < 256 + MERGES)
        snprintf(out, capacity, "%s%s", merges[id - 256][0], merges[id - 256][1]);
    else if (id < vocab - CONTROLS)
        made_up_word(id - 256 - MERGES, "Ġ", out, capacity);
    else
        snprintf(out, capacity, "%s", controls[id - (vocab - CONTROLS)]);
}

static void put_types(synth_bytes *to, const synth_plan *plan, uint32_t first_control)
{
    uint32_t vocab = plan->shape->vocab;
    synth_key_array(to, "tokenizer.ggml.token_type", VTI_GGUF_I32, vocab);
    for (uint32_t id = 0; id < vocab; id++)
        synth_put_u32(to, id < first_control ? NORMAL : CONTROL);
}

static void put_bpe(synth_bytes *to, const synth_plan *plan)
{
    uint32_t vocab = plan->shape->vocab;
    bool llama = plan->shape->family == SYNTH_LLAMA;
    const char *const *controls = llama ? llama_controls : qwen_controls;
    char text[32];
    synth_key_text(to, "tokenizer.ggml.model", "gpt2");
    synth_key_text(to, "tokenizer.ggml.pre", llama ? "llama-bpe" : "qwen2");
    synth_key_array(to, "tokenizer.ggml.tokens", VTI_GGUF_STRING, vocab);
    for (uint32_t id = 0; id < vocab; id++) {
        bpe_token(id, vocab, controls, text, sizeof text);
        synth_put_text(to, text);
    }
    put_types(to, plan, vocab - CONTROLS);
    synth_key_array(to, "tokenizer.ggml.merges", VTI_GGUF_STRING, MERGES);
    for (int i = 0; i < MERGES; i++) {
        snprintf(text, sizeof text, "%s %s", merges[i][0], merges[i][1]);
        synth_put_text(to, text);
    }
    synth_key_u32(to, "tokenizer.ggml.eos_token_id", vocab - 1);
    synth_key_u32(to, "tokenizer.ggml.padding_token_id", vocab - CONTROLS);
    synth_key_u32(to, "tokenizer.ggml.bos_token_id", vocab - CONTROLS);
    if (!llama) synth_key_bool(to, "tokenizer.ggml.add_bos_token", false);
}

/* --- SentencePiece ---------------------------------------------------------------------------- */

enum { SPM_CONTROLS = 6, SPM_BYTES = SPM_CONTROLS, SPM_WORDS = SPM_BYTES + 256 };

static void spm_token(uint32_t id, char *out, size_t capacity)
{
    static const char *const controls[SPM_CONTROLS] = {
        "<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>",
    };
    if (id < SPM_CONTROLS)
        snprintf(out, capacity, "%s", controls[id]);
    else if (id < SPM_WORDS)
        snprintf(out, capacity, "<0x%02X>", (unsigned)(id - SPM_BYTES));
    else
        made_up_word(id - SPM_WORDS, "▁", out, capacity);
}

static uint32_t spm_type(uint32_t id)
{
    if (id == 3) return UNKNOWN;
    if (id < SPM_CONTROLS) return CONTROL;
    return id < SPM_WORDS ? BYTE : NORMAL;
}

static void put_spm(synth_bytes *to, const synth_plan *plan)
{
    uint32_t vocab = plan->shape->vocab;
    char text[32];
    synth_key_text(to, "tokenizer.ggml.model", "llama");
    synth_key_text(to, "tokenizer.ggml.pre", "default");
    synth_key_array(to, "tokenizer.ggml.tokens", VTI_GGUF_STRING, vocab);
    for (uint32_t id = 0; id < vocab; id++) {
        spm_token(id, text, sizeof text);
        synth_put_text(to, text);
    }
    synth_key_array(to, "tokenizer.ggml.scores", VTI_GGUF_F32, vocab);
    for (uint32_t id = 0; id < vocab; id++) synth_put_f32(to, -(float)id);
    synth_key_array(to, "tokenizer.ggml.token_type", VTI_GGUF_I32, vocab);
    for (uint32_t id = 0; id < vocab; id++) synth_put_u32(to, spm_type(id));
    synth_key_u32(to, "tokenizer.ggml.bos_token_id", 2);
    synth_key_u32(to, "tokenizer.ggml.eos_token_id", 1);
    synth_key_u32(to, "tokenizer.ggml.unknown_token_id", 3);
    synth_key_u32(to, "tokenizer.ggml.padding_token_id", 0);
    synth_key_bool(to, "tokenizer.ggml.add_bos_token", true);
    synth_key_bool(to, "tokenizer.ggml.add_space_prefix", false);
}

void synth_put_vocabulary(synth_bytes *to, const synth_plan *plan)
{
    if (plan->shape->family == SYNTH_GEMMA3)
        put_spm(to, plan);
    else
        put_bpe(to, plan);
}
