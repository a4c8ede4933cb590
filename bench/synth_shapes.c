/* Hyperparameters of published models, from their config.json; where the published GGUF files
 * differ (qwen1.5-0.5b has its output matrix twice, gemma-3-4b drops 64 unused rows of the
 * embedding) they are as in the GGUF files. docs/bench.md names the sources. */
#include "synth.h"

#include <string.h>

const char *synth_architecture(synth_family family)
{
    static const char *const names[SYNTH_FAMILY_COUNT] = {
        [SYNTH_QWEN2] = "qwen2", [SYNTH_QWEN2MOE] = "qwen2moe", [SYNTH_GEMMA3] = "gemma3",
        [SYNTH_LLAMA] = "llama", [SYNTH_QWEN3] = "qwen3",
    };
    return names[family];
}

static const synth_shape shapes[] = {
    {.name = "qwen2.5-0.5b", .family = SYNTH_QWEN2, .layers = 24, .d = 896, .heads = 14,
     .kv_heads = 2, .head_dim = 64, .ff = 4864, .vocab = 151936, .context = 32768,
     .rope_base = 1e6f, .rms_eps = 1e-6f, .tied = true},
    {.name = "qwen2.5-1.5b", .family = SYNTH_QWEN2, .layers = 28, .d = 1536, .heads = 12,
     .kv_heads = 2, .head_dim = 128, .ff = 8960, .vocab = 151936, .context = 32768,
     .rope_base = 1e6f, .rms_eps = 1e-6f, .tied = true},
    {.name = "qwen2.5-3b", .family = SYNTH_QWEN2, .layers = 36, .d = 2048, .heads = 16,
     .kv_heads = 2, .head_dim = 128, .ff = 11008, .vocab = 151936, .context = 32768,
     .rope_base = 1e6f, .rms_eps = 1e-6f, .tied = true},
    {.name = "qwen1.5-0.5b", .family = SYNTH_QWEN2, .layers = 24, .d = 1024, .heads = 16,
     .kv_heads = 16, .head_dim = 64, .ff = 2816, .vocab = 151936, .context = 32768,
     .rope_base = 1e6f, .rms_eps = 1e-6f},
    {.name = "qwen1.5-1.8b", .family = SYNTH_QWEN2, .layers = 24, .d = 2048, .heads = 16,
     .kv_heads = 16, .head_dim = 128, .ff = 5504, .vocab = 151936, .context = 32768,
     .rope_base = 1e6f, .rms_eps = 1e-6f},
    {.name = "qwen1.5-moe-a2.7b", .family = SYNTH_QWEN2MOE, .layers = 24, .d = 2048, .heads = 16,
     .kv_heads = 16, .head_dim = 128, .ff = 5632, .vocab = 151936, .context = 8192,
     .rope_base = 1e6f, .rms_eps = 1e-6f, .experts = 60, .experts_used = 4, .expert_ff = 1408},
    {.name = "gemma3-1b", .family = SYNTH_GEMMA3, .layers = 26, .d = 1152, .heads = 4,
     .kv_heads = 1, .head_dim = 256, .ff = 6912, .vocab = 262144, .context = 32768,
     .rope_base = 1e6f, .rms_eps = 1e-6f, .tied = true, .window = 512},
    {.name = "gemma3-4b", .family = SYNTH_GEMMA3, .layers = 34, .d = 2560, .heads = 8,
     .kv_heads = 4, .head_dim = 256, .ff = 10240, .vocab = 262144, .context = 131072,
     .rope_base = 1e6f, .rms_eps = 1e-6f, .tied = true, .window = 1024, .rope_factor = 8},
    {.name = "llama3.2-1b", .family = SYNTH_LLAMA, .layers = 16, .d = 2048, .heads = 32,
     .kv_heads = 8, .head_dim = 64, .ff = 8192, .vocab = 128256, .context = 131072,
     .rope_base = 5e5f, .rms_eps = 1e-5f, .tied = true, .rope_factor = 32},
    {.name = "qwen3-0.6b", .family = SYNTH_QWEN3, .layers = 28, .d = 1024, .heads = 16,
     .kv_heads = 8, .head_dim = 128, .ff = 3072, .vocab = 151936, .context = 40960,
     .rope_base = 1e6f, .rms_eps = 1e-6f, .tied = true},
    {.name = NULL},
};

const synth_shape *synth_shapes(void) { return shapes; }

const synth_shape *synth_shape_find(const char *name)
{
    for (const synth_shape *s = shapes; s->name; s++)
        if (strcmp(s->name, name) == 0) return s;
    return NULL;
}
